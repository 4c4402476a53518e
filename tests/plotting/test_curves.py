"""Curves of training, of precision, and for choosing a code."""

from dataclasses import replace

import numpy as np
import pytest
from pictures import FAST, SLOW, STEEP, history, legend_of
from toys import made_up

import fastgc

# Imported by module: pytest would take plotting.test_error for a test.
from fastgc import plotting
from fastgc._base import text as shown
from fastgc.planning.simulation import simulate
from fastgc.plotting.curves import drawn_error, off_by
from fastgc.stability import StabilityRow, StabilityTracker, TrackedRound

matplotlib = pytest.importorskip("matplotlib")


def errors_drawn(histories, **options):
    [ax] = plotting.error_curves(histories, **options).axes
    return ax


def test_error_curves_are_the_histories():
    ax = errors_drawn([FAST, SLOW])
    np.testing.assert_array_equal(
        [line.get_xydata() for line in ax.lines[:1]], [[[0.1, 90], [0.2, 50], [0.3, 30]]]
    )
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[1, 90], [2, 40]])
    assert legend_of(ax.figure) == ["coded", "uncoded"]
    assert ax.get_title() == "40% error: coded after 300 ms, uncoded after 2 s"
    # Of a given error; of the lowest that all reach, where none reaches it.
    at = errors_drawn([FAST, SLOW], level=0.3).get_title()
    assert at == "30% error: coded after 300 ms, uncoded never"
    assert errors_drawn([FAST, SLOW], level=0.01).get_title() == ax.get_title()
    assert ax.get_xlabel() == "time of training (s)"
    assert ax.get_ylabel() == "test error (%)"
    looks = {(line.get_color(), line.get_linestyle()) for line in ax.lines}
    assert len(looks) == 2


def test_error_curves_of_regression_are_no_percentages():
    runs = [history("a", [1, 2], [900.0, 30.0]), history("b", [1, 2], [np.inf, 200.0])]
    for run in runs:
        run.measure = "RMSE"
    ax = errors_drawn(runs)
    assert ax.get_ylabel() == "test RMSE"
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[2, 200]])  # infinity is not drawn
    ax.figure.canvas.draw()
    assert "100" in [tick.get_text() for tick in ax.get_yticklabels()]
    assert errors_drawn(runs).get_title() == "RMSE 200: a after 2 s, b after 2 s"
    with pytest.raises(ValueError, match="runs that differ in their measure, RMSE, error, do not"):
        plotting.error_curves([*runs, FAST])


def test_error_curves_of_many_runs_look_different():
    ax = errors_drawn([history(f"run {at}", [1, 2], [0.9, at / 100]) for at in range(1, 29)])
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 28


def labels(axis):
    low, high = axis.get_view_interval()
    ticks = [tick for tick in axis.get_major_locator()() if low <= tick <= high]
    return [axis.get_major_formatter()(tick) for tick in ticks]


def test_error_curves_labels_of_ticks():
    ax = errors_drawn([STEEP, history("long", [1, 9], [0.9, 0.3])])
    assert labels(ax.yaxis) == ["2", "5", "10", "20", "50", "100"]
    assert labels(ax.xaxis) == ["0.1", "0.2", "0.5", "1", "2", "5", "10"]
    ax = errors_drawn([FAST, history("long", [1e4], [0.5])])
    assert labels(ax.xaxis) == ["0.1", "1", "10", "100", "1000", "10000"]


def test_error_curves_scales():
    """An axis is logarithmic if what it shows is positive and spreads by more than four times."""
    for errors, scale in (
        ([0.8, 0.19], "log"),
        ([0.8, 0.21], "linear"),
        ([0.9, 0.0], "linear"),
        ([0.0, 0.0], "linear"),
    ):
        assert errors_drawn([history("run", [1, 2], errors)]).get_yscale() == scale
    for ends, scale in (([1, 4], "linear"), ([1, 5], "log"), ([0, 5], "linear")):
        runs = [history(f"until {end}", [end / 2, end], [0.9, 0.5]) for end in ends]
        assert errors_drawn(runs).get_xscale() == scale


