"""The figures of Halbawi et al.: loads, times and trainings by other means."""

import itertools
import math
import re

import numpy as np
import pytest
from papers import halbawi
from scipy.special import gammaln

import fastgc


def halbawi_times(cost, power):
    """Return eq. (17) for each f of 80, by SciPy; decoding takes `cost` times f (f - 1) or f^3."""
    f = np.arange(1, 81)
    late = gammaln(81 - f - 1 / 1.1) + gammaln(81) - gammaln(81 - f) - gammaln(81 - 1 / 1.1)
    return (
        0.001 * np.exp(late) + 0.035 / 80 * (81 - f) + cost * (f * (f - 1) if power == 2 else f**3)
    )


def test_best_loads_are_those_of_the_paper(checked):
    # A machine on which f^3 operations take long, so that all rows differ.
    times = halbawi.DecodingTimes(rs=0.01, solve=2e-4, lstsq=1e-3)
    figure = halbawi.figure_3(times=times)
    rows = checked(figure)
    assert rows["optimal fraction α*, eq. (22)"].ours == pytest.approx(0.1477, abs=5e-5)
    offline = rows["best f, decoding offline, exact eq. (17)"]
    assert offline.ok
    assert offline.ours == 1 + np.argmin(halbawi_times(0, 2))
    for power, name, paper, says in (
        (2, "f(f - 1)", 68, "for any c_m below 3.456e-07 s"),
        (3, "f³", 33, "only for c_m from 1.204e-07 to 1.284e-07 s"),
    ):
        row = rows[f"best f, decoding in {name} operations, c_m chosen so that it is {paper}"]
        assert row.ours == row.paper == paper == 1 + np.argmin(halbawi_times(1.24e-7, power))
        assert row.fitted == "c_m = 1.24e-07 s"
        assert says in row.note
        ends = [float(end) for end in re.findall(r"\d\.\d{3}e-07", says)]
        for end in ends:  # to the precision printed
            around = [1 + np.argmin(halbawi_times(end * by, power)) for by in (0.9995, 1.0005)]
            assert (around[0] == paper) != (around[1] == paper)
    bests = []
    for power, name, cost, paper, what in (
        (2, "f(f - 1) operations", 0.01 / 68 / 67, 68, 'method="lookup"'),
        (3, "f³ operations, by solve", 2e-4 / 33**3, 33, "numpy.linalg.solve"),
        (3, "f³ operations, by lstsq", 1e-3 / 33**3, 33, "numpy.linalg.lstsq"),
    ):
        row = rows[f"best f, decoding in {name}, c_m measured here"]
        wanted = halbawi_times(cost, power)
        bests.append(1 + int(np.argmin(wanted)))
        assert row.ours == bests[-1]
        assert row.paper == paper
        share = (
            cost * (bests[-1] * (bests[-1] - 1) if power == 2 else bests[-1] ** 3) / wanted.min()
        )
        assert f"µs that {what} took for f = {paper} on this machine" in row.note
        assert f"{100 * share:.2g} % of a round" in row.note
        assert f"from {offline.ours}, offline, to {bests[-1]}" in row.note
    assert len(set(bests)) == 3
    limit, exact = figure.panels
    curve, best = limit.lines
    assert best.y[0] <= curve.y.min()
    assert len(exact.lines) == 11
    for line in exact.lines:
        if line.style == "points":
            [drawn] = [e for e in exact.lines if e.label == line.label and e.style == "line"]
            assert line.y[0] == drawn.y.min() == drawn.y[int(line.x[0]) - 1]


def test_decoders_that_are_timed_decode():
    rng = np.random.default_rng(0)
    matrices = [fastgc.ReedSolomon(80, stragglers=12).matrix()] + [halbawi._mds().matrix()] * 2
    for B, (f, decode), wanted in zip(matrices, halbawi._decoders(), (68, 33, 33), strict=True):
        assert f == wanted
        survivors = rng.permutation(80)[:f]
        np.testing.assert_allclose(decode(survivors) @ B[survivors], 1, atol=1e-8)


