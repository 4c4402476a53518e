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
    """Digest of the sources in a folder and below it."""
    digest = hashlib.sha256()
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


# Numba takes cached code for outdated if the function's own file has changed its time or size. That
# is too little: the functions compiled into it are in other files here, and the plans that it takes
# in kernels/numpy. It is also too much: a new installation of the same sources needs no new code.
# So the stamp is a digest of all these sources.
_SOURCES = _digest(Path(__file__).parents[1])


def _or_empty(load: Callable[[], dict[Any, str]]) -> Callable[[], dict[Any, str]]:
    """Load the index of cached code; take it for empty if it names types that have moved.

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
        with suppress(AttributeError):  # a Numba with another cache, or with compilation disabled
            kept = kernel._cache._cache_file
            kept._source_stamp = _SOURCES
            kept._load_index = _or_empty(kept._load_index)
        return kernel

    return decorate


# Fused multiply-adds are allowed (one rounding fewer). No other liberty is, except that `njit_sums`
# may reorder sums: it is for functions that compute nothing else.
njit = _compiler(fastmath={"contract"})
njit_sums = _compiler(fastmath={"contract", "reassoc"})

# For times and distances, which are compared for equality: every backend must round them alike.
# fastmath is given: Numba takes omitted options from the first caller, also for cached code.
njit_exact = _compiler(fastmath=False)
