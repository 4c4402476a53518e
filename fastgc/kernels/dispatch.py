"""Calls of kernels: each goes to the function that the backend in use has by the oracle's name.

fastgc's own modules call a kernel by its name in `fastgc.kernels.unchecked`: that is what `kernel`
makes of the NumPy function, and costs a tenth of a microsecond. Who calls often asks once, by
`own`, or binds a kernel to arrays (``bind_combine``), which is then the backend's own. By its name
in `fastgc.kernels` a kernel checks what it is given: see `checked_kernel`.

Backends import this file, so it imports none of them: `choice` loads the one to use, and tells it
here by `serve`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, ParamSpec, TypeAlias, TypeVar

from .contract import checked

__all__ = ["Backend", "at_first_call", "checked_kernel", "kernel", "own", "serve"]

P = ParamSpec("P")
R = TypeVar("R")

# A module that has the functions of `kernels.numpy`, which says what each of them does.
Backend: TypeAlias = ModuleType


class _Functions(dict[Callable[..., Any], Callable[..., Any]]):
    """A backend's own functions by those that say what they do; looked up when first asked for.

    Until a backend is chosen, `module` is None, and the first question has one chosen.
    """

    def __init__(self, module: Backend | None = None) -> None:
        self._module = module

    def __missing__(self, oracle: Callable[..., Any]) -> Callable[..., Any]:
        if self._module is None:
            _choose()
            return functions[oracle]
        self[oracle] = found = getattr(self._module, oracle.__name__, oracle)
        return found


functions = _Functions()
_choose: Callable[[], object]


def at_first_call(choose: Callable[[], object]) -> None:
    """Have a backend chosen by ``choose()``, which calls `serve`, once a kernel is asked for."""
    global _choose
    _choose = choose


def serve(module: Backend) -> None:
    """Send calls to this backend from now on."""
    global functions
    functions = _Functions(module)


def own(oracle: Callable[P, R]) -> Callable[P, R]:
    """What the backend in use now has in place of `oracle`: its function of that name, if any."""
    return functions[oracle]


def kernel(oracle: Callable[P, R]) -> Callable[P, R]:
    """The same as a function that asks at each call which backend is in use."""

    @wraps(oracle)
    def call(*given: P.args, **named: P.kwargs) -> R:
        function: Callable[P, R] = functions[oracle]
        # To pass an empty dictionary takes as long as all else here.
        return function(*given, **named) if named else function(*given)  # type: ignore[call-arg]

    call.__module__ = __package__
    return call


def checked_kernel(oracle: Callable[P, R]) -> Callable[P, R]:
    """The same, of which arguments are checked as `fastgc.kernels.contract.takes` says."""
    return checked(oracle, "dispatch.functions[function]", dispatch=sys.modules[__name__])
