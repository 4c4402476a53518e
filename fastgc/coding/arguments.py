"""Arguments of codes: checks, and objects that remember the arguments they were made with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, NoReturn, Self, SupportsIndex

import numpy as np

from .._base.arrays import Array, check_integer

# Largest number of workers or partitions: products of two fit 64 bits.
MOST = 2**31 - 1

# Longest list or largest array that `shown` writes out.
SHOWN = 12

# "again" while codes are unpickled or copied, "unasked" as in `unasked`, otherwise "".
_made: ContextVar[str] = ContextVar("_made", default="")


def check_sizes(n: int, k: int | None, *, at_least_n: bool = False) -> tuple[int, int]:
    """Return n and k, which is n by default; or raise, also if k is below n and must not be."""
    n = check_integer("n", n)
    k = n if k is None else check_integer("k", k)
    if n < 1 or k < 1:
        raise ValueError(f"n and k must be at least 1, not n={n}, k={k}")
    if max(n, k) > MOST:
        raise ValueError(f"n and k must be at most {MOST}, not n={n}, k={k}")
    if at_least_n and k < n:
        raise ValueError(f"k must be at least n={n}, not {k}")
    return n, k


def check_between(what: str, value: int, least: int, most: int, end: str) -> int:
    """Return an integer in least .. most, or raise an error; `end` says what `most` is."""
    found = check_integer(what, value)
    if not least <= found <= most:
        raise ValueError(f"{what} must be in {least} .. {end} = {most}, not {found}")
    return found


def check_stragglers(stragglers: int, n: int) -> int:
    """Return a number of stragglers of n workers, or raise an error."""
    return check_between("stragglers", stragglers, 0, n - 1, "n-1")


@contextmanager
def _making(how: str) -> Iterator[None]:
    token = _made.set(how)
    try:
        yield
    finally:
        _made.reset(token)


def unasked() -> AbstractContextManager[None]:
    """While active, codes made do not warn of imprecision: whoever makes them checks it."""
    return _making("unasked")


def warns(strict: bool) -> bool:
    """Whether a code being made warns: the original of a copy has already warned."""
    return _made.get() == "" or (strict and _made.get() == "unasked")


class Uncopied:
    """Holds memory that C writes to. A copy would write there as well, so nobody can make one."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} can be neither copied nor pickled, as C writes to its "
            "memory: copy or pickle the code, and make another one"
        )


# Arguments by position, and by keyword.
_Given = tuple[tuple[Any, ...], dict[str, Any]]


class Recorded:
    """Remembers the arguments it was made with, so that no class writes its own repr or pickle.

    Objects are equal if they are of one class and were made with equal arguments; missing arguments
    count as their defaults. Arrays and lists are copied, so that the caller may change them.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Otherwise `inspect.signature` shows that of __new__ for classes that inherit __init__.
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        cls.__signature__ = inspect.Signature(parameters)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made_as(made, cls, (_kept(args), _kept(kwargs)))
        return made

    __signature__: ClassVar[inspect.Signature]
    _made_by: type[Any]
    _made_with: _Given

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recorded):
            return NotImplemented
        same = type(self) is type(other) and self._made_by is other._made_by
        return same and bool(_key(self) == _key(other))

    def __hash__(self) -> int:
        return hash((self._made_by, _key(self)))

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={shown(value)}" for name, value in arguments_of(self).items())
        return f"{self._made_by.__name__}({listed})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self._made_by, *self._made_with)


def arguments_of(made: Recorded) -> dict[str, Any]:
    """Return the arguments an object was made with, by name; defaults are missing."""
    args, kwargs = made._made_with
    return dict(inspect.signature(made._made_by).bind(*args, **kwargs).arguments)


def made_as(made: Recorded, kind: type[Any], given: _Given) -> None:
    """Record that the object is what `kind` makes of these arguments."""
    made._made_by, made._made_with = kind, given


def _key(made: Recorded) -> Any:
    """What objects are compared by: their arguments, with defaults. It is found once."""
    found = vars(made).get("_made_key")
    if found is None:
        args, kwargs = made._made_with
        bound = inspect.signature(made._made_by).bind(*args, **kwargs)
        bound.apply_defaults()
        found = vars(made)["_made_key"] = _comparable(dict(bound.arguments))
    return found


def _make(kind: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with _making("again"):
        return kind(*args, **kwargs)


def _kept(value: Any) -> Any:
    """Copy what could change, read-only if possible."""
    if isinstance(value, np.ndarray):
        copied = value.copy()
        copied.flags.writeable = False
        return copied
    if isinstance(value, np.generic):
        return value.item()  # a plain number, also in a repr
    if type(value) in (list, tuple):
        return type(value)(map(_kept, value))
    if type(value) is dict:
        return {key: _kept(item) for key, item in value.items()}
    return value


def _comparable(value: Any) -> Any:
    """Return something hashable that is equal for equal values."""
    if isinstance(value, np.ndarray):
        return _comparable(value.tolist())
    if isinstance(value, list | tuple):
        return tuple(map(_comparable, value))
    if isinstance(value, Mapping):
        return frozenset((key, _comparable(item)) for key, item in value.items())
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def shown(value: Any) -> str:
    """Return a value as text; long lists by their beginning, large arrays by their shape."""
    if isinstance(value, np.ndarray):
        if value.size > SHOWN:
            return f"<{value.dtype} array of shape {value.shape}>"
        return repr(value.tolist())
    if type(value) in (list, tuple):
        if any(type(item) in (list, tuple) and len(item) > SHOWN for item in value):
            return f"<{len(value)} lists>"
        listed = ", ".join(map(shown, value[:SHOWN]))
        more = f", … {len(value)} in all" if len(value) > SHOWN else ""
        left, right = "[]" if type(value) is list else ("(", ",)" if len(value) == 1 else ")")
        return f"{left}{listed}{more}{right}"
    return repr(value)


def partition(X: Array, y: Array, k: int) -> list[tuple[Array, Array]]:
    """Cut samples into k contiguous partitions, as even as possible, the larger ones first.

    Parameters
    ----------
    X : array, shape (N, features)
        Samples.
    y : array, shape (N,) or (N, outputs)
        The samples' labels or targets.
    k : int
        Number of partitions, 1 <= k <= N.

    Returns
    -------
    list of k pairs (X_j, y_j)
        Views of ``X`` and ``y``.

    Raises
    ------
    ValueError
        If the lengths differ or k is out of range.
    """
    k = check_integer("k", k)
    if len(X) != len(y):
        raise ValueError(f"{len(X)} samples but {len(y)} labels")
    if not 1 <= k <= len(X):
        raise ValueError(f"{len(X)} samples cannot be cut into k = {k} partitions")
    return list(zip(np.array_split(X, k), np.array_split(y, k), strict=True))
