"""Which backend is in use: the fastest there is, or the one that was asked for.

A kernel is called by its name in `fastgc.kernels`: that is what `kernel` makes of the NumPy
function, and costs a tenth of a microsecond. Who calls often asks once, by `own`, or binds a kernel
to arrays (`fastgc.kernels.bind_combine`), which is then the backend's own.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from functools import wraps
from types import ModuleType, TracebackType
from typing import Any, Literal, ParamSpec, TypeAlias, TypeVar

__all__ = ["NAMES", "backend", "backends", "folds_floats", "kernel", "load", "own", "use_backend"]

P = ParamSpec("P")
R = TypeVar("R")

BackendName = Literal["c", "numba", "numpy"]
NAMES = ("c", "numba", "numpy")  # best first

# A module that has the functions of `kernels.numpy`, which says what each of them does.
Backend: TypeAlias = ModuleType


class _Functions(dict[Callable[..., Any], Callable[..., Any]]):
    """A backend's own functions by those that say what they do; looked up when first asked for.

    Until a backend is chosen, `module` is None, and the first question chooses one.
    """

    def __init__(self, module: Backend | None = None) -> None:
        self._module = module

    def __missing__(self, oracle: Callable[..., Any]) -> Callable[..., Any]:
        if self._module is None:
            load()
            return functions[oracle]
        self[oracle] = found = getattr(self._module, oracle.__name__, oracle)
        return found


active: Backend | None = None  # None until a kernel is first asked for
functions = _Functions()
name = ""


def backends() -> tuple[str, ...]:
    """Names of the backends that can be used here, the preferred one first."""
    needs = {"c": "fastgc.kernels._cffi", "numba": "numba", "numpy": "numpy"}
    return tuple(name for name in NAMES if importlib.util.find_spec(needs[name]) is not None)


def _select(wanted: str) -> None:
    global active, functions, name
    if wanted not in NAMES:
        raise ValueError(f"unknown backend {wanted!r}: choose one of {', '.join(NAMES)}")
    try:
        module: ModuleType = importlib.import_module(f".{wanted}", __package__)
    except ImportError as error:
        raise ImportError(
            f"the {wanted!r} backend cannot be loaded ({error}); available: {', '.join(backends())}"
        ) from error
    if module is not active:
        active, functions, name = module, _Functions(module), wanted


def load() -> Backend:
    """The backend in use, chosen now if a kernel is asked for the first time."""
    if active is None:
        _select(os.environ.get("FASTGC_BACKEND") or backends()[0])
    assert active is not None
    return active


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


def backend() -> str:
    """Name of the backend in use: "c", "numba" or "numpy"."""
    load()
    return name


def folds_floats() -> bool:
    """Whether rows of float32 are added up in float32, a few at a time: by C; others in float64."""
    return backend() == "c"


class use_backend:
    """Use this backend from now on, or for the length of a ``with`` statement.

    The choice holds for the whole process. Objects made earlier that keep prepared pointers
    (rounds, decoders, encoders) go on with the backend they were made under.

    Parameters
    ----------
    name : {"c", "numba", "numpy"}

    Raises
    ------
    ValueError
        If there is no backend of that name.
    ImportError
        If it cannot be loaded here.
    """

    def __init__(self, name: BackendName | str) -> None:
        self._before = backend()
        _select(name)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _select(self._before)
