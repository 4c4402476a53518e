"""The protocol of rounds: every kind meets random events, and a new kind runs on every engine."""

import math

import numpy as np
import pytest

from fastgc import (
    BinaryCode,
    CyclicRepetition,
    FractionalRepetition,
    Grouped,
    NotDecodableError,
    Reactive,
    ReedSolomon,
    Uncoded,
)
from fastgc.codes import ReactiveRound
from fastgc.coding.round import Chosen, Gathering, Host
from fastgc.engines import LocalCluster, SimulatedCluster

P = 5


class Workers:
    """A master and its workers: gives a round random events, and checks it after each.

    Messages come in random order. Workers die, and come back or not. Workers that are asked answer
    soon, late, or never; `liars` repeat what they sent.
    """

    def __init__(self, rnd, rng, liars=(), deadly=True):
        self.rnd, self.rng, self.code, self.liars = rnd, rng, rnd.code, liars
        self.now, self.deadly = 0.0, deadly
        self.g = rng.standard_normal((self.code.k, P))
        counts = self.code.scheme.messages.counts
        left = [(i, m) for i, count in enumerate(counts) for m in range(count)]
        self.left = [left[at] for at in rng.permutation(len(left))]
        self.left.sort(key=lambda each: each[1])  # each worker's messages come in order
        self.brought, self.asked, self.dead = set(), [], set()
        rnd.begin(Host(lambda: self.now, least_wait=0.5))

    def message(self, worker, index):
        message = self.code.encode(worker, self.g[self.code.partitions(worker, index)], index=index)
        return message + 3.0 if worker in self.liars else message

    def state(self):
        rnd = self.rnd
        return (
            rnd.ready,
            rnd.decodable,
            set(rnd.owing),
            rnd.survivors.tolist(),
            rnd.taken.tolist(),
            rnd.corrupt,
            rnd.due,
        )

    def look(self):
        """Check the invariants, which hold after each event."""
        rnd = self.rnd
        for worker, what in rnd.questions():
            assert worker in set(rnd.owing)  # 3
            assert not any(w == worker and q is what for w, q in self.asked)
            self.asked.append((worker, what))
        assert not rnd.questions()  # each question is asked once
        assert not (rnd.ready and set(rnd.owing))
        assert rnd.due > self.now - 1e-9
        assert set(rnd.owing).isdisjoint(self.dead)
        survivors = rnd.survivors.tolist()
        assert len(set(survivors)) == len(survivors)
        assert set(survivors) <= set(rnd.taken.tolist()) <= self.brought  # 5

    def come(self):
        """One message comes, if its worker lives."""
        worker, index = self.left.pop(0)
        if worker in self.dead or not self.rnd.wants(worker):
            return
        self.brought.add(self.code.scheme.messages.number(worker, index))
        ready = self.rnd.receive(worker, self.message(worker, index), index)
        assert ready == self.rnd.ready

    def die(self):
        worker = int(self.rng.integers(self.code.n))
        if worker not in self.dead:
            self.dead.add(worker)
            self.rnd.straggles(worker)

    def reply(self, at):
        """A worker answers its last question, or one for which nobody waits any more."""
        worker, what = self.asked[at]
        before, owed = self.state(), worker in set(self.rnd.owing)
        last = max(i for i, each in enumerate(self.asked) if each[0] == worker)
        if worker in self.dead:
            return
        brought = self.rnd.hear(worker, what, self.message(what.worker, 0))
        self.brought |= set(brought.tolist())
        if not owed or at != last:
            assert self.state() == before  # an unexpected answer changes nothing

    def run(self):
        """Play events until the round is over."""
        rnd = self.rnd
        self.look()
        for _ in range(1000):
            if rnd.ready:
                return
            chance = self.rng.random()
            if self.deadly and chance < 0.05:
                self.die()
            elif self.asked and chance < 0.35:
                self.reply(int(self.rng.integers(len(self.asked))))
            elif self.left and chance < 0.85:
                self.now += 0.1
                if rnd.due < self.now:
                    self.pass_time()
                else:
                    self.come()
            elif rnd.due < math.inf:
                self.pass_time()
            elif not (self.left or set(rnd.owing)):
                return
            self.look()
        raise AssertionError("the round does not end")

    def pass_time(self):
        """The due time has come: it moves on, or the round waits for nobody."""
        self.now = max(self.now, self.rnd.due)
        self.rnd.elapse()
        assert self.rnd.due > self.now or not set(self.rnd.owing)  # 4


