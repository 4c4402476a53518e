"""Charalambides, Mahdavifar, Hero 2020: decoding (section IV), loads (sections V and VI)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache, partial
from itertools import combinations, pairwise
from math import comb

import numpy as np

from fastgc.codes import BinaryCode
from fastgc.planning import equal_time_loads
from fastgc.plotting import Line, Panel

from .figure import Part, Row, compared, figure, median_seconds

DECODING = partial(Row, "charalambides2020 section IV")
LOADS = partial(Row, "charalambides2020 section V")
WORKERS = range(3, 13)
TABLE = (18, 5)  # n and s of a table that is made
BEYOND = (80, 12)  # n and s of a table too large to be made
LEMMA = range(1, 21)  # values of s; n goes from s^2 to 4 s^2 + 20
MIXED = (12, 9, 3)  # n, k, s for two kinds of workers; the slower take 2 to 6 times as long
DRAWN = 5  # values of n in the picture
EXAMPLE = (11, 3)  # n and s of the paper's example, section III


def distance(code: BinaryCode) -> float:
    """Return d_s(B), the sum over workers of the difference of load and k (s + 1) / n (def. 2)."""
    return float(np.abs(code.scheme.loads - code.k * (code.stragglers + 1) / code.n).sum())


def least_distance(n: int, k: int, s: int) -> float:
    """Return the least d_s(B) over all ways to split k partitions over the workers of each class.

    All ways are tried, so n and k must be small; s < n.
    """
    return sum(least for least, _ in _evenest(n, k, s))


def _evenest(n: int, k: int, s: int) -> list[tuple[float, set[tuple[int, ...]]]]:
    """Return, for each class, the least distance of loads from even ones, and the loads with it."""
    even = k * (s + 1) / n
    sizes = [len(range(c, n, s + 1)) for c in range(s + 1)]
    found = {}
    for size in set(sizes):
        far = {
            tuple(sorted(loads)): sum(abs(load - even) for load in loads)
            for loads in _splits(k, size)
        }
        least = min(far.values())
        found[size] = least, {loads for loads, each in far.items() if each < least + 1e-9}
    return [found[size] for size in sizes]


def _splits(k: int, parts: int) -> Iterator[list[int]]:
    """Yield all ways to write k as an ordered sum of `parts` whole numbers from 0."""
    for bars in combinations(range(k + parts - 1), parts - 1):
        ends = [-1, *bars, k + parts - 1]
        yield [after - before - 1 for before, after in pairwise(ends)]


def lemma_4_fails(s: int, n: int) -> int | None:
    """Return t of n = l (s + 1) + r, r = t l + q, if Lemma 4 is wrong about it, otherwise None."""
    ell, r = divmod(n, s + 1)
    t = r // ell
    return None if t == (n - s * s in (s - 2, s - 1, 2 * s)) else t


def fits_classes(loads: tuple[int, ...], k: int, classes: int) -> bool:
    """Whether workers of these loads can be divided into classes whose loads add up to k each."""

    @cache
    def place(at: int, room: tuple[int, ...]) -> bool:
        if at == len(loads):
            return not any(room)
        return any(
            place(at + 1, tuple(sorted((*room[:c], room[c] - loads[at], *room[c + 1 :]))))
            for c in range(classes)
            if room[c] >= loads[at]
        )

    return place(0, (k,) * classes)


def table_of_vectors(code: BinaryCode) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of survivors and decoding vectors of all C(n, s) sets of stragglers."""
    lost = np.array(list(combinations(range(code.n), code.stragglers)))
    came = np.ones((len(lost), code.n), dtype=bool)
    came[np.arange(len(lost))[:, None], lost] = False
    return came, code.decoding_vectors(came)


