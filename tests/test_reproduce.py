"""The papers' figures: what is computed is what the papers print, or a note says why not."""

import inspect
import json
import math
import re

import numpy as np
import pytest
from strength import much
from typer.testing import CliRunner

import fastgc
from fastgc import data
from fastgc.cli import app
from fastgc.panels import Line
from fastgc.reproduce import FIGURES, charalambides, halbawi, li, ozfatura, reproduce, zhu
from fastgc.reproduce.figure import Row


def checked(figure):
    """Rows by what they say, and the rules that hold for all of them."""
    assert figure.rows
    assert figure.panels
    for row in figure.rows:
        assert row.ok or row.note, f"{row.what}: {row.ours} against {row.reference}, without a note"
        assert not math.isnan(row.ours)
    for panel in figure.panels:
        assert panel.lines
        assert all(np.isfinite(line.y).all() for line in panel.lines)
    rows = {row.what: row for row in figure.rows}
    rows_of_figures = {(row.figure, row.what) for row in figure.rows}
    assert len(rows_of_figures) == len(figure.rows)
    return rows


# ---------------------------------------------------------------------------------- rows, lines


@pytest.mark.any_backend
def test_rows_compare_with_the_paper_first():
    row = Row("figure", "number", 1.04, paper=1.0, closed=2.0)
    assert row.reference == 1.0
    assert row.difference == pytest.approx(0.04)
    assert row.ok
    assert not Row("figure", "number", 0.94, closed=1.0).ok
    assert Row("figure", "number", 0.96, closed=1.0).ok
    assert Row("figure", "number", 3.0).ok
    assert math.isnan(Row("figure", "number", 3.0).difference)
    assert Row("figure", "number", 0.0, paper=0.0).difference == 0
    assert not Row("figure", "number", 1.0, paper=0.0).ok


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("x", "y", "style", "says"),
    [
        ([1, 2], [1], "line", "vectors of one length"),
        ([[1]], [[1]], "line", "vectors of one length"),
        ([1], [1], "dots", "style must be"),
    ],
)
def test_lines_are_checked(x, y, style, says):
    with pytest.raises(ValueError, match=says):
        Line("a", x, y, style)


# -------------------------------------------------------------------------------- charalambides


@pytest.mark.any_backend
@pytest.mark.parametrize(("k", "parts"), [(0, 1), (3, 1), (4, 3), (6, 4)])
def test_splits_are_all_there_are(k, parts):
    splits = [tuple(split) for split in charalambides._splits(k, parts)]
    assert len(set(splits)) == len(splits) == math.comb(k + parts - 1, parts - 1)
    assert {sum(split) for split in splits} == {k}
    assert {len(split) for split in splits} == {parts}


@pytest.mark.any_backend
def test_binary_codes_are_as_even_as_classes_allow():
    rows = checked(charalambides.section_5(workers=range(3, 9)))
    within, over_all, example = rows.values()
    assert within.ours == within.paper == sum(n - 2 for n in range(3, 9))
    # s + 1 divides n, 1 <= s <= n - 2
    divisors = sum(n % d == 0 for n in range(3, 9) for d in range(2, n))
    assert over_all.ours == divisors
    assert not over_all.ok
    assert example.ours == example.closed == 6


# -------------------------------------------------------------------------------------- halbawi


@pytest.mark.any_backend
def test_best_loads_are_those_of_the_paper():
    figure = halbawi.figure_3()
    rows = checked(figure)
    assert all(row.ok for row in rows.values())
    assert rows["optimal fraction α*, eq. (22)"].ours == pytest.approx(0.1477, abs=5e-5)
    assert rows["best threshold, decoding in f(f - 1) operations"].ours == 68
    assert rows["best threshold, decoding in f³ operations"].ours == 33
    limit, exact = figure.panels
    curve, best = limit.lines
    assert best.y[0] <= curve.y.min()
    for line in exact.lines:
        if line.style == "points":
            [drawn] = [e for e in exact.lines if e.label == line.label and e.style == "line"]
            assert line.y[0] == drawn.y.min() == drawn.y[int(line.x[0]) - 1]


