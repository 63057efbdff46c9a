"""Threads of Python that call at once, and a process that forks."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import reshard

SRC, DST = reshard.layout("2x2/64x64", shape=(600, 500)), reshard.layout("3x1/50x50", shape=(600, 500))


def test_threads_at_once_on_one_plan_and_on_many() -> None:
    shared = reshard.Plan(SRC, DST, "f8")

    def work(number: int) -> bool:
        whole = np.full((600, 500), float(number))
        whole[number % 600] = -1
        plan = shared if number % 2 else reshard.Plan(SRC, DST, "f8", threads=2)
        for _ in range(5):
            if not (DST.gather(plan.run(SRC.scatter(whole))) == whole).all():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_other_threads_go_on_while_data_moves() -> None:
    src, dst = reshard.layout("2x2/8x8", shape=(3000, 3000)), reshard.layout("4x1/7x7", shape=(3000, 3000))
    plan, parts = reshard.Plan(src, dst, "f8", threads=1), src.scatter(np.zeros((3000, 3000)))
    out = [dst.empty(rank) for rank in dst.ranks]
    called, ran = threading.Event(), []

    def other() -> None:
        called.wait()
        ran.append(time.perf_counter())

    # A thread that nobody lets run may not run before this one waits.
    interval, thread = sys.getswitchinterval(), threading.Thread(target=other)
    thread.start()
    sys.setswitchinterval(30)
    try:
        called.set()
        plan.run(parts, out)
        over = time.perf_counter()
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert ran[0] < over, "nobody else ran while data was moved"


def test_after_a_fork() -> None:
    plan, whole = reshard.Plan(SRC, DST, "f8", threads=2), np.random.default_rng(0).random((600, 500))
    assert (DST.gather(plan.run(SRC.scatter(whole))) == whole).all()
    child = os.fork()
    if child == 0:
        # A plan of its own works, and that of the parent, whose threads are not here.
        code = 1
        try:
            own = reshard.Plan(SRC, DST, "f8", threads=2)
            code = 0 if (DST.gather(own.run(SRC.scatter(whole))) == whole).all() else 2
            code = code or (0 if (DST.gather(plan.run(SRC.scatter(whole))) == whole).all() else 3)
            del plan, own
        finally:
            os._exit(code)
    since = time.monotonic()
    while time.monotonic() - since < 60:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        raise AssertionError("the child hangs")
    assert (DST.gather(plan.run(SRC.scatter(whole))) == whole).all()
