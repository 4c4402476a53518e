"""How gradients and messages are laid out, and which kernel mode goes from one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._arrays import check_dtype, check_integer
from ..kernels.rows import EXPAND, PACKED, REAL, REAL_PART

__all__ = ["Format"]


@dataclass(frozen=True)
class Format:
    """Dtypes, sizes and kernel modes for gradients of one dtype and length.

    Three layouts. Real coefficients: a message is a gradient. Complex coefficients, packed: the
    reals of a gradient are taken two by two for complex numbers, and a message is as many reals
    (one more if that is odd); complex gradients are complex numbers already. Complex coefficients,
    not packed: a message is one complex number for each real.
    """

    gradient_dtype: np.dtype[Any]
    gradient_size: int
    message_dtype: np.dtype[Any]
    message_size: int
    encode_mode: int
    decode_mode: int

    @classmethod
    def of(cls, complex_code: bool, packed: bool, p: int, dtype: DTypeLike) -> Format:
        """The format of a code's messages for gradients of p elements."""
        dtype = check_dtype(dtype)
        p = check_integer("the gradient dimension p", p)
        if p < 1:
            raise ValueError(f"the gradient dimension p must be at least 1, not {p}")
        if not complex_code:
            return cls(dtype, p, dtype, p, REAL, REAL)
        if packed:
            size = p + p % 2 if dtype.kind == "f" else p
            return cls(dtype, p, dtype, size, PACKED, PACKED)
        if dtype.kind == "c":
            raise TypeError(
                "packed=False sends a complex number for each real one and takes real gradients; "
                "complex gradients need no packing: use packed=True"
            )
        return cls(dtype, p, np.result_type(dtype, np.complex64), p, EXPAND, REAL_PART)

    def reals(self, array: NDArray[Any], mode: int) -> NDArray[Any]:
        """`array` as the kernels of `mode` take it: complex numbers as pairs of reals."""
        if mode in (REAL, PACKED) and array.dtype.kind == "c":
            return array.view(array.real.dtype)
        return array
