"""Sets of files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import reshard

LAYOUT = reshard.layout("4x4/8x8", shape=(100, 120))
LATER = reshard.layout("3x3/10x10", shape=(100, 120))
WHOLE = np.random.default_rng(0).random((100, 120))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    reshard.save(tmp_path / "old", LAYOUT, LAYOUT.scatter(WHOLE))
    return tmp_path / "old"


def test_saved_converted_loaded(old: Path) -> None:
    made = reshard.open(old)
    assert made.layout == LAYOUT and made.dtype == np.dtype("f8") and made.nbytes == WHOLE.nbytes and made.names == [""]
    assert made.path == old and "4x4/8x8" in repr(made)
    done = reshard.convert(old, old.parent / "new", "3x3/10x10", memory=16 << 20)
    assert done["bytes"] == WHOLE.nbytes and done["seconds"] > 0
    new = reshard.open(old.parent / "new")
    assert new.layout == LATER and new.verify()["files"] == 9
    parts = [new.load_as(LATER, rank) for rank in LATER.ranks]
    assert (LATER.gather(parts) == WHOLE).all()
    # Any other layout, and NumPy itself.
    assert (new.load_as("1x1/100x120 of 100x120 memory=row") == WHOLE).all()
    assert (np.load(old.parent / "new" / "rank_0004.npy") == parts[4]).all()


def test_transposed_joined_split(old: Path) -> None:
    reshard.convert(old, old.parent / "whole.npy", "1x1/120x100", axes=(1, 0))
    assert (np.load(old.parent / "whole.npy") == WHOLE.T).all()
    reshard.convert(old.parent / "whole.npy", old.parent / "split", "2x2/60x50", names="{p}_{q}.npy")
    assert (np.load(old.parent / "split" / "1_0.npy") == WHOLE.T[60:, :50]).all()
    reshard.convert(old, old.parent / "named" / "{p}-{q}.npy", LATER, threads=0)
    assert (np.load(old.parent / "named" / "2-1.npy") == LATER.scatter(WHOLE)[7]).all()


def test_files_without_a_manifest(tmp_path: Path) -> None:
    for rank, part in enumerate(LAYOUT.scatter(WHOLE)):
        np.save(tmp_path / f"part{rank}.npy", part)
        part.T.tofile(tmp_path / f"raw{rank}.bin")
    read = reshard.open(tmp_path / "part{rank}.npy", layout="4x4/8x8")
    assert (read.load_as(reshard.whole((100, 120))) == WHOLE).all()
    raw = reshard.open(tmp_path / "raw{rank}.bin", layout=LAYOUT, shape=(100, 120), dtype="f8")
    assert (raw.load_as(LATER, 5) == LATER.scatter(WHOLE)[5]).all()
    with pytest.raises(reshard.Error, match="layout of the files is not known"):
        reshard.open(tmp_path / "part{rank}.npy")


@pytest.mark.parametrize("dtype", ["?", "i2", "f2", "c16", "V12", "S3", "M8[s]", [("a", "i4"), ("b", "f8")]])
def test_types(tmp_path: Path, dtype: object) -> None:
    layout = reshard.layout("2x2/3x3", shape=(10, 11), order="C")
    kind = np.dtype(dtype)  # type: ignore[call-overload]
    whole = np.frombuffer(np.random.default_rng(1).bytes(110 * kind.itemsize), kind).reshape(10, 11)
    reshard.save(tmp_path / "set", layout, layout.scatter(whole), format="raw")
    got = reshard.open(tmp_path / "set").load_as(reshard.whole((10, 11), "C"))
    assert got.itemsize == kind.itemsize and got.tobytes() == whole.tobytes()


def test_a_name_that_numpy_lacks(tmp_path: Path) -> None:
    layout = reshard.layout("(*) on 2", shape=10, order="C")
    halves = np.arange(10, dtype="u2").view("V2")
    reshard.save(tmp_path / "set", layout, [halves, halves], dtype="bf16", format="safetensors")
    assert "bf16" in repr(reshard.open(tmp_path / "set"))


def test_tensors_by_name(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    up, norm = np.arange(24, dtype="f4").reshape(4, 6), np.arange(6, dtype="f4")
    for rank in range(2):
        numpy.save_file({"up": up[2 * rank : 2 * rank + 2], "norm": norm}, tmp_path / f"model-{rank}.safetensors")
    rules = {"up": "(block, *) on 2", "norm": "(*) on 2"}
    reshard.convert(tmp_path / "model-{rank}.safetensors", tmp_path / "new", {"up": "(*, block) on 1x3", "norm": "(*) on 3"}, layout=rules)
    new = reshard.open(tmp_path / "new")
    assert sorted(new.names) == ["norm", "up"] and new.dtype_of("up") == np.dtype("f4")
    assert new.layout_of("norm").copies == 3
    assert (new.load_as("(*, *) on 1x1 of 4x6", name="up") == up).all()
    with pytest.raises(ValueError, match="2 arrays"):
        new.load_as("(*, *) on 1x1 of 4x6")


def test_what_goes_wrong_leaves_nothing(old: Path) -> None:
    new = old.parent / "new"

    def fails(done: int, _: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        reshard.convert(old, new, "3x3/10x10", progress=fails)
    assert not new.exists()
    seen: list[tuple[int, int]] = []
    reshard.convert(old, new, "3x3/10x10", resume=True, progress=lambda done, every: seen.append((done, every)))
    assert seen[-1][0] == seen[-1][1] and (reshard.open(new).load_as(reshard.whole((100, 120))) == WHOLE).all()
    for act, error, words in [
        (lambda: reshard.open("a\0b"), reshard.Error, r"the path a\\0b has a zero byte"),
        (lambda: reshard.convert(old, new, "3x3/10x10"), reshard.Error, "exists"),
        (lambda: reshard.convert(old, old / "in", "3x3/10x10"), reshard.Error, "in"),
        (lambda: reshard.convert(old.parent / "no", new, "3x3/10x10"), reshard.Error, "no"),
        (lambda: reshard.convert(old, old.parent / "x", "3x3/10y10"), ValueError, "character"),
        (lambda: reshard.convert(old, old.parent / "x", 7), TypeError, "object of type int"),
        (lambda: reshard.convert(old, old.parent / "x", "3x3/10x10", format="hdf5"), ValueError, "npy, raw, safetensors"),
        (lambda: reshard.open(old, layout="4x4/8x8"), ValueError, "without a manifest"),
        (lambda: reshard.open(old).load_as("2/3 of 10"), ValueError, "shape"),
        (lambda: reshard.save(old.parent / "y", LAYOUT, [WHOLE]), ValueError, "1 parts"),
        (lambda: reshard.save(old.parent / "y", LAYOUT, LAYOUT.scatter(WHOLE)[:3]), ValueError, "3 parts"),
        (lambda: reshard.save(old.parent / "y", LAYOUT, LAYOUT.scatter(WHOLE), dtype="i8"), TypeError, "only raw bytes"),
        (lambda: reshard.convert(old, old.parent / "x", reshard.layout("3x3/10x10", shape=(90, 90))), ValueError, "of that shape"),
        (lambda: reshard.convert(old, old.parent / "x.npy", "1x1/100x120", format="raw"), ValueError, "to be called"),
        (lambda: reshard.convert(old, old.parent / "x.npy", "3x3/10x10"), ValueError, "one file"),
        (lambda: reshard.convert(old, old.parent / "x.npy", "1x1/100x120", names="a.npy"), ValueError, "its own name"),
        (lambda: reshard.convert(old, old.parent / "x" / "{p}.npy", "3x3/10x10", names="a{p}.npy"), ValueError, "twice"),
        (lambda: reshard.convert(old, old.parent / "x", "3x3/10x10", memory=-1), ValueError, "memory was given as -1"),
    ]:
        with pytest.raises(error, match=words) as told:
            act()
        assert isinstance(told.value, reshard.Error)
        assert not (old.parent / "x").exists() and not (old.parent / "y").exists()
    part = old / "rank_0003.npy"
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    with pytest.raises(reshard.Error, match="rank_0003"):
        reshard.open(old).verify()
