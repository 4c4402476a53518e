"""The compiled extension (csrc/), reached through cffi.

Kernels on arrays and numbers need nothing here: their calls are made when they are first asked for.
What the others take and return is said once, by the NumPy functions of these names: so here, and in
``kernels.numba``, signatures have no types. The threads that work is split over, and the level of
SIMD instructions, are those of the whole extension.
"""

from __future__ import annotations

from typing import Any

from .. import numpy as _plain
from .. import threads as _threads
from .._cffi import ffi as _ffi
from .._cffi import lib as _lib
from .calls import made as _made
from .combine import *  # noqa: F403
from .plans import *  # noqa: F403


def __getattr__(name: str) -> Any:
    oracle = getattr(_plain, name, None)
    call = _made(oracle) if callable(oracle) else None
    if call is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = call
    return call


def _tell(count: int, spin: int) -> None:
    _lib.fgc_pool_set(count, spin, -1)


_threads.attach(_tell)


def counts() -> tuple[int, int]:
    """How many calls other threads were called to so far, and in how many of them they had part."""
    numbers = _ffi.new("int64_t[2]")
    _lib.fgc_pool_counts(numbers, numbers + 1)
    return numbers[0], numbers[1]


def set_least(nanoseconds: int = _lib.FGC_LEAST) -> None:
    """Split what takes so long, by an estimate; without an argument, as at first. For tests."""
    _lib.fgc_pool_set(0, -1, nanoseconds)


def simd() -> str:
    """Level of SIMD instructions in use: "baseline", "avx2" or "avx512".

    The baseline is what every processor of a kind has: SSE2 on x86-64, NEON on 64-bit ARM.
    """
    return str(_ffi.string(_lib.fgc_simd()), "ascii")


def select_simd(level: str) -> bool:
    """Use another level; False, and no change, where build or processor lack it."""
    return bool(_lib.fgc_simd_select(level.encode()))
