"""Decoding vectors of messages that are plain sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..cover import CellsPlan, TilingPlan

__all__ = ["bind_cells", "bind_tiling", "bound", "struct_of"]


_pointed_to: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # a struct does not keep that


_KINDS = {np.dtype(np.int64): "int64_t[]", np.dtype(np.float64): "double[]"}


def struct_of(name: str, **fields: Any) -> Any:
    """A struct of these numbers and arrays, which live as long as it does."""
    buffers = {
        field: ffi.from_buffer(_KINDS[value.dtype], value)
        if isinstance(value, np.ndarray)
        else value
        for field, value in fields.items()
    }
    struct = ffi.new(f"{name} *", buffers)
    _pointed_to[struct] = buffers
    return struct


def bound(
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
    """See `fastgc.kernels.bind_cells`."""
    messages, cells = plan.cell.size, plan.weight.size
    struct = struct_of("fgc_cells", **plan._asdict(), messages=messages, cells=cells)
    work = np.empty(messages + cells, dtype=np.uint8)
    return bound(lib.fgc_cells_vector, struct, survivors, out, work)


def bind_tiling(
    plan: TilingPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    """See `fastgc.kernels.bind_tiling`."""
    points = plan.first.size - 1
    struct = struct_of("fgc_tiling", **plan._asdict(), points=points)
    work = np.empty(plan.messages + 2 * points, dtype=np.int64)
    return bound(lib.fgc_tiling_vector, struct, survivors, out, work)
