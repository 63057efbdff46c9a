"""A plan looked at: traffic, schedules, simulations, better ranks, pictures."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import reshard

# Example 1 of Desprez et al.: P = Q = 16, r = 3, s = 5.
PLAN = reshard.Plan("16/3 of 240", "16/5 of 240", "f8")


def test_traffic() -> None:
    traffic = PLAN.traffic()
    table = traffic.toarray()
    assert table.shape == (16, 16) and table.sum() == 240 and len(traffic) == np.count_nonzero(table)
    counted = np.zeros((16, 16), int)
    for index in range(240):
        counted[index // 3 % 16, index // 5 % 16] += 1
    assert (table == counted).all()
    apart = reshard.Plan("2/1 ranks=7,3 of 6", "3/2 ranks=9,1,4 of 6").traffic()
    # Rows and columns are ranks, ascending: 3, 7 and 1, 4, 9.
    assert apart.toarray().tolist() == [[1, 1, 1], [1, 1, 1]]
    assert apart.senders == [3, 7] and apart.receivers == [1, 4, 9]
    scipy = pytest.importorskip("scipy.sparse")
    assert isinstance(traffic.tocoo(), scipy.coo_array) and (traffic.tocoo().toarray() == table).all()


def test_traffic_of_many_ranks_is_short_and_no_table() -> None:
    traffic = reshard.Plan("56000/1 of 56000", "56000/2 of 56000", "f8").traffic()
    assert repr(traffic) == "Traffic(56000 messages from 56000 to 56000 ranks, 56000 elements)"
    with pytest.raises(reshard.ArgumentError, match=r"23\.4 GiB.*tocoo\(\)") as refused:
        traffic.toarray()
    assert refused.value.kind == "too-large"


def test_schedules() -> None:
    schedule = PLAN.schedule()
    assert (len(schedule), schedule.total_cost, schedule.bound_steps, schedule.bound_cost) == (7, 15, 7, 15)
    assert schedule.optimal_steps is True and schedule.optimal_cost is True and schedule.strategy == "optimal"
    assert sum(schedule.costs) == 15
    table = np.zeros((16, 16), int)
    for step, cost in zip(schedule.steps, schedule.costs, strict=True):
        assert len({sender for sender, _, _ in step}) == len(step) == len({receiver for _, receiver, _ in step})
        assert max(elements for _, _, elements in step) == cost
        for sender, receiver, elements in step:
            table[sender, receiver] += elements
    assert (table == PLAN.traffic().toarray()).all()
    for strategy in ["classes", "stepwise", "greedy", "min-cost", "split", "async", "caterpillar", "eager"]:
        assert PLAN.schedule(strategy).strategy == strategy


def test_simulations() -> None:
    timeline = PLAN.simulate(alpha=1e-5, beta=1e-9)
    assert timeline.makespan == pytest.approx(7e-5, rel=0.01)
    assert len(timeline.messages) == len(PLAN.traffic()) and timeline.schedule.strategy == "optimal"
    assert max(end for *_, end in timeline.messages) == timeline.makespan
    assert PLAN.simulate("eager", network="ring", half_duplex=True, barriers=True).makespan > 0
    sending, receiving = timeline.busy
    assert 0 < sending < 1.0001 and 0 < receiving < 1.0001


def test_better_ranks() -> None:
    plan = reshard.Plan("2x4/8x8 of 64x64", "2x4/8x8 rank-order=col of 64x64")
    better = plan.relabel()
    assert (better.moved_before, better.moved_after) == (3072, 0)
    moved = reshard.Plan(plan.src, better.layout).traffic().toarray()
    assert np.trace(moved) == 64 * 64 == better.kept_after


def test_pictures(tmp_path: Path) -> None:
    def drawn(text: str) -> ElementTree.Element:
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        return root

    picture = PLAN.explain(alpha=1e-5)
    drawn(picture._repr_svg_())
    assert picture.svg in picture._repr_html_()
    picture.save(tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").read_text(encoding="utf-8") == picture.svg
    drawn(PLAN.src._repr_svg_())
    drawn(PLAN.simulate()._repr_svg_())
    drawn(reshard.ring([5, 0, 1])._repr_svg_())
    with pytest.raises(ValueError, match="too large to draw"):
        reshard.layout("600/3", shape=6000)._repr_svg_()
    with pytest.raises(ValueError, match="too large to draw"):
        reshard.Plan("600/3 of 6000", "3/600 of 6000").explain()


def test_words() -> None:
    assert repr(PLAN) == "Plan(16/3 of 240 -> 16/5 of 240, float64, 240 elements)"
    assert PLAN.mover == "threads" and PLAN.report is None and PLAN.comm is None
    PLAN.run(PLAN.src.scatter(np.arange(240.0)))
    assert PLAN.report is not None and PLAN.report["bytes"] == 240 * 8
    assert "optimal: 7 steps of at least 7" in repr(PLAN.schedule())
    assert "112 messages" in repr(PLAN.simulate())
