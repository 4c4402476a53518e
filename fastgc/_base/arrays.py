"""Checks of the arrays that a caller gives, all made here, before anything is written."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .extras import pip_install

# Results are written to and returned as a NumPy array, or anything whose memory NumPy can view.
Output: TypeAlias = Any

# Arrays of any dtype, and of those that fastgc computes with.
Array: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Complexes: TypeAlias = NDArray[np.complex128]
Bools: TypeAlias = NDArray[np.bool_]

GRADIENT_DTYPES = tuple(np.dtype(char) for char in "fdFD")

_INT64 = np.dtype(np.int64)
_FLOAT, _COMPLEX = np.dtype(np.float64), np.dtype(np.complex128)

_NORMAL = sys.float_info.min


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether it is float16, or bfloat16, known by name as ml_dtypes may not be installed."""
    return dtype.itemsize == 2 and (dtype.char == "e" or dtype.name == "bfloat16")


def gradient_dtype_of(message: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to which messages of this dtype decode, with real codes."""
    if is_half(message):
        return np.dtype(np.float32)
    return message


@lru_cache(maxsize=16)  # a cached call takes a twentieth of the time
def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """Return the largest relative error of one rounding."""
    return 2.0**-8 if dtype.name == "bfloat16" else float(np.finfo(dtype).eps) / 2


@lru_cache(maxsize=16)
def least_number(dtype: np.dtype[Any]) -> float:
    """Return the smallest positive real number of the dtype that every thread keeps.

    It is subnormal in float16. Threads that flush subnormal numbers of other dtypes to zero, as
    ``torch.set_flush_denormal`` makes them, lose all that is below the smallest normal one, and
    whoever decodes cannot know whether a worker's threads do.
    """
    if dtype.char == "e":
        return 2.0**-24
    return 2.0**-126 if dtype.name == "bfloat16" else float(np.finfo(dtype).tiny)


def is_zero(array: Array) -> bool:
    """Whether all floats of an array are 0: surely, so not if this thread takes subnormals for 0.

    It looks at their bits, as such a thread finds subnormal numbers equal to 0.
    """
    reals = array.view(array.real.dtype)
    bits = reals.view(f"u{reals.itemsize}")
    return bool(_NORMAL / 2 != 0.0 and not (bits << bits.dtype.type(1)).any())


def check_dtype(dtype: DTypeLike, halves: bool = False) -> np.dtype[Any]:
    """Return a dtype that gradients may have; raise TypeError for another.

    `halves` also allows the dtypes of messages and their parts. Integers are refused: only the
    caller knows whether float64, which is exact up to 2^53, holds their sums.
    """
    checked = _dtype(dtype)
    if checked not in GRADIENT_DTYPES and not (halves and is_half(checked)):
        more = halves * ["float16", "bfloat16"]
        names = ", ".join([*(d.name for d in GRADIENT_DTYPES), *more])
        what = "gradients and messages" if halves else "gradients"
        told = ": convert integers by .astype(float)" if checked.kind in "iu" else ""
        raise TypeError(f"{what} must be of one of the dtypes {names}, not {checked}{told}")
    return checked


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise ImportError(
                f"bfloat16 is no dtype of NumPy's own: {pip_install('half')}"
            ) from None
        dtype = ml_dtypes.bfloat16
    try:
        return np.dtype(dtype)
    except TypeError:
        raise TypeError(f"there is no dtype {dtype!r}: take float64 or float32, say") from None


def as_array(what: str, array: Any) -> Array:
    """Return `array` as a NumPy array, a view of its memory if possible; or raise TypeError.

    It may be a tensor of PyTorch, an array of JAX, a memoryview or another object that lends its
    memory through ``__array__``, the buffer protocol or DLPack; none of these packages need be
    installed. Lists are copied.
    """
    if type(array) is np.ndarray:
        return array
    refuse_masks(what, array)
    try:
        # DLPack last: for the imag of a conj, PyTorch exports bits without the change of sign.
        if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
            return np.from_dlpack(array)
        return _bits_of_bfloat16(array) if _is_bfloat16_tensor(array) else np.asarray(array)
    except (BufferError, RuntimeError, TypeError) as error:
        raise TypeError(f"{what} cannot be taken as a NumPy array: {error}") from None
    except ValueError as error:  # nested lists of different lengths
        raise ValueError(f"{what} cannot be taken as a NumPy array: {error}") from None


def refuse_masks(what: str, array: Any) -> None:
    """Raise TypeError for a masked array, whose masked elements would be read as numbers."""
    masked = sys.modules.get("numpy.ma")  # there are none until it is loaded
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise TypeError(
            f"{what} must not be a masked array, whose mask would be lost: fill it first, "
            "array.filled(0)"
        )


def _is_bfloat16_tensor(array: Any) -> bool:
    torch = sys.modules.get("torch")  # the only hook for PyTorch: its bfloat16 is none of NumPy's
    return torch is not None and isinstance(array, torch.Tensor) and array.dtype is torch.bfloat16


def _bits_of_bfloat16(tensor: Any) -> Array:
    # NumPy has no bfloat16, and PyTorch does not know that of ml_dtypes: pass the bits as float16.
    if tensor.requires_grad:  # the view would forget it
        raise TypeError("it requires grad: use tensor.detach()")
    return np.asarray(tensor.view(sys.modules["torch"].float16)).view(_dtype("bfloat16"))


def as_rows(what: str, arrays: Any) -> Array | Sequence[Any]:
    """Return `arrays` as one NumPy array if it is an array, or else as a sequence; or TypeError."""
    if type(arrays) is list or (type(arrays) is np.ndarray and arrays.ndim):
        return arrays
    refuse_masks(what, arrays)
    if not isinstance(arrays, (np.ndarray, list, tuple)) and _lends_memory(arrays):
        arrays = as_array(what, arrays)
    single = isinstance(arrays, np.ndarray) and not arrays.ndim
    if single or isinstance(arrays, Mapping) or not hasattr(arrays, "__getitem__"):
        kind = "single number" if single else type(arrays).__name__
        raise TypeError(f"{what} must be an array or a list, in order, not a {kind}")
    return arrays  # type: ignore[no-any-return]


def _lends_memory(array: Any) -> bool:
    if any(hasattr(array, f"__{way}__") for way in ("array", "array_interface", "dlpack")):
        return True
    try:
        memoryview(array)
    except TypeError:
        return False
    return True


def view_of(what: str, array: Output) -> Array:
    """Return `array` as a NumPy array that shares its memory; or raise TypeError."""
    if type(array) is np.ndarray:
        return array
    if isinstance(array, np.ndarray):
        refuse_masks(what, array)
        return array
    view = as_array(what, array)
    if not np.may_share_memory(view, as_array(what, array)):  # each call made a copy
        raise TypeError(
            f"{what} must be an array whose memory NumPy can view, not {type(array).__name__}"
        )
    return view


def store(array: Array, out: Array) -> None:
    """Write `array` to `out`, rounded to its dtype; numbers that are too large become Inf."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        out[...] = array


def check_index(what: str, value: Any, size: int) -> int:
    """Return an integer in 0 .. size-1, or raise."""
    index = check_integer(what, value)
    if not 0 <= index < size:
        raise ValueError(f"{what} {index} does not exist: they are numbered 0 to {size - 1}")
    return index


def check_integer(what: str, value: Any) -> int:
    """Return a Python int, or raise TypeError."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, not {value!r}") from None


def at_least(what: str, value: Any, least: int) -> int:
    """Return an integer of at least `least`, or raise."""
    number = check_integer(what, value)
    if number < least:
        raise ValueError(f"{what} must be at least {least}, not {number}")
    return number


def check_flag(what: str, value: Any) -> bool:
    """Return True or False, also for a number; or raise TypeError."""
    if not isinstance(value, bool | np.bool_ | int):
        raise TypeError(f"{what} must be True or False, not {value!r}")
    return bool(value)


def check_word(what: str, value: object, *known: str | None) -> None:
    """Raise ValueError if `value` is none of the `known` words, which may include None."""
    if value not in known:
        *first, last = (f'"{word}"' if word else str(word) for word in known)
        before = f"{', '.join(first)} or " if first else ""
        raise ValueError(f"{what} must be {before}{last}, not {value!r}")


def check_real(what: str, value: Any, positive: bool = False, infinite: bool = False) -> float:
    """Return a number that is not negative or, if asked, positive, finite or not; or raise."""
    number = as_real(what, value)
    fits = 0 <= number <= math.inf if infinite else 0 <= number < math.inf
    if not fits or (positive and number == 0):
        sign = "positive" if positive else "not negative"
        wanted = sign if infinite else f"{sign} and finite" if positive else f"finite and {sign}"
        raise ValueError(f"{what} must be {wanted}, not {value}")
    return number


def check_reals(what: str, array: ArrayLike) -> Floats:
    """Return `array` as float64 numbers of its shape, also Inf or NaN, maybe empty; or raise."""
    given = as_array(what, array)
    if given.dtype is _FLOAT:
        return given
    if given.dtype.kind == "O":  # numbers without a NumPy dtype, such as large integers
        given = np.array([as_real(what, x) for x in given.ravel()]).reshape(given.shape)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"{what} must be real numbers, not {given.dtype}")
    with np.errstate(over="ignore"):
        return given.astype(_FLOAT)


def check_cost(n: int, cost: ArrayLike) -> Floats:
    """Return seconds for a partial gradient, one number or one for each worker; or ValueError."""
    checked = check_reals("cost", cost)
    if checked.shape not in ((), (n,)):
        raise ValueError(
            f"cost must be a number, or one for each of {n} workers, not an array of shape "
            f"{checked.shape}"
        )
    if not ((checked >= 0) & (checked < math.inf)).all():
        raise ValueError(f"cost must be seconds, finite and not negative, not {checked}")
    return checked


def as_real(what: str, value: Any) -> float:
    """Return a real number, Inf if it is beyond float64's range; or raise TypeError."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, Real):
        raise TypeError(f"{what} must be a real number, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        return -math.inf if value < 0 else math.inf


def check_vector(
    what: str, array: Any, dtype: np.dtype[Any], size: int, number: int | None = None
) -> Array:
    """Return `array` as a contiguous vector of this dtype and size.

    One with other strides, or not aligned, is copied. Errors name the array as `what`, followed by
    `number` if there is one.
    """
    # The hot path: nearly every call passes this one test.
    if (
        type(array) is np.ndarray
        and array.dtype is dtype
        and array.shape == (size,)
        and (flags := array.flags).c_contiguous
        and flags.aligned
    ):
        return array
    if number is not None:
        what = f"{what} {number}"
    array = as_array(what, array)
    _check_shape(what, array, dtype, (size,))
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = array.copy()
    checked: Array = array
    return checked


def read_only(data: Any) -> Any:
    """Return data whose NumPy arrays cannot be written to; what contains them is made anew."""
    if isinstance(data, np.ndarray):
        view = data.view()
        view.flags.writeable = False
        return view
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(read_only, data))
    if type(data) in (tuple, list):
        return type(data)(map(read_only, data))
    if type(data) is dict:
        return {name: read_only(each) for name, each in data.items()}
    return data


def check_output(what: str, array: Output, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return a view of `array`, if results of this dtype and shape can be written into it."""
    if type(array) is not np.ndarray:
        array = view_of(what, array)
    _check_shape(what, array, dtype, shape)
    if not array.flags.writeable:
        raise ValueError(f"{what} is read-only: it must be writable")
    if not array.flags.c_contiguous:
        raise ValueError(f"{what} must be contiguous: it has strides {array.strides} bytes")
    if not array.flags.aligned:
        raise ValueError(f"{what} must be aligned: it begins inside an element's place")
    checked: Array = array
    return checked


def output_of(out: Output | None, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return a view of `out`, as `check_output` does, or a new array if it is None."""
    return np.empty(shape, dtype) if out is None else check_output("out", out, dtype, shape)


def _check_shape(what: str, array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if array.dtype != dtype:
        raise TypeError(f"{what} must have dtype {dtype}, not {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{what} must have shape {shape}, not {array.shape}")


def check_numbers(what: str, array: ArrayLike) -> Array:
    """Return `array` as contiguous float64 or complex128 numbers of its shape, at least one."""
    array = as_array(what, array)
    if array.dtype is not _FLOAT and array.dtype is not _COMPLEX:
        if array.dtype.kind not in "iufc":
            raise TypeError(f"{what} must be real or complex numbers, not {array.dtype}")
        # Numbers beyond float64's range become Inf, and are reported with others not finite.
        with np.errstate(over="ignore"):
            array = array.astype(_COMPLEX if array.dtype.kind == "c" else _FLOAT)
    if not array.size:
        raise ValueError(f"{what} must not be empty: shape {array.shape}")
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = array.copy(order="C")
    return array


def check_line(what: str, array: ArrayLike) -> Array:
    """Return `check_numbers`, which must be one-dimensional."""
    array = check_numbers(what, array)
    if array.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, not of shape {array.shape}")
    return array


def check_finite(what: str, array: Array) -> None:
    """Raise ValueError that names the first NaN or Inf, if there is one."""
    finite = np.isfinite(array)
    if not finite.all():
        at = tuple(map(int, np.argwhere(~finite)[0]))
        place = ", ".join(map(str, at))
        raise ValueError(f"{what}[{place}] is {array[at]}: {what} must be finite")


def check_permutation(what: str, order: Any, n: int) -> Ints:
    """Return a permutation of 0 to n - 1 as a contiguous int64 array, or raise an error."""
    given = as_array(what, order)
    if given.dtype.kind not in "iu":
        raise TypeError(f"{what} must be integers, not {given.dtype}")
    if given.shape != (n,):
        raise ValueError(f"{what} must have shape ({n},), not {given.shape}")
    if (given < 0).any() or (given >= n).any():
        raise ValueError(f"{what} must be a permutation of 0 to {n - 1}: it reaches outside")
    present = np.zeros(n, dtype=bool)
    present[given] = True
    if not present.all():
        missing = int(np.argmin(present))
        raise ValueError(f"{what} must be a permutation of 0 to {n - 1}: {missing} is missing")
    return np.ascontiguousarray(given, dtype=np.int64)


def check_workers(what: str, workers: ArrayLike, count: int) -> Ints:
    """Return `workers` as an int64 vector; the caller checks that they are in range and distinct.

    They are numbers, or `count` booleans, of which the True ones count.
    """
    array: Array = workers if type(workers) is np.ndarray else as_array(what, workers)
    if array.dtype is _INT64 and array.ndim == 1:
        return array
    if not array.ndim and array.dtype.kind in "OUS":  # a set has no order, a generator ends
        kind = type(workers).__name__
        raise TypeError(
            f"{what} must be a list or an array, in the order of messages, not a {kind}"
        )
    if array.ndim != 1:
        raise ValueError(f"{what} must be one-dimensional, not of shape {array.shape}")
    if array.dtype.kind == "b":
        if array.size != count:
            raise ValueError(
                f"{what} must be numbers, or {count} booleans, not {array.size} booleans"
            )
        return np.flatnonzero(array)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{what} must be integers (worker numbers) or booleans, not {array.dtype}")
    return array.astype(np.int64)
