"""Coding across rounds: all patterns tolerated by few workers; loads; simulated times."""

import copy
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.patterns import promised

import fastgc
from fastgc.sequential import (
    MSGC,
    SRSGC,
    Independent,
    SequentialCluster,
    simulate_sequential,
)
from fastgc.testing import engines as conformance
from fastgc.testing.engines import ABSENT


def subsets(n):
    return [np.array(bits, dtype=bool) for bits in itertools.product([False, True], repeat=n)]


# ------------------------------------------------------------------------- what schemes tolerate

SCHEMES = {
    "sr 1 2 2": lambda: SRSGC(4, burst=1, window=2, stragglers=2),
    "sr 1 2 3": lambda: SRSGC(4, burst=1, window=2, stragglers=3),
    "sr 1 3 4": lambda: SRSGC(4, burst=1, window=3, stragglers=4),
    "sr 2 3 3": lambda: SRSGC(4, burst=2, window=3, stragglers=3),
    "sr 2 3 2, cyclic": lambda: SRSGC(
        4, burst=2, window=3, stragglers=2, code=fastgc.CyclicRepetition
    ),
    "sr 1 2 3, binary": lambda: SRSGC(5, burst=1, window=2, stragglers=3, code=fastgc.BinaryCode),
    "sr 2 5 3": lambda: SRSGC(4, burst=2, window=5, stragglers=3),
    "m 1 2 1": lambda: MSGC(4, burst=1, window=2, stragglers=1),
    "m 1 2 2": lambda: MSGC(4, burst=1, window=2, stragglers=2),
    "m 1 3 2": lambda: MSGC(3, burst=1, window=3, stragglers=2),
    "m 1 4 1": lambda: MSGC(3, burst=1, window=4, stragglers=1),
    "m 2 3 1": lambda: MSGC(4, burst=2, window=3, stragglers=1),
    "m 2 3 2": lambda: MSGC(3, burst=2, window=3, stragglers=2),
    "m 2 4 3": lambda: MSGC(3, burst=2, window=4, stragglers=3),
    "m 3 4 2": lambda: MSGC(3, burst=3, window=4, stragglers=2),
    "m 1 2 2, binary": lambda: MSGC(5, burst=1, window=2, stragglers=2, code=fastgc.BinaryCode),
    "independent": lambda: Independent(fastgc.ReedSolomon(4, stragglers=2)),
}


LARGE = {"sr 2 3 3", "sr 2 5 3", "m 2 4 3", "m 3 4 2"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in LARGE else ()) for n in SCHEMES]
)
def test_every_pattern_of_the_models_is_tolerated_and_every_job_done_in_time(name):
    """Try all patterns, round by round; a state met before leads to nothing new."""
    scheme = SCHEMES[name]()
    late = subsets(scheme.n)
    for window, admits in promised(scheme):
        seen, tried = set(), 0
        ahead = [(scheme.schedule(), np.zeros((0, scheme.n), dtype=bool))]
        while ahead:
            schedule, past = ahead.pop()
            for stragglers in late:
                pattern = np.vstack([past, stragglers])
                if not admits(pattern):
                    continue
                after = copy.deepcopy(schedule)
                after.begin()
                assert after.enough(~stragglers), pattern
                after.end(~stragglers)
                tried += 1
                assert all(after.round - job <= scheme.delay for job in after.jobs), pattern
                past_of = pattern[-(window - 1) :] if window > 1 else past
                key = (after._state.tobytes(), tuple(after._live), past_of.tobytes())
                if key not in seen:
                    seen.add(key)
                    ahead.append((after, past_of))
        assert tried > len(late) / 2


