"""How gradients and messages are laid out, and which kernel mode goes from one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._arrays import check_dtype, check_integer
from ..kernels.rows import EXPAND, PACKED, REAL, REAL_PART

__all__ = ["Format", "Layout", "real_of"]

Layout = Literal["real", "packed", "complex", "complex data"]


@dataclass(frozen=True)
class Format:
    """Dtypes, sizes and kernel modes for gradients of one dtype and length.

    Four layouts. Real coefficients: a message is a gradient. Complex coefficients, packed: the
    reals of a gradient are taken two by two for complex numbers, and a message is as many reals
    (one more if that is odd); complex gradients are complex numbers already. Complex coefficients,
    not packed: a message is one complex number for each real. Complex data: so are the partial
    gradients already.
    """

    gradient_dtype: np.dtype[Any]
    gradient_size: int
    partial_dtype: np.dtype[Any]
    message_dtype: np.dtype[Any]
    message_size: int
    encode_mode: int
    decode_mode: int

    @classmethod
    def of(cls, layout: Layout, p: int, dtype: DTypeLike) -> Format:
        """The format for gradients of p elements."""
        dtype = check_dtype(dtype)
        p = check_integer("the gradient dimension p", p)
        if p < 1:
            raise ValueError(f"the gradient dimension p must be at least 1, not {p}")
        if layout == "real":
            return cls(dtype, p, dtype, dtype, p, REAL, REAL)
        if layout == "packed":
            size = p + p % 2 if dtype.kind == "f" else p
            return cls(dtype, p, dtype, dtype, size, PACKED, PACKED)
        if dtype.kind == "c":
            raise TypeError(
                "this code sends a complex number for each real one and takes real gradients; "
                f"{dtype} gradients: use packed=True (ReedSolomon), or real nodes (LagrangeCode)"
            )
        expanded = np.result_type(dtype, np.complex64)
        if layout == "complex":
            return cls(dtype, p, dtype, expanded, p, EXPAND, REAL_PART)
        return cls(dtype, p, expanded, expanded, p, REAL, REAL_PART)

    def reals(self, array: NDArray[Any], mode: int) -> NDArray[Any]:
        """`array` as the kernels of `mode` take it: complex numbers as pairs of reals."""
        if mode in (REAL, PACKED) and array.dtype.kind == "c":
            return array.view(array.real.dtype)
        return array


def real_of(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Dtype of the gradients that complex `what` of this dtype are of."""
    if dtype.kind != "c":
        raise TypeError(f"{what} of this code must be complex, not {dtype}")
    return np.empty(0, dtype).real.dtype