@pytest.mark.any_backend
def test_costs_for_which_a_threshold_is_the_best():
    rng = np.random.default_rng(0)
    f = np.arange(1, 31)
    times, operations = 1 / (31 - f) + 0.01 * rng.random(30), f**3
    costs = np.linspace(0, 2e-5, 4001)
    best = 1 + np.argmin(times + costs[:, np.newaxis] * operations, axis=1)
    for at in np.unique(best)[1:-1]:
        low, high = halbawi._costs(times, operations, int(at))
        inside = (costs >= low) & (costs <= high)
        np.testing.assert_array_equal(inside, best == at)


def test_training_by_the_clock():
    figure = halbawi.figure_2(budget=0.1, runs=2, rounds=20_000)
    rows = checked(figure)
    times = [row for what, row in rows.items() if what.startswith("median time of a round")]
    assert len(times) == 5
    assert all(row.ok for row in times)
    # the median of the largest of 80 Pareto delays, and each worker's one partition
    slowest = 0.001 * (1 - 0.5 ** (1 / 80)) ** (-1 / 1.1) + 0.035 / 80
    assert rows["median time of a round (ms), uncoded, all"].closed == pytest.approx(1e3 * slowest)
    places = [row.note for what, row in rows.items() if what.startswith("place of RS among all 5")]
    assert len(places) == 8
    assert ["overfit" in note for note in places] == [True] + [False] * 7
    assert all("standard deviation of RS over 2 runs" in note for note in places)
    assert rows["relative error of a decoded gradient, largest"].ours < 1e-9
    anew, persistent = figure.panels
    for panel in (anew, persistent):
        for line in panel.lines:
            assert ((line.y >= 0) & (line.y <= 1)).all()
    # exact gradients are the same whoever was late, so that only times differ
    for at, scheme in enumerate(halbawi._schemes()):
        same = np.array_equal(anew.lines[at].y, persistent.lines[at].y)
        assert same == scheme.exact


def test_a_gradient_that_is_not_decoded_is_noticed():
    training = halbawi._Training(fastgc.data.load("digits"), 0)
    delays = halbawi.DELAYS.draw(np.random.default_rng(0), 1, halbawi.N)
    scheme = halbawi._schemes()[0]
    heard = np.argsort(delays[0])[: scheme.f]
    theta = np.zeros(training._model.size)
    gradient = training._gradient(scheme, heard, theta)
    training._check(scheme, heard, theta, gradient)
    with pytest.raises(ArithmeticError, match=r"coded, RS, f = 68: the gradient was decoded to"):
        training._check(scheme, heard, theta, 1.1 * gradient)


# ------------------------------------------------------------------------------------- ozfatura


def test_completion_times_are_distributed_as_the_closed_forms_say():
    rows = checked(ozfatura.figure_1(rounds=20_000))
    assert all(row.ok for row in rows.values())
    most = math.sqrt(-math.log(0.001 / 2) / 2 / 20_000)
    distances = [row.ours for what, row in rows.items() if what.startswith("largest distance")]
    assert len(distances) == 3
    assert max(distances) < most
    # the code at n = 10, r = 5 waits for 6, 3 workers and 19 computations
    means = [row.ours for what, row in rows.items() if what.startswith("mean")]
    assert means == sorted(means, reverse=True)


def test_loads_of_ozfatura():
    rows = checked(ozfatura.figure_2(loads=(1, 2, 4), rounds=2000))
    assert all(row.ok for row in rows.values())
    assert rows["messages of LCC-MMC, mean over r = 2, 4"].ours == 79
    for other, most in (("LCC", 70), ("UC-MMC", 33)):
        note = rows[f"UC-MMC-PG takes less time than {other} by, r = 2"].note
        assert f"up to {most} %, where r is small" in note
    assert rows["UC-MMC takes less time than LCC-MMC by, r = 2"].ours > 0
    with pytest.raises(ValueError, match="r = 2, which must be one of the loads"):
        ozfatura.figure_2(loads=(1, 3))


