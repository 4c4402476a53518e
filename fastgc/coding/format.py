"""How gradients and messages are laid out, and which kernel mode goes from one to the other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from .. import kernels
from .._base.arrays import (
    Array,
    Floats,
    Output,
    at_least,
    check_dtype,
    check_vector,
    is_half,
    least_number,
    output_of,
    store,
    unit_roundoff,
)
from ..errors import NonFiniteMessageError
from ..kernels.rows import EXPAND, PACKED, REAL, REAL_PART

Layout = Literal["real", "packed", "complex", "complex data"]

_HALVES_END = 65520.0  # from here on, numbers round to Inf in float16


@dataclass(frozen=True)
class Format:
    """Dtypes, sizes and kernel modes for gradients of one dtype and length.

    Messages may be less precise than the partial gradients, down to float16 or bfloat16. They are
    then added up in `sum_dtype`, rounded once, and decoded to float32. Messages may also be more
    precise: float64 for float32 gradients, which are rounded once, when they are decoded.

    float16 ends at 65504: a message beyond that is an error when it is encoded. bfloat16 has the
    range of float32.

    There are four layouts:

    - "real": coefficients are real, and a message is laid out as a gradient.
    - "packed": coefficients are complex. The reals of a gradient are taken in pairs as complex
      numbers, and a message has as many reals (one more if their number is odd). Complex gradients
      are used as they are.
    - "complex": coefficients are complex, and a message has a complex number for each real.
    - "complex data": the partial gradients are complex already.
    """

    gradient_dtype: np.dtype[Any]
    gradient_size: int
    partial_dtype: np.dtype[Any]
    sum_dtype: np.dtype[Any]
    message_dtype: np.dtype[Any]
    message_size: int
    encode_mode: int
    decode_mode: int

    @cached_property
    def unit(self) -> float:
        """Unit roundoff of messages."""
        return unit_roundoff(self.message_dtype)

    @cached_property
    def decoded_dtype(self) -> np.dtype[Any]:
        """Dtype to which messages are combined, before rounding to a gradient of less precision."""
        wide = np.result_type(self.message_dtype, np.float32)
        if self.gradient_dtype.kind != "c" and wide.kind == "c":
            return np.empty(0, wide).real.dtype
        return wide

    @cached_property
    def least(self) -> float:
        """Smallest positive number that every thread keeps while it makes a message of sums.

        Floats are read before they are added as doubles; halves are read by their bits.
        """
        read = self.sum_dtype if is_half(self.partial_dtype) else self.partial_dtype
        return max(least_number(read), least_number(self.sum_dtype))

    @cached_property
    def row_dtype(self) -> np.dtype[Any]:
        """Dtype that partial gradients must have to be combined: as precise as the sums."""
        summed = np.result_type(self.partial_dtype, np.float32)
        if np.empty(0, self.sum_dtype).real.itemsize > np.empty(0, summed).real.itemsize:
            return np.result_type(self.partial_dtype, np.float64)
        return self.partial_dtype

    @classmethod
    def of(
        cls, layout: Layout, p: int, dtype: DTypeLike, message_dtype: DTypeLike | None = None
    ) -> Format:
        """The format for p elements, of partial gradients of `dtype`."""
        dtype = check_dtype(dtype, halves=True)
        message = dtype
        if message_dtype is not None:
            message = check_dtype(message_dtype, halves=True)
        p = at_least("the gradient dimension p", p, 1)
        if layout in ("real", "packed"):
            both = message.kind == dtype.kind == "c" and message.itemsize >= dtype.itemsize
            if "c" in (message.kind, dtype.kind) and not both:
                raise TypeError(
                    f"messages of {dtype} partial gradients must be {dtype}, not {message}; "
                    "complex gradients can be sent less precisely as reals, "
                    "gradient.view(np.float32)"
                )
            sums = np.result_type(dtype, np.float32)
            gradient = np.result_type(message, np.float32)
            if gradient.itemsize > sums.itemsize:
                sums, gradient = gradient, sums
            mode = PACKED if layout == "packed" else REAL
            size = p + p % 2 if mode == PACKED and dtype.kind != "c" else p
            return cls(gradient, p, dtype, sums, message, size, mode, mode)
        if dtype.kind == "c":
            raise TypeError(
                "this code sends a complex number for each real one, so it takes real gradients "
                f"only; for {dtype} gradients use packed=True (ReedSolomon), or real nodes "
                "(LagrangeCode)"
            )
        partial = np.result_type(dtype, np.complex64)
        expanded = np.result_type(partial, message)
        if is_half(dtype) or is_half(message) or message not in (dtype, np.float64, expanded):
            raise TypeError(
                f"this code sends {partial} messages, not {message}: use packed=True "
                "(ReedSolomon), or real nodes (LagrangeCode), for messages of less precision"
            )
        if layout == "complex":
            return cls(dtype, p, dtype, expanded, expanded, p, EXPAND, REAL_PART)
        return cls(dtype, p, partial, expanded, expanded, p, REAL, REAL_PART)

    @cached_property
    def adds_up(self) -> bool:
        """Whether a message is one combination of partial gradients as they are."""
        return self.sum_dtype == self.message_dtype and self.row_dtype == self.partial_dtype

    def sums(self, message: Array) -> Array:
        """The array to add up a message's terms in: `message`, or an array of more precision."""
        if self.sum_dtype == self.message_dtype:
            return message
        return np.empty(self.message_size, dtype=self.sum_dtype)

    def finish(self, sums: Array, message: Array) -> None:
        """Round `sums` to `message`, if that is another array.

        OverflowError if a finite sum is beyond float16; sums that are not finite stay so.
        """
        if sums is message:
            return
        if self.message_dtype.char != "e":
            store(sums, message)
            return
        kernels.unchecked.to_halves(sums, message)
        largest = max(float(sums.max()), -float(sums.min()))
        if _HALVES_END <= largest < math.inf:
            raise OverflowError(
                f"a message of float16 overflows: its largest number is {largest:.3g}, and float16 "
                'ends at 65504. Send "bfloat16" or "float32" (message_dtype=), which reach to 3e38'
            )

    def rows(
        self,
        what: str,
        numbers: Iterable[int],
        arrays: Iterable[Array],
        dtype: np.dtype[Any],
        size: int,
        mode: int,
    ) -> kernels.Rows:
        """Checked rows for a kernel of `mode`; contiguous arrays are not copied."""
        if isinstance(arrays, np.ndarray) and arrays.dtype == dtype and arrays.shape[1:] == (size,):
            if arrays.strides[1] != arrays.itemsize or not arrays.flags.aligned:
                arrays = arrays.copy()
            reals = self.reals(arrays, mode)
            return kernels.Rows.of(reals, reals.shape[1], reals.dtype)
        checked, shape = list(arrays), (size,)
        # Nearly every call passes this one test: `check_vector` for each array takes twice as long.
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

    def matrix(self, messages: Array) -> kernels.Rows:
        """The rows of a matrix of messages, one for each message of a round, without a copy."""
        if messages.strides[1] != messages.itemsize or not messages.flags.aligned:
            raise ValueError(
                "the rows of messages must be contiguous and aligned: strides are "
                f"{messages.strides} bytes"
            )
        reals = self.reals(messages, self.decode_mode)
        return kernels.Rows.of(reals, reals.shape[1], reals.dtype)

    def messages(self, numbers: Iterable[int], arrays: Any) -> kernels.Rows:
        """Checked messages of these workers as rows to combine."""
        what, mode = "message of worker", self.decode_mode
        return self.rows(what, numbers, arrays, self.message_dtype, self.message_size, mode)

    def output(self, out: Output | None) -> Array:
        """`out`, checked, or a new array for a gradient if it is None."""
        return output_of(out, self.gradient_dtype, (self.gradient_size,))

    def combine(
        self,
        rows: kernels.Rows,
        vector: Array,
        out: Array,
        check: bool = False,
        squares: Floats | None = None,
    ) -> bool:
        """Decode messages to `out`; False if `check` finds NaN or Inf there.

        Rows with coefficients of 0 are not read. `squares`, as long as the vector and one more,
        gets the squared norms of messages, NaN for those not read, and of the gradient.
        """
        sums = out
        if self.decoded_dtype != self.gradient_dtype:
            sums = np.empty(self.gradient_size, self.decoded_dtype)
        mode = self.decode_mode
        reals = self.reals(sums, mode)
        good = kernels.unchecked.combine(mode, rows, vector, reals, False, check, True, squares)
        if sums is not out:
            store(sums, out)
        return good

    def require_finite(self, worker: int, row: Array) -> None:
        """Raise NonFiniteMessageError if a message, or a row of its reals, holds NaN or Inf."""
        row = row.view(self.message_dtype)
        bad = np.flatnonzero(~np.isfinite(row))
        if bad.size:
            raise not_finite(worker, int(bad[0]), row[bad[0]])

    def room(self, count: int) -> kernels.Rows:
        """Room for `count` messages, in the form that kernels take."""
        reals = self.reals(np.empty(0, self.message_dtype), self.decode_mode).dtype
        return kernels.Rows(
            count, self.message_size * self.message_dtype.itemsize // reals.itemsize, reals
        )

    def reals(self, array: Array, mode: int) -> Array:
        """`array` as kernels of `mode` take it: complex numbers as two reals each."""
        if mode in (REAL, PACKED) and array.dtype.kind == "c":
            return array.view(array.real.dtype)
        return array


def not_finite(worker: int, at: int, element: object) -> NonFiniteMessageError:
    """The error that names an element of a worker's message."""
    return NonFiniteMessageError(
        f"the message of worker {worker} is not finite: element {at} is {element}", worker
    )


def real_of(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    """The real dtype that belongs to the complex `dtype`; TypeError if `dtype` is not complex."""
    if dtype.kind != "c":
        raise TypeError(f"{what} of this code must be complex, not {dtype}")
    return np.empty(0, dtype).real.dtype