def _table_rows() -> Iterator[Row]:
    """Yield rows on the table of reference [15]: its size and search, beside decoding online."""
    n, s = TABLE
    code = BinaryCode(n, stragglers=s)
    start = time.perf_counter()
    came, vectors = table_of_vectors(code)
    made = time.perf_counter() - start
    at = len(came) // 2
    heard, survivors = came[at].copy(), np.flatnonzero(came[at])
    rows_by_set = {row.tobytes(): place for place, row in enumerate(came)}
    searched = median_seconds([lambda: vectors[(came == heard).all(axis=1).argmax()]] * 51)
    hashed = median_seconds([lambda: vectors[rows_by_set[heard.tobytes()]]] * 51)
    online = median_seconds([lambda: code.decoding_vector(survivors)] * 51)
    size = f"n = {n}, s = {s}"
    many, most = BEYOND
    yield DECODING(
        f"MB of all C(n, s) decoding vectors and their sets, {size}",
        (came.nbytes + vectors.nbytes) / 1e6,
        closed=_table_bytes(n, s) / 1e6,
        note="of reference [15]; closed: 9 n C(n, s) bytes. The code itself, from which any of "
        f"them is had, holds {3 * 8 * n} bytes: a class and the ends of a block each. The table "
        f"takes {made:.2f} s to make",
    )
    yield DECODING(
        f"times as long as decoding, searching the table takes, {size}",
        searched / online,
        note=f"set by set, as in [15]: {1e6 * searched:.0f} µs; decoding {1e6 * online:.0f} "
        f"µs. Measured in this run. A hash table, which takes the same memory again, finds a "
        f"set in {1e6 * hashed:.1f} µs: what the table costs is memory and the time to make it",
    )
    yield DECODING(
        f"TB of all C(n, s) decoding vectors and their sets, n = {many}, s = {most}",
        _table_bytes(many, most) / 1e12,
        note="by the formula: it cannot be made",
    )


def _table_bytes(n: int, s: int) -> int:
    """Return the bytes of the table: n booleans and n reals for each set of stragglers."""
    return comb(n, s) * n * 9


def _lemma_rows() -> Iterator[Row]:
    """Yield rows on section V-A: Lemma 4, and the spread of loads for n >= s^2."""
    wrong, widest, pairs = [], 0, 0
    for s in LEMMA:
        for n in range(max(s * s, s + 1), 4 * s * s + 21):
            pairs += 1
            t = lemma_4_fails(s, n)
            if t is not None:
                wrong.append(f"s = {s}, n = {n}, where t = {t}")
            widest = max(widest, int(np.ptp(BinaryCode(n, stragglers=s).scheme.loads)))
    over = f"s = {LEMMA[0]}..{LEMMA[-1]}, n = s²..4 s² + 20"
    yield LOADS(
        f"pairs n, s of {pairs} that Lemma 4 is wrong about",
        len(wrong),
        0,
        note=f"{over}. It is {'; '.join(wrong)}: there a = s - 1 and r = s = 2, l = s - 1 = 1, "
        "and r = t l + q makes t = 2. The lemma holds if t >= 1 is read for t = 1",
    )
    note = f"section V-A, at most 3: {over}, k = n"
    yield LOADS("largest difference of two loads, n ≥ s²", widest, 3, note=note)
    yield _condition_row()


def _condition_row() -> Row:
    """Return a row that shows that section V-A's condition l + r > s needs n >= s^2."""
    pairs, beyond, widest = 0, 0, (0, 0, 0)
    for s in LEMMA:
        for n in range(s + 1, s * s):
            if sum(divmod(n, s + 1)) <= s:
                continue
            pairs += 1
            loads = BinaryCode(n, stragglers=s).scheme.loads
            differ = int(np.ptp(loads))
            beyond += differ > 3
            widest = max(widest, (differ, n, s))
    differ, n, s = widest
    return LOADS(
        f"pairs n < s², s of {pairs} with l + r > s whose loads differ by more than 3",
        beyond,
        0,
        note=f"section V-A concludes from l + r > s that they do not, s = {LEMMA[0]}..{LEMMA[-1]}, "
        f"k = n. With n = 2 s + 1, l = 1 and r = s, a class of one worker has n partitions, the "
        f"others s or s + 1 each: they differ by {differ} with n = {n}, s = {s}",
    )