# ------------------------------------------------------------------------------------------- li


@pytest.mark.any_backend
def test_coverage_is_the_first_time_that_all_is_there():
    rng = np.random.default_rng(0)
    codes = [
        fastgc.CouponCollector(9, 6, load=2, seed=1),
        fastgc.RandomAssignment(9, 6, load=3, seed=1),
        fastgc.CouponCollector(4, 3, loads=[1, 2, 3, 1], seed=1),
    ]
    for code in codes:
        done = rng.random((code.n, 50))
        covered = li._coverage(code, done)
        for row, time in zip(done.T, covered, strict=True):
            held = set()
            for worker in np.argsort(row).tolist():
                held |= set(code.partitions(worker).tolist())
                if len(held) == code.k:
                    break
            assert time == row[worker]


@pytest.mark.any_backend
def test_assignments_that_do_not_cover_are_left_out():
    from functools import partial

    made = li._assignments(partial(fastgc.CouponCollector, 4, load=1), 400, seed=0)
    # 4! / 4^4 of all cover
    assert 0.04 < len(made) / 400 < 0.17
    assert all(code.decodable(range(4)) for code in made)


@pytest.mark.any_backend
def test_recovery_thresholds():
    rows = checked(li.figure_2(loads=(10, 50), rounds=4000, assignments=40))
    assert rows["recovery threshold, CR, r = 10"].ours == 91
    assert rows["recovery threshold, BCC, r = 10"].ok
    assert rows["recovery threshold, BCC, r = 50"].ours == pytest.approx(3, abs=0.1)
    # the largest of 100 geometric times, of a chance of 1/2 each, is near enough
    t = np.arange(60)
    about = (1 - (1 - 0.5**t) ** 100).sum()
    assert rows["recovery threshold, random, r = 50"].ours == pytest.approx(about, rel=0.03)


def test_tables_of_li():
    figure = li.tables(rounds=2000, assignments=20)
    rows = {(row.figure, row.what): row for row in figure.rows}
    checked(figure)
    for table, slow in (("table I", 28.556), ("table II", 31.567)):
        name = f"li2017 {table}"
        fitted = rows[name, "communication time (s), cyclic repetition"]
        assert fitted.ours == pytest.approx(fitted.paper, rel=1e-4)
        uncoded = rows[name, "communication time (s), uncoded"]
        assert uncoded.paper == slow
        assert not uncoded.ok
        assert "running time less the largest computation time" in uncoded.note
        assert "is no communication" not in uncoded.note
        assert rows[name, "recovery threshold, uncoded"].ok
        assert rows[name, "BCC speeds up cyclic repetition by"].ok


@pytest.mark.any_backend
def test_generalised_bcc_against_load_balancing():
    rows = checked(li.figure_5(rounds=2000, assignments=20))
    assert all(row.ok for row in rows.values())
    assert rows["mean time, load balancing"].ours == pytest.approx(1026, rel=0.01)
    with pytest.raises(ValueError, match="none of 0 assignments covers"):
        li.figure_5(rounds=1, assignments=0)


# ------------------------------------------------------------------------------------------ zhu


@pytest.mark.any_backend
def test_who_is_selected():
    rng = np.random.default_rng(0)
    thresholds = zhu.C_GROUPS / (np.arange(1, zhu.MAX_AGE + 1) * 3**2)
    # above all thresholds, between the first two, below all
    smoothness = np.sqrt([2 * thresholds[0], (thresholds[0] + thresholds[1]) / 2, 1e-6])
    chosen = zhu._selected(smoothness, zhu.C_GROUPS, 660, rng)
    np.testing.assert_array_equal(chosen.sum(axis=0), [660, 330, 60])
    assert np.unique(np.diff(np.flatnonzero(chosen[:, 2]))).tolist() == [zhu.MAX_AGE + 1]


