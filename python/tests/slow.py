"""A slow twin: random redistributions, and what NumPy makes of them. Nothing here asks reshard who owns what."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DTYPES: list[Any] = [
    "?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", "c8", "c16", ">f8", ">i4", "S5", "U3", "M8[s]", "m8[ns]", "V7",
    np.longdouble, [("a", "i4"), ("b", "f8")], [("x", "u1"), ("y", "f4", (3,))],
]  # fmt: skip
SEED = int(os.environ.get("RESHARD_SEED", "0"))
"""Changes all random cases at once."""
NUMBERS = ["f4", "f8", "c8", "c16"]


@dataclass
class Slow:
    """A distribution, index by index."""

    shape: list[int]
    grid: list[int]
    deals: list[str]
    owners: list[np.ndarray]
    """For each dimension the process that owns each index; -1 where all do."""
    ranks: list[int]
    """The rank of each process of the grid, the last dimension fastest."""
    options: str = ""

    @property
    def notation(self) -> str:
        grid = "x".join(map(str, self.grid))
        return f"({', '.join(self.deals)}) on {grid}{self.options}"

    def coords(self, rank: int) -> tuple[int, ...]:
        return tuple(int(at) for at in np.unravel_index(self.ranks.index(rank), self.grid))

    def part(self, whole: np.ndarray, rank: int) -> np.ndarray:
        kept = [
            np.flatnonzero((owners == at) | (owners == -1)) for owners, at in zip(self.owners, self.coords(rank), strict=True)
        ]
        return whole[np.ix_(*kept)]

    @property
    def ascending(self) -> list[int]:
        return sorted(self.ranks)


def random_axis(rng: np.random.Generator, length: int, procs: int) -> tuple[str, np.ndarray]:
    at = np.arange(length)
    kind = rng.integers(0, 6)
    if kind == 0:
        return "block", at // max(1, -(-length // procs))
    if kind == 1:
        cuts = np.sort(rng.integers(0, length + 1, procs - 1))
        sizes = np.diff(np.concatenate([[0], cuts, [length]]))
        return f"gen_block({','.join(map(str, sizes))})", np.repeat(np.arange(procs), sizes)
    if kind == 2 and (procs == 1 or rng.integers(0, 2)):
        return "*", np.full(length, -1)
    block = int(rng.integers(1, max(2, length + 2)))
    return f"cyclic({block})", at // block % procs


def random_layout(rng: np.random.Generator, shape: list[int], most_ranks: int) -> Slow:
    dims = len(shape)
    while True:
        grid = [int(rng.integers(1, 4)) for _ in range(dims)]
        if np.prod(grid) <= most_ranks:
            break
    axes = [random_axis(rng, length, procs) for length, procs in zip(shape, grid, strict=True)]
    deals, owners = [axis[0] for axis in axes], [axis[1] for axis in axes]
    count, options = int(np.prod(grid)), ""
    ranks = list(range(count))
    kind = rng.integers(0, 4)
    if kind == 0:
        ranks = [int(rank) for rank in rng.permutation(most_ranks)[:count]]
        options = f" ranks={','.join(map(str, ranks))}"
    elif kind == 1:
        ranks = [int(rank) for rank in np.arange(count).reshape(grid, order="F").ravel()]
        options = " rank-order=col"
    return Slow(shape, grid, deals, owners, ranks, options)


def random_values(rng: np.random.Generator, shape: list[int], dtype: np.dtype, numbers: bool) -> np.ndarray:
    if numbers:
        values = rng.integers(-9, 10, shape).astype(dtype)
        return values + (1j * rng.integers(-9, 10, shape)).astype(dtype) if dtype.kind == "c" else values
    # Any bytes: what is moved is never looked at.
    count = int(np.prod(shape))
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype=dtype, count=count).reshape(shape).copy()


def memory(rng: np.random.Generator, part: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The part in memory of any order, with gaps: a view, what it is a view of, and that before."""
    dims = part.ndim
    steps = rng.integers(1, 3, dims)
    before, after = rng.integers(0, 2, dims), rng.integers(0, 3, dims)
    order = rng.permutation(dims)
    extents = [int(before[dim] + max(0, part.shape[dim] - 1) * steps[dim] + (part.shape[dim] > 0) + after[dim]) for dim in range(dims)]
    base = np.frombuffer(
        rng.bytes(int(np.prod(extents)) * part.itemsize), dtype=np.uint8
    ).copy().view(part.dtype).reshape([extents[dim] for dim in order])
    view = base.transpose(np.argsort(order))
    view = view[tuple(slice(int(before[d]), int(before[d] + (part.shape[d] - 1) * steps[d] + 1) if part.shape[d] else int(before[d]), int(steps[d])) for d in range(dims))]
    view[...] = part
    return view, base, base.copy()


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@dataclass
class Case:
    """A redistribution, and what comes of it."""

    rng: np.random.Generator
    src: Slow
    dst: Slow
    dtype: np.dtype
    whole: np.ndarray
    before: np.ndarray
    after: np.ndarray
    arguments: dict[str, Any] = field(default_factory=dict)
    scales: dict[str, Any] = field(default_factory=dict)
    with_out: bool = True
    fills: bool = True


