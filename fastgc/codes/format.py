"""How gradients and messages are laid out, and which kernel mode goes from one to the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .. import kernels
from .._arrays import check_dtype, check_integer, check_vector, is_half
from ..kernels.rows import EXPAND, PACKED, REAL, REAL_PART

__all__ = ["Format", "Layout", "real_of"]

Layout = Literal["real", "packed", "complex", "complex data"]


@dataclass(frozen=True)
class Format:
    """Dtypes, sizes and kernel modes for gradients of one dtype and length.

    Messages may be of less precision than the partial gradients, down to float16 or bfloat16: these
    are then added up in `sum_dtype` and rounded once, and decoded to float32.

    Gradients may be cut into pieces of equal length: a message is then as long as one of them, the
    last being padded where it is shorter.

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
    pieces: int = 1

    @classmethod
    def of(
        cls,
        layout: Layout,
        p: int,
        dtype: DTypeLike,
        message_dtype: DTypeLike | None = None,
        pieces: int = 1,
    ) -> Format:
        """The format for p elements, of partial gradients of `dtype`."""
        if not isinstance(dtype, np.dtype):
            dtype = check_dtype(dtype, halves=True)
        if message_dtype is not None and not isinstance(message_dtype, np.dtype):
            message_dtype = check_dtype(message_dtype, halves=True)
        p = check_integer("the gradient dimension p", p)
        return cls._of(layout, p, dtype, message_dtype, pieces)

    @classmethod
    def _of(
        cls,
        layout: Layout,
        p: int,
        dtype: np.dtype[Any],
        message_dtype: np.dtype[Any] | None,
        pieces: int,
    ) -> Format:
        dtype = check_dtype(dtype, halves=True)
        message = dtype if message_dtype is None else check_dtype(message_dtype, halves=True)
        if p < 1:
            raise ValueError(f"the gradient dimension p must be at least 1, not {p}")
        piece = -(-p // pieces)
        if layout in ("real", "packed"):
            sums = np.result_type(dtype, np.float32)
            _check_message(message, dtype, sums)
            gradient = np.result_type(message, np.float32)
            mode = REAL if layout == "real" else PACKED
            size = piece + piece % 2 if mode == PACKED and dtype.kind != "c" else piece
            return cls(gradient, p, dtype, sums, message, size, mode, mode, pieces)
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
            return cls(dtype, p, dtype, expanded, expanded, piece, EXPAND, REAL_PART, pieces)
        return cls(dtype, p, expanded, expanded, expanded, piece, REAL, REAL_PART, pieces)

    def sums(self, message: NDArray[Any]) -> NDArray[Any]:
        """Where to add up what becomes `message`: there, or in an array of more precision."""
        if self.sum_dtype == self.message_dtype:
            return message
        return np.empty(self.message_size, dtype=self.sum_dtype)

    def cut(self, array: NDArray[Any]) -> list[NDArray[Any]]:
        """The pieces of a gradient, as long as a message each: views, but where they are padded."""
        if self.pieces == 1:
            return [array]
        size = self.message_size
        found = [array[at : at + size] for at in range(0, self.pieces * size, size)]
        for at, piece in enumerate(found):
            if piece.size < size:
                found[at] = np.zeros(size, dtype=array.dtype)
                found[at][: piece.size] = piece
        return found

    def rows(
        self,
        what: str,
        numbers: Iterable[int],
        arrays: Iterable[NDArray[Any]],
        dtype: np.dtype[Any],
        size: int,
        mode: int,
    ) -> kernels.Rows:
        """Checked rows for a kernel of `mode`, without copying what is contiguous."""
        if isinstance(arrays, np.ndarray) and arrays.dtype == dtype and arrays.shape[1:] == (size,):
            if arrays.strides[1] != arrays.itemsize or not arrays.flags.aligned:
                arrays = arrays.copy()
            reals = self.reals(arrays, mode)
            return kernels.Rows.of(reals, reals.shape[1], reals.dtype)
        checked, shape = list(arrays), (size,)
        # What nearly every call brings, in one test: `check_vector` for each takes twice as long.
        if not all(
            type(array) is np.ndarray
            and array.dtype is dtype
            and array.shape == shape
            and array.flags.carray
            for array in checked
        ):
            checked = [
                check_vector(what, array, dtype, size, number=number)
                for number, array in zip(numbers, checked, strict=True)
            ]
        if dtype.kind == "c":
            checked = [self.reals(array, mode) for array in checked]
        return kernels.Rows.of(checked, checked[0].size, checked[0].dtype)

    def combine(
        self,
        rows: kernels.Rows,
        vector: NDArray[Any],
        out: NDArray[Any],
        check: bool = False,
    ) -> bool:
        """Write to `out` what messages decode to, piece by piece; False if that is not finite.

        What is multiplied by zero is not read.
        """
        mode = self.decode_mode
        if np.count_nonzero(vector) < vector.size:
            (used,) = np.nonzero(vector if self.pieces == 1 else vector.any(axis=1))
            if used.size < len(vector):
                vector, rows = vector[used], rows.select(used)
        if self.pieces == 1:
            return kernels.combine(mode, rows, vector, self.reals(out, mode), check=check)
        good, size = True, self.message_size
        for at, coef in enumerate(np.ascontiguousarray(vector.T)):
            piece = out[at * size : (at + 1) * size]
            whole = piece if piece.size == size else np.empty(size, dtype=out.dtype)
            good &= kernels.combine(mode, rows, coef, self.reals(whole, mode), check=check)
            if whole is not piece:
                piece[:] = whole[: piece.size]
        return good

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
