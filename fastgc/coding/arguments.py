"""What an object was made with: its text, equality, hash, copies and pickles follow from that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

__all__ = ["Recorded", "made_before", "nobody_asks", "unasked"]

# Entries, at most, of a list or array that a text shows.
SHOWN = 12

_made_before: ContextVar[bool] = ContextVar("_made_before", default=False)
_unasked: ContextVar[bool] = ContextVar("_unasked", default=False)


def made_before() -> bool:
    """Whether what is being made is a copy: of what was warned about was warned then."""
    return _made_before.get()


@contextmanager
def unasked() -> Iterator[None]:
    """Codes made meanwhile do not look how precise they are to warn of it: their maker will ask."""
    token = _unasked.set(True)
    try:
        yield
    finally:
        _unasked.reset(token)


def nobody_asks() -> bool:
    """Whether what is being made need not warn of itself."""
    return _unasked.get()


class Recorded:
    """Remembers the arguments it was made with, so that no class writes its own repr or pickle.

    Two are equal if they are of one class and were made with equal arguments, those left out
    standing for their defaults. Arrays and lists are copied as they come: what happens to the
    caller's later changes nothing.

    Attributes
    ----------
    given : tuple
        Arguments by position, and a dict of those by keyword.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # else `inspect.signature` shows those of __new__ where a class inherits its __init__
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        cls.__signature__ = inspect.Signature(parameters)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        made.given = _kept(args), _kept(kwargs)
        return made

    __signature__: ClassVar[inspect.Signature]
    given: tuple[tuple[Any, ...], dict[str, Any]]

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Arguments it was made with, by name, without those left out."""
        args, kwargs = self.given
        return dict(inspect.signature(type(self)).bind(*args, **kwargs).arguments)

    @cached_property
    def _key_of_arguments(self) -> Any:
        args, kwargs = self.given
        bound = inspect.signature(type(self)).bind(*args, **kwargs)
        bound.apply_defaults()
        return _comparable(dict(bound.arguments))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recorded):
            return NotImplemented
        return type(self) is type(other) and bool(self._key_of_arguments == other._key_of_arguments)

    def __hash__(self) -> int:
        return hash((type(self), self._key_of_arguments))

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={shown(value)}" for name, value in self.arguments.items())
        return f"{type(self).__name__}({listed})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), *self.given)


def _make(kind: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    token = _made_before.set(True)
    try:
        return kind(*args, **kwargs)
    finally:
        _made_before.reset(token)


def _kept(value: Any) -> Any:
    """A copy of what could change, read-only where that can be said."""
    if isinstance(value, np.ndarray):
        copied = value.copy()
        copied.flags.writeable = False
        return copied
    if isinstance(value, np.generic):
        return value.item()  # a plain number, in texts too
    if type(value) in (list, tuple):
        return type(value)(map(_kept, value))
    if type(value) is dict:
        return {key: _kept(item) for key, item in value.items()}
    return value


def _comparable(value: Any) -> Any:
    """What is equal for equal values, and can be hashed."""
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
    """A value as texts show it: long lists and arrays by their beginning, or their shape."""
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
