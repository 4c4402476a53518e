"""The backend in use: the fastest available one, or the one that you ask for."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType
from typing import Literal

from . import dispatch
from .dispatch import Backend

BackendName = Literal["c", "numba", "numpy"]
NAMES = ("c", "numba", "numpy")  # best first

active: Backend | None = None  # None until the first call of a kernel
name = ""


def backends() -> tuple[str, ...]:
    """Names of the backends available here, the preferred one first."""
    needs = {"c": "fastgc.kernels._cffi", "numba": "numba", "numpy": "numpy"}
    return tuple(name for name in NAMES if importlib.util.find_spec(needs[name]) is not None)


def _select(wanted: str) -> None:
    global active, name
    if wanted not in NAMES:
        raise ValueError(f"unknown backend {wanted!r}: choose one of {', '.join(NAMES)}")
    try:
        module: ModuleType = importlib.import_module(
            ".numba.calls" if wanted == "numba" else f".{wanted}", __package__
        )
    except ImportError as error:
        others = ", ".join(each for each in backends() if each != wanted)
        raise ImportError(
            f"the {wanted!r} backend cannot be loaded ({error}); available: {others}"
        ) from error
    if module is not active:
        # In this order: other threads that find `active` set call kernels and ask for the name.
        dispatch.serve(module)
        name, active = wanted, module


def load() -> Backend:
    """The backend in use, which the first call chooses."""
    if active is None:
        _select(os.environ.get("FASTGC_BACKEND") or backends()[0])
    assert active is not None
    return active


dispatch.at_first_call(load)


def backend() -> str:
    """Name of the backend in use: "c", "numba" or "numpy"."""
    load()
    return name


def folds_floats() -> bool:
    """Whether rows of float32 are added up in float32, a few at a time, as C does."""
    return backend() == "c"


class use_backend:
    """Use this backend from now on, or within a ``with`` statement.

    The choice holds for the whole process. Rounds, decoders and encoders keep the backend that they
    were made with.

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

    def __exit__(self, *_: object) -> None:
        _select(self._before)