@pytest.mark.few(5)
@pytest.mark.parametrize("name", SCHEMES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_round_may_end_as_soon_as_all_jobs_could_still_be_done_and_not_before(name, data):
    scheme = SCHEMES[name]()
    schedule = scheme.schedule()
    for _ in range(data.draw(st.integers(1, 8))):
        schedule.begin(job=data.draw(st.booleans()))
        came = np.array(data.draw(st.lists(st.booleans(), min_size=scheme.n, max_size=scheme.n)))
        enough = schedule.enough(came)
        possible = could_be_done(schedule, came)
        if isinstance(scheme, SRSGC):  # it postpones no more than it can make up for
            assert possible or not enough
        else:
            assert enough == possible
        if not enough:
            with pytest.raises(ValueError, match="cannot end yet"):
                schedule.end(came)
        assert schedule.enough(np.ones(scheme.n, dtype=bool)) or isinstance(scheme, SRSGC)
        schedule.end(came if enough else np.ones(scheme.n, dtype=bool))


def could_be_done(schedule, came):
    """Try whether all jobs are done in time if all workers answer from now on."""
    schedule = copy.deepcopy(schedule)
    schedule.scheme = Lenient(schedule.scheme)
    schedule.end(came)
    for _ in range(schedule.scheme.delay + 1):
        if any(schedule.round - job > schedule.scheme.delay for job in schedule.jobs):
            return False
        schedule.begin(job=False)
        schedule.end(np.ones(schedule.scheme.n, dtype=bool))
    return schedule.idle


class Lenient:
    """A scheme that lets every round end."""

    def __init__(self, scheme):
        self._scheme = scheme

    def __getattr__(self, name):
        return getattr(self._scheme, name)

    def tolerable(self, state, live):
        return True


# --------------------------------------------------------------------------- loads and parameters


@pytest.mark.parametrize(
    ("n", "burst", "window", "stragglers"),
    [(4, 1, 2, 1), (6, 2, 3, 2), (6, 1, 4, 5), (5, 2, 4, 0), (6, 2, 3, 6), (256, 1, 2, 27)],
)
def test_the_load_of_msgc_is_the_papers(n, burst, window, stragglers):
    scheme = MSGC(n, burst=burst, window=window, stragglers=stragglers)
    if stragglers == n:
        paper = Fraction(window - 1 + burst, n * (window - 1))
    else:
        paper = Fraction(
            (stragglers + 1) * (window - 1 + burst),
            n * (burst + (window - 1) * (stragglers + 1)),
        )
    # The sizes of mini-tasks, which are all equal, in exact numbers.
    size = {int(load) for code in scheme.parts for load in code.scheme.loads}
    assert len(size) == 1
    assert Fraction(size.pop() * scheme.slots, scheme.k) == paper
    assert scheme.load == pytest.approx(float(n * paper), rel=1e-14)
    assert scheme.delay == window - 2 + burst


def test_the_load_of_msgc_is_no_less_than_any_scheme_needs():
    """The paper's bound is (W - 1 + B) / (n (W - 1) + B (n - lambda))."""
    for n, burst, window in itertools.product([3, 6], [1, 2], [3, 4]):
        for stragglers in range(n + 1):
            bound = Fraction(window - 1 + burst, n * (window - 1) + burst * (n - stragglers))
            load = MSGC(n, burst=burst, window=window, stragglers=stragglers).load / n
            if stragglers in (0, n - 1, n):
                assert load == pytest.approx(float(bound), rel=1e-14)
            else:
                assert load > bound


@pytest.mark.parametrize(
    ("n", "burst", "x", "stragglers"), [(6, 1, 1, 3), (9, 2, 1, 5), (7, 2, 3, 6)]
)
def test_the_load_of_srsgc_is_the_papers(n, burst, x, stragglers):
    scheme = SRSGC(n, burst=burst, window=x * burst + 1, stragglers=stragglers)
    s = -(-Fraction(burst * stragglers, x * burst + burst) // 1)
    assert (scheme.s, scheme.load, scheme.delay) == (s, s + 1, burst)


def test_parts_share_the_partitions_of_a_job():
    scheme = MSGC(4, burst=2, window=3, stragglers=1)
    held = [j for part in range(len(scheme.parts)) for j in scheme.partitions(part)]
    assert held == list(range(scheme.k))
    assert [len(scheme.partitions(part)) for part in range(4)] == [8, 8, 4, 4]
    with pytest.raises(ValueError, match="part 4 does not exist"):
        scheme.partitions(4)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SRSGC(4, burst=2, window=4, stragglers=1), "1 more than a multiple of burst"),
        (lambda: SRSGC(4, burst=1, window=1, stragglers=1), "1 more than a multiple of burst"),
        (lambda: SRSGC(4, burst=1, window=2, stragglers=5), "at most n=4"),
        (lambda: MSGC(4, burst=2, window=2, stragglers=1), "less than window"),
        (lambda: MSGC(4, burst=1, window=2, stragglers=5), "at most n=4"),
        (lambda: MSGC(4, burst=1, window=2, stragglers=-1), "at least 0"),
        (lambda: MSGC(4, burst=0, window=2, stragglers=1), "1 <= burst"),
        (
            lambda: SRSGC(4, burst=1, window=2, stragglers=2, code=lambda n, stragglers: None),
            "must make a code",
        ),
        (
            lambda: MSGC(
                4, burst=1, window=2, stragglers=2, code=lambda n, stragglers: fastgc.Uncoded(n)
            ),
            "must tolerate 2",
        ),
        (
            lambda: MSGC(4, burst=1, window=2, stragglers=1, code=fastgc.LagrangeCode),
            "LagrangeCode",
        ),
        (lambda: Independent(fastgc.Uncoded(4, load=2)), "one message each"),
        (lambda: Independent("rs"), "must be a code of fastgc"),
    ],
)
def test_what_no_scheme_can_be_made_of_is_refused(make, says):
    with pytest.raises((TypeError, ValueError), match=says):
        make()


