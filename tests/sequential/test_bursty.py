"""The promises of schemes across rounds, at sizes too large to try all patterns.

Patterns of stragglers are drawn from the models that schemes tolerate. Then no round waits, no job
is late, and gradients are exact. tests/sequential/test_scheme.py tries all patterns of few workers.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.patterns import promised

import fastgc
from fastgc.sequential import MSGC, SRSGC, Independent, SequentialCluster
from fastgc.testing import engines as conformance

ROUNDS = 14


@st.composite
def schemes(draw):
    """Draw a scheme of up to 12 workers, and its delay."""
    n = draw(st.integers(2, 12))
    kind = draw(st.sampled_from(["m", "sr", "independent"]))
    stragglers = draw(st.integers(0, n))
    if kind == "independent":
        s = min(stragglers, n - 1)
        make = draw(st.sampled_from([fastgc.ReedSolomon, fastgc.CyclicRepetition]))
        return Independent(make(n, stragglers=s)), 0
    code = draw(st.sampled_from([None, fastgc.ReedSolomon, fastgc.CyclicRepetition]))
    burst = draw(st.integers(1, 3))
    if kind == "m":
        window = draw(st.integers(burst + 1, 5))
        scheme = MSGC(n, burst=burst, window=window, stragglers=stragglers, code=code)
        return scheme, window - 2 + burst
    window = draw(st.integers(1, 3)) * burst + 1
    stragglers = min(stragglers, n - 1)  # no code tolerates n stragglers
    scheme = SRSGC(n, burst=burst, window=window, stragglers=stragglers, code=code)
    return scheme, burst


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


class Late:
    """Delays: a pattern's stragglers are later than any round waits; after its end, nobody is."""

    per = "round"

    def __init__(self, pattern):
        self.pattern = pattern

    def sample(self, round, workers, seed):
        late = self.pattern[round] if round < len(self.pattern) else np.zeros(workers, dtype=bool)
        return np.where(late, 1e6, 1.0)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_round_waits_and_no_job_is_late(data):
    scheme, delay = data.draw(schemes())
    assert scheme.delay == delay
    pattern = drawn(data, scheme, ROUNDS)
    schedule = scheme.schedule()
    done = []
    for stragglers in pattern:
        schedule.begin()
        assert schedule.enough(~stragglers)
        done += [(job, schedule.round - 1) for job in schedule.end(~stragglers)]
        assert all(schedule.round - job <= delay for job in schedule.jobs)
    assert all(job <= last <= job + delay for job, last in done)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_gradients_are_exact_whatever_straggles(data):
    """On an engine, rounds last (1 + mu) times the fastest worker, and use no straggler."""
    scheme, delay = data.draw(schemes())
    pattern = drawn(data, scheme, ROUNDS)
    p = 3
    rng = np.random.default_rng(0)
    shards = list(rng.standard_normal((scheme.k, p)))
    thetas = rng.standard_normal((ROUNDS - delay, p))
    done = []
    with SequentialCluster(
        scheme, shards, conformance.curved, p, engine="simulated", delays=Late(pattern), mu=1.0
    ) as cluster:
        for theta in [*thetas, *[None] * delay]:
            late = pattern[cluster.schedule.round]
            done += cluster.step(theta)
            busy = cluster.tasks.age.max(axis=1) >= 0
            # The engine does not run rounds without work, which may come at the end.
            if not late[busy].all():
                assert not late[cluster.report.survivors].any()
                assert cluster.report.wait_seconds <= 2.0
    assert sorted(each.job for each in done) == list(range(len(thetas)))
    for each in done:
        truth = sum(np.sin(thetas[each.job]) * shard for shard in shards)
        # Cyclic repetition of 12 workers loses some digits.
        np.testing.assert_allclose(each.gradient, truth, atol=1e-6 * np.abs(shards).sum())


@pytest.mark.parametrize("burst", [1, 2, 3])
def test_the_delay_is_no_longer_than_it_must_be(burst):
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
