"""Pictures show what happened, on axes that suit it."""

import itertools
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import programs
import pytest

import fastgc

# Imported by module: pytest would take plotting.test_error for a test.
from fastgc import plotting
from fastgc._base import text as shown
from fastgc._base.extras import pip_install
from fastgc.plotting.curves import leaves_out
from fastgc.plotting.panels import Line, Panel, even_lines, new_figure

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(autouse=True)
def styled():
    """Draw all pictures as the commands do."""
    with matplotlib.rc_context(plotting.style()):
        yield


def legend_of(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def history(name, times, errors):
    rounds = [
        SimpleNamespace(time=time, test_error=error)
        for time, error in zip(times, errors, strict=True)
    ]
    return SimpleNamespace(name=name, rounds=rounds)


FAST = history("coded", [0.1, 0.2, 0.3], [0.9, 0.5, 0.3])
SLOW = history("uncoded", [1.0, 2.0], [0.9, 0.4])
STEEP = history("steep", [0.1, 0.3], [0.9, 0.02])


def errors_drawn(histories, **options):
    [ax] = plotting.error_curves(histories, **options).axes
    return ax


def test_lines_are_the_histories():
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


def test_errors_of_regression_are_no_percentages():
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


def test_many_runs_look_different():
    ax = errors_drawn([history(f"run {at}", [1, 2], [0.9, at / 100]) for at in range(1, 29)])
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 28


@pytest.mark.parametrize(
    ("errors", "scale"),
    [
        ([0.8, 0.19], "log"),
        ([0.8, 0.21], "linear"),
        ([0.9, 0.0], "linear"),
        ([0.0, 0.0], "linear"),
    ],
)
def test_error_scale(errors, scale):
    ax = errors_drawn([history("run", [1, 2], errors)])
    assert ax.get_yscale() == scale


@pytest.mark.parametrize(
    ("ends", "scale"), [([1, 4], "linear"), ([1, 5], "log"), ([0, 5], "linear")]
)
def test_time_scale(ends, scale):
    runs = [history(f"until {end}", [end / 2, end], [0.9, 0.5]) for end in ends]
    ax = errors_drawn(runs)
    assert ax.get_xscale() == scale


def labels(axis):
    low, high = axis.get_view_interval()
    ticks = [tick for tick in axis.get_major_locator()() if low <= tick <= high]
    return [axis.get_major_formatter()(tick) for tick in ticks]


def test_tick_labels():
    ax = errors_drawn([STEEP, history("long", [1, 9], [0.9, 0.3])])
    assert labels(ax.yaxis) == ["2", "5", "10", "20", "50", "100"]
    assert labels(ax.xaxis) == ["0.1", "0.2", "0.5", "1", "2", "5", "10"]
    ax = errors_drawn([FAST, history("long", [1e4], [0.5])])
    assert labels(ax.xaxis) == ["0.1", "1", "10", "100", "1000", "10000"]


def test_untested_rounds_are_left_out():
    gaps = history("gaps", [1, 2, 3, 4], [0.9, None, float("nan"), 0.4])
    np.testing.assert_array_equal(errors_drawn([gaps]).lines[0].get_xydata(), [[1, 90], [4, 40]])


def test_legends_say_what_runs_leave_out():
    rough = approximate_run("rough", 1.0, [0.1, 0.1], [2.0, 1.0], [0.1, 0.2])
    whole = approximate_run("whole", 1.0, [0.0, 1e-16], [2.0, 1.0], [0.1, 0.2])
    ax = errors_drawn([rough, whole, FAST])
    assert legend_of(ax.figure) == ["rough: leaves out 10%", "whole", "coded"]
    panels = plotting.approximation_panels([rough, whole])
    assert {(line.label, line.note) for panel in panels for line in panel.lines} == {
        ("rough", "leaves out 10%"),
        ("whole", ""),
    }


def test_a_run_without_rounds_stays_in_the_legend():
    ax = errors_drawn([FAST, history("stuck", [], [])])
    assert legend_of(ax.figure) == ["coded", "stuck (not tested)"]
    assert not ax.get_title()  # no ratio: one run never reached the other's loss


def test_a_single_point_is_visible():
    ax = errors_drawn([FAST, history("once", [0.2], [0.5])])
    assert [line.get_marker() in {"", "None"} for line in ax.lines] == [True, False]


@pytest.mark.parametrize("histories", [[], [history("a", [], []), history("b", [1], [None])]])
def test_nothing_to_draw(histories, tmp_path):
    with pytest.raises(ValueError, match="nothing to draw: no run has a round with a test error"):
        plotting.error_curves(histories)
    with pytest.raises(ValueError, match="nothing to draw"):
        plotting.save(plotting.error_curves(histories), tmp_path / "empty.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "magic"),
    [
        *(("a.png", b"\x89PNG\r\n"), ("a.PNG", b"\x89PNG"), ("a.svg", b"<?xml")),
        *(("a.pdf", b"%PDF-"), ("a.eps", b"%!PS-Adobe-3.0 EPSF-3.0")),
    ],
)
def test_save(tmp_path, name, magic):
    path = tmp_path / name
    plotting.save(plotting.error_curves([FAST, SLOW, STEEP]), path)
    content = path.read_bytes()
    assert content.startswith(magic)
    assert len(content) > 5000
    if name == "a.svg":
        assert all(run.name.encode() in content for run in (FAST, SLOW, STEEP))


@pytest.mark.long
def test_fonts_are_of_true_type(tmp_path):
    """Checkers of IEEE and ACM refuse fonts of Type 3."""
    code = fastgc.ReedSolomon(6, stragglers=1)  # its picture has an angle, α and a minus sign
    with matplotlib.rc_context({"pdf.fonttype": 3, "ps.fonttype": 3}):
        picture = plotting.assignment(code)
        plotting.save(picture, tmp_path / "a.pdf")
        plotting.save(picture, tmp_path / "a.eps")
    pdf, eps = ((tmp_path / f"a.{kind}").read_bytes() for kind in ("pdf", "eps"))
    assert b"/Type3" not in pdf
    assert b"/CIDFontType2" in pdf
    assert b"/FontType 3" not in eps
    assert b"/FontType 42" in eps


def test_a_users_pictures_have_the_same_style():
    """One setting makes axes of pyplot look like those of the commands."""
    theirs = matplotlib.figure.Figure().add_subplot()
    theirs.plot([1, 2])
    ours = plotting.panel_figure([panel(Line("a", [0, 1], [1, 2]))]).axes[0]
    for get in (
        lambda ax: ax.lines[0].get_color(),
        lambda ax: ax.lines[0].get_linewidth(),
        lambda ax: ax.xaxis.label.get_fontsize(),
        lambda ax: [spine.get_visible() for spine in ax.spines.values()],
        lambda ax: ax.xaxis.get_gridlines()[0].get_color(),
    ):
        assert get(theirs) == get(ours)
    assert plotting.style("slide")["pdf.fonttype"] == 42


def test_save_leaves_pyplot_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    plotting.save(plotting.error_curves([FAST, SLOW]), str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").exists()


@pytest.mark.parametrize("name", ["a.jpg", "a", "png"])
def test_save_rejects_other_formats(tmp_path, name):
    with pytest.raises(
        ValueError, match=r"a picture's name must end in \.png, \.svg, \.pdf, \.eps"
    ):
        plotting.save(plotting.error_curves([FAST]), tmp_path / name)


def test_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for draw in (
        lambda: plotting.error_curves([FAST]),
        lambda: plotting.save(plotting.error_curves([FAST]), tmp_path / "a.png"),
    ):
        with pytest.raises(ImportError, match=re.escape(pip_install("plot"))):
            draw()


# ------------------------------------------------------------------------------- precision


def rows_of(names, sizes, errors):
    from fastgc.stability import StabilityRow

    return [
        StabilityRow(
            *(name, n, n, 3, 3.0, n, n, 1.0, n // 8, "float64", "random", 7, 1e-5),
            *(error, 10 * error, error, 1.0, 1.0, 1.0, 0.0, 0.0),
        )
        for name in names
        for n, error in zip(sizes, errors, strict=True)
    ]


def test_stability_lines_are_the_errors():
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
    awful = rows_of(["a"], [8], [100.0])[0]._replace(worst_error=np.inf)
    plotting.stability_figure([awful])
    # Texts are placed where the caller asks.
    [ax] = plotting.stability_figure(rows[:2], [(9, 3), (9, 1)]).axes
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["9/1", "9/3"]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [1e-9, 1e-16])


def test_each_pattern_of_stragglers_has_its_panel():
    rows = rows_of(["exact", "near"], [8, 16], [1e-16, 1e-9])
    others = [row._replace(pattern="neighbouring", error=3 * row.error) for row in rows]
    halves = [row._replace(dtype="float16", error=5 * row.error) for row in rows]
    figure = plotting.stability_figure([*rows, *others, *halves])
    assert [ax.get_title() for ax in figure.axes] == [
        "random stragglers, float64",
        "neighbouring stragglers, float64",
        "random stragglers, float16",
    ]
    for ax, factor in zip(figure.axes, (1, 3, 5), strict=True):
        assert [line.get_label() for line in ax.lines] == ["exact", "near"]
        assert ax.get_ylim() == figure.axes[0].get_ylim()
        for line in ax.lines:
            np.testing.assert_allclose(line.get_ydata(), np.multiply(factor, [1e-16, 1e-9]))
    assert legend_of(figure) == ["exact", "near"]
    # A code has the same style in a panel that lacks another.
    figure = plotting.stability_figure([*rows, *others[2:]])
    colours = [{line.get_label(): line.get_color() for line in ax.lines} for ax in figure.axes]
    assert list(colours[1]) == ["near"]
    assert colours[0]["near"] == colours[1]["near"] != colours[0]["exact"]
    shown = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in figure.axes]
    assert shown == [["exact", "near"], ["near"]]
    with pytest.raises(ValueError, match="nothing to draw"):
        plotting.stability_figure([])


def test_vectors_are_drawn_around_the_circle(tmp_path):
    from fastgc import ReedSolomon
    from fastgc.stability import circle_values

    code = ReedSolomon(32, stragglers=8)
    ring = code.scheme.rings()[0]
    values = circle_values(code, [*ring[:3], *ring[10:12], ring[31]])
    ax = plotting.circle_curves(values)
    exact, near = (line for line in ax.lines if line.get_label().endswith("exact vector"))
    assert [exact.get_label(), near.get_label()] == ["exact vector", "near-exact vector"]
    drawn = exact.get_ydata()
    assert np.isnan(drawn[values.lost]).all()
    np.testing.assert_array_equal(drawn[~values.lost], values.exact[~values.lost])
    finite = np.isfinite(values.near_exact)  # the logarithm of a value that may vanish
    np.testing.assert_array_equal(near.get_ydata()[finite], values.near_exact[finite])
    assert finite[~values.lost].all()
    shaded = [(p.get_x(), p.get_x() + p.get_width()) for p in ax.patches]
    assert shaded == [(-0.5, 2.5), (9.5, 11.5), (30.5, 31.5)]
    assert [text.get_text() for text in ax.figure.legends[0].get_texts()] == [
        "stragglers",
        "exact vector",
        "near-exact vector",
    ]
    assert ax.get_title() == "n = 32, s = 6"
    path = tmp_path / "circle.png"
    plotting.save(plotting.circle_curves(values), path)
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="must end in"):
        plotting.save(plotting.circle_curves(values), tmp_path / "circle.bmp")
    # Without stragglers, both vectors just add up.
    both = circle_values(code, [])
    np.testing.assert_allclose([both.exact, both.near_exact], 0, atol=1e-12)
    assert not plotting.circle_curves(both).patches


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["svg", "png", "pdf", "eps"])
def test_the_same_picture_is_the_same_file(kind, tmp_path):
    first, second = tmp_path / f"first.{kind}", tmp_path / f"second.{kind}"
    plotting.save(plotting.error_curves([FAST, SLOW]), first)
    plotting.save(plotting.error_curves([FAST, SLOW]), second)
    assert first.read_bytes() == second.read_bytes()