def test_rounds_of_a_schedule_come_one_after_another():
    schedule = MSGC(4, burst=1, window=2, stragglers=1).schedule()
    with pytest.raises(RuntimeError, match="no round has begun"):
        schedule.enough([0])
    schedule.begin()
    with pytest.raises(RuntimeError, match="end it before"):
        schedule.begin()
    with pytest.raises(ValueError, match="workers from 0 to 3"):
        schedule.end([0, 1, 4])
    with pytest.raises(ValueError, match="cannot end yet"):
        schedule.end([0, 2])  # one of two groups is missing
    assert schedule.end([0, 1, 2, 3]) == []
    assert (schedule.round, schedule.jobs, schedule.idle) == (1, [0], False)


def test_who_repeats_is_as_few_as_suffice_and_answered_last():
    schedule = SRSGC(6, burst=2, window=3, stragglers=4).schedule()  # GC-Rep: i, i + 2 are copies
    assert schedule.scheme.s == 2
    schedule.begin()
    schedule.end([0, 2])  # group 1 is missing
    schedule.begin()
    schedule.end([0, 2, 4, 5])
    tasks = schedule.begin()
    repeating = np.flatnonzero(tasks.age[:, 0] == 2).tolist()
    assert repeating == [5]  # 1 and 3 would do, but were silent longer; 4 would not help


def test_no_more_is_put_off_than_the_model_may_leave():
    schedule = SRSGC(6, burst=1, window=2, stragglers=4, code=fastgc.ReedSolomon).schedule()
    assert schedule.scheme.s == 2
    schedule.begin()
    assert schedule.enough([0, 1])  # two of four messages are missing: lambda - s
    assert not schedule.enough([0])


def test_the_dead_are_not_asked_to_repeat():
    """2 of 7 workers are gone for good, the most the code tolerates; others straggle in turn."""
    scheme = SRSGC(7, burst=1, window=2, stragglers=4, code=fastgc.ReedSolomon)
    assert scheme.s == 2
    schedule, done = scheme.schedule(), []
    for r, late in enumerate([[], [4], [], [5], [], [], []]):
        tasks = schedule.begin(job=r < 6)
        came = [i for i in range(2, 7) if i not in late]
        repeating = np.flatnonzero(tasks.age[:, 0] == 1)
        assert set(repeating.tolist()) <= set(range(2, 7))
        done += schedule.end(came)
    assert done == list(range(6))


# ----------------------------------------------------------------------------------- simulation


def simulated_by_hand(times, scheme, mu):
    """Return durations, by trying each moment at which a worker answers, in order."""
    schedule, jobs = scheme.schedule(), len(times) - scheme.delay
    durations = []
    for r, row in enumerate(times):
        tasks = schedule.begin(job=r < jobs)
        busy = [i for i in range(scheme.n) if (tasks.age[i] >= 0).any()]
        idle = [i for i in range(scheme.n) if i not in busy]
        if not busy:
            durations.append(0.0)
            schedule.end(idle)
            continue
        fastest = min(row[i] for i in busy)
        last = max(row[i] for i in busy)
        for moment in sorted([(1 + mu) * fastest, *(row[i] for i in busy)]):
            came = [i for i in busy if row[i] <= moment]
            if moment >= min((1 + mu) * fastest, last) and schedule.enough([*idle, *came]):
                break
        durations.append(min(moment, last))
        schedule.end([*idle, *came])
    return durations


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("mu", [0.0, 0.4, 2.0])
def test_a_round_lasts_as_long_as_the_rule_says(name, mu):
    scheme = SCHEMES[name]()
    rng = np.random.default_rng(5)
    times = rng.exponential(1.0, (30, scheme.n)) + 0.5
    run = simulate_sequential(times, scheme, mu=mu)
    assert run.rounds.tolist() == pytest.approx(simulated_by_hand(times, scheme, mu), rel=1e-15)
    assert run.seconds == pytest.approx(run.rounds.sum())
    assert run.done.shape == (30 - scheme.delay,)
    ends = np.cumsum(run.rounds)
    late = np.searchsorted(ends, run.done - 1e-9) - np.arange(run.done.size)
    assert ((late >= 0) & (late <= scheme.delay)).all()


