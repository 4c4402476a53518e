"""Approximate gradient codes: errors of gradients from f messages, against papers' closed forms.

An error is the square of a residual. For partial gradients of equal norm in random directions, this
is the mean square error of the gradient over its own square. All figures compare with formulas that
the papers prove, not with printed numbers. `rounds` are sets of survivors, at most `SETS` a point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import comb, sqrt
from typing import Any

import numpy as np

from .._base.arrays import Array, Floats, Ints
from .._base.extras import one_thread_of_blas
from ..codes import Code, FractionalRepetition, GraphCode
from ..delays import Exponential
from ..planning.simulation import simulate
from ..plotting.panels import Line, Panel
from .figure import ROUNDS, Part, Row, Track, figure, gallery, positive, random_sets

SETS = 2_000  # sets of survivors for each point, at most
ERROR = "square of the residual"


def _errors(
    code: Code, f: int, count: int, rng: np.random.Generator, coefficient: float | None = None
) -> Floats:
    """Return errors for random sets: by least squares, or with one coefficient for all messages."""
    came = np.zeros((count, code.n), dtype=bool)
    for mask, survivors in zip(came, random_sets(code.n, f, count, rng), strict=True):
        mask[survivors] = True
    vectors = code.decoding_vectors(came) if coefficient is None else coefficient * came
    squares: Floats = np.mean((vectors @ code.matrix() - 1) ** 2, axis=1)
    return squares


def _of_one_coefficient(n: int, d: int, f: int) -> float:
    """Mean error with coefficient n / (d f) for every message, a hypergeometric variance."""
    return (n - f) * (n - d) / (d * f * (n - 1))


def _silent(n: int, d: int, f: int) -> float:
    """Probability that none of the d holders of a block is among f random workers of n."""
    return comb(n - d, f) / comb(n, f)


@figure("raviv-bound", "Raviv et al., section V: what stragglers leave of codes by expanders")
def raviv(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Raviv, Tandon, Dimakis, Tamo 2018, section V: adjacency matrices of expanders.

    With coefficient n / (d f) for all messages, the mean error over all sets of f workers is (n -
    f) (n - d) / (d f (n - 1)), and the largest is at most (second / d)^2 (n - f) / f, where
    `second` is the largest absolute value of the graph's eigenvalues other than d.
    """
    claim, make = partial(Row, "raviv2018 section V"), gallery("expander").ExpanderCode
    count, rng = min(rounds, SETS), np.random.default_rng(seed)
    lost, lines = np.arange(10, 61, 10), []
    for name, code in (
        ("Paley graph, n = 101, d = 50", make(101, load=50, graph="paley", wait=1)),
        ("random graph, n = 100, d = 10", make(100, load=10, wait=1, seed=seed)),
    ):
        n, d = code.n, code.load
        bounds = (code.second / d) ** 2 * lost / (n - lost)
        means, largest = [], []
        for s, bound in zip(track(lost.tolist()), bounds.tolist(), strict=True):
            f = n - s
            same = _errors(code, f, count, rng, n / (d * f))
            best = _errors(code, f, max(1, count // 20), rng)
            means.append(float(best.mean()))
            largest.append(float(best.max()))
            if s in (10, 30, 60):
                yield claim(
                    f"{name}: mean error of {s} stragglers, one coefficient",
                    float(same.mean()),
                    closed=_of_one_coefficient(n, d, f),
                    note=f"over {count} random sets; closed: hypergeometric variance",
                )
            yield claim(
                f"{name}: sets of {s} stragglers above the bound",
                float((same > bound).sum() + (best > bound).sum()),
                closed=0.0,
                note=f"bound {bound:.3g}; the largest was {same.max():.3g}, by least squares "
                f"{best.max():.3g}",
            )
        lines += [
            Line(f"bound, {name}", lost, bounds),
            Line(f"largest, {name}", lost, largest, "points"),
            Line(f"mean, {name}", lost, means),
        ]
    title = "Error by least squares, over random stragglers"
    yield Panel(title, "stragglers", ERROR, lines, log_y=True)


@figure(
    "charles-means", "Charles et al.: random stragglers of repetition and of random assignments"
)
def charles(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Charles, Papailiopoulos, Ellenberg 2017: repetition and Bernoulli codes, random stragglers.

    For n = k = 100 workers and a load of w = 10: the mean error of repetition, by least squares, is
    C(n - w, f) / C(n, f). The mean error of a Bernoulli code with one coefficient k / (f w) for all
    messages is (k - w) / (f w).
    """
    claim, n, w = partial(Row, "charles2017"), 100, 10
    count, rng = min(rounds, SETS), np.random.default_rng(seed)
    lost = np.arange(10, 91, 10)
    repeated, make = FractionalRepetition(n, load=w, wait=1), gallery("bernoulli").BernoulliCode
    drawn = [make(n, load=w, wait=1, seed=seed + i) for i in range(20)]
    found = []
    for s in track(lost.tolist()):
        f = n - s
        blocks = _errors(repeated, f, 5 * count, rng)
        few, coefficient = -(-count // 20), n / (f * w)
        one = np.concatenate([_errors(code, f, few, rng, coefficient) for code in drawn])
        best = np.concatenate([_errors(code, f, max(1, count // 400), rng) for code in drawn])
        expected = _silent(n, w, f) if f <= n - w else 0.0
        found.append((float(blocks.mean()), expected, float(best.mean()), float(one.mean())))
        if s >= 60:
            what = f"fractional repetition, least squares, {s} stragglers"
            note = f"mean of {5 * count} random sets"
            yield claim(what, found[-1][0], closed=expected, note=note)
        if s % 30 == 0:
            yield claim(
                f"Bernoulli code, one coefficient, {s} stragglers",
                found[-1][3],
                closed=(n - w) / (f * w),
                note=f"mean of {one.size} random sets of 20 assignments; closed without those that "
                "are regularised, or have a worker with nothing",
            )
    repetition, closed, bernoulli, single = np.array(found).T
    lines = [
        positive("repetition, closed form", lost, closed, least=1e-6),
        positive("repetition", lost, repetition, "points", least=0),
        positive("Bernoulli, least squares", lost, bernoulli, least=1e-12),
        Line("Bernoulli, one coefficient", lost, single, "points"),
        Line("one coefficient, closed form", lost, (n - w) / ((n - lost) * w)),
    ]
    title = "Mean error of random stragglers, n = k = 100, load 10"
    yield Panel(title, "stragglers", ERROR, lines, log_y=True)


@figure("kadhe-worst", "Kadhe et al.: block designs, whatever workers straggle")
def kadhe(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Kadhe, Koyluoglu, Ramchandran 2019: block designs, whose error is the same for all sets.

    The error of every set of f messages is ``1 - r^2 f / (b (r - lambda + lambda f))``. Rows have
    the largest and the least error found, for random sets and for sets without all workers of some
    partitions, which an adversary would choose against repetition.
    """
    why = "blocks meet in equally many partitions, so sets of one size leave one error"
    claim = partial(Row, "kadhe2019", note=why, tolerance=1e-9)
    count, rng = min(rounds, SETS), np.random.default_rng(seed)
    lines = []
    for name, q, load, blocks, common in (
        ("projective plane, n = 21", 4, 5, 21, 1),
        ("affine plane, n = 25", 5, 6, 30, 1),
        ("Paley design, n = 23", 23, 11, 23, 5),
    ):
        code = gallery("bibd").BIBDCode(q, name.split()[0].lower(), wait=1)
        n, B = code.n, code.matrix()
        lost = np.arange(1, n)
        closed = 1 - load**2 * (n - lost) / (blocks * (load - common + common * (n - lost)))
        found = []
        for s in track(lost.tolist()):
            chosen = np.argsort(-B[:, rng.permutation(blocks)] @ 0.5 ** np.arange(blocks))
            random = _errors(code, n - s, max(1, count // 20), rng)
            errors = np.append(random, code.residual(np.sort(chosen[s:])) ** 2)
            found.append((errors.min(), errors.max()))
        least, largest = np.array(found).T
        for s in (2, n // 2, n - 2):
            for which, values in ("largest", largest), ("least", least):
                what = f"{name}: {which} error of {s} stragglers"
                yield claim(what, float(values[s - 1]), closed=float(closed[s - 1]))
        lines += [Line(f"{name}, closed form", lost, closed), Line(name, lost, largest, "points")]
    s = np.arange(1, 20)
    lines.append(Line("repetition at worst, n = 20, load 5", s, s // 5 * 5 / 20, "step"))
    yield Panel("Largest error of any stragglers, by least squares", "stragglers", ERROR, lines)


def _counts(code: GraphCode, came: Ints, vector: Any = None) -> Array:
    """Return how often each block is counted: with a decoding vector, or with coefficients of 1."""
    weights = None if vector is None else np.repeat(vector, 2)
    counts: Array = np.bincount(code.ends[came].ravel(), weights, minlength=code.blocks)
    return counts


@figure("glasgow-random", "Glasgow, Wootters: random stragglers of codes by graphs")
def glasgow(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Glasgow, Wootters 2021: optimal decoding of codes by graphs, random stragglers.

    Workers straggle with probability p. Coefficients are divided by the mean count of a block, so
    that the gradient is right on average. The error of a code of replication d is then at least
    p^d / (1 - p^d), and with fixed coefficients at least p / (d (1 - p)) (appendix A). The code is
    that of the Ramanujan graph X^{5,13}: 6,552 workers, 2,184 blocks, d = 6.
    """
    claim = partial(Row, "glasgow2021 appendix A")
    count, rng = min(rounds, SETS), np.random.default_rng(seed)
    code = GraphCode(6552, 2184, degree=6, graph="lps", wait=1)
    d, n, blocks, decode = 6, code.n, code.blocks, code.decoder()
    chances = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    found = []
    for p in track(chances.tolist()):
        alone, error, total, fixed = 0, 0.0, 0.0, 0.0
        for _ in range(count):
            came = np.flatnonzero(rng.random(n) >= p)
            counted, heard = _counts(code, came, decode(came)), _counts(code, came)
            alone += int((heard == 0).sum())
            total += float(counted.sum())
            error += float((counted**2).sum())
            fixed += float(((heard / (d * (1 - p)) - 1) ** 2).mean())
        mean = total / (count * blocks)
        unbiased = error / (count * blocks) / mean**2 - 1  # E (counted / mean - 1)^2
        found.append((unbiased, fixed / count))
        if p >= 0.3:
            yield claim(
                f"optimal decoding, p = {p:g}: error of the unbiased gradient",
                unbiased,
                closed=p**d / (1 - p**d),
                note=f"{count} rounds, in which {alone} times nothing came of a block: a "
                f"standard error of {100 / sqrt(max(alone, 1)):.1g}%; closed: the lower bound",
            )
        what, closed = f"fixed coefficients, p = {p:g}: error", p / (d * (1 - p))
        yield claim(what, fixed / count, closed=closed, note=f"{count} rounds")
    optimal, same = np.array(found).T
    yield Panel(
        "Random stragglers: Ramanujan graph, 6,552 workers, d = 6",
        "probability that a worker straggles",
        "mean square error over the gradient's square",
        [
            positive("optimal decoding", chances, optimal, "points"),
            Line("p^d / (1 - p^d)", chances, chances**d / (1 - chances**d)),
            Line("fixed coefficients", chances, same, "points"),
            Line("p / (d (1 - p))", chances, chances / (d * (1 - chances))),
        ],
        log_y=True,
    )


def missing_by_density_evolution(missing: float, messages: float) -> float:
    """Part of infinitely many batches that peeling does not decode (and-or trees).

    It is the largest y in 0 .. 1 with ``y = exp(-messages Omega'(1 - y))``. Omega is the generating
    function of the raptor code's degrees for `missing`. `messages` is the number of messages over
    the number of batches.
    """
    chances = gallery("raptor").degrees(missing)
    order = np.arange(1, chances.size + 1)
    y: float = 1.0
    for _ in range(100_000):
        before, y = y, float(np.exp(-messages * (order * chances) @ (1 - y) ** (order - 1)))
        if abs(before - y) <= 1e-12:
            break
    return y


def peeled(held: Sequence[Ints], batches: int) -> Array:
    """Whether each batch is found by subtracting known batches from the sums of those `held`."""
    holders: list[list[int]] = [[] for _ in range(batches)]
    for at, mine in enumerate(held):
        for batch in mine.tolist():
            holders[batch].append(at)
    unknown, known = [mine.size for mine in held], np.zeros(batches, dtype=bool)
    ready = [at for at, count in enumerate(unknown) if count == 1]
    for at in ready:  # the loop appends to it
        for batch in held[at][~known[held[at]]].tolist():  # one, or none
            known[batch] = True
            for other in holders[batch]:
                unknown[other] -= 1
                if unknown[other] == 1:
                    ready.append(other)
    return known


@figure("wang-peeling", "Wang et al.: batched raptor codes")
def wang(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Wang, Liu, Shroff 2019: batched raptor codes, peeled and by least squares.

    Half or a fifth of 2,000 workers straggle. The part of batches that peeling does not decode is
    compared with its limit for many batches, `missing_by_density_evolution`, and with epsilon,
    which the paper promises as a bound. Each point has at most 40 codes, and 10 sets for each.
    """
    claim = partial(Row, "wang2019b")  # wang2019a is ErasureHead, by other authors
    runs = max(2, min(rounds, SETS) // 50)
    n, chances, lines = 2000, np.array([0.05, 0.1, 0.15, 0.2]), []
    make = gallery("raptor").RaptorCode
    for lost in (1000, 400):
        found, limits = [], []
        for missing in track(chances.tolist()):
            left, loads = [], []
            for i in range(runs):
                code = make(n, wait=n - lost, missing=missing, seed=seed + i)
                sets = random_sets(n, n - lost, 10, np.random.default_rng([seed, i]))
                heard = ([code.held[worker] for worker in came] for came in sets)
                left.append(np.mean([1 - peeled(held, code.batches).mean() for held in heard]))
                loads.append(code.scheme.loads.mean())
            limits.append(missing_by_density_evolution(missing, (n - lost) / code.batches))
            found.append(float(np.mean(left)))
            yield claim(
                f"part of batches not peeled, epsilon = {missing:g}, {lost} stragglers",
                found[-1],
                closed=limits[-1],
                note=f"{runs} codes of {n} workers with {np.mean(loads):.1f} partitions on "
                f"average, standard error {np.std(left) / sqrt(runs):.1g}; closed: limit of many "
                "batches",
            )
            yield claim(
                f"codes that miss more than epsilon = {missing:g}, {lost} stragglers",
                float((np.array(left) > missing).sum()),
                closed=0.0,
                note=f"of {runs}, on average over 10 sets; promised with a probability that "
                "grows to 1 with the number of workers",
            )
        lines += [
            Line(f"{lost} stragglers", chances, found, "points"),
            Line(f"{lost} stragglers, limit", chances, limits),
        ]
    lines.append(Line("epsilon", chances, chances))
    title = "Batched raptor codes of 2,000 workers, by peeling"
    yield Panel(title, "epsilon", "part of batches that is missing", lines, log_x=True, log_y=True)


# ------------------------------------------------------------------------- ErasureHead

HEAD = "wang2019a error"  # wang2019b is on batched raptor codes, by other authors
N, COPIES, WAITS = 30, (1, 2, 3, 5), (10, 15, 20, 25)
MEAN = 1.0  # mean of a worker's exponential delay, in seconds
HEARD = 20_000  # sets of survivors, and rounds, of a point
LIKELY = 0.01  # smaller probabilities would need more rounds to be estimated
NOTE = "the law is hypergeometric; the paper's printed numbers were not at hand"


def missing_blocks(n: int, copies: int, came: int) -> list[Fraction]:
    """Probability that m blocks are on none of `came` random workers of n, for m = 0, 1, ...

    It is exact, by inclusion and exclusion over the n / copies blocks.
    """
    blocks = n // copies
    # sums[i]: number of pairs of i blocks and `came` workers that hold none of these blocks
    sums = [Fraction(comb(blocks, i) * comb(n - i * copies, came)) for i in range(blocks + 1)]
    chances = []
    for m in range(blocks + 1):
        terms = ((-1) ** (i - m) * comb(i, m) * sums[i] for i in range(m, blocks + 1))
        chances.append(sum(terms, start=Fraction(0)) / comb(n, came))
    return chances


def uncovered(n: int, copies: int, came: int) -> float:
    """Probability that some block is on none of `came` random workers of n."""
    return float(1 - missing_blocks(n, copies, came)[0])


@figure("erasurehead", "ErasureHead: what is left out of gradients")
def erasurehead(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """ErasureHead (Wang, Charles, Papailiopoulos 2019): residual and time of waiting for f workers.

    Workers have independent exponential delays. Each block of partitions is on d workers. A block
    is missing from the messages of f random workers with probability C(n - d, f) / C(n, f), which
    is the mean square of the residual. A round ends with the f-th message, or if no block is
    missing.
    """
    claim, rounds = partial(Row, HEAD), min(rounds, HEARD)
    every, lines, against_time = np.arange(1, N + 1), [], []
    for d in track(COPIES):
        simulated, times = [], []
        for f in WAITS:
            what = f"d = {d}, f = {f} of {N}"
            code = FractionalRepetition(N, load=d, wait=f)
            left, scaled = _squares(code, rounds, seed)
            simulated.append(left)
            closed = _silent(N, d, f)
            if closed >= LIKELY:
                yield claim(f"residual squared, {what}", left, closed=closed, note=NOTE)
                blocks, law = N // d, missing_blocks(N, d, f)
                unbiased = sum(p * Fraction(m, blocks - m) for m, p in enumerate(law[:blocks]))
                yield claim(
                    f"residual squared, unbiased, {what}",
                    scaled,
                    closed=float(unbiased),
                    note="not in the paper, which lets gradients shrink",
                )
            run = simulate(code, Exponential(MEAN), rounds=max(rounds // 10, 1), seed=seed)
            times.append(run.mean)
            later = [uncovered(N, d, j) for j in range(f)]  # P(a round waits for more than j)
            mean = math.fsum(late * MEAN / (N - j) for j, late in enumerate(later))
            yield claim(f"time of a round (s), {what}", run.mean, closed=mean, note=NOTE)
            heard = math.fsum(later)
            yield claim(f"workers waited for, {what}", run.mean_workers, closed=heard, note=NOTE)
        lines.append(Line(f"d = {d}", every, [_silent(N, d, f) for f in every.tolist()]))
        lines.append(Line(f"d = {d}", WAITS, simulated, "points"))
        against_time.append(Line(f"d = {d}", times, simulated, "points"))
    title = f"n = {N} (lines: formula, points: simulated)"
    yield Panel(title, "workers waited for at most, f", "residual squared, mean", lines)
    yield Panel("the same against time", "time of a round (s)", "", against_time)


def _squares(code: FractionalRepetition, rounds: int, seed: int) -> tuple[float, float]:
    """Return mean squares of residuals over random survivors: least squares, and unbiased."""
    rng, masks = np.random.default_rng(seed), np.zeros((rounds, N), dtype=bool)
    came = np.argsort(rng.exponential(MEAN, (rounds, N)), axis=1)[:, : code.scheme.wait]
    np.put_along_axis(masks, came, True, axis=1)
    coefficients = code.decoding_vectors(masks) @ code.matrix()
    left = np.mean((coefficients - 1) ** 2, axis=1)
    scaled = coefficients / coefficients.mean(axis=1, keepdims=True)
    return float(left.mean()), float(np.mean((scaled - 1) ** 2))


# --------------------------------------------------- on average and at worst, against stragglers

FRACTIONS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
ROWS = (0.1, 0.3, 0.5)  # fractions of stragglers that have rows
CURVE_SETS = {24: 2_000, 100: 200, 6552: 400}  # sets at most, by the number of workers
FULL = (3, 4)  # numbers of stragglers, of 24 workers, for which all sets are tried
EVENTS = 400  # a mean is compared only if this many missing blocks are expected in all sets
GROUPS, WITHIN, LOAD = 5, 0.5, 10  # parameters of stochastic blocks
OPTIMAL = partial(Row, "glasgow2021 optimal decoding")


def left_by_components(ends: Ints, blocks: int) -> float:
    """Error of messages by optimal decoding: the squared norm over the number of blocks.

    A bipartite component with a blocks on one side and b on the other contributes ``(a - b)^2 / (a
    + b)``; other components contribute 0. `ends`, (messages, 2), has each message's blocks.
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


def isolated_first(code: Code, s: int) -> Ints:
    """Return the n - s survivors, sorted, if s stragglers isolate one partition after another.

    The next partition is the one with the fewest holders left.
    """
    partitions = [code.partitions(worker) for worker in range(code.n)]
    holders: list[list[int]] = [[] for _ in range(code.k)]
    for worker, mine in enumerate(partitions):
        for partition in mine.tolist():
            holders[partition].append(worker)
    came = np.ones(code.n, dtype=bool)
    held = np.array([len(each) for each in holders])
    while True:
        easiest = int(np.where(held > 0, held, code.n + 1).argmin())
        if held[easiest] == 0 or came.sum() - held[easiest] < code.n - s:
            return np.flatnonzero(came)[: code.n - s]
        for worker in holders[easiest]:
            if came[worker]:
                came[worker] = False
                held[partitions[worker]] -= 1


def variance_of_blocks(n: int, load: int, groups: int, within: float, f: int) -> float:
    """Mean error of a stochastic block code with one coefficient n / (f load), over codes and sets.

    n workers and n partitions are in equal groups, as in docs/examples/codes/bernoulli.py, and f
    random workers' messages came. Each worker of a partition's own group holds it with probability
    p, each other worker with probability q. The formula neglects the code's regularisation.
    """
    own = n // groups
    p, q = within * load / own, (1 - within) * load / (n - own)
    mean = f * own / n  # survivors of the own group: a hypergeometric number
    spread = mean * (1 - own / n) * (n - f) / (n - 1)
    variance = mean * p * (1 - p) + (f - mean) * q * (1 - q) + (p - q) ** 2 * spread
    return variance * (n / (f * load)) ** 2


@figure("glasgow-curves", "Codes by graphs: what stragglers leave, on average and at worst")
def curves(*, seed: int = 0, rounds: int = ROUNDS, track: Track = iter) -> Iterator[Part]:
    """Mean and worst error of codes by graphs against the fraction of workers that straggle.

    Errors are by optimal decoding (least squares), and with one coefficient for all messages. There
    are three assignments: a random regular graph of degree 3 with 24 workers, the Ramanujan graph
    X^{5,13} of degree 6 with 6,552 workers, and stochastic blocks, 100 workers in 5 groups with 10
    of 100 partitions each. They have at most 2,000, 400 and 200 sets. Let f of n workers survive
    and d workers hold each block:

    - With one coefficient, n / (d f), the mean error of random stragglers is
      (n - f) (n - d) / (d f (n - 1)) for any graph.
    - The mean error of any code is at least the probability that no holder of a block survives,
      C(n - d, f) / C(n, f).
    - The error of any stragglers by optimal decoding is at most (d + second) / (2 d) (n - f) / f,
      where `second` is the second largest eigenvalue of the graph (Glasgow and Wootters, section V,
      by the argument of Raviv et al.).
    - The error of stragglers that isolate one block after the other is more than (n - f) / (2 n),
      half of repetition's error for such stragglers.
    """
    with one_thread_of_blas():
        rng = np.random.default_rng(seed)
        small = GraphCode(24, 16, degree=3, wait=1, seed=seed)
        yield from _exhaustively(small)
        for name, code, d in (
            ("random regular graph", small, 3),
            ("Ramanujan graph", GraphCode(6552, 2184, degree=6, graph="lps", wait=1), 6),
        ):
            yield from _of_graph(f"{name}, {code.n} workers", code, d, rounds, rng, track)
        yield from _of_blocks(rounds, seed, track)


def _exhaustively(code: GraphCode) -> Iterator[Row]:
    """Yield the mean and the worst error of all sets of few stragglers: decoded, by components."""
    for s in FULL:
        decoded, exact = [], []
        for gone in combinations(range(code.n), s):
            came = np.delete(np.arange(code.n), gone)
            decoded.append(code.residual(came) ** 2)
            exact.append(left_by_components(code.ends[came], code.blocks))
        note = f"all {len(exact)} sets; closed: (a - b)^2 / (a + b) of each component"
        for name, of in ("mean", np.mean), ("largest", max):
            what = f"random regular graph, 24 workers: {name} error of all sets of {s} stragglers"
            yield OPTIMAL(what, float(of(decoded)), closed=float(of(exact)), note=note)


def _of_graph(
    name: str, code: GraphCode, d: int, rounds: int, rng: np.random.Generator, track: Track
) -> Iterator[Part]:
    n, blocks, count = code.n, code.blocks, min(rounds, CURVE_SETS[code.n])
    A, decode = np.zeros((blocks, blocks)), code.decoder()
    np.add.at(A, (code.ends[:, 0], code.ends[:, 1]), 1.0)
    second = float(np.linalg.eigvalsh(A + A.T)[-2])

    def squared(came: Ints) -> float:
        """Return the error by optimal decoding in linear time: the mean of (count - 1)^2."""
        return float(((_counts(code, came, decode(came)) - 1) ** 2).mean())

    lost, found = [round(part * n) for part in FRACTIONS], []
    for part, s in zip(FRACTIONS, track(lost), strict=True):
        f, best, same, exact = n - s, [], [], []
        for came in random_sets(n, f, count, rng):
            if n <= 24:
                exact.append(left_by_components(code.ends[came], blocks))
            heard = _counts(code, came)
            best.append(squared(came))
            same.append(float(((heard * n / (d * f) - 1) ** 2).mean()))
        worst = squared(isolated_first(code, s))
        bound = (d + second) / (2 * d) * s / f
        silent, closed = _silent(n, d, f), _of_one_coefficient(n, d, f)
        found.append((np.mean(best), silent, np.mean(same), closed, worst, bound))
        yield OPTIMAL(
            f"{name}: sets of {part:.0%} stragglers above the bound",
            float(sum(each > bound * (1 + 1e-9) for each in [*best, worst])),
            closed=0.0,
            note=f"of {count + 1}; bound {bound:.3g}",
        )
        if part not in ROWS:
            continue
        note = f"mean of {count} random sets"
        yield Row(
            "glasgow2021 fixed coefficients",
            f"{name}: mean error, {part:.0%} straggle",
            float(np.mean(same)),
            closed=closed,
            note=f"{note}; closed: hypergeometric variance",
        )
        if s < d:  # the error is 0
            continue
        if exact or silent * blocks * count > EVENTS:
            # Few workers: compare with the exact error. Many: with the lower bound of any code.
            said = "the least that any code can leave, as nothing comes of a block"
            if exact:
                silent = float(np.mean(exact))
                said = "(a - b)^2 / (a + b) of each component, same sets"
            what = f"{name}: mean error, {part:.0%} straggle"
            yield OPTIMAL(what, float(np.mean(best)), closed=silent, note=f"{note}; closed: {said}")
        yield OPTIMAL(
            f"{name}: worst error found over repetition's, {part:.0%} straggle",
            worst / (s // d * d / n),
            note="stragglers take away the block that fewest still hold, one after the "
            f"other: {worst:.3g} of the gradient's square; bound of all {bound:.3g}",
        )
    yield _panel(name, found)


def _of_blocks(rounds: int, seed: int, track: Track) -> Iterator[Part]:
    n, rng, make = 100, np.random.default_rng([seed, 1]), gallery("bernoulli").BernoulliCode
    codes = [
        make(n, load=LOAD, groups=GROUPS, within=WITHIN, wait=1, seed=seed + i) for i in range(20)
    ]
    each = -(-min(rounds, CURVE_SETS[n]) // len(codes))
    name = f"stochastic blocks, {n} workers in {GROUPS} groups"
    found = []
    for part in track(list(FRACTIONS)):
        s = round(part * n)
        f = n - s
        best, same, worst = [], [], []
        for code in codes:
            best += _errors(code, f, each, rng).tolist()
            same += _errors(code, f, 20 * each, rng, n / (f * LOAD)).tolist()
            worst.append(code.residual(isolated_first(code, s)) ** 2)
        closed = variance_of_blocks(n, LOAD, GROUPS, WITHIN, f)
        found.append((np.mean(best), 0.0, np.mean(same), closed, max(worst), np.nan))
        if part in ROWS:
            yield Row(
                "charles2018 fixed coefficients",
                f"{name}: mean error, {part:.0%} straggle",
                float(np.mean(same)),
                closed=closed,
                note=f"{len(same)} random sets of 20 codes; closed without those workers that "
                "are regularised, or have nothing",
            )
            yield Row(
                "charles2018 optimal decoding",
                f"{name}: mean error over that with fixed coefficients, {part:.0%} straggle",
                float(np.mean(best) / np.mean(same)),
                note="no formula is known; the worst found, where whole partitions are taken "
                f"away, is {max(worst):.3g} of the gradient's square",
            )
    yield _panel(name, found)


def _panel(name: str, found: Sequence[Sequence[Any]]) -> Panel:
    """Return a panel of means, worst errors and bounds against the fraction of stragglers."""
    parts = np.array(FRACTIONS)
    best, silent, same, closed, worst, bound = np.array(found, dtype=np.float64).T
    lines = [
        positive("optimal, worst found", parts, worst, "points"),
        positive("optimal, mean", parts, best, "points"),
        Line("one coefficient, mean", parts, same, "points"),
        Line("one coefficient, mean", parts, closed),
    ]
    if np.isfinite(bound).all():
        lines.append(positive("least of any code, mean", parts, silent))
        lines.append(Line("bound of the worst", parts, bound))
    title = f"{name[0].upper()}{name[1:]} (lines: formulas)"
    return Panel(title, "part of workers that straggle", "error", lines, log_y=True)
