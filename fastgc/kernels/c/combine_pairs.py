"""Linear combinations of long vectors in twice float64's precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..rows import Rows

__all__ = ["combine_pairs"]

_double_pointer = ffi.typeof("double[]")  # parsed once


def combine_pairs(
    rows: Rows,
    coef: NDArray[np.complex128],
    out: NDArray[np.float64],
    extent: int,
    paired: bool,
    rounded: bool,
    accumulate: bool,
    check: bool,
) -> bool:
    """See `fastgc.kernels.combine_pairs`; `extent` numbers, an even one, of all that there are."""
    if rows.c is None:
        rows.c = ffi.from_buffer("uintptr_t[]", rows.addresses)
    return not lib.fgc_combine_pairs(
        rows.c,
        ffi.from_buffer(_double_pointer, coef),
        len(rows.arrays),
        extent,
        rows.length // (2 if paired else 1),
        out.size // (1 if rounded else 2),
        accumulate + 2 * check + 4 * paired + 8 * rounded,  # FGC_ACCUMULATE, ... FGC_ROUNDED
        ffi.from_buffer(_double_pointer, out),
    )
