"""Approximate gradient codes: what f messages leave out, against the papers' closed forms.

Errors are squares of residuals: of partial gradients of equal norm in random directions, the mean
square error of the gradient over its own square. Nothing here is compared with numbers that the
papers print, but with what they prove.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb, sqrt

import numpy as np
from numpy.typing import NDArray

from .._arrays import at_least
from ..codes import (
    BernoulliCode,
    BIBDCode,
    Code,
    ExpanderCode,
    FractionalRepetition,
    GraphCode,
    RaptorCode,
)
from ..codes.raptor import degrees
from ..plotting.panels import Line, Panel
from .figure import ROUNDS, Figure, Row, Track

__all__ = [
    "charles",
    "glasgow",
    "kadhe",
    "missing_by_density_evolution",
    "raviv",
    "wang",
]

SETS = 2_000  # of survivors, at most, for each point


def _begin(rounds: int, seed: int) -> tuple[int, np.random.Generator]:
    """Sets of each point, and what draws them; or an error."""
    count = min(at_least("rounds", rounds, 1), SETS)
    return count, np.random.default_rng(at_least("seed", seed, 0))


def _sets(n: int, f: int, count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Random sets of f of n workers."""
    for _ in range(count):
        yield np.sort(rng.permutation(n)[:f])


def _errors(
    code: Code,
    f: int,
    count: int,
    rng: np.random.Generator,
    coefficient: float | None = None,
) -> NDArray[np.float64]:
    """Of random sets: by least squares, or with the same coefficient for all."""
    found = []
    for came in _sets(code.n, f, count, rng):
        vector = None if coefficient is None else np.full(f, coefficient)
        found.append(code.residual(came, vector) ** 2)
    return np.array(found)