def test_stability_picture_has_room_for_everything(tmp_path):
    """No text overlaps another, with the most codes that the command draws."""
    from fastgc.cli import stability
    from fastgc.codes import catalogue

    names = [catalogue.describe(name) for name in stability.MEASURED.split()]
    rows = rows_of(names, [8, 16, 32, 64, 128, 256, 512], np.geomspace(1e-16, 1e3, 7))
    rows += [row._replace(pattern="neighbouring") for row in rows]
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
    with pytest.raises(ValueError, match="must end in"):
        plotting.save(figure, tmp_path / "errors.bmp")


def is_shown_text(artist):
    from matplotlib.text import Text

    return isinstance(artist, Text) and bool(artist.get_text()) and artist.get_visible()


def test_tracking_lines_are_the_rounds(tmp_path):
    from fastgc.stability import StabilityTracker, TrackedRound

    tracker = StabilityTracker()
    tracker.rounds = [
        TrackedRound(1, 5, 1e-15, 9.0, 1e-12, 1e-16, 2e-15),
        TrackedRound(2, 5, np.inf, 9.0, 1e-12, 1e-16),
        TrackedRound(3, 5, 4e-15, 9.0, 1e-12, 1e-16),
    ]
    [ax] = plotting.tracking_curves({"a": tracker}).axes
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[1, 1e-15], [3, 4e-15]])
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[1, 2e-15]])
    assert legend_of(ax.figure) == ["a"]
    with pytest.raises(ValueError, match="no round was tracked"):
        plotting.tracking_curves({"a": StabilityTracker()})
    plotting.save(plotting.tracking_curves({"a": tracker}), tmp_path / "rounds.pdf")
    assert (tmp_path / "rounds.pdf").read_bytes().startswith(b"%PDF")


