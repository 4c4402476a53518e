"""Contracts of public kernels: what their arguments must be, checked before each call.

`takes`, above a kernel, states its contract; `checked` makes the function that checks it. C kernels
trust their arguments: if a vector is one element short, they read beyond its end. So a kernel
without a contract is not public. fastgc's own modules, which have checked their arguments, call
`fastgc.kernels.unchecked`.

A check is generated Python, compiled once: a single expression that is true for nearly all valid
calls. If it is false, `_Contract.settle` raises an error that says why, or accepts rarer valid
arguments, such as an array of a subclass.
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
    shape: str
    optional: bool
    least: int
    written: bool
    same: tuple[str, ...]


def reads(
    dtype: str, shape: str, *, optional: bool = False, least: int = 0, same: str = ""
) -> _Array:
    """An array that is read. It may be the same as a written one named in `same`."""
    return _Array(dtype, shape, optional, least, False, tuple(same.split()))


def writes(dtype: str, shape: str, *, optional: bool = False, same: str = "") -> _Array:
    """An array that is written. It shares no memory with others, unless it is one of `same`."""
    return _Array(dtype, shape, optional, 0, True, tuple(same.split()))


def takes(
    also: Callable[..., None] | None = None, **parameters: _Array | type
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """State a function's contract: `parameters` are its arrays and objects of classes.

    Numbers are checked by their annotations. `also` is called once all that fits, with the
    parameters that it names, and raises for anything that this cannot express.
    """

    def said(function: Callable[P, R]) -> Callable[P, R]:
        vars(function)["contract"] = _Contract(function, parameters, also)
        return function

    return said


def contract_of(function: Callable[..., Any]) -> _Contract | None:
    """Return a function's contract, or None."""
    found: _Contract | None = vars(function).get("contract")
    return found


def checked(function: Callable[P, R], called: str = "function", **scope: object) -> Callable[P, R]:
    """Return the same function, which first checks its arguments against its contract.

    `called` is an expression for the function that is then called. In it, ``function`` is this one,
    and names in `scope` may be used.
    """
    contract = contract_of(function)
    assert contract is not None, f"{function.__name__} has no contract"
    made: Callable[P, R] = contract.compiled(called, scope)
    made = wraps(function)(made)
    made.__module__ = __package__
    return made


