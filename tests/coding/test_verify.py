"""Corrupt messages are found, the right worker is named, and rounding is never taken for a lie.

Brute force tells what can be found. Messages are consistent if the least-squares solution of their
equations has no residual. A worker explains an inconsistency if the messages without its own are
consistent.
"""

import itertools
import os
import pickle

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strength import much
from tables import EVERY_LARGE, EVERY_SMALL, LARGE, SMALL, Job

import fastgc
from fastgc import (
    BinaryCode,
    CyclicRepetition,
    FractionalRepetition,
    Grouped,
    LagrangeCode,
    PartialWork,
    ReedSolomon,
    Uncoded,
)
from fastgc.coding.format import Format
from fastgc.coding.scheme import Scheme
from fastgc.coding.verify import WIDTH, Projection
from fastgc.engines import SimulatedCluster
from fastgc.errors import CorruptMessageError, NotDecodableError, UnverifiedError
from fastgc.stability import StabilityTracker

HALVES = [np.float16, ml_dtypes.bfloat16]


def verifiable(code, liars=1):
    """Whether all messages together expose any `liars` workers that lie, by brute force."""
    for lost in itertools.combinations(range(code.n), liars):
        kept = np.setdiff1d(np.arange(code.scheme.messages.count), code.scheme.messages.of(lost))
        if code.residual(kept) > 1e-7:
            return False
    return True


VERIFIED = [code for code in SMALL if verifiable(code)]
EVERY_VERIFIED = pytest.mark.parametrize("code", VERIFIED, ids=lambda code: type(code).__name__)


def dense(parity, size):
    """Return the checks as a matrix."""
    H = np.zeros((parity.first.size, size), parity.coefficient.dtype)
    H[parity.row, parity.position] = parity.coefficient
    return H


def consistent(code, numbers, values):
    """Whether some partial gradients give these messages, in all of their elements."""
    rows = code.scheme.equations(np.array(numbers, dtype=np.int64))[0]
    if not len(rows):
        return True
    values = np.array(values)
    if values.dtype.kind != "c" and rows.dtype.kind == "c":
        values = values.view(np.complex128)
    found = np.linalg.lstsq(rows, values)[0]
    return np.linalg.norm(rows @ found - values) <= 1e-7 * np.linalg.norm(values)


def explaining(code, numbers, messages):
    """Return the workers without whose messages the others are consistent."""
    sender = {m: code.scheme.messages.sender(m)[0] for m in numbers}
    found = []
    for worker in sorted(set(sender.values())):
        kept = [m for m in numbers if sender[m] != worker]
        if consistent(code, kept, [messages[m] for m in kept]):
            found.append(worker)
    return found


KINDS = ["scaled", "sign", "zeros", "noise", "stale", "element", "another's", "huge"]


def spoilt(job, bad, kinds, rng):
    """Return the job's messages; those of the workers `bad` are wrong in these ways."""
    code, messages = job.code, list(job.messages)
    earlier = Job(code, seed=1000)
    scale = max(np.linalg.norm(m) for m in messages)
    for worker, kind in zip(bad, kinds, strict=True):
        for m in code.scheme.messages.of([worker]).tolist():
            true = job.messages[m]
            element = np.zeros_like(true)
            element[rng.integers(true.size)] = 0.01 * scale * rng.uniform(1, 2)
            messages[m] = {
                "scaled": 1.01 * true,
                "sign": -true,
                "zeros": np.zeros_like(true),
                "noise": true + 0.01 * scale * rng.standard_normal(true.size),
                "stale": earlier.messages[m],
                "element": true + element,
                "another's": earlier.messages[(m + 1) % code.scheme.messages.count],
                "huge": 1e300 * true,
            }[kind]
    return messages


def receive(rnd, number, message):
    """Hand a message to a round unless its worker is not wanted, as engines do."""
    worker, index = rnd.code.scheme.messages.sender(number)
    return rnd.receive(worker, message, index) if rnd.wants(worker) else rnd.ready


def in_random_order(code, rng):
    return rng.permutation(code.scheme.messages.count).tolist()


# ------------------------------------------------------------------------------------- checks


@EVERY_SMALL
def test_checks_of_every_set(code):
    """Checks hold for true messages, and there is one for each dependent message."""
    rng = np.random.default_rng(0)
    everyone = np.arange(code.scheme.messages.count)
    for f in sorted(8 * list(range(1, code.scheme.messages.count + 1))):
        numbers = rng.permutation(everyone)[:f]
        rows = code.scheme.equations(numbers)[0]
        H = dense(code.scheme.parity(numbers), f)
        np.testing.assert_allclose(H @ rows, 0, atol=1e-12 * np.abs(H).max(initial=1))
        dependent = f - np.linalg.matrix_rank(rows, tol=1e-9)
        assert len(H) == dependent
        if len(H):
            lengths = np.linalg.norm(H, axis=1, keepdims=True)
            assert np.linalg.matrix_rank(H / lengths, tol=1e-9) == dependent


@pytest.mark.few(6)
@EVERY_LARGE
def test_checks_of_large_codes(code):
    rng = np.random.default_rng(1)
    for _ in range(3):
        heard = rng.permutation(code.n)[int(rng.integers(code.stragglers + 1)) :]
        numbers = rng.permutation(code.scheme.messages.of(heard))
        parity = code.scheme.parity(numbers)
        rows = code.scheme.equations(numbers)[0]
        H = dense(parity, numbers.size)
        sizes = np.abs(H) @ np.linalg.norm(rows, axis=1)
        assert (np.linalg.norm(H @ rows, axis=1) <= 1e-10 * sizes).all()


@EVERY_SMALL
def test_any_code_has_checks(code):
    """The general form, for schemes that do not define checks of their own."""
    numbers = np.random.default_rng(2).permutation(code.scheme.messages.count)
    for f in range(1, numbers.size + 1):
        parity = Scheme.parity(code.scheme, numbers[:f])
        rows = code.scheme.equations(numbers[:f])[0]
        H = dense(parity, f)
        np.testing.assert_allclose(H @ rows, 0, atol=1e-12)
        assert len(H) == f - np.linalg.matrix_rank(rows, tol=1e-9)
        assert (parity.error < 1e-12).all()


def test_checks_that_have_lost_all_digits_accuse_nobody():
    with pytest.warns(fastgc.InstabilityWarning):
        code = ReedSolomon(256, stragglers=32, root=1)
    g = np.random.default_rng(0).standard_normal((code.k, 4))
    rnd = code.round(4, verify=True)
    for seed in range(much(4, 1)):
        rnd.reset()
        for i in np.random.default_rng(seed).permutation(code.n).tolist():
            rnd.receive(i, code.encode(i, g[code.partitions(i)]))
        assert rnd.corrupt == []


# -------------------------------------------------------------------------------- projections


@pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
@pytest.mark.parametrize("size", [2, 4, 700, WIDTH, WIDTH + 2, 3 * WIDTH + 10])
@pytest.mark.parametrize("layout", ["real", "packed"])
def test_projections_are_linear_and_see_every_element(dtype, size, layout):
    form = Format.of(layout, size, np.float32 if dtype in HALVES else dtype, dtype)
    rng = np.random.default_rng(size)
    project = Projection(form, layout == "packed", rng)
    roundoff = float(ml_dtypes.finfo(dtype).eps)
    x, y = rng.standard_normal((2, size)).astype(dtype)
    both = (x.astype(float) + y.astype(float)).astype(dtype)
    square = float(np.sum(both.astype(float) ** 2))
    norm = project.norm(both, square)
    assert norm == pytest.approx(np.sqrt(square) * project.unit, rel=1e-12)
    assert abs(project(both) - project(x) - project(y)) < 4 * roundoff * norm
    if layout == "packed":
        turned = (1j * x.astype(float).view(complex)).view(float).astype(dtype)
        assert abs(project(turned) - 1j * project(x)) < 1e-6 * norm
    for at in {0, size // 2, size - 1, size // WIDTH * WIDTH - 1}:
        one = np.zeros(size, dtype)
        one[at] = 1
        assert 0.4 < abs(project(one)) / project.unit < 2
        one[(at + 2) % size] -= 1  # opposite changes of two elements
        assert size == 2 or abs(project(one)) > 1e-5 * project.unit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projections_do_not_overflow(dtype):
    size = 3 * WIDTH + 5
    project = Projection(Format.of("real", size, dtype), False)
    message = np.full(size, np.finfo(dtype).max)
    assert np.isfinite(project(message))
    square = np.inf if dtype is np.float64 else float(message[0]) ** 2 * size
    expected = float(np.finfo(dtype).max) * project.unit * np.sqrt(size)
    assert project.norm(message, square) == pytest.approx(expected, rel=1e-12)


# ---------------------------------------------------------------------------- honest messages


@EVERY_VERIFIED
@settings(deadline=None, max_examples=much(10, 3))
@given(seed=st.integers(0, 2**32))
def test_honest_messages_pass_in_any_order(code, seed):
    rng = np.random.default_rng(seed)
    job = Job(code, seed=seed)
    rnd = code.round(job.p, verify=True)
    for _ in range(2):
        heard = []
        for number in in_random_order(code, rng):
            heard.append(number)
            assert receive(rnd, number, job.messages[number]) == rnd.ready
            assert rnd.decodable == code.decodable(heard)
            assert rnd.ready <= rnd.decodable
            if rnd.decodable:
                if rnd.verified:
                    expected = code.decode(heard, [job.messages[m] for m in heard], p=job.p)
                    np.testing.assert_array_equal(rnd.gradient(), expected)
                else:
                    with pytest.raises(UnverifiedError, match="too few to show a lie"):
                        rnd.gradient()
                without = [
                    np.setdiff1d(heard, code.scheme.messages.of([worker])).astype(np.int64)
                    for worker in range(code.n)
                ]
                assert rnd.verified <= all(code.residual(kept) < 1e-7 for kept in without)
                assert rnd.verified >= all(code.decodable(kept) for kept in without)
        assert rnd.ready
        assert rnd.corrupt == []
        rnd.reset()
        assert not rnd.decodable
        assert not rnd.ready
        assert not rnd.verified


@pytest.mark.parametrize(
    "code", [c for c in SMALL if c.scheme.messages.per_worker == 1 and c.stragglers], ids=repr
)
def test_one_message_to_spare_covers_all(code):
    """Decoding works without any one of the messages, so each of them can be checked."""
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    for numbers in itertools.combinations(range(code.n), code.threshold + 1):
        rnd.reset()
        for number in numbers:
            ready = rnd.receive(number, job.messages[number])
        assert ready
        assert rnd.verified


def messages_awaited(code, verify):
    """Return the number of messages taken in 20 rounds, in random orders."""
    job = Job(code)
    rnd = code.round(job.p, verify=verify)
    total = 0
    for seed in range(20):
        rnd.reset()
        for number in in_random_order(code, np.random.default_rng(seed)):
            total += 1
            if receive(rnd, number, job.messages[number]):
                break
    return total


def test_no_more_are_awaited_than_needed():
    code = ReedSolomon(12, stragglers=3)
    assert messages_awaited(code, True) == messages_awaited(code, False) + 20
    code = FractionalRepetition(12, stragglers=3)
    assert messages_awaited(code, False) < messages_awaited(code, True) < 20 * 10


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")  # for messages of low precision
@settings(deadline=None, max_examples=much(50, 30))
@given(
    code=st.sampled_from([c for c in VERIFIED + LARGE[:6] if not c.scheme.data.coded]),
    dtype=st.sampled_from([np.float32, np.float64, *HALVES]),
    magnitude=st.integers(-30, 30),
    p=st.sampled_from([1, 2, 7, 64, WIDTH + 3]),
    streaming=st.booleans(),
    shape=st.sampled_from(["random", "constant", "skewed", "sparse"]),
    seed=st.integers(0, 2**32),
)
def test_rounding_is_never_taken_for_corruption(code, dtype, magnitude, p, streaming, shape, seed):
    if code.scheme.layout == "complex" and dtype in HALVES:
        return
    rng = np.random.default_rng(seed)
    g = rng.standard_normal((code.k, p))
    if shape == "constant":
        g[:] = g[0, 0]
    elif shape == "skewed":
        g *= 10.0 ** rng.integers(-4, 5, (code.k, 1))
    elif shape == "sparse":
        g *= rng.random(g.shape) < 0.05
    # float16 ends at 65504, and g may be as large as 10^5.
    scale = 10.0 ** (magnitude if dtype is not np.float16 else -abs(magnitude) / 6 - 1)
    kind = np.float32 if dtype in HALVES else dtype
    sent = dtype if dtype in HALVES else None
    g = (scale * g).astype(kind)
    rnd = code.round(p, kind, sent, verify=True)
    for number in in_random_order(code, rng):
        worker, index = code.scheme.messages.sender(number)
        held = code.partitions(worker, index)
        if streaming:
            encoder = code.encoder(worker, p, kind, index=index, message_dtype=sent)
            for j in held.tolist():
                encoder.add(j, g[j])
            message = encoder.message()
        else:
            message = code.encode(worker, g[held], index=index, message_dtype=sent)
        rnd.receive(worker, message, index)
    assert rnd.corrupt == []
    if rnd.verified:
        rnd.gradient()


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
@pytest.mark.parametrize(
    "code", [c for c in [*VERIFIED, *LARGE[:13]] if isinstance(c, LagrangeCode)], ids=repr
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_residuals_that_vanish_are_not_corrupt(code, dtype):
    """If the model fits the data exactly, messages end up as rounding errors."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((4 * code.k, 5)).astype(dtype)
    truth = rng.standard_normal(5).astype(dtype)
    shards = code.encode_data(X, X @ truth)
    rnd = code.round(5, dtype, verify=True)
    for distance in (1, 1e-2, 1e-5, 1e-9, 0):
        theta = (truth + distance * rng.standard_normal(5)).astype(dtype)
        rnd.reset()
        for number in in_random_order(code, rng):
            worker, index = code.scheme.messages.sender(number)
            partials = [code.compute(shards[j], theta) for j in code.partitions(worker, index)]
            rnd.receive(worker, code.encode(worker, partials, index=index), index)
        assert rnd.corrupt == []
        if distance > 1e-9:
            rnd.gradient()


@pytest.mark.parametrize("size", [1e-280, 1e-290, 1e-300, 1e-305, 1e-310, 1e-320])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(
    "code",
    [
        CyclicRepetition(8, stragglers=2, seed=8),
        ReedSolomon(8, stragglers=2),
        fastgc.LinearCode(
            np.random.default_rng(0).standard_normal((8, 5)) * 10.0 ** np.arange(-4, 4)[:, None]
        ),
    ],
    ids=lambda code: type(code).__name__,
)
def test_projections_too_small_to_be_normal_accuse_nobody(code, dtype, size):
    rng = np.random.default_rng(0)
    rnd = code.round(24, dtype, verify=1)
    for _ in range(much(200, 20)):
        g = (size * rng.standard_normal((code.k, 24))).astype(dtype)
        rnd.reset()
        for i in rng.permutation(code.n).tolist():
            message, energy = told(code, i, g, dtype)
            rnd.receive(i, message, energy=energy)
        assert rnd.corrupt == []
        with pytest.raises(UnverifiedError):
            rnd.gradient()


@pytest.mark.parametrize("e", [1, 2])
def test_what_a_liar_sent_in_other_rounds_hides_nothing(e):
    """It may send a message of any size before there are others to compare it with."""
    code = LagrangeCode(8, load=3)
    job = Job(code)
    rnd = code.round(job.p, verify=e)
    for lie in (0.0, 1e20, 0.0):
        rnd.reset()
        for i in range(8):
            if rnd.wants(i):
                rnd.receive(i, (lie if i < e else 1) * job.messages[i])
        assert rnd.corrupt == list(range(e))
        assert job.error(rnd.gradient()) < 1e-9


def cancelling(code, rng, dtype, size=1e-4):
    """Return partial gradients that nearly cancel in pairs."""
    g = rng.standard_normal((code.k, 32))
    g[1::2] = -g[: 2 * (code.k // 2) : 2] + size * rng.standard_normal(g[1::2].shape)
    return g.astype(dtype)


def told(code, worker, g, dtype):
    """Return a worker's message and its energy."""
    encoder = code.encoder(worker, g.shape[1], dtype)
    for j in code.partitions(worker).tolist():
        encoder.add(j, g[j])
    return encoder.message().copy(), encoder.energy


CANCELLING = [
    (BinaryCode(12, stragglers=4), 1),
    (BinaryCode(12, stragglers=4), 2),
    (BinaryCode(20, stragglers=13), 1),
    (BinaryCode(12, 24, stragglers=4), 2),
    (FractionalRepetition(12, 24, stragglers=2), 1),
    (ReedSolomon(12, 24, stragglers=4), 2),
    (CyclicRepetition(12, stragglers=4), 2),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("code", "e"), CANCELLING, ids=repr)
def test_partial_gradients_that_cancel_accuse_nobody(code, e, dtype):
    """Messages are then smaller than the rounding errors of their terms; energies reveal this."""
    rng = np.random.default_rng(e)
    rnd = code.round(32, dtype, verify=e)
    for _ in range(much(2000, 20)):
        g = cancelling(code, rng, dtype, 10.0 ** rng.uniform(-5 if dtype is np.float32 else -12, 0))
        rnd.reset()
        for i in rng.permutation(code.n).tolist():
            message, energy = told(code, i, g, dtype)
            assert rnd.wants(i)
            rnd.receive(i, message, energy=energy)
        assert rnd.corrupt == []
        assert rnd.verified
        rnd.gradient()


def test_gradients_of_an_engine_that_cancel_accuse_nobody():
    code, out = BinaryCode(12, stragglers=4), np.empty(50)
    shards = [(-1.0) ** j + 1e-4 * j for j in range(12)]
    with SimulatedCluster(code, shards, np.multiply, 50, verify=2) as cluster:
        for seed in range(much(100, 10)):
            theta = np.random.default_rng(seed).standard_normal(50)
            report = cluster.step(theta, out)
            assert report.corrupt == ()
            assert report.verified


@pytest.mark.few(20)
@pytest.mark.parametrize("claim", [0.0, np.nan, 1e6, 1e300, np.inf])
@pytest.mark.parametrize(
    ("code", "e"),
    [*CANCELLING, (ReedSolomon(12, stragglers=2), 2), (BinaryCode(12, stragglers=1), 1)],
    ids=repr,
)
def test_who_lies_may_lie_about_its_energy(code, e, claim):
    """This lets no lie through; and with enough copies to tell, the liar is named."""
    rng = np.random.default_rng(e)
    rnd = code.round(32, verify=e)
    for _ in range(much(300, 10)):
        g = cancelling(code, rng, np.float64, 10.0 ** rng.uniform(-6, 0))
        bad = rng.permutation(code.n)[: rng.integers(1, e + 1)].tolist()
        rnd.reset()
        for i in rng.permutation(code.n).tolist():
            message, energy = told(code, i, g, np.float64)
            if i in bad:
                message, energy = message + rng.standard_normal(message.size), claim
            if rnd.wants(i):
                rnd.receive(i, message, energy=energy)
        assert set(rnd.corrupt) <= set(bad)
        if not rnd.verified:
            assert code.stragglers < 2 * e or np.isnan(claim)
            with pytest.raises((CorruptMessageError, UnverifiedError)):
                rnd.gradient()
            continue
        assert sorted(rnd.corrupt) == sorted(bad)
        assert np.abs(rnd.gradient() - g.sum(axis=0)).max() < 1e-10


SEVERAL = [
    Uncoded(6, load=3),
    Uncoded(12, load=6),
    fastgc.RandomAssignment(8, load=5, seed=1),
    PartialWork(8, load=4),
    LagrangeCode(10, 6, load=4, messages=4),
    LagrangeCode(10, 6, load=4, messages=2),
]


@pytest.mark.parametrize("claim", [1.0, 1e32, 1e306, np.inf])
@pytest.mark.parametrize("code", SEVERAL, ids=repr)
def test_a_liar_with_several_messages_does_not_confirm_its_own_energies(code, claim):
    """Energies are ranked over workers: e + 1 messages may all be one worker's."""
    rng = np.random.default_rng(0)
    job = Job(code)
    plain, rnd = code.round(job.p), code.round(job.p, verify=1)
    named = misled = 0
    for _ in range(much(300, 20)):
        plain.reset()
        rnd.reset()
        for number in rng.permutation(code.scheme.messages.count).tolist():
            worker, index = code.scheme.messages.sender(number)
            encoder = code.encoder(worker, job.p, index=index)
            for j in code.partitions(worker, index).tolist():
                encoder.add(j, job.partials[j])
            message, energy = encoder.message().copy(), encoder.energy
            if worker == 1:
                message, energy = message + rng.standard_normal(job.p), claim * energy
            if not plain.ready:
                plain.receive(worker, message, index, energy=energy)
            if rnd.wants(worker) and rnd.receive(worker, message, index, energy=energy):
                break
        misled += job.error(plain.gradient()) > 1e-3
        assert rnd.verified
        assert job.error(rnd.gradient()) < 1e-9
        assert rnd.corrupt in ([], [1])
        named += rnd.corrupt == [1]
    assert named
    assert misled  # without `verify`: the lies matter


def test_energies_beyond_float64_accuse_nobody():
    """Gradients so long that their squares overflow: energies are infinite, and honest."""
    code = Uncoded(6, load=3)
    g = 1.9e153 * np.random.default_rng(0).standard_normal((6, 50))
    rnd = code.round(50, verify=1)
    energies = []
    for number in range(code.scheme.messages.count):
        worker, index = code.scheme.messages.sender(number)
        encoder = code.encoder(worker, 50, index=index)
        for j in code.partitions(worker, index).tolist():
            encoder.add(j, g[j])
        energies.append(encoder.energy)
        rnd.receive(worker, encoder.message(), index, energy=encoder.energy)
    assert 0 < np.isinf(energies).sum() < len(energies)
    assert rnd.corrupt == []
    with pytest.raises(UnverifiedError):
        rnd.gradient()


def test_two_copies_of_an_approximate_code_do_not_tell_of_two_liars():
    """Both liars may send the same message, and then the checks hold."""
    for e in (1, 2):
        with pytest.raises(ValueError, match=f"verify={e + 1} takes messages of .* to spare"):
            FractionalRepetition(6, stragglers=e, wait=4).round(4, verify=e + 1)
        FractionalRepetition(6, stragglers=e, wait=4).round(4, verify=e)


@pytest.mark.parametrize("lies", [False, True])
@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (np.float64, [1e-300, 1e-200, 1e-170, 1e-162, 1e-155, 1e-100, 1e100, 1e155, 1e200]),
        (np.float32, [1e-44, 1e-41, 1e-38, 1e-20, 1e20, 1e37]),
    ],
)
@pytest.mark.parametrize(
    "code",
    [
        ReedSolomon(8, stragglers=3),
        FractionalRepetition(8, stragglers=3),
        BinaryCode(8, stragglers=3),
    ],
    ids=repr,
)
def test_what_trust_knows_nothing_of_is_not_verified(code, dtype, sizes, lies):
    """Trust knows nothing if squares underflow or overflow."""
    rng = np.random.default_rng(0)
    rnd = code.round(20, dtype, verify=1)
    for size in sizes:
        for _ in range(much(100, 5)):
            g = (size * rng.uniform(-1, 1, (code.k, 20))).astype(dtype)
            bad = int(rng.integers(code.n)) if lies else None
            rnd.reset()
            for i in rng.permutation(code.n).tolist():
                message = code.encode(i, g[code.partitions(i)])
                if i == bad:
                    message = message + (size * rng.uniform(0.5, 1, message.size)).astype(dtype)
                if rnd.wants(i):
                    rnd.receive(i, message)
            assert rnd.corrupt in ([], [bad])
            if rnd.verified:
                assert np.isfinite(rnd.trust().relative_error)
                error = rnd.gradient().astype(np.float64) / size - (
                    g.astype(np.float64) / size
                ).sum(axis=0)
                assert np.abs(error).max() < (1e-11 if dtype is np.float64 else 1e-3)
            else:
                with pytest.raises((UnverifiedError, CorruptMessageError)):
                    rnd.gradient()
            least = 1e-37 if dtype is np.float32 else 1e-150
            assert rnd.verified or not least < size < 1 / least