def raviv(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Figure:
    """Raviv, Tandon, Dimakis, Tamo 2018, section V: adjacency matrices of expanders.

    With all messages multiplied by n / (d f), the mean error over all sets of f is
    (n - f) (n - d) / (d f (n - 1)), and none has more than (second / d)^2 (n - f) / f.

    Parameters
    ----------
    seed : int
        Of graphs and sets.
    rounds : int
        Sets of each point; 2,000 at most.
    track : callable
        Wraps what is looped over, to show how far it is.

    Returns
    -------
    Figure
    """
    paper = "raviv2018 section V"
    count, rng = _begin(rounds, seed)
    rows, lines = [], []
    codes = {
        "Paley graph, n = 101, d = 50": ExpanderCode(101, graph="paley", wait=1),
        "random graph, n = 100, d = 10": ExpanderCode(100, load=10, wait=1, seed=seed),
    }
    for name, code in codes.items():
        n, d = code.n, code.load
        lost = np.arange(10, 61, 10)
        bounds = (code.second / d) ** 2 * lost / (n - lost)
        means, largest = [], []
        for s, bound in zip(track(lost.tolist()), bounds.tolist(), strict=True):
            f = n - s
            same = _errors(code, f, count, rng, n / (d * f))
            best = _errors(code, f, max(1, count // 20), rng)
            means.append(float(best.mean()))
            largest.append(float(best.max()))
            if s in (10, 30, 60):
                rows.append(
                    Row(
                        paper,
                        f"{name}: mean error of {s} stragglers, one coefficient",
                        float(same.mean()),
                        closed=s * (n - d) / (d * f * (n - 1)),
                        note=f"over {count} random sets; closed: hypergeometric variance",
                    )
                )
            rows.append(
                Row(
                    paper,
                    f"{name}: sets of {s} stragglers above the bound",
                    float((same > bound).sum() + (best > bound).sum()),
                    closed=0.0,
                    note=f"bound {bound:.3g}; the largest was {same.max():.3g}, by least squares "
                    f"{best.max():.3g}",
                )
            )
        lines += [
            Line(f"bound, {name}", lost, bounds),
            Line(f"largest, {name}", lost, largest, "points"),
            Line(f"mean, {name}", lost, means),
        ]
    panel = Panel(
        "Error by least squares, over random stragglers",
        "stragglers",
        "square of the residual",
        lines,
        log_y=True,
    )
    title = "Raviv et al., section V: what stragglers leave of codes by expanders"
    return Figure("raviv-bound", title, rows, [panel])


def charles(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Figure:
    """Charles, Papailiopoulos, Ellenberg 2017: repetition and Bernoulli codes, random stragglers.

    Of n = k = 100 workers with a load of w = 10: by least squares, repetition leaves
    C(n - w, f) / C(n, f) on average. With one coefficient k / (f w) for all messages, a Bernoulli
    code leaves (k - w) / (f w).

    Parameters and returns as of `raviv`.
    """
    paper = "charles2017"
    count, rng = _begin(rounds, seed)
    n, w = 100, 10
    lost = np.arange(10, 91, 10)
    repeated = FractionalRepetition(n, load=w, wait=1)
    drawn = [BernoulliCode(n, load=w, wait=1, seed=seed + i) for i in range(20)]
    rows, found = [], []
    for s in track(lost.tolist()):
        f = n - s
        blocks = _errors(repeated, f, 5 * count, rng)
        one = np.concatenate(
            [_errors(code, f, -(-count // 20), rng, n / (f * w)) for code in drawn]
        )
        best = np.concatenate([_errors(code, f, max(1, count // 400), rng) for code in drawn])
        expected = comb(n - w, f) / comb(n, f) if f <= n - w else 0.0
        found.append((float(blocks.mean()), expected, float(best.mean()), float(one.mean())))
        if s >= 60:
            rows.append(
                Row(
                    paper,
                    f"fractional repetition, least squares, {s} stragglers",
                    found[-1][0],
                    closed=expected,
                    note=f"mean of {5 * count} random sets",
                )
            )
        if s % 30 == 0:
            rows.append(
                Row(
                    paper,
                    f"Bernoulli code, one coefficient, {s} stragglers",
                    found[-1][3],
                    closed=(n - w) / (f * w),
                    note=f"mean of {one.size} random sets of 20 assignments; closed without those "
                    "that are regularised, or have a worker with nothing",
                )
            )
    repetition, closed, bernoulli, single = np.array(found).T
    shown = closed > 1e-6
    panel = Panel(
        "Mean error of random stragglers, n = k = 100, load 10",
        "stragglers",
        "square of the residual",
        [
            Line("repetition, closed form", lost[shown], closed[shown]),
            Line("repetition", lost[repetition > 0], repetition[repetition > 0], "points"),
            Line("Bernoulli, least squares", lost[bernoulli > 1e-12], bernoulli[bernoulli > 1e-12]),
            Line("Bernoulli, one coefficient", lost, single, "points"),
            Line("one coefficient, closed form", lost, (n - w) / ((n - lost) * w)),
        ],
        log_y=True,
    )
    title = "Charles et al.: random stragglers of repetition and of random assignments"
    return Figure("charles-means", title, rows, [panel])


def kadhe(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Figure:
    """Kadhe, Koyluoglu, Ramchandran 2019: block designs, whose error nobody can choose.

    Every set of f messages leaves ``1 - r^2 f / (b (r - lambda + lambda f))``. Rows have the
    largest and the least that was found: of random sets, and of sets without all workers of some
    partitions, which an adversary would choose against repetition.

    Parameters and returns as of `raviv`.
    """
    paper = "kadhe2019"
    count, rng = _begin(rounds, seed)
    rows, lines = [], []
    for name, n, load, blocks, common in (
        ("projective plane, n = 21", 21, 5, 21, 1),
        ("affine plane, n = 25", 25, 6, 30, 1),
        ("Paley design, n = 23", 23, 11, 23, 5),
    ):
        code = BIBDCode(n, design=name.split()[0].lower(), wait=1)
        B = code.matrix()
        lost = np.arange(1, n)
        closed = 1 - load**2 * (n - lost) / (blocks * (load - common + common * (n - lost)))
        found = []
        for s in track(lost.tolist()):
            chosen = np.argsort(-B[:, rng.permutation(blocks)] @ 0.5 ** np.arange(blocks))
            errors = np.append(
                _errors(code, n - s, max(1, count // 20), rng),
                code.residual(np.sort(chosen[s:])) ** 2,
            )
            found.append((errors.min(), errors.max()))
        least, largest = np.array(found).T
        for s in (2, n // 2, n - 2):
            for what, value in ("largest", largest[s - 1]), ("least", least[s - 1]):
                rows.append(
                    Row(
                        paper,
                        f"{name}: {what} error of {s} stragglers",
                        float(value),
                        closed=float(closed[s - 1]),
                    )
                )
        lines += [Line(f"{name}, closed form", lost, closed), Line(name, lost, largest, "points")]
    s = np.arange(1, 20)
    lines.append(Line("repetition at worst, n = 20, load 5", s, s // 5 * 5 / 20, "step"))
    panel = Panel(
        "Largest error of any stragglers, by least squares",
        "stragglers",
        "square of the residual",
        lines,
    )
    title = "Kadhe et al.: block designs, whatever workers straggle"
    return Figure("kadhe-worst", title, rows, [panel])


def glasgow(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Figure:
    """Glasgow, Wootters 2021: optimal decoding of codes by graphs, random stragglers.

    Workers straggle with probability p, and messages are combined to what is right on average:
    coefficients are divided by the mean count of a block. No code of replication d has less error
    then than p^d / (1 - p^d), and none with fixed coefficients less than p / (d (1 - p))
    (appendix A). Computed for the Ramanujan graph X^{5,13}: 6,552 workers, 2,184 blocks, d = 6.

    Parameters and returns as of `raviv`.
    """
    paper = "glasgow2021 appendix A"
    count, rng = _begin(rounds, seed)
    code = GraphCode(6552, 2184, degree=6, graph="lps", wait=1)
    d, n, blocks = 6, code.n, code.blocks
    decode = code.decoder()
    chances = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    rows, found = [], []
    for p in track(chances.tolist()):
        alone, error, total, fixed = 0, 0.0, 0.0, 0.0
        for _ in range(count):
            came = np.flatnonzero(rng.random(n) >= p)
            ends = code.ends[came].ravel()
            counted = np.bincount(ends, np.repeat(decode(came), 2), minlength=blocks)
            heard = np.bincount(ends, minlength=blocks)
            alone += int((heard == 0).sum())
            total += float(counted.sum())
            error += float((counted**2).sum())
            fixed += float(((heard / (d * (1 - p)) - 1) ** 2).mean())
        mean = total / (count * blocks)
        # E (counted / mean - 1)^2
        unbiased = error / (count * blocks) / mean**2 - 1
        found.append((unbiased, fixed / count))
        if p >= 0.3:
            rows.append(
                Row(
                    paper,
                    f"optimal decoding, p = {p:g}: error of the unbiased gradient",
                    unbiased,
                    closed=p**d / (1 - p**d),
                    note=f"{count} rounds, in which {alone} times nothing came of a block: a "
                    f"standard error of {100 / sqrt(max(alone, 1)):.1g}%; closed: the lower bound",
                )
            )
        rows.append(
            Row(
                paper,
                f"fixed coefficients, p = {p:g}: error",
                fixed / count,
                closed=p / (d * (1 - p)),
                note=f"{count} rounds",
            )
        )
    optimal, same = np.array(found).T
    shown = optimal > 1e-9
    panel = Panel(
        "Random stragglers: Ramanujan graph, 6,552 workers, d = 6",
        "probability that a worker straggles",
        "mean square error over the gradient's square",
        [
            Line("optimal decoding", chances[shown], optimal[shown], "points"),
            Line("p^d / (1 - p^d)", chances, chances**d / (1 - chances**d)),
            Line("fixed coefficients", chances, same, "points"),
            Line("p / (d (1 - p))", chances, chances / (d * (1 - chances))),
        ],
        log_y=True,
    )
    title = "Glasgow, Wootters: random stragglers of codes by graphs"
    return Figure("glasgow-random", title, rows, [panel])


def missing_by_density_evolution(missing: float, messages: float) -> float:
    """Part of the batches that peeling does not give, of infinitely many (and-or trees).

    The largest y in 0 .. 1 with ``y = exp(-messages Omega'(1 - y))``, Omega being the generating
    function of the degrees of `RaptorCode`.

    Parameters
    ----------
    missing : float
        Of `RaptorCode`.
    messages : float
        That came, over the number of batches.
    """
    chances = degrees(missing)
    order = np.arange(1, chances.size + 1)
    y: float = 1.0
    for _ in range(100_000):
        before, y = y, float(np.exp(-messages * (order * chances) @ (1 - y) ** (order - 1)))
        if abs(before - y) <= 1e-12:
            break
    return y


def wang(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Figure:
    """Wang, Liu, Shroff 2019: batched raptor codes, peeled and by least squares.

    Of 2,000 workers half or a fifth straggle. The part of batches that peeling does not give is
    compared with its limit for many batches, `missing_by_density_evolution`, and promised to be at
    most epsilon.

    Parameters and returns as of `raviv`; each point has at most 40 codes, of 10 sets each.
    """
    paper = "wang2019b"  # a: ErasureHead, by others
    count, _ = _begin(rounds, seed)
    runs = max(2, count // 50)
    rows, lines = [], []
    n = 2000
    chances = np.array([0.05, 0.1, 0.15, 0.2])
    for lost in (1000, 400):
        found, limits, loads = [], [], []
        for missing in track(chances.tolist()):
            left, load = [], []
            for i in range(runs):
                code = RaptorCode(n, wait=n - lost, missing=missing, seed=seed + i)
                rng = np.random.default_rng([seed, i])
                sets = _sets(n, n - lost, 10, rng)
                left.append(np.mean([1 - code.peel(came)[1].mean() for came in sets]))
                load.append(code.loads.mean())
            limit = missing_by_density_evolution(missing, (n - lost) / code.batches)
            found.append(float(np.mean(left)))
            limits.append(limit)
            loads.append(float(np.mean(load)))
            deviation = float(np.std(left)) / sqrt(runs)
            rows.append(
                Row(
                    paper,
                    f"part of batches not peeled, epsilon = {missing:g}, {lost} stragglers",
                    found[-1],
                    closed=limit,
                    note=f"{runs} codes of {n} workers with {loads[-1]:.1f} partitions on average, "
                    f"standard error {deviation:.1g}; closed: limit of many batches",
                )
            )
            rows.append(
                Row(
                    paper,
                    f"codes that miss more than epsilon = {missing:g}, {lost} stragglers",
                    float((np.array(left) > missing).sum()),
                    closed=0.0,
                    note=f"of {runs}, on average over 10 sets; promised with a probability that "
                    "grows to 1 with the number of workers",
                )
            )
        lines += [
            Line(f"{lost} stragglers", chances, found, "points"),
            Line(f"{lost} stragglers, limit", chances, limits),
        ]
    lines.append(Line("epsilon", chances, chances))
    panel = Panel(
        "Batched raptor codes of 2,000 workers, by peeling",
        "epsilon",
        "part of batches that is missing",
        lines,
        log_x=True,
        log_y=True,
    )
    title = "Wang et al.: batched raptor codes"
    return Figure("wang-peeling", title, rows, [panel])
