"""Contracts of public kernels: what their arguments must be, checked before each call.

C kernels trust their arguments: if a vector is one element short, they read beyond its end.
`takes`, above a public kernel, states its contract, and has it checked: TypeError or ValueError say
what is wrong, before anything is written. fastgc's own modules, which have checked their arguments,
call `fastgc.kernels.unchecked`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from .._base.arrays import Array, Ints, check_integer, is_half, refuse_masks

P = ParamSpec("P")
R = TypeVar("R")

REALS = "float32 float64"
NODES = "float64 complex128"

# Bits of an array's flags.
_OWN, _WRITEABLE = 0x4, 0x400
_USABLE = 0x101  # contiguous, aligned

_MOST = 2**63  # integers fit 64 bits


class _Array(NamedTuple):
    """Contract of an array parameter.

    `dtype` lists the dtypes it may have, or names a parameter whose dtype it has. `shape` names its
    sizes, of which those with the same name are equal; "..." stands for any further sizes. Or
    `shape` names a parameter whose shape it has. The first size is at least `least`.
    """

    dtype: str
    shape: tuple[str, ...]
    optional: bool
    least: int
    written: bool
    same: tuple[str, ...]


def reads(
    dtype: str, shape: str, *, optional: bool = False, least: int = 0, same: str = ""
) -> _Array:
    """An array that is read. It may be the same as a written one named in `same`."""
    return _Array(dtype, tuple(shape.split()), optional, least, False, tuple(same.split()))


def writes(dtype: str, shape: str, *, optional: bool = False, same: str = "") -> _Array:
    """An array that is written. It shares no memory with others, unless it is one of `same`."""
    return _Array(dtype, tuple(shape.split()), optional, 0, True, tuple(same.split()))


def takes(
    also: Callable[..., None] | None = None, **parameters: _Array | type
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a function check its arguments: `parameters` are its arrays and objects of classes.

    Numbers are checked by their annotations. `also` is called once all that fits, with the
    parameters that it names, and raises for anything that this cannot express.
    """

    def said(function: Callable[P, R]) -> Callable[P, R]:
        settle = _Contract(function, parameters, also).settle

        @wraps(function)
        def checked(*given: P.args, **named: P.kwargs) -> R:
            return function(*settle(given, named))  # type: ignore[call-arg]

        return checked

    return said