# --------------------------------------------------------------------------- corrupt messages


def test_a_lie_is_not_let_in_by_a_coefficient_that_rounding_left():
    """Workers 0, 2, 3 and 5 form a cycle; no check has seen worker 4, which lies."""
    code = fastgc.GraphCode(6, degree=3)
    g = np.random.default_rng(53).standard_normal((6, 9))
    rnd = code.round(9, verify=True)
    heard = [4, 0, 5, 3, 2]
    for worker in heard:
        message = code.encode(worker, g[code.partitions(worker)])
        rnd.receive(worker, np.full(9, 1e300) if worker == 4 else message)
    assert 0 < abs(code.decoding_vector(heard)[0]) < 1e-15  # otherwise this test tests nothing
    assert rnd.verified
    for found in (rnd.gradient(), rnd.best().gradient):
        np.testing.assert_allclose(found, g.sum(axis=0), atol=1e-12)


@EVERY_VERIFIED
@settings(deadline=None, max_examples=much(15, 5))
@given(seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS))
def test_a_corrupt_worker_is_named_as_soon_as_algebra_can(code, seed, kind):
    rng = np.random.default_rng(seed)
    job = Job(code, seed=seed % 100)
    bad = int(rng.integers(code.n))
    messages = spoilt(job, [bad], [kind], rng)
    # Brute force cannot compute with huge numbers.
    computed = spoilt(job, [bad], ["sign"], rng) if kind == "huge" else messages
    rnd = code.round(job.p, verify=True)
    heard = []
    for number in in_random_order(code, rng):
        named = bool(rnd.corrupt)
        receive(rnd, number, messages[number])
        heard.append(number)
        if named:
            assert rnd.corrupt == [bad]
        elif code.decodable(heard) and not consistent(code, heard, [computed[m] for m in heard]):
            blamed = explaining(code, heard, computed)
            assert bad in blamed
            assert rnd.corrupt == (blamed if blamed == [bad] else [])
            if not rnd.corrupt:
                assert not rnd.verified
                assert rnd.ready == (len(heard) == code.scheme.messages.count)
                for decode in (rnd.gradient, rnd.best):
                    with pytest.raises(CorruptMessageError) as caught:
                        decode()
                    assert caught.value.suspects == tuple(blamed)
        else:
            assert rnd.corrupt == []
        if rnd.verified:
            assert job.error(rnd.gradient()) < 1e-9
    if rnd.corrupt:
        assert rnd.survivors.tolist() == [
            m for m in heard if code.scheme.messages.sender(m)[0] != bad
        ]
        assert rnd.ready == rnd.decodable
        if rnd.verified:
            assert job.error(rnd.gradient()) < 1e-9
        elif rnd.decodable:
            with pytest.raises(UnverifiedError, match="more must come"):
                rnd.gradient()