def write_idx(path, array):
    """Write MNIST's format: two zero bytes, 8 for bytes, the axes, their big-endian lengths."""
    shape = np.array(array.shape, dtype=">u4").tobytes()
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes())


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """A folder with MNIST's four files, of images of 9 x 9 pixels, two of them always black."""
    folder = tmp_path_factory.mktemp("mnist")
    rng = np.random.default_rng(0)
    shapes = rng.integers(0, 256, (10, 9, 9))
    for part, size in (("train", 413), ("t10k", 200)):
        y = rng.permutation(np.arange(size) % 10)
        X = np.clip(shapes[y] + rng.normal(0, 230, (size, 9, 9)), 0, 255)
        X[:, 0, :2] = 0 if part == "train" else 255
        write_idx(folder / f"{part}-images-idx3-ubyte", X)
        write_idx(folder / f"{part}-labels-idx1-ubyte", y)
    return folder


@pytest.fixture(scope="module")
def figure_2(mnist):
    return halbawi.figure_2(data=str(mnist), budget=0.06, runs=6, rounds=8000, seed=3)


def by_nesterov(X, y, X_test, y_test, held, scales, smoothness):
    """Return the test errors before and after each step, by the method itself in float64."""

    def scores(X, W):
        return np.column_stack((X, np.ones(len(X)))) @ W

    step = 1 / (smoothness * len(y))
    theta = point = np.zeros((X.shape[1] + 1, 10))
    t, errors = 1.0, [0.0]
    errors[0] = np.mean(scores(X_test, theta).argmax(axis=1) != y_test)
    for mine, scale in zip(held, scales, strict=True):
        p = np.exp(scores(X[mine], point))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(mine)), y[mine]] -= 1
        gradient = scale * np.column_stack((X[mine], np.ones(len(mine)))).T @ p
        before, theta = theta, point - step * gradient
        t, last = (1 + math.sqrt(1 + 4 * t * t)) / 2, t
        point = theta + (last - 1) / t * (theta - before)
        errors.append(np.mean(scores(X_test, theta).argmax(axis=1) != y_test))
    return np.array(errors)