def test_a_gradient_code_without_patience_waits_for_as_many_as_it_needs():
    times = np.random.default_rng(1).exponential(1.0, (50, 7))
    run = simulate_sequential(times, Independent(fastgc.ReedSolomon(7, stragglers=2)), mu=0)
    assert np.array_equal(run.rounds, np.sort(times, axis=1)[:, 4])
    assert np.array_equal(run.done, np.cumsum(run.rounds))
    assert (run.stragglers == 2).all()
    uncoded = simulate_sequential(times, Independent(fastgc.Uncoded(7)))
    assert np.array_equal(uncoded.rounds, times.max(axis=1))


def test_times_grow_with_the_load():
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
def test_what_cannot_be_simulated_is_refused(change, says):
    given = {"times": np.ones((5, 4)), "scheme": MSGC(4, burst=1, window=2, stragglers=1)} | change
    with pytest.raises((TypeError, ValueError), match=says):
        simulate_sequential(**given)


# ------------------------------------------------------------------------------------ on workers


class Times:
    """Delays from a table, a row for each round, repeated."""

    per = "round"

    def __init__(self, rows):
        self.rows = np.array(rows, dtype=float)

    def sample(self, round, workers, seed):
        return self.rows[round % len(self.rows)]


def trained(scheme, jobs, *, dtype=np.float64, p=5, idle=(), **options):
    """Return gradients of jobs, which depend on the parameters, and their errors."""
    rng = np.random.default_rng(7)
    shards = list(rng.standard_normal((scheme.k, p)).astype(dtype))
    thetas = rng.standard_normal((jobs, p)).astype(dtype)
    done, begun, waits = [], {}, []
    with SequentialCluster(scheme, shards, conformance.curved, p, dtype, **options) as cluster:
        for i, theta in enumerate(thetas):
            if i in idle:
                done += cluster.step(None)
            begun[cluster.schedule.round] = theta
            given = theta.copy()
            done += cluster.step(given)
            given[:] = np.nan  # the engine has copied it
            waits.append(cluster.report.wait_seconds)
        while not cluster.schedule.idle:
            done += cluster.step(None)
            waits.append(cluster.report.wait_seconds)
        assert cluster.finish() == []
    assert sorted(each.job for each in done) == sorted(begun)
    for each in done:
        assert each.gradient.dtype == dtype
        assert each.residual <= 1e-12
        truth = sum(np.sin(begun[each.job]).astype(float) * shard for shard in shards)
        np.testing.assert_allclose(each.gradient, truth, atol=1e3 * np.finfo(dtype).eps)
    return done, waits


@pytest.mark.parametrize("name", SCHEMES)
def test_gradients_are_sums_whatever_straggles(name):
    scheme = SCHEMES[name]()
    times = np.random.default_rng(3).exponential(1.0, (17, scheme.n)) ** 3
    trained(scheme, 25, engine="simulated", delays=Times(times), mu=0.5, idle=(4, 5, 6, 11))
    trained(scheme, 8, engine="simulated", delays=Times(times), mu=0.0, dtype=np.float32, p=4)


@pytest.mark.parametrize("name", ["sr 2 3 2, cyclic", "sr 1 2 3, binary", "m 2 3 1", "m 1 3 2"])
def test_simulated_rounds_last_as_long_as_predicted(name):
    scheme = SCHEMES[name]()
    times = np.random.default_rng(4).exponential(1.0, (20, scheme.n)) ** 2
    run = simulate_sequential(times, scheme, mu=0.5)
    _, waits = trained(scheme, 20 - scheme.delay, engine="simulated", delays=Times(times), mu=0.5)
    lasted = run.rounds[run.rounds > 0]  # other rounds were not needed
    assert waits == pytest.approx(lasted[: len(waits)].tolist(), rel=1e-12)


