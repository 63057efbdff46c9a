"""Moves distributed arrays from any layout on P processes to any other layout on Q processes.

Describe two layouts, then move: all ranks' parts in one process, or each rank its own part over a communicator of mpi4py.

>>> import numpy as np, reshard
>>> src = reshard.layout("2x2/2x2", shape=(6, 4))
>>> dst = reshard.layout("3x1/1x4", shape=(6, 4))
>>> whole = np.arange(24.0).reshape(6, 4)
>>> parts = reshard.redistribute(src.scatter(whole), src, dst)
>>> bool((dst.gather(parts) == whole).all())
True
"""

from __future__ import annotations

from ._errors import ArgumentError, ElementError, Error, OutOfMemoryError
from ._foreign import from_chunks, from_partition_spec, from_placements
from ._looks import Picture, Relabelling, Traffic
from ._reshard import Layout, Plan, Run, Schedule, ShardSet, Timeline, __version__, convert, open, redistribute, save
from ._rings import Ring, ring

layout = Layout
block_cyclic = Layout.block_cyclic
from_descriptor = Layout.from_descriptor
whole = Layout.whole

__all__ = [
    "ArgumentError",
    "ElementError",
    "Error",
    "Layout",
    "OutOfMemoryError",
    "Picture",
    "Plan",
    "Relabelling",
    "Ring",
    "Run",
    "Schedule",
    "ShardSet",
    "Timeline",
    "Traffic",
    "__version__",
    "block_cyclic",
    "convert",
    "from_chunks",
    "from_descriptor",
    "from_partition_spec",
    "from_placements",
    "layout",
    "open",
    "redistribute",
    "ring",
    "save",
    "whole",
]
