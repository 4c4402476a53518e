"""From how many factors on transforms are faster than products: measured for each backend.

A decoding vector by products takes time in proportion to workers times factors, by transforms in
proportion to m log m, and both depend on processor and caches. What was measured on one machine is
built in; `measure` does it again here, and `save` keeps what it found for later processes.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from .. import kernels
from .cyclic import LOCATOR, CyclicPlan, cyclic_tables
from .fourier import transform_length

__all__ = ["factors", "kind", "measure", "measured", "path", "save", "table"]

SIZES = tuple(1 << bits for bits in range(6, 21))

# `fastgc tune` on an Intel Xeon with AVX-512, by the kind of kernels. Where it is more than half of
# the workers, products are always faster.
BUILT_IN = {
    "c avx512": (640, 1280, 1020, 640, 470, 330, 262, 250, 262, 232, 236, 270, 275, 197, 150),
    "c avx2": (640, 1280, 730, 469, 321, 218, 180, 188, 200, 190, 201, 240, 243, 180, 150),
    "c baseline": (640, 903, 502, 318, 219, 153, 140, 145, 145, 140, 145, 170, 174, 140, 125),
    "numba": (640, 1280, 1100, 658, 432, 323, 260, 265, 285, 265, 275, 315, 320, 218, 160),
    "numpy": (20, 20, 27, 47, 50, 43, 46, 51, 66, 100, 100, 50, 45, 50, 41),
}


def kind() -> str:
    """What a measurement holds for: the backend in use, and the level of SIMD instructions."""
    name = kernels.backend()
    if name != "c":
        return name
    from .c import simd

    return f"c {simd()}"


def path() -> Path:
    """Where what was measured is kept: ``FASTGC_CROSSOVER``, or in the user's cache folder."""
    if named := os.environ.get("FASTGC_CROSSOVER"):
        return Path(named)
    if sys.platform == "win32":
        folder = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(folder) / "fastgc" / "crossover.json"


@cache
def measured() -> Mapping[str, Mapping[int, int]]:
    """What `save` kept, by kind; read once per process. Nothing, with a warning, if unreadable."""
    try:
        text = path().read_text(encoding="utf-8")
    except (OSError, RuntimeError):  # the latter: there is no home folder
        return {}
    try:
        found = {
            str(name): {int(size): int(count) for size, count in counts.items()}
            for name, counts in json.loads(text).items()
        }
        if not all(counts and min(*counts, *counts.values()) > 0 for counts in found.values()):
            raise ValueError("a table is empty, or not positive")
    except (ValueError, AttributeError, TypeError) as error:
        warnings.warn(
            f"{path()} is no table of `fastgc tune` ({error}): the one built in is used",
            stacklevel=2,
        )
        return {}
    return found


def table() -> Mapping[int, int]:
    """Factors from which on transforms are faster, by length, for the backend in use."""
    name = kind()
    if name in measured():
        return measured()[name]
    return dict(zip(SIZES, BUILT_IN.get(name, BUILT_IN["c avx512"]), strict=True))


def factors(m: int) -> int:
    """The same for blocks of m workers, whatever their transforms' length."""
    counts = table()
    length = transform_length(m)
    log = np.interp(math.log2(length), np.log2(list(counts)), np.log2(list(counts.values())))
    return max(1, round(2.0**log * length / m))


def measure(
    sizes: Sequence[int] = SIZES, advance: Callable[[], None] = lambda: None
) -> dict[int, int]:
    """Measure the table of the backend in use, in one to two seconds for each size.

    Parameters
    ----------
    sizes : sequence of int
        Powers of two, ascending.
    advance : callable
        Called after each size.
    """
    found = {}
    for m in sizes:
        plan = CyclicPlan(cyclic_tables([(m, round(0.382 * m) | 1, 0)]))
        # Where products and transforms take about as long, and so that a line is well determined.
        few, many = max(1, m // 64), m // 2
        if m > 1024:
            few, many = 64, 512
        calls = [_product(plan, few), _product(plan, many), _transform(plan)]
        low, high, transform = _in_turns(calls)
        slope = (high - low) / (many - few)
        count = many + (transform - high) / slope if slope > 0 else math.inf
        found[m] = round(min(max(1, count), 10 * m))
        advance()
    return found


def _product(plan: CyclicPlan, lost: int) -> Callable[[], object]:
    survivors = np.sort(np.random.default_rng(lost).permutation(plan.workers)[lost:])
    out = np.empty(survivors.size, dtype=np.complex128)
    run, _ = kernels.bind_decoding_vector(plan, survivors, out)
    return lambda: run(LOCATOR, survivors.size)


def _transform(plan: CyclicPlan) -> Callable[[], object]:
    survivors = np.arange(plan.workers - plan.workers // 8)
    out = np.empty(survivors.size, dtype=np.complex128)
    fourier = kernels.bind_fourier(plan, survivors, out)
    return lambda: fourier.vector(survivors.size)


def _in_turns(calls: Sequence[Callable[[], object]], budget: float = 0.4) -> list[float]:
    """Each call's shortest time, in seconds: what else a machine does only adds to it."""
    best = [math.inf] * len(calls)
    turns, end = 0, time.perf_counter() + budget
    while turns < 5 or time.perf_counter() < end:
        for which, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[which] = min(best[which], time.perf_counter() - start)
        turns += 1
    return best


def save(counts: Mapping[int, int]) -> Path:
    """Keep what was measured for the backend in use, beside that of others.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    where = path()
    kept = {**measured(), kind(): dict(counts)}
    where.parent.mkdir(parents=True, exist_ok=True)
    draft = where.with_name(f"{where.name}.{os.getpid()}")
    draft.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    draft.replace(where)  # at once: another process may be reading
    measured.cache_clear()
    return where
