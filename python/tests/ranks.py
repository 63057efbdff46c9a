"""What ranks do together: started by test_mpi.py under mpirun, with the name of a part and its arguments.

A part that ends well on a rank prints "fine" for it.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

if "imported-before" in sys.argv:
    import reshard
from mpi4py import MPI

import reshard
from slow import Case, bits, memory, random_case

COMM = MPI.COMM_WORLD
RANK = COMM.rank


def own(case: Case, slow: Any, whole: np.ndarray, rank: int = RANK) -> np.ndarray | None:
    return slow.part(whole, rank) if rank in slow.ranks else None


def check(case: Case, out: np.ndarray | None, seed: int, rank: int = RANK) -> None:
    expected = own(case, case.dst, case.after, rank)
    if expected is None:
        assert out is None, seed
        return
    assert out is not None and out.dtype == case.dtype and out.shape == expected.shape, seed
    if case.scales:
        assert (out == expected).all(), f"case {seed}: rank {RANK}"
    else:
        assert bits(out) == bits(expected), f"case {seed}: rank {RANK}"


def laid(layout: reshard.Layout, part: np.ndarray | None, dtype: np.dtype, rank: int = RANK) -> np.ndarray | None:
    if part is None:
        return None
    array = layout.empty(rank, dtype)
    array[...] = part
    return array


def values(first: str, count: str) -> None:
    """Random redistributions, each rank with memory of its own form."""
    for seed in range(int(first), int(first) + int(count)):
        case = random_case(seed, COMM.size)
        src = reshard.layout(case.src.notation, shape=case.src.shape)
        dst = reshard.layout(case.dst.notation, shape=case.dst.shape)
        rng = np.random.default_rng([seed, RANK])
        a, out = own(case, case.src, case.whole), own(case, case.dst, case.before)
        if seed % 2:
            given = None if a is None else memory(rng, a)[0]
            place = None if out is None or not case.with_out else memory(rng, out)[0]
            if not case.with_out and case.scales.get("beta"):
                continue
            check(case, reshard.redistribute(given, src, dst, COMM, place, **case.arguments, **case.scales), seed)
            continue
        plan = reshard.Plan(src, dst, case.dtype, COMM, **case.arguments)
        for how in range(3):
            given = laid(src, a, case.dtype)
            place = laid(dst, out, case.dtype) if case.with_out else None
            if how == 0:
                check(case, plan.run(given, place, **case.scales), seed)
                continue
            with plan.start(given, place, **case.scales) as run:
                while how == 1 and not run.test():
                    pass
            check(case, run.wait(), seed)
    print("fine")


SRC = reshard.layout("2x2/64x64", shape=(1000, 800), order="C")
DST = reshard.layout("3x1/50x50", shape=(1000, 800), order="C")
WHOLE = np.arange(800_000.0).reshape(1000, 800)


def part(layout: reshard.Layout) -> np.ndarray | None:
    return np.ascontiguousarray(WHOLE[np.ix_(*layout.indices(RANK))]) if RANK in layout.ranks else None


def raises(kinds: Any, words: str, act: Callable[[], object]) -> None:
    since = time.monotonic()
    try:
        act()
    except kinds as error:
        assert words in str(error), f"rank {RANK}: {error}"
    else:
        raise AssertionError(f"rank {RANK}: no exception")
    assert time.monotonic() - since < 30, "told late"


def works() -> None:
    """A redistribution after everything that went wrong."""
    out = reshard.redistribute(part(SRC), SRC, DST, COMM)
    expected = part(DST)
    assert out is None if expected is None else (out == expected).all()


def disagree() -> None:
    """Arguments that are wrong on one rank, or differ between ranks: an exception on all, and it names the rank."""
    a = part(SRC)
    mine = RANK == 1
    told = (reshard.Error, TypeError)
    wrong: list[Callable[[], object]] = [
        lambda: reshard.redistribute(a[:10] if mine else a, SRC, DST, COMM),
        lambda: reshard.redistribute(a.astype("f4") if mine else a, SRC, DST, COMM),
        lambda: reshard.redistribute(a.astype(object) if mine else a, SRC, DST, COMM),
        lambda: reshard.redistribute("nothing" if mine else a, SRC, DST, COMM),
        lambda: reshard.redistribute(None if mine else a, SRC, DST, COMM),
        lambda: reshard.redistribute(a, "4x4/64y64 of 8x8" if mine else SRC, DST, COMM),
        lambda: reshard.redistribute(a, SRC, DST, COMM, window=np.s_[::2] if mine else None),
        lambda: reshard.redistribute(a, SRC, DST, COMM, alpha="two" if mine else 2),
        lambda: reshard.redistribute(a, SRC, DST, COMM, mover="pigeon" if mine else None),
        lambda: reshard.redistribute(a, SRC, DST, COMM, threads=2 if mine else None),
        lambda: reshard.redistribute(a, SRC, DST, COMM, memory=-1 if mine else None),
        lambda: reshard.redistribute(a, SRC, DST, COMM, deadline="5" if mine else None),
        lambda: reshard.redistribute(a, SRC, DST, COMM, mover=7 if mine else None),
        lambda: reshard.redistribute(a, SRC, DST, COMM, conjugate="yes" if mine else None, alpha=1.5),
        lambda: reshard.redistribute(a, SRC, DST, COMM, alpha=np.complex128(2j) if mine else 2),
        lambda: reshard.redistribute(a, SRC, DST, COMM, axes=(0, 5) if mine else None),
        lambda: reshard.Plan(SRC, DST, "f4" if mine else "i4", COMM),
        lambda: reshard.Plan(SRC, "3x1/40x50 of 1000x800" if mine else DST, "f8", COMM),
        lambda: reshard.Plan(SRC, DST, "no type" if mine else "f8", COMM),
        lambda: reshard.Plan(SRC, DST, [("a", "i4"), ("b", "f4")] if mine else "f8", COMM),
        lambda: reshard.ring([1] * 4, [1] * (3 if mine else 4), comm=COMM, dtype="f8"),
        lambda: reshard.ring([1] * 4, comm=COMM, dtype="i8" if mine else "f8"),
        lambda: reshard.ring([1] * 4, comm=COMM, dtype="f8", item=(3, 2) if mine else (2, 3)),
        lambda: reshard.ring([1] * 4, comm=COMM, dtype="f8", one_way=True, left=[1] * 4 if mine else None),
        lambda: reshard.ring([1.5 if mine else 1] * 4, comm=COMM, dtype="f8"),
    ]
    for number, act in enumerate(wrong):
        try:
            raises(told, "" if mine else "rank", act)
        except AssertionError as error:
            raise AssertionError(f"{number}: {error}") from error
        works()
    # Wrong in a run: its plan is of no use any more, on all ranks.
    given: list[Callable[[], Any]] = [
        lambda: a[:10],
        lambda: a.astype("f4"),
        lambda: np.asfortranarray(a),
        lambda: None,
        lambda: a[::-1],
        lambda: [[1.0]],
    ]
    for number, make in enumerate(given):
        plan = reshard.Plan(SRC, DST, "f8", COMM, deadline=20)
        try:
            raises(told, "" if mine else "rank 1", lambda: plan.run(make() if mine else a))
            raises(told, "", lambda: plan.run(a))
        except AssertionError as error:
            raise AssertionError(f"run {number}: {error}") from error
        works()
    print("fine")


def troubled() -> None:
    """A rank raises an exception of its own in the middle of a run, or is interrupted: the others are told who it was."""
    plan = reshard.Plan(SRC, DST, "f8", COMM, deadline=60)

    def meanwhile() -> None:
        with plan.start(part(SRC)):
            # All have begun: so nobody is over before.
            if RANK == 2:
                raise RuntimeError("my own trouble")
            time.sleep(0.2)

    # Ranks 0, 1 and 3 need nothing of rank 2 to begin, and something of it to end.
    raises(RuntimeError if RANK == 2 else reshard.Error, "my own trouble" if RANK in (2, 3) else "rank 2", meanwhile)
    COMM.Barrier()
    works()
    print("fine")


def interrupted() -> None:
    """Ctrl-C in a wait for a rank that does not come."""
    plan = reshard.Plan(SRC, DST, "f8", COMM, deadline=60)
    if RANK == 0:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            plan.run(part(SRC))
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
        COMM.Barrier()
    else:
        COMM.Barrier()
        raises(reshard.Error, "rank 0", lambda: plan.run(part(SRC)))
    works()
    # A signal handler that waits for the run that its own thread waits for; the others come when it was called.
    plan = reshard.Plan(SRC, DST, "f8", COMM)
    if RANK == 0:
        run = plan.start(part(SRC))

        def handler(*_: object) -> None:
            raises(reshard.ArgumentError, "a signal handler called it", run.wait)
            for rank in range(1, COMM.size):
                COMM.send(None, rank)

        signal.signal(signal.SIGUSR1, handler)
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
        run.wait()
    else:
        COMM.recv(source=0)
        plan.run(part(SRC))
    works()
    print("fine")


def missing() -> None:
    """A rank that does not come to a run: the others name it within their deadline."""
    plan = reshard.Plan(SRC, DST, "f8", COMM, deadline=1)
    if RANK != 2:
        raises(reshard.Error, "2: it has exited", lambda: plan.run(part(SRC)))
    COMM.Barrier()
    print("fine")


def exported() -> None:
    """Arrays of a run in flight cannot be resized; they can afterwards."""
    plan = reshard.Plan(SRC, DST, "f8", COMM)
    src, dst = SRC, DST
    shape = dst.local_shape(RANK) if RANK in dst.ranks else None
    source = None if RANK not in src.ranks else bytearray(part(SRC).tobytes())
    a = None if source is None else np.frombuffer(source, "f8").reshape(src.local_shape(RANK))
    out = None if shape is None else np.zeros(shape)
    with plan.start(memoryview(a) if a is not None else None, out) as run:
        del a
        if out is not None and RANK == 0:
            try:
                out.resize((7, 3), refcheck=False)
            except ValueError:
                pass
            else:
                raise AssertionError("resized in flight")
        if RANK == 3:
            time.sleep(0.1)
        if source is not None and RANK == 0:
            try:
                source.append(1)
            except BufferError:
                pass
            else:
                raise AssertionError("resized in flight")
    moved = run.wait()
    assert moved is out
    if out is not None:
        assert (out == part(DST)).all()
    print("fine")


def rings(count: str) -> None:
    """Items passed on between neighbours."""
    rng = np.random.default_rng(7)
    for _ in range(int(count)):
        procs = int(rng.integers(1, COMM.size + 1))
        loads = [int(load) for load in rng.integers(0, 9, procs)]
        targets = [int(share) for share in rng.multinomial(sum(loads), [1 / procs] * procs)]
        ring = reshard.ring(loads, targets, ordered=True, comm=COMM, dtype="f8", item=3)
        offset = sum(loads[:RANK])
        mine = np.arange(3.0 * sum(loads)).reshape(-1, 3)[offset : offset + loads[RANK]] if RANK < procs else None
        got = ring.run(mine)
        if RANK < procs:
            offset = sum(targets[:RANK])
            assert (got == np.arange(3.0 * sum(loads)).reshape(-1, 3)[offset : offset + targets[RANK]]).all()
        else:
            assert got is None
    ring = reshard.ring([3, 1], [2, 2], comm=COMM, dtype="f8", deadline=20)
    if RANK < 2:
        raises(reshard.Error, "the part of process 0 has the shape [2]", lambda: ring.run(np.zeros(2 if RANK == 0 else 1)))
    print("fine")


def files(folder: str) -> None:
    """A set that the ranks write, read and convert together."""
    reshard.save(f"{folder}/old", SRC, part(SRC), COMM, dtype="f8")
    done = reshard.convert(f"{folder}/old", f"{folder}/new", DST, COMM)
    assert done["bytes"] == WHOLE.nbytes
    made = reshard.open(f"{folder}/new")
    assert made.layout.shape == WHOLE.shape and made.dtype == np.dtype("f8")
    if RANK in DST.ranks:
        assert (made.load_as(DST, RANK) == part(DST)).all()
    raises(reshard.Error, "" if RANK == 1 else "rank 1", lambda: reshard.convert(f"{folder}/{'no' if RANK == 1 else 'old'}", f"{folder}/x", DST, COMM))
    raises(reshard.Error, "", lambda: reshard.save(f"{folder}/old", SRC, part(SRC), COMM, dtype="f8"))
    # What is wrong on one rank alone, whatever it is.
    mine = RANK == 1
    for act in (
        lambda: reshard.save(f"{folder}/y", "4x4/64y64" if mine else SRC, part(SRC), COMM, dtype="f8"),
        lambda: reshard.save(f"{folder}/y", SRC, part(SRC), COMM, dtype="i8" if mine else "f8"),
        lambda: reshard.save(f"{folder}/y", SRC, part(SRC), COMM, dtype="f8", format="hdf5" if mine else None),
        lambda: reshard.save(7 if mine else f"{folder}/y", SRC, part(SRC), COMM, dtype="f8"),
        lambda: reshard.save(f"{folder}/y", SRC, part(SRC), COMM, dtype="f8", deadline="soon" if mine else None),
        lambda: reshard.convert(f"{folder}/old", f"{folder}/x", DST, COMM, memory=-3 if mine else None),
        lambda: reshard.convert(f"{folder}/old", f"{folder}/x", 7 if mine else DST, COMM),
    ):
        raises(reshard.Error, "" if mine else "rank 1", act)
    print("fine")


def groups() -> None:
    """Communicators that are not the world; one that is freed before its plan."""
    half = COMM.Split(RANK % 2, -RANK)
    src = reshard.layout(f"{half.size}/3", shape=100)
    dst = reshard.layout(f"{half.size}/7", shape=100)
    plan = reshard.Plan(src, dst, "i4", half)
    mine = np.arange(100, dtype="i4") + 1000 * (RANK % 2)
    me = half.rank
    half.Free()
    assert (plan.run(mine[src.indices(me)]) == mine[dst.indices(me)]).all()
    everybody = COMM.Split(RANK % 2, RANK)
    between = everybody.Create_intercomm(0, COMM, 1 - RANK % 2, 7)
    for wrong in (MPI.COMM_NULL, between, MPI.DOUBLE, MPI.SUM, COMM.Get_group()):
        raises(reshard.Error, "comm was given as", lambda wrong=wrong: reshard.Plan(src, dst, "i4", wrong))
    between.Free()
    everybody.Free()
    print("fine")


class Programs:
    """Random programs on many communicators, which are made and freed in any order; some plans and runs outlive MPI.

    All ranks draw the same of ``shared``, and each for itself of ``own``.
    """

    def __init__(self) -> None:
        self.left: list[Any] = []
        self.right = self.refused = 0

    def play(self, seed: list[int]) -> None:
        self.shared, self.own = np.random.default_rng(seed), np.random.default_rng([*seed, RANK + 1])
        self.groups: list[dict[str, Any] | None] = []
        self.works: list[dict[str, Any]] = []
        self.names = 0
        for _ in range(self.shared.integers(2, 6)):
            self.make_group()
        for _ in range(self.shared.integers(2, 5)):
            self.make_plan()
        for _ in range(self.shared.integers(3, 8)):
            kind = self.shared.integers(0, 7)
            if kind == 0:
                self.make_group()
            elif kind == 1:
                self.make_plan()
            elif kind == 2:
                self.free(int(self.shared.integers(0, len(self.groups))))
            else:
                self.run_some()
        keeps = self.shared.integers(0, 8) == 0
        for number, group in enumerate(self.groups):
            if self.own.integers(0, 2) and self.works:
                self.drop(self.works.pop(int(self.own.integers(0, len(self.works)))))
            if group is not None and not keeps:
                self.free(number)
                group["aside"].Free()
        for work in self.works:
            self.drop(work)

    def make_group(self) -> None:
        colors = [int(color) if color < 3 else MPI.UNDEFINED for color in self.shared.integers(0, 4, COMM.size)]
        kind, parent = int(self.shared.integers(0, 8)), int(self.shared.integers(-1, len(self.groups)))
        made, group = MPI.COMM_NULL, self.groups[parent] if parent >= 0 else {"comm": COMM}
        source = MPI.COMM_NULL if group is None else group["comm"]
        if kind < 3:
            made = [lambda: COMM, lambda: MPI.COMM_SELF, MPI.COMM_SELF.Dup][kind]()
        elif source != MPI.COMM_NULL and kind == 3:
            self.refuse_between(source)
        elif source != MPI.COMM_NULL:
            made = source.Dup() if kind == 4 else source.Split(colors[RANK], -RANK)
        if made == MPI.COMM_NULL:
            self.groups.append(None)
            return
        aside = made.Dup()
        members = aside.allgather(RANK)
        self.groups.append({"comm": made, "aside": aside, "members": members, "rank": aside.rank, "size": aside.size, "kept": kind < 2})

    def refuse_between(self, comm: Any) -> None:
        """A communicator between two groups is refused, and everything goes on."""
        if comm.size == 1:
            return
        side = int(2 * comm.rank >= comm.size)
        half = comm.Split(side)
        between = half.Create_intercomm(0, comm, 0 if side else (comm.size + 1) // 2, 7)
        raises(reshard.Error, "comm was given as", lambda: reshard.Plan("1/4 of 4", "1/2 of 4", "i4", between))
        between.Free()
        half.Free()
        self.refused += 1

    def free(self, number: int) -> None:
        group = self.groups[number]
        if group is not None and group["comm"] != MPI.COMM_NULL and not group["kept"]:
            group["comm"].Free()

    def make_plan(self) -> None:
        number, seed, name = int(self.shared.integers(0, len(self.groups))), int(self.shared.integers(0, 1 << 30)), self.names
        mover = [None, "private", "cma", "messages", "mixed", "lockstep"][int(self.shared.integers(0, 6))]
        odd, wrong = int(self.shared.integers(0, COMM.size)), bool(self.shared.integers(0, 3) == 0)
        self.names += 1
        group = self.groups[number]
        if group is None or group["comm"] == MPI.COMM_NULL:
            return
        case = random_case(seed, group["size"])
        mover = None if mover == "cma" and case.scales else mover

        def plan(mover: str | None) -> reshard.Plan:
            src, dst = (reshard.layout(side.notation, shape=side.shape) for side in (case.src, case.dst))
            return reshard.Plan(src, dst, case.dtype, group["comm"], mover=mover, **case.arguments)

        if wrong and odd in group["members"]:
            is_odd = odd == RANK
            raises(reshard.Error, "" if is_odd else f"rank {group['members'].index(odd)}", lambda: plan("pigeon" if is_odd else mover))
            self.refused += 1
        try:
            made = plan(mover)
        except reshard.Error:
            # The system may forbid it.
            assert mover == "cma", f"{mover} is refused"
            made = plan(None)
        self.works.append({"name": name, "group": group, "case": case, "plan": made, "seed": seed})

    def drop(self, work: dict[str, Any]) -> None:
        if self.own.integers(0, 8) == 0:
            self.left.append((work["plan"], *self.parts(work)))
        work.clear()

    def parts(self, work: dict[str, Any]) -> tuple[np.ndarray | None, np.ndarray | None]:
        case, rank = work["case"], work["group"]["rank"]
        a = laid(work["plan"].src, own(case, case.src, case.whole, rank), case.dtype, rank)
        out = laid(work["plan"].dst, own(case, case.dst, case.before, rank), case.dtype, rank) if case.with_out else None
        return a, out

    def run_some(self) -> None:
        """Some plans, all in flight at once, tested in any order; at times one rank refuses, or raises an exception."""
        chosen = {int(name) for name in np.flatnonzero(self.shared.integers(0, 4, self.names + 1))}
        fault, odd, raised = int(self.shared.integers(0, self.names + 1)), int(self.shared.integers(0, COMM.size)), bool(self.shared.integers(0, 2))
        fault = fault if self.shared.integers(0, 3) == 0 else -1
        freed, makes = int(self.shared.integers(0, 3 * len(self.groups))), bool(self.shared.integers(0, 3) == 0)
        works = [work for work in self.works if work["name"] in chosen | {fault}]
        flight: list[tuple[dict[str, Any], Any]] = []
        for at in self.own.permutation(len(works)):
            work = works[at]
            faulty = work["name"] == fault and odd in work["group"]["members"]
            a, out = self.parts(work)
            try:
                if faulty and odd == RANK and not raised:
                    work["plan"].run("nothing", out, **work["case"].scales)
                run = work["plan"].start(a, out, **work["case"].scales)
                if faulty and odd == RANK:
                    with run:
                        raise RuntimeError("my own trouble")
                flight.append((work, run))
            except (reshard.Error, TypeError, RuntimeError) as error:
                assert faulty and (odd == RANK or "rank" in str(error)), error
        if freed < len(self.groups):
            self.free(freed)
        if makes:
            self.make_group()
        while flight:
            at = int(self.own.integers(0, len(flight)))
            work, run = flight[at]
            try:
                # The last one is waited for.
                if len(flight) > 1 and not run.test():
                    continue
                check(work["case"], run.wait(), work["seed"], work["group"]["rank"])
                self.right += 1
            except reshard.Error as error:
                assert work["name"] == fault and odd in work["group"]["members"] and "rank" in str(error), error
            flight.pop(at)
        self.works = [work for work in self.works if work["name"] != fault or odd not in work["group"]["members"]]


def programs(seed: str, count: str) -> None:
    made = Programs()
    for number in range(int(count)):
        try:
            made.play([int(seed), number])
        except BaseException:
            print(f"rank {RANK} of {COMM.size}: program {number} of seed {seed}", file=sys.stderr)
            raise
    plan = reshard.Plan(SRC, DST, "f8", COMM) if COMM.size >= 4 else None
    run = plan.start(part(SRC)) if plan is not None and int(seed) % 2 else None
    assert made.right > 0
    MPI.Finalize()
    for plan, a, out in made.left:
        raises(reshard.Error, "MPI has ended", lambda plan=plan, a=a, out=out: plan.run(a, out))
    if run is not None:
        try:
            run.test()
        except reshard.Error as error:
            assert "MPI has ended" in str(error) or "rank" in str(error), error
    print("fine")


def movers() -> None:
    """Every way in which bytes travel, and a limit of memory."""
    for mover in ("private", "cma", "messages", "mixed", "lockstep"):
        plan = reshard.Plan(SRC, DST, "f8", COMM, mover=mover, memory=64 << 20, deadline=math.inf)
        assert plan.mover == mover
        for _ in range(3):
            out = plan.run(part(SRC))
            expected = part(DST)
            assert out is None if expected is None else (out == expected).all()
    raises(reshard.Error, "1 bytes were given", lambda: reshard.Plan(SRC, DST, "f8", COMM, mover="messages", memory=1))
    print("fine")


def leaks(count: str) -> None:
    """Many calls take no more memory, those that fail among them."""
    plan = reshard.Plan(SRC, DST, "f8", COMM)
    a, out = part(SRC), part(DST)

    def calls(number: int) -> None:
        for _ in range(number):
            plan.run(a, out)
            with plan.start(a, out):
                pass

    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    calls(20)
    before = resident()
    calls(int(count))
    assert resident() - before < 8 << 20
    print("fine")


def big() -> None:
    """More than is moved at once, and the report."""
    src, dst = reshard.layout("2x2/64x64", shape=(2048, 2048)), reshard.layout("4x1/100x100", shape=(2048, 2048))
    plan = reshard.Plan(src, dst, "c16", COMM)
    a = src.empty(RANK, "c16")
    rows, columns = src.indices(RANK)
    a[...] = rows[:, None] + 1j * columns[None, :]
    out = plan.run(a)
    rows, columns = dst.indices(RANK)
    assert (out == rows[:, None] + 1j * columns[None, :]).all()
    report = plan.report
    assert report is not None and report["bytes"] == 2048 * 2048 * 16 and report["seconds"] > 0
    print("fine")


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "imported-before"]
    try:
        globals()[arguments[0]](*arguments[1:])
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        COMM.Abort(1)
    # Plans may end after MPI has.