@settings(deadline=None, max_examples=much(150, 40))
@given(
    code=st.sampled_from(VERIFIED),
    seed=st.integers(0, 2**32),
    kinds=st.tuples(st.sampled_from(KINDS[:-1]), st.sampled_from(KINDS[:-1])),
)
def test_of_two_corrupt_workers_nothing_inconsistent_passes(code, seed, kinds):
    rng = np.random.default_rng(seed)
    job = Job(code, seed=seed % 100)
    messages = spoilt(job, rng.choice(code.n, 2, replace=False).tolist(), kinds, rng)
    rnd = code.round(job.p, verify=True)
    for number in in_random_order(code, rng):
        receive(rnd, number, messages[number])
        if rnd.decodable:
            kept = rnd.survivors.tolist()
            if rnd.verified:
                assert consistent(code, kept, [messages[m] for m in kept])
            elif not consistent(code, kept, [messages[m] for m in kept]):
                with pytest.raises(CorruptMessageError):
                    rnd.gradient()


@pytest.mark.parametrize(("n", "stragglers"), [(9, 4), (12, 5)])
def test_two_corrupt_workers_frame_no_third(n, stragglers):
    """With at least three messages to spare, errors of two workers never look like one's."""
    code = ReedSolomon(n, stragglers=stragglers)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        job = Job(code, seed=seed)
        messages = spoilt(job, [2, 5], ["noise", "stale"], rng)
        rnd = code.round(job.p, verify=True)
        for number in sorted(in_random_order(code, rng), key=lambda m: m not in (2, 5)):
            receive(rnd, number, messages[number])
        assert rnd.corrupt == []
        assert rnd.ready
        with pytest.raises(
            CorruptMessageError, match=r"more than one worker.* no further"
        ) as caught:
            rnd.gradient()
        assert caught.value.suspects == ()