def test_iterations_of_cada():
    rows = checked(zhu.section_5(rounds=20_000))
    wrong = [what for what, row in rows.items() if not row.ok]
    assert wrong == ["communication over computation, G-CADA"]
    assert (zhu.C, zhu.C_GROUPS) == (2, 0.3)
    for size, c, smoothness, selected in (
        (1, 2, zhu.SMOOTHNESS, rows["workers selected, CADA, eq. (12)"]),
        (4, 0.3, zhu.SMOOTHNESS_GROUPS, rows["groups selected, G-CADA, eq. (15)"]),
    ):
        ages = [int(c / (smooth * len(smoothness)) ** 2) for smooth in smoothness]
        periods = [1 + min(age, zhu.MAX_AGE) for age in ages]
        assert min(periods) == 1 < max(periods)
        assert selected.closed == pytest.approx(sum(1 / period for period in periods))
        assert len(smoothness) * size == 12
    of_formula = [what for what, row in rows.items() if "not that the rule" in row.note]
    assert [what.split(",")[0] for what in of_formula] == [
        f"{kind} {rest}" if rest == "selected" else rest
        for kind in ("workers", "groups")
        for rest in ("selected", "communication load", "computation load")
    ]
    harmonic = sum(1 / i for i in range(1, 13))
    assert rows["time (µs), distributed Adam, eq. (11)"].closed == pytest.approx(100 * harmonic)
    assert rows["time (µs), all groups, eq. (14)"].closed == pytest.approx(25 * (1 + 1 / 2 + 1 / 3))


@pytest.mark.long
@pytest.mark.any_backend
def test_methods_to_equal_loss():
    made = zhu.figure_2(seed=3, runs=2, steps=250)
    assert not any(math.isnan(row.ours) for row in made.rows)
    rows = {re.sub(r" \([^()]*\)$", "", row.what): row for row in made.rows}
    assert len(rows) == len(made.rows) == 20
    assert len(made.panels) == 6
    dataset = zhu._unit_samples(data.load("digits", seed=3))
    np.testing.assert_allclose(np.linalg.norm(dataset.X_train, axis=1), 1)
    both = []
    for seed in (3, 4):
        unit = zhu._unit_samples(data.load("digits", seed=seed))
        runs = {history.name: history for history in zhu._methods(unit, seed, 0.003, 250)}
        level = 1.3 * min(r.loss for r in runs["distributed Adam"].rounds)
        taken = []
        for name in ("CADA", "G-CADA", "distributed Adam"):
            upto = next(i for i, r in enumerate(runs[name].rounds) if r.loss <= level) + 1
            used = runs[name].rounds[:upto]
            # eqs. (5) and (6), of what each round says
            up, down = sum(r.uploads for r in used), sum(r.downloads for r in used)
            assert down == {"CADA": up, "G-CADA": 4 * up, "distributed Adam": 12 * upto}[name]
            assert sum(r.samples for r in used) == 20 * down
            taken.append((used[-1].time, up + down, 20 * down))
        both.append(taken)
    for at, what in enumerate(("time", "communication", "computation")):
        for one, name in ((0, "CADA"), (2, "distributed Adam")):
            row = rows[f"{what}, {name} : G-CADA, learning rate 0.003"]
            ratios = [taken[one][at] / taken[1][at] for taken in both]
            assert row.ours == pytest.approx(np.sqrt(ratios[0] * ratios[1]))
            assert f"({min(ratios):.2f} to {max(ratios):.2f})" in row.what
    assert rows["time, CADA : G-CADA, learning rate 0.01"].paper == pytest.approx(5.6, rel=0.01)
    assert all(row.note for row in made.rows if not row.ok)


@pytest.mark.any_backend
def test_methods_that_do_not_get_there_say_so(monkeypatch):
    def reached(rows):
        return not any("(not reached by all)" in row.what for row in rows)

    assert reached(zhu.figure_2(runs=1, steps=12).rows)  # given more steps than Adam
    monkeypatch.setattr(zhu, "PATIENCE", 1)
    rows = zhu.figure_2(runs=1, steps=12).rows
    assert not reached(rows)
    lost = [row for row in rows if "(not reached by all)" in row.what]
    assert all(np.isnan(row.ours) for row in lost)


