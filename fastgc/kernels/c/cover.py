"""Decoding vectors of messages that are plain sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..numpy.cover import CellsPlan, TilingPlan
from ..numpy.edges import EdgesPlan
from .structs import struct_of

__all__ = ["bind_cells", "bind_edges", "bind_tiling"]


def _bound(
    function: Any,
    struct: Any,
    survivors: NDArray[np.int64],
    out: NDArray[np.float64],
    work: NDArray[Any],
) -> Callable[[int], int]:
    """``function(struct, survivors, out, work, f)`` as a function of f."""
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    return partial(function, struct, survivors_, out_, ffi.from_buffer(work))


def bind_cells(
    plan: CellsPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    messages, cells = plan.cell.size, plan.weight.size
    struct = struct_of("fgc_cells", **plan._asdict(), messages=messages, cells=cells)
    work = np.empty(messages + cells, dtype=np.uint8)
    return _bound(lib.fgc_cells_vector, struct, survivors, out, work)


def bind_tiling(
    plan: TilingPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    points = plan.first.size - 1
    struct = struct_of("fgc_tiling", **plan._asdict(), points=points)
    work = np.empty(plan.messages + 2 * points, dtype=np.int64)
    return _bound(lib.fgc_tiling_vector, struct, survivors, out, work)


def bind_edges(
    plan: EdgesPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    messages, vertices = len(plan.ends), plan.weight.size
    struct = struct_of("fgc_edges", **plan._asdict(), messages=messages, vertices=vertices)
    work = np.empty(8 * messages + 11 * vertices + 3, dtype=np.int64)
    return _bound(lib.fgc_edges_vector, struct, survivors, out, work)
