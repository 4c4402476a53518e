"""Figures from published times, on small made-up files in the publishers' formats."""

import json
import pickle
from functools import cache

import numpy as np
import pytest
from typer.testing import CliRunner

import fastgc
from fastgc import papers
from fastgc.cli import app
from fastgc.delays import Empirical
from fastgc.papers import recorded
from fastgc.papers.recorded import Recorded, Timed

pytestmark = pytest.mark.any_backend

RNG = np.random.default_rng(0)


def write_profile(path, times):
    """Write a profile like the authors' scripts: a list of rounds, with NumPy integers in it."""
    rounds = []
    for number, row in enumerate(times):
        results = [
            {
                "worker_id": np.int64(worker),
                "started": 5000.0 + number,
                "finished": 5000.0 + number + seconds,
                "response": {"StatusCode": 200, "ResponseMetadata": {"RetryAttempts": 0}},
                "payload": "removed",
                "runtime": 1e9,  # edited by hand in some files, so not measured
            }
            for worker, seconds in enumerate(row)
        ]
        rounds.append({"round": number, "started": 0.0, "finished": 99.0, "results": results[::-1]})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(rounds))


def name_of(load, region="Canada", n=6, rounds=8):
    return f"w{n}-n{rounds}-l{load:.3f}".replace(".", "_") + f"-b64-cno_forloop-{region}.pkl"


@pytest.fixture
def profiles(tmp_path):
    """Profiles of six workers; one in each round is a second late; all data take 0.6 s."""
    folder = tmp_path / "delay_profiles" / "sam-gc-cnn_profile_est_made_up"
    times = 0.1 + 0.001 * RNG.random((8, 6))
    times[np.arange(8), np.arange(8) % 6] += 1.0
    for load in (0.0, 0.5, 1.0):
        write_profile(folder / name_of(load), times + 0.6 * load)
    return folder.parent, times


def test_profiles_are_read_raw(profiles):
    folder, times = profiles
    path = next(folder.rglob(name_of(0.5)))
    np.testing.assert_allclose(recorded.read_profile(path), times + 0.3)


def test_krishnan2023(profiles):
    folder, times = profiles
    [figure] = papers.reproduce(["krishnan2023"], data=str(folder))
    rows = {row.what: row for row in figure.rows}
    assert {row.figure for row in figure.rows} == {
        "krishnan2023 cnn_made_up Canada, 6 workers, 8 rounds"
    }
    cost = 0.6 / 6
    uncoded = rows["uncoded, load 1: s per gradient"]
    assert uncoded.ours == pytest.approx(times.max(axis=1).mean() + cost, rel=1e-6)
    assert uncoded.interval[0] <= uncoded.ours <= uncoded.interval[1]
    for load in (2, 3):  # any n - s workers suffice, so rounds do not wait for the late one
        ours = rows[f"rs, load {load}: s per gradient"].ours
        expected = np.sort(times, axis=1)[:, 6 - load].mean() + load * cost
        assert ours == pytest.approx(expected, rel=1e-6)
    assert rows["fractional, load 2: s per gradient"].ours < 0.32
    assert any(what.startswith("SR-SGC, mu = 1, load") for what in rows)
    assert any(what.startswith("M-SGC, mu = 0, load") for what in rows)
    best = next(row for row in figure.rows if row.what.startswith("fastest code"))
    assert 0.25 < best.ours < 0.35
    assert "Coding loses" not in best.note
    [panel] = figure.panels
    assert len({line.label for line in panel.lines}) == len(panel.lines)


def test_the_authors_schemes_are_those_of_sequential(profiles):
    from fastgc.sequential import MSGC, simulate_sequential

    folder, times = profiles
    [figure] = papers.reproduce(["krishnan2023"], data=str(folder))
    [row] = [row for row in figure.rows if row.what.startswith("M-SGC, mu = 1")]
    tried = [
        simulate_sequential(
            times, MSGC(6, burst=b, window=w, stragglers=s), load_slope=0.1, at_load=0
        )
        for b, w in ((1, 2), (1, 3), (2, 3))
        for s in (2, 4)
    ]
    assert row.ours == pytest.approx(min(run.seconds_per_job for run in tried), rel=1e-6)
    assert "of 6 tried" in row.note