@pytest.mark.few(6)
@EVERY_LARGE
@pytest.mark.parametrize("kind", much(["scaled", "stale", "element"], ["element"]))
def test_large_codes_name_the_corrupt_one(code, kind):
    rng = np.random.default_rng(7)
    job = Job(code)
    if isinstance(code, Uncoded) and code.scheme.messages.per_worker == 1:
        with pytest.raises(ValueError, match="has none"):
            code.round(job.p, verify=True)
        return
    messages = spoilt(job, [17], [kind], rng)
    rnd = code.round(job.p, verify=True)
    for number in sorted(
        in_random_order(code, rng), key=lambda m: code.scheme.messages.sender(m)[0] != 17
    ):
        if receive(rnd, number, messages[number]):
            break
    assert rnd.corrupt == [17]
    assert rnd.verified
    numbers = rnd.survivors
    expected = code.decode(numbers, [job.messages[m] for m in numbers], p=job.p)
    np.testing.assert_array_equal(rnd.gradient(), expected)


@pytest.mark.parametrize(
    "code",
    [
        Grouped([ReedSolomon(5, stragglers=2)] * 3),
        ReedSolomon(15, stragglers=2, clusters=3),
        FractionalRepetition(15, stragglers=4),
    ],
    ids=repr,
)
def test_workers_with_nothing_in_common_are_named_each(code):
    job = Job(code)
    rng = np.random.default_rng(8)
    messages = spoilt(job, [1, 14], ["noise", "sign"], rng)
    rnd = code.round(job.p, verify=True)
    for number in in_random_order(code, rng):
        receive(rnd, number, messages[number])
    assert sorted(rnd.corrupt) == [1, 14]
    assert rnd.verified
    assert job.error(rnd.gradient()) < 1e-12


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("dtype", "least"), [(np.float32, 1e-4), (np.float64, 1e-12), (np.float16, 0.1)]
)
@pytest.mark.parametrize(
    "code",
    [
        ReedSolomon(20, stragglers=4),
        BinaryCode(20, stragglers=4),
        CyclicRepetition(12, stragglers=3),
    ],
    ids=repr,
)
def test_sizes_that_are_found(code, dtype, least):
    """Noise of this size, relative to its message, is found; noise far below rounding is not."""
    p, rng = 1000, np.random.default_rng(9)
    kind = np.float32 if dtype in HALVES else dtype
    g = rng.standard_normal((code.k, p)).astype(kind)
    messages = [code.encode(i, g[code.partitions(i)], message_dtype=dtype) for i in range(code.n)]
    noise = rng.standard_normal(messages[3].size) / np.sqrt(p)
    noise *= np.linalg.norm(messages[3][:p].astype(float))
    rnd = code.round(p, kind, dtype, verify=True)
    for size, expected in ((least, [3]), (1e-2 * float(np.finfo(dtype).eps), [])):
        found = 0
        for _ in range(60):  # up to a third of random projections see too little of the noise
            rnd.reset()
            for i, message in enumerate(messages):
                if rnd.wants(i):
                    rnd.receive(i, (message + size * noise * (i == 3)).astype(dtype))
            assert rnd.corrupt in ([], expected)
            found += rnd.corrupt == expected
        assert found >= 24 * len(expected)


def test_a_flipped_bit_of_the_exponent_is_found():
    code = ReedSolomon(12, stragglers=3)
    job = Job(code, np.float32)
    rnd = code.round(job.p, np.float32, verify=True)
    for element, bit in itertools.product(range(job.p), range(23, 31)):
        message = job.messages[4].copy()
        message.view(np.uint32)[element] ^= np.uint32(1 << bit)
        if np.isfinite(message).all():
            rnd.reset()
            for i in range(12):
                if rnd.wants(i):
                    rnd.receive(i, message if i == 4 else job.messages[i])
            assert rnd.corrupt == [4]
            assert job.error(rnd.gradient()) < 1e-5


# ------------------------------------------------------------------------------------- rounds


def test_the_life_of_a_corrupt_worker():
    code = ReedSolomon(9, stragglers=4)
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    rnd.receive(0, 2 * job.messages[0])
    for i in range(1, 5):
        assert not rnd.receive(i, job.messages[i])
    assert rnd.decodable
    assert not rnd.verified
    with pytest.raises(UnverifiedError, match="more must come") as caught:
        rnd.gradient()
    assert caught.value.missing == 1
    assert not rnd.receive(5, job.messages[5])  # a contradiction, but it is unknown who lies
    out = np.full(job.p, 7.0)
    says = "one of the workers 0, 1, 2, 3, 4, 5 must be corrupt; at least 1 more"
    for decode in (rnd.gradient, rnd.best):
        with pytest.raises(CorruptMessageError, match=says):
            decode(out)
    assert (out == 7).all()
    assert rnd.receive(6, job.messages[6])  # worker 0 lies: the others have one to spare, and agree
    assert rnd.corrupt == [0]
    assert rnd.verified
    assert rnd.survivors.tolist() == [1, 2, 3, 4, 5, 6]
    assert not rnd.wants(0)
    assert rnd.wants(7)
    with pytest.raises(ValueError, match="worker 0 were found to be corrupt in this round"):
        rnd.receive(0, job.messages[0])
    assert job.error(rnd.gradient()) < 1e-13
    rnd.require(np.array([0, 1, 2, 3, 4, 5]))
    with pytest.raises(NotDecodableError):
        rnd.require(np.array([0, 1, 2, 3, 4]))  # worker 0 does not count
    rnd.reset()
    assert rnd.corrupt == []
    assert rnd.wants(0)
    for i in range(6):
        ready = rnd.receive(i, job.messages[i])
    assert ready
    assert rnd.verified


