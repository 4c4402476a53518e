"""Panels, legends, ticks and files of pictures."""

import itertools
import re
import sys

import numpy as np
import pytest
from pictures import FAST, SLOW, STEEP
from toys import toy

import fastgc

# Imported by module: pytest would take plotting.test_error for a test.
from fastgc import plotting
from fastgc._base.extras import pip_install
from fastgc.plotting.curves import off_by
from fastgc.plotting.panels import (
    Line,
    Panel,
    even_lines,
    legend_columns,
    retitle,
    shorten,
    spread,
    time_unit,
)

matplotlib = pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    ("name", "magic"),
    [
        *(("a.png", b"\x89PNG\r\n"), ("a.PNG", b"\x89PNG"), ("a.svg", b"<?xml")),
        *(("a.pdf", b"%PDF-"), ("a.eps", b"%!PS-Adobe-3.0 EPSF-3.0")),
    ],
)
def test_save_writes_the_same_file_again(tmp_path, name, magic):
    path = tmp_path / name
    plotting.save(plotting.error_curves([FAST, SLOW, STEEP]), path)
    content = path.read_bytes()
    plotting.save(plotting.error_curves([FAST, SLOW, STEEP]), path)
    assert path.read_bytes() == content
    assert content.startswith(magic)
    assert len(content) > 5000
    if name == "a.svg":
        assert all(run.name.encode() in content for run in (FAST, SLOW, STEEP))


@pytest.mark.long
def test_save_writes_fonts_of_true_type(tmp_path):
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


def panel(*lines, **kwargs):
    return Panel("title", "x", "y", list(lines), **kwargs)


def test_style_is_that_of_a_users_pictures():
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


def test_save_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for draw in (
        lambda: plotting.error_curves([FAST]),
        lambda: plotting.save(plotting.error_curves([FAST]), tmp_path / "a.png"),
    ):
        with pytest.raises(ImportError, match=re.escape(pip_install("plot"))):
            draw()


def test_panel_figure_has_the_lines():

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


def axes_of(*panels):
    return plotting.panel_figure(panels).axes


def labels(ax):
    return [line.get_label() for line in ax.lines]


def test_panel_figure_of_curves_that_coincide():
    x = [1.0, 2.0]
    lines = [Line("a", x, [1, 2]), Line("b", x, [2, 3]), Line("c", x, [1, 2 + 1e-9])]
    [alone] = axes_of(panel(*lines))
    assert labels(alone) == ["a = c", "b"]
    # In another panel the lines differ: it shows both, in the same colours, with its own legend.
    other = panel(Line("a", x, [5, 5]), Line("b", x, [2, 3]), Line("c", x, [6, 6]))
    first, second = axes_of(panel(*lines), other)
    assert labels(first) == ["a = c", "b"]
    assert labels(second) == ["a", "b", "c"]
    colours = [[line.get_color() for line in ax.lines] for ax in (first, second)]
    assert colours[0] == colours[1][:2]
    for ax in first, second:
        assert [text.get_text() for text in ax.get_legend().get_texts()] == labels(ax)
    # A line with gaps lies above one without, which shows through the gaps.
    assert second.lines[0].get_zorder() < second.lines[1].get_zorder()
    # Lines that a reader cannot tell apart, but that are not the same.
    near = [Line("a", x, [1, 2]), Line("b", x, [1.002, 2]), Line("c", x, [1.01, 2])]
    assert labels(axes_of(panel(*near))[0]) == ["a ≈ b", "c"]
    # Their gradients differ.
    notes = ["", off_by([0.1]), off_by([0.1, 0.0])]
    told = [Line(name, x, x, note=note) for name, note in zip("abc", notes, strict=True)]
    assert labels(axes_of(panel(*told))[0]) == ["a", "b = c: off by 10%"]
    # Points and a line look different.
    assert len(axes_of(panel(Line("a", x, x), Line("b", x, x, "points")))[0].lines) == 2


def test_panel_figure_has_one_legend_where_it_is_the_same():
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


