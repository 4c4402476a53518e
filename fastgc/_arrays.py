"""The one place where arrays given by a caller are checked, before anything is written."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "GRADIENT_DTYPES",
    "check_dtype",
    "check_index",
    "check_integer",
    "check_vector",
    "check_workers",
]

GRADIENT_DTYPES = tuple(np.dtype(char) for char in "fdFD")


_INT64 = np.dtype(np.int64)


def check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """A dtype gradients may have, or TypeError."""
    checked = np.dtype(dtype)
    if checked not in GRADIENT_DTYPES:
        names = ", ".join(d.name for d in GRADIENT_DTYPES)
        raise TypeError(f"gradients must be of one of the dtypes {names}, not {checked}")
    return checked


def check_index(what: str, value: Any, size: int) -> int:
    """An integer in 0 .. size-1, or an error."""
    index = check_integer(what, value)
    if not 0 <= index < size:
        raise ValueError(f"{what} {index} does not exist: they are numbered 0 to {size - 1}")
    return index


def check_integer(what: str, value: Any) -> int:
    """A Python int, or TypeError."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {value!r}") from None


def check_vector(
    what: str,
    array: Any,
    dtype: np.dtype[Any],
    size: int,
    output: bool = False,
    number: int | None = None,
) -> NDArray[Any]:
    """`array` as a contiguous vector of this dtype and size.

    An input with other strides or not aligned is copied; an output must be contiguous, aligned
    and writable. Errors name the array as `what`, followed by `number` where there is one.
    """
    # The hot path: in one test, what nearly every call brings.
    if (
        type(array) is np.ndarray
        and array.dtype is dtype
        and array.shape == (size,)
        and (flags := array.flags).c_contiguous
        and flags.aligned
        and not output
    ):
        return array
    if number is not None:
        what = f"{what} {number}"
    if output and not isinstance(array, np.ndarray):
        raise TypeError(f"{what} must be a NumPy array, not {type(array).__name__}")
    array = np.asarray(array)
    if array.dtype != dtype:
        raise TypeError(f"{what} must have dtype {dtype}, not {array.dtype}")
    if array.shape != (size,):
        raise ValueError(f"{what} must have shape ({size},), not {array.shape}")
    if output and not array.flags.writeable:
        raise ValueError(f"{what} is read-only: it must be writable")
    if output and not array.flags.c_contiguous:
        raise ValueError(f"{what} must be contiguous: it has strides {array.strides} bytes")
    if output and not array.flags.aligned:
        raise ValueError(f"{what} must be aligned: it begins inside an element's place")
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = array.copy()
    checked: NDArray[Any] = array
    return checked


def check_workers(what: str, workers: ArrayLike) -> NDArray[np.int64]:
    """`workers` as an int64 vector; their range and distinctness are for the caller."""
    array = np.asarray(workers)
    if array.dtype is _INT64 and array.ndim == 1:
        return array
    if array.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, not of shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{what} must be integers (worker numbers), not {array.dtype}")
    return array.astype(np.int64)
