"""Whose memory is moved, and whose is refused: NumPy in any order, the buffer protocol, DLPack."""

from __future__ import annotations

import array
import ctypes
import gc
import os
import resource
from typing import Any

import numpy as np
import pytest
import reshard

SRC = reshard.layout("2x1/2x3", shape=(4, 3))
DST = reshard.layout("1x3/4x1", shape=(4, 3))
WHOLE = np.arange(12.0).reshape(4, 3)
# Tensors of NumPy say whether they may be written to.
SAYS_WRITABLE = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)


def moved(parts: list[Any], out: list[Any] | None = None) -> np.ndarray:
    return DST.gather(reshard.redistribute(parts, SRC, DST, out=out))


class Tensor:
    """What offers its memory by DLPack alone."""

    def __init__(self, memory: np.ndarray, *, device: tuple[int, int] = (1, 0), old: bool = False) -> None:
        self.memory, self.device, self.old = memory, device, old

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **words: Any) -> Any:
        if self.old and words:
            raise TypeError("no such words")
        return self.memory.__dlpack__(**words)


def test_tensors_are_read_and_written_where_they_are() -> None:
    parts = [Tensor(part) for part in SRC.scatter(WHOLE)]
    assert (moved(parts) == WHOLE).all()
    out = [np.zeros((4, 1)) for _ in range(3)]
    if SAYS_WRITABLE:
        reshard.redistribute(parts, SRC, DST, out=[Tensor(part) for part in out])
        assert (np.hstack(out) == WHOLE).all()
    # Tensors of before 2024, which say nothing of whether they may be written to.
    old = [Tensor(part, old=True) for part in SRC.scatter(WHOLE)]
    assert (moved(old) == WHOLE).all()
    with pytest.raises(ValueError, match="does not say whether it may be written to"):
        reshard.redistribute(parts, SRC, DST, out=[Tensor(part, old=True) for part in out])
    frozen = np.zeros((4, 1))
    frozen.flags.writeable = False
    if SAYS_WRITABLE:
        with pytest.raises((ValueError, BufferError)):
            reshard.redistribute(parts, SRC, DST, out=[out[0], out[1], Tensor(frozen)])


def test_tensors_that_numpy_has_no_name_for_move_as_bytes() -> None:
    # bfloat16, made by hand: 2 bytes, code 4 of DLPack.
    class Managed(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32), ("ndim", ctypes.c_int32),
            ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
            ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ]  # fmt: skip

    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Bfloat16:
        def __init__(self, memory: np.ndarray) -> None:
            self.memory = memory
            self.shape = (ctypes.c_int64 * memory.ndim)(*memory.shape)
            self.managed = Managed(memory.ctypes.data, 1, 0, memory.ndim, 4, 16, 1, self.shape, None, 0, None, None)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self) -> Any:
            return new(ctypes.addressof(self.managed), b"dltensor", None)

    halves = np.arange(12, dtype="u2").reshape(4, 3)
    got = reshard.redistribute([Bfloat16(np.ascontiguousarray(part)) for part in SRC.scatter(halves)], SRC, DST)
    assert got[0].dtype == np.dtype("V2")
    assert (np.hstack([part.view("u2") for part in got]) == halves).all()


def test_tensors_on_other_devices_are_refused() -> None:
    for device in [(2, 0), (10, 1), (8, 0)]:
        parts = [Tensor(part, device=device) for part in SRC.scatter(WHOLE)]
        with pytest.raises(TypeError, match="main memory") as told:
            moved(parts)
        assert isinstance(told.value, reshard.Error) and told.value.kind == "mismatch"


def test_buffers() -> None:
    layout = reshard.layout("2/3", shape=10)
    to = reshard.layout("1/10", shape=10)
    values = array.array("d", range(10))
    parts = [memoryview(values)[:6], memoryview(values)[6:]]
    got = reshard.redistribute(parts, layout, to)[0]
    assert got.tolist() == [0, 1, 2, 6, 7, 8, 3, 4, 5, 9]
    into = bytearray(80)
    reshard.redistribute(parts, layout, to, out=[memoryview(into).cast("d")])
    assert np.frombuffer(into).tolist() == got.tolist()
    # Letters one by one; bytes are read-only.
    letters = reshard.redistribute([b"abcghi", b"defj"], layout, to)[0]
    assert letters.tobytes() == b"abcdefghij"
    with pytest.raises(ValueError, match="read-only"):
        reshard.redistribute([b"abcghi", b"defj"], layout, to, out=[b"0123456789"])

    class Interface:
        def __init__(self, memory: np.ndarray) -> None:
            self.memory = memory
            self.__array_interface__ = memory.__array_interface__

    assert (moved([Interface(part) for part in SRC.scatter(WHOLE)]) == WHOLE).all()


