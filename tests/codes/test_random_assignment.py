"""Fractional repetition, coupon collector, random assignment: cells, draws, thresholds."""

import itertools
import pickle
from math import comb

import numpy as np
import pytest
from scipy import stats
from strength import much

from fastgc import (
    CouponCollector,
    CyclicRepetition,
    FractionalRepetition,
    Grouped,
    NotDecodableError,
    RandomAssignment,
    ReedSolomon,
    Uncoded,
)
from fastgc.codes.random_assignment import distinct_draws
from fastgc.delays import Exponential
from fastgc.planning.simulation import simulate


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


# ------------------------------------------------------------------------------- fractional


def test_fractional_repetition_is_replicas():
    code = FractionalRepetition(6, stragglers=1)
    expected = np.repeat(np.eye(3), 2, axis=1)
    np.testing.assert_array_equal(code.matrix(), np.vstack([expected, expected]))
    assert code.decoding_vector([5, 2, 1, 3]).tolist() == [1, 0, 1, 1]  # the first of each block


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 7, "stragglers": 2}, "multiple of s \\+ 1 = 3, not 7; BinaryCode"),
        ({"n": 6, "stragglers": 6}, "stragglers must be in 0"),
        ({"n": 6, "k": 2, "stragglers": 1}, "at least n / \\(s \\+ 1\\) = 3, not 2"),
    ],
)
def test_impossible_fractional_repetition(arguments, says):
    with pytest.raises(ValueError, match=says):
        FractionalRepetition(**arguments)


def test_recovery_of_fractional_repetition():
    """The mean number of workers needed, by inclusion and exclusion over blocks not heard."""
    n, s = 100, 9
    expected = sum(
        sum((-1) ** (j + 1) * comb(10, j) * comb(n - 10 * j, m) / comb(n, m) for j in range(1, 11))
        for m in range(n)
    )
    found = FractionalRepetition(n, stragglers=s).recovery(trials=4000).workers
    assert found == pytest.approx(expected, rel=0.02)
    assert 24 < found < 27  # the worst case is 91


# --------------------------------------------------------------------------- thresholds (paper)


@pytest.mark.parametrize("m", [20, 30])
@pytest.mark.parametrize("r", [2, 5, 10])
def test_worst_case_thresholds(m, r):
    """Eq. (7): codes for the worst case need m - r + 1 workers."""
    for code in (ReedSolomon(m, load=r), CyclicRepetition(m, stragglers=r - 1)):
        assert code.load == r
        assert code.threshold == m - r + 1
        assert code.recovery(trials=3).workers == m - r + 1


@pytest.mark.parametrize(("m", "r"), [*much([(50, 10), (100, 10), (40, 7)], []), (30, 30), (20, 5)])
def test_coupon_collector_threshold(m, r):
    """Eq. (2) and Theorem 1: on average over seeds, ceil(m/r) H_ceil(m/r) workers."""
    batches = -(-m // r)
    expected = batches * harmonic(batches)
    waited = []
    for seed in range(much(150, 75)):
        # Far more workers than needed, so that coverage does not restrict the draws.
        code = CouponCollector(40 * batches, m, load=r, seed=seed)
        found = code.recovery(trials=8, seed=seed)
        assert found.communication_load == found.messages == found.workers
        waited.append(found.workers)
    assert np.mean(waited) == pytest.approx(expected, rel=0.06)


def test_random_assignment_threshold():
    """Eqs. (5), (6): about (m/r) log m workers and m log m messages, more than BCC needs."""
    m, r = 100, 10
    found = [RandomAssignment(400, m, load=r, seed=i).recovery(20, i) for i in range(10)]
    messages = np.mean([f.messages for f in found])
    assert messages == pytest.approx(m * harmonic(m), rel=0.15)
    assert messages > 10 * CouponCollector(400, m, load=r).recovery(50).messages


# --------------------------------------------------------------------------- decentralised choice

MASK = (1 << 64) - 1


def mixed(x):
    """Return the finalizer of SplitMix64, in Python's integers."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def split_mix(state):
    while True:
        state = state + 0x9E3779B97F4A7C15 & MASK
        yield mixed(state)


def picked_by(seed, worker, count, size):
    """Return a worker's picks: its first distinct numbers, or the places of its smallest ones."""
    key = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])
    numbers = split_mix(next(itertools.islice(split_mix(key), worker, None)))
    if 2 * size > count:
        drawn = list(itertools.islice(numbers, count))
        return sorted(range(count), key=drawn.__getitem__)[:size]
    found = []
    while len(found) < size:
        choice = next(numbers) % count
        if choice not in found:
            found.append(choice)
    return found