def random_case(seed: int, most_ranks: int = 9) -> Case:
    rng = np.random.default_rng([seed, SEED])
    dims = int(rng.integers(1, 5))
    numbers = bool(rng.integers(0, 4) == 0)
    dtype = np.dtype(NUMBERS[rng.integers(0, len(NUMBERS))] if numbers else DTYPES[rng.integers(0, len(DTYPES))])
    longest = [40, 14, 8, 6][dims - 1]
    shape = [int(rng.integers(0, 2) and rng.integers(1, longest)) or int(rng.integers(1, longest)) for _ in range(dims)]
    if rng.integers(0, 40) == 0:
        shape[int(rng.integers(0, dims))] = 0
    windowed, permuted = rng.integers(0, 3) == 0, rng.integers(0, 3) == 0
    first = [int(rng.integers(0, length + 1)) if windowed else 0 for length in shape]
    extent = [int(rng.integers(0, length - at + 1)) if windowed else length for length, at in zip(shape, first, strict=True)]
    axes = [int(axis) for axis in (rng.permutation(dims) if permuted else range(dims))]
    at = [int(rng.integers(0, 3)) if windowed else 0 for _ in range(dims)]
    more = [int(rng.integers(0, 3)) if windowed else 0 for _ in range(dims)]
    target = [at[dim] + extent[axes[dim]] + more[dim] for dim in range(dims)]
    src, dst = random_layout(rng, shape, most_ranks), random_layout(rng, target, most_ranks)
    whole, before = random_values(rng, shape, dtype, numbers), random_values(rng, target, dtype, numbers)
    arguments: dict[str, Any] = {}
    if windowed:
        arguments["window"] = tuple(slice(a, a + e) for a, e in zip(first, extent, strict=True))
        arguments["at"] = tuple(at)
    if permuted:
        arguments["axes"] = tuple(axes)
    with_out = bool(rng.integers(0, 2))
    scales: dict[str, Any] = {}
    if numbers and rng.integers(0, 2):
        scales["alpha"] = int(rng.integers(-3, 4))
        if with_out and rng.integers(0, 2):
            scales["beta"] = int(rng.integers(-3, 4))
        if rng.integers(0, 2):
            scales["conjugate"] = True
    fills = all(e == t for e, t in zip([extent[axis] for axis in axes], target, strict=True))
    after = before.copy() if with_out else np.frombuffer(bytes(before.nbytes), dtype=dtype, count=before.size).reshape(target).copy()
    moved = whole[tuple(slice(a, a + e) for a, e in zip(first, extent, strict=True))].transpose(axes)
    place = tuple(slice(a, a + moved.shape[dim]) for dim, a in enumerate(at))
    if scales:
        source = moved.conj() if scales.get("conjugate") else moved
        moved = scales.get("alpha", 1) * source + scales.get("beta", 0) * after[place]
    after[place] = moved
    return Case(rng, src, dst, dtype, whole, before, after, arguments, scales, with_out, fills)
