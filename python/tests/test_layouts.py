"""Layouts: made, asked, kept; those of other libraries."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import reshard


def test_made_in_every_way() -> None:
    layout = reshard.layout("4x4/64x64", shape=(8192, 8192))
    assert layout == reshard.layout("4x4/64x64 of 8192x8192") == reshard.block_cyclic((8192, 8192), (4, 4), (64, 64))
    assert repr(layout) == str(layout) == "4x4/64x64 of 8192x8192"
    assert (layout.ndim, layout.size, layout.order, layout.copies) == (2, 8192 * 8192, "F", 1)
    assert len({layout, reshard.layout("4x4/64x64 of 8192x8192"), layout.with_order("C")}) == 2
    assert layout.with_order("C").order == "C" and layout.strides(0) == (1, 2048)
    assert reshard.layout("2/3", shape=10).local_shape(1) == (4,)
    assert reshard.whole((3, 4), "C").empty(0).shape == (3, 4)
    assert reshard.layout("2x2/2x2", shape=(4, 4)).shifted(8).ranks == [8, 9, 10, 11]
    assert reshard.layout("(block, *) on 3x2", shape=(9, 4)).copies == 2
    assert reshard.layout("(block, *) on 3x2", shape=(9, 4)).owners(3, 0) == [2, 3]


def test_descriptors_of_scalapack() -> None:
    layout = reshard.from_descriptor([1, 0, 1000, 800, 64, 32, 0, 1, 520], (2, 3), rank=0)
    assert str(layout) == "2x3/64x32 first=0x1 of 1000x800" and layout.strides(0) == (1, 520)
    assert reshard.from_descriptor([1, 0, 1000, 800, 64, 32, 0, 1, 520], (2, 3)).strides(0) == (1, 512)
    with pytest.raises(ValueError, match="have 9"):
        reshard.from_descriptor([1, 0, 1000], (2, 3))
    with pytest.raises(ValueError, match="type 501"):
        reshard.from_descriptor([501, 0, 10, 8, 4, 2, 0, 1, 5], (2, 3))


def test_kept() -> None:
    layout = reshard.layout("2x3/64x32 first=0x1", shape=(1000, 800), order="C").with_strides_of(1, (700, 1))
    for kept in (pickle.loads(pickle.dumps(layout)), copy.deepcopy(layout)):
        assert kept == layout and kept.strides(1) == (700, 1) and hash(kept) == hash(layout)
    plan = reshard.Plan(layout, "3x1/50x50 of 1000x800", "c16", window=np.s_[3:9, :], at=(1, 0))
    kept_plan = pickle.loads(pickle.dumps(plan))
    assert repr(kept_plan) == repr(plan) and kept_plan.elements == plan.elements == 6 * 800
    a = [part.astype("c16") for part in layout.scatter(np.ones((1000, 800), "c16"))]
    a[1] = layout.empty(1, "c16")
    a[1][...] = 1
    for one, other in zip(plan.run(a), kept_plan.run(a), strict=True):
        assert (one == other).all()
    error = pickle.loads(pickle.dumps(pytest.raises(reshard.Error, reshard.layout, "4x4/64y64").value))
    assert (error.kind, error.position) == ("notation", 6) and isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda: reshard.layout("4x4/64y64"), ValueError, "character 7"),
        (lambda: reshard.layout("4x4/64x64"), ValueError, "of"),
        (lambda: reshard.layout("4x4/64x64 of 8x8", shape=(8, 8)), ValueError, "not part of the layout here"),
        (lambda: reshard.layout("4x4/64x64", shape=(8, -8)), ValueError, r"shape was given as \(8, -8\)"),
        (lambda: reshard.layout("2/3", shape=10).owner(-1), ValueError, "-1; give a whole number"),
        (lambda: reshard.layout("2/3", shape=10).owner(2**70), ValueError, "1180591620717411303424; give a whole number"),
        (lambda: reshard.layout("2/3", shape=10).local_shape("a"), TypeError, "'a'; give a whole number"),
        (lambda: reshard.layout("2/3", shape=10).with_ranks([0, -1]), ValueError, "-1"),
        (lambda: reshard.layout("1048576x1048576/1x1", shape=(2**20, 2**20)).ranks, MemoryError, "ranks of a grid"),
        (lambda: reshard.layout("2/3 of 10 strides=2", order="C"), ValueError, "says its strides itself"),
        (lambda: reshard.from_descriptor([1, 0, 1000, 800, 64, 32, 0, 1, 520], (2, 3), rank=99), ValueError, "99"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10", threads=-1), ValueError, "threads was given as -1"),
        (lambda: reshard.Plan("2x2/3x3 of 9x9", "3x1/2x2 of 9x9", axes=(0, -3)), ValueError, "-3"),
        (lambda: reshard.layout("4x4/64x64", shape="8x8"), TypeError, "whole numbers"),
        (lambda: reshard.layout("4x4/64x64", shape=(8, 8), order="K"), ValueError, 'order was given as "K"'),
        (lambda: reshard.layout("4x4/64x64", shape=(8, 8, 8)), ValueError, "dimensions"),
        (lambda: reshard.layout("2/3", shape=10).owner(10), ValueError, "10"),
        (lambda: reshard.layout("2/3", shape=10).owner(1, 2), ValueError, "element"),
        (lambda: reshard.layout("2/3", shape=10).local_shape(7), ValueError, "7"),
        (lambda: reshard.layout("2/3", shape=10).empty(0, object), TypeError, "Python objects"),
        (lambda: reshard.layout("2/3", shape=10).empty(0, ("f4", (3,))), TypeError, "one more dimension"),
        (lambda: reshard.layout("2/3", shape=10).empty(0, "S0"), TypeError, "no size"),
        (lambda: reshard.layout("2/3", shape=10).scatter(np.zeros(9)), ValueError, "9"),
        (lambda: reshard.layout("2/3", shape=10).gather([np.zeros(6)]), ValueError, "list of 1"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 12"), ValueError, "12"),
        (lambda: reshard.Plan("2/3 of 10", 5), TypeError, "dst was given as an object of type int"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10", window=np.s_[::2]), ValueError, "step of 2"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10", window=3), TypeError, "slices"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10", window=np.s_[:, :]), ValueError, "2 slices"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10", window=np.s_[2:8], at=7), ValueError, "window takes 6"),
        (lambda: reshard.Plan("2x2/3x3 of 9x9", "3x1/2x2 of 9x9", axes=(1, 1)), ValueError, "permutation"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10", deadline=3), ValueError, "give comm"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10", threads=0), ValueError, "thread"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10").schedule("fastest"), ValueError, "fastest"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10").simulate(network="cube"), ValueError, "cube"),
        (lambda: reshard.Plan("2/3 of 10", "3/2 of 10", comm=object()), TypeError, "mpi4py"),
        (lambda: reshard.redistribute([], "2/3 of 10", "3/2 of 10"), ValueError, "list of 0"),
        (lambda: reshard.Plan("2/3 of 4611686018427387904", "3/2 of 4611686018427387904"), ValueError, "more than this machine can address"),
    ],
)
def test_what_is_refused(act: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as told:
        act()
    assert isinstance(told.value, reshard.Error) and told.value.kind


def test_windows_as_slices() -> None:
    whole = np.arange(60.0).reshape(6, 10)
    src, dst = reshard.layout("2x2/2x2", shape=(6, 10)), reshard.layout("3x1/1x4", shape=(4, 3))
    for window, axes, at in [
        (np.s_[1:5, 4:7], None, None),
        (np.s_[-5:-1, -3:], None, None),
        (np.s_[..., 2:5], None, (0, 0)),
        (np.s_[2:4], (1, 0), None),
        (np.s_[0:3, 0:4], (-1, -2), None),
        (np.s_[3:3, :2], None, (1, 1)),
    ]:
        piece = whole[window].transpose(axes) if axes else whole[window]
        if any(have > room for have, room in zip(piece.shape, dst.shape, strict=True)):
            with pytest.raises(ValueError, match="window takes"):
                reshard.redistribute(src.scatter(whole), src, dst, window=window, axes=axes, at=at)
            continue
        expected = np.zeros((4, 3))
        first = at or (0, 0)
        expected[first[0] : first[0] + piece.shape[0], first[1] : first[1] + piece.shape[1]] = piece
        got = dst.gather(reshard.redistribute(src.scatter(whole), src, dst, window=window, axes=axes, at=at))
        assert (got == expected).all()


def test_what_is_gathered_has_the_order_of_its_layout() -> None:
    whole = np.arange(35.0).reshape(7, 5)
    for order in ("C", "F"):
        layout = reshard.layout("2x2/3x2", shape=(7, 5), order=order)
        got = layout.gather(layout.scatter(whole))
        assert (got == whole).all()
        assert (got.flags.c_contiguous, got.flags.f_contiguous) == (order == "C", order == "F")


def test_chunks_of_dask_and_xarray() -> None:
    layout = reshard.from_chunks(((3, 3, 2), (4, 5)))
    whole = np.arange(72).reshape(8, 9)
    expected = [whole[a : a + m, b : b + n] for a, m in ((0, 3), (3, 3), (6, 2)) for b, n in ((0, 4), (4, 5))]
    for part, chunk in zip(layout.scatter(whole), expected, strict=True):
        assert (part == chunk).all() and part.flags.c_contiguous
    with pytest.raises(ValueError, match="chunks"):
        reshard.from_chunks(())


def torch_parts(whole: np.ndarray, mesh: tuple[int, ...], placements: list[Any]) -> list[np.ndarray]:
    """What torch.distributed gives each rank, dimension of the mesh by dimension."""
    parts = []
    for place in np.ndindex(*mesh):
        part = whole
        for count, at, placement in zip(mesh, place, placements, strict=True):
            if placement != "replicate":
                dim = placement[1]
                longest = -(-part.shape[dim] // count)
                part = part[(slice(None),) * (dim % part.ndim) + (slice(at * longest, (at + 1) * longest),)]
        parts.append(part)
    return parts


@pytest.mark.parametrize(
    ("shape", "mesh", "placements"),
    [
        ((8, 6), (2, 2), [("shard", 0), "replicate"]),
        ((8, 6), (2, 3), ["replicate", ("shard", 1)]),
        ((7, 5), (2, 3), [("shard", 1), ("shard", 0)]),
        ((13, 5), (2, 3), [("shard", 0), ("shard", 0)]),
        ((13, 5), (3, 2), [("shard", -2), ("shard", 0)]),
        ((3, 4), (8,), [("shard", 0)]),
        ((4, 4, 4), (2, 2, 2), ["replicate", ("shard", 2), "replicate"]),
        ((5,), (3,), ["replicate"]),
        ((5, 4), (1, 2), ["replicate", ("shard", 0)]),
    ],
)
def test_placements_of_torch(shape: tuple[int, ...], mesh: tuple[int, ...], placements: list[Any]) -> None:
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    layout = reshard.from_placements(shape, mesh, placements)
    expected = torch_parts(whole, mesh, placements)
    assert layout.ranks == list(range(len(expected)))
    for part, wanted in zip(layout.scatter(whole), expected, strict=True):
        assert part.shape == wanted.shape and (part == wanted).all()


def test_placements_as_torch_prints_them() -> None:
    # As torch defines them: they print otherwise than they are written.
    class Shard:
        dim = 1

        def __repr__(self) -> str:
            return "Shard(dim=1)"

        def __str__(self) -> str:
            return "S(1)"

    class _StridedShard(Shard):
        split_factor = 2

        def __str__(self) -> str:
            return "_S(1, 2)"

    class Replicate:
        def __str__(self) -> str:
            return "R"

    class Partial:
        def __str__(self) -> str:
            return "P"

    assert reshard.from_placements((4, 6), (2, 2), [Replicate(), Shard()]) == reshard.from_placements(
        (4, 6), (2, 2), ["replicate", ("shard", 1)]
    )
    for placement, error, words in [
        ("partial", ValueError, "not finished"),
        (Partial(), ValueError, "not finished"),
        (_StridedShard(), TypeError, "not known"),
        (("shard", "x"), TypeError, "not known"),
        (("shard", 2), ValueError, "cuts a dimension of 2"),
        ("diagonal", TypeError, "not known"),
    ]:
        with pytest.raises(error, match=words):
            reshard.from_placements((4, 6), (2,), [placement])
    with pytest.raises(ValueError, match="1 placements"):
        reshard.from_placements((4, 6), (2, 2), ["replicate"])
    with pytest.raises(ValueError, match="one more of length 1"):
        reshard.from_placements((4,), (2, 2), [("shard", 0), "replicate"])


def test_partition_specs_of_jax() -> None:
    mesh = {"x": 2, "y": 3}
    whole = np.arange(12 * 6).reshape(12, 6)
    for spec, owners in [
        (("x", "y"), lambda x, y: whole[x * 6 : x * 6 + 6, y * 2 : y * 2 + 2]),
        (("y", "x"), lambda x, y: whole[y * 4 : y * 4 + 4, x * 3 : x * 3 + 3]),
        ((("x", "y"), None), lambda x, y: whole[(3 * x + y) * 2 : (3 * x + y) * 2 + 2]),
        ((("y", "x"),), lambda x, y: whole[(2 * y + x) * 2 : (2 * y + x) * 2 + 2]),
        ((None, "x"), lambda x, y: whole[:, x * 3 : x * 3 + 3]),
        ((), lambda x, y: whole),
    ]:
        layout = reshard.from_partition_spec((12, 6), mesh, spec)
        parts = layout.scatter(whole)
        for rank, (x, y) in enumerate(np.ndindex(2, 3)):
            assert (parts[rank] == owners(x, y)).all(), spec
    for spec, words in [(("z",), "axis 'z'"), (("x", "x"), "twice"), (("x", None, None), "3 entries")]:
        with pytest.raises(ValueError, match=words):
            reshard.from_partition_spec((12, 6), mesh, spec)
    with pytest.raises(ValueError, match="divide"):
        reshard.from_partition_spec((7, 6), mesh, ("x",))