def test_error_curves_of_few_rounds():
    """Rounds that were not tested have no place; a single point is marked."""
    gaps = history("gaps", [1, 2, 3, 4], [0.9, None, np.nan, 0.4])
    stuck, once = history("stuck", [], []), history("once", [0.2], [0.5])
    ax = errors_drawn([gaps, stuck, once])
    assert legend_of(ax.figure) == ["gaps", "stuck (not tested)", "once"]
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[1, 90], [4, 40]])
    assert [line.get_marker() in {"", "None"} for line in ax.lines] == [True, True, False]
    assert not ax.get_title()  # no ratio: one run never reached the others' loss
    for nothing in [], [stuck, history("b", [1], [None])]:
        with pytest.raises(ValueError, match="no run has a round with a test error"):
            plotting.error_curves(nothing)


def approximate_run(name, load, residuals, losses, times):
    """Return a run of training whose rounds leave out these residuals."""
    run = made_up(*((t, x, 1, 1, 1) for t, x in zip(times, losses, strict=True)), name=name)
    run.rounds = [replace(r, residual=x) for r, x in zip(run.rounds, residuals, strict=True)]
    run.load = load
    return run


def test_error_curves_legend_says_what_runs_leave_out():
    rough = approximate_run("rough", 1.0, [0.1, 0.1], [2.0, 1.0], [0.1, 0.2])
    whole = approximate_run("whole", 1.0, [0.0, 1e-16], [2.0, 1.0], [0.1, 0.2])
    ax = errors_drawn([rough, whole, FAST])
    assert legend_of(ax.figure) == ["rough: off by 10%", "whole", "coded"]
    panels = plotting.approximation_panels([rough, whole])
    assert {(line.label, line.note) for panel in panels for line in panel.lines} == {
        ("rough", "off by 10%"),
        ("whole", ""),
    }


def row_of(code, n, error, **changed):
    """Return figures of precision, whose worst error is ten times the median."""
    values = [code, n, n, 3, 3.0, n, n, 1.0, n // 8, "float64", "random", 7, 1e-5]
    values += [error, 10 * error, error, 1.0, 1.0, 1.0, 0.0, 0.0]
    return StabilityRow(**dict(zip(StabilityRow._fields, values, strict=True)) | changed)


def rows_of(names, sizes, errors, **changed):
    pairs = list(zip(sizes, errors, strict=True))
    return [row_of(name, n, error, **changed) for name in names for n, error in pairs]


def test_stability_figure_has_the_errors():
    rows = rows_of(["a", "b"], [8, 16, 32], [1e-16, 1e-9, np.inf])
    [ax] = plotting.stability_figure(rows[::-1]).axes
    second, first = (line.get_xydata() for line in ax.lines)
    np.testing.assert_allclose(first[:, 0], [0, 1, 2], atol=0.2)
    np.testing.assert_allclose(first[:2, 1], [1e-16, 1e-9])
    assert first[2, 1] >= ax.get_ylim()[1]  # at or beyond the end of the axis
    np.testing.assert_array_equal(first[:, 1], second[:, 1])
    assert ax.get_yscale() == "log"
    assert ax.get_xlabel() == "workers n / stragglers s"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["8/1", "16/2", "32/4"]
    assert len({line.get_color() for line in ax.lines}) == 2
    assert [len(bars.get_segments()) for bars in ax.collections] == [3, 3]
    with pytest.raises(ValueError, match="nothing to draw"):
        plotting.stability_figure([])


def test_stability_figure_has_a_panel_for_each_pattern():
    names, sizes, errors = ["exact", "near"], [8, 16], np.array([1e-16, 1e-9])
    rows = rows_of(names, sizes, errors)
    others = rows_of(names, sizes, 3 * errors, pattern="neighbouring")
    figure = plotting.stability_figure(
        [*rows, *others, *rows_of(names, sizes, 5 * errors, dtype="float16")]
    )
    assert [ax.get_title() for ax in figure.axes] == [
        "random stragglers, float64",
        "neighbouring stragglers, float64",
        "random stragglers, float16",
    ]
    for ax, factor in zip(figure.axes, (1, 3, 5), strict=True):
        assert [line.get_label() for line in ax.lines] == names
        assert ax.get_ylim() == figure.axes[0].get_ylim()
        for line in ax.lines:
            np.testing.assert_allclose(line.get_ydata(), factor * errors)
    # A code has the same style in a panel that lacks another.
    figure = plotting.stability_figure([*rows, *others[2:]])
    colours = [{line.get_label(): line.get_color() for line in ax.lines} for ax in figure.axes]
    assert list(colours[1]) == ["near"]
    assert colours[0]["near"] == colours[1]["near"] != colours[0]["exact"]


def test_tracking_curves_are_the_rounds():
    tracker = StabilityTracker()
    tracker.rounds = [
        TrackedRound(number, 5, predicted, 9.0, 1e-12, 1e-16, *measured)
        for number, predicted, *measured in ((1, 1e-15, 2e-15), (2, np.inf), (3, 4e-15))
    ]
    [ax] = plotting.tracking_curves({"a": tracker}).axes
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[1, 1e-15], [3, 4e-15]])
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[1, 2e-15]])
    assert (legend_of(ax.figure), ax.get_yscale()) == (["a"], "log")
    with pytest.raises(ValueError, match="no round was tracked"):
        plotting.tracking_curves({"a": StabilityTracker()})


