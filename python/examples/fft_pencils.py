"""A Fourier transform in three dimensions on pencils: whole along one dimension at a time, cut along the other two.

    mpirun -n 4 python fft_pencils.py

Between two transforms the pencils turn: each of them is a layout, and reshard moves one into the next.
"""

import numpy as np
from mpi4py import MPI

import reshard

comm = MPI.COMM_WORLD
shape = (48, 40, 56)
p = max(d for d in range(1, comm.size + 1) if comm.size % d == 0 and d * d <= comm.size)
q = comm.size // p
pencils = [
    reshard.layout(f"(*, block, block) on 1x{p}x{q}", shape=shape, order="F"),  # along the first dimension
    reshard.layout(f"(block, *, block) on {p}x1x{q}", shape=shape, order="C"),
    reshard.layout(f"(block, block, *) on {p}x{q}x1", shape=shape, order="C"),
]
turns = [reshard.Plan(pencils[dim], pencils[dim + 1], "c16", comm) for dim in range(2)]

everything = np.random.default_rng(1).random(shape)
mine = everything[np.ix_(*pencils[0].indices(comm.rank))].astype("c16")
for dim in range(3):
    if dim > 0:
        source = turns[dim - 1].src.empty(comm.rank, "c16")
        source[...] = mine
        mine = turns[dim - 1].run(source)
    mine = np.fft.fft(mine, axis=dim)

expected = np.fft.fftn(everything)[np.ix_(*pencils[2].indices(comm.rank))]
assert np.allclose(mine, expected)
if comm.rank == 0:
    print(f"{comm.size} ranks: equal to one big transform of {shape}")
