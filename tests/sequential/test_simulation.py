"""Rounds simulated on recorded times, by the rule itself; schemes ranked by them."""

import contextlib
from functools import partial

import numpy as np
import pytest
from tables import SEQUENTIAL

import fastgc
from fastgc._base import progress
from fastgc.engines import SimulatedCluster
from fastgc.sequential import (
    MSGC,
    Independent,
    SequentialCluster,
    compare,
    make,
    simulate_sequential,
)
from fastgc.sequential.catalogue import candidates
from fastgc.testing import engines as conformance

M = "m-sgc:burst=1,window=2,stragglers=1"


def simulated_by_hand(times, scheme, mu):
    """Try each moment at which a worker answers, in order.

    Return each round's duration, its stragglers, whether it waited for some, and when jobs end.
    """
    schedule, jobs = scheme.schedule(), len(times) - scheme.delay
    rounds, ends = [], {}
    for r, row in enumerate(times):
        tasks = schedule.begin(job=r < jobs)
        busy = [i for i in range(scheme.n) if (tasks.age[i] >= 0).any()]
        idle = [i for i in range(scheme.n) if i not in busy]
        if not busy:
            rounds.append((0.0, 0, False))
            schedule.end(idle)
            continue
        fastest = min(row[i] for i in busy)
        last = max(row[i] for i in busy)
        least = min((1 + mu) * fastest, last)
        for moment in sorted([(1 + mu) * fastest, *(row[i] for i in busy)]):
            came = [i for i in busy if row[i] <= moment]
            if moment >= least and schedule.enough([*idle, *came]):
                break
        rounds.append((min(moment, last), len(busy) - len(came), moment > least))
        done = schedule.end([*idle, *came])
        ends |= dict.fromkeys(done, sum(seconds for seconds, *_ in rounds))
    return [*zip(*rounds, strict=True), [ends[job] for job in range(jobs)]]


@pytest.mark.parametrize("name", SEQUENTIAL)
@pytest.mark.parametrize("mu", [0.0, 0.4, 2.0])
def test_simulate_sequential_by_the_rule(name, mu):
    scheme = SEQUENTIAL[name]()
    rng = np.random.default_rng(5)
    times = rng.exponential(1.0, (30, scheme.n)) + 0.5
    run = simulate_sequential(times, scheme, mu=mu)
    seconds, stragglers, waited, done = simulated_by_hand(times, scheme, mu)
    assert run.rounds.tolist() == pytest.approx(seconds, rel=1e-15)
    assert run.done.tolist() == pytest.approx(done, rel=1e-14)
    assert (tuple(run.stragglers), tuple(run.waited)) == (stragglers, waited)
    assert run.seconds == pytest.approx(sum(seconds))
    assert run.seconds_per_job == pytest.approx(sum(seconds) / (30 - scheme.delay))


def test_simulate_sequential_of_a_gradient_code():
    times = np.random.default_rng(1).exponential(1.0, (50, 7))
    run = simulate_sequential(times, Independent(fastgc.ReedSolomon(7, stragglers=2)), mu=0)
    assert np.array_equal(run.rounds, np.sort(times, axis=1)[:, 4])
    assert np.array_equal(run.done, np.cumsum(run.rounds))
    assert (run.stragglers == 2).all()
    uncoded = simulate_sequential(times, Independent(fastgc.Uncoded(7)))
    assert np.array_equal(uncoded.rounds, times.max(axis=1))


def test_simulate_sequential_load_slope():
    times = np.ones((9, 6))
    code = Independent(fastgc.FractionalRepetition(6, stragglers=2))
    run = simulate_sequential(times, code, load_slope=0.25)
    assert run.rounds.tolist() == [1.5] * 9
    run = simulate_sequential(times, code, load_slope=0.25, at_load=0)
    assert run.rounds.tolist() == [1.75] * 9
    scheme = MSGC(6, burst=1, window=2, stragglers=2)  # mini-tasks of 3 / 4 partitions
    run = simulate_sequential(times, scheme, load_slope=4.0, at_load=0)
    assert run.rounds.tolist() == [4.0, *[7.0] * 7, 4.0]  # first and last round serve one job
    run = simulate_sequential(times, scheme, load_slope=[4.0] * 5 + [6.0], at_load=0)
    assert run.rounds.tolist() == [5.5, *[10.0] * 7, 5.5]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"times": np.ones((5, 3))}, r"shape \(rounds, 4\)"),
        ({"times": np.ones((1, 4))}, "more than 1 rounds"),
        ({"times": np.full((5, 4), np.nan)}, "must be finite"),
        ({"times": -np.ones((5, 4))}, "must not be negative"),
        ({"times": np.ones((5, 4)), "at_load": 2.0, "load_slope": 3.0}, "lower load_slope"),
        ({"mu": -1.0}, "mu must be"),
        ({"load_slope": [1.0]}, "one for each of 4"),
        ({"load_slope": np.inf}, "finite"),
        ({"scheme": fastgc.Uncoded(4)}, "one of fastgc.sequential"),
    ],
)
def test_simulate_sequential_refused(change, says):
    given = {"times": np.ones((5, 4)), "scheme": MSGC(4, burst=1, window=2, stragglers=1)} | change
    with pytest.raises((TypeError, ValueError), match=says):
        simulate_sequential(**given)