def is_shown_text(artist):
    from matplotlib.text import Text

    return isinstance(artist, Text) and bool(artist.get_text()) and artist.get_visible()


def test_stability_figure_has_room_for_everything():
    """No text overlaps another, with the most codes that the command draws."""
    from fastgc.cli import stability
    from fastgc.codes import catalogue

    names = [catalogue.describe(name) for name in stability.MEASURED.split()]
    sizes, errors = [8, 16, 32, 64, 128, 256, 512], np.geomspace(1e-16, 1e3, 7)
    rows = rows_of(names, sizes, errors)
    rows += rows_of(names, sizes, errors, pattern="neighbouring")
    figure = plotting.stability_figure(rows)
    figure.draw_without_rendering()
    outside = {
        tick.label1
        for ax in figure.axes
        for axis in (ax.xaxis, ax.yaxis)
        for tick in axis.get_major_ticks()
        if not np.prod(np.subtract(axis.get_view_interval(), tick.get_loc())) <= 0
    }
    shown = [text for text in figure.findobj(match=is_shown_text) if text not in outside]
    boxes = [text.get_window_extent() for text in shown]
    assert len(boxes) > 30
    for at, box in enumerate(boxes):
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert not any(box.overlaps(other) for other in boxes[at + 1 :])


def test_off_by():
    assert off_by([np.nan]) == off_by([0.0, 1e-16]) == ""
    assert off_by([0.0976, 0.0]) == "off by 9.8%"
    assert off_by([0.0976, 0.2]) == "off by 9.8% to 20%"


def test_approximation_panels_against_time_and_load():
    graph = approximate_run("graph", 2.0, [0.3, 0.4], [1.0, 0.5], [0.01, 0.02])
    whole = approximate_run("whole", 1.0, [0.0, 0.0], [0.9, 0.1], [0.03, 0.3])
    panels = plotting.approximation_panels([graph, whole])
    assert [(panel.x_label, panel.y_label) for panel in panels] == [
        ("time of training (ms)", "training loss"),
        ("time of training (ms)", "test error (%)"),
        ("mean load × n / k", "residual, root mean square"),
        ("mean load × n / k", "training loss, in the end"),
    ]
    loss, error, residual, last = (list(panel.lines) for panel in panels)
    np.testing.assert_allclose(loss[0].x, [10, 20])
    np.testing.assert_array_equal(loss[0].y, [1.0, 0.5])
    np.testing.assert_array_equal(error[1].y, [50, 50])
    np.testing.assert_allclose(
        [(line.x[0], line.y[0]) for line in residual], [(2, np.sqrt(0.125)), (1, 0)]
    )
    np.testing.assert_array_equal([(line.x[0], line.y[0]) for line in last], [(2, 0.5), (1, 0.1)])
    assert {line.style for line in residual + last} == {"points"}
    assert [panel.log_x for panel in panels] == [True, True, False, False]
    assert [panel.log_y for panel in panels] == [True, False, False, True]
    above = plotting.approximation_panels([graph, whole], optimum=0.1)
    assert above[0].y_label == "training loss above the optimum"
    np.testing.assert_allclose(above[0].lines[0].y, [0.9, 0.4])
    assert np.isnan(above[3].lines[1].y[0])  # 0 has no place on a logarithmic axis