def test_split_mix_is_the_published_one():
    assert list(itertools.islice(split_mix(1234567), 3)) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@pytest.mark.parametrize(
    ("count", "size"), [(1, 1), (7, 1), (6, 3), (7, 4), (9, 9), (40, 20), (500, 9), (2**40, 3)]
)
@pytest.mark.parametrize("seed", [0, 5, 2**80])
def test_workers_draw_alone_what_they_draw_together(count, size, seed):
    workers = np.array([0, 3, 1, 10**6, 2**40])
    together = distinct_draws(seed, workers, count, size)
    for worker, row in zip(workers.tolist(), together.tolist(), strict=True):
        assert len(set(row)) == size
        assert min(row) >= 0
        assert max(row) < count
        assert distinct_draws(seed, np.array([worker]), count, size).tolist() == [row]
        if worker < 10**6:
            assert row == picked_by(seed, worker, count, size)


def test_draws_go_on_where_many_are_drawn_twice():
    """For half of 40 numbers, some sequences must be extended more than once."""
    found = distinct_draws(2, np.arange(3000), 40, 20)
    assert (np.diff(np.sort(found, axis=1), axis=1) > 0).all()
    for worker in range(0, 3000, 100):
        assert found[worker].tolist() == picked_by(2, worker, 40, 20)


@pytest.mark.parametrize(("count", "size"), [(4, 2), (5, 3), (6, 1), (4, 4), (8, 2)])
def test_all_choices_in_all_orders_are_equally_likely(count, size):
    """Chi-square tests over workers and over seeds accept this."""
    orders = {order: at for at, order in enumerate(itertools.permutations(range(count), size))}
    for rows in (
        distinct_draws(7, np.arange(6000), count, size),
        np.concatenate([distinct_draws(s, np.arange(20), count, size) for s in range(300)]),
    ):
        found = np.bincount([orders[tuple(row)] for row in rows.tolist()], minlength=len(orders))
        assert stats.chisquare(found).pvalue > 1e-3


def test_workers_draw_independently():
    """Chi-square tests, of neighbouring workers and of one worker under neighbouring seeds."""
    first = distinct_draws(0, np.arange(8001), 7, 1)[:, 0]
    other = distinct_draws(1, np.arange(8001), 7, 1)[:, 0]
    for one, two in ((first[:-1], first[1:]), (first, other)):
        assert stats.chisquare(np.bincount(7 * one + two, minlength=49)).pvalue > 1e-3


def test_a_million_workers():
    code = CouponCollector(10**6, load=10**4, seed=3)
    assert code.scheme.loads.sum() == 10**10
    assert code.stragglers == np.bincount(code.scheme._choices).min() - 1
    holders = np.bincount(code.scheme._choices, minlength=100)
    assert stats.chisquare(holders).pvalue > 1e-3
    assert code.partitions(10**6 - 1)[0] == 10**4 * picked_by(3, 10**6 - 1, 100, 1)[0]


def test_choices_are_decentralised():
    """A worker's choice depends on the seed and its own number, not on the others."""
    few, many = CouponCollector(20, 12, load=3, seed=5), CouponCollector(50, 12, load=3, seed=5)
    for i in range(20):
        np.testing.assert_array_equal(few.partitions(i), many.partitions(i))
    other = CouponCollector(50, 12, load=3, seed=6)
    assert any((many.partitions(i) != other.partitions(i)).any() for i in range(50))
    few, many = RandomAssignment(20, 6, load=4), RandomAssignment(30, 6, load=4)
    for i in range(20):
        np.testing.assert_array_equal(few.partitions(i), many.partitions(i))


