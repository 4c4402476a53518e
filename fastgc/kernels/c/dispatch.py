"""The level of SIMD instructions that the kernels use."""

from __future__ import annotations

from .._cffi import ffi, lib

__all__ = ["select_simd", "simd"]


def simd() -> str:
    """Level of SIMD instructions in use: "baseline", "avx2" or "avx512".

    The baseline is what every processor of a kind has: SSE2 on x86-64, NEON on 64-bit ARM.
    """
    return str(ffi.string(lib.fgc_simd()), "ascii")


def select_simd(level: str) -> bool:
    """Use another level; False, and no change, where build or processor lack it."""
    return bool(lib.fgc_simd_select(level.encode()))
