"""How gradients and messages are laid out, and which kernel mode goes from one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._arrays import check_dtype, check_integer, is_half
from ..kernels.rows import EXPAND, PACKED, REAL, REAL_PART

__all__ = ["Format", "Layout", "real_of"]

Layout = Literal["real", "packed", "complex", "complex data"]


@dataclass(frozen=True)
class Format:
    """Dtypes, sizes and kernel modes for gradients of one dtype and length.

    Messages may be of less precision than the partial gradients, down to float16 or bfloat16: these
    are then added up in `sum_dtype` and rounded once, and decoded to float32.

    Four layouts. Real coefficients: a message is a gradient. Complex coefficients, packed: the
    reals of a gradient are taken two by two for complex numbers, and a message is as many reals
    (one more if that is odd); complex gradients are complex numbers already. Complex coefficients,
    not packed: a message is one complex number for each real. Complex data: so are the partial
    gradients already.
    """

    gradient_dtype: np.dtype[Any]
    gradient_size: int
    partial_dtype: np.dtype[Any]
    sum_dtype: np.dtype[Any]
    message_dtype: np.dtype[Any]
    message_size: int
    encode_mode: int
    decode_mode: int

    @classmethod
    def of(
        cls, layout: Layout, p: int, dtype: DTypeLike, message_dtype: DTypeLike | None = None
    ) -> Format:
        """The format for p elements, of partial gradients of `dtype`."""
        if not isinstance(dtype, np.dtype):
            dtype = check_dtype(dtype, halves=True)
        if message_dtype is not None and not isinstance(message_dtype, np.dtype):
            message_dtype = check_dtype(message_dtype, halves=True)
        p = check_integer("the gradient dimension p", p)
        return cls._of(layout, p, dtype, message_dtype)

    @classmethod
    @lru_cache(maxsize=256)  # a small message is decoded in the time that making one takes
    def _of(
        cls, layout: Layout, p: int, dtype: np.dtype[Any], message_dtype: np.dtype[Any] | None
    ) -> Format:
        dtype = check_dtype(dtype, halves=True)
        message = dtype if message_dtype is None else check_dtype(message_dtype, halves=True)
        if p < 1:
            raise ValueError(f"the gradient dimension p must be at least 1, not {p}")
        if layout in ("real", "packed"):
            sums = np.result_type(dtype, np.float32)
            _check_message(message, dtype, sums)
            gradient = np.result_type(message, np.float32)
            mode = REAL if layout == "real" else PACKED
            size = p + p % 2 if mode == PACKED and dtype.kind != "c" else p
            return cls(gradient, p, dtype, sums, message, size, mode, mode)
        if dtype.kind == "c":
            raise TypeError(
                "this code sends a complex number for each real one and takes real gradients; "
                f"{dtype} gradients: use packed=True (ReedSolomon), or real nodes (LagrangeCode)"
            )
        expanded = np.result_type(dtype, np.complex64)
        if is_half(dtype) or message not in (dtype, expanded):
            raise TypeError(
                f"this code sends {expanded} messages, not {message}: use packed=True "
                "(ReedSolomon), or real nodes (LagrangeCode), for messages of less precision"
            )
        if layout == "complex":
            return cls(dtype, p, dtype, expanded, expanded, p, EXPAND, REAL_PART)
        return cls(dtype, p, expanded, expanded, expanded, p, REAL, REAL_PART)

    def sums(self, message: NDArray[Any]) -> NDArray[Any]:
        """Where to add up what becomes `message`: there, or in an array of more precision."""
        if self.sum_dtype == self.message_dtype:
            return message
        return np.empty(self.message_size, dtype=self.sum_dtype)

    def reals(self, array: NDArray[Any], mode: int) -> NDArray[Any]:
        """`array` as the kernels of `mode` take it: complex numbers as pairs of reals."""
        if mode in (REAL, PACKED) and array.dtype.kind == "c":
            return array.view(array.real.dtype)
        return array


def _check_message(message: np.dtype[Any], partial: np.dtype[Any], sums: np.dtype[Any]) -> None:
    if "c" in (message.kind, partial.kind) and message != partial:
        raise TypeError(
            f"messages of {partial} partial gradients must be {partial}, not {message}; the reals "
            "of complex gradients, gradient.view(np.float32), can be sent with less precision"
        )
    if message.itemsize > sums.itemsize:
        raise TypeError(
            f"messages of {partial} partial gradients must be {sums} or less precise, not {message}"
        )


def real_of(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Dtype of the gradients that complex `what` of this dtype are of."""
    if dtype.kind != "c":
        raise TypeError(f"{what} of this code must be complex, not {dtype}")
    return np.empty(0, dtype).real.dtype
