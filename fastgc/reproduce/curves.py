"""What stragglers leave, on average and at worst, against how many there are: codes by graphs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from .._arrays import at_least
from .._extras import one_thread_of_blas
from ..codes import BernoulliCode, Code, GraphCode
from ..plotting.panels import Line, Panel
from .figure import ROUNDS, Figure, Row, Track

__all__ = ["curves", "isolated_first", "left_by_components", "variance_of_blocks"]

PAPER = "glasgow2021"
FRACTIONS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
ROWS = (0.1, 0.3, 0.5)  # fractions of which there are rows
SETS = {24: 2_000, 100: 200, 6552: 400}  # at most, by workers
FULL = (3, 4)  # stragglers of 24, all sets of which are tried
EVENTS = 400  # blocks of which nothing comes, in all sets, from which on a mean is compared
GROUPS, WITHIN, LOAD = 5, 0.5, 10  # of stochastic blocks


def left_by_components(ends: NDArray[np.int64], blocks: int) -> float:
    """What messages leave out at best, the squared norm over the number of blocks.

    ``(a - b)^2 / (a + b)`` of each bipartite component with a blocks on one side and b on the
    other, and nothing of all others.

    Parameters
    ----------
    ends : (messages, 2) int64 array
        Edges: the blocks of each message.
    blocks : int
    """
    near: list[list[int]] = [[] for _ in range(blocks)]
    for u, v in ends.tolist():
        near[u].append(v)
        near[v].append(u)
    side = [0] * blocks
    left = 0.0
    for begin in range(blocks):
        if side[begin]:
            continue
        side[begin], odd, component = 1, False, [begin]
        for u in component:
            for v in near[u]:
                if not side[v]:
                    side[v] = -side[u]
                    component.append(v)
                odd |= side[v] == side[u]
        if not odd:
            left += sum(side[u] for u in component) ** 2 / len(component)
    return left / blocks


def isolated_first(code: Code, s: int) -> NDArray[np.int64]:
    """Who is left if s stragglers take away whole partitions, those first that fewest hold yet.

    Parameters
    ----------
    code : Code
    s : int
        Stragglers, less than the workers.

    Returns
    -------
    (n - s,) int64 array
        Workers, in order.
    """
    holders: list[list[int]] = [[] for _ in range(code.k)]
    for worker in range(code.n):
        for partition in code.partitions(worker).tolist():
            holders[partition].append(worker)
    came = np.ones(code.n, dtype=bool)
    held = np.array([len(mine) for mine in holders])
    while True:
        easiest = int(np.where(held > 0, held, code.n + 1).argmin())
        if held[easiest] == 0 or came.sum() - held[easiest] < code.n - s:
            return np.flatnonzero(came)[: code.n - s]
        for worker in holders[easiest]:
            if came[worker]:
                came[worker] = False
                held[code.partitions(worker)] -= 1


def variance_of_blocks(n: int, load: int, groups: int, within: float, f: int) -> float:
    """Mean error of a stochastic block code by one coefficient n / (f load), over codes and sets.

    Of n workers and partitions in equal groups. A partition is held by each worker of its own group
    with one probability, and by each other with another. What is regularised does not count.

    Parameters
    ----------
    n, load, groups, within
        As of `fastgc.BernoulliCode`.
    f : int
        Random workers whose messages came.
    """
    own = n // groups
    p, q = within * load / own, (1 - within) * load / (n - own)
    mean = f * own / n  # of the own group that came: hypergeometric
    spread = mean * (1 - own / n) * (n - f) / (n - 1)
    variance = mean * p * (1 - p) + (f - mean) * q * (1 - q) + (p - q) ** 2 * spread
    return variance * (n / (f * load)) ** 2


def _sets(n: int, f: int, count: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    for _ in range(count):
        yield np.sort(rng.permutation(n)[:f])


@one_thread_of_blas()
def curves(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Figure:
    """Mean and worst error of codes by graphs against the part of workers that straggle.

    By optimal decoding, least squares, and with one coefficient for all messages. Three
    assignments: a random regular graph of degree 3 with 24 workers, the Ramanujan graph X^{5,13} of
    degree 6 with 6,552, and stochastic blocks, 100 workers in 5 groups with 10 of 100 partitions
    each. What comes of f of n workers, where d hold each block:

    - with one coefficient, n / (d f), random stragglers leave (n - f) (n - d) / (d f (n - 1)) on
      average, whatever the graph;
    - no code leaves less on average than the probability that nothing comes of a block,
      C(n - d, f) / C(n, f);
    - any stragglers leave at most (d + second) / (2 d) (n - f) / f by optimal decoding, where
      `second` is the second largest eigenvalue of the graph (Glasgow and Wootters, section V, by
      the argument of Raviv et al.);
    - those that take away one block after the other leave more than (n - f) / (2 n), half of what
      they leave of repetition.

    Parameters
    ----------
    seed : int
        Of graphs and sets.
    rounds : int
        Sets of each point; 2,000, 200 and 400 at most.
    track : callable
        Wraps what is looped over, to show how far it is.

    Returns
    -------
    Figure
    """
    rounds, seed = at_least("rounds", rounds, 1), at_least("seed", seed, 0)
    rng = np.random.default_rng(seed)
    small = GraphCode(24, 16, degree=3, wait=1, seed=seed)
    rows: list[Row] = list(_exhaustively(small))
    panels = []
    for name, code, d in (
        ("random regular graph", small, 3),
        ("Ramanujan graph", GraphCode(6552, 2184, degree=6, graph="lps", wait=1), 6),
    ):
        more, panel = _of_graph(f"{name}, {code.n} workers", code, d, rounds, rng, track)
        rows += more
        panels.append(panel)
    more, panel = _of_blocks(rounds, seed, track)
    title = "Codes by graphs: what stragglers leave, on average and at worst"
    return Figure("glasgow-curves", title, [*rows, *more], [*panels, panel])


def _exhaustively(code: GraphCode) -> Iterator[Row]:
    """Mean and worst of all sets of few stragglers: as decoded, and by components."""
    for s in FULL:
        decoded, exact = [], []
        for gone in combinations(range(code.n), s):
            came = np.delete(np.arange(code.n), gone)
            decoded.append(code.residual(came) ** 2)
            exact.append(left_by_components(code.ends[came], code.blocks))
        for what, ours, truth in (
            ("mean", np.mean(decoded), np.mean(exact)),
            ("largest", max(decoded), max(exact)),
        ):
            yield Row(
                f"{PAPER} optimal decoding",
                f"random regular graph, 24 workers: {what} error of all sets of {s} stragglers",
                float(ours),
                closed=float(truth),
                note=f"all {len(exact)} sets; closed: (a - b)^2 / (a + b) of each component",
            )


def _of_graph(
    name: str, code: GraphCode, d: int, rounds: int, rng: np.random.Generator, track: Track
) -> tuple[list[Row], Panel]:
    n, blocks, count = code.n, code.blocks, min(rounds, SETS[code.n])
    second = _second(code)
    lost = np.array([round(part * n) for part in FRACTIONS])
    rows, found = [], []
    for part, s in zip(FRACTIONS, track(lost.tolist()), strict=True):
        f = n - s
        best, same, exact = [], [], []
        for came in _sets(n, f, count, rng):
            if n <= 24:
                exact.append(left_by_components(code.ends[came], blocks))
            heard = np.bincount(code.ends[came].ravel(), minlength=blocks)
            best.append(_squared(code, came))
            same.append(float(((heard * n / (d * f) - 1) ** 2).mean()))
        worst = _squared(code, isolated_first(code, s))
        bound = (d + second) / (2 * d) * s / f
        silent = comb(n - d, f) / comb(n, f)
        closed = s * (n - d) / (d * f * (n - 1))
        found.append((np.mean(best), silent, np.mean(same), closed, worst, bound))
        rows.append(
            Row(
                f"{PAPER} optimal decoding",
                f"{name}: sets of {part:.0%} stragglers above the bound",
                float(sum(each > bound * (1 + 1e-9) for each in [*best, worst])),
                closed=0.0,
                note=f"of {count + 1}; bound {bound:.3g}",
            )
        )
        if part in ROWS:
            note = f"mean of {count} random sets"
            rows.append(
                Row(
                    f"{PAPER} fixed coefficients",
                    f"{name}: mean error, {part:.0%} straggle",
                    float(np.mean(same)),
                    closed=closed,
                    note=f"{note}; closed: hypergeometric variance",
                )
            )
            if s < d:  # nothing is ever left out
                continue
            if code.n <= 24 or silent * blocks * count > EVENTS:
                rows.append(_mean_row(name, part, best, exact, silent, note))
            rows.append(
                Row(
                    f"{PAPER} optimal decoding",
                    f"{name}: worst error found over repetition's, {part:.0%} straggle",
                    worst / (s // d * d / n),
                    note="stragglers take away the block that fewest still hold, one after the "
                    f"other: {worst:.3g} of the gradient's square; bound of all {bound:.3g}",
                )
            )
    return rows, _panel(name, np.array(FRACTIONS), np.array(found, dtype=np.float64))


def _mean_row(
    name: str, part: float, best: list[float], exact: list[float], silent: float, note: str
) -> Row:
    """The mean of optimal decoding: of few workers beside its truth, of many the least there is."""
    closed, said = silent, "the least that any code can leave, as nothing comes of a block"
    if exact:
        closed, said = float(np.mean(exact)), "(a - b)^2 / (a + b) of each component, same sets"
    return Row(
        f"{PAPER} optimal decoding",
        f"{name}: mean error, {part:.0%} straggle",
        float(np.mean(best)),
        closed=closed,
        note=f"{note}; closed: {said}",
    )


def _squared(code: GraphCode, came: NDArray[np.int64]) -> float:
    """Mean over blocks of (count - 1)^2, by optimal decoding in linear time."""
    vector = code.decoder()(came)
    counted = np.bincount(code.ends[came].ravel(), np.repeat(vector, 2), minlength=code.blocks)
    return float(((counted - 1) ** 2).mean())


def _second(code: GraphCode) -> float:
    """The second largest eigenvalue of the graph."""
    ends, blocks = code.ends, code.blocks
    A = np.zeros((blocks, blocks))
    np.add.at(A, (ends[:, 0], ends[:, 1]), 1.0)
    return float(np.linalg.eigvalsh(A + A.T)[-2])


def _of_blocks(rounds: int, seed: int, track: Track) -> tuple[list[Row], Panel]:
    """Stochastic blocks, over 20 codes."""
    n, rng = 100, np.random.default_rng([seed, 1])
    codes = [
        BernoulliCode(n, load=LOAD, groups=GROUPS, within=WITHIN, wait=1, seed=seed + i)
        for i in range(20)
    ]
    each = -(-min(rounds, SETS[n]) // len(codes))
    name = f"stochastic blocks, {n} workers in {GROUPS} groups"
    rows, found = [], []
    for part in track(list(FRACTIONS)):
        s = round(part * n)
        f = n - s
        best, same, worst = [], [], []
        for code in codes:
            for came in _sets(n, f, each, rng):
                best.append(code.residual(came) ** 2)
            for came in _sets(n, f, 20 * each, rng):
                same.append(code.residual(came, np.full(f, n / (f * LOAD))) ** 2)
            worst.append(code.residual(isolated_first(code, s)) ** 2)
        closed = variance_of_blocks(n, LOAD, GROUPS, WITHIN, f)
        found.append((np.mean(best), 0.0, np.mean(same), closed, max(worst), np.nan))
        if part in ROWS:
            rows += [
                Row(
                    "charles2018 fixed coefficients",
                    f"{name}: mean error, {part:.0%} straggle",
                    float(np.mean(same)),
                    closed=closed,
                    note=f"{len(same)} random sets of 20 codes; closed without those workers that "
                    "are regularised, or have nothing",
                ),
                Row(
                    "charles2018 optimal decoding",
                    f"{name}: mean error over that with fixed coefficients, {part:.0%} straggle",
                    float(np.mean(best) / np.mean(same)),
                    note="no formula is known; the worst found, where whole partitions are taken "
                    f"away, is {max(worst):.3g} of the gradient's square",
                ),
            ]
    return rows, _panel(name, np.array(FRACTIONS), np.array(found, dtype=np.float64))


def _panel(name: str, parts: NDArray[np.float64], found: NDArray[np.float64]) -> Panel:
    best, silent, same, closed, worst, bound = found.T
    lines = [
        Line("optimal, worst found", parts[worst > 1e-9], worst[worst > 1e-9], "points"),
        Line("optimal, mean", parts[best > 1e-9], best[best > 1e-9], "points"),
        Line("one coefficient, mean", parts, same, "points"),
        Line("one coefficient, mean", parts, closed, "line"),
    ]
    if np.isfinite(bound).all():
        shown = silent > 1e-9
        lines += [
            Line("least of any code, mean", parts[shown], silent[shown], "line"),
            Line("bound of the worst", parts, bound, "line"),
        ]
    title = f"{name[0].upper()}{name[1:]} (lines: formulas)"
    return Panel(title, "part of workers that straggle", "error", lines, log_y=True)
