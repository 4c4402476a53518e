"""Vectors of Reed-Solomon codes in twice float64's precision, near-exact ones and exact ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib

__all__ = ["locator_pairs", "ridge_pairs"]

_double_pointer = ffi.typeof("double[]")  # parsed once
_index_pointer = ffi.typeof("int64_t[]")


def ridge_pairs(
    circle: NDArray[np.float64],
    turns: NDArray[np.int64],
    c: int,
    out: NDArray[np.complex128],
) -> None:
    """See `fastgc.kernels.choice.Backend`."""
    status = lib.fgc_near_exact_pairs(
        ffi.from_buffer(_double_pointer, circle),
        len(circle) // 2,
        ffi.from_buffer(_index_pointer, turns),
        turns.size,
        c,
        ffi.from_buffer(_double_pointer, out),
    )
    if status:
        raise MemoryError


def locator_pairs(
    circle: NDArray[np.float64],
    turns: NDArray[np.int64],
    out: NDArray[np.complex128],
) -> None:
    """See `fastgc.kernels.choice.Backend`."""
    status = lib.fgc_locator_pairs(
        ffi.from_buffer(_double_pointer, circle),
        len(circle) // 2,
        ffi.from_buffer(_index_pointer, turns),
        turns.size,
        ffi.from_buffer(_double_pointer, out),
    )
    if status:
        raise MemoryError