def test_approximation_panels_refuse():
    run = approximate_run("a", 1.0, [0.1], [1.0], [1.0])
    other = replace(run, measure="RMSE")
    with pytest.raises(ValueError, match="runs that differ in their measure, RMSE, error"):
        plotting.approximation_panels([run, other])
    assert plotting.approximation_panels([other])[1].y_label == "test RMSE"
    never = replace(run, rounds=[replace(run.rounds[0], evaluated=False)])
    for runs in ([], [run, never]):
        with pytest.raises(ValueError, match="nothing to draw"):
            plotting.approximation_panels(runs)


LATE = fastgc.delays.Exponential(0.01)


@pytest.mark.few(1)
@pytest.mark.parametrize("width", ["single", "double", "slide"])
def test_curves_have_titles_of_one_line(width):
    """This holds for users' classes with long names, at every width."""
    name = "fastgc.codes:FractionalRepetition"
    run = fastgc.simulation.simulate(fastgc.Uncoded(6), LATE, rounds=50)
    plan = fastgc.planning.plan(6, LATE, 1e-3, codes=["cyclic"], rounds=50)
    plan.choices[:] = [replace(choice, name=name) for choice in plan.choices]
    with matplotlib.rc_context(plotting.style(width)):
        for first in (
            plotting.time_curves({name: run}),
            plotting.load_curves(plan),
            plotting.error_curves([history(f"{name} {each}", [1], [0.5]) for each in "abc"]),
        ):
            figure = first.figure
            figure.draw_without_rendering()
            for ax in figure.axes:
                broken = width == "single" and ax.get_xlabel() == "time of training (s)"
                assert ax.get_title().count("\n") == broken  # by training, runs have any name
                box = ax.title.get_window_extent()
                assert 0 <= box.x0 <= box.x1 <= figure.bbox.x1
                others = [other.title for other in figure.axes if other is not ax]
                assert not any(box.overlaps(each.get_window_extent()) for each in others)


def test_drawn_error_has_a_place_on_the_axis():
    assert [drawn_error(each) for each in (0.0, 1e-17, 0.3, 2999, np.inf)] == [
        *(1e-17, 1e-17, 0.3, 2999, 3000)
    ]


# Rounds: time, loss, downloads, uploads, samples.
GCADA = made_up((1, 3, 4, 1, 40), (2, 2, 4, 1, 40), (4, 1, 4, 1, 40), name="gcada")
ADAM = made_up((2, 2.5, 12, 12, 120), (6, 0.5, 12, 12, 120), name="adam")


def curves(panel):
    """Return the lines of a panel: lists of x and of y."""
    return [(list(line.x), list(line.y)) for line in panel.lines]


def test_spending_panels_are_what_was_spent():
    panels = plotting.spending_panels([GCADA, ADAM], loss_by_communication=True)
    times, losses, sent = ([1, 2, 4], [2, 6]), ([3, 2, 1], [2.5, 0.5]), ([5, 10, 15], [24, 48])
    computed = [40, 80, 120], [120, 240]
    for panel, labels, xs, ys in zip(
        panels,
        (
            ("time (s)", "training loss"),
            ("time (s)", "communication (vectors)"),
            ("time (s)", "computation (sample gradients)"),
            ("communication (vectors)", "training loss"),
        ),
        (times, times, times, sent),
        (losses, sent, computed, losses),
        strict=True,
    ):
        assert (panel.x_label, panel.y_label) == labels
        assert [line.label for line in panel.lines] == ["gcada", "adam"]
        assert curves(panel) == list(zip(xs, ys, strict=True))
        assert (panel.log_x, panel.log_y) == (False, ys is losses)
    assert [curves(p) for p in plotting.spending_panels([GCADA, ADAM])] == [
        curves(p) for p in panels[:3]
    ]
    for nothing in ([], [made_up(name="a")]):
        with pytest.raises(ValueError, match="nothing to draw"):
            plotting.spending_panels(nothing)


