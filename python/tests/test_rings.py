"""Rings in one process; between processes: see ranks.py."""

from __future__ import annotations

import numpy as np
import pytest
import reshard


def test_random_rings() -> None:
    rng = np.random.default_rng(11)
    for _ in range(300):
        procs = int(rng.integers(1, 8))
        loads = [int(load) for load in rng.integers(0, 12, procs)]
        targets = [int(share) for share in rng.multinomial(sum(loads), [1 / procs] * procs)]
        ordered = bool(rng.integers(0, 2))
        costs = [float(cost) for cost in rng.integers(1, 5, procs)] if rng.integers(0, 2) and not ordered else None
        ring = reshard.ring(loads, targets, right=costs, ordered=ordered, one_way=bool(rng.integers(0, 2)) and not ordered)
        items = np.arange(sum(loads) * 2, dtype="i4").reshape(-1, 2)
        parts = np.split(items, np.cumsum(loads)[:-1])
        got = ring.run([np.asfortranarray(part) for part in parts])
        assert [len(part) for part in got] == targets == ring.targets and ring.loads == loads
        every = np.concatenate(got)
        assert (every == items).all() if ordered else sorted(map(tuple, every)) == sorted(map(tuple, items))
        assert ring.makespan >= ring.lower_bound and (ring.optimal is not True or ring.makespan == ring.lower_bound or procs)
        flow = np.zeros(procs, int)
        for sender, receiver, count, start, end in ring.transfers:
            flow[sender] -= count
            flow[receiver] += count
            assert start < end <= ring.makespan
        assert (flow == np.array(targets) - loads).all() and len(ring.net_flow) == procs


def test_equal_shares_and_fractions() -> None:
    assert reshard.ring([7, 0, 0]).targets == [3, 2, 2]
    half = reshard.ring([2, 0], right=[0.5, 0.5], left=[0.5, 0.5])
    assert half.makespan == 0.5 and half.lower_bound == 0.5
    assert "optimal" in repr(half)
    # What is not said is 1, also where the others are not whole.
    assert reshard.ring([0, 1, 0], [1, 0, 0], right=[0.5] * 3).makespan == 1.0
    assert reshard.ring([2, 0], right=[0.1, 0.3], left=[0.7, 0.2]).makespan == pytest.approx(0.1)
    # Measured ones, which have no common unit.
    rng = np.random.default_rng(3)
    costs = rng.random(6) * 1e-7
    fine = reshard.ring([9, 0, 3, 0, 0, 6], right=costs, left=costs[::-1])
    assert 0 < fine.lower_bound <= fine.makespan < 9e-7
    part = reshard.ring([2, 0]).run([b"12", b""])
    assert [share.tobytes() for share in part] == [b"1", b"2"] or [share.tobytes() for share in part] == [b"2", b"1"]


def test_what_is_refused() -> None:
    ring = reshard.ring([2, 1], [1, 2])
    for parts, error, words in [
        ([np.zeros(2)], ValueError, "1 parts"),
        ([np.zeros(2), np.zeros(2)], ValueError, "process 1 has the shape"),
        ([np.zeros((2, 3)), np.zeros((1, 4))], ValueError, r"each of shape \[3\]"),
        ([np.zeros(2), np.zeros(1, "f4")], TypeError, "nothing is converted"),
        ([np.zeros((2, 0)), np.zeros((1, 0))], ValueError, "no bytes"),
        (np.float64(3), TypeError, "list of the arrays"),
    ]:
        with pytest.raises(error, match=words):
            ring.run(parts)
    for act, words in [
        (lambda: reshard.ring([2, 1], [1, 1]), "3"),
        (lambda: reshard.ring([2, 1], [1, 2], one_way=True, left=[1, 1]), "left"),
        (lambda: reshard.ring([2, 1], [1, 2], deadline=3), "give comm"),
        (lambda: reshard.ring([2, 1], [1, 2], right=[1]), "1"),
        (lambda: reshard.ring([2, -1], [1, 0]), "loads was given"),
        (lambda: reshard.ring([2, 1], [1, 2], right=[-1, 1]), "above 0"),
    ]:
        with pytest.raises(ValueError, match=words):
            act()
    for loads in ([2.7, 0], "ab", None):
        with pytest.raises(TypeError, match="loads was given"):
            reshard.ring(loads)  # type: ignore[arg-type]
