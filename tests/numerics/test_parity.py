"""Finding liars in polynomial time agrees with brute force where that is feasible."""

import math
import random
import secrets

import numpy as np
import pytest
from liars import dense, send
from strength import much

from fastgc import (
    BinaryCode,
    CorruptMessageError,
    CyclicRepetition,
    FractionalRepetition,
    Grouped,
    ReedSolomon,
    Uncoded,
)
from fastgc.numerics import parity as parities

P = 16


@pytest.fixture(autouse=True)
def projections_are_the_same_in_each_run(monkeypatch):
    """A change is missed with a small probability, and there are many changes here."""
    monkeypatch.setattr(secrets, "randbits", random.Random(0).getrandbits)


class Workers:
    """Partial gradients of a code, its messages, and rounds in which some workers lie."""

    def __init__(self, code, e, seed=0, dtype=np.float64):
        self.code, self.rng = code, np.random.default_rng(seed)
        self.g = self.rng.standard_normal((code.k, P)).astype(dtype)
        self.messages = [code.encode(i, self.g[code.partitions(i)]) for i in range(code.n)]
        self.rnd = code.round(P, dtype, verify=e)
        self.truth = self.g.sum(axis=0, dtype=np.float64)

    def change(self):
        return 10.0 ** self.rng.uniform(-3, 6) * self.rng.standard_normal(self.messages[0].size)

    def lie(self, changes, *, stop="", order=None):
        """Play a round with these changes of messages; `stop` names the property that ends it."""
        self.rnd.reset()
        order = self.rng.permutation(self.code.n) if order is None else order
        for i in order.tolist():
            message = self.messages[i]
            if i in changes:
                message = message + changes[i].astype(message.dtype)
            if self.rnd.wants(i):
                send(self.rnd, i, message)
                if stop and getattr(self.rnd, stop):
                    break
        return self.rnd

    def error(self):
        return np.abs(self.rnd.gradient() - self.truth).max()


# Outcomes (refused or let through) of a search through all sets of liars.
CASES = [
    (ReedSolomon(101, stragglers=8), 3),
    (ReedSolomon(101, stragglers=8), 4),
    (ReedSolomon(101, stragglers=6), 3),
    (BinaryCode(101, stragglers=6), 3),
    (FractionalRepetition(105, stragglers=6), 3),
    (ReedSolomon(105, stragglers=6, clusters=5), 3),
    (CyclicRepetition(60, stragglers=6), 3),
    (ReedSolomon(1000, stragglers=20), 10),
    (ReedSolomon(1000, stragglers=20, clusters=10), 10),
    (Grouped([ReedSolomon(300, stragglers=20), BinaryCode(300, stragglers=20)]), 10),
]


@pytest.mark.parametrize("stop", ["", "ready"])
@pytest.mark.parametrize(("code", "e"), CASES, ids=repr)
def test_liars_are_named(code, e, stop):
    """Also, a round that stops when it is told to never has a wrong gradient."""
    workers = Workers(code, e)
    for number in range(much(200, 8)) if e < 10 else much([1, 5, 10] * 66, [10]):
        bad = workers.rng.permutation(code.n)[: number % (e + 1)].tolist()
        rnd = workers.lie({i: workers.change() for i in bad}, stop=stop)
        assert rnd.ready
        assert rnd.verified
        assert set(rnd.corrupt) <= set(bad)
        assert stop or sorted(rnd.corrupt) == sorted(bad)
        assert workers.error() < 1e-9


SEARCHED = [
    (ReedSolomon(11, stragglers=6), 3),
    (ReedSolomon(12, stragglers=4, clusters=2), 2),
    (CyclicRepetition(10, stragglers=6), 3),
    (BinaryCode(11, stragglers=4), 2),
    (BinaryCode(12, 17, stragglers=6), 3),
    (FractionalRepetition(10, stragglers=4), 2),
    (Uncoded(5, load=5), 2),
]


@pytest.mark.parametrize(("code", "e"), SEARCHED, ids=repr)
def test_no_faster_way_names_who_all_sets_do_not(code, e, monkeypatch):
    """It also names everybody whom the theorem says it names."""
    rng = np.random.default_rng(0)
    scheme = code.scheme
    g = rng.standard_normal((code.k, 1))
    values = np.array(
        [
            complex(code.encode(worker, g[code.partitions(worker, at)], index=at).view(complex)[0])
            if scheme.is_complex
            else float(code.encode(worker, g[code.partitions(worker, at)], index=at)[0])
            for worker, at in map(scheme.messages.sender, range(scheme.messages.count))
        ]
    )  # fmt: skip
    senders = np.repeat(np.arange(code.n), scheme.messages.counts)
    named = 0
    for _ in range(much(400, 30)):
        bad = rng.permutation(code.n)[: rng.integers(1, e + 1)].tolist()
        survivors = rng.permutation(scheme.messages.count)[int(rng.integers(0, 2)) :]
        parity = scheme.parity(survivors, 2 * e + 6)
        sent = values[survivors] + np.isin(senders[survivors], bad) * rng.standard_normal(
            survivors.size
        )
        squares = np.full(survivors.size, 1e-28)
        sent = sent[:, np.newaxis]
        H = dense(parity, survivors.size)
        sums, bound = H @ sent, 10 * np.sqrt(np.abs(H) ** 2 @ squares)
        failed = np.abs(sums[:, 0]) > bound
        spare = np.zeros_like(survivors)
        if isinstance(code, ReedSolomon | CyclicRepetition):
            block, need = scheme.rule
            spare = (np.bincount(block[survivors], minlength=need.size) - need)[block[survivors]]
        failure = parities.Failure(
            parity, senders[survivors], sent, squares, sums, parity.error, bound, failed, spare
        )
        monkeypatch.setattr(parities, "FEW_SETS", -1)
        fast = parities.blame(failure, e).corrupt
        monkeypatch.setattr(parities, "FEW_SETS", 10**9)
        slow = parities.blame(failure._replace(parity=parity._replace(ends=None)), e).corrupt
        monkeypatch.undo()
        assert set(fast) <= set(slow) <= set(bad)
        named += len(fast)
    assert named