def test_choices_are_uniform():
    code = CouponCollector(2000, 12, load=3, seed=9)
    batches = np.bincount([code.partitions(i)[0] // 3 for i in range(2000)])
    assert np.abs(batches - 500).max() < 5 * np.sqrt(500)
    drawn = RandomAssignment(2000, 10, load=3, seed=9)
    counts = np.bincount(np.concatenate([drawn.partitions(i) for i in range(2000)]))
    assert np.abs(counts - 600).max() < 5 * np.sqrt(600)
    for i in range(100):
        assert len(set(drawn.partitions(i).tolist())) == 3


def test_last_batch_may_be_smaller():
    code = CouponCollector(30, 10, load=4)
    assert {tuple(code.partitions(i)) for i in range(30)} == {
        (0, 1, 2, 3),
        (4, 5, 6, 7),
        (8, 9),
    }


def test_duplicates_are_dropped():
    code = CouponCollector(12, 9, load=3, seed=0)
    batch = np.array([code.partitions(i)[0] for i in range(12)])
    vector = code.decoding_vector(range(12))
    assert vector.sum() == 3
    for b in (0, 3, 6):
        assert np.flatnonzero(vector * (batch == b)).tolist() == [np.argmax(batch == b)]
    F = np.flatnonzero(batch != 3)
    with pytest.raises(NotDecodableError) as caught:
        code.decoding_vector(F)
    assert caught.value.missing == 1


def test_generalised_scheme_sends_each_partial_gradient():
    loads = [3, 1, 4, 4, 5]
    code = CouponCollector(5, 6, loads=loads, seed=3)
    assert not code.scheme.messages.together.any()
    np.testing.assert_array_equal(code.scheme.messages.shares[:4], [1 / 3, 2 / 3, 1, 1])
    assert code.scheme.loads.tolist() == code.scheme.messages.counts == loads
    assert code.scheme.messages.per_worker == 5
    assert code.scheme.messages.count == 17
    assert all(code.partitions(i, t).size == 1 for i in range(5) for t in range(loads[i]))
    alike = RandomAssignment(5, 6, load=loads, seed=3)
    np.testing.assert_array_equal(code.matrix(), alike.matrix())


@pytest.mark.parametrize("kind", [CouponCollector, RandomAssignment])
def test_uncovered_is_refused_with_advice(kind):
    count, size = (2, 1) if kind is CouponCollector else (6, 3)

    def uncovered(seed):
        return len({c for i in range(3) for c in picked_by(seed, i, count, size)}) < count

    refused = [seed for seed in range(30) if uncovered(seed)]
    assert refused
    for seed in refused:
        with pytest.raises(ValueError, match=f"with seed={seed} no worker picks") as caught:
            kind(3, 6, load=3, seed=seed)
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
        advised = int(str(caught.value).split("; take seed=")[1].split(",")[0])
        assert advised > seed
        kind(3, 6, load=3, seed=advised)
    with pytest.raises(ValueError, match="none of the next 100 seeds covers all: take a larger"):
        kind(2, 6, load=1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "give load= .* or loads="),
        ({"load": 2, "loads": [1] * 4}, "give load= .* or loads="),
        ({"load": 0}, "load must be in 1 .. k = 4, not 0"),
        ({"load": 5}, "load must be in 1 .. k = 4, not 5"),
        ({"loads": [1, 2]}, "4 workers need 4 loads, not 2"),
        ({"load": 4, "seed": -1}, "seed must be at least 0"),
        ({"loads": [1, 2, 10**400, 1]}, "load must be in 1 .. k = 4, not 1000"),
        ({"load": 2, "send": "later"}, 'send must be "each" or "together", not \'later\''),
    ],
)
def test_impossible_coupon_collector(arguments, says):
    with pytest.raises(TypeError, match="load must be an integer"):
        CouponCollector(4, load=[2, 1, 1, 1])
    with pytest.raises(ValueError, match=says):
        CouponCollector(4, **arguments)


