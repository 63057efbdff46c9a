"""A checkpoint of 16 ranks, read by 9: as files of its own, or without converting it.

    python another_number_of_ranks.py
"""

import tempfile
from pathlib import Path

import numpy as np

import reshard

then = reshard.layout("4x4/64x64", shape=(1000, 800))
now = reshard.layout("3x3/100x100", shape=(1000, 800))
whole = np.random.default_rng(0).random((1000, 800))

with tempfile.TemporaryDirectory() as folder:
    old, new = Path(folder, "step_1000"), Path(folder, "step_1000_on_9")
    reshard.save(old, then, then.scatter(whole))  # under mpirun: save(old, then, part, comm)

    # Each of the 9 ranks reads what it needs of the 16 files, and nothing else.
    checkpoint = reshard.open(old)
    parts = [checkpoint.load_as(now, rank) for rank in now.ranks]
    assert (now.gather(parts) == whole).all()

    # Or the set is written anew once, in bounded memory whatever its size.
    done = reshard.convert(old, new, now, memory=64 << 20)
    assert reshard.open(new).verify()["files"] == 9
    print(f"{checkpoint.layout} -> {reshard.open(new).layout}: {done['bytes']} bytes in {done['seconds']:.3f} s")
