"""From how many factors on transforms are faster than products, for each backend.

A decoding vector by products takes time in proportion to workers times factors, by transforms in
proportion to m log m; both depend on processor and caches. What was measured on one machine is
built in; on another, ``method="auto"`` may take the slower way where both take about as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .choice import backend
from .fourier import transform_length

__all__ = ["factors", "kind", "table"]

SIZES = tuple(1 << bits for bits in range(6, 21))

# On an Intel Xeon with AVX-512, by the kind of kernels; benches/test_auto.py shows how well they
# fit. Where it is more than half of the workers, products are always faster.
BUILT_IN = {
    "c avx512": (640, 1280, 1020, 640, 470, 330, 262, 250, 262, 232, 236, 270, 275, 197, 150),
    "c avx2": (640, 1280, 730, 469, 321, 218, 180, 188, 200, 190, 201, 240, 243, 180, 150),
    "c baseline": (640, 903, 502, 318, 219, 153, 140, 145, 145, 140, 145, 170, 174, 140, 125),
    "numba": (640, 1280, 1100, 658, 432, 323, 260, 265, 285, 265, 275, 315, 320, 218, 160),
    "numpy": (20, 20, 27, 47, 50, 43, 46, 51, 66, 100, 100, 50, 45, 50, 41),
}


def kind() -> str:
    """What a table holds for: the backend in use, and the level of SIMD instructions."""
    name = backend()
    if name != "c":
        return name
    from .c import simd

    return f"c {simd()}"


def table() -> Mapping[int, int]:
    """Factors from which on transforms are faster, by length, for the backend in use."""
    return dict(zip(SIZES, BUILT_IN.get(kind(), BUILT_IN["c avx512"]), strict=True))


def factors(m: int) -> int:
    """The same for blocks of m workers, whatever their transforms' length."""
    counts = table()
    length = transform_length(m)
    log = np.interp(math.log2(length), np.log2(list(counts)), np.log2(list(counts.values())))
    return max(1, round(2.0**log * length / m))
