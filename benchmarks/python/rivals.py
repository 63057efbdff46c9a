"""What people write with mpi4py who redistribute a block-cyclic matrix, beside reshard: started by speed.py on four ranks.

    mpirun -n 4 python rivals.py SIDE TURNS FROM TO [FROM TO ...]
"""

import json
import statistics
import sys

import numpy as np
from mpi4py import MPI

import reshard

COMM = MPI.COMM_WORLD
RANK, SIZE = COMM.rank, COMM.size


def shared(here, there):
    """Along each dimension: which of this part's indices are the other's, too."""
    return [np.flatnonzero(np.isin(mine, theirs, assume_unique=True)) for mine, theirs in zip(here, there, strict=True)]


def blocks_of(part, rows, columns):
    """A derived type of the elements in some rows and columns of a part in Fortran's order."""
    if not len(rows) or not len(columns):
        return MPI.DOUBLE.Create_contiguous(0).Commit()
    # Runs of rows are blocks; a column of them is repeated at every column.
    cuts = np.flatnonzero(np.diff(rows) > 1) + 1
    first = rows[np.concatenate([[0], cuts])]
    length = np.diff(np.concatenate([[0], cuts, [len(rows)]]))
    column = MPI.DOUBLE.Create_indexed(length.tolist(), first.tolist()).Create_resized(0, 8 * part.shape[0])
    cuts = np.flatnonzero(np.diff(columns) > 1) + 1
    first = columns[np.concatenate([[0], cuts])]
    length = np.diff(np.concatenate([[0], cuts, [len(columns)]]))
    return column.Create_indexed(length.tolist(), first.tolist()).Commit()


def measured(side, turns, src_text, dst_text):
    src, dst = (reshard.layout(text, shape=(side, side)) for text in (src_text, dst_text))
    here, there = src.indices(RANK), dst.indices(RANK)
    a = src.empty(RANK)
    a[...] = here[0][:, None] * float(side) + here[1][None, :]
    expected = there[0][:, None] * float(side) + there[1][None, :]
    plan = reshard.Plan(src, dst, "f8", COMM)

    out = [shared(here, dst.indices(rank)) for rank in range(SIZE)]
    into = [shared(there, src.indices(rank)) for rank in range(SIZE)]

    b = dst.empty(RANK)
    sends = [blocks_of(a, *indices) for indices in out]
    receives = [blocks_of(b, *indices) for indices in into]
    ones, zeros = [1] * SIZE, [0] * SIZE

    def alltoallw():
        COMM.Alltoallw([a, ones, zeros, sends], [b, ones, zeros, receives])

    grids = [np.ix_(*indices) for indices in out]
    counts = [len(rows) * len(columns) for rows, columns in out]
    places = [(np.ix_(*indices), tuple(map(len, indices))) for indices in into]
    got = [rows * columns for _, (rows, columns) in places]
    packed, arrived = np.empty(sum(counts)), np.empty(sum(got))

    def alltoallv():
        at = 0
        for grid, count in zip(grids, counts, strict=True):
            packed[at : at + count] = a[grid].ravel()
            at += count
        COMM.Alltoallv([packed, counts, MPI.DOUBLE], [arrived, got, MPI.DOUBLE])
        at = 0
        for (grid, shape), count in zip(places, got, strict=True):
            b[grid] = arrived[at : at + count].reshape(shape)
            at += count

    def ours():
        plan.run(a, b)

    ways = {"reshard": ours, "alltoallw": alltoallw, "alltoallv": alltoallv}
    times = {name: [] for name in ways}
    for turn in range(turns + 2):
        for name, way in ways.items():
            if turn < 2:
                b[...] = -1
            COMM.Barrier()
            begun = MPI.Wtime()
            way()
            slowest = COMM.allreduce(MPI.Wtime() - begun, MPI.MAX)
            if turn >= 2:
                times[name].append(slowest)
            else:
                assert (b == expected).all(), name
    row = {"from": src_text, "to": dst_text, "mover": plan.mover}
    return row | {name: statistics.median(all_of) for name, all_of in times.items()}


def main():
    side, turns, *layouts = sys.argv[1:]
    pairs = zip(layouts[::2], layouts[1::2], strict=True)
    rows = [measured(int(side), int(turns), src, dst) for src, dst in pairs]
    if RANK == 0:
        print(json.dumps(rows))


main()
