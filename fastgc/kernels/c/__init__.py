"""The compiled extension (csrc/), reached through cffi.

The number of threads and the level of SIMD instructions hold for the whole extension.
"""

from __future__ import annotations

from .. import threads as _threads

try:
    from .._cffi import ffi as _ffi
except ModuleNotFoundError as error:
    raise ImportError(
        "fastgc's compiled kernels are not in this folder of sources, from which Python imported "
        "it. Start Python in another folder, or as python -P, to import what is installed"
    ) from error
from .._cffi import lib as _lib

_threads.attach(lambda count: _lib.fgc_pool_set(count, -1, -1))


def counts() -> tuple[int, int]:
    """Calls so far to which other threads were called, and those of which they did a part."""
    numbers = _ffi.new("int64_t[2]")
    _lib.fgc_pool_counts(numbers, numbers + 1)
    return numbers[0], numbers[1]


def set_least(nanoseconds: int = _lib.FGC_LEAST) -> None:
    """Split calls that are estimated to take so long, by default as at first. For tests."""
    _lib.fgc_pool_set(0, -1, nanoseconds)


def set_spin(nanoseconds: int = _lib.FGC_SPIN) -> None:
    """Let threads stay awake for so long after a call, by default as at first. For tests."""
    _lib.fgc_pool_set(0, nanoseconds, -1)


def simd() -> str:
    """Level of SIMD instructions in use: "baseline", "avx2" or "avx512".

    Every processor of a kind has the baseline: SSE2 on x86-64, NEON on 64-bit ARM.
    """
    return str(_ffi.string(_lib.fgc_simd()), "ascii")


def select_simd(level: str) -> bool:
    """Use another level. Returns False, without a change, if the build or processor lacks it."""
    return bool(_lib.fgc_simd_select(level.encode()))