class _Contract:
    """Contract of one function: its parameters, and how they are checked."""

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: dict[str, _Array | type],
        also: Callable[..., None] | None,
    ) -> None:
        self.signature, self.also = inspect.signature(function), also
        named = self.signature.parameters
        self.parameters = {n: parameters.get(n, each.annotation) for n, each in named.items()}
        self.defaults = tuple(each.default for each in named.values())
        self.required = self.defaults.count(inspect.Parameter.empty)
        self.asked = [*inspect.signature(also).parameters] if also else []
        arrays = {n: each for n, each in self.parameters.items() if isinstance(each, _Array)}
        self.apart = [  # pairs of arrays that must share no memory; whether they may be the same
            (name, other, other in each.same or name in arrays[other].same)
            for name, each in arrays.items()
            for other in arrays
            if each.written and other != name and not (arrays[other].written and other < name)
        ]

    def settle(self, given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Return the arguments as they are passed on, or raise TypeError or ValueError."""
        if named or not self.required <= len(given) <= len(self.defaults):
            bound = self.signature.bind(*given, **named)
            bound.apply_defaults()
            given = bound.args
        arguments = dict(zip(self.parameters, given + self.defaults[len(given) :], strict=True))
        sizes: dict[str, int] = {}
        for name, each in self.parameters.items():
            value = arguments[name]
            if not isinstance(each, _Array):
                arguments[name] = _number(name, each, value)
            elif value is not None or not each.optional:
                arguments[name] = _array(name, each, arguments, sizes)
        for name, other, same in self.apart:
            _check_apart(name, arguments[name], other, arguments[other], same)
        if self.also is not None:
            self.also(*(arguments[name] for name in self.asked))
        return [*arguments.values()]


def _array(name: str, each: _Array, given: dict[str, Any], sizes: dict[str, int]) -> Array:
    """Return an array as it is passed on. `sizes` are those known, by name; its own are added."""
    array = given[name]
    if type(array) is not np.ndarray:
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} must be a NumPy array, not {type(array).__name__}")
        refuse_masks(name, array)
        array = array.view(np.ndarray)
    _check_dtype(name, array.dtype, each.dtype, given)
    if each.shape[0] in given:
        if array.shape != given[each.shape[0]].shape:
            _refuse_shape(name, array.shape, [*map(str, given[each.shape[0]].shape)])
    else:
        dims = each.shape
        fits = array.ndim == len(dims) or (dims[-1] == "..." and array.ndim >= len(dims) - 1)
        for dim, size in zip(dims, array.shape, strict=False):
            fits = fits and (dim == "..." or sizes.get(dim, size) == size)
        if not fits:
            _refuse_shape(name, array.shape, [str(sizes.get(dim, dim)) for dim in dims])
        sizes |= zip(dims, array.shape, strict=False)
    if array.shape and array.shape[0] < each.least:
        raise ValueError(f"{name} must not be empty: its shape is {array.shape}")
    wanted = _USABLE | _WRITEABLE if each.written else _USABLE
    if array.flags.num & wanted != wanted:
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} must be contiguous: it has strides {array.strides} bytes")
        if not array.flags.aligned:
            raise ValueError(f"{name} must be aligned: it begins inside an element's place")
        raise ValueError(f"{name} is read-only: it must be writable")
    return array


_DTYPES = {name: np.dtype(name) for name in (*REALS.split(), *NODES.split(), "float16")}
_DTYPES |= {name: np.dtype(name) for name in ("complex64", "int64", "uint64")}


def _check_dtype(name: str, dtype: np.dtype[Any], wanted: str, given: dict[str, Any]) -> None:
    if wanted in given:
        if dtype == given[wanted].dtype:
            return
        wanted = given[wanted].dtype.name
    for each in wanted.split():
        if dtype == _DTYPES.get(each) or (each == "bfloat16" == dtype.name and is_half(dtype)):
            return
    raise TypeError(f"{name} must have dtype {' or '.join(wanted.split())}, not {dtype}")


def _refuse_shape(name: str, shape: tuple[int, ...], wanted: list[str]) -> None:
    text = ", ".join(wanted) + ("," if len(wanted) == 1 else "")
    raise ValueError(f"{name} must have shape ({text}), not {shape}")


def _number(name: str, wanted: Any, value: Any) -> Any:
    if isinstance(wanted, type):
        if not isinstance(value, wanted):
            raise TypeError(f"{name} must be {wanted.__name__}, not {type(value).__name__}")
        return value
    if wanted == "float":
        if not isinstance(value, float | int | np.floating | np.integer):
            raise TypeError(f"{name} must be a real number, not {value!r}")
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{name} is beyond float64: it must be a number of it") from None
    if wanted == "bool":
        if not isinstance(value, bool | np.bool_ | int):
            raise TypeError(f"{name} must be True or False, not {value!r}")
        return bool(value)
    number = check_integer(name, value)
    if not -_MOST <= number < _MOST:
        raise ValueError(f"{name} is beyond 64 bits: {number}")
    return number


def _check_apart(
    name: str, one: Array | None, other_name: str, other: Array | None, same: bool
) -> None:
    if one is None or other is None:
        return
    if one is not other and one.flags.num & other.flags.num & _OWN:
        return
    if not np.may_share_memory(one, other):
        return
    if same and one.ctypes.data == other.ctypes.data:  # they have one dtype and shape
        return
    how = "be the same array, or share no memory" if same else "share no memory"
    raise ValueError(f"{name} and {other_name} overlap: they must {how}")


def check_power_of_two(name: str, value: float, most: int) -> None:
    """Raise ValueError unless `value` is a power of two, 2^-most to 2^most."""
    fits = 0 < value < math.inf and math.frexp(value)[0] == 0.5
    if not (fits and 2.0**-most <= value <= 2.0**most):
        raise ValueError(f"{name} must be a power of two, 2^-{most} to 2^{most}, not {value}")


def check_numbers_below(name: str, array: Ints, count: int) -> None:
    """Raise ValueError unless all numbers are distinct and in 0 .. count - 1."""
    if array.size and (array.min() < 0 or array.max() >= count):
        raise ValueError(f"{name} must be numbers 0 to {count - 1}: one is not")
    if np.unique(array).size < array.size:
        raise ValueError(f"{name} must be distinct: one is there twice")