# ------------------------------------------------------------------------- panels


def panel(*lines, **kwargs):

    return Panel("title", "x", "y", list(lines), **kwargs)


def test_panels_are_the_lines(tmp_path):

    lines = [
        Line("a", [1, 2, 3], [4, 5, 6]),
        Line("b", [1, 2], [3, 3], "step"),
        Line("a", [2], [5.5], "points"),
    ]
    panels = [panel(*lines), panel(*lines, log_x=True, log_y=True), panel(lines[1])]
    first, second, third = plotting.panel_figure(panels).axes
    for drawn, line in zip(first.lines, lines, strict=True):
        np.testing.assert_array_equal(drawn.get_xydata(), np.column_stack([line.x, line.y]))
    a, b, points = first.lines
    assert a.get_color() == points.get_color() != b.get_color()
    assert points.get_linestyle() == "None"
    assert points.get_marker() != "None"
    assert (a.get_drawstyle(), b.get_drawstyle()) == ("default", "steps-post")
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["a", "b"]
    assert (first.get_title(), first.get_xlabel(), first.get_ylabel()) == ("title", "x", "y")
    assert first.get_xscale() == first.get_yscale() == "linear"
    assert second.get_xscale() == second.get_yscale() == "log"
    assert len(third.lines) == 1
    plotting.save(plotting.panel_figure(panels), tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")


def test_panels_show_curves_that_coincide():
    x = [1.0, 2.0]
    lines = [Line("a", x, [1, 2]), Line("b", x, [2, 3]), Line("c", x, [1, 2 + 1e-9])]
    alone = plotting.panel_figure([panel(*lines)])
    assert [line.get_label() for line in alone.axes[0].lines] == ["a = c", "b"]
    # In another panel the lines differ: it shows both, in the same colours, with its own legend.
    other = panel(Line("a", x, [5, 5]), Line("b", x, [2, 3]), Line("c", x, [6, 6]))
    figure = plotting.panel_figure([panel(*lines), other])
    first, second = figure.axes
    assert [line.get_label() for line in first.lines] == ["a = c", "b"]
    assert [line.get_label() for line in second.lines] == ["a", "b", "c"]
    assert [line.get_color() for line in first.lines] == [
        line.get_color() for line in second.lines[:2]
    ]
    for ax in figure.axes:
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == [line.get_label() for line in ax.lines]
    # A line with gaps lies above one without, which shows through the gaps.
    assert second.lines[0].get_zorder() < second.lines[1].get_zorder()
    # Lines that a reader cannot tell apart, but that are not the same.
    near = [Line("a", x, [1, 2]), Line("b", x, [1.002, 2]), Line("c", x, [1.01, 2])]
    seen = plotting.panel_figure([panel(*near)]).axes[0]
    assert [line.get_label() for line in seen.lines] == ["a ≈ b", "c"]
    # Their gradients differ.
    notes = ["", leaves_out([0.1]), leaves_out([0.1, 0.0])]
    lines = [Line(name, x, x, note=note) for name, note in zip("abc", notes, strict=True)]
    told = plotting.panel_figure([panel(*lines)])
    assert [line.get_label() for line in told.axes[0].lines] == ["a", "b = c: leaves out 10%"]
    # Points and a line look different.
    mixed = plotting.panel_figure([panel(Line("a", x, x), Line("b", x, x, "points"))])
    assert len(mixed.axes[0].lines) == 2


def test_notes_say_what_is_left_out():
    assert leaves_out([np.nan]) == leaves_out([0.0, 1e-16]) == ""
    assert leaves_out([0.0976, 0.0]) == "leaves out 9.8%"
    assert leaves_out([0.0976, 0.2]) == "leaves out 9.8% to 20%"


def test_panels_have_one_legend_where_it_is_the_same():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    many = [Line(f"line {i}", [1, 2], [i, i + 1]) for i in range(8)]
    figure = plotting.panel_figure([panel(*many), panel(*many)], "all of them")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [line.label for line in many]
    assert all(ax.get_legend() is None for ax in figure.axes)
    assert figure.get_suptitle() == "all of them"
    unlike = plotting.panel_figure([panel(*many), panel(*many[:2])])
    assert not unlike.legends
    for ax in (*figure.axes, *unlike.axes):  # no text overlaps another
        FigureCanvasAgg(ax.figure).draw()
        below = ax.xaxis.label.get_window_extent()
        found = ax.get_legend() or legend
        box = found.get_window_extent()
        assert box.y1 <= below.y0 + 1
        assert box.y0 >= 0
        assert 0 <= box.x0 <= box.x1 <= ax.figure.bbox.x1


def test_ticks_suit_numbers():
    whole = plotting.panel_figure([panel(Line("a", [0, 1], [1, 2], "joined"))]).axes[0]
    assert all(at == round(at) for at in whole.get_xticks())
    assert whole.lines[0].get_marker() != "None"
    loads = plotting.panel_figure([panel(Line("a", [1, 2, 3, 6], [1, 2, 3, 4]), log_x=True)]).axes[
        0
    ]
    np.testing.assert_array_equal(loads.get_xticks(), [1, 2, 3, 6])
    for low, high in ((11, 19), (1.2, 1.3), (3e-16, 8e-16), (1, 1e9)):
        ax = plotting.panel_figure([panel(Line("a", [1, 2], [low, high]), log_y=True)]).axes[0]
        bottom, top = ax.get_ylim()
        assert sum(bottom <= at <= top for at in ax.get_yticks()) >= 3


def test_intervals_are_bars():
    line = Line("a", [1, 2], [5, 6], "joined", ([4, 5], [7, 8]))
    ax = plotting.panel_figure([panel(line)]).axes[0]
    (bars,) = ax.collections
    np.testing.assert_array_equal(
        [each.vertices for each in bars.get_paths()], [[[1, 4], [1, 7]], [[2, 5], [2, 8]]]
    )
    with pytest.raises(ValueError, match="ends of the interval must be vectors as long as x"):
        Line("a", [1, 2], [5, 6], "line", ([1], [2]))


@pytest.mark.few(1)
@pytest.mark.parametrize(("width", "across"), [("single", 3.5), ("double", 7.16), ("slide", 12.5)])
def test_texts_are_large_enough_for_print(width, across):
    """Texts have at least six points in print, and none leaves the picture."""
    from matplotlib.text import Text

    many = [Line(f"line {i}", [1, 2], [i, i + 1]) for i in range(3)]
    code = fastgc.ReedSolomon(8, stragglers=2)
    followed = fastgc.simulation.follow(code, fastgc.delays.Exponential(0.01))
    with matplotlib.rc_context(plotting.style(width)):
        for figure in (
            plotting.panel_figure([panel(*many)], caption="all"),
            plotting.panel_figure([panel(*many), panel(*many[1:])], "title"),
            plotting.error_curves([FAST, SLOW, STEEP, FAST]),
            plotting.assignment(code).figure,
            plotting.assignment(fastgc.BinaryCode(30, stragglers=4)).figure,
            plotting.timeline(followed).figure,
            plotting.timeline_figure({"a": followed, "b": followed}),
        ):
            assert figure.get_figwidth() <= across
            texts = [text for text in figure.findobj(Text) if text.get_text()]
            assert min(text.get_fontsize() for text in texts) >= (12 if width == "slide" else 6)


def test_widths_have_names():
    with pytest.raises(ValueError, match='width must be "single", "double" or "slide", not'):
        plotting.style("wide")


def test_panels_that_cannot_be_drawn(tmp_path):
    with pytest.raises(ValueError, match="the figure has no panel"):
        plotting.save(plotting.panel_figure([]), tmp_path / "figure.png")
    with pytest.raises(ValueError, match="must end in"):
        plotting.save(plotting.panel_figure([panel()]), tmp_path / "figure.bmp")
    assert not any(tmp_path.iterdir())


# ----------------------------------------------------------------------------- what methods spend


def spending(name, times, losses, downloads, uploads, samples):
    """Return a run of training whose rounds each take these times and resources."""
    from fastgc.training.history import History, Record

    rounds = [
        Record(
            number,
            time,
            *(0.0, 0.0, (), 0, 0),
            loss,
            0.5,
            downloads=downloads,
            uploads=uploads,
            samples=samples,
        )
        for number, (time, loss) in enumerate(zip(times, losses, strict=True), start=1)
    ]
    return History(name, "", "", "", 0, rounds)


def test_spending_panels_are_what_was_spent(tmp_path):
    first = spending("gcada", [1.0, 2.0, 4.0], [3.0, 2.0, 1.0], 4, 1, 40)
    second = spending("adam", [2.0, 6.0], [2.5, 0.5], 12, 12, 120)
    panels = plotting.spending_panels([first, second])
    assert [(panel.x_label, panel.y_label) for panel in panels] == [
        ("time (s)", "training loss"),
        ("time (s)", "communication (vectors)"),
        ("time (s)", "computation (sample gradients)"),
    ]
    assert [(panel.log_x, panel.log_y) for panel in panels] == [
        (False, True),
        (False, False),
        (False, False),
    ]
    for panel, ys in zip(
        panels,
        [
            ([3.0, 2.0, 1.0], [2.5, 0.5]),
            ([5.0, 10.0, 15.0], [24.0, 48.0]),
            ([40.0, 80.0, 120.0], [120.0, 240.0]),
        ],
        strict=True,
    ):
        assert [line.label for line in panel.lines] == ["gcada", "adam"]
        for line, x, y in zip(panel.lines, ([1, 2, 4], [2, 6]), ys, strict=True):
            np.testing.assert_array_equal(line.x, x)
            np.testing.assert_array_equal(line.y, y)
    four = plotting.spending_panels([first, second], loss_by_communication=True)
    assert (four[3].x_label, four[3].y_label) == ("communication (vectors)", "training loss")
    np.testing.assert_array_equal(four[3].lines[1].x, [24, 48])
    np.testing.assert_array_equal(four[3].lines[1].y, [2.5, 0.5])
    plotting.save(plotting.panel_figure(four), tmp_path / "spent.svg")
    assert (tmp_path / "spent.svg").read_text().startswith("<?xml")


def test_spending_axes_suit_what_they_show():
    short = spending("a", [0.001, 0.01], [3.0, 2.0], 1, 1, 1)
    long = spending("b", [0.01, 0.05], [3.0, 2.0], 1, 1, 1)
    panels = plotting.spending_panels([short, long], True)
    assert panels[0].x_label == "time (ms)"
    np.testing.assert_allclose(panels[0].lines[0].x, [1, 10])
    assert [(panel.log_x, panel.log_y) for panel in panels] == [(True, True)] * 3 + [(False, True)]
    # Simulated without delays, a run takes no time.
    timeless = spending("c", [0.0, 0.0], [3.0, 2.0], 1, 1, 1)
    assert not any(panel.log_x for panel in plotting.spending_panels([timeless, long]))


def test_nothing_spent():
    for histories in ([], [spending("a", [], [], 1, 1, 1)]):
        with pytest.raises(ValueError, match="nothing to draw"):
            plotting.spending_panels(histories)


def approximate_run(name, load, residuals, losses, times):
    """Return a run of training whose rounds leave out these residuals."""
    run = spending(name, times, losses, 1, 1, 1)
    run.rounds = [replace(r, residual=x) for r, x in zip(run.rounds, residuals, strict=True)]
    run.load = load
    return run


def test_approximations_against_time_and_load(tmp_path):
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
    above = plotting.approximation_panels([graph, whole], optimum=0.1)
    assert above[0].y_label == "training loss above the optimum"
    np.testing.assert_allclose(above[0].lines[0].y, [0.9, 0.4])
    assert np.isnan(above[3].lines[1].y[0])  # 0 has no place on a logarithmic axis
    plotting.save(plotting.panel_figure(panels), tmp_path / "runs.png")
    assert (tmp_path / "runs.png").stat().st_size > 1000


def test_approximations_that_cannot_be_drawn():
    run = approximate_run("a", 1.0, [0.1], [1.0], [1.0])
    other = replace(run, measure="RMSE")
    with pytest.raises(ValueError, match="runs that differ in their measure, RMSE, error"):
        plotting.approximation_panels([run, other])
    assert plotting.approximation_panels([other])[1].y_label == "test RMSE"
    never = replace(run, rounds=[replace(run.rounds[0], evaluated=False)])
    for runs in ([], [run, never]):
        with pytest.raises(ValueError, match="nothing to draw"):
            plotting.approximation_panels(runs)


def test_legends_show_lines_and_markers():
    line = Line("a", [1, 2], [1, 2])
    points = Line("a", [1, 2], [1, 2.1], "points")
    alone = Line("b", [1, 2], [3, 4], "points")
    figure = plotting.panel_figure([Panel("", "x", "y", [line, points, alone])])
    both, marked = figure.legends[0].legend_handles
    assert (both.get_linestyle(), both.get_marker()) == ("-", "o")
    assert (marked.get_linestyle(), marked.get_marker()) == ("None", "s")
    other = Panel("", "x", "y", [points, alone])  # any panel with the line gives it its legend
    [legend] = plotting.panel_figure([Panel("", "x", "y", [line, alone]), other]).legends
    assert legend.legend_handles[0].get_marker() == "o"


def test_legends_have_the_columns_that_fit():
    short = [Line(f"m = {m}", [1, 2], [m, m + 1]) for m in range(8)]
    long = [Line(60 * str(m), [1, 2], [m, m + 1]) for m in range(4)]
    for lines, columns in ((short, 4), (long, 1)):
        figure = plotting.panel_figure([Panel("", "x", "y", lines)])
        [legend] = figure.legends
        assert legend._ncols == columns
        figure.canvas.draw()
        box = legend.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        assert box.x0 >= 0
        assert box.x1 <= figure.get_figwidth()


def narrow(panels):
    with matplotlib.rc_context(plotting.style("single")):
        return plotting.panel_figure(panels)


def test_panels_in_one_column():
    panels = [Panel("", "x", "y", [Line("a", [1], [1])])] * 3
    first, second, _ = plotting.panel_figure(panels).axes
    assert first.get_position().x0 < second.get_position().x0
    assert len({ax.get_position().x0 for ax in narrow(panels).axes}) == 1


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ""),
        ("a short one", "a short one"),
        ("Mean error of random stragglers, n = k = 100, load 10",
         "Mean error of random stragglers,\nn = k = 100, load 10"),
        ("x" * 60, f"{'x' * 50}\n{'x' * 10}"),
    ],
)  # fmt: skip
def test_titles_are_broken_evenly(text, lines):
    assert even_lines(text, 50) == lines


