"""Rings: loads balanced between neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

from ._errors import ArgumentError
from ._reshard import Ring

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["Ring", "ring"]


def ring(
    loads: Sequence[int],
    targets: Sequence[int] | None = None,
    *,
    right: Sequence[float] | None = None,
    left: Sequence[float] | None = None,
    one_way: bool = False,
    ordered: bool = False,
    comm: Any = None,
    dtype: DTypeLike = None,
    item: int | Sequence[int] | None = None,
    deadline: float | None = None,
    memory: int | None = None,
) -> Ring:
    """Balances loads along a ring of processes in the least time: process i has loads[i] items and gets targets[i].

    Without targets each gets an equal share. ``right[i]`` and ``left[i]`` are what an item takes from process i to its neighbours, 1 if
    not said; ``one_way`` lets items go to the next process only; ``ordered`` keeps their order.

    On a communicator, rank i is process i; ``dtype`` and ``item`` (the shape of an item) say what is moved.

    >>> balanced = ring([5, 0, 1])
    >>> balanced.targets, balanced.makespan
    ([2, 2, 2], 2.0)
    >>> import numpy as np
    >>> [part.tolist() for part in balanced.run([np.arange(5), np.arange(0), np.array([9])])]  # doctest: +SKIP
    [[0, 1], [2, 3], [9, 4]]
    """
    loads = [int(load) for load in loads]
    if targets is None:
        share, rest = divmod(sum(loads), max(len(loads), 1))
        targets = [share + (process < rest) for process in range(len(loads))]
    if one_way and left is not None:
        raise ArgumentError("left was given for a ring that goes one way, to the right; leave one of them out", "mismatch")
    costs = [None if link is None else [Fraction(cost).limit_denominator(10**6) for cost in link] for link in (right, left)]
    denominator = lcm(*(cost.denominator for link in costs if link for cost in link))
    whole = [None if link is None else [int(cost * denominator) for cost in link] for link in costs]
    return Ring(
        loads, list(targets), whole[0], whole[1], denominator, one_way, ordered, comm, dtype, item, deadline, memory
    )
