"""The tables and figures of Li et al.: thresholds and times of rounds drawn here."""

import math
import re
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
from papers import li

import fastgc


def test_assignments_that_do_not_cover_are_left_out():

    made = li._assignments(partial(fastgc.CouponCollector, 4, load=1), 400, seed=0)
    # 4! / 4^4 of all choices cover.
    assert 0.04 < len(made) / 400 < 0.17
    assert all(code.decodable(range(4)) for code in made)


def missed(j, load):
    """Return the probability that `load` picks of 100 partitions hold none of j given ones."""
    return Fraction(math.comb(100 - j, load), math.comb(100, load))


def test_recovery_thresholds(checked):
    rows = checked(li.figure_2(loads=(10, 50), rounds=4000, assignments=40))
    assert rows["recovery threshold, CR, r = 10"].ours == 91
    assert rows["recovery threshold, BCC, r = 10"].ok
    assert rows["recovery threshold, BCC, r = 50"].ours == pytest.approx(3, abs=0.1)
    # The largest of 100 geometric times, with probability 1/2, is a good approximation.
    t = np.arange(60)
    about = (1 - (1 - 0.5**t) ** 100).sum()
    random = rows["recovery threshold, random, r = 50"]
    assert random.ours == pytest.approx(about, rel=0.03)
    # By inclusion and exclusion over the partitions that no worker has picked yet.
    exact = sum(
        (-1) ** (j + 1) * math.comb(100, j) * missed(j, 50) ** t
        for t in range(45)
        for j in range(1, 101)
    )
    assert f"the mean is {float(exact):.1f}, exactly" in random.note
    assert "with which it is 10.4" in random.note


def received(n, K, delay, message, rounds=20_000):
    """Return the mean seconds until K of n messages have passed a link, one after another."""
    rng = np.random.default_rng(n + K)
    free = np.zeros(rounds)
    for arrival in np.sort(rng.exponential(delay, (rounds, n)), axis=1).T[:K]:
        free = np.maximum(free, arrival) + message
    return free.mean()


@cache
def tables_of_li():
    return li.tables(rounds=10_000)


def test_tables_of_li(checked):
    """Another simulation gives the same six times from two constants; none nearby fit better."""
    figure = tables_of_li()
    rows = {(row.figure, row.what): row for row in figure.rows}
    checked(figure)
    names = ("uncoded", "cyclic repetition", "BCC")
    paper = {}
    for table, n, thresholds in (("table I", 50, (50, 41, 11)), ("table II", 100, (100, 91, 25))):
        figure = f"li2017 {table}"
        for name, K in zip(names, thresholds, strict=True):
            fitted = rows[figure, f"communication time (s), {name}"]
            assert abs(fitted.difference) < 0.046
            assert fitted.ours == pytest.approx(100 * received(n, K, 0.060, 0.00275), rel=0.01)
            assert fitted.fitted.startswith(
                "exponential delays of mean 60 ms and 2.75 ms a message"
            )
            paper[n, K] = fitted.paper
            assert rows[figure, f"recovery threshold, {name}"].paper == K
            speed = rows.get((figure, f"BCC, K = {thresholds[-1]}, speeds up {name} by"))
            assert (name == "BCC") == (speed is None)
            assert speed is None or abs(speed.difference) < 0.03
        own = rows[figure, "communication time (s), BCC, from its own rounds"]
        assert own.fitted == fitted.fitted
        assert own.ours > rows[figure, "communication time (s), BCC"].ours
        # Both times and savings, with the numbers of workers they hold for.
        heard = rows[figure, "recovery threshold, BCC"].ours
        computed = li.SCENARIOS[n > 50].computation
        time = own.ours + computed[-1]
        of_these = f"BCC, K = {heard:.1f} of its own rounds"
        assert rows[figure, f"running time (s), {of_these}"].ours == pytest.approx(time)
        uncoded = 100 * received(n, n, 0.060, 0.00275) + computed[0]
        saved = rows[figure, f"{of_these}, speeds up uncoded by"]
        assert saved.ours == pytest.approx(1 - time / uncoded, abs=0.01)

    def worst(delay, message):
        times = {key: 100 * received(*key, delay, message, rounds=1000) for key in paper}
        return max(abs(times[key] / paper[key] - 1) for key in paper)

    assert worst(0.060, 0.00275) < 0.05
    for factor in (0.93, 1.07):
        assert worst(0.060 * factor, 0.00275) > 0.06
        assert worst(0.060, 0.00275 * factor) > 0.06


def test_how_often_bcc_waits_for_as_few_workers_as_in_table_2():
    """Means of 100 rounds with one random assignment; workers answer in random orders."""
    rng, runs, few, least = np.random.default_rng(5), 500, 0, []
    for _ in range(runs):
        batch = rng.integers(0, 10, 100)
        places = rng.permuted(np.tile(np.arange(1, 101), (100, 1)), axis=1)
        first = [places[:, batch == b].min(axis=1, initial=101) for b in range(10)]
        last = np.max(first, axis=0)
        if last.max() > 100:  # no worker picked some batch
            continue
        least.append(last.mean())
        few += last.mean() < 25.5
    [row] = [
        row
        for row in tables_of_li().rows
        if row.figure == "li2017 table II" and row.what == "recovery threshold, BCC"
    ]
    assert row.ours == pytest.approx(np.mean(least), rel=0.02)
    said = float(re.search(r"([0-9.]+) ± [0-9.]+ % round to 25 or less", row.note).group(1))
    assert 0 < said < 10
    assert abs(said / 100 - few / runs) < 4 * math.sqrt(0.03 / 100)


def test_generalised_bcc_against_load_balancing(checked):
    rows = checked(li.figure_5(rounds=2000, assignments=20))
    assert all(row.ok for row in rows.values())
    assert rows["mean time, load balancing"].ours == pytest.approx(1026, rel=0.01)
    real = rows["generalised BCC takes less time by, loads not rounded"]
    assert real.ours > rows["generalised BCC takes less time by"].ours
    assert abs(real.difference) < 0.02
    assert rows["probability that an assignment covers all"].ours == pytest.approx(0.534, abs=1e-3)
    with pytest.raises(ValueError, match="none of 0 assignments covers"):
        li.figure_5(rounds=1, assignments=0)