def test_powers_of_ten_are_written_as_such():
    wide = [Line("a", [1, 2, 3], [1e-7, 1e-4, 1])]
    ax = plotting.panel_figure([Panel("", "x", "y", wide, log_y=True)]).axes[0]
    ax.figure.canvas.draw()
    assert "$10^{-6}$" in [tick.get_text() for tick in ax.get_yticklabels()]


# ---------------------------------------------------------------------------- codes and rounds


def cells(ax):
    """Return which cells of an assignment are not white, and the colours of all cells."""
    image = np.asarray(ax.images[0].get_array())
    step = max(1, image.shape[0] // round(abs(np.diff(ax.get_ylim())[0])))  # pixels per cell
    image = image[::step, ::step]
    return (image < 1).any(axis=-1), image


@pytest.mark.parametrize(
    "code",
    [
        fastgc.BinaryCode(8, stragglers=3),
        fastgc.ReedSolomon(9, 6, stragglers=2),
        fastgc.CyclicRepetition(7, stragglers=2),
        fastgc.Uncoded(5),
        fastgc.LagrangeCode(6, load=2),
        fastgc.RandomAssignment(6, load=3, seed=1),
    ],
    ids=lambda code: type(code).__name__,
)
def test_assignment_shows_who_computes_what(code):
    ax = plotting.assignment(code)
    shown, _ = cells(ax)
    held = np.zeros((code.n, code.scheme.data.shards), dtype=bool)
    for worker in range(code.n):
        held[worker, code.partitions(worker)] = True
    np.testing.assert_array_equal(shown, held)
    assert f"n = {code.n} workers" in ax.get_title()
    assert ax.get_ylabel() == "worker"
    ax.figure.canvas.draw()


def test_assignment_writes_and_colours_coefficients():
    B = np.array([[1.0, -0.5, 0], [0, 1, 0.25], [0.5, 0, -1]])
    ax = plotting.assignment(fastgc.LinearCode(B))
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert texts[1, 0] == "\N{MINUS SIGN}0.5"  # column, row
    assert texts[2, 1] == "0.25"
    assert len(texts) == np.count_nonzero(B)
    _, image = cells(ax)
    assert image[0, 0, 2] > image[0, 0, 0]  # positive: blue
    assert image[0, 1, 0] > image[0, 1, 2]  # negative: orange
    assert image[1, 2].sum() > image[0, 0].sum()  # smaller: paler
    assert len(ax.figure.axes) == 2  # the second is the scale


def test_assignment_writes_no_angle_below_zero():
    """A coefficient of 1 may be rounded to a small negative angle."""
    ax = plotting.assignment(fastgc.ReedSolomon(6, stragglers=2, clusters="auto"))
    written = [text.get_text() for text in ax.texts]
    assert any("\n0°" in text for text in written)
    assert not any("\N{MINUS SIGN}0°" in text for text in written)


def test_assignments_have_one_scale_of_colours():
    """Complex coefficients that are real look like real ones: blue, or orange below 0."""
    from fastgc.plotting.rounds import colours

    for value in (1.0, -1.0):
        real, whole = colours(np.array(value)), colours(np.array(value + 0j))
        assert np.argmax(real) == np.argmax(whole)
        assert np.argmin(real) == np.argmin(whole)
        assert np.abs(real - whole).max() < 0.2


def test_assignment_colours_angles():
    code = fastgc.ReedSolomon(5, stragglers=1)
    ax = plotting.assignment(code)
    _, image = cells(ax)
    coefficient = dict(zip(code.partitions(2).tolist(), code.coefficients(2), strict=True))
    for column, value in coefficient.items():
        [text] = [t.get_text() for t in ax.texts if t.get_position() == (column, 2)]
        size, angle = text.replace("\N{MINUS SIGN}", "-").split("\n")
        assert float(size) == pytest.approx(abs(value), rel=0.06)
        assert float(angle[:-1]) == pytest.approx(np.degrees(np.angle(value)), abs=0.51)
    one, other = (image[2, column] for column in coefficient)
    assert np.abs(one - other).max() > 0.1
    assert "angle" in ax.figure.axes[1].get_xlabel()  # the scale lies below: numbers need width
    large = plotting.assignment(fastgc.ReedSolomon(20, stragglers=1))
    assert not large.texts
    assert "angle" in large.figure.axes[1].get_ylabel()


def test_assignment_of_equal_coefficients_says_so():
    ax = plotting.assignment(fastgc.BinaryCode(30, stragglers=4))
    assert ax.get_xlabel() == "partition; all coefficients are 1"
    assert not ax.texts  # too many to write
    assert len(ax.figure.axes) == 1


def test_assignment_of_many_workers():
    code = fastgc.FractionalRepetition(5000, stragglers=499)
    ax = plotting.assignment(code)
    shown, image = cells(ax)
    assert max(image.shape) <= 600
    assert shown.mean() == pytest.approx(0.1, abs=0.01)
    assert ax.get_xlim() == (-0.5, 4999.5)
    assert ax.get_ylim() == (4999.5, -0.5)


def segments(bars):
    """Return row, begin and end of each bar."""
    corners = bars.get_path().vertices.reshape(-1, 5, 2)[:, :4]
    low, high = corners.min(axis=1), corners.max(axis=1)
    rows = (low + high)[:, 1] / 2
    return list(zip(rows.round().tolist(), low[:, 0].tolist(), high[:, 0].tolist(), strict=True))


def report(number, received, arrivals, wait, decode):
    return SimpleNamespace(
        round=number, received=received, arrivals=arrivals, wait_seconds=wait, decode_seconds=decode
    )


def test_timeline_shows_who_is_waited_for():
    code = fastgc.BinaryCode(3, stragglers=1)
    rounds = [report(0, [2, 0], [1.0, 2.0], 2.0, 0.5), report(1, [1, 2], [3.0, 4.0], 4.0, 0.0)]
    ax = plotting.timeline(rounds, code)
    used, unused = map(segments, ax.patches)
    assert sorted(used) == [(0, 0, 2), (1, 2.5, 5.5), (2, 0, 1), (2, 2.5, 6.5)]
    assert sorted(unused) == [(0, 2.5, 6.5), (1, 0, 2)]
    dots, *lines = ax.lines
    np.testing.assert_array_equal(dots.get_xydata(), [[1, 2], [2, 0], [5.5, 1], [6.5, 2]])
    assert [line.get_xdata()[0] for line in lines] == [2, 6.5]
    assert [text.get_text() for text in ax.texts] == ["round 0", "round 1"]
    assert len(ax.figure.legends) == 1
    assert plotting.timeline(rounds, code, new_figure().add_subplot()).get_legend() is None
    assert ax.get_xlabel() == "time (s)"
    ax.figure.canvas.draw()
    ax = plotting.timeline(report(0, [2], [0.25], 0.25, 0.0), code)
    assert ax.get_xlabel() == "time (ms)"
    assert segments(ax.patches[0]) == [(2, 0, 250)]
    assert not ax.texts


def test_timeline_of_several_messages():
    """A worker whose later messages are not needed works until the round is over."""
    code = fastgc.Uncoded(2, 4, load=2)
    assert list(code.scheme.messages.counts) == [2, 2]
    ax = plotting.timeline(report(0, [0, 2, 3], [1.0, 2.0, 3.0], 3.0, 0.0), code)
    used, unused = map(segments, ax.patches)
    assert used == [(0, 0, 1), (1, 0, 3)]
    assert unused == [(0, 1, 3)]


def test_timeline_of_a_run():
    code = fastgc.BinaryCode(6, stragglers=2)
    late = fastgc.delays.Exponential(2.0)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((24, 2)), np.arange(24) % 2
    data = fastgc.data.Dataset("two", X[:12], y[:12], X[12:], y[12:])
    run = fastgc.train(code, data, rounds=4, engine="simulated", delays=late, evaluate_every=4)
    ax = plotting.timeline(run, code)
    lines = [line.get_xdata()[0] for line in ax.lines[1:]]
    np.testing.assert_allclose(lines, [record.time for record in run.rounds])
    two = plotting.timeline(run.rounds[1:3], code)
    assert [text.get_text() for text in two.texts] == ["round 2", "round 3"]
    first = run.rounds[1]
    assert two.lines[1].get_xdata()[0] == pytest.approx(first.wait)
    assert len(segments(two.patches[0])) == sum(len(r.survivors) for r in run.rounds[1:3])


def test_rounds_of_a_run_begin_when_the_last_update_is_done():
    code = fastgc.Uncoded(1)
    records = [
        SimpleNamespace(round=number, received=[0], arrivals=[1.0], wait=1.0, decode=0.5, time=time)
        for number, time in ((3, 10.0), (4, 13.0), (9, 99.0))
    ]
    ax = plotting.timeline(records, code)
    # Round 4 took 3 s with the update; nothing is known of rounds 5 to 8.
    assert segments(ax.patches[0]) == [(0, 0, 1), (0, 1.5, 2.5), (0, 4.5, 5.5)]


def test_timeline_refuses_what_it_cannot_draw():
    code = fastgc.BinaryCode(3, stragglers=1)
    with pytest.raises(ValueError, match="there is no round"):
        plotting.timeline([], code)
    with pytest.raises(ValueError, match="round 4 does not say when its messages arrived"):
        plotting.timeline(report(4, [1], [], 1.0, 0.0), code)
    with pytest.raises(ValueError, match=r"has message 3, but BinaryCode.* has 3 messages"):
        plotting.timeline(report(0, [3], [1.0], 1.0, 0.0), code)


def test_pictures_are_saved(tmp_path):
    from matplotlib.figure import Figure

    ax = Figure().subfigures(1, 2)[0].add_subplot()
    assert plotting.assignment(fastgc.Uncoded(3), ax) is ax
    plotting.save(ax, tmp_path / "a.svg")
    plotting.save(ax.figure, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    with pytest.raises(ValueError, match="must end in"):
        plotting.save(ax, tmp_path / "a.bmp")


@pytest.mark.long
def test_pictures_of_the_readme_are_drawn(tmp_path):
    pytest.importorskip("sklearn")
    from PIL import Image

    script = Path(__file__).parents[2] / "docs" / "pictures.py"
    programs.run(programs.python(script, "--out", tmp_path), seconds=600)
    for name in ("assignment", "timeline", "accuracy"):
        drawn, kept = (
            np.asarray(Image.open(folder / f"{name}.png").convert("RGB"), dtype=float)
            for folder in (tmp_path, script.parent)
        )
        assert (script.parent / f"{name}.png").stat().st_size < 50_000
        assert np.abs(drawn - kept).mean() < 8  # letters differ where fonts do


# -------------------------------------------------------------------------------- timelines of runs


def test_runs_know_who_sent_their_messages(tmp_path):
    code = fastgc.Uncoded(4, 8, load=4)
    late = fastgc.delays.Exponential(0.01)
    run = fastgc.train(code, rounds=8, engine="simulated", delays=late)
    assert run.message_counts == (4, 4, 4, 4)

    def dots(ax):
        return ax.lines[0].get_xydata().tolist()

    assert dots(plotting.timeline(run)) == dots(plotting.timeline(run.rounds, code))
    fastgc.history.write_json([run], tmp_path / "run.json")
    (kept,) = fastgc.history.read_json(tmp_path / "run.json")
    assert kept.message_counts == run.message_counts
    assert dots(plotting.timeline(kept)) == dots(plotting.timeline(run))
    kept.message_counts = ()  # as read from a file of an earlier version
    with pytest.raises(ValueError, match="give their code, too"):
        plotting.timeline(kept)
    assert dots(plotting.timeline(kept, code)) == dots(plotting.timeline(run))


def test_timeline_of_adaptive_rounds_shows_who_was_asked():
    code = fastgc.Grouped.repetition(6, 3)
    run = fastgc.train(
        code,
        optimizer=fastgc.optimizers.GCADA(3, fastgc.optimizers.AMSGrad(0.01), c=3.0),
        rounds=40,
        engine="simulated",
        delays=fastgc.delays.Exponential(0.01),
    )
    some = [r for r in run.rounds if r.selected]
    assert some  # rounds after the first ask only some workers
    assert not run.rounds[0].selected
    for r in some:
        assert r.downloads == len(r.selected) < 6
        assert set(r.survivors) <= set(r.selected)
        ax = plotting.timeline(r, code)
        paths = [patch.get_path() for patch in ax.patches]
        corners = np.concatenate([path.vertices[path.codes != path.CLOSEPOLY] for path in paths])
        assert {round(y) for y in corners[:, 1]} == set(r.selected)
    nobody = replace(some[0], selected=(), downloads=0, survivors=(), received=(), arrivals=())
    ax = plotting.timeline([some[0], nobody], code)
    assert len(ax.lines) == 3  # the dots, and the ends of two rounds
    ax = plotting.timeline(run.rounds[:40], code)


def test_timeline_shows_who_was_corrupt():
    code = fastgc.FractionalRepetition(6, stragglers=2)
    run = fastgc.train(code, rounds=1, engine="simulated", delays=fastgc.delays.Exponential(0.01))
    record = run.rounds[0]
    labels = plotting.timeline(record, code).get_legend_handles_labels()[1]
    assert "its message was corrupt" not in labels
    liar = next(w for w in range(6) if w not in record.survivors)
    ax = plotting.timeline(replace(record, corrupt=(liar,)), code)
    handles, labels = ax.get_legend_handles_labels()
    (box,) = (h for h, label in zip(handles, labels, strict=True) if "corrupt" in label)
    assert box.get_path().get_extents().y0 == pytest.approx(liar - 0.38)
    (pale,) = (h for h, label in zip(handles, labels, strict=True) if "not waited" in label)
    rows = np.round(pale.get_path().vertices.reshape(-1, 5, 2)[:, :4, 1])
    assert liar not in rows


def test_timelines_share_an_axis_of_time():
    late = fastgc.delays.Exponential(0.01)
    codes = {"coded": fastgc.BinaryCode(6, stragglers=2), "uncoded": fastgc.Uncoded(6)}
    runs = {name: fastgc.simulation.follow(code, late, rounds=4) for name, code in codes.items()}
    figure = plotting.timeline_figure(runs)
    for ax, (name, run) in zip(figure.axes, runs.items(), strict=True):
        took = shown.duration(run.rounds[2].time)
        assert ax.get_title(loc="left") == f"{name}: 3 rounds in {took}"
    for ax, run in zip(figure.axes, runs.values(), strict=True):
        ready = [line.get_xdata()[0] for line in ax.lines[1:]]
        np.testing.assert_allclose(ready, [1e3 * each.time for each in run.rounds[:3]])
    first, second = (ax.get_xlim() for ax in figure.axes)
    assert first == second
    assert second[1] >= 1e3 * runs["uncoded"].rounds[2].time
    assert len(legend_of(figure)) == 4
    # If one is far longer, each panel has its own axis.
    slow = fastgc.simulation.follow(codes["uncoded"], fastgc.delays.Exponential(0.1), rounds=3)
    own = plotting.timeline_figure({"coded": runs["coded"], "slow": slow})
    for ax in own.axes:
        last = ax.lines[-1].get_xdata()[0]
        assert 0.9 * ax.get_xlim()[1] < last < ax.get_xlim()[1]
        assert ax.get_xlabel()
    with pytest.raises(ValueError, match="there is no run"):
        plotting.timeline_figure({})
    with pytest.raises(ValueError, match="who sent the messages"):
        plotting.timeline_figure({"a": runs["coded"]._replace(message_counts=())})
    never = runs["coded"].rounds[0]._replace(wait=np.inf)
    with pytest.raises(ValueError, match="round 1 was never over"):
        plotting.timeline(never, codes["coded"])


def test_timeline_shows_who_computes_anothers_share():
    """Worker 1 hangs: at the deadline a holder of its share begins to compute it."""
    hangs = fastgc.delays.Empirical([[0.0, 5.0, 0.0, 0.0]])
    run = fastgc.simulation.follow(
        fastgc.Reactive(4, holders=2, deadline=2.0), hangs, cost=1.0, rounds=1
    )
    ((share, helper, began),) = run.rounds[0].stood_in
    assert (share, began, run.rounds[0].wait) == pytest.approx((1, 2.0, 3.0))
    ax = plotting.timeline(run)
    bars = {patch.get_label(): np.round(segments(patch), 9).tolist() for patch in ax.patches}
    assert bars == {
        "at work, its message is used": [[0, 0, 1], [2, 0, 1], [3, 0, 1]],
        "at work on another's share": [[helper, 2, 3]],
        "at work, not waited for": [[1, 0, 3]],
    }
    dots = sorted(np.round(ax.lines[0].get_xydata(), 9).tolist())
    assert dots == [[1, 0], [1, 2], [1, 3], [3, helper]]


def test_timelines_of_runs_show_who_computed_anothers_share(tmp_path):
    """They show it as timelines of simulated rounds do, also when read from a file."""
    hangs = fastgc.delays.Empirical([[1.0, 6.0, 1.0, 1.0]], per="computation")
    code = fastgc.Reactive(4, holders=2, deadline=2.0)
    run = fastgc.train(code, rounds=1, engine="simulated", delays=hangs)
    ((share, helper, began),) = run.rounds[0].stood_in
    assert (share, began) == pytest.approx((1, 2.0))
    file = tmp_path / "run.json"
    fastgc.history.write_json([run], file)
    (read,) = fastgc.history.read_json(file)
    assert read.rounds == run.rounds
    for each in (run, read):
        ax = plotting.timeline(each)
        bars = {patch.get_label(): np.round(segments(patch), 9).tolist() for patch in ax.patches}
        assert bars["at work on another's share"] == [[helper, 2, 3]]
        assert [3.0, helper] in np.round(ax.lines[0].get_xydata(), 9).tolist()


def test_timeline_of_simulated_rounds():
    code = fastgc.ReedSolomon(8, stragglers=2)
    followed = fastgc.simulation.follow(code, fastgc.delays.Exponential(0.01), receive=0.001)
    ax = plotting.timeline(followed)
    received = sum(len(each.received) for each in followed.rounds)
    assert len(ax.lines[0].get_xdata()) == received
    ready = [line.get_xdata()[0] for line in ax.lines[1:]]
    np.testing.assert_allclose(ready, [1e3 * each.time for each in followed.rounds])


# --------------------------------------------------------------------------- which code to choose


LATE = fastgc.delays.Exponential(0.01)


def test_curves_of_times_are_the_quantiles():
    codes = {"rs": fastgc.ReedSolomon(6, stragglers=2), "uncoded": fastgc.Uncoded(6)}
    found = {
        name: fastgc.simulation.simulate(code, LATE, rounds=500) for name, code in codes.items()
    }
    [ax] = plotting.time_curves(found, caption="n = 6").axes
    assert ax.get_xscale() == "log"
    assert ax.get_xlabel() == "time of a round (ms)"
    for line, run in zip(ax.lines, found.values(), strict=True):
        np.testing.assert_allclose(line.get_xdata(), 1e3 * run.quantile(line.get_ydata()))
    assert ax.get_title() == f"fastest: rs, {shown.duration(found['rs'].mean)} on average"
    (legend,) = ax.figure.legends
    assert legend.get_title().get_text() == "n = 6"
    with pytest.raises(ValueError, match="no code was simulated"):
        plotting.time_curves({})
    # An approximate method is not called the fastest if there are exact ones.
    found["ignore"] = fastgc.simulation.simulate(
        fastgc.Uncoded(6, tolerance=1 / 2), LATE, rounds=500
    )
    [ax] = plotting.time_curves(found).axes
    assert ax.get_title().startswith("fastest exact code: rs, ")
    assert "ignore (uncoded, ignores stragglers): leaves out" in ax.lines[2].get_label()


@pytest.mark.few(1)
@pytest.mark.parametrize("width", ["single", "double", "slide"])
def test_titles_stay_on_one_line(width):
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


def test_curves_of_loads_have_intervals():
    plan = fastgc.planning.plan(6, LATE, 1e-3, codes=["cyclic", "uncoded"], rounds=200)
    time, growth = plotting.load_curves(plan).axes
    best = plan.choices[0]
    took = shown.duration(best.time)
    assert time.get_title() == f"fastest: {best.name} at load {best.code.load}, {took}"
    worst = max(plan.choices, key=lambda choice: choice.amplification)
    assert growth.get_title().startswith(f"rounding: most by {worst.name}, ")
    mine = {choice.code.load: choice for choice in plan.choices if choice.name == "cyclic"}
    at = next(i for i, line in enumerate(time.lines) if line.get_label().startswith("cyclic"))
    for ax, value, between in (
        (time, lambda c: 1e3 * c.time, lambda c: 1.96e3 * c.standard_error * np.array([-1, 1])),
        (
            growth,
            lambda c: c.amplification,
            lambda c: np.array(c.amplification_interval) - c.amplification,
        ),
    ):
        bars = ax.collections[at].get_segments()
        for (x, y), bar in zip(ax.lines[at].get_xydata(), bars, strict=True):
            choice = mine[int(x)]
            assert y == value(choice)
            np.testing.assert_allclose(bar[:, 1], y + between(choice))
            assert choice.amplification_interval[0] <= choice.amplification


def test_curves_of_sequences():
    times = 1.0 + np.random.default_rng(0).exponential(size=(60, 4))
    found = fastgc.sequential.compare(times, ["uncoded", "rs:stragglers=1"], probe=20)
    done, tried = plotting.sequential_curves(found).axes
    best = min(found, key=lambda each: each.run.seconds_per_job)
    assert done.get_title().startswith(f"fastest: {best.name[:12]}")
    for line, each in zip(done.lines, found, strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.sort(each.run.done))
    assert sum(len(line.get_xdata()) for line in tried.lines) == sum(len(e.tried) for e in found)
    with pytest.raises(ValueError, match="no scheme was compared"):
        plotting.sequential_curves([])


def test_curves_of_fits():
    times = LATE.sample(0, 400, seed=1)
    fits = fastgc.delays.fit(times)
    [ax] = plotting.fit_curves(times, fits).axes
    assert ax.get_title().startswith(f"best fit: {type(fits[0].model).__name__}, at most 0.0")
    recorded, first, *_ = ax.lines
    np.testing.assert_allclose(recorded.get_xdata(), 1e3 * np.quantile(times, recorded.get_ydata()))
    np.testing.assert_allclose(first.get_xdata(), 1e3 * fits[0].model.quantile(first.get_ydata()))


@pytest.mark.few(3)
@pytest.mark.parametrize("width", ["single", "double", "slide"])
@pytest.mark.parametrize(
    "low_high", [(0.005, 5.9), (0.9, 20), (1e-7, 3), (30, 90), (2, 1e5), (3, 3.4)]
)
def test_labels_of_ticks_stand_apart(low_high, width):
    """They do not touch, on decades and on parts of them, at every width."""
    with matplotlib.rc_context(plotting.style(width)):
        one = Panel("", "x", "y", [Line("a", low_high, low_high)], log_x=True, log_y=True)
        for panels in ([one], [one, one]):
            figure = plotting.panel_figure(panels)
            figure.draw_without_rendering()
            for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
                ends = axis.get_view_interval()
                boxes = [
                    tick.label1.get_window_extent()
                    for tick in axis.get_major_ticks()
                    if ends[0] <= tick.get_loc() <= ends[1]
                ]
                assert len(boxes) >= 2
                for box, following in itertools.pairwise(boxes):
                    assert not box.overlaps(following)


def test_points_of_many_codes_differ():
    """They differ in colour or marker, however many codes there are."""
    from fastgc.plotting.panels import _look

    lines = [Line(f"code {at}", [1], [1], "points") for at in range(40)]
    looks = _look([Panel("", "", "", lines)])
    assert len({(colour, marker) for colour, _, marker in looks.values()}) == 40


def test_costs_of_codes_are_points():
    codes = {
        "rs": fastgc.ReedSolomon(6, stragglers=2),
        "binary": fastgc.BinaryCode(6, stragglers=2),
    }
    codes["ignore"] = fastgc.codes.make("ignore", 6, stragglers=2)
    found = fastgc.stability.compare(codes, patterns=["late"], sets=5)
    waited, wrong = plotting.cost_curves(found).axes
    for ax, value in ((waited, "workers"), (wrong, "error")):
        points = {tuple(np.ravel(line.get_xydata())) for line in ax.lines if len(line.get_xdata())}
        expected = {(each.mean_load, getattr(each, value)) for each in found}
        assert expected <= points
    assert waited.get_title().startswith("fewest: ")
    # A code that leaves out gradients does not compete in rounding errors.
    assert wrong.get_title().startswith("least precise exact code: ")
    assert "ignore" not in wrong.get_title()
    with pytest.raises(ValueError, match="no code was measured"):
        plotting.cost_curves([])
