"""What people write who reshard a block-cyclic matrix with NumPy: files as memory maps, some whole columns (of files in Fortran order) at
a time, so that memory is bounded.

    python3 files_numpy.py SOURCE DESTINATION MxN 4x4/64x64 3x3/100x100

Improved by somebody who tried to win: panels of many blocks, copies of whole blocks by slices where blocks are not cut, one `take` for
each destination file otherwise, both maps advised to be read and written in order.
"""

import mmap
import sys
from pathlib import Path

import numpy as np

PANEL_BYTES = 64 << 20


def layout(text):
    grid, block = (tuple(map(int, part.split("x"))) for part in text.split("/"))
    return grid, block


def owned(length, processes, block, process):
    """The indices that a process has along a dimension."""
    index = np.arange(length)
    return index[(index // block) % processes == process]


def main():
    source, destination, shape, old, new = sys.argv[1:]
    rows, columns = map(int, shape.split("x"))
    (old_grid, old_block), (new_grid, new_block) = layout(old), layout(new)
    destination = Path(destination)
    destination.mkdir()
    # Files in Fortran order: their transposes have contiguous rows, which are columns of the matrix.
    old_parts, new_parts = {}, {}
    for p in range(old_grid[0]):
        for q in range(old_grid[1]):
            part = np.load(f"{source}/rank_{p * old_grid[1] + q:04}.npy", mmap_mode="r")
            part._mmap.madvise(mmap.MADV_SEQUENTIAL)
            old_parts[p, q] = part.T
    old_rows = [owned(rows, old_grid[0], old_block[0], p) for p in range(old_grid[0])]
    new_rows = [owned(rows, new_grid[0], new_block[0], p) for p in range(new_grid[0])]
    old_columns = [owned(columns, old_grid[1], old_block[1], q) for q in range(old_grid[1])]
    new_columns = [owned(columns, new_grid[1], new_block[1], q) for q in range(new_grid[1])]
    dtype = old_parts[0, 0].dtype
    for p in range(new_grid[0]):
        for q in range(new_grid[1]):
            part = np.lib.format.open_memmap(
                destination / f"rank_{p * new_grid[1] + q:04}.npy",
                mode="w+",
                dtype=dtype,
                shape=(len(new_rows[p]), len(new_columns[q])),
                fortran_order=True,
            )
            new_parts[p, q] = part.T
    width = max(1, PANEL_BYTES // (rows * dtype.itemsize))
    panel = np.empty((width, rows), dtype)
    whole = rows // (old_grid[0] * old_block[0]) * old_grid[0] * old_block[0]
    for start in range(0, columns, width):
        stop = min(start + width, columns)
        for q in range(old_grid[1]):
            first, last = np.searchsorted(old_columns[q], [start, stop])
            here = old_columns[q][first:last] - start
            for p in range(old_grid[0]):
                part = old_parts[p, q][first:last]
                # Whole rounds of blocks by slices, the rest by index.
                mine = whole // old_grid[0]
                rounds = panel[:, :whole].reshape(width, -1, old_grid[0], old_block[0])
                rounds[here, :, p, :] = part[:, :mine].reshape(last - first, -1, old_block[0])
                if mine < part.shape[1]:
                    panel[np.ix_(here, old_rows[p][mine:])] = part[:, mine:]
        for q in range(new_grid[1]):
            first, last = np.searchsorted(new_columns[q], [start, stop])
            here = new_columns[q][first:last] - start
            for p in range(new_grid[0]):
                lines = panel[here]
                np.take(lines, new_rows[p], axis=1, out=new_parts[p, q][first:last], mode="clip")
    for part in new_parts.values():
        base = part.base
        while not isinstance(base, np.memmap) and base is not None:
            base = base.base
        if base is not None:
            base.flush()


main()
