"""How kernels are compiled: without the GIL, and kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba

__all__ = ["njit", "njit_exact", "njit_sums"]


def _digest(folder: Path) -> str:
    """Of the sources in a folder and below it."""
    digest = hashlib.sha256()
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


# Numba takes kept code for outdated when the function's own file has another time or size. But what
# it calls, and has compiled into it, is in other files here, and the plans it takes are in NumPy's.
# A new installation of the same sources needs no other code.
_SOURCES = _digest(Path(__file__).parents[1])


def _or_empty(load: Callable[[], dict[Any, str]]) -> Callable[[], dict[Any, str]]:
    """Load the index of what is kept; nothing is kept where it names what has moved.

    Numba unpickles the types in an index before it compares stamps.
    """

    def index() -> dict[Any, str]:
        try:
            return load()
        except (ImportError, AttributeError):
            return {}

    return index


def _compiler(**options: Any) -> Callable[[Any], Any]:
    compile_ = numba.njit(nogil=True, cache=True, error_model="numpy", **options)

    def decorate(function: Any) -> Any:
        kernel = compile_(function)
        with suppress(AttributeError):  # of a Numba that keeps its code otherwise, or compiles none
            kept = kernel._cache._cache_file
            kept._source_stamp = _SOURCES
            kept._load_index = _or_empty(kept._load_index)
        return kernel

    return decorate


# Fused multiply-adds are wanted (one rounding fewer); no other liberty with arithmetic is, but the
# order of sums where nothing else is computed.
njit = _compiler(fastmath={"contract"})
njit_sums = _compiler(fastmath={"contract", "reassoc"})

# What is compared for equality, times and distances: every backend must round it alike. Numba takes
# options that are not given from the first caller, also for what it keeps on disk.
njit_exact = _compiler(fastmath=False)
