"""The plan objects (streaming encoder, round, decoder), and their claims about precision."""

import math
import re
import tracemalloc

import numpy as np
import pytest
from liars import receive, send
from oracles.table import HALVES
from tables import encoded, partial_gradients

from fastgc import (
    BinaryCode,
    CyclicRepetition,
    FractionalRepetition,
    Grouped,
    LagrangeCode,
    NonFiniteMessageError,
    NotDecodableError,
    Reactive,
    ReedSolomon,
    Uncoded,
)
from fastgc.codes import ReactiveRound
from fastgc.coding.round import Chosen, Host
from fastgc.stability import StabilityTracker

# -------------------------------------------------------------------------------------- round


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_more_messages_make_it_more_precise():
    """Every |a_i| falls to 1/n. The root is 1, so that precision can still improve."""
    code = ReedSolomon(64, stragglers=20, root=1)
    partials = partial_gradients(code, 50)
    messages = encoded(code, partials)
    truth = partials.astype(np.longdouble).sum(axis=0)
    received = code.round(50)
    errors = {}
    order = np.random.default_rng(5).permutation(64)
    for t, worker in enumerate(order, 1):
        received.receive(worker, messages[worker])
        if t in (code.threshold, code.n):
            errors[t] = float(np.linalg.norm((received.gradient() - truth).astype(float)))
    assert errors[code.n] < errors[code.threshold] / 3


def test_residual_of_a_round_is_computed():
    """Also for a code that decodes by a formula: rounding in the vector leaves something out."""
    code = LagrangeCode(20, load=4)
    rnd, messages = code.round(5), encoded(code, partial_gradients(code, 5))
    for worker in range(code.threshold):
        rnd.receive(worker, messages[worker])
    assert code.scheme.exact
    assert rnd.residual() == code.residual(range(code.threshold)) > 1e-15


def test_round_refuses_and_stays_as_it_was():
    code = ReedSolomon(6, 5, stragglers=2)
    partials = partial_gradients(code, 5)
    messages = encoded(code, partials)
    received = code.round(5)
    for i in (4, 0, 2):
        received.receive(i, messages[i])
    good = messages[1]
    assert good.shape == (6,)

    def spoilt(value, at=3):
        message = good.copy()
        message[at] = value
        return message

    for worker, message, error, says in [
        (4, messages[4], ValueError, "worker 4 was heard already in this round"),
        (6, good, ValueError, "worker 6 does not exist: they are numbered 0 to 5"),
        (1.0, good, TypeError, "worker must be an integer, not 1.0"),
        (1, good.astype(">f8"), TypeError, "message of worker 1 must have dtype float64, not >f8"),
        (1, good[:5], ValueError, r"message of worker 1 must have shape \(6,\), not \(5,\)"),
    ]:
        with pytest.raises(error, match=says):
            received.receive(worker, message)
        assert received.survivors.tolist() == [4, 0, 2]
        assert not received.ready
        with pytest.raises(NotDecodableError, match="at least 1 more message is needed"):
            received.gradient()
    assert received.receive(1, good)  # the refused worker may send again
    np.testing.assert_allclose(received.gradient(), partials.sum(axis=0), atol=1e-13)


@pytest.mark.parametrize("verify", [False, 1])
def test_receive_names_what_c_cannot_take(verify):
    code = ReedSolomon(6, stragglers=2)
    rnd, message = code.round(6, verify=verify), np.ones(6)
    with pytest.raises(ValueError, match=f"worker {2**63} does not exist"):
        rnd.receive(2**63, message)
    with pytest.raises(ValueError, match=f"index {2**63} does not exist"):
        rnd.receive(0, message, 2**63)
    for energy in (None, "3", 1j):
        with pytest.raises(TypeError, match="energy must be a real number, not"):
            rnd.receive(0, message, energy=energy)
    rnd.receive(0, message, energy=2**2000)
    assert rnd.survivors.tolist() == [0]


@pytest.mark.parametrize("reader", ["gradient", "best", "trust"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128, *HALVES])
def test_messages_that_are_not_finite_are_named_when_they_are_read(dtype, bad, reader):
    code = ReedSolomon(8, stragglers=2, packed=True)
    partials = np.random.default_rng(2).standard_normal((8, 5)).astype(dtype)
    message_dtype = dtype if np.dtype(dtype).itemsize == 2 else None
    rnd = code.round(5, np.result_type(dtype, np.float32), message_dtype)
    for worker in (3, 0, 7, 5, 1, 2):
        message = code.encode(worker, partials[code.partitions(worker)])
        if worker == 7:
            message[3] = bad
        rnd.receive(worker, message)
    assert rnd.ready
    what = f"the message of worker 7 is not finite: element 3 is {message.dtype.type(bad)}"
    with pytest.raises(NonFiniteMessageError, match=re.escape(what)) as caught:
        getattr(rnd, reader)()
    assert caught.value.worker == 7


