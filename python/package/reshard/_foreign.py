"""Layouts of other libraries, given as the plain values they print: chunks, placements, partition specs. None of them is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ._errors import ArgumentError, ElementError
from ._reshard import Layout


def from_chunks(chunks: Sequence[Sequence[int]], *, order: str = "C") -> Layout:
    """The layout of an array in chunks, as Dask and xarray write them: for each dimension the lengths of its chunks.

    Each chunk is one part; parts are in the order of the chunks, the last dimension fastest.

    >>> from_chunks(((3, 3, 2), (4, 4)))
    (gen_block(3,3,2), gen_block(4,4)) on 3x2 of 8x8 memory=row
    """
    lengths = [[int(length) for length in dimension] for dimension in chunks]
    if not lengths or any(not dimension for dimension in lengths):
        raise ArgumentError(f"chunks were given as {chunks!r}; give the lengths of the chunks of each dimension", "mismatch")
    deals = [f"gen_block({','.join(map(str, dimension))})" for dimension in lengths]
    return _layout(deals, [len(dimension) for dimension in lengths], [sum(dimension) for dimension in lengths], order)


def from_placements(
    shape: Sequence[int], mesh: Sequence[int], placements: Sequence[Any], *, order: str = "C"
) -> Layout:
    """The layout of a DTensor of torch.distributed: one placement for each dimension of the mesh.

    A placement is ``("shard", dim)`` or ``"replicate"``, or an object of torch of the class ``Shard`` or ``Replicate``.
    Ranks are those of the mesh in the order of its dimensions, the last fastest.

    >>> from_placements((8, 6), (2, 2), [("shard", 0), "replicate"])
    (gen_block(4,4), *) on 2x2 of 8x6 memory=row
    """
    if len(placements) != len(mesh):
        raise ArgumentError(
            f"{len(placements)} placements were given for a mesh of {len(mesh)} dimensions; give one for each", "mismatch"
        )
    shards: dict[int, list[int]] = {}
    copies = []
    for axis, placement in enumerate(placements):
        dim = _sharded(placement, len(shape))
        if dim is None:
            copies.append(axis)
        else:
            shards.setdefault(dim, []).append(axis)
    # torch cuts into pieces of the rounded up length, the last of which may be shorter or empty.
    return _on_mesh(shape, list(mesh), shards, copies, order)


def from_partition_spec(
    shape: Sequence[int], mesh: Mapping[str, int], spec: Sequence[str | Sequence[str] | None], *, order: str = "C"
) -> Layout:
    """The layout of an array of JAX with a NamedSharding: the axes of the mesh with their sizes, and the partition spec as a tuple.

    Axes of the mesh that the spec does not name hold copies. Ranks are the devices of the mesh in its order, the last axis fastest.

    >>> from_partition_spec((8, 6), {"x": 2, "y": 3}, ("x", "y"))
    (gen_block(4,4), gen_block(2,2,2)) on 2x3 of 8x6 memory=row
    """
    names = list(mesh)
    if len(spec) > len(shape):
        raise ArgumentError(f"a spec of {len(spec)} entries was given for an array of {len(shape)} dimensions", "mismatch")
    shards: dict[int, list[int]] = {}
    for dim, entry in enumerate(spec):
        for name in (entry,) if isinstance(entry, str) else (entry or ()):
            if name not in names:
                raise ArgumentError(f"the spec names the axis {name!r}, and the mesh has {', '.join(names)}", "mismatch")
            shards.setdefault(dim, []).append(names.index(name))
    used = [axis for axes in shards.values() for axis in axes]
    if len(set(used)) < len(used):
        raise ArgumentError(f"the spec {tuple(spec)!r} names an axis of the mesh twice; each can cut one dimension", "mismatch")
    for dim, axes in shards.items():
        parts = prod(mesh[names[axis]] for axis in axes)
        if shape[dim] % parts:
            raise ArgumentError(
                f"dimension {dim} has {shape[dim]} elements, which do not divide into {parts} parts, as JAX wants it", "mismatch"
            )
    copies = [axis for axis in range(len(names)) if axis not in used]
    return _on_mesh(shape, list(mesh.values()), shards, copies, order)


def _sharded(placement: Any, dims: int) -> int | None:
    """The dimension that a placement cuts; none if it holds copies."""
    given = isinstance(placement, (str, tuple, list))
    words = [placement] if isinstance(placement, str) else list(placement) if given else [type(placement).__name__]
    kind = str(words[0]).lower() if words else ""
    if "partial" in kind:
        raise ArgumentError(
            f"the placement {placement!r} holds sums that are not finished; redistribute it to Replicate or Shard in torch first",
            "unsupported",
        )
    if kind == "replicate" and len(words) == 1:
        return None
    dim = words[1] if len(words) == 2 else getattr(placement, "dim", None)
    if kind != "shard" or not isinstance(dim, int):
        raise ElementError(
            f'the placement {placement!r} is not known; give ("shard", dim) or "replicate", or Shard and Replicate of torch', "mismatch"
        )
    if not -dims <= dim < dims:
        raise ArgumentError(f"the placement {placement!r} cuts a dimension of {dims}, counted from 0", "out-of-range")
    return dim % dims


def _on_mesh(
    shape: Sequence[int], mesh: list[int], shards: dict[int, list[int]], copies: list[int], order: str
) -> Layout:
    """The layout whose dimension ``d`` is cut by some axes of the mesh, one after the other, and copied along the others."""
    whole = [dim for dim in range(len(shape)) if dim not in shards]
    axes: list[list[int]] = [shards.get(dim, []) for dim in range(len(shape))]
    copies = [axis for axis in copies if mesh[axis] > 1]
    if copies and not whole:
        raise ArgumentError(
            "every dimension of the array is cut, and there are copies along the mesh besides; a layout has copies along a dimension that is "
            "whole, so give the array one more of length 1, as array[..., None] has",
            "unsupported",
        )
    if copies:
        axes[whole[0]] = copies
    deals, extents = [], []
    for dim, length in enumerate(shape):
        extents.append(prod(mesh[axis] for axis in axes[dim]))
        cut = [length]
        for axis in shards.get(dim, []):
            cut = [piece for part in cut for piece in _chunked(part, mesh[axis])]
        deals.append(f"gen_block({','.join(map(str, cut))})" if dim in shards else "*")
    layout = _layout(deals, extents, shape, order)
    # The rank of a process of the grid: its place in the mesh.
    steps = [prod(mesh[axis + 1 :]) for axis in range(len(mesh))]
    ranks = [0]
    for dim in range(len(shape)):
        for axis in axes[dim]:
            ranks = [rank + place * steps[axis] for rank in ranks for place in range(mesh[axis])]
    return layout if ranks == list(range(len(ranks))) else layout.with_ranks(ranks)


def _chunked(length: int, parts: int) -> list[int]:
    """Pieces as torch.chunk makes them."""
    longest = -(-length // parts)
    return [max(0, min(longest, length - part * longest)) for part in range(parts)]


def _layout(deals: Sequence[str], grid: Sequence[int], shape: Sequence[int], order: str) -> Layout:
    return Layout(f"({', '.join(deals)}) on {'x'.join(map(str, grid))}", tuple(shape), order)
