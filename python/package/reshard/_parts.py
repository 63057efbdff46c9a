"""A whole array into its parts and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._reshard import Layout, redistribute

if TYPE_CHECKING:
    from numpy.typing import NDArray


def scatter(layout: Layout, array: Any) -> list[NDArray[Any]]:
    shape: Any = getattr(array, "shape", None)
    if shape is None:
        shape = memoryview(array).shape if isinstance(array, (bytes, bytearray)) else np.shape(array)
    parts: list[NDArray[Any]] = redistribute([array], Layout.whole(tuple(shape), "C"), layout)
    return parts


def gather(layout: Layout, parts: Sequence[Any]) -> NDArray[Any]:
    whole: NDArray[Any] = redistribute(parts, layout, Layout.whole(layout.shape, layout.order))[0]
    return whole