def test_compare_chooses_by_the_first_rounds_and_judges_by_the_others():
    rng = np.random.default_rng(1)
    times = 1.0 + rng.exponential(0.1, (60, 6))
    times[rng.random(times.shape) < 0.05] += 5.0
    found = compare(times, ["m-sgc", "binary", "uncoded"], models=3, mu=(0.0, 1.0), probe=20,
                    load_slope=0.5)  # fmt: skip
    seconds = [each.run.seconds_per_job for each in found]
    assert seconds == sorted(seconds)
    for each in found:
        options = candidates(each.name, 6, 2)
        mus = (0.0, 1.0) if each.name == "m-sgc" else (0.0,)
        first = [
            (simulate_sequential(times[:20], option.scheme, mu=mu, load_slope=0.5).seconds_per_job)
            for option in options
            for mu in mus
        ]
        assert [taken for _, taken in each.tried] == first
        chosen = simulate_sequential(times[:20], each.scheme, mu=each.mu, load_slope=0.5)
        assert chosen.seconds_per_job == min(first)
        others = simulate_sequential(times[20:], each.scheme, mu=each.mu, load_slope=0.5)
        assert others.rounds.tolist() == each.run.rounds.tolist()
        assert repr(make(each.text, 6, stragglers=0)) == repr(each.scheme)


@pytest.mark.parametrize(("rounds", "judged"), [(31, 16), (230, 130)])
def test_compare_probes_half_of_the_rounds_at_most_100(rounds, judged, monkeypatch):
    done = []

    @contextlib.contextmanager
    def bar(name, total):
        yield lambda: done.append(total)

    monkeypatch.setattr(progress, "task_bar", bar)
    found = compare(np.ones((rounds, 3)), ["rs", "uncoded"], models=1, progress=True)
    assert {each.run.rounds.size for each in found} == {judged}
    # One run of each choice of stragglers, 0 to 2, one without, and one of each to judge it.
    assert done == [4 + 2] * 6
    done.clear()
    compare(np.ones((rounds, 3)), ["uncoded"], models=1, progress=True)
    assert done == [1]


def test_compare_least_numbers():
    [found] = compare(np.array([[1.0, 2], [1, 2]]), ["rs"], models=1, probe=1)
    assert (found.found, found.run.rounds.tolist()) == ({"stragglers": 1}, [1.0])


def test_compare_without_anything_to_choose():
    times = np.random.default_rng(2).exponential(1.0, (30, 4))
    found = compare(times, [M, "uncoded"], models=2, mu=0.5)
    assert {each.run.rounds.size for each in found} == {30}
    assert {len(each.tried) for each in found} == {1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"times": np.ones(5)}, r"shape \(rounds, workers\)"),
        ({"names": "m-sgc"}, "must be a sequence"),
        ({"names": []}, "must be a sequence"),
        ({"mu": []}, "one value at least"),
        ({"mu": [-1.0]}, "mu must be"),
        ({"models": 0}, "models must be"),
        ({"models": 1}, "none is such"),
        ({"probe": 9}, "10 rounds are too few, 9 of them"),
        ({"probe": 1}, "must be 2 at least"),
        ({"probe": 0}, "probe must be"),
        ({"load_slope": [0.0] * 3}, "load_slope must be a number, or one for each of 4 workers"),
    ],
)
def test_compare_refused(change, says):
    given = {"times": np.ones((10, 4)), "names": ["m-sgc"], "models": 2} | change
    with pytest.raises((TypeError, ValueError), match=says):
        compare(**given)


def test_simulate_sequential_not_interrupted():
    """They are late as on an engine whose workers finish their work."""
    rng = np.random.default_rng(6)
    times = rng.exponential(1.0, (25, 4)) ** 2

    class Rows:
        per = "round"

        def sample(self, round, workers, seed):
            return times[round]

    for scheme in (make(M, 4), make("sr-sgc:burst=2,window=3,stragglers=3", 4), make("uncoded", 4)):
        shards = list(rng.standard_normal((scheme.k, 3)))
        waits = []
        engine = partial(SimulatedCluster, interrupted=False)
        with SequentialCluster(
            scheme, shards, conformance.curved, 3, engine=engine, delays=Rows(), mu=0.5
        ) as cluster:
            for _ in range(25 - scheme.delay):
                cluster.step(np.ones(3))
                waits.append(cluster.report.wait_seconds)
        foreseen = simulate_sequential(times, scheme, mu=0.5, interrupted=False)
        assert waits == pytest.approx(foreseen.rounds[: len(waits)].tolist(), rel=1e-12)
        dropped = simulate_sequential(times, scheme, mu=0.5)
        assert foreseen.seconds >= dropped.seconds
        assert (foreseen.seconds > dropped.seconds) == (scheme.delay > 0)


def test_simulate_sequential_load_slope_of_each_round():
    per_partition = np.random.default_rng(3).exponential(1.0, (12, 4))
    scheme = make("fractional", 4, stragglers=1)
    run = simulate_sequential(np.zeros((12, 4)), scheme, mu=0, load_slope=per_partition, at_load=0)
    twice = simulate_sequential(2 * per_partition, scheme, mu=0)
    assert run.rounds == pytest.approx(twice.rounds)
    with pytest.raises(ValueError, match="or of 12 rounds and these"):
        simulate_sequential(np.zeros((12, 4)), scheme, load_slope=np.ones((4, 12)))


def test_standard_error_is_that_of_means():
    times = np.random.default_rng(4).exponential(1.0, (100, 4))
    for scheme in (make("uncoded", 4), make(M, 4)):
        run = simulate_sequential(times, scheme)
        batches = run.rounds.reshape(10, 10).mean(axis=1)
        said = 100 / (100 - scheme.delay) * batches.std(ddof=1) / np.sqrt(10)
        assert run.standard_error == pytest.approx(said)
    uncoded = make("uncoded", 1)
    nine = simulate_sequential(np.array([[1.0] * 3 + [2] * 3 + [6] * 3]).T, uncoded)
    assert nine.standard_error == pytest.approx(np.sqrt(7 / 3))  # of means 1, 2 and 6
    assert np.isnan(simulate_sequential(np.ones((8, 1)), uncoded).standard_error)