def test_the_authors_table_is_beside_the_same_schemes(tmp_path):
    from fastgc.sequential import SRSGC, simulate_sequential

    times = 0.5 + RNG.exponential(0.25, (5, 256))
    for region in ("Canada", "Tokyo"):
        folder = tmp_path / "sam-gc-cnn_profile_est_made_up"
        for load in (0.0, 1.0):
            write_profile(folder / name_of(load, region, 256, 5), times + 2.2 * load)
    [figure] = papers.reproduce(["krishnan2023"], data=str(tmp_path))
    rows = {row.what.partition(",")[0]: row for row in figure.rows if row.paper is not None}
    assert sorted(rows) == ["M-SGC", "SR-SGC", "gradient code"]
    assert all("Canada" in row.figure and row.note for row in rows.values())  # as in the paper
    cost = 2.2 / 256
    uncoded = (times.max(axis=1) + cost).mean()
    scheme = SRSGC(256, burst=2, window=3, stragglers=23)
    run = {
        wait: simulate_sequential(times, scheme, mu=1, load_slope=cost, at_load=0, wait=wait)
        for wait in ("model", "jobs")
    }
    row = rows["SR-SGC"]
    assert row.ours == pytest.approx(run["model"].seconds / 3 / uncoded, rel=1e-6)
    [sooner] = [
        each for each in figure.rows if each.what.startswith("SR") and "sooner" in each.what
    ]
    assert sooner.ours == pytest.approx(run["jobs"].seconds / 3 / uncoded, rel=1e-6)
    assert row.paper == pytest.approx(1019.46 / 1321.18)
    assert row.interval[0] < row.ours < row.interval[1]


def test_loads_of_the_authors_table_are_theirs():
    [figure] = papers.reproduce(["krishnan-loads"])
    assert len(figure.rows) == 4
    for row in figure.rows:
        assert row.ours == pytest.approx(row.paper, abs=5e-7)  # to the digits printed
    lines = {line.label: line for line in figure.panels[0].lines}
    assert (lines["M-SGC, B = 1, W = 2"].y < lines["SR-SGC, B = 2, W = 3"].y).all()


def test_where_coding_loses_is_said(tmp_path):
    folder = tmp_path / "sam-gc-cnn_profile_est_slow"
    times = 0.1 + 0.001 * RNG.random((8, 6))
    for load in (0.0, 0.5, 1.0):
        write_profile(folder / name_of(load), times + 60 * load)
    [figure] = papers.reproduce(["krishnan2023"], data=str(tmp_path))
    assert figure.rows[-1].ours > 1.9
    assert figure.rows[-1].note == "Coding loses here: no code is as fast as waiting for all."


def test_an_empty_round_that_is_like_no_other_is_not_used(tmp_path):
    folder = tmp_path / "sam-gc-resnet_profile_est"
    times = 9.0 + 0.001 * RNG.random((8, 6))
    for load in (0.25, 0.5, 1.0):
        write_profile(folder / name_of(load), times + load)
    write_profile(folder / name_of(0.0), np.full((8, 6), 0.1))
    [figure] = papers.reproduce(["krishnan2023"], data=str(tmp_path))
    assert figure.rows[0].ours == pytest.approx(times.max(axis=1).mean() + 1 / 6, rel=1e-6)
    assert "rounds of load 0.25 of all data, less what that took" in figure.rows[0].note