def test_messages_that_are_not_used_are_not_read():
    """They cannot change the gradient, nor what it is trusted."""
    code, spoilt = FractionalRepetition(6, stragglers=2), np.full(4, np.nan)
    rnd, clean, whole = code.round(4), code.round(4), np.arange(4.0)
    for worker in range(6):
        copy = worker > 1  # of a message that came
        clean.receive(worker, whole, energy=2.0)
        rnd.receive(worker, spoilt if copy else whole, energy=np.nan if copy else 2.0)
    np.testing.assert_array_equal(rnd.gradient(), clean.gradient())
    assert rnd.trust() == clean.trust()


@pytest.mark.parametrize("tracked", [False, True])
@pytest.mark.parametrize("verify", [False, 1])
@pytest.mark.parametrize("message_dtype", [np.float32, np.float64])
def test_trust_after_gradient_reads_no_message(message_dtype, verify, tracked):
    """Once it has been asked for, decoding notes the norms."""
    code = ReedSolomon(6, stragglers=3, packed=True)
    tracker = StabilityTracker() if tracked else None
    rnd = code.round(9, np.float32, message_dtype, verify=verify, tracker=tracker)
    partials = partial_gradients(code, 9).astype(np.float32)
    trusted = []
    for turn in range(3):
        messages = encoded(code, partials, message_dtype=message_dtype)
        rnd.reset()
        for worker in (5, 0, 3, 2):
            rnd.receive(worker, messages[worker], energy=9.0)
        if turn:
            rnd.gradient(method="lookup" if turn == 1 else "auto")
            if turn == 2:
                for message in messages:
                    message.fill(np.nan)
        trusted.append(rnd.trust()[:2])
    assert trusted == 3 * trusted[:1]
    if not verify:
        rnd.receive(4, messages[4], energy=9.0)
        with pytest.raises(NonFiniteMessageError, match="worker "):
            rnd.trust()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_messages_are_finite(dtype):
    """Rounds take them even though their squared norms are not finite."""
    code = ReedSolomon(3, stragglers=1, packed=False)
    huge = np.finfo(dtype).max / 8
    partials = np.full((3, 4), huge, dtype)
    messages = encoded(code, partials)
    received = code.round(4, dtype)
    received.receive(0, messages[0])
    assert received.receive(2, messages[2])
    np.testing.assert_allclose(received.gradient() / huge, 3, rtol=1e-5)


def test_round_keeps_references():
    """A round reads messages where they lie; only strided ones are copied."""
    code = ReedSolomon(4, stragglers=1)
    partials = partial_gradients(code, 6)
    wide = np.zeros((4, 12))
    wide[:, ::2] = encoded(code, partials)
    messages = encoded(code, partials)
    received = code.round(6)
    for i in range(3):
        received.receive(i, messages[i])
    for message in messages[:3]:
        message *= 2
    np.testing.assert_allclose(received.gradient(), 2 * partials.sum(axis=0), atol=1e-14)
    for message in messages[:3]:
        message /= 2
    received.receive(3, wide[3, ::2])
    np.testing.assert_allclose(received.gradient(), partials.sum(axis=0), atol=1e-14)


def test_large_separate_messages_are_not_joined():
    code, p = ReedSolomon(4, stragglers=1), 30_000
    messages = [np.ones(p) for _ in range(3)]
    wide, out = np.ones((3, p + 4)), np.empty(p)
    for call in (
        lambda: code.decode(range(3), messages, out),
        lambda: code.decode(range(3), wide[:, 2:-2], out),
        lambda: code.encode(0, wide[1::-1, 2:-2], out),
        lambda: code.encode(0, messages[:2], out),
    ):
        call()
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < out.nbytes


# ------------------------------------------------------------------------------------ decoder


@pytest.mark.parametrize(
    "code", [ReedSolomon(8, 10, stragglers=1, clusters="auto"), Uncoded(5, 11, tolerance=0.4)]
)
def test_decoder_is_decoding_vector(code):
    decoder = code.decoder()
    rng = np.random.default_rng(2)
    for _ in range(10):
        survivors = rng.permutation(code.n)[: rng.integers(code.threshold, code.n + 1)]
        vector = decoder(survivors)
        assert np.shares_memory(vector, decoder.vector)
        np.testing.assert_array_equal(vector, code.decoding_vector(survivors))
        decoder.survivors[: survivors.size] = survivors
        np.testing.assert_array_equal(decoder.fill(survivors.size), vector.copy())
    with pytest.raises(ValueError, match="a second time"):
        decoder([0] * (code.n + 1))  # more survivors than there is room for
    with pytest.raises(NotDecodableError):
        decoder([])


# ---------------------------------------------------------------------------- memory that is shared


OVERLAPPING = [
    BinaryCode(6, stragglers=1),
    ReedSolomon(6, stragglers=1),
    ReedSolomon(6, stragglers=2, packed=False),
    Uncoded(6, load=2),
]