# ------------------------------------------------------------------- all when the work is done


@pytest.mark.parametrize(
    "code",
    [
        RandomAssignment(5, 6, load=[3, 1, 4, 4, 5], send="together", seed=3),
        CouponCollector(5, 6, loads=[3, 1, 4, 4, 5], send="together", seed=3),
    ],
)
def test_messages_sent_together(code):
    """In every order, a round takes workers until they hold all partitions."""
    assert code.scheme.messages.together.all()
    assert (code.scheme.messages.shares == 1).all()
    np.testing.assert_array_equal(
        code.matrix(), RandomAssignment(5, 6, load=[3, 1, 4, 4, 5], seed=3).matrix()
    )
    workers, messages = [], []
    for order in itertools.permutations(range(5)):
        held = [code.partitions(i).tolist() for i in order]
        count = next(c for c in range(1, 6) if len(set().union(*held[:c])) == 6)
        workers.append(count)
        messages.append(sum(map(len, held[:count])))
    found = code.recovery(trials=4000)
    assert found.workers == pytest.approx(np.mean(workers), rel=0.02)
    assert found.messages == pytest.approx(np.mean(messages), rel=0.02)
    run = simulate(code, Exponential(1.0), rounds=20_000)
    assert run.mean_workers == pytest.approx(np.mean(workers), rel=0.01)
    assert run.mean_messages == pytest.approx(np.mean(messages), rel=0.01)
    each = RandomAssignment(5, 6, load=[3, 1, 4, 4, 5], seed=3)
    for interrupted in (True, False):  # rounds end sooner if messages are sent one by one
        settings = {"cost": 0.1, "rounds": 200, "interrupted": interrupted}
        late = simulate(code, Exponential(1.0), **settings).times
        sooner = simulate(each, Exponential(1.0), **settings).times
        assert (sooner <= late).all() if interrupted else sooner.mean() < late.mean()


def test_recovery_threshold_of_the_paper():
    """Figure 2: 47.6 workers, eq. (5): 46.1; sent one by one, messages of almost all are needed."""
    settings = {"load": 10, "seed": 0}
    found = RandomAssignment(100, send="together", **settings).recovery(trials=300)
    assert 44 < found.workers < 52
    assert found.messages == pytest.approx(10 * found.workers)
    assert RandomAssignment(100, **settings).recovery(trials=100).workers > 95


def test_groups_send_as_their_codes_do():
    alone = RandomAssignment(3, load=2, send="together", seed=2)
    code = Grouped([alone, Uncoded(2, load=2)])
    assert code.scheme.messages.together.tolist() == [True] * 3 + [False] * 2
    assert code.scheme.messages.shares.tolist() == [1.0] * 6 + [0.5, 1.0] * 2


# ------------------------------------------------------------------------------------- UC-MMC


def test_circular_shift():
    """Eq. (11): A(j, :) = circshift([1 : N], -(j - 1))."""
    code = Uncoded(5, load=3)
    A = np.array([[code.partitions(i, t)[0] for i in range(5)] for t in range(3)])
    np.testing.assert_array_equal(A, [np.roll(np.arange(5), -t) for t in range(3)])
    np.testing.assert_array_equal(Uncoded(3, 6, load=4).partitions(2), [4, 5, 0, 1])


