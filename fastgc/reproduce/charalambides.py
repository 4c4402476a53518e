"""Charalambides, Mahdavifar, Hero 2020: how far loads are from uniform (section V)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np

from ..codes import BinaryCode
from ..panels import Line, Panel
from .figure import Figure, Row, Track

__all__ = ["distance", "least_distance", "section_5"]

PAPER = "charalambides2020 section V"
WORKERS = range(3, 13)
DRAWN = 5  # values of n in the picture
EXAMPLE = (11, 3)  # n and s of the paper's example, section III


def distance(code: BinaryCode) -> float:
    """d_s(B), the sum over the workers of how far each load is from k (s + 1) / n (def. 2)."""
    return float(np.abs(code.loads - code.k * (code.stragglers + 1) / code.n).sum())


def least_distance(n: int, k: int, s: int) -> float:
    """Least d_s(B) of all ways to split k partitions over the members of each class.

    By trying all of them: for small n and k.

    Parameters
    ----------
    n, k, s : int
        Workers, partitions, stragglers; s < n.
    """
    even = k * (s + 1) / n
    sizes = [len(range(c, n, s + 1)) for c in range(s + 1)]
    least = {
        size: min(sum(abs(load - even) for load in loads) for loads in _splits(k, size))
        for size in set(sizes)
    }
    return sum(least[size] for size in sizes)


def _splits(k: int, parts: int) -> Iterator[list[int]]:
    """All ways to write k as an ordered sum of whole numbers, 0 among them."""
    for bars in combinations(range(k + parts - 1), parts - 1):
        ends = [-1, *bars, k + parts - 1]
        yield [after - before - 1 for before, after in pairwise(ends)]


def section_5(*, workers: range = WORKERS, track: Track = iter) -> Figure:
    """d_s(B) of the binary code against the least there is, k = n.

    Parameters
    ----------
    workers : range
        Values of n; all splits of n partitions are tried for each.
    track : callable
        Wraps what is looped over.
    """
    lines = []
    pairs = best = divisible = 0
    for n in track(workers):
        stragglers = np.arange(1, n - 1)
        ours = [distance(BinaryCode(n, stragglers=int(s))) for s in stragglers]
        least = [least_distance(n, n, int(s)) for s in stragglers]
        pairs += stragglers.size
        best += int(np.isclose(ours, least, rtol=0, atol=1e-9).sum())
        divisible += int((n % (stragglers + 1) == 0).sum())
        if n in workers[-DRAWN:]:
            lines.append(Line(f"n = {n}", stragglers, ours))
            lines.append(Line(f"n = {n}", stragglers, least, "points"))
    n, s = EXAMPLE
    example = BinaryCode(n, stragglers=s)
    over = f"n = {workers[0]}..{workers[-1]}, s = 1..n - 2, k = n"
    rows = [
        Row(
            PAPER,
            "codes of which no split within classes is more even",
            best,
            pairs,
            note=f"Proposition 3 for {over}, against all ways to split k over each class",
        ),
        Row(
            PAPER,
            "codes of which no matrix of k (s + 1) ones is more even",
            divisible,
            pairs,
            note="Proposition 3 as it is stated. The only constraint of (IP) is the sum of all "
            "loads; with k = n it allows s + 1 each, distance 0, which classes of different size "
            "do not. The proposition holds where s + 1 divides n, and else only among codes whose "
            "classes hold each partition once",
        ),
        Row(
            PAPER,
            f"d_s(B), n = k = {n}, s = {s}",
            distance(example),
            closed=least_distance(n, n, s),
            note=f"closed: the least of all splits; loads {example.loads.tolist()}",
        ),
    ]
    panel = Panel(
        "Distance of the loads from uniform, k = n (points: least of all splits)",
        "stragglers s",
        "d_s(B)",
        lines,
    )
    return Figure("charalambides-5", "Charalambides et al., section V: even loads", rows, [panel])