class _Contract:
    """Contract of one function: its parameters, and how they are checked."""

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: dict[str, _Array | type],
        also: Callable[..., None] | None,
    ) -> None:
        self.function, self.also = function, also
        signature = inspect.signature(function).parameters
        self.parameters = {
            name: parameters.get(name, each.annotation) for name, each in signature.items()
        }
        self.by_name = [n for n, each in signature.items() if each.kind is each.KEYWORD_ONLY]
        arrays = {n: each for n, each in self.parameters.items() if isinstance(each, _Array)}
        self.apart = [  # pairs of arrays that must share no memory; whether they may be the same
            (name, other, other in each.same or name in arrays[other].same)
            for name, each in arrays.items()
            for other in arrays
            if each.written and other != name and not (arrays[other].written and other < name)
        ]

    # ---------------------------------------------------------------------- the fast expression

    def compiled(self, called: str, more: dict[str, object]) -> Any:
        """Return a function that checks its arguments, and returns ``called(...)``."""
        names = list(self.parameters)
        scope: dict[str, Any] = {
            "function": self.function,
            "settle": self.settle,
            "also": self.also,
            "ndarray": np.ndarray,
            "shared": np.may_share_memory,
            **more,
        }
        at = len(names) - len(self.by_name)
        taken = ", ".join([*names[:at], *(["*", *names[at:]] if self.by_name else [])])
        passed = ", ".join([*names[:at], *(f"{name}={name}" for name in names[at:])])
        every = ", ".join(names) + ","
        named = ", ".join(inspect.signature(self.also).parameters) if self.also else ""
        lines = [
            f"def call({taken}):",
            f"    if not ({self._expression(scope)}):",
            f"        {every} = settle({every})",
            *([f"    also({named})"] if self.also else []),
            f"    return {called}({passed})",
        ]
        exec("\n".join(lines), scope)
        made = scope["call"]
        made.__defaults__ = self.function.__defaults__
        made.__kwdefaults__ = self.function.__kwdefaults__
        return made

    def _expression(self, scope: dict[str, Any]) -> str:
        # An expression that is true only if all arguments fit. Names that it needs go to `scope`.
        sizes: set[str] = set()
        parts = []
        for name, each in self.parameters.items():
            if isinstance(each, _Array):
                test = self._of_array(name, each, sizes, scope)
                parts.append(f"({name} is None or {test})" if each.optional else f"({test})")
            else:
                scope[f"{name}_type"] = _NUMBERS.get(each, each)
                parts.append(f"type({name}) is {name}_type")
                if each == "int":
                    parts.append(f"-{_MOST} <= {name} < {_MOST}")
        for name, other, same in self.apart:
            test = f"{name}_ & {other}_ & {_OWN} and {name} is not {other}"
            test += f" or not shared({name}, {other})"
            if same:
                test = f"{name} is {other} or {test}"
            for one in (name, other):
                if self.parameters[one].optional:
                    test = f"{one} is None or {test}"
            parts.append(f"({test})")
        return " and ".join(parts)

    def _of_array(self, name: str, each: _Array, sizes: set[str], scope: dict[str, Any]) -> str:
        if each.dtype in self.parameters:
            dtype = f"{name}.dtype is {each.dtype}.dtype"
        else:
            of = [np.dtype(text) for text in each.dtype.split() if text not in _KINDS]
            scope |= {f"{name}_{at}": dtype for at, dtype in enumerate(of)}
            tests = [f"{name}_t is {name}_{at}" for at in range(len(of))]
            tests[0] = tests[0].replace(f"{name}_t", f"({name}_t := {name}.dtype)")
            dtype = f"({' or '.join(tests)})"
        shape = each.shape.split()
        if each.shape in self.parameters:
            size = f"{name}.shape == {each.shape}.shape"
        elif sizes.issuperset(shape):
            size = f"{name}.shape == ({', '.join(shape)},)"
        else:
            known = [dim for dim in shape if dim != "..."]
            size = f"len({name}_s := {name}.shape) {'==' if known == shape else '>='} {len(known)}"
            for at, dim in enumerate(known):
                if dim in sizes or dim.isdigit():
                    size += f" and {name}_s[{at}] == {dim}"
                else:
                    size += f" and ({dim} := {name}_s[{at}]) >= {0 if at else each.least}"
                    sizes.add(dim)
        usable = _USABLE | (_WRITEABLE if each.written else 0)
        flags = f"({name}_ := {name}.flags.num) & {usable} == {usable}"
        return f"type({name}) is ndarray and {dtype} and {size} and {flags}"

    # ------------------------------------------------------ arguments that fail the fast expression

    def settle(self, *arguments: Any) -> list[Any]:
        """Return the arguments as they are passed on, or raise TypeError or ValueError."""
        given = dict(zip(self.parameters, arguments, strict=True))
        sizes: dict[str, int] = {}
        for name, each in self.parameters.items():
            if isinstance(each, _Array):
                given[name] = self._array(name, each, given, sizes)
            else:
                given[name] = _number(name, each, given[name])
        for name, other, same in self.apart:
            _check_apart(name, given[name], other, given[other], same)
        return [*given.values()]

    def _array(
        self, name: str, each: _Array, given: dict[str, Any], sizes: dict[str, int]
    ) -> Array | None:
        array = given[name]
        if array is None and each.optional:
            return None
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} must be a NumPy array, not {type(array).__name__}")
        refuse_masks(name, array)
        array = array.view(np.ndarray)
        _check_dtype(name, array.dtype, each.dtype, given)
        if each.shape in given:
            wanted = [*map(str, given[each.shape].shape)]
        else:
            wanted = [str(sizes.get(dim, dim)) for dim in each.shape.split()]
        _check_shape(name, array.shape, wanted)
        if each.least and array.shape[0] < each.least:
            raise ValueError(f"{name} must not be empty: its shape is {array.shape}")
        sizes |= dict(zip(each.shape.split(), array.shape, strict=False))
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} must be contiguous: it has strides {array.strides} bytes")
        if not array.flags.aligned:
            raise ValueError(f"{name} must be aligned: it begins inside an element's place")
        if each.written and not array.flags.writeable:
            raise ValueError(f"{name} is read-only: it must be writable")
        return array


_KINDS = ("bfloat16",)  # names of dtypes that are not NumPy's
_NUMBERS: dict[Any, type] = {"float": float, "int": int, "bool": bool}


def _check_dtype(name: str, dtype: np.dtype[Any], wanted: str, given: dict[str, Any]) -> None:
    if wanted in given:
        wanted = given[wanted].dtype.name
    names = wanted.split()
    if not (dtype.isnative and dtype.name in names and (dtype.kind != "V" or is_half(dtype))):
        raise TypeError(f"{name} must have dtype {' or '.join(names)}, not {dtype}")


def _check_shape(name: str, shape: tuple[int, ...], wanted: list[str]) -> None:
    """Raise ValueError unless a shape has the wanted sizes, as far as they are known."""
    known = [size for size in wanted if size != "..."]
    fits = len(shape) == len(known) or (len(shape) > len(known) and known != wanted)
    for size, there in zip(known, shape, strict=False):
        fits = fits and (not size.isdigit() or int(size) == there)
    if not fits:
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
    if one is None or other is None or not np.may_share_memory(one, other):
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