@pytest.mark.parametrize(
    "scheme",
    [
        SRSGC(4, burst=1, window=2, stragglers=3),
        MSGC(4, burst=1, window=2, stragglers=1),
        MSGC(3, burst=1, window=2, stragglers=1, code=fastgc.ReedSolomon),
    ],
    ids=repr,
)
def test_worker_processes_compute_what_they_are_told(scheme):
    # One worker is late in every other round, and the others do not wait for it.
    late = [[0.0] * (scheme.n - 1) + [0.3], [0.0] * scheme.n]
    done, _ = trained(scheme, 6, delays=Times(late), mu=1.0, timeout=100.0)
    assert len(done) == 6


def test_jobs_are_told_by_their_numbers():
    scheme = SRSGC(4, burst=2, window=3, stragglers=2)
    shards = [1.0, 2.0, 3.0, 4.0]
    with SequentialCluster(scheme, shards, conformance.telling, 2, engine="simulated") as cluster:
        done = cluster.step(np.zeros(2))
        assert cluster.step(None) == []  # there is no work, so the engine runs no round
        for _ in range(3):
            done += cluster.step(np.zeros(2))
    assert [each.job for each in done] == [0, 2, 3, 4]
    for job, gradient, _ in done:
        told = [conformance.numbered(shard, j, job) for j, shard in enumerate(shards)]
        assert gradient.tolist() == [sum(told), 4 * job]


def test_what_dies_and_does_not_come_back_ends_the_run():
    scheme = MSGC(4, burst=1, window=2, stragglers=1)
    times = [[0.0, 0.0, 0.0, ABSENT], [0.0, 0.0, 0.0, ABSENT]]
    cluster = SequentialCluster(
        scheme, [1.0] * scheme.k, np.multiply, 2, engine="simulated", delays=Times(times),
        timeout=5.0,
    )  # fmt: skip
    with cluster:
        assert cluster.step(np.ones(2)) == []
        with pytest.raises(TimeoutError, match="was not decodable after"):
            cluster.step(np.ones(2))
        with pytest.raises(RuntimeError, match="closed"):
            cluster.step(np.ones(2))


def test_who_never_answers_is_named():
    scheme = MSGC(4, burst=1, window=2, stragglers=1)
    gone = Times([[0.0, 0.0, 0.0, np.inf]])
    with SequentialCluster(
        scheme, [1.0] * 12, np.multiply, 2, engine="simulated", delays=gone, mu=0.0
    ) as cluster:
        assert cluster.step(np.ones(2)) == []
        with pytest.raises(
            fastgc.NotDecodableError, match=r"without workers \[3\], one of the jobs"
        ):
            cluster.step(np.ones(2))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scheme": fastgc.Uncoded(4)}, "one of fastgc.sequential"),
        ({"shards": [1.0] * 3}, "each of the 12 partitions"),
        ({"shards": 12}, "must be a sequence"),
        ({"gradient": "np.multiply"}, "gradient must be callable"),
        ({"batch": 3}, "no option 'batch'"),
        ({"size": 0}, "size must be at least 1"),
        ({"dtype": np.int64}, "dtype"),
        ({"mu": -0.5}, "mu must be"),
        ({"engine": "cloud"}, "unknown engine"),
        ({"verify": True}, "no option 'verify'"),
        ({"ask": True}, "no option 'ask'"),
        ({"delay": None}, "no option 'delay'"),
    ],
)
def test_what_no_cluster_can_be_made_of_is_refused(change, says):
    given = {
        "scheme": MSGC(4, burst=1, window=2, stragglers=1),
        "shards": [1.0] * 12,
        "gradient": np.multiply,
        "size": 2,
        "engine": "simulated",
    } | change
    with pytest.raises((TypeError, ValueError), match=says):
        SequentialCluster(**given)


def test_unsuitable_parameters_leave_a_cluster_open():
    scheme = Independent(fastgc.Uncoded(3))
    with SequentialCluster(scheme, [1.0, 2.0, 3.0], np.multiply, 2, engine="simulated") as cluster:
        with pytest.raises(ValueError, match="theta"):
            cluster.step(np.ones(3))
        with pytest.raises(TypeError, match="theta"):
            cluster.step(np.ones(2, dtype=np.float32))
        [done] = cluster.step(np.ones(2))
        assert done.gradient.tolist() == [6.0, 6.0]