def test_several_experiments_have_a_mean(profiles):
    folder, _ = profiles
    other = next(folder.iterdir())
    times = 0.1 + 0.001 * RNG.random((8, 6))
    times[:, 0] += 0.3
    for load in (0.0, 1.0):
        write_profile(other / name_of(load, "Tokyo"), times + 0.6 * load)
    write_profile(other / name_of(0.004, "Sydney"), times)  # one file alone has no slope
    [figure] = papers.reproduce(["krishnan2023"], data=str(folder))
    assert len(figure.panels) == 2
    over = {row.what.partition(":")[0]: row for row in figure.rows if " all 2" in row.figure}
    each = [row.ours for row in figure.rows if row.what == "rs, load 2: s per gradient"]
    plain = [row.ours for row in figure.rows if row.what.startswith("uncoded")]
    expected = np.sqrt(each[0] / plain[0] * each[1] / plain[1])
    row = over["rs, load 2"]
    assert row.ours == pytest.approx(expected)
    assert row.interval[0] <= row.ours <= row.interval[1]
    assert row.interval[0] <= min(np.divide(each, plain)) * 1.1


class Evil:
    def __reduce__(self):
        return eval, ("print('this must not run')",)


@pytest.mark.parametrize(
    ("held", "says"),
    [
        ([{"results": [Evil()]}], "it names builtins.eval"),
        ([1, 2], "is no delay profile of github.com/mamaj"),
        ([], "it must hold positive times"),
        ([{"results": [{"worker_id": 0, "started": 2.0, "finished": 1.0}]}], "positive times"),
        (
            [{"results": []}, {"results": [{"worker_id": 0, "started": 0, "finished": 1}]}],
            "round 1",
        ),
    ],
)
def test_files_that_are_no_profiles(tmp_path, capsys, held, says):
    path = tmp_path / name_of(0.0)
    path.write_bytes(pickle.dumps(held))
    with pytest.raises(ValueError, match=says):
        recorded.read_profile(path)
    assert capsys.readouterr().out == ""
    path.write_bytes(b"version https://git-lfs")
    with pytest.raises(ValueError, match="is no delay profile"):
        recorded.read_profile(path)


# ---------------------------------------------------------------------------------- ByteDance


