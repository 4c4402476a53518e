"""Products over tables of cyclic codes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["cyclic_product"]

_RUN = 32  # factors between two normalisations; see csrc/levels.h


def cyclic_product(
    table: NDArray[np.float64], m: int, index: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Mantissa and binary exponent of ``prod_j table[m + i - index[j]]``, i = 0 .. m-1."""
    product, exponent = np.ones(m), np.zeros(m, dtype=np.int64)
    slices = np.lib.stride_tricks.sliding_window_view(table, m)  # row m - j starts at t = -j
    for at in range(0, index.size, _RUN):
        product *= np.multiply.reduce(slices[m - index[at : at + _RUN]], axis=0)
        product, shift = np.frexp(product)
        exponent += shift
    return product, exponent