@pytest.mark.every_backend
@pytest.mark.parametrize("code", OVERLAPPING, ids=repr)
def test_out_in_the_memory_of_a_message(code):
    """A decoder writes it after reading all; a round keeps its messages, so it refuses."""
    rng = np.random.default_rng(1)
    p = 12
    partials = rng.standard_normal((code.k, p))
    truth = partials.sum(axis=0)
    chosen = np.arange(code.scheme.messages.count)[: None if isinstance(code, Uncoded) else -1]
    every = encoded(code, partials)
    sent = [every[m] for m in chosen]
    size = sent[0].nbytes // 8
    for at in range(3):
        for shift in range(-p + 1, size, 3):
            memory = np.full(2 * p + size, np.nan)
            held = memory[p : p + size].view(sent[0].dtype)
            out = memory[p + shift :][:p]
            messages = [*sent[:at], held, *sent[at + 1 :]]
            held[:] = sent[at]
            rnd, before = code.round(p), memory.copy()
            for number, message in zip(chosen.tolist(), messages, strict=True):
                receive(rnd, number, message)
            for verb in (rnd.gradient, rnd.best):
                with pytest.raises(ValueError, match="out shares memory with a message"):
                    verb(out=out)
            np.testing.assert_array_equal(memory, before)
            for check in (False, True):
                held[:] = sent[at]
                code.decode(chosen, messages, out=out, check_finite=check)
                np.testing.assert_allclose(out, truth, atol=1e-12)
    for at in range(len(sent)):
        stacked = np.array(sent)
        out = stacked.view(float).ravel()[at * size :][:p]
        if out.size == p:
            code.decode(chosen, stacked, out=out, check_finite=False)
            np.testing.assert_allclose(out, truth, atol=1e-12)
    beside = np.concatenate([sent[0].view(float), np.zeros(p)])  # shares no element
    messages = [beside[:size].view(sent[0].dtype), *sent[1:]]
    rnd = code.round(p)
    for number, message in zip(chosen.tolist(), messages, strict=True):
        receive(rnd, number, message)
    np.testing.assert_allclose(rnd.gradient(out=beside[size:]), truth, atol=1e-12)
    rnd.lapse("the memory is gone")
    with pytest.raises(RuntimeError, match="the memory is gone"):
        rnd.gradient()


# -------------------------------------------------------- the protocol: random events in every kind


P = 5


class Workers:
    """A master and its workers: gives a round random events, and checks it after each.

    Messages come in random order. Workers die, and come back or not. Workers that are asked answer
    soon, late, or never.
    """

    def __init__(self, rnd, rng):
        self.rnd, self.rng, self.code, self.now = rnd, rng, rnd.code, 0.0
        self.g = rng.standard_normal((self.code.k, P))
        counts = self.code.scheme.messages.counts
        left = [(i, m) for i, count in enumerate(counts) for m in range(count)]
        self.left = [left[at] for at in rng.permutation(len(left))]
        self.left.sort(key=lambda each: each[1])  # each worker's messages come in order
        self.brought, self.asked, self.dead = set(), [], set()
        rnd.begin(Host(lambda: self.now, least_wait=0.5))

    def message(self, worker, index):
        return self.code.encode(worker, self.g[self.code.partitions(worker, index)], index=index)

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
        ready = send(self.rnd, worker, self.message(worker, index), index)
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
            if chance < 0.05:
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
    rnd = code[int(rng.integers(3))].round(P)
    return rnd, rnd


def verified(rng):
    rnd = CyclicRepetition(6, stragglers=3).round(P, verify=1)
    return rnd, rnd


def grouped(rng):
    rnd = Grouped([ReedSolomon(3, stragglers=1), BinaryCode(3, stragglers=1)]).group_round(P)
    rnd.reset([0, 1])
    return rnd, rnd


def reactive(rng):
    rnd = ReactiveRound(Reactive(5, holders=3), P)
    return rnd, rnd


def chosen(rng):
    code, few = [(ReedSolomon(6, stragglers=2), 4), (Uncoded(3, load=2), 6)][rng.integers(2)]
    numbers = rng.permutation(6)[:few]
    inner = code.round(P)
    return Chosen(inner, numbers, frozenset(range(code.n)), "raise"), inner


@pytest.mark.parametrize("kind", [of_round, verified, grouped, reactive, chosen])
def test_every_kind_of_round_keeps_the_protocol(kind):
    ended = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, 1])
        rnd, decodes = kind(rng)
        workers = Workers(rnd, rng)
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
            np.testing.assert_allclose(decodes.gradient(), whole, atol=1e-10)
    assert ended > 20


# ------------------------------------------------------------------------------ a kind of one's own


def test_chosen_messages_must_suffice_and_come_from_those_asked():
    code = ReedSolomon(6, 5, stragglers=2)
    everyone = frozenset(range(6))
    with pytest.raises(NotDecodableError):
        Chosen(code.round(P), [0, 3, 5], everyone, "raise")
    assert not Chosen(code.round(P), [0, 3, 5], everyone, "best").ready
    with pytest.raises(ValueError, match=r"workers \[0, 5\], which take no part"):
        Chosen(code.round(P), [0, 3, 5], everyone - {0, 5}, "best")
    with pytest.raises(ValueError, match=r"twice: \[3, 0, 3\]"):
        Chosen(code.round(P), [3, 0, 3], everyone, "best")