def test_panel_figure_has_ticks_that_suit_numbers():
    [whole] = axes_of(panel(Line("a", [0, 1], [1, 2], "joined")))
    assert all(at == round(at) for at in whole.get_xticks())
    assert whole.lines[0].get_marker() != "None"
    [loads] = axes_of(panel(Line("a", [1, 2, 3, 6], [1, 2, 3, 4]), log_x=True))
    np.testing.assert_array_equal(loads.get_xticks(), [1, 2, 3, 6])
    for low, high in ((11, 19), (1.2, 1.3), (3e-16, 8e-16), (1, 1e9)):
        [ax] = axes_of(panel(Line("a", [1, 2], [low, high]), log_y=True))
        bottom, top = ax.get_ylim()
        assert sum(bottom <= at <= top for at in ax.get_yticks()) >= 3


def test_panel_figure_draws_intervals_as_bars():
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
def test_style_has_texts_large_enough_for_print(width, across):
    """Texts have at least six points in print, and none leaves the picture."""
    from matplotlib.text import Text

    many = [Line(f"line {i}", [1, 2], [i, i + 1]) for i in range(3)]
    code = fastgc.ReedSolomon(8, stragglers=2)
    followed = fastgc.train(
        code, toy(), rounds=3, engine="simulated", delays=fastgc.delays.Exponential(0.01)
    )
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


def test_style_refuses_other_widths():
    with pytest.raises(ValueError, match='width must be "single", "double" or "slide", not'):
        plotting.style("wide")


def test_panel_figure_refuses(tmp_path):
    with pytest.raises(ValueError, match="the figure has no panel"):
        plotting.save(plotting.panel_figure([]), tmp_path / "figure.png")
    with pytest.raises(ValueError, match="must end in"):
        plotting.save(plotting.panel_figure([panel()]), tmp_path / "figure.bmp")
    assert not any(tmp_path.iterdir())


def test_panel_figure_legend_shows_lines_and_markers():
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


def narrow(panels):
    with matplotlib.rc_context(plotting.style("single")):
        return plotting.panel_figure(panels)


def test_panel_figure_in_one_column():
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
def test_even_lines(text, lines):
    assert even_lines(text, 50) == lines


