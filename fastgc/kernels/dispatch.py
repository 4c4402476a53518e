"""Calls of kernels: each goes to the backend's function that has the name of the oracle.

The oracle of a kernel is the NumPy function. fastgc's own modules call a kernel by its name in
`fastgc.kernels.unchecked`, where `kernel` has wrapped the oracle: this costs a tenth of a
microsecond. Frequent callers look the backend's function up once, by `own`, or bind a kernel to
arrays (``bind_combine``). A kernel in `fastgc.kernels` checks its arguments: see `checked_kernel`.

Backends import this file, so it imports none of them. `choice` loads the one to use, and passes it
to `serve`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, ParamSpec, TypeAlias, TypeVar

from .contract import checked

P = ParamSpec("P")
R = TypeVar("R")

# A module that has the functions of `kernels.numpy`, which documents them.
Backend: TypeAlias = ModuleType


class _Functions(dict[Callable[..., Any], Callable[..., Any]]):
    """A backend's functions by oracles, looked up at their first use.

    Until a backend is chosen, `module` is None; the first look-up has one chosen.
    """

    def __init__(self, module: Backend | None = None) -> None:
        self._module = module

    def __missing__(self, oracle: Callable[..., Any]) -> Callable[..., Any]:
        if self._module is None:
            _choose()
            return functions[oracle]
        found = getattr(self._module, oracle.__name__, oracle)
        if not callable(found):  # a file of the backend may have the kernel's name
            found = oracle
        self[oracle] = found
        return found


functions = _Functions()
_choose: Callable[[], object]


def at_first_call(choose: Callable[[], object]) -> None:
    """Have ``choose()``, which calls `serve`, choose a backend at the first call of a kernel."""
    global _choose
    _choose = choose


def serve(module: Backend) -> None:
    """Send calls to this backend from now on."""
    global functions
    functions = _Functions(module)


def own(oracle: Callable[P, R]) -> Callable[P, R]:
    """The present backend's function with the name of `oracle`, or `oracle` itself."""
    return functions[oracle]


def kernel(oracle: Callable[P, R]) -> Callable[P, R]:
    """Wrap an oracle in a function that calls the function of the backend in use at each call."""

    @wraps(oracle)
    def call(*given: P.args, **named: P.kwargs) -> R:
        function: Callable[P, R] = functions[oracle]
        # Passing an empty dictionary takes as long as the rest of this call.
        return function(*given, **named) if named else function(*given)  # type: ignore[call-arg]

    call.__module__ = __package__
    return call


def checked_kernel(oracle: Callable[P, R]) -> Callable[P, R]:
    """The same as `kernel`, with arguments checked by the contract of `oracle`."""
    return checked(oracle, "dispatch.functions[function]", dispatch=sys.modules[__name__])
