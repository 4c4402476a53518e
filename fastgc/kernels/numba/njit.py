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
    """Of the sources in a folder."""
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


# Numba takes kept code for outdated when the function's own file has another time or size. But what
# it calls, and has compiled into it, is in other files here; and a new installation of the same
# sources needs no other code.
_SOURCES = _digest(Path(__file__).parent)


def _compiler(**options: Any) -> Callable[[Any], Any]:
    compile_ = numba.njit(nogil=True, cache=True, error_model="numpy", **options)

    def decorate(function: Any) -> Any:
        kernel = compile_(function)
        with suppress(AttributeError):  # of a Numba that keeps its code otherwise, or compiles none
            kept = kernel._cache._cache_file
            kept._source_stamp = _SOURCES
        return kernel

    return decorate


# Fused multiply-adds are wanted (one rounding fewer); no other liberty with arithmetic is, but the
# order of sums where nothing else is computed.
njit = _compiler(fastmath={"contract"})
njit_sums = _compiler(fastmath={"contract", "reassoc"})

# What is compared for equality, times and distances: every backend must round it alike.
njit_exact = _compiler()