def test_error_curves_say_what_all_runs_share():
    one = replace(GCADA, data="toy", delays="late")
    for other, title in ((replace(one, name="b"), "toy; late"), (replace(one, data="x"), "")):
        (legend,) = errors_drawn([one, other]).figure.legends
        assert legend.get_title().get_text() == title


def test_spending_panels_axes_suit_what_they_show():
    short = made_up((0.001, 3, 1, 1, 1), (0.01, 2, 1, 1, 1))
    long = made_up((0.01, 3, 1, 1, 1), (0.05, 2, 1, 1, 1))
    panels = plotting.spending_panels([short, long], True)
    assert panels[0].x_label == "time (ms)"
    np.testing.assert_allclose(panels[0].lines[0].x, [1, 10])
    assert [(panel.log_x, panel.log_y) for panel in panels] == [(True, True)] * 3 + [(False, True)]
    # Simulated without delays, a run takes no time.
    timeless = made_up((0, 3, 1, 1, 1), (0, 2, 1, 1, 1))
    assert not any(panel.log_x for panel in plotting.spending_panels([timeless, long]))


def test_spending_panels_count_rounds_that_were_not_evaluated():
    first, second, third = GCADA.rounds
    run = replace(GCADA, rounds=[first, replace(second, evaluated=False), third])
    loss, sent, _, by_sent = plotting.spending_panels([run], True)
    assert curves(loss) == [([1, 4], [3, 1])]
    assert curves(sent) == [([1, 2, 4], [5, 10, 15])]
    assert curves(by_sent) == [([5, 15], [3, 1])]


def test_time_curves_are_the_quantiles():
    codes = {"rs": fastgc.ReedSolomon(6, stragglers=2), "uncoded": fastgc.Uncoded(6)}
    codes["ignore"] = fastgc.Uncoded(6, tolerance=1 / 2)
    found = {name: simulate(code, LATE, rounds=500) for name, code in codes.items()}
    exact = {name: found[name] for name in ("rs", "uncoded")}
    [ax] = plotting.time_curves(exact, caption="n = 6").axes
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "time of a round (ms)"
    for line, run in zip(ax.lines, exact.values(), strict=True):
        np.testing.assert_allclose(line.get_xdata(), 1e3 * run.quantile(line.get_ydata()))
        assert (line.get_ydata()[0], line.get_ydata()[-1]) == (0, 0.999)
    assert ax.get_title() == f"fastest: rs, {shown.duration(found['rs'].mean)} on average"
    (legend,) = ax.figure.legends
    assert legend.get_title().get_text() == "n = 6"
    with pytest.raises(ValueError, match="no code was simulated"):
        plotting.time_curves({})
    # An approximate method is not called the fastest if there are exact ones.
    [ax] = plotting.time_curves(found).axes
    assert ax.get_title().startswith("fastest exact code: rs, ")
    assert "ignore (uncoded, ignores stragglers): off by" in ax.lines[2].get_label()
    slow = {"ignore": simulate(codes["ignore"], fastgc.delays.Exponential(5.0), rounds=50)}
    [ax] = plotting.time_curves(slow).axes
    assert ax.get_title().startswith("fastest: ignore, ")
    assert ax.get_xlabel() == "time of a round (s)"
    [line] = ax.lines
    np.testing.assert_allclose(line.get_xdata(), slow["ignore"].quantile(line.get_ydata()))


def test_load_curves_have_intervals():
    """The best choice of each load is drawn, and no time below zero."""
    plan = fastgc.planning.plan(6, LATE, 1e-3, codes=["cyclic", "uncoded"], rounds=200)
    wide, *others = (choice for choice in plan.choices if choice.name == "cyclic")
    wide = replace(wide, standard_error=wide.time)
    plan.choices[:] = [wide, replace(wide, wait=5 * wide.wait), *others]
    time, growth = plotting.load_curves(plan).axes
    assert time.get_title().startswith(f"fastest: cyclic at load {wide.code.load}, ")
    assert growth.get_title().startswith("rounding: most by cyclic, ")
    assert time.get_ylabel() == "time of a round (ms)"
    assert [ax.get_yscale() for ax in (time, growth)] == ["log", "log"]
    mine = {choice.code.load: choice for choice in (wide, *others)}
    for ax, value, ends in (
        (time, lambda c: 1e3 * c.time, lambda c: 1e3 * c.time + SPREAD * c.standard_error),
        (growth, lambda c: c.amplification, lambda c: np.array(c.amplification_interval)),
    ):
        [line], [bars] = ax.lines, ax.collections
        assert list(line.get_xdata()) == sorted(mine)
        for (x, y), bar in zip(line.get_xydata(), bars.get_segments(), strict=True):
            choice = mine[int(x)]
            assert y == value(choice)
            low, high = ends(choice)
            np.testing.assert_allclose(bar[:, 1], [low if low > 0 else y, high])


