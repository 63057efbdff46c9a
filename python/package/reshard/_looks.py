"""A plan looked at: traffic, better ranks, pictures."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._reshard import Layout, Plan


#: The largest table that `Traffic.toarray` makes.
MAX_TABLE_BYTES = 1 << 30


@dataclass(frozen=True, repr=False)
class Traffic:
    """Who owes whom how many elements: triplets, or a table."""

    sender: NDArray[np.uint64]
    receiver: NDArray[np.uint64]
    elements: NDArray[np.uint64]
    senders: list[int]
    receivers: list[int]

    def __len__(self) -> int:
        return len(self.elements)

    def toarray(self) -> NDArray[np.uint64]:
        """The communication grid: a row for each rank of the source, a column for each of the destination, both ascending.

        Beyond 1 GiB it is an error; :meth:`tocoo` takes memory for the messages only.
        """
        rows_and_columns = (len(self.senders), len(self.receivers))
        size = 8 * rows_and_columns[0] * rows_and_columns[1]
        if size > MAX_TABLE_BYTES:
            raise ArgumentError(
                f"a table of {rows_and_columns[0]} x {rows_and_columns[1]} ranks has {size / 2**30:.1f} GiB, and at most 1 is made; "
                f"tocoo() gives the {len(self)} messages as a sparse array",
                "too-large",
            )
        table = np.zeros((len(self.senders), len(self.receivers)), dtype=np.uint64)
        rows = np.searchsorted(np.asarray(self.senders, dtype=np.uint64), self.sender)
        columns = np.searchsorted(np.asarray(self.receivers, dtype=np.uint64), self.receiver)
        table[rows, columns] = self.elements
        return table

    def __repr__(self) -> str:
        return (
            f"Traffic({len(self)} messages from {len(self.senders)} to {len(self.receivers)} ranks, "
            f"{int(self.elements.sum(dtype=object)) if len(self) else 0} elements)"
        )

    def tocoo(self) -> Any:
        """The same as a sparse array of SciPy, which must be installed."""
        sparse: Any = import_module("scipy.sparse")
        rows = np.searchsorted(np.asarray(self.senders, dtype=np.uint64), self.sender)
        columns = np.searchsorted(np.asarray(self.receivers, dtype=np.uint64), self.receiver)
        return sparse.coo_array((self.elements, (rows, columns)), shape=(len(self.senders), len(self.receivers)))


def traffic(plan: Plan) -> Traffic:
    sender, receiver, elements = plan._traffic()
    return Traffic(sender, receiver, elements, plan.src.ranks, plan.dst.ranks)


@dataclass(frozen=True)
class Relabelling:
    """Better ranks for a destination: ``layout`` is the destination on them; counts are elements that stay on their rank or move."""

    layout: Layout
    kept_before: int
    moved_before: int
    kept_after: int
    moved_after: int


def relabel(plan: Plan) -> Relabelling:
    ranks, (kept_before, moved_before, kept_after, moved_after) = plan._relabelled()
    return Relabelling(plan.dst.with_ranks(ranks), kept_before, moved_before, kept_after, moved_after)


@dataclass(frozen=True)
class Picture:
    """A drawing that notebooks show."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>'

    def save(self, path: str | PathLike[str]) -> None:
        """Writes it to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)


def explain(plan: Plan, strategy: str = "optimal", **machine: Any) -> Picture:
    return Picture(plan.simulate(strategy, **machine)._repr_svg_())