def test_a_message_after_the_last_needed_is_looked_at_too():
    code = ReedSolomon(7, stragglers=3)
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    for i in range(5):
        ready = rnd.receive(i, job.messages[i])
    assert ready
    assert rnd.receive(5, -job.messages[5])
    assert rnd.corrupt == [5]
    assert rnd.ready


def test_what_is_left_may_not_be_covered():
    code = FractionalRepetition(6, stragglers=2)
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    for i, factor in ((0, 1), (1, 1), (3, 2), (5, 1)):
        assert not rnd.receive(i, factor * job.messages[i])
    assert rnd.corrupt == [3]  # its copies 1 and 5 agree
    assert rnd.decodable
    assert not rnd.verified  # no copy has confirmed worker 0
    assert not rnd.receive(2, -job.messages[2])
    assert rnd.corrupt == [3]
    assert rnd.receive(4, job.messages[4])
    assert rnd.corrupt == [3, 2]
    assert rnd.verified
    assert job.error(rnd.gradient()) < 1e-13


def test_nobody_left_to_tell():
    code = ReedSolomon(5, stragglers=1)
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    for i in range(5):
        rnd.receive(i, job.messages[i] * (2 if i == 1 else 1))
    assert rnd.ready
    assert not rnd.verified
    with pytest.raises(CorruptMessageError, match="no further message can come that would tell"):
        rnd.gradient()