SPREAD = 1.96e3 * np.array([-1, 1])  # of standard errors, in milliseconds


def test_sequential_curves_count_gradients_and_choices():
    times = 1.0 + np.random.default_rng(0).exponential(size=(60, 4))
    found = fastgc.sequential.compare(times, ["uncoded", "rs"], probe=20)
    done, tried = plotting.sequential_curves(found).axes
    for line, each in zip(done.lines, found, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.sort(each.run.done))
        assert list(line.get_ydata()) == list(range(1, each.run.done.size + 1))
    for line, each in zip(tried.lines, found, strict=True):
        np.testing.assert_array_equal(line.get_xydata(), np.array(each.tried))
    count = sum(len(each.tried) for each in found)
    best = min(found, key=lambda each: each.run.seconds_per_job)
    assert done.get_title().startswith(f"fastest: {best.name[:12]}")
    assert tried.get_title() == f"the best of {count} choices has load {best.scheme.load:.3g}"
    assert tried.get_ylabel() == "time per gradient (s)"
    assert (tried.get_xscale(), tried.get_yscale(), done.get_yscale()) == ("log", "log", "linear")
    with pytest.raises(ValueError, match="no scheme was compared"):
        plotting.sequential_curves([])


def test_fit_curves():
    times = LATE.sample(0, 400, seed=1)
    fits = fastgc.delays.fit(times)
    [ax] = plotting.fit_curves(times, fits).axes
    assert ax.get_title().startswith(f"best fit: {type(fits[0].model).__name__}, at most 0.0")
    recorded, first, *_ = ax.lines
    assert recorded.get_drawstyle() == "steps-post"
    np.testing.assert_allclose(recorded.get_xdata(), 1e3 * np.quantile(times, recorded.get_ydata()))
    np.testing.assert_allclose(first.get_xdata(), 1e3 * fits[0].model.quantile(first.get_ydata()))
    [ax] = plotting.fit_curves([2.0, 3.0, 5.0], []).axes
    assert (ax.get_title(), ax.get_xlabel(), len(ax.lines)) == ("", "time (s)", 1)


def test_cost_curves_bars_reach_from_the_median_to_the_largest():
    row = row_of("binary", 8, 1e-9, mean_load=2.5, workers=6.0)
    rough = row_of("graph", 8, 1e-9, mean_load=2.5, workers=5, left_out=0.2, worst_error=1e-3)
    waited, wrong = plotting.cost_curves([row, rough], "at random").axes
    bars = np.array([each.get_segments()[0] for each in wrong.collections])
    np.testing.assert_allclose(bars, [[[2.5, 1e-9], [2.5, 1e-8]], [[2.5, 1e-9], [2.5, 1e-3]]])
    points = [line.get_xydata().tolist() for line in waited.lines if len(line.get_xdata())]
    assert [[2.5, 6]] in points
    assert [[2.5, 5]] in points
    assert waited.get_title() == "fewest: graph, 5 workers"
    # A code that leaves out gradients does not compete in rounding errors.
    assert wrong.get_title() == "least precise exact code: binary, 1e-08"
    assert (waited.get_yscale(), wrong.get_yscale()) == ("linear", "log")
    [legend] = waited.figure.legends
    assert legend_of(waited.figure) == [
        "binary",
        "graph (edges of a random graph): off by 20%",
    ]
    assert legend.get_title().get_text() == "at random"
    for rows, title in (
        ([row], "least precise: binary, 1e-08"),
        ([rough], "least precise: graph, 1e-03"),
    ):
        assert plotting.cost_curves(rows).axes[1].get_title() == title
    with pytest.raises(ValueError, match="no code was measured"):
        plotting.cost_curves([])
