"""Rings: loads balanced between neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from operator import index
from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError, ElementError, Error
from ._reshard import Ring

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["Ring", "ring"]

MOST_UNITS = 10**9


def ring(
    loads: Sequence[int],
    targets: Sequence[int] | None = None,
    *,
    right: Sequence[float] | None = None,
    left: Sequence[float] | None = None,
    one_way: bool = False,
    ordered: bool = False,
    comm: Any = None,
    dtype: DTypeLike | None = None,
    item: int | Sequence[int] | None = None,
    deadline: float | None = None,
    memory: int | None = None,
) -> Ring:
    """Balances loads along a ring of processes in the least time: process i has loads[i] items and gets targets[i].

    Without targets each gets an equal share. ``right[i]`` and ``left[i]`` are what an item takes from process i to its neighbours, 1 if
    not said; ``one_way`` lets items go to the next process only; ``ordered`` keeps their order.

    On a communicator, rank i is process i, making the ring is collective, and ``dtype`` and ``item`` (the shape of an item) say what is
    moved.

    >>> balanced = ring([5, 0, 1])
    >>> balanced.targets, balanced.makespan
    ([2, 2, 2], 3.0)
    """
    refused = None
    costs: tuple[list[int] | None, list[int] | None, float] = (None, None, 1.0)
    have: list[int] = []
    want: list[int] = []
    try:
        have = _counts("loads", loads)
        if targets is None:
            share, rest = divmod(sum(have), max(len(have), 1))
            want = [share + (process < rest) for process in range(len(have))]
        else:
            want = _counts("targets", targets)
        if one_way and left is not None:
            raise ArgumentError("left was given for a ring that goes one way, to the right; leave one of them out", "mismatch")
        costs = _in_units(len(have), right, left, one_way)
    except Error as error:
        if comm is None:
            raise
        # The other ranks are waiting: they are told.
        refused = error
    return Ring(
        have, want, *costs, bool(one_way), bool(ordered), comm, dtype, item, deadline, memory, refused
    )


def _counts(name: str, given: Sequence[int]) -> list[int]:
    try:
        counts = [index(count) for count in given]
    except TypeError:
        raise ElementError(f"{name} was given as {given!r}; give a list of whole numbers from 0 on", "mismatch") from None
    if any(not 0 <= count < 2**63 for count in counts):
        raise ArgumentError(f"{name} was given as {given!r}; give whole numbers from 0 on", "out-of-range")
    return counts


def _in_units(
    procs: int, right: Sequence[float] | None, left: Sequence[float] | None, one_way: bool
) -> tuple[list[int] | None, list[int] | None, float]:
    """What an item takes over each link in whole units of time, and the time of a unit: exact, if the numbers are simple."""
    if right is None and left is None:
        return None, None, 1.0
    links = []
    for name, given in (("right", right), ("left", left)):
        try:
            link = [Fraction(cost).limit_denominator(10**12) for cost in ([1] * procs if given is None else given)]
        except (TypeError, ValueError, OverflowError):
            raise ElementError(f"{name} was given as {given!r}; give a number above 0 for each process", "mismatch") from None
        if any(cost < 0 for cost in link):
            raise ArgumentError(f"{name} was given as {given!r}; give numbers above 0", "out-of-range")
        links.append(link)
    every = [cost for link in links for cost in link]
    units = lcm(*(cost.denominator for cost in every))
    most = max(every, default=Fraction(1))
    if units * most > MOST_UNITS:
        # Too fine to be exact: the dearest link has a billion units.
        unit = most / MOST_UNITS
        whole = [[max(1, round(cost / unit)) if cost else 0 for cost in link] for link in links]
        return whole[0], None if one_way else whole[1], float(unit)
    whole = [[int(cost * units) for cost in link] for link in links]
    return whole[0], None if one_way else whole[1], 1 / units
