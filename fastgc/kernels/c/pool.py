"""The threads that work is split over, and the level of SIMD instructions."""

from __future__ import annotations

from .. import threads
from .._cffi import ffi, lib

__all__ = ["counts", "select_simd", "set_least", "simd"]


def _tell(count: int, spin: int) -> None:
    lib.fgc_pool_set(count, spin, -1)


threads.attach(_tell)


def counts() -> tuple[int, int]:
    """How many calls other threads were called to so far, and in how many of them they had part."""
    numbers = ffi.new("int64_t[2]")
    lib.fgc_pool_counts(numbers, numbers + 1)
    return numbers[0], numbers[1]


def set_least(nanoseconds: int = lib.FGC_LEAST) -> None:
    """Split what takes so long, by an estimate; without an argument, as at first. For tests."""
    lib.fgc_pool_set(0, -1, nanoseconds)


def simd() -> str:
    """Level of SIMD instructions in use: "baseline", "avx2" or "avx512".

    The baseline is what every processor of a kind has: SSE2 on x86-64, NEON on 64-bit ARM.
    """
    return str(ffi.string(lib.fgc_simd()), "ascii")


def select_simd(level: str) -> bool:
    """Use another level; False, and no change, where build or processor lack it."""
    return bool(lib.fgc_simd_select(level.encode()))
