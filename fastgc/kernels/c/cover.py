"""Decoding vectors of messages that are plain sums."""

from __future__ import annotations

from functools import partial

import numpy as np

from .._cffi import ffi, lib
from .structs import struct_of

__all__ = ["bind_cells", "bind_edges", "bind_tiling"]


def _bound(function, struct, survivors, out, work):
    """``function(struct, survivors, out, work, f)`` as a function of f."""
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    return partial(function, struct, survivors_, out_, ffi.from_buffer(work))


def bind_cells(plan, survivors, out):
    messages, cells = plan.cell.size, plan.weight.size
    struct = struct_of("fgc_cells", **plan._asdict(), messages=messages, cells=cells)
    work = np.empty(messages + cells, dtype=np.uint8)
    return _bound(lib.fgc_cells_vector, struct, survivors, out, work)


def bind_tiling(plan, survivors, out):
    points = plan.first.size - 1
    struct = struct_of("fgc_tiling", **plan._asdict(), points=points)
    work = np.empty(plan.messages + 2 * points, dtype=np.int64)
    return _bound(lib.fgc_tiling_vector, struct, survivors, out, work)


def bind_edges(plan, survivors, out):
    messages, vertices = len(plan.ends), plan.weight.size
    struct = struct_of("fgc_edges", **plan._asdict(), messages=messages, vertices=vertices)
    work = np.empty(8 * messages + 11 * vertices + 3, dtype=np.int64)
    return _bound(lib.fgc_edges_vector, struct, survivors, out, work)
