"""A matrix between two kernels: one wants whole rows on each rank, the other ScaLAPACK's blocks.

    mpirun -n 4 python matrix_between_kernels.py

Rank r gives and gets its own part. The plans are made once; every iteration only moves data.
"""

import numpy as np
from mpi4py import MPI

import reshard

comm = MPI.COMM_WORLD
n = 600
rows = reshard.layout(f"(block, *) on {comm.size}x1", shape=(n, n), order="C")
blocks = reshard.layout(f"{comm.size}x1/32x32", shape=(n, n)) if comm.size != 4 else reshard.layout("2x2/32x32", shape=(n, n))

to_blocks = reshard.Plan(rows, blocks, "f8", comm)
to_rows = reshard.Plan(blocks, rows, "f8", comm)

first, columns = rows.indices(comm.rank)
mine = np.sin(first[:, None] + 0.5 * columns[None, :])
for step in range(3):
    mine /= np.linalg.norm(mine, axis=1, keepdims=True)  # a kernel that needs whole rows
    block = to_blocks.run(mine)
    block += 0.25 / (step + 1)  # one that works on blocks, in Fortran's order
    mine = to_rows.run(block, out=mine)

# The same on one process.
whole = np.sin(np.arange(n)[:, None] + 0.5 * np.arange(n)[None, :])
for step in range(3):
    whole = whole / np.linalg.norm(whole, axis=1, keepdims=True) + 0.25 / (step + 1)
assert np.array_equal(mine, whole[np.ix_(first, columns)])
if comm.rank == 0:
    print(f"{comm.size} ranks moved {to_rows.report['bytes']:.0f} bytes in {1e3 * to_rows.report['seconds']:.2f} ms by {to_rows.mover}")
