"""Polynomials that nearly vanish at given roots of unity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib

__all__ = ["ridge"]

_double_pointer = ffi.typeof("double[]")  # parsed once
_index_pointer = ffi.typeof("int64_t[]")


def ridge(
    circle: NDArray[np.complex128],
    turns: NDArray[np.int64],
    c: int,
    unit: float,
    out: NDArray[np.complex128],
) -> None:
    """See `fastgc.kernels.choice.Backend`."""
    status = lib.fgc_near_exact_ridge(
        ffi.from_buffer(_double_pointer, circle),
        circle.size // 2,
        ffi.from_buffer(_index_pointer, turns),
        turns.size,
        c,
        unit,
        ffi.from_buffer(_double_pointer, out),
    )
    if status:
        raise MemoryError
