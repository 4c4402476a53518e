"""Checks for codes and engines of others: `codes.check` and `engines.check`."""

import importlib
from typing import Any

from .._base.text import listing

__all__ = ["codes", "engines"]
__dir__ = listing(__all__)


def __getattr__(name: str) -> Any:
    if name in __all__:  # on demand: they import all of fastgc, and run by ``python -m``
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
