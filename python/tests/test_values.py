"""Random redistributions in one process, every element against NumPy."""

from __future__ import annotations

import os

import numpy as np
import reshard
from slow import Case, bits, memory, random_case

CASES = 50_000 if os.environ.get("RESHARD_FULL") else 1_500


def layouts(case: Case, order: str = "F") -> tuple[reshard.Layout, reshard.Layout]:
    return (
        reshard.layout(case.src.notation, shape=case.src.shape, order=order),
        reshard.layout(case.dst.notation, shape=case.dst.shape, order=order),
    )


def check(case: Case, out: list[np.ndarray], seed: int) -> None:
    for rank, part in zip(case.dst.ascending, out, strict=True):
        expected = case.dst.part(case.after, rank)
        assert part.dtype == case.dtype and part.shape == expected.shape, seed
        if case.scales:
            assert (part == expected).all(), f"case {seed}: rank {rank}"
        else:
            assert bits(part) == bits(expected), f"case {seed}: rank {rank}"


def test_any_redistribution_gives_what_numpy_gives() -> None:
    for seed in range(CASES):
        case = random_case(seed)
        src, dst = layouts(case)
        a = [memory(case.rng, case.src.part(case.whole, rank)) for rank in case.src.ascending]
        out = [memory(case.rng, case.dst.part(case.before, rank)) for rank in case.dst.ascending] if case.with_out else None
        given = [view for view, _, _ in a]
        place = [view for view, _, _ in out] if out else None
        moved = reshard.redistribute(given, src, dst, out=place, **case.arguments, **case.scales)
        assert place is None or moved is place
        check(case, moved, seed)
        for view, base, before in a:
            assert bits(base) == bits(before), f"case {seed}: a source was written to"
        for view, base, before in out or []:
            # What lies between the elements of a destination is as it was.
            before_view = view_of(view, base, before)
            before_view[...] = view
            assert bits(base) == bits(before), f"case {seed}: memory beside a destination was written to"


def view_of(view: np.ndarray, base: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The same part of another array of the same form."""
    first = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return np.ndarray(view.shape, view.dtype, bytearray() if not other.size else other.reshape(-1).view(np.uint8), first if view.size else 0, view.strides)


def test_plans_are_run_again() -> None:
    for seed in range(CASES // 10):
        case = random_case(seed)
        src, dst = layouts(case, "CF"[seed % 2])
        plan = reshard.Plan(src, dst, case.dtype, **case.arguments)
        a = [src.empty(rank, case.dtype) for rank in src.ranks]
        for part, rank in zip(a, src.ranks, strict=True):
            part[...] = case.src.part(case.whole, rank)
        for how in range(3):
            out = None
            if case.with_out:
                out = [dst.empty(rank, case.dtype) for rank in dst.ranks]
                for part, rank in zip(out, dst.ranks, strict=True):
                    part[...] = case.dst.part(case.before, rank)
            if how == 2:
                with plan.start(a, out, **case.scales) as run:
                    assert run.test()
                moved = run.wait()
            else:
                moved = plan.run(a, out, **case.scales)
            check(case, moved, seed)


def test_scattered_and_gathered() -> None:
    for seed in range(CASES // 10):
        case = random_case(seed)
        layout = reshard.layout(case.src.notation, shape=case.src.shape, order="CF"[seed % 2])
        whole, _, _ = memory(case.rng, case.whole)
        parts = layout.scatter(whole)
        for part, rank in zip(parts, case.src.ascending, strict=True):
            assert bits(part) == bits(case.src.part(case.whole, rank)), seed
            assert layout.local_shape(rank) == part.shape
        assert bits(layout.gather(parts)) == bits(case.whole), seed


def test_who_owns_what() -> None:
    for seed in range(500):
        case = random_case(seed)
        slow = case.src
        layout = reshard.layout(slow.notation, shape=slow.shape)
        assert layout.ranks == slow.ascending and layout.shape == tuple(slow.shape) and layout.grid == tuple(slow.grid)
        for index in np.ndindex(*slow.shape):
            place = [max(int(owners[at]), 0) for owners, at in zip(slow.owners, index, strict=True)]
            rank = slow.ranks[int(np.ravel_multi_index(place, slow.grid))]
            assert layout.owner(*index) == rank
            assert rank in layout.owners(*index) and len(layout.owners(*index)) == layout.copies
            found, local = layout.locate(*index)
            assert found == rank and layout.global_index(rank, *local) == index
            if len(index) > 2:
                break
        for rank in layout.ranks:
            assert bits(case.whole[np.ix_(*layout.indices(rank))]) == bits(slow.part(case.whole, rank))