def test_beside_has_ends_of_every_message():
    """Also of messages behind the last that any check reads."""
    one = FractionalRepetition(2, stragglers=1).scheme.parity(np.arange(2))
    none = Uncoded(3).scheme.parity(np.arange(3))
    both = parities.Parity.beside([(one, np.array([1, 3])), (none, np.array([0, 2, 4]))])
    assert both.ends.tolist() == [[-1, -1], [0, 1], [-1, -1], [0, 1], [-1, -1]]
    twice = parities.Parity.beside([(one, np.arange(2)), (one, np.arange(2, 4))])
    assert twice.ends.tolist() == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert sorted(twice.position.tolist()) == [0, 1, 2, 3]
    assert parities.Parity.beside([(none, np.arange(3))]).first.size == 0


# --------------------------------------------------------------------------- lies that are alike


@pytest.mark.parametrize(
    ("code", "size"),
    [
        *((ReedSolomon(61, stragglers=8), x) for x in (1e-12, 1e-9, 1e-3, 1.0, 1e8, 1e150, 1e300)),
        *((CyclicRepetition(40, stragglers=8), x) for x in (1e-9, 1e-7, 1e-4)),
    ],
)
def test_lies_of_any_size(code, size):
    """Lies below rounding may pass; nobody else is named, and nothing else is verified.

    An ill-conditioned code has many sets that nearly explain checks, but what they leave still
    exceeds rounding.
    """
    workers, named, certain = Workers(code, 4), 0, isinstance(code, ReedSolomon)
    for number in range(much(100, 10)):
        bad = workers.rng.permutation(code.n)[: 1 + number % 4].tolist()
        change = size * np.clip(workers.rng.standard_normal((4, workers.messages[0].size)), -1, 1)
        rnd = workers.lie(dict(zip(bad, change, strict=False)))
        assert set(rnd.corrupt) <= set(bad)
        named += len(rnd.corrupt)
        if size >= 1e-3 and certain:
            assert sorted(rnd.corrupt) == sorted(bad)
        if rnd.verified:
            assert workers.error() < (1e-10 if certain else 1e-8)
        elif certain:  # larger than rounding, but not by enough to tell whose lie it is
            assert size <= 1e-9
            with pytest.raises(CorruptMessageError, match="some of the workers"):
                rnd.gradient()
    assert named or size < 1e-7


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lies", ["equal", "alternating", "smooth", "collinear"])
@pytest.mark.parametrize("code", [ReedSolomon(200, stragglers=8), ReedSolomon(31, stragglers=8)])
def test_neighbours_on_the_circle(code, lies, dtype):
    """Whoever is named, the gradient is as precise as one decoded without the liars."""
    workers = Workers(code, 4, dtype=dtype)
    told = 0
    for number in range(much(100, 10)):
        count = 1 + number % 4
        first = int(workers.rng.integers(code.n))
        bad = [(first + i) % code.n for i in range(count)]
        change = workers.change()
        factors = {
            "equal": np.ones(count),
            "alternating": (-1.0) ** np.arange(count),
            "smooth": np.array([math.comb(count - 1, i) * (-1.0) ** i for i in range(count)]),
            "collinear": workers.rng.standard_normal(count),
        }[lies]
        rnd = workers.lie({i: factor * change for i, factor in zip(bad, factors, strict=True)})
        if not rnd.verified:
            told += 1
            with pytest.raises(CorruptMessageError):
                rnd.gradient()
            continue
        error = workers.error()
        size = max(np.abs(workers.g).max() * code.load, np.abs(change).max() * max(abs(factors)))
        vector = code.decoding_vector(np.setdiff1d(np.arange(code.n), bad), method="locator")
        assert error < 100 * np.finfo(dtype).eps * size * np.linalg.norm(vector)
        if dtype is np.float64 and code.n == 31:
            assert sorted(rnd.corrupt) == sorted(bad)
    assert told < much(100, 10)