def write_trace(path, times, **columns):
    """Write a trace of ranks in two stages, with the published columns; a step begins at 3 s."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    held = []
    for step, row in enumerate(times):
        for rank, seconds in enumerate(row):
            for stage in (0, 1):
                where = {
                    "dp_rank": rank,
                    "stage": stage,
                    "rank": 2 * rank + stage,
                    "step": 7 * step,
                }
                end = 3 + seconds * (1 - 0.25 * stage)  # the first stage ends last
                for kind, start, stop in (
                    ("params-all-gather", 3.0, 3.001),
                    ("forward-compute", 3.002, 3.003),
                    ("backward-compute", 3.003, end),
                    ("grads-reduce-scatter", end, 100.0),  # waits for the last rank
                ):
                    held.append(
                        {
                            **where,
                            "optype": kind,
                            "mb_id": 0 if kind.endswith("compute") else -1,
                            "start_ts": start,
                            "duration": stop - start,
                        }
                    )
    table = {name: np.array([each[name] for each in held]) for name in held[0]}
    table["optype"] = pyarrow.array(table["optype"].tolist()).dictionary_encode()
    for name in ("start_ts", "duration"):
        table[name] = table[name].astype(np.float32)
    table |= columns
    parquet.write_table(
        pyarrow.table({name: each for name, each in table.items() if each is not None}), path
    )


def end_of_pipeline(forward, backward):
    """Return the seconds of a pipeline, by definition, from arrays (stages, microbatches).

    A forward computation waits for the stage before it, a backward one for the stage after it.
    Stage s of p holds at most p - s activations: microbatch i goes forward after i - (p - s) is
    back.
    """
    stages, microbatches = forward.shape

    @cache
    def end(kind, s, i):
        if s < 0 or s == stages or i < 0:
            return 0.0
        if kind == "forward":
            waits_for = (
                ("forward", s - 1, i),
                ("forward", s, i - 1),
                ("backward", s, i - stages + s),
            )
            return forward[s, i] + max(end(*each) for each in waits_for)
        last_forward = min(i + stages - 1 - s, microbatches - 1)  # forward runs ahead by this
        waits_for = (("backward", s + 1, i), ("backward", s, i - 1), ("forward", s, last_forward))
        return backward[s, i] + max(end(*each) for each in waits_for)

    return max(end("backward", s, microbatches - 1) for s in range(stages))


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (1, 5), (3, 2), (4, 4), (4, 9)])
def test_pipelines_take_as_long_as_their_longest_path(stages, microbatches):
    rng = np.random.default_rng(stages * microbatches)
    forward, backward = rng.exponential(size=(2, 3, 2, stages, microbatches))
    for copies in (1, 2, 3):
        spans = recorded.makespan(forward, backward, copies)
        assert spans.shape == (3, 2)
        for at in np.ndindex(3, 2):
            repeated = (np.tile(each[at], copies) for each in (forward, backward))
            assert spans[at] == pytest.approx(end_of_pipeline(*repeated), rel=1e-12)
    # With equal computations, the pipeline fills once; then each pair takes its own time.
    equal = np.full((stages, microbatches), 2.0), np.full((stages, microbatches), 3.0)
    for copies in (1, 4):
        expected = 5 * (copies * microbatches + stages - 1)
        assert recorded.makespan(*equal, copies) == pytest.approx(expected)


def test_partitions_of_pipelines_take_less_than_so_many_times_as_long():
    rng = np.random.default_rng(5)
    took = rng.random((2, 6, 3, 4, 8))
    trace = recorded.Trace(1 + recorded.makespan(*took), *took)
    seconds = trace.seconds([1, 2, 4])
    np.testing.assert_array_equal(seconds[:, 0], trace.times[:, 0])
    for rank, w in ((1, 2), (2, 4)):
        expected = 1 + recorded.makespan(*took, w)[:, rank]
        np.testing.assert_allclose(seconds[:, rank], expected, rtol=1e-12)
        assert (seconds[:, rank] < w * trace.times[:, rank]).all()


def test_bytedance2025(tmp_path):
    times = 1 + 0.1 * RNG.random((9, 4))
    write_trace(tmp_path / "trace-XX.parquet", times)
    trace = recorded.read_trace(tmp_path / "trace-XX.parquet")
    np.testing.assert_allclose(trace.times, times, rtol=1e-5)
    assert trace.forward.shape == trace.backward.shape == (9, 4, 2, 1)
    np.testing.assert_allclose(trace.forward, 0.001, rtol=1e-5)
    ends = times[..., np.newaxis] * [1, 0.75]
    np.testing.assert_allclose(trace.backward[..., 0], ends - 0.003, rtol=1e-5)
    twice = times.copy()  # the times of two partitions
    for at in np.ndindex(times.shape):
        took = np.full((2, 1), 0.001), ends[at][:, np.newaxis] - 0.003
        twice[at] += end_of_pipeline(*(np.tile(each, 2) for each in took)) - end_of_pipeline(*took)
    third = np.sort(twice, axis=1)[:, 2].mean()
    times[:, 2] += 9
    write_trace(tmp_path / "trace-YY.parquet", times)
    [figure] = papers.reproduce(["bytedance2025"], data=str(tmp_path))
    rows = {(row.figure.split()[1][:2], row.what): row for row in figure.rows}
    assert rows["XX", "uncoded, load 1: s per gradient"].ours < 1.2
    rs = rows["XX", "rs, load 2: s per gradient"].ours
    assert rs == pytest.approx(third, rel=1e-5)
    verdicts = [row for row in figure.rows if row.what.startswith("fastest code")]
    assert verdicts[0].ours > 1.4
    assert verdicts[0].note.startswith("Coding loses here")
    assert verdicts[1].ours < 0.3
    assert "Coding loses" not in verdicts[1].note
    one = papers.reproduce(["bytedance2025"], data=str(tmp_path / "trace-YY.parquet"))
    assert len(next(one).panels) == 1


def test_the_name_of_a_code_is_seen_in_a_narrow_terminal(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    write_trace(tmp_path / "trace-XX.parquet", 1 + 0.1 * RNG.random((9, 4)))
    shown = CliRunner().invoke(app, ["reproduce", "bytedance2025", "--data", str(tmp_path)])
    assert shown.exit_code == 0
    table = shown.stdout.partition("[1]")[0]
    assert all(len(line) <= 80 for line in table.splitlines())
    for name in ("uncoded", "rs-clustered", "binary", "fractional", "bcc"):
        assert name in shown.stdout
    assert "…" not in shown.stdout
    assert "paper" not in table  # empty columns are left out


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"dp_rank": None, "step": None}, "it has no column dp_rank and step, but stage, rank"),
        ({"duration": np.full(96, np.nan)}, "ranks, steps and times must be numbers, none missing"),
        (
            {"mb_id": np.arange(96)},
            "stage 0 of rank 0 has 0 times forward-compute of microbatch 2 in step 0; each stage",
        ),
        ({"optype": ["gc"] * 96}, "rank 0 computes nothing in step 0"),
    ],
)
def test_files_that_are_no_traces(tmp_path, columns, says):
    path = tmp_path / "trace-XX.parquet"
    write_trace(path, np.ones((3, 4)), **columns)
    with pytest.raises(ValueError, match=f"is no trace of github.com/ByteDance-Seed.*{says}"):
        recorded.read_trace(path)


def test_a_single_rank_waits_for_nobody(tmp_path):
    write_trace(tmp_path / "trace-XX.parquet", np.ones((3, 1)))
    with pytest.raises(ValueError, match="has nobody to wait for"):
        next(papers.reproduce(["bytedance2025"], data=str(tmp_path)))


# ------------------------------------------------------------------------------------- both


@pytest.mark.parametrize("name", ["krishnan2023", "bytedance2025"])
def test_data_are_asked_for(tmp_path, name):
    for data, error, says in (
        (
            None,
            ValueError,
            rf"{name} needs data=PATH \(--data PATH\), the folder .* of github.com/",
        ),
        (
            str(tmp_path),
            ValueError,
            rf"{tmp_path} has no .*: {name} takes the folder .*github.com/",
        ),
        (str(tmp_path / "nowhere"), FileNotFoundError, "there is no f.* .*nowhere"),
    ):
        with pytest.raises(error, match=says):
            next(papers.reproduce([name], data=data))
    assert name not in papers.FIGURES  # these are computed without data
    shown = CliRunner().invoke(app, ["reproduce", name])
    assert shown.exit_code == 2
    assert "github.com/" in shown.stderr


def test_command(profiles, tmp_path):
    folder, _ = profiles
    arguments = ["reproduce", "krishnan2023", "--data", str(folder)]
    shown = CliRunner().invoke(app, [*arguments, "--json"])
    listed = json.loads(shown.stdout)
    assert len(listed[0]["interval"]) == 2
    shown = CliRunner().invoke(app, [*arguments, "--markdown", "--plots", str(tmp_path)])
    low, high = listed[0]["interval"]
    assert f"| {listed[0]['ours']:.4g} ({low:.3g} to {high:.3g}) |" in shown.stdout
    assert (tmp_path / "krishnan2023.png").exists()


def test_rounds_are_replayed_in_order():
    times = RNG.random((30, 5))
    seconds = Recorded("x", Empirical(times), 0.25).seconds(fastgc.Uncoded(5))
    np.testing.assert_allclose(seconds, times.max(axis=1) + 0.25, rtol=1e-9)


def test_intervals_cover():
    """Bootstrap intervals of means of 40 exponential times cover somewhat less than 95 %."""
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(200):
        low, high = recorded.interval(rng.exponential(1.0, 40), seed)
        covered += low <= 1 <= high
    assert 0.86 <= covered / 200 <= 0.99


def test_verdict_pairs_rounds():
    """A code that always takes half the time does so in every resampling."""
    seconds = RNG.exponential(1.0, 20)
    timed = [Timed("uncoded", 1, seconds), Timed("rs", 2, seconds / 2)]
    row = recorded.verdict("x", "y", timed, 0)
    assert row.ours == pytest.approx(0.5)
    assert row.interval == pytest.approx((0.5, 0.5))
    [row] = recorded.overall("x", [timed], 0)
    assert row.interval == pytest.approx((0.5, 0.5))