def test_iterates_are_those_of_the_method(mnist):
    """All schemes and both kinds of delays agree with the test's own code, on all 81 pixels."""
    dataset = fastgc.data.load(mnist, dtype=np.float32)
    training = halbawi.Training(dataset, seed=5)
    order = np.random.default_rng(5).permutation(413)
    X, y = dataset.X_train[order].astype(float), dataset.y_train[order]
    test = dataset.X_test.astype(float).copy(), dataset.y_test
    test[0][:, :2] = 0  # black in all training samples, so these pixels teach nothing
    ones = np.column_stack((X, np.ones(413)))
    smoothness = np.linalg.eigvalsh(ones.T @ ones / 413)[-1] / 2
    parts = np.array_split(np.arange(413), 80)
    delays = [halbawi.drawn(np.random.default_rng((5, run)), 60) for run in range(3)]
    budget = 0.06
    ran = [halbawi.Ran(scheme, delays, budget) for scheme in halbawi._schemes()]
    exact = [each for each in ran if each.scheme.exact]
    with halbawi.ThreadPoolExecutor(2) as pool:
        shared = training.exact(exact, 12, pool)
        for each in ran:
            if each.scheme.exact:
                each.follow(shared)
            else:
                training.ignore(each, pool)
    wanted = by_nesterov(X, y, *test, [np.arange(413)] * 12, [1] * 12, smoothness)
    np.testing.assert_allclose(shared, wanted, atol=0.0051)  # one of 200
    assert shared[-1] < shared[1] < shared[0]
    assert training.worst < 1e-9
    assert 0 < training.rounded < 1e-5
    works = {68: 13 * 0.035 / 80 + 1.24e-7 * 68 * 67, 33: 48 * 0.035 / 80 + 1.24e-7 * 33**3}
    for each in ran:
        f = each.scheme.f
        work = works[f] if each.scheme.code.load > 1 else 0.035 / 80
        for kind in range(2):
            for run in range(3):
                late = np.sort(delays[run][kind], axis=1)
                ends = np.cumsum(late[:, f - 1] + work)
                np.testing.assert_allclose(each.ends[kind, run], ends, rtol=1e-12)
                done = int((ends <= budget).sum())
                assert each.done[kind, run] == done
                if each.scheme.exact:
                    continue
                held = [
                    np.concatenate([parts[j] for j in np.argsort(delays[run][kind][number])[:f]])
                    for number in range(done)
                ]
                errors = by_nesterov(X, y, *test, held, [80 / f] * done, smoothness)
                own = each.errors[3 * kind + run]
                numbers = np.minimum(each.evaluated, done)
                np.testing.assert_allclose(own, errors[numbers], atol=0.0051)  # one of 200
                # A scheme meets a target only within the budget.
                for target in own:
                    first = min(m for e, m in zip(own, numbers, strict=True) if e <= target)
                    seconds = ends[first - 1] if first else 0
                    assert each.reached(target, kind)[run] == pytest.approx(seconds, rel=1e-12)
                assert each.reached(own.min() - 1e-9, kind)[run] == math.inf
                # The error at a time is that of the last evaluated round before it.
                [at] = each.at(np.array([0.04]), kind)[run]
                number = each.evaluated[each.evaluated <= (ends <= 0.04).sum()].max()
                assert at == own[list(each.evaluated).index(number)]
    for each in ran[3:]:
        assert (each.evaluated[:8] == np.arange(8)).all()
        assert each.done.max() == each.evaluated[-1]
    # The same workers are late in both.
    for run in range(3):
        order = np.argsort(delays[run][1], axis=1)
        assert (order == order[0]).all()
        np.testing.assert_array_equal(*(np.sort(kind, axis=1) for kind in delays[run]))


def test_training_by_the_clock(figure_2, mnist, checked):
    rows = checked(figure_2)
    assert figure_2.title.endswith(mnist.name)
    times = [row for what, row in rows.items() if what.startswith("median time of a round")]
    assert len(times) == 5
    assert all(row.ok for row in times)
    # The median of the largest of 80 Pareto delays, plus the time of one partition.
    slowest = 0.001 * (1 - 0.5 ** (1 / 80)) ** (-1 / 1.1) + 0.035 / 80
    assert rows["median time of a round (ms), uncoded, all"].closed == pytest.approx(1e3 * slowest)
    reached = [row for what, row in rows.items() if what.startswith("time to a test error of")]
    assert len(reached) == 5
    # All schemes reach it, and each row notes an interval.
    for row in reached:
        low, high = re.match(r"the median: (\S+) to (\S+) with 97 % \(order", row.note).groups()
        assert 0 < float(low) <= row.ours * 1.001
        assert row.ours * 0.999 <= float(high) < math.inf
    [place] = [row for what, row in rows.items() if "among the 3 exact schemes" in what]
    # Schemes compute 13, 48 or 1 partitions, and wait for the 68th, the 33rd or the last worker.
    assert place.ours == 1
    assert "first in 6 of 6 runs, on 413 samples of 81 features" in place.note
    places = [row.note for what, row in rows.items() if what.startswith("place of RS among all 5")]
    assert len(places) == 8
    assert all("times as many rounds as RS, and after as many is at" in note for note in places)
    assert not any("overfit" in note for note in places)
    assert rows["relative error of a decoded gradient, largest"].ours < 1e-9
    anew, persistent = figure_2.panels
    for panel in (anew, persistent):
        for line in panel.lines:
            assert ((line.y >= 0) & (line.y <= 1)).all()


