"""Options that commands share: codes, sizes, recorded times, delays."""

import json

import numpy as np
import pytest
from commands import COST, RECORDED, SMALL, done, refused
from hypothesis import example, given
from hypothesis import strategies as st

from fastgc import delays
from fastgc.cli.options import counts, named, pairs, recording_of, repeated, size_of
from fastgc.delays.text import FORMS

TOLERATING = [name for name in SMALL if name != "sequential"]  # commands that take stragglers
TIMED = ("decode", "time", "standard_error", "wait", "seconds", "µs")  # these differ between runs


def timeless(held):
    """Return figures without measured times."""
    if isinstance(held, dict):
        kept = {k: v for k, v in held.items() if not any(part in k for part in TIMED)}
        return {key: timeless(value) for key, value in kept.items()}
    if isinstance(held, list):  # rows are ranked by measured times
        return sorted((timeless(each) for each in held), key=repr)
    return held


@pytest.mark.parametrize("command", TOLERATING)
def test_codes_and_sizes_are_written_alike(command):
    """Codes follow the name, separated by blanks or commas; sizes are -n and -s, or one text."""

    def figures(*arguments):
        return timeless(json.loads(done(command, *arguments, *SMALL[command], "--json").stdout))

    expected = figures("rs", "binary", "-n", "8", "-s", "2")
    assert expected
    for arguments in (
        ("rs,binary", "-n", "8/2"),
        ("-n", "8", "rs", "-s", "0.25", "binary"),
        ("rs", "binary", "--workers=8", "--stragglers", "2"),
    ):
        assert figures(*arguments) == expected, arguments
    assert figures("-n", "4/0", "uncoded") == figures("-n", "4", "-s", "0", "uncoded")


@pytest.mark.parametrize("command", TOLERATING)
def test_sizes_that_cannot_be_are_one_line(command):
    assert "--workers: 'x' is neither a number" in refused(command, "rs", "-n", "x")
    assert "leave out --stragglers" in refused(command, "rs", "-n", "8/2", "-s", "1")
    assert "at least one worker, not '0:2'" in refused(command, "rs", "-n", "0:2")
    if command != "stability":
        assert "takes one size, as in 20 or 20/4, not '8,9'" in refused(command, "-n", "8,9")
        assert "takes one number, as in 4, not '0:2'" in refused(command, "-n", "8", "-s", "0:2")
        assert "stragglers must be in 0 .. n-1 = 7, not 8" in refused(command, "-n", "8/8")


@given(
    ranges=st.lists(
        st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(1, 9)), min_size=1
    )
)
def test_counts_of_ranges_have_their_last(ranges):
    text = ",".join(f"{first}:{first + more}:{step}" for first, more, step in ranges)
    expected = [each for a, more, step in ranges for each in range(a, a + more + 1, step)]
    assert counts("-s", text) == expected