# ---------------------------------------------------------------------------------- all together


@pytest.mark.any_backend
def test_figures_by_name():
    [figure] = reproduce(["charalambides-5"])
    assert figure.name == "charalambides-5"
    with pytest.raises(ValueError, match=r"unknown figure 'halbawi-9': choose among halbawi-2, "):
        reproduce(["halbawi-9"])
    with pytest.raises(ValueError, match="rounds must be at least 1, not 0"):
        reproduce(rounds=0)
    with pytest.raises(ValueError, match="seed must not be negative"):
        reproduce(seed=-1)


@pytest.mark.any_backend
@pytest.mark.parametrize("name", sorted(FIGURES.keys() - {"halbawi-3", "charalambides-5"}))
def test_figures_check_rounds_and_seeds(name):
    figure = FIGURES[name]
    for options, error, says in (
        ({"rounds": 0}, ValueError, "rounds must be at least 1, not 0"),
        ({"seed": -1}, ValueError, "seed must be at least 0, not -1"),
        ({"rounds": 2.5}, TypeError, r"rounds must be an integer, not 2\.5"),
    ):
        if not options.keys() <= inspect.signature(figure).parameters.keys():
            continue
        with pytest.raises(error, match=says):
            figure(**options)


@pytest.mark.any_backend
def test_the_same_seed_gives_the_same_figure():
    first, again, other = (
        [row.ours for row in next(reproduce(["zhu-5"], seed=seed, rounds=100)).rows]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", *arguments])


@pytest.mark.any_backend
def test_command_prints_tables_and_draws(tmp_path):
    plots = tmp_path / "plots"
    result = run("halbawi-3, ozfatura-1", "--rounds", "500", "--plots", str(plots))
    assert result.exit_code == 0, result.output
    for text in ("figure 3", "0.1477", "LCC-MMC", "[1]", "N c_g = 0.035"):
        assert text in result.stdout
    assert "…" not in result.stdout
    tables = [line for line in result.stdout.splitlines() if not line.startswith("[")]
    assert max(map(len, tables)) <= 80
    for name in ("halbawi-3", "ozfatura-1"):
        assert (plots / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert result.output.count("plot written to") == 2


@pytest.mark.any_backend
def test_command_prints_markdown_and_json():
    markdown = run("halbawi-3", "--markdown").stdout
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| halbawi2017 figure 3 | optimal fraction α*, eq. (22) | N c_g = ")
    assert lines[2].endswith(" | 0.1477 | 0.1477 |  | +0.0% |")
    rows = json.loads(run("zhu-5", "--rounds", "500", "--json").stdout)
    assert {row["figure"] for row in rows} == {"zhu2022 section V", "zhu2022 figure 2"}
    assert set(rows[0]) == {"figure", "what", "ours", "paper", "closed", "note", "difference"}
    assert rows[0]["paper"] is None


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["halbawi-9"], "unknown figure 'halbawi-9': choose among halbawi-2"),
        ([","], "name a figure: all, or some of halbawi-2"),
        (["--rounds", "0"], "--rounds"),
        (["--seed", "-1"], "--seed"),
        (["halbawi-2", "--data", "nowhere.npz"], "nowhere.npz"),
    ],
)
def test_command_errors_are_one_line(arguments, says):
    result = run(*arguments)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output


@pytest.mark.any_backend
def test_command_runs_all_figures():
    """Every figure there is has a name, and computes with few rounds."""
    # tested above, with less yet
    above = {"halbawi-2"} | much(set(), {"zhu-2", "li-2"})
    names = ",".join(name for name in FIGURES if name not in above)
    result = run(names, "--rounds", "100", "--json")
    assert result.exit_code == 0, result.output
    papers = {row["figure"].split()[0] for row in json.loads(result.stdout)}
    assert len(papers) == 5