class Ready:
    """A `halbawi.Ran` whose errors are given."""

    def __init__(self, scheme, delays, budget, errors):
        made = halbawi.Ran(scheme, delays, budget)
        vars(self).update(vars(made))
        self.evaluated, self.errors = np.arange(errors.shape[1]), errors.copy()
        if not scheme.exact:  # a run that has ended keeps its error
            for mine, done in zip(self.errors, self.done.ravel(), strict=True):
                mine[done:] = mine[done]

    at, reached, of_kind = halbawi.Ran.at, halbawi.Ran.reached, halbawi.Ran.of_kind


def test_rows_of_what_was_trained():
    """Medians, places and winners are those that loops find from the errors of every round."""
    rng = np.random.default_rng(1)
    delays = [halbawi.drawn(np.random.default_rng(run), 70) for run in range(7)]
    schemes = halbawi._schemes()
    exact = np.tile(np.linspace(0.9, 0.1, 71), (14, 1))
    others = [exact * rng.uniform(0.3, 0.7, (14, 1)) for _ in schemes]
    ran = [
        Ready(scheme, delays, 0.05, exact if scheme.exact else errors)
        for scheme, errors in zip(schemes, others, strict=True)
    ]
    target = exact[0, 18]  # exact schemes meet it in 18 rounds
    rows = list(halbawi._target_rows(ran, target, 4, "data"))
    wanted = []
    for scheme, each in zip(schemes, ran, strict=True):
        seconds = []
        for kind in (0, 1):
            for run in range(7):
                clock, number = 0.0, 0
                while each.errors[7 * kind + run, number] > target:
                    work = 0.035 / 80 * scheme.code.load + scheme.decode
                    clock += np.sort(delays[run][kind][number])[scheme.f - 1] + work
                    number += 1
                seconds.append(clock)
        wanted.append(seconds)
    for row, seconds in zip(rows, wanted, strict=False):
        anew = sorted(seconds[:7])
        assert row.what.startswith(f"time to a test error of {100 * target:.3g} % (s), ")
        assert row.ours == pytest.approx(anew[3])
        assert f"the median: {anew[0]:.4g} to {anew[6]:.4g} with 98 %" in row.note
    firsts = sum(w == min(w, x, y) for w, x, y in zip(*(w[:7] for w in wanted[:3]), strict=True))
    medians = [np.median(w[:7]) for w in wanted[:3]]
    assert rows[5].ours == 1 + sum(m < medians[0] for m in medians[1:])
    assert f"first in {firsts} of 7 runs" in rows[5].note
    swapped = list(halbawi._target_rows([ran[1], ran[0], *ran[2:]], target, 4, "data"))
    assert (rows[5].ours, swapped[5].ours) == (1, 2)
    places = [row for row in halbawi._error_rows(ran, 0.05) if "from which" not in row.what]
    for row, (kind, time) in zip(
        places,
        itertools.product((0, 1), 0.05 * np.array(halbawi.SHARES)),
        strict=True,
    ):
        middle, done = [], []
        for each in ran:
            counts = [int((each.ends[kind, run] <= time).sum()) for run in range(7)]
            own = [each.errors[7 * kind + run, count] for run, count in enumerate(counts)]
            middle.append(np.median(own))
            done.append(int(np.median(counts)))
        assert row.ours == 1 + sum(error < middle[0] for error in middle[1:])
        for each, count in zip(ran[3:], done[3:], strict=True):
            after = np.median(each.errors[7 * kind : 7 * kind + 7, done[0]])
            assert f"{count / max(done[0], 1):.1f} times as many rounds as RS" in row.note
            assert f"is at {100 * after:.1f} %" in row.note


