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

__all__ = ["bind_cells", "bind_tiling"]


_pointed_to: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # a struct does not keep that


def _struct(name: str, **fields: Any) -> Any:
    buffers = {
        field: ffi.from_buffer("int64_t[]", value) if isinstance(value, np.ndarray) else value
        for field, value in fields.items()
    }
    struct = ffi.new(f"{name} *", buffers)
    _pointed_to[struct] = buffers
    return struct


def _bound(
    function: Any,
    struct: Any,
    survivors: NDArray[np.int64],
    out: NDArray[np.float64],
    work: NDArray[Any],
) -> Callable[[int], int]:
    survivors_ = ffi.from_buffer("int64_t[]", survivors)
    out_ = ffi.from_buffer("double[]", out, require_writable=True)
    return partial(function, struct, survivors_, out_, ffi.from_buffer(work))


def bind_cells(
    plan: CellsPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    """See `fastgc.kernels.bind_cells`."""
    struct = _struct("fgc_cells", **plan._asdict(), messages=plan.cell.size, cells=plan.weight.size)
    work = np.empty(plan.cell.size + plan.weight.size, dtype=np.uint8)
    return _bound(lib.fgc_cells_vector, struct, survivors, out, work)


def bind_tiling(
    plan: TilingPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    """See `fastgc.kernels.bind_tiling`."""
    points = plan.first.size - 1
    struct = _struct("fgc_tiling", **plan._asdict(), points=points)
    work = np.empty(plan.messages + 2 * points, dtype=np.int64)
    return _bound(lib.fgc_tiling_vector, struct, survivors, out, work)