def test_nobody_left_to_tell_of_some():
    """One group's corrupt worker is named and dropped; another group's cannot be named."""
    code = Grouped([ReedSolomon(5, stragglers=2), ReedSolomon(4, stragglers=1)])
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    for i in range(9):
        ready = rnd.receive(i, job.messages[i] * (-1 if i in (1, 7) else 1))
        assert ready == (i == 8)
    assert rnd.corrupt == [1]
    with pytest.raises(
        CorruptMessageError, match="5, 6, 7, 8 must be corrupt; no further"
    ) as caught:
        rnd.gradient()
    assert caught.value.suspects == (5, 6, 7, 8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
def test_numbers_too_small_to_be_normal(dtype):
    """Below the normal range rounding errors stay the same: relative to numbers, they are large."""
    code = ReedSolomon(8, stragglers=3)
    least = float(np.nextafter(np.zeros(1, dtype), np.ones(1, dtype))[0])
    kind = np.float32 if dtype in HALVES else dtype
    rng = np.random.default_rng(0)
    rnd = code.round(64, kind, dtype, verify=True)
    for size in (0.3, 1, 3, 30):
        g = rng.standard_normal((8, 64)) * size
        g = (g * least).astype(kind)
        rnd.reset()
        for i in range(8):
            rnd.receive(i, code.encode(i, g[code.partitions(i)], message_dtype=dtype))
        assert rnd.corrupt == []
        if rnd.verified:
            rnd.gradient()
        else:
            with pytest.raises(UnverifiedError, match=r"would hide|square is beyond float64"):
                rnd.gradient()


def test_best_of_too_few_looks_as_well():
    code = FractionalRepetition(6, stragglers=2)
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    rnd.receive(0, job.messages[0])
    rnd.receive(2, 2 * job.messages[2])
    with pytest.raises(NotDecodableError):
        rnd.gradient()
    with pytest.raises(CorruptMessageError, match="workers 0, 2 must"):
        rnd.best()
    rnd.receive(4, job.messages[4])
    assert rnd.best().residual == pytest.approx(np.sqrt(0.5))
    assert rnd.corrupt == [2]
    assert rnd.survivors.tolist() == [0, 4]


def test_without_verify_nothing_is_looked_at():
    code = ReedSolomon(7, stragglers=3)
    job = Job(code)
    rnd = code.round(job.p)
    for i in range(7):
        ready = rnd.receive(i, -job.messages[i] if i == 1 else job.messages[i])
        assert ready == (i >= 3)
    assert not rnd.verified
    assert rnd.corrupt == []
    rnd.gradient()


def test_a_tracker_may_want_still_more():
    code = CyclicRepetition(8, stragglers=3)
    job = Job(code)
    tracker = StabilityTracker(limit=1e-30, action="wait")
    rnd = code.round(job.p, tracker=tracker, verify=True)
    assert [rnd.receive(i, job.messages[i]) for i in range(8)] == [False] * 7 + [True]
    assert rnd.verified


def test_groups_that_take_part_are_verified_each():
    code = Grouped([ReedSolomon(5, stragglers=2), BinaryCode(4, stragglers=1), Uncoded(2, load=2)])
    rng = np.random.default_rng(0)
    g = rng.standard_normal((code.k, 5))
    messages = [
        code.encode(i, g[code.partitions(i, t)], index=t)
        for i, t in map(code.scheme.messages.sender, range(code.scheme.messages.count))
    ]
    messages[2] = -messages[2]
    rnd = code.group_round(5, verify=True)
    rnd.reset([0, 1])
    for i in (2, 0, 1, 3):
        assert not rnd.receive(i, messages[i])
    assert not rnd.decodable
    assert rnd.wants(4)
    rnd.receive(4, messages[4])
    assert rnd.corrupt == [2]
    assert rnd.survivors.tolist() == [0, 1, 3, 4]
    assert not rnd.wants(2)
    for i in (5, 7):
        rnd.receive(i, messages[i])
    assert rnd.decodable
    assert not rnd.ready
    rnd.receive(6, messages[6])
    rnd.receive(8, -messages[8])
    with pytest.raises(
        CorruptMessageError, match="one of the workers 7, 8 must be corrupt; no further"
    ) as caught:
        rnd.gradient(1)
    assert caught.value.suspects == (7, 8)
    assert not rnd.verified
    np.testing.assert_allclose(rnd.gradient(0), g[:5].sum(axis=0), atol=1e-13)
    rnd.reset([2])
    assert rnd.corrupt == []
    for i, t in ((9, 0), (9, 1), (10, 0)):
        rnd.receive(i, messages[code.scheme.messages.number(i, t)])
    assert rnd.decodable
    assert not rnd.ready
    rnd.receive(10, messages[-1])
    assert rnd.verified


def test_several_messages_of_a_worker_are_suspect_together():
    code = Uncoded(3, load=3)
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    for number, factor in ((0, 1), (1, 2), (3, 1), (4, 1), (8, 1)):
        receive(rnd, number, factor * job.messages[number])
    # Worker 0's partition 1 contradicts worker 1's, and is one against two.
    assert rnd.corrupt == [0]
    assert rnd.survivors.tolist() == [3, 4, 8]


def test_the_error_crosses_processes():
    error = pickle.loads(pickle.dumps(CorruptMessageError("what happened", (1, 4))))
    assert str(error) == "what happened"
    assert error.suspects == (1, 4)


@pytest.mark.parametrize("liars", [1, 2, 3])
def test_what_could_never_be_verified_is_refused(liars):
    """For exact codes, trying all sets of liars tells whether a round can be verified."""
    for code in SMALL:
        if liars < code.n and verifiable(code, liars):
            code.round(4, verify=liars)
        elif code.scheme.exact:
            with pytest.raises(ValueError, match=f"verify={liars} takes messages of .* to spare"):
                code.round(4, verify=liars)


@pytest.mark.parametrize(
    ("code", "liars", "spare"),
    [
        (ReedSolomon(8, stragglers=1), 2, "those of one worker"),
        (CyclicRepetition(8, stragglers=1), 2, "those of one worker"),
        (FractionalRepetition(8, stragglers=1), 2, "those of one worker"),
        (BinaryCode(8, stragglers=1), 2, "those of one worker"),
        (Uncoded(8), 1, "none"),
        (fastgc.GraphCode(15, degree=5), 8, "those of 4 workers"),
        (ReedSolomon(12, stragglers=3), 4, "those of 3 workers"),
        (ReedSolomon(12, stragglers=3, clusters=2), 4, "those of 3 workers"),
    ],
    ids=repr,
)
def test_fewer_to_spare_than_may_lie(code, liars, spare):
    says = rf"verify={liars} .* has {spare}: use stragglers={liars} or more \({liars + 1} copies"
    with pytest.raises(ValueError, match=says):
        code.round(4, verify=liars)


@pytest.mark.parametrize(
    ("code", "e"),
    [
        (ReedSolomon(8, stragglers=2), 2),
        (CyclicRepetition(8, stragglers=2), 2),
        (FractionalRepetition(9, stragglers=2), 2),
        (BinaryCode(9, stragglers=2), 2),
        (ReedSolomon(12, stragglers=4), 4),
        (ReedSolomon(12, stragglers=4, clusters=2), 4),
    ],
    ids=repr,
)
def test_a_loop_that_stops_when_told_has_what_is_right_or_an_error(code, e):
    """A loop that obeys `receive` ends with the right gradient or an error, however many lie."""
    rng = np.random.default_rng(e)
    job = Job(code)
    rnd = code.round(job.p, verify=e)
    raised = 0
    for _ in range(much(600, 40)):
        bad = rng.permutation(code.n)[: rng.integers(0, e + 1)].tolist()
        messages = spoilt(job, bad, rng.choice(KINDS[:-1], len(bad)).tolist(), rng)
        rnd.reset()
        for number in in_random_order(code, rng):
            if receive(rnd, number, messages[number]):
                break
        try:
            assert job.error(rnd.gradient()) < 1e-9
        except CorruptMessageError:
            raised += 1
            assert bad
    assert raised


# ------------------------------------------------------------------- workers that lie and collude


def test_nobody_knows_the_projection():
    """Each round and each master has another one, so knowing its source is of no use."""
    code, p = ReedSolomon(6, stragglers=2), 3 * WIDTH + 10
    vectors = []
    for _ in range(2):
        rnd = code.round(p, verify=True)
        for _ in range(2):
            rnd.reset()
            rnd.receive(0, np.ones(p + p % 2))
            project = rnd._inspector._projection
            vectors.append((project._factors, project._within, project._rest))
            rnd.receive(1, np.ones(p + p % 2))
            assert project._factors is vectors[-1][0]  # the same for all messages of a round
    for first, second in itertools.combinations(vectors, 2):
        for a, b in zip(first, second, strict=True):
            assert abs(np.corrcoef(a.real, b.real)[0, 1]) < (0.5 if a.size > 99 else 1.1)
            assert not (a == b).any()


@pytest.mark.parametrize("shape", [(1, 7), (40, 1), (40, 40), "low rank", "one row"])
def test_how_rarely_a_change_is_missed(shape):
    """At most ``27 (1 + log t) / t`` of the time, also for changes that fit outer products."""
    size = 40 * WIDTH if isinstance(shape, str) or shape[0] > 1 else WIDTH - 1
    form = Format.of("real", size, np.float64)
    rng = np.random.default_rng(0)
    project = Projection(form, False, rng)
    change = np.zeros(size)
    if shape == "low rank":
        change[:] = np.outer(rng.standard_normal(40), rng.standard_normal(WIDTH)).ravel()
    elif shape == "one row":
        change[WIDTH : WIDTH + 50] = rng.standard_normal(50)
    else:
        for row, column in itertools.product(range(shape[0]), range(shape[1])):
            change[row * WIDTH + column] = rng.standard_normal()
    change /= np.linalg.norm(change)
    seen = []
    for _ in range(much(3000, 400)):
        project.renew()
        seen.append(abs(project(change)) / project.unit)
    for t in (100, 1000):
        missed = np.mean(np.array(seen) < 1 / t)
        assert missed <= 27 * (1 + np.log(t)) / t + 3 * np.sqrt(missed / len(seen))
    assert np.mean(np.array(seen) < 1 / 1000) < 0.02  # misses are much rarer than the bound
    assert 0.1 < np.median(seen) < 10


def to_spare(code):
    """Return how many messages are to spare; None for codes whose messages are copies."""
    return None if isinstance(code, FractionalRepetition) else code.n - code.threshold


class Attack:
    """Lies of colluding workers that know everything but the projection of this round."""

    KINDS = ("known", "last", "codeword", "frame", "noise", "scaled", "stale", "other's", "element")

    def __init__(self, job, rng):
        self.job, self.rng = job, rng
        self.code = job.code
        self.form = self.code.scheme.format(job.p, np.float64)

    def changes(self, kind, liars, last):
        """Return the changes of these workers' messages, none below a hundredth of its message."""
        rng, messages = self.rng, self.job.messages
        size = messages[0].size
        scale = np.linalg.norm(messages[0]) * 10.0 ** rng.uniform(-2, 3) / np.sqrt(size)
        changes = scale * rng.standard_normal((len(liars), size))
        if kind in ("known", "last"):  # a projection that they know sees nothing of the changes
            project = last
            if kind == "known":
                paired = self.code.scheme.is_complex
                project = Projection(self.form, paired, np.random.default_rng(0))
            each = 2 if self.code.scheme.is_complex else 1
            basis = np.array([project(row) for row in np.eye(size)])[::each] / project.unit
            numbers = changes.view(complex) if each == 2 else changes
            numbers -= np.outer(numbers @ basis, basis.conj()) / np.linalg.norm(basis) ** 2
        elif kind == "codeword" and len(liars) > 1:  # as many checks hold as possible
            rows = self.code.scheme.equations(np.array(liars))[0]
            g = rng.standard_normal((rows.shape[1], size))
            mixed = rows @ (g.view(complex) if rows.dtype.kind == "c" else g)
            changes = scale * np.ascontiguousarray(mixed).view(float).reshape(len(liars), size)
        elif kind == "frame" and len(liars) > 1:  # frame an honest worker
            victim = int(rng.choice(np.setdiff1d(np.arange(self.code.n), liars)))
            some = np.append(liars, victim)
            everyone = np.arange(self.code.n)
            _, _, ways = np.linalg.svd(
                dense(self.code.scheme.parity(everyone), everyone.size)[:, some]
            )
            by = ways[-1].conj()[: len(liars)]  # with a change of the victim's, checks see least
            by = np.where(np.abs(by) > 1e-3, by, 0)
            g = rng.standard_normal(size)
            wide = by[:, None] * (g.view(complex) if by.dtype.kind == "c" else g)
            changes = scale * np.ascontiguousarray(wide).view(float).reshape(len(liars), size)
        elif kind == "scaled":
            changes = np.array([messages[i] * rng.uniform(0.01, 2) for i in liars])
        elif kind == "stale":
            changes = np.array([Job(self.code, seed=77).messages[i] - messages[i] for i in liars])
        elif kind == "other's":
            changes = np.array([messages[(i + 1) % self.code.n] - messages[i] for i in liars])
        elif kind == "element":
            changes *= np.arange(size) == rng.integers(size)
        equal = rng.random() < 0.3 and isinstance(self.code, FractionalRepetition)
        return np.broadcast_to(changes[0], changes.shape) if equal else changes


PROOF = [
    (ReedSolomon(12, stragglers=5), 1),
    (ReedSolomon(12, stragglers=5), 2),
    (ReedSolomon(14, stragglers=8, packed=True), 3),
    (CyclicRepetition(10, stragglers=4), 2),
    (LagrangeCode(15, load=3), 2),
    (FractionalRepetition(12, stragglers=2), 1),
    (FractionalRepetition(15, stragglers=4), 2),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("code", "e"), PROOF, ids=repr)
def test_no_adaptive_attack_is_missed(code, e):
    """The theorem of `fastgc.coding.verify` holds for all numbers of liars that it covers.

    At most e workers lie. They collude, and know the checks, all messages, and the projections of
    all earlier rounds. Longer: VERIFY_ATTACKS=143000 pytest tests/coding/test_verify.py -k adaptive
    """
    rng = np.random.default_rng(e)
    job = Job(code)
    attack = Attack(job, rng)
    rnd = code.round(job.p, verify=e)
    rnd.receive(0, job.messages[0])
    last = rnd._inspector._projection
    named = told = 0
    for number in range(int(os.environ.get("VERIFY_ATTACKS", much(20_000, 120)))):
        t = int(rng.integers(0, e + 1))
        liars = rng.permutation(code.n)[:t]
        came = rng.permutation(code.n)[int(rng.integers(0, (code.stragglers or 0) + 1)) :]
        kind = Attack.KINDS[number % len(Attack.KINDS)]
        sent = attack.changes(kind, liars, last) if t else []
        changes = dict(zip(liars.tolist(), sent, strict=True))
        last = Projection(attack.form, code.scheme.is_complex, np.random.default_rng(0))
        last._factors, last._within, last._rest = (
            getattr(rnd._inspector._projection, name) for name in ("_factors", "_within", "_rest")
        )
        rnd.reset()
        # Honest messages come first, so that all liars that come can be named.
        for i in came.tolist():
            if rnd.wants(i):
                rnd.receive(i, job.messages[i] + changes.get(i, 0.0))
        assert set(rnd.corrupt) <= set(liars.tolist()), (kind, liars, came)
        lied = set(came.tolist()) & {i for i, change in changes.items() if change.any()}
        if not rnd.decodable:
            continue
        suspects, found = None, None
        try:
            found = rnd.gradient()
        except UnverifiedError:
            assert not rnd.verified
            continue
        except CorruptMessageError as error:
            suspects = set(error.suspects)
        assert found is None or rnd.verified
        if suspects is not None:
            told += 1
            assert lied
            assert not rnd.verified
            assert not suspects or lied & suspects
        elif rnd.verified:
            assert job.error(found) < 1e-7, (kind, liars, came)
        spare = to_spare(code)
        if spare is not None and kind != "element" and came.size - code.threshold >= e + len(lied):
            assert set(rnd.corrupt) == lied, (kind, liars, came)
        if not lied and spare is not None and came.size - code.threshold >= e:
            assert rnd.verified
        named += len(rnd.corrupt)
    assert named
    assert told


@pytest.mark.parametrize("copies", range(2, 8))
@pytest.mark.parametrize("e", [1, 2, 3])
def test_two_equal_liars_and_their_copies(copies, e):
    """Counting votes tells what they can do: e + t + 1 copies name t liars of at most e."""
    code = FractionalRepetition(copies, stragglers=copies - 1)
    g = np.random.default_rng(0).standard_normal((code.k, 6))
    truth, lie = g.sum(axis=0), g.sum(axis=0) + 1
    if copies <= e:
        with pytest.raises(ValueError, match="to spare"):
            code.round(6, verify=e)
        return
    for t in range(e + 1):
        if t >= copies:
            continue
        rnd = code.round(6, verify=e)
        for i in range(copies):
            if rnd.wants(i):
                rnd.receive(i, lie if i < t else truth)
        if copies >= e + t + 1:
            assert rnd.corrupt == list(range(t))
        else:
            assert set(rnd.corrupt) <= set(range(t))
        if not t:
            assert rnd.verified == (copies > e)
        elif copies < e + t + 1:
            assert rnd.corrupt == []
            assert not rnd.verified
            with pytest.raises(CorruptMessageError):
                rnd.gradient()
    # More liars than e, which the theorem does not cover: they outvote the third copy.
    if copies == 3 and e == 1:
        rnd = code.round(6, verify=1)
        for i in range(3):
            if rnd.wants(i):
                rnd.receive(i, lie if i < 2 else truth)
        assert rnd.corrupt == [2]


def test_detection_accuses_nobody():
    """With no more messages to spare than liars, a round knows of a lie, but not whose it is."""
    code = ReedSolomon(12, stragglers=4)
    job = Job(code)
    for e, spare in ((1, 1), (2, 2)):
        rnd = code.round(job.p, verify=e)
        for i in range(code.threshold + spare):
            rnd.receive(i, -job.messages[i] if i < e else job.messages[i])
        assert rnd.corrupt == []
        assert not rnd.verified
        with pytest.raises(CorruptMessageError, match="must be corrupt") as caught:
            rnd.gradient()
        assert f"{'one' if e == 1 else 'some'} of the workers" in str(caught.value)
        assert set(range(e)) <= set(caught.value.suspects)
