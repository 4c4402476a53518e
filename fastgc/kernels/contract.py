"""Contracts of public kernels: what their arguments must be, checked before each call.

C kernels trust their arguments: if a vector is one element short, they read beyond its end.
`takes`, above a public kernel, states its contract, and has it checked: TypeError or ValueError say
what is wrong, before anything is written. fastgc's own modules, which have checked their arguments,
call `fastgc.kernels.unchecked`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple, NoReturn, ParamSpec, TypeVar

import numpy as np

from .._base.arrays import Array, Ints, check_flag, check_integer, is_half, refuse_masks

P = ParamSpec("P")
R = TypeVar("R")

REALS = "float32 float64"
NODES = "float64 complex128"

# Bits of an array's flags.
_OWN, _WRITEABLE = 0x4, 0x400
_USABLE = 0x101  # contiguous, aligned

_MOST = 2**63  # integers fit 64 bits

_DTYPES = f"{REALS} {NODES} float16 complex64 int64 uint64".split()


class _Array(NamedTuple):
    """Contract of an array parameter.

    `dtype` lists the dtypes it may have, or names a parameter whose dtype it has. `shape` names its
    sizes, of which those with the same name are equal; "..." stands for any further sizes. Or
    `shape` names a parameter whose shape it has. The first size is at least `least`.
    """

    dtype: str
    dtypes: tuple[np.dtype[Any], ...]
    shape: tuple[str, ...]
    optional: bool
    least: int
    flags: int
    same: tuple[str, ...]


def reads(
    dtype: str, shape: str, *, optional: bool = False, least: int = 0, same: str = ""
) -> _Array:
    """An array that is read. It may be the same as a written one named in `same`."""
    return _contract(dtype, shape, optional, least, _USABLE, same)


def writes(dtype: str, shape: str, *, optional: bool = False, same: str = "") -> _Array:
    """An array that is written. It shares no memory with others, unless it is one of `same`."""
    return _contract(dtype, shape, optional, 0, _USABLE | _WRITEABLE, same)


def _contract(dtype: str, shape: str, optional: bool, least: int, flags: int, same: str) -> _Array:
    dtypes = tuple(np.dtype(each) for each in dtype.split() if each in _DTYPES)
    return _Array(dtype, dtypes, tuple(shape.split()), optional, least, flags, tuple(same.split()))


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
        self.names = names = [*self.signature.parameters]
        self.defaults = tuple(each.default for each in self.signature.parameters.values())
        self.required = self.defaults.count(inspect.Parameter.empty)
        asked = inspect.signature(also).parameters if also else ()
        self.asked = [names.index(name) for name in asked]
        # By place: arrays, each with the places of those whose dtype and whose shape it has (or of
        # itself); other parameters; and pairs of arrays that must share no memory, with whether
        # they may be the same.
        self.arrays: list[tuple[int, _Array, int, int]] = []
        self.others: list[tuple[int, Any, type | None]] = []
        self.apart: list[tuple[int, int, bool]] = []
        shapes: dict[tuple[str, ...], int] = {}
        for at, (name, parameter) in enumerate(self.signature.parameters.items()):
            each = parameters.get(name, parameter.annotation)
            if not isinstance(each, _Array):
                self.others.append((at, each, _TYPES.get(each, each)))
                continue
            if each.shape[0] in names:
                shapes[each.shape] = names.index(each.shape[0])
            like = names.index(each.dtype) if each.dtype in names else at
            self.arrays.append((at, each, like, shapes.get(each.shape, at)))
            if not each.optional:
                shapes.setdefault(each.shape, at)
            for before, other, _, _ in self.arrays[:-1]:
                if (each.flags | other.flags) & _WRITEABLE:
                    same = names[before] in each.same or name in other.same
                    pair = (before, at) if other.flags & _WRITEABLE else (at, before)
                    self.apart.append((*pair, same))

    def settle(self, given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        """Return the arguments as they are passed on, or raise TypeError or ValueError."""
        if named or not self.required <= len(given) <= len(self.defaults):
            bound = self.signature.bind(*given, **named)
            bound.apply_defaults()
            given = bound.args
        arguments = [*given, *self.defaults[len(given) :]]
        sizes: dict[str, int] = {}
        distinct, own = set(), _OWN
        for at, each, typed_as, shaped_as in self.arrays:
            array = arguments[at]
            if array is None and each.optional:
                distinct.add(at)  # no array has such an id
                continue
            if type(array) is not np.ndarray:
                array = arguments[at] = _array(self.names[at], array)
            dtypes = each.dtypes if typed_as == at else (arguments[typed_as].dtype,)
            if array.dtype not in dtypes:
                _refuse_dtype(self.names[at], array.dtype, each.dtype.split(), dtypes)
            if shaped_as == at:
                _check_shape(self.names[at], array.shape, each, sizes)
            elif array.shape != arguments[shaped_as].shape:
                _refuse_shape(self.names[at], array.shape, arguments[shaped_as].shape)
            flags = array.flags.num
            if flags & each.flags != each.flags:
                _refuse_flags(self.names[at], array)
            own &= flags
            distinct.add(id(array))
        # Arrays that own their memory share none of it.
        if not (own and len(distinct) == len(self.arrays)):
            for one, other, same in self.apart:
                what = self.names[one], self.names[other]
                _check_apart(what, arguments[one], arguments[other], same)
        for at, wanted, usual in self.others:
            if type(value := arguments[at]) is not usual:
                arguments[at] = _number(self.names[at], wanted, value)
        if self.also is not None:
            self.also(*[arguments[at] for at in self.asked])
        return arguments


# Numbers of these types are passed on as they are; the keys are annotations.
_TYPES = {"float": float, "bool": bool}


def _array(name: str, array: Any) -> Array:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, not {type(array).__name__}")
    refuse_masks(name, array)
    return array.view(np.ndarray)


def _check_shape(name: str, shape: tuple[int, ...], each: _Array, sizes: dict[str, int]) -> None:
    """Refuse a shape that is not of the contract. `sizes`, by name, gets those that are new."""
    dims = each.shape
    fits = len(shape) == len(dims) or (dims[-1] == "..." and len(shape) >= len(dims) - 1)
    for dim, size in zip(dims, shape):  # noqa: B905 (to say strict= takes a quarter of the check)
        if sizes.setdefault(dim, size) != size:
            fits = fits and dim == "..."
    if not fits:
        _refuse_shape(name, shape, [sizes.get(dim, dim) for dim in dims])
    if shape and shape[0] < each.least:
        raise ValueError(f"{name} must not be empty: its shape is {shape}")


def _refuse_shape(name: str, shape: tuple[int, ...], wanted: Sequence[int | str]) -> NoReturn:
    text = ", ".join(map(str, wanted)) + ("," if len(wanted) == 1 else "")
    raise ValueError(f"{name} must have shape ({text}), not {shape}")


def _refuse_dtype(
    name: str, dtype: np.dtype[Any], names: list[str], dtypes: tuple[np.dtype[Any], ...]
) -> None:
    # Known by name, as ml_dtypes may not be installed.
    if "bfloat16" in names and is_half(dtype) and dtype.isnative:
        return
    if len(dtypes) == 1:
        names = [dtypes[0].name]
    raise TypeError(f"{name} must have dtype {' or '.join(names)}, not {dtype}")


def _refuse_flags(name: str, array: Array) -> None:
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be contiguous: it has strides {array.strides} bytes")
    if not array.flags.aligned:
        raise ValueError(f"{name} must be aligned: it begins inside an element's place")
    raise ValueError(f"{name} is read-only: it must be writable")


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
        return check_flag(name, value)
    number = check_integer(name, value)
    if not -_MOST <= number < _MOST:
        raise ValueError(f"{name} is beyond 64 bits: {number}")
    return number


def _check_apart(
    names: tuple[str, str], one: Array | None, other: Array | None, same: bool
) -> None:
    if one is None or other is None or not np.may_share_memory(one, other):
        return
    if same and one.ctypes.data == other.ctypes.data:  # they have one dtype and shape
        return
    how = "be the same array, or share no memory" if same else "share no memory"
    raise ValueError(f"{' and '.join(names)} overlap: they must {how}")


def check_numbers_below(name: str, array: Ints, count: int) -> None:
    """Raise ValueError unless all numbers are distinct and in 0 .. count - 1."""
    if array.size and array.view(np.uint64).max() >= count:  # negative numbers wrap to huge ones
        raise ValueError(f"{name} must be numbers 0 to {count - 1}: one is not")
    present = np.zeros(count, dtype=np.bool_)
    present[array] = True
    if np.count_nonzero(present) < array.size:
        raise ValueError(f"{name} must be distinct: one is there twice")
