"""Random assignment of Li et al.: draws that each worker makes alone, and thresholds on average."""

import itertools
import pickle

import numpy as np
import pytest

from fastgc import (
    CouponCollector,
    CyclicRepetition,
    Grouped,
    RandomAssignment,
    ReedSolomon,
    Uncoded,
)
from fastgc.codes.random_assignment import distinct_draws
from fastgc.delays import Exponential
from fastgc.planning.simulation import simulate


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


@pytest.mark.parametrize("m", [19, 29])
@pytest.mark.parametrize("r", [2, 5, 10])
def test_worst_case_thresholds(m, r):
    """Eq. (7): codes for the worst case need m - r + 1 workers."""
    for code in (ReedSolomon(m, load=r), CyclicRepetition(m, stragglers=r - 1)):
        assert code.load == r
        assert code.threshold == m - r + 1
        assert code.recovery(trials=3).workers == m - r + 1


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


@pytest.mark.parametrize("kind", [CouponCollector, RandomAssignment])
def test_choices_are_decentralised(kind):
    """A worker's choice depends on the seed and its own number, not on the others."""
    few, many, other = (kind(n, 12, load=3, seed=seed) for n, seed in ((30, 5), (50, 5), (50, 6)))
    for i in range(30):
        np.testing.assert_array_equal(few.partitions(i), many.partitions(i))
    assert any((many.partitions(i) != other.partitions(i)).any() for i in range(50))


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
    held = [code.partitions(i).tolist() for i in range(5)]
    counts = []
    for order in itertools.permutations(held):
        workers = next(c for c in range(1, 6) if len(set().union(*order[:c])) == 6)
        counts.append((workers, sum(map(len, order[:workers]))))
    workers, messages = np.mean(counts, axis=0)
    found = code.recovery(trials=4000)
    assert (found.workers, found.messages) == pytest.approx((workers, messages), rel=0.02)
    run = simulate(code, Exponential(1.0), rounds=20_000)
    assert (run.mean_workers, run.mean_messages) == pytest.approx((workers, messages), rel=0.01)


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
