"""Pictures of assignments and of rounds."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from pictures import legend_of
from toys import toy

import fastgc

# Imported by module: pytest would take plotting.test_error for a test.
from fastgc import plotting
from fastgc._base import text as shown
from fastgc.plotting.panels import new_figure

pytest.importorskip("matplotlib")


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


def test_assignment_writes_numbers_in_a_few_characters():
    """On dark cells they are white; the key reaches as far as the coefficients do."""
    B = np.array([[123.4, -99.6, 0], [0.125, 9999, 0], [12345.0, 0, 3e-7]])
    ax = plotting.assignment(fastgc.LinearCode(B, wait=3))
    texts = {text.get_position()[::-1]: text for text in ax.texts}
    assert {at: text.get_text() for at, text in texts.items()} == {
        (0, 0): "123",
        (0, 1): "\N{MINUS SIGN}1e+02",
        (1, 0): "0.12",
        (1, 1): "9999",
        (2, 0): "1.2e+04",
        (2, 2): "3e\N{MINUS SIGN}07",
    }
    assert (texts[2, 0].get_color(), texts[1, 0].get_color()) == ("white", "black")
    assert {(text.get_ha(), text.get_va()) for text in ax.texts} == {("center", "center")}
    key = ax.figure.axes[1]
    assert key.get_xlim() == (-12345, 12345)
    assert key.get_xlabel() == "coefficient"
    positive = plotting.assignment(fastgc.LinearCode(np.abs(B), wait=3)).figure.axes[1]
    assert positive.get_xlim() == (0, 12345)
    whole = plotting.assignment(fastgc.ReedSolomon(5, stragglers=1)).figure.axes[1]
    assert whole.get_xlim() == (-180, 180)
    assert list(whole.get_xticks()) == [-180, -90, 0, 90, 180]


def test_assignment_numbers_workers_and_partitions():
    for n, workers, partitions in (12, range(12), range(12)), (30, range(0, 30, 2), None):
        ax = plotting.assignment(fastgc.BinaryCode(n, stragglers=1))
        assert list(ax.get_yticks()) == list(workers)
        if partitions is not None:
            assert list(ax.get_xticks()) == list(partitions)
    ax = plotting.assignment(fastgc.LagrangeCode(6, load=2))
    assert ax.get_xlabel().startswith("coded block of data")
    assert ax.get_title() == "LagrangeCode: n = 6 workers, load w = 2"


def test_assignment_writes_no_angle_below_zero():
    """A coefficient of 1 may be rounded to a small negative angle."""
    ax = plotting.assignment(fastgc.ReedSolomon(6, stragglers=2, clusters="auto"))
    written = [text.get_text() for text in ax.texts]
    assert any("\n0°" in text for text in written)
    assert not any("\N{MINUS SIGN}0°" in text for text in written)


def test_colours_of_real_and_complex_coefficients():
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


def test_timeline_of_a_run_begins_rounds_after_the_last_update():
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
    for wrong in (code, [code], "run.json"):
        with pytest.raises(TypeError, match=r"such as fastgc\.train returns, not of "):
            plotting.timeline(wrong)


def test_timeline_of_a_run_knows_who_sent_messages():
    code = fastgc.Uncoded(4, 8, load=4)
    late = fastgc.delays.Exponential(0.01)
    run = fastgc.train(code, rounds=8, engine="simulated", delays=late)
    assert run.message_counts == (4, 4, 4, 4)

    def dots(ax):
        return ax.lines[0].get_xydata().tolist()

    assert dots(plotting.timeline(run)) == dots(plotting.timeline(run.rounds, code))
    run.message_counts = ()  # as read from a file of an earlier version
    with pytest.raises(ValueError, match="give their code, too"):
        plotting.timeline(run)


def test_timeline_of_adaptive_rounds_shows_who_was_asked():
    code = fastgc.Grouped.repetition(6, 3)
    [record] = fastgc.train(code, rounds=1, engine="simulated").rounds
    heard = {"survivors": (4,), "received": (4,), "arrivals": (0.01,), "wait": 0.01}
    some = replace(record, selected=(1, 4), downloads=2, **heard)
    paths = [patch.get_path() for patch in plotting.timeline(some, code).patches]
    corners = np.concatenate([path.vertices[path.codes != path.CLOSEPOLY] for path in paths])
    assert {round(y) for y in corners[:, 1]} == {1, 4}
    nobody = replace(some, selected=(), downloads=0, survivors=(), received=(), arrivals=())
    ax = plotting.timeline([some, nobody], code)
    assert len(ax.lines) == 3  # the dots, and the ends of two rounds


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


def simulated(code, delays, cost=0.0, **options):
    engine = partial(fastgc.SimulatedCluster, cost=cost, interrupted=True)
    return fastgc.train(code, toy(), engine=engine, delays=delays, **options)


def test_timeline_figure_shares_an_axis_of_time():
    late = fastgc.delays.Exponential(0.01)
    codes = {"coded": fastgc.BinaryCode(6, stragglers=2), "uncoded": fastgc.Uncoded(6)}
    runs = {name: simulated(code, late, cost=0.01, rounds=4) for name, code in codes.items()}
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
    slow = simulated(codes["uncoded"], fastgc.delays.Exponential(0.1), rounds=3)
    own = plotting.timeline_figure({"coded": runs["coded"], "slow": slow})
    for ax in own.axes:
        last = ax.lines[-1].get_xdata()[0]
        assert 0.9 * ax.get_xlim()[1] < last < ax.get_xlim()[1]
        assert ax.get_xlabel()
    with pytest.raises(ValueError, match="there is no run"):
        plotting.timeline_figure({})
    with pytest.raises(ValueError, match="who sent the messages"):
        plotting.timeline_figure({"a": replace(runs["coded"], message_counts=())})
    never = report(0, [2], [1.0], np.inf, 0.0)
    with pytest.raises(ValueError, match="round 0 was never over"):
        plotting.timeline(never, codes["coded"])


def test_timeline_shows_who_computes_anothers_share():
    """Worker 1 hangs: at the deadline a holder of its share begins to compute it."""
    hangs = fastgc.delays.Empirical([[0.0, 5.0, 0.0, 0.0]])
    run = simulated(fastgc.Reactive(4, holders=2, deadline=2.0), hangs, cost=1.0, rounds=1)
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


def test_timeline_of_rounds_that_take_no_time():
    run = fastgc.train(fastgc.BinaryCode(4, stragglers=1), rounds=3, engine="simulated")
    assert run.rounds[-1].time == 0
    ax = plotting.timeline(run)
    ax.figure.canvas.draw()
    assert plotting.timeline_figure({"a": run, "b": run}).axes