def _unequal_row() -> Row:
    """Return a row on section VI: whole loads that do not split into classes."""
    n, k, s = MIXED
    cases = [(fast, slower) for fast in range(1, n) for slower in range(2, 7)]
    wrong = []
    for fast, slower in cases:
        loads = equal_time_loads([1] * fast + [slower] * (n - fast), k, s)
        if not fits_classes(tuple(loads.tolist()), k, s + 1):
            wrong.append((fast, slower, loads))
    clear = next((case for case in wrong if len(set(case[2].tolist())) == 2), wrong[0])
    fast, slower, loads = clear
    return Row(
        "charalambides2020 section VI",
        f"whole loads for two kinds that no classes can have, n = {n}, k = {k}, s = {s}",
        len(wrong),
        0,
        note=f"of {len(cases)}: 1..{n - 1} workers for whom a partition takes 1, the others 2..6. "
        "Section VI rounds, and calls conditions (i) to (iii) solvable. The loads are "
        f"`planning.equal_time_loads`, of sum (s + 1) k; with {fast} fast workers and times of 1 "
        f"and {slower} they are {sorted(set(loads.tolist()), reverse=True)}, and no {s + 1} "
        f'classes of these have {k} partitions each. `BinaryCode(assignment="classes")` deals '
        "workers first and rounds within classes",
    )


@figure("charalambides-5", "Charalambides et al., sections IV to VI: loads and decoding")
def section_5(*, workers: range = WORKERS) -> Iterator[Part]:
    """Loads of the binary code against the most even loads, and decoding against a stored table.

    For each n in `workers`, all splits of n partitions are tried.
    """
    lines = []
    pairs = best = divisible = several = 0
    for n in workers:
        stragglers = range(1, n - 1)
        ours = [distance(BinaryCode(n, stragglers=s)) for s in stragglers]
        even = [_evenest(n, n, s) for s in stragglers]
        least = [sum(far for far, _ in classes) for classes in even]
        pairs += len(stragglers)
        best += int(np.isclose(ours, least, rtol=0, atol=1e-9).sum())
        divisible += sum(n % (s + 1) == 0 for s in stragglers)
        several += sum(any(len(loads) > 1 for _, loads in classes) for classes in even)
        if n in workers[-DRAWN:]:
            lines += compared(f"n = {n}", stragglers, ours, least)
    n, s = EXAMPLE
    example = BinaryCode(n, stragglers=s)
    over = f"n = {workers[0]}..{workers[-1]}, s = 1..n - 2, k = n"
    yield LOADS(
        "codes of which no split within classes is more even",
        best,
        pairs,
        note=f"Proposition 3 for {over}, against all ways to split k over each class",
    )
    yield LOADS(
        "codes of which no matrix of k (s + 1) ones is more even",
        divisible,
        pairs,
        note="Proposition 3 as it is stated. The only constraint of (IP) is the sum of all "
        "loads; with k = n it allows s + 1 each, distance 0, which classes of different size "
        "do not. The proposition holds where s + 1 divides n, and else only among codes whose "
        "classes hold each partition once",
    )
    note = f"closed: the least of all splits; loads {example.scheme.loads.tolist()}"
    what, least_of_all = f"d_s(B), n = k = {n}, s = {s}", least_distance(n, n, s)
    yield LOADS(what, distance(example), closed=least_of_all, note=note)
    yield LOADS(
        "codes whose loads are not the only ones as even",
        several,
        0,
        note=f"Proposition 3 calls its solution unique up to permutations; {over}. With "
        "n = k = 4, s = 2 the class of two workers may have loads 2, 2 or 1, 3: both are "
        "2 away from 3 each",
    )
    yield from _lemma_rows()
    yield from _table_rows()
    yield _unequal_row()
    title = "Distance of the loads from uniform, k = n (points: least of all splits)"
    yield Panel(title, "stragglers s", "d_s(B)", lines)
    sizes = np.arange(5, 101, 5)
    table = [float(_table_bytes(n, n // 5)) for n in sizes.tolist()]
    lines = [Line("table", sizes, table), Line("code", sizes, 24.0 * sizes)]
    title = "All C(n, n/5) decoding vectors and their sets, and the code they are had from"
    yield Panel(title, "workers n", "bytes", lines, log_y=True)