@pytest.mark.parametrize(("floor", "leads"), [(0.5, True), (0.0, False)])
def test_time_from_which_rs_leads(floor, leads):
    """Errors of exact schemes fall by a fifth in each round, the others' faster to a floor."""
    delays = [halbawi.drawn(np.random.default_rng(run), 70) for run in range(7)]
    exact = np.tile(0.8 ** np.arange(71), (14, 1))
    ran = [
        Ready(scheme, delays, 0.1, exact if scheme.exact else np.maximum(exact**2, floor))
        for scheme in halbawi._schemes()
    ]
    rows = [row.ours for row in halbawi._error_rows(ran, 0.1) if "from which" in row.what]
    for kind, found in enumerate(rows):
        first = math.inf
        for time in 0.1 * np.geomspace(1, 0.01, 61):
            own = []
            for each in ran:
                counts = [int((ends <= time).sum()) for ends in each.ends[kind]]
                errors = each.errors[7 * kind : 7 * kind + 7]
                own.append(np.median(errors[np.arange(7), counts]))
            if min(own[1:]) < own[0]:
                break
            first = time
        assert found == pytest.approx(first)
        assert (0.005 < first < 0.09) == leads


def test_what_is_evaluated_after_a_run_is_of_its_last_round():
    delays = [halbawi.drawn(np.random.default_rng(run), 70) for run in range(2)]
    ran = halbawi.Ran(halbawi._schemes()[3], delays, 0.05)
    assert 5 < ran.done.min() < ran.done.max() < 60
    ran.evaluated, ran.errors = np.array([0, 5, 60]), np.tile([0.9, 0.5, 0.1], (4, 1))
    for kind in (0, 1):
        ends, done = ran.ends[kind], ran.done[kind]
        np.testing.assert_array_equal(ran.reached(0.9, kind), 0)
        np.testing.assert_array_equal(ran.reached(0.5, kind), ends[:, 4])
        np.testing.assert_array_equal(ran.reached(0.1, kind), ends[[0, 1], done - 1])
        np.testing.assert_array_equal(ran.reached(0.09, kind), np.inf)


@pytest.mark.parametrize("m", range(1, 13))
def test_intervals_of_medians(m):
    """Each of m numbers is above or below the median: count how many of 2^m ways are outside."""
    values = np.random.default_rng(m).permutation(np.arange(1.0, m + 1))
    says = halbawi._interval(values)
    outside = []
    for r in range(1, m // 2 + 1):
        below = np.array([bin(way).count("1") for way in range(2**m)])
        # Outside: the median is below the r-th smallest number, or above the r-th largest.
        outside.append(np.mean((below < r) | (below > m - r)))
    fit = [r for r, chance in enumerate(outside, start=1) if chance <= 0.05]
    if not fit:
        assert m < 6
        assert says == f"no interval from {m} runs, which are too few"
        return
    r = max(fit)
    sure = 100 * (1 - outside[r - 1])
    assert says == f"{r} to {m + 1 - r} with {sure:.0f} % (order statistics of {m} runs)"


def test_a_gradient_that_is_not_decoded_is_noticed(mnist, monkeypatch):
    options = {"data": str(mnist), "budget": 0.05, "runs": 1, "rounds": 10}
    right = halbawi.Training.summed
    monkeypatch.setattr(halbawi.Training, "summed", lambda *args: np.float32(1.1) * right(*args))
    with pytest.raises(ArithmeticError, match=r"coded, RS, f = 68: the gradient used is off by 1"):
        halbawi.figure_2(**options)
    monkeypatch.undo()
    monkeypatch.setattr(fastgc.ReedSolomon, "decode", lambda *args: np.zeros(80 * 10))
    with pytest.raises(ArithmeticError, match=r"coded, RS, f = 68: the gradient was decoded to"):
        halbawi.figure_2(**options)


def test_runs_that_are_too_short_or_none(mnist):
    with pytest.raises(ValueError, match=r"budget must be longer: in 0\.002 s of the slowest run"):
        halbawi.figure_2(data=str(mnist), budget=0.002, runs=2, rounds=10)
    for wrong in {"runs": 0}, {"budget": 0}:
        with pytest.raises(ValueError, match="runs must be at least 1, and budget positive"):
            halbawi.figure_2(**wrong)
