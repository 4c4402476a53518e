"""What SR-SGC and M-SGC promise: all patterns of few workers, drawn ones of more; loads.

Patterns of stragglers are those of the models that schemes tolerate. Then no round waits, no job is
late, and gradients are exact.
"""

import copy
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs_across_rounds import Times
from oracles.patterns import promised
from strength import much
from tables import SEQUENTIAL

import fastgc
from fastgc.sequential import MSGC, SRSGC, SequentialCluster
from fastgc.testing import engines as conformance

ROUNDS = 14


def drawn(data, scheme, rounds):
    """Draw a pattern that a scheme tolerates: add stragglers in random order while it does."""
    n, (_, admits) = scheme.n, data.draw(st.sampled_from(promised(scheme)))
    pattern = np.zeros((rounds, n), dtype=bool)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    density = data.draw(st.sampled_from([0.1, 0.5, 1.0]))
    places = rng.permutation(rounds * n)[: round(density * rounds * n)]
    if data.draw(st.booleans()):  # in order of rounds, which makes bursts long
        places.sort()
    for place in places.tolist():
        at = divmod(place, n)
        pattern[at] = True
        if not admits(pattern):
            pattern[at] = False
    return pattern


@settings(max_examples=much(60, 20))
@given(data=st.data())
def test_step_is_exact_whatever_straggles(data):
    """On an engine, rounds last (1 + mu) times the fastest worker, and use no straggler."""
    scheme = SEQUENTIAL[data.draw(st.sampled_from(sorted(SEQUENTIAL)))]()
    delay = scheme.delay
    pattern = drawn(data, scheme, ROUNDS)
    p = 3
    rng = np.random.default_rng(0)
    shards = list(rng.standard_normal((scheme.k, p)))
    thetas = rng.standard_normal((ROUNDS - delay, p))
    done, times = [], Times(np.ones((1, scheme.n)))
    options = {"engine": "simulated", "delays": times, "mu": 1.0}
    with SequentialCluster(scheme, shards, conformance.curved, p, **options) as cluster:
        for theta in [*thetas, *[None] * delay]:
            late = pattern[cluster.schedule.round]
            times.rows[0] = np.where(late, 1e6, 1.0)  # the engine runs no rounds without work
            done += cluster.step(theta)
            busy = cluster.tasks.age.max(axis=1) >= 0
            if not late[busy].all():
                assert not late[cluster.report.survivors].any()
                assert cluster.report.wait_seconds <= 2.0
    assert sorted(each.job for each in done) == list(range(len(thetas)))
    for each in done:
        truth = sum(np.sin(thetas[each.job]) * shard for shard in shards)
        # Cyclic repetition of 12 workers loses some digits.
        np.testing.assert_allclose(each.gradient, truth, atol=1e-6 * np.abs(shards).sum())


@pytest.mark.parametrize("burst", [1, 2, 3])
def test_delay_is_no_longer_than_it_must_be(burst):
    """With a burst of B in its last uncoded rounds, a job takes all T rounds after its first."""
    n = 6
    for window in (burst + 1, burst + 2):
        scheme = MSGC(n, burst=burst, window=window, stragglers=2)
        schedule = scheme.schedule()
        ended = {}
        for number in range(scheme.delay + 3):
            schedule.begin()
            came = np.ones(n, dtype=bool)
            came[0] = number not in range(window - 1 - burst, window - 1)
            assert schedule.enough(came)
            ended |= dict.fromkeys(schedule.end(came), number)
        assert ended[0] == scheme.delay == window - 2 + burst
    scheme = SRSGC(n, burst=burst, window=burst + 1, stragglers=4, code=fastgc.ReedSolomon)
    schedule = scheme.schedule()
    ended = {}
    for number in range(burst + 1):
        schedule.begin()
        came = np.ones(n, dtype=bool)
        came[: 4 if number == 0 else 0] = False
        ended |= dict.fromkeys(schedule.end(came), number)
    assert ended[0] == scheme.delay == burst


LARGE = {"sr 2 3 3", "sr 2 5 3", "m 2 4 3", "m 3 4 2"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long if n in LARGE else ()) for n in SEQUENTIAL]
)
def test_tolerable_every_pattern_of_the_models(name):
    """Try all patterns, round by round; a state met before leads to nothing new."""
    scheme = Watched(SEQUENTIAL[name]())
    late = np.array(list(itertools.product([False, True], repeat=scheme.n)))
    for window, admits in promised(scheme.scheme):
        seen, tried = set(), 0
        ahead = [(scheme.scheme.schedule(), np.zeros((0, scheme.n), dtype=bool))]
        while ahead:
            schedule, past = ahead.pop()
            schedule.scheme = scheme
            schedule.begin()
            key = (*scheme.seen, past.tobytes())
            if key in seen:
                continue
            seen.add(key)
            for stragglers in late:
                pattern = np.vstack([past, stragglers])
                if not admits(pattern):
                    continue
                after = copied(schedule)
                assert after.enough(~stragglers), pattern
                after.end(~stragglers)
                tried += 1
                assert all(after.round - job <= scheme.delay for job in after.jobs), pattern
                ahead.append((after, pattern[-(window - 1) :] if window > 1 else past))
        assert tried > len(late) / 2