def test_save_axes_of_subfigures(tmp_path):
    from matplotlib.figure import Figure

    ax = Figure().subfigures(1, 2)[0].add_subplot()
    assert plotting.assignment(fastgc.Uncoded(3), ax) is ax
    plotting.save(ax, tmp_path / "a.svg")
    plotting.save(ax.figure, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    with pytest.raises(ValueError, match="must end in"):
        plotting.save(ax, tmp_path / "a.bmp")


@pytest.mark.parametrize("most", [7, 1800, 10**6])
def test_panel_figure_whole_numbers_stand_apart(most):
    """A digit fits between two of them."""
    x = np.linspace(0, most, 100).round()
    for ax in axes_of(*[panel(Line("a", x, x))] * 2):
        ax.figure.draw_without_rendering()
        shown = [each for each in ax.get_xticklabels() if 0 <= each.get_position()[0] <= most]
        boxes = [each.get_window_extent() for each in shown]
        digit = boxes[-1].width / len(shown[-1].get_text())
        assert len(boxes) > 1
        assert all(right.x0 - left.x1 > digit for left, right in itertools.pairwise(boxes))


@pytest.mark.few(3)
@pytest.mark.parametrize("width", ["single", "double", "slide"])
@pytest.mark.parametrize(
    "low_high", [(0.005, 5.9), (0.9, 20), (1e-7, 3), (30, 90), (2, 1e5), (3, 3.4)]
)
def test_plain_decades_stand_apart(low_high, width):
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


def test_panel_figure_points_of_many_codes_differ():
    """They differ in colour or marker, however many codes there are."""
    lines = [Line(f"code {at}", [at], [at], "points") for at in range(40)]
    [axes] = plotting.panel_figure([Panel("", "", "", lines)]).axes
    assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == 40


def test_time_unit():
    assert time_unit(1.0) == ("s", 1.0)
    assert time_unit(0.999) == ("ms", 1e3)


def test_shorten():
    assert shorten("thirteen let.", 13) == "thirteen let."
    assert shorten("fourteen lette", 13) == "fourteen let…"
    assert shorten("a blank at the end", 9) == "a blank…"


def test_spread_of_positive_values():
    def of(*values, **options):
        return spread([Line("a", range(len(values)), values)], **options)

    assert of(1, 4.1)
    assert not of(1, 4)
    assert not of(1, 9, 0)
    assert of(1, 9, 0, np.nan, np.inf, zeros=True)
    assert not of(np.nan)
    assert not of(0, -1, zeros=True)


def test_check_path_knows_kinds_of_pictures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").mkdir()
    for name in "a.png", "a.PDF", "b/a.svg", "a.eps":
        plotting.check_path(name)
    assert [path.name for path in tmp_path.rglob("*")] == ["b"]
    with pytest.raises(ValueError, match=r"there is no folder c to write a\.png to"):
        plotting.check_path("c/a.png")
    for name in "a.tiff", "a", "png":
        with pytest.raises(ValueError, match=r"\.png, \.svg, \.pdf, \.eps"):
            plotting.check_path(name)


@pytest.mark.parametrize(
    ("width", "columns"),
    [("single", [3, 2, 1, 1, 1, 1]), ("double", [4, 4, 4, 3, 2, 1]), ("slide", [4, 4, 3, 2, 2, 1])],
)
def test_legend_columns_are_as_many_as_fit(width, columns):
    with matplotlib.rc_context(plotting.style(width)):
        wide = matplotlib.rcParams["figure.figsize"][0]
        letters = 5, 10, 20, 30, 40, 60
        assert [legend_columns(["x" * n] * 9, wide) for n in letters] == columns
        assert legend_columns(["x" * 5] * 2, wide) == 2
        assert (
            legend_columns(["x", "x" * 60], wide) == legend_columns(["x\n" + "x" * 60], wide) == 1
        )


def test_panel_figure_breaks_long_entries_of_many_lines():
    """More than six have two columns."""
    long = "{} with a long name, which is broken where there are many"
    lines = [Line(long.format(m), [1, 2], [m, m + 1]) for m in range(7)]
    for count, columns, broken in ((6, 1, 0), (7, 2, 1)):
        figure = plotting.panel_figure([Panel("", "x", "y", lines[:count])])
        figure.draw_without_rendering()
        texts = figure.legends[0].get_texts()
        assert len({round(text.get_window_extent().x0) for text in texts}) == columns
        assert {text.get_text().count("\n") for text in texts} == {broken}


def test_retitle_replaces_what_is_found_but_not_what_tells_panels_apart():
    def titles(figure):
        of = [ax.get_title(loc) for ax in figure.axes for loc in ("center", "left")]
        return [figure.get_suptitle(), *of]

    one = Panel("fastest: a", "x", "y", [Line("a", [1, 2], [1, 2])])
    for panels, title, before, after in (
        ([one], "", ["", "fastest: a", ""], ["T", "", ""]),
        ([one, one], "", ["", *["fastest: a", ""] * 2], ["T", *["", ""] * 2]),
        ([one, one], "whole", ["whole", *["fastest: a", ""] * 2], ["T", *["fastest: a", ""] * 2]),
    ):
        figure = plotting.panel_figure(panels, title)
        assert titles(figure) == before
        retitle(figure, "T")
        assert titles(figure) == after
        retitle(figure.axes[0], "")
        assert titles(figure) == ["", *after[1:]]
    runs = {
        name: fastgc.train(fastgc.Uncoded(3), toy(), rounds=2, engine="simulated") for name in "ab"
    }
    figure = plotting.timeline_figure(runs)
    own, offsets = titles(figure), [ax.titleOffsetTrans.get_matrix() for ax in figure.axes]
    retitle(figure, "")
    assert titles(figure) == own
    for ax, offset in zip(figure.axes, offsets, strict=True):
        np.testing.assert_array_equal(ax.titleOffsetTrans.get_matrix(), offset)
    single = plotting.timeline_figure({"a": runs["a"]})
    retitle(single, "T")
    assert titles(single) == ["T", "", ""]