@example(n=100, thousandths=290)
@given(n=st.integers(1, 10**9), thousandths=st.integers(0, 999))
def test_counts_of_fractions_are_exact(n, thousandths):
    """0.29 of 100 workers are 29; floating point would round down to 28."""
    assert counts("-s", f"0.{thousandths:03}", n) == [n * thousandths // 1000]


def test_counts_of_numbers():
    assert counts("-n", "7, 3:5 ,1") == [7, 3, 4, 5, 1]
    assert len(counts("-s", "0:9999")) == 10_000
    assert counts("--stragglers", "0") == [0]
    assert counts("--workers", "1") == [1]
    for option, text, n, says in (
        ("-s", ",", None, "-s must name a number"),
        ("-s", "5:4", None, "'5:4'"),
        ("-s", "0:10000", None, "'0:10000' has more than 10000 numbers"),
        ("-s", "0.5", None, "'0.5' is neither .* or 0:8:2$"),
        ("-s", "1.5", 8, "'1.5' is neither .*, nor a fraction of n"),
        ("-s", "0:8:0", 8, "'0:8:0' is neither"),
    ):
        with pytest.raises(ValueError, match=says):
            counts(option, text, n)


def test_pairs_of_workers_and_stragglers():
    assert pairs("1,16,64", None, "0.125") == [(1, 0), (16, 2), (64, 8)]
    assert pairs("16/3,64", None, "0.125") == [(16, 3), (64, 8)]
    assert pairs("16/3,64", "5,5", "0.125") == [(16, 3), (64, 5)]
    assert pairs("8:9", "0:1", "") == [(8, 0), (8, 1), (9, 0), (9, 1)]
    for sizes, stragglers, says in (
        ("16/3", "5", "leave out --stragglers"),
        ("9/1:2", None, "1:2"),
    ):
        with pytest.raises(ValueError, match=says):
            pairs(sizes, stragglers, "0.125")


def test_size_of_has_a_fifth_of_stragglers():
    class What:
        workers, stragglers = "20", None

    assert size_of(What) == (20, 4)
    assert size_of(What, 11) == (11, 2)
    assert size_of(What, 11, default=0) == (11, 0)
    What.stragglers = "0.5"
    assert size_of(What) == (20, 10)
    assert size_of(What, 12, default=0) == (12, 6)
    What.workers = "20/3"
    with pytest.raises(ValueError, match="--workers 20/3"):
        size_of(What)
    What.stragglers = None
    assert size_of(What) == (20, 3)
    assert size_of(What, 12) == (12, 2)  # of recorded times, which say how many workers there are


def test_names_are_split_at_blanks_and_commas():
    assert named(["rs:clusters=auto,root=1", "binary,bcc"]) == [
        "rs:clusters=auto,root=1", "binary", "bcc"]  # fmt: skip
    assert named(None) == named([""]) == named([","]) == []


@pytest.mark.parametrize("name", ["train", "plan", "simulate", "sequential"])
def test_delays_are_explained(name):
    shown = done(name, "--delays", "help").stdout
    for form, meaning in FORMS:
        assert f"{form}\n    {meaning}\n" in shown
    assert "added by others" not in shown


class Odd:
    """Delays that do not say how heavy their tails are."""

    def sample(self, round, workers, seed):
        return np.full(workers, 0.1)


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_delays_of_others(command):
    delays.register("odd", Odd)
    small = "uncoded", "-n", "4", "-s", "0", "--rounds", "20"
    said = done(command, *small, "--delays", "odd").stderr
    assert said.startswith("the mean time of uncoded may not exist: ")


@pytest.mark.parametrize("command", ["train", "plan", "simulate", "sequential"])
def test_what_recorded_times_tell_is_not_said(command, tmp_path):
    times = ("--recorded", RECORDED)
    assert "--workers and --recorded exclude each other" in refused(command, *times, "-n", "12")
    said = refused(command, *times, "--delays", "none")
    assert "--delays and --recorded exclude each other" in said
    assert "name the table by --recorded" in refused(command, "--unit", "ms")
    assert "name the table by --recorded" in refused(command, "--per", "round")
    assert "more than half of the times take" in refused(command, *times, "--cost", "1")
    table = tmp_path / "times.csv"
    table.write_text("1,2\n3,4\n")
    assert "give --cost, how many seconds" in refused(command, "--recorded", table)
    assert "no such file" in refused(command, "--recorded", tmp_path / "none.csv")


def test_repeated_less_often_for_many_workers():
    for asked, n, expected in (
        (None, 5000, 2000),
        (None, 20_000, 500),
        (None, 10**8, 5),
        (7, 10**8, 7),
        (0, 12, 0),
    ):
        assert repeated(asked, 2000, n) == expected, (asked, n)


def test_recorded_times_in_milliseconds(tmp_path):
    path = tmp_path / "times.csv"
    np.savetxt(path, 1e3 * np.loadtxt(RECORDED, delimiter=","), delimiter=",", fmt="%.17g")
    asked = "simulate", "rs", "-s", "3", "--rounds", "50", "--json", "--recorded"
    whole = json.loads(done(*asked, RECORDED, "--cost", COST).stdout)
    table = json.loads(done(*asked, path, "--unit", "ms", "--cost", COST).stdout)
    assert table["rs"]["mean"] == pytest.approx(whole["rs"]["mean"])
    # A time of one computation is the delay of each partition, and nothing is added.
    each = json.loads(done(*asked, path, "--unit", "ms", "--per", "COMPUTATION").stdout)
    assert each["rs"]["mean"] == pytest.approx(4 * whole["rs"]["mean"], rel=0.2)


def test_what_is_read_is_said(tmp_path):
    """Also of tables deep in a text; standard output has figures alone."""
    path = tmp_path / "a.csv"
    path.write_text("round,w0,w1,w2\n" + "".join(f"{i},{i % 3 + 5.5},7.5,35.5\n" for i in range(9)))
    read = (
        f"fastgc: {path}: 9 rounds of 3 workers, 5.5 ms … 35.5 ms, columns w0 … w2; left out: round"
    )
    text = f"empirical:{path},unit=ms | outages:sizes=1/1/1,probability=0.1,seconds=1"
    asked = "simulate", "uncoded", "--rounds", "5", "--json"
    for more in (
        ("-n3", "--delays", text),
        ("--recorded", path, "--unit", "ms", "--cost", "0.001"),
    ):
        found = done(*asked, *more)
        assert found.stderr.splitlines().count(read) == 1
        json.loads(found.stdout)
    assert read in done("fit", path, "--unit", "ms").stderr
    one = done("fit", path, "--unit", "ms", "--columns", "w0,3").stderr
    assert "5.5 ms … 7.5 ms, columns w0 … w1; left out: round, w2" in one
    assert "column w0; left" in done("fit", path, "--unit", "ms", "--columns", "w0").stderr
    said = done(*asked, "--recorded", RECORDED, "--cost", COST).stderr
    assert f"{RECORDED}: 200 rounds of 12 workers, 5.53 ms … 2.81 s" in said


TIMES = np.random.default_rng(0).random((7, 4)) + 1


def test_recording_of(tmp_path):
    path = tmp_path / "times.csv"
    np.savetxt(path, TIMES, delimiter=",", fmt="%.17g")
    read = recording_of(path, 0.25, None, "round", None)
    assert np.array_equal(read.times, TIMES)
    assert (read.cost, read.per, read.source) == (0.25, "round", "7 rounds of 4 workers, times.csv")
    assert np.allclose(read.delays.samples, TIMES - 0.25)
    read = recording_of(path, None, "ms", "computation", None)
    assert (read.cost, read.per, read.delays.per) == (0, "computation", "computation")
    assert np.array_equal(read.times, TIMES / 1000)
    for cost, per, unit, says in (
        (None, "round", None, r"times\.csv: give --cost, how many seconds of each time compute"),
        (0.1, "computation", None, "times per computation have no further cost, not"),
        (3.0, "round", None, "a cost of 3 s is more than half of the times take"),
        (0.1, "round", "ms", "is their unit ms"),
    ):
        with pytest.raises(ValueError, match=says):
            recording_of(path, cost, unit, per, None)
    path.write_text("1,2,3")
    with pytest.raises(ValueError, match="not a single row or column of 3"):
        recording_of(path, 0.0, None, "round", None)


def test_recording_of_times_below_the_cost(tmp_path):
    """They are no negative delays."""
    path = tmp_path / "times.csv"
    path.write_text("0.001,0.02\n0.01,0.005\n")
    read = recording_of(path, 0.005, None, "round", None)
    np.testing.assert_allclose(read.delays.samples, [[0, 0.015], [0.005, 0]], atol=1e-15)