def of_round(rng):
    code = [ReedSolomon(6, stragglers=2), BinaryCode(6, stragglers=2), Uncoded(3, load=2)]
    return code[int(rng.integers(3))].round(P), {}


def verified(rng):
    return CyclicRepetition(6, stragglers=3).round(P, verify=1), {}


def grouped(rng):
    rnd = Grouped([ReedSolomon(3, stragglers=1), BinaryCode(3, stragglers=1)]).group_round(P)
    rnd.reset([0, 1])
    return rnd, {}


def reactive(rng):
    return ReactiveRound(Reactive(5, holders=3), P), {}


def chosen(rng):
    code = ReedSolomon(6, stragglers=2)
    numbers = rng.permutation(6)[:4]
    return Chosen(code.round(P), numbers, frozenset(range(6)), "raise"), {}


@pytest.mark.parametrize("kind", [of_round, verified, grouped, reactive, chosen])
def test_every_kind_of_round_keeps_the_protocol(kind):
    ended = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, 1])
        rnd, options = kind(rng)
        workers = Workers(rnd, rng, **options)
        workers.run()
        if not rnd.ready:
            live = [
                m
                for m in workers.brought
                if rnd.code.scheme.messages.sender(m)[0] not in workers.dead
            ]
            if not rnd.decodable:  # the error then says why
                with pytest.raises(NotDecodableError):
                    rnd.require(np.array(sorted(live if kind is reactive else workers.brought)))
            continue
        ended += 1
        whole = workers.g.sum(axis=0)
        if kind is grouped:
            parts = [workers.g[rnd.code.partitions_of(g)].sum(axis=0) for g in (0, 1)]
            for g, part in enumerate(parts):
                np.testing.assert_allclose(rnd.gradient(g), part, atol=1e-10)
        else:
            inner = rnd._round if kind is chosen else rnd
            np.testing.assert_allclose(inner.gradient(), whole, atol=1e-10)
    assert ended > 20


# ------------------------------------------------------------------------------ a kind of one's own


class Vote(Gathering):
    """A round that takes for each partition the gradient on which two workers agree to the bit."""

    def __init__(self, code, p):
        self.code, self.form = code, code.scheme.format(p, np.dtype(np.float64), None)
        self.sent, self.agreed, self.numbers = {}, {}, []

    @property
    def ready(self):
        return len(self.agreed) == self.code.k

    @property
    def survivors(self):
        return np.array(self.numbers, dtype=np.int64)

    def wants(self, worker):
        return int(self.code.partitions(worker)[0]) not in self.agreed

    def receive(self, worker, message, index=None, *, energy=math.nan):
        assert not self.ready, "a message is brought to a round that is ready"
        assert self.wants(worker)
        (j,) = self.code.partitions(worker).tolist()
        seen = self.sent.setdefault(j, [])
        self.numbers.append(worker)
        if any(np.array_equal(message, other) for other in seen):
            self.agreed[j] = message.copy()
        seen.append(message.copy())
        return self.ready

    def require(self, messages):
        held = [int(self.code.partitions(worker)[0]) for worker in messages.tolist()]
        short = sum(held.count(j) < 2 for j in range(self.code.k))
        if short:
            raise NotDecodableError(f"{short} partitions are on fewer than two workers", short)


class Delays:
    def sample(self, round, workers, seed):
        return 0.02 * np.random.default_rng([seed, round]).permutation(workers)


@pytest.mark.parametrize("engine", [LocalCluster, SimulatedCluster])
def test_a_new_kind_of_round_runs_on_engines_as_they_are(engine):
    code, theta = FractionalRepetition(6, 2, stragglers=2), np.full(3, 2.0)
    with engine(code, [1.0, 10.0], np.multiply, 3, delays=Delays()) as cluster:
        for number in range(3):
            rnd = Vote(code, 3)
            report = cluster.collect(theta, rnd)
            assert report.round == number
            assert {j: g.tolist() for j, g in rnd.agreed.items()} == {0: [2.0] * 3, 1: [20.0] * 3}
            assert report.survivors.tolist() == rnd.numbers
        with pytest.raises(NotDecodableError, match="fewer than two workers"):
            cluster.collect(theta, Vote(code, 3), [0, 1, 3])
