"""Optional dependencies, loaded on use, or an error that says how to get them."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["ray", "scipy"]


def ray() -> Any:
    """``ray``; ImportError that names the extra if Ray is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError('the Ray engine needs Ray: pip install "fastgc[ray]"') from error


def scipy(module: str) -> Any:
    """``scipy.<module>``; ImportError that names the extra if SciPy is not installed."""
    try:
        return importlib.import_module(f"scipy.{module}")
    except ImportError as error:
        raise ImportError('closed forms need SciPy: pip install "fastgc[planning]"') from error