@pytest.mark.parametrize(
    ("parts", "error", "words"),
    [
        ([1, 2], TypeError, "object of type int"),
        ([[1.0], [2.0]], TypeError, "object of type list"),
        ([None, None], TypeError, "None"),
        ([WHOLE[:2]], ValueError, "a list of 1; without a communicator a is the list of the source parts of all 2 ranks"),
        (WHOLE, TypeError, "without a communicator a is the list"),
        ([WHOLE[:2], WHOLE[:1]], ValueError, r"rank 1 has the shape \[1, 3\], and under the layout .* it is \[2, 3\]"),
        ([WHOLE[:2], WHOLE[2:].astype("f4")], TypeError, "nothing is converted on the way"),
        ([WHOLE[1::-1], WHOLE[2:]], ValueError, "backwards"),
        ([np.broadcast_to(WHOLE[0], (2, 3)), WHOLE[2:]], ValueError, "nowhere"),
        ([WHOLE[:2].astype(object), WHOLE[2:].astype(object)], TypeError, "Python objects"),
        ([np.zeros((2, 3), [("a", "i1"), ("b", "f8")])["b"], WHOLE[2:]], ValueError, "27 bytes apart"),
        ([np.ma.masked_less(WHOLE[:2], 3), WHOLE[2:]], TypeError, "masked array"),
    ],
)
def test_wrong_sources(parts: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words) as told:
        moved(parts)
    assert isinstance(told.value, reshard.Error)


def test_wrong_destinations() -> None:
    parts = SRC.scatter(WHOLE)
    fine = [np.zeros((4, 1)) for _ in range(3)]
    frozen = np.zeros((4, 1))
    frozen.flags.writeable = False
    for out, error, words in [
        (fine[:2], ValueError, "a list of 2"),
        ([*fine[:2], np.zeros((3, 1))], ValueError, "rank 2 has the shape"),
        ([*fine[:2], frozen], ValueError, "rank 2 is read-only"),
        ([*fine[:2], fine[0]], ValueError, "parts 0 and 2, counted from 0, have memory in common"),
        ([*fine[:2], np.zeros((4, 1), "i8")], TypeError, "nothing is converted"),
        ([*fine[:2], Tensor(fine[0])], ValueError, "memory in common" if SAYS_WRITABLE else "does not say"),
        (5, TypeError, "out was given as an object of type int"),
    ]:
        with pytest.raises(error, match=words):
            reshard.redistribute(parts, SRC, DST, out=out)
        assert not np.hstack(fine).any(), "something was written all the same"
    # Interleaved, but apart: columns of one array.
    whole = np.zeros((4, 3))
    reshard.redistribute(parts, SRC, DST, out=[whole[:, :1], whole[:, 1:2], whole[:, 2:]])
    assert (whole == WHOLE).all()


def test_in_place() -> None:
    # Source and destination are one memory.
    layout, to = reshard.layout("1x1/4x4", shape=(4, 4), order="C"), reshard.layout("1x1/4x4", shape=(4, 4), order="C")
    square = np.arange(16.0).reshape(4, 4)
    expected = square.T.copy()
    out = reshard.redistribute([square], layout, to, out=[square], axes=(1, 0))
    assert out[0] is square and (square == expected).all()


def test_plans_refuse_other_memory_and_say_what_to_do() -> None:
    plan = reshard.Plan(SRC, DST, "f8")
    wide = np.zeros((2, 2, 8))
    parts = [wide[rank][:, :6:2] for rank in range(2)]
    for rank in range(2):
        parts[rank][...] = WHOLE[2 * rank : 2 * rank + 2]
    with pytest.raises(ValueError, match=r"strides of \[8, 2\] elements, and the plan was made for \[1, 2\].*with_strides_of"):
        plan.run(parts)
    src = SRC.with_strides_of(0, parts[0]).with_strides_of(1, (8, 2))
    assert src.strides(0) == src.strides(1) == (8, 2) and src != SRC
    assert (DST.gather(reshard.Plan(src, DST, "f8").run(parts)) == WHOLE).all()
    with pytest.raises(ValueError, match="one address"):
        SRC.with_strides_of(0, (1, 1))
    padded = SRC.with_allocated((7, 3))
    assert padded.empty(0, "f4").strides == (4, 28)
    assert (DST.gather(reshard.Plan(padded, DST, "f8").run(padded.scatter(WHOLE))) == WHOLE).all()


def test_arrays_of_a_run_cannot_be_resized_meanwhile() -> None:
    # Between processes: see ranks.py. Here a run is over when it begins, and lets its arrays go.
    part = SRC.scatter(WHOLE)
    with reshard.Plan(SRC, DST, "f8").start(part) as run:
        assert run.test() and run.test()
    run.wait()
    part[0].resize((6, 3), refcheck=False)


def peak() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_nothing_leaks() -> None:
    plan = reshard.Plan(SRC, DST, "f8")
    parts, out = SRC.scatter(WHOLE), [np.zeros((4, 1)) for _ in range(3)]
    tensors = [Tensor(part) for part in parts]
    frozen = np.zeros((4, 1))
    frozen.flags.writeable = False

    def calls(count: int) -> None:
        for _ in range(count):
            plan.run(parts, out)
            plan.run(tensors)
            with plan.start(parts) as run:
                pass
            run.wait()
            try:
                plan.run(parts, [*out[:2], frozen])
            except reshard.Error:
                pass
        for _ in range(count // 100):
            reshard.redistribute(parts, SRC, DST)
            plan.traffic().toarray()
            reshard.ring([3, 1]).run([np.zeros(3), np.zeros(1)])

    calls(2_000)
    gc.collect()
    before, objects = peak(), len(gc.get_objects())
    calls(25_000 if os.environ.get("RESHARD_FULL") else 1_000)
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    assert peak() - before < 4 << 20, "calls take memory"