@pytest.mark.few(5)
@pytest.mark.parametrize("name", SEQUENTIAL)
@settings(max_examples=much(40, 20))
@given(data=st.data())
def test_tolerable_as_soon_as_all_jobs_could_be_done(name, data):
    scheme = SEQUENTIAL[name]()
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
    schedule = copied(schedule)
    schedule.scheme = Lenient(schedule.scheme)
    schedule.end(came)
    for _ in range(schedule.scheme.delay + 1):
        if any(schedule.round - job > schedule.scheme.delay for job in schedule.jobs):
            return False
        schedule.begin(job=False)
        schedule.end(np.ones(schedule.scheme.n, dtype=bool))
    return schedule.idle


def copied(schedule):
    """Return a copy of a schedule, with the same scheme."""
    return copy.deepcopy(schedule, {id(schedule.scheme): schedule.scheme})


class Watched:
    """A scheme that keeps what it was last asked about."""

    def __init__(self, scheme):
        self.scheme, self.seen = scheme, None

    def __getattr__(self, name):
        return getattr(self.scheme, name)

    def tasks(self, state, live, silent):
        self.seen = state.tobytes(), tuple(live)
        return self.scheme.tasks(state, live, silent)


class Lenient(Watched):
    """A scheme that lets every round end."""

    def tolerable(self, state, live):
        return True


@pytest.mark.parametrize(
    ("n", "burst", "window", "stragglers"),
    [(4, 1, 2, 1), (6, 2, 3, 2), (6, 1, 4, 5), (5, 2, 4, 0), (6, 2, 3, 6), (256, 1, 2, 27)],
)
def test_msgc_load_is_the_papers(n, burst, window, stragglers):
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


def test_msgc_load_is_no_less_than_any_scheme_needs():
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
def test_srsgc_load_is_the_papers(n, burst, x, stragglers):
    scheme = SRSGC(n, burst=burst, window=x * burst + 1, stragglers=stragglers)
    s = -(-Fraction(burst * stragglers, x * burst + burst) // 1)
    assert (scheme.s, scheme.load, scheme.delay) == (s, s + 1, burst)


@pytest.mark.parametrize(
    ("kind", "burst", "window", "stragglers", "code", "says"),
    [
        (SRSGC, 2, 4, 1, None, "1 more than a multiple of burst"),
        (SRSGC, 1, 1, 1, None, "1 more than a multiple of burst"),
        (SRSGC, 1, 2, 5, None, "at most n=4"),
        (MSGC, 2, 2, 1, None, "less than window"),
        (MSGC, 1, 2, 5, None, "at most n=4"),
        (MSGC, 1, 2, -1, None, "at least 0"),
        (MSGC, 0, 2, 1, None, "1 <= burst"),
        (SRSGC, 1, 2, 2, lambda n, stragglers: None, "must make a code"),
        (MSGC, 1, 2, 2, lambda n, stragglers: fastgc.Uncoded(n), "must tolerate 2"),
        (MSGC, 1, 2, 1, fastgc.LagrangeCode, "LagrangeCode"),
    ],
)
def test_schemes_refused(kind, burst, window, stragglers, code, says):
    with pytest.raises((TypeError, ValueError), match=says):
        kind(4, burst=burst, window=window, stragglers=stragglers, code=code)


def test_srsgc_tasks_are_repeated_by_as_few_as_suffice():
    schedule = SRSGC(6, burst=2, window=3, stragglers=4).schedule()  # GC-Rep: i, i + 2 are copies
    assert schedule.scheme.s == 2
    schedule.begin()
    schedule.end([0, 2])  # group 1 is missing
    schedule.begin()
    schedule.end([0, 2, 4, 5])
    tasks = schedule.begin()
    repeating = np.flatnonzero(tasks.age[:, 0] == 2).tolist()
    assert repeating == [5]  # 1 and 3 would do, but were silent longer; 4 would not help


def test_srsgc_tolerable_puts_off_no_more_than_the_model_may_leave():
    schedule = SRSGC(7, burst=1, window=2, stragglers=4, code=fastgc.ReedSolomon).schedule()
    assert schedule.scheme.s == 2
    schedule.begin()
    assert schedule.enough([0, 1, 2])  # two of five messages are missing: lambda - s
    assert not schedule.enough([0, 1])


def test_srsgc_repeats_enough_where_columns_are_equal():
    """Of such codes fewer than n - s messages may suffice, but how many are missing is counted."""
    rng = np.random.default_rng(0)
    schedule = SRSGC(30, burst=1, window=2, stragglers=6, code=fastgc.ReedSolomon).schedule()
    assert schedule.scheme.s == 3
    for _ in range(40):
        schedule.begin()
        order = rng.permutation(30)
        schedule.end(order[: next(f for f in range(31) if schedule.enough(order[:f]))])


def test_srsgc_tasks_spare_the_dead():
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