@pytest.mark.parametrize("n", range(1, 5))
def test_every_tolerance_of_uc_mmc(n):
    """Thresholds and stragglers agree with their definitions, by trying all sets."""
    for m, tolerance in itertools.product((1, 2), (0, 0.2, 0.34, 0.5, 0.75)):
        k = m * n
        for load in range(m, k + 1):
            if (load + 1) ** n > 3000:
                continue
            code = Uncoded(n, k, load=load, tolerance=tolerance)
            need = max(1, int(np.ceil(round((1 - tolerance) * k, 9))))
            most = 0
            for sent in itertools.product(range(load + 1), repeat=n):
                held = [(i * m + t) % k for i in range(n) for t in range(sent[i])]
                F = [code.scheme.messages.number(i, t) for i in range(n) for t in range(sent[i])]
                ready = len(set(held)) >= need
                assert code.decodable(F) == ready
                if not ready:
                    most = max(most, len(F))
            assert code.threshold == most + 1, code
            for s in range(n + 1):
                every = all(
                    len({(i * m + t) % k for i in set(range(n)) - set(lost) for t in range(load)})
                    >= need
                    for lost in itertools.combinations(range(n), s)
                )
                assert every == (s <= code.stragglers), (code, s)


@pytest.mark.parametrize("rescale", [True, False])
def test_partial_gradients_are_summed_once(rescale):
    code = Uncoded(6, load=3, tolerance=0.5, rescale=rescale)
    rng = np.random.default_rng(0)
    partials = rng.standard_normal((6, 4))
    messages = [
        code.encode(i, partials[code.partitions(i, t)], index=t) for i in range(6) for t in range(3)
    ]
    for _ in range(50):
        F = rng.permutation(18)[: rng.integers(1, 18)]
        came = {int(code.partitions(*code.scheme.messages.sender(m))[0]) for m in F}
        if len(came) < 3:
            with pytest.raises(NotDecodableError) as caught:
                code.decoding_vector(F)
            assert caught.value.missing == 3 - len(came)
            continue
        expected = partials[sorted(came)].sum(axis=0) * (6 / len(came) if rescale else 1)
        gradient = code.decode(F, [messages[m] for m in F])
        np.testing.assert_allclose(gradient, expected, atol=1e-12)


@pytest.mark.parametrize("rescale", [True, False])
@pytest.mark.parametrize("load", [None, 3])
def test_trust_counts_what_is_left_out(rescale, load):
    code = Uncoded(12, load=load, tolerance=0.5, rescale=rescale)
    rng = np.random.default_rng(0)
    F = [code.scheme.messages.number(i) for i in (0, 2, 3, 5, 6, 8, 11)]
    errors, norms, decoded = [], [], []
    for _ in range(30):
        partials = rng.standard_normal((12, 50))
        received = code.round(50)
        for m in F:
            i, t = code.scheme.messages.sender(m)
            received.receive(i, code.encode(i, partials[code.partitions(i, t)], index=t))
        errors.append(np.sum((received.gradient() - partials.sum(axis=0)) ** 2))
        norms.append(np.sum(partials.sum(axis=0) ** 2))
        decoded.append(np.sum(received.gradient() ** 2))
    error = np.sqrt(np.mean(errors) / np.mean(norms))
    assert error == pytest.approx(code.trust(F).relative_error, rel=0.1)
    error = np.sqrt(np.mean(errors) / np.mean(decoded))
    assert error == pytest.approx(received.trust().relative_error, rel=0.2)
    everything = range(code.scheme.messages.count)
    assert code.trust(everything).relative_error < 1e-15


def test_five_percent_of_forty():
    """Section V: at N = 40, 5% tolerance leaves out two partial gradients."""
    exact, tolerant = Uncoded(40, load=3), Uncoded(40, load=3, tolerance=0.05)
    assert exact.scheme.rule.need == 40
    assert tolerant.scheme.rule.need == 38
    assert tolerant.recovery(200).messages < exact.recovery(200).messages


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"n": 4, "k": 6, "load": 2}, "k must be a multiple of n=4, not 6"),
        ({"n": 4, "k": 8, "load": 1}, "load must be in k/n = 2 .. k = 8, not 1"),
        ({"n": 4, "load": 5}, "load must be in k/n = 1 .. k = 4, not 5"),
    ],
)
def test_impossible_uc_mmc(arguments, says):
    with pytest.raises(ValueError, match=says):
        Uncoded(**arguments)
