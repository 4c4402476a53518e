"""The plan objects (streaming encoder, round, decoder), and their claims about precision."""

import math
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_table import HALVES
from tables import EVERY_SMALL, Job

from fastgc import (
    BinaryCode,
    CyclicRepetition,
    FractionalRepetition,
    Grouped,
    NonFiniteMessageError,
    NotDecodableError,
    ReedSolomon,
    Uncoded,
    backend,
)
from fastgc.coding import round as rounds
from fastgc.stability.precision import Experiment

CODES = [
    ReedSolomon(7, stragglers=2),
    ReedSolomon(7, 9, stragglers=2, packed=False),
    ReedSolomon(8, 10, stragglers=1, clusters="auto"),
    ReedSolomon(1, load=1),
    ReedSolomon(6, load=6),
    Uncoded(5, 11, tolerance=0.4),
]
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
EVERY_CODE = pytest.mark.parametrize("code", CODES, ids=repr)
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)


SIZES = (1, 2, 9, 1001)


def partial_gradients(code, p, dtype, seed=0):
    rng = np.random.default_rng(seed)
    partials = rng.standard_normal((code.k, p))
    if np.dtype(dtype).kind == "c":
        partials = partials + 1j * rng.standard_normal((code.k, p))
    return partials.astype(dtype)


def encoded(code, partials):
    return [code.encode(i, partials[code.partitions(i)]) for i in range(code.n)]


def exact(code, partials, survivors):
    """Return the exact gradient that these survivors decode to."""
    if isinstance(code, Uncoded):
        came = np.concatenate([code.partitions(i) for i in survivors])
        return partials[came].sum(axis=0) * (code.k / came.size)
    return partials.sum(axis=0)


def fits(code, dtype):
    return code.scheme.packed or np.dtype(dtype).kind == "f"


# ------------------------------------------------------------------------------------ encoder


@EVERY_CODE
@EVERY_DTYPE
def test_streaming_is_encoding(code, dtype):
    if not fits(code, dtype):
        pytest.skip("packed=False takes real gradients")
    for p in SIZES:
        check_streaming(code, dtype, p)


def check_streaming(code, dtype, p):
    partials = partial_gradients(code, p, dtype)
    unit = np.finfo(dtype).eps
    rng = np.random.default_rng(1)
    for worker in range(code.n):
        whole = code.encode(worker, partials[code.partitions(worker)])
        # By definition: a row of B times partials, whose pairs count as complex numbers.
        wide = partials.astype(np.complex128)
        if code.scheme.is_complex and code.scheme.packed and np.dtype(dtype).kind == "f":
            padded = np.zeros((code.k, p + p % 2))
            padded[:, :p] = partials
            wide = padded[:, ::2] + 1j * padded[:, 1::2]
        truth = code.matrix()[worker] @ wide
        if wide.shape[1] != whole.size:
            truth = truth.view(np.float64)
        np.testing.assert_allclose(whole, truth, atol=60 * unit)
        encoder = code.encoder(worker, p, dtype)
        for _ in range(2):  # the second time after a reset, over the old contents
            for j in rng.permutation(code.partitions(worker)):
                encoder.add(j, partials[j])
            np.testing.assert_allclose(encoder.message(), whole, atol=60 * unit)
            encoder.reset()


def test_encoder_writes_where_it_is_told():
    code = ReedSolomon(5, stragglers=1)
    partials = partial_gradients(code, 6, np.float64)
    room = np.full(12, 7.0)
    encoder = code.encoder(3, 6, out=room[3:9])
    for j in code.partitions(3):
        encoder.add(int(j), partials[j])
    assert np.shares_memory(encoder.message(), room)
    np.testing.assert_allclose(room[3:9], code.encode(3, partials[code.partitions(3)]), atol=1e-14)
    assert (room[:3] == 7).all()
    assert (room[9:] == 7).all()


def test_encoder_refuses():
    code = ReedSolomon(5, stragglers=1)
    first, second = code.partitions(2).tolist()
    absent = next(j for j in range(5) if j not in (first, second))
    g = np.arange(4.0)
    encoder = code.encoder(2, 4)
    with pytest.raises(ValueError, match=rf"lacks partitions \[{first}, {second}\]"):
        encoder.message()
    encoder.add(first, g)
    before = encoder._out.copy()
    for partition, partial, error, says in [
        (absent, g, ValueError, rf"partition {absent} is not among those of worker 2"),
        (9, g, ValueError, "partition 9 is not among"),
        (first, g, ValueError, f"partition {first} was added already"),
        (second, g.astype(np.float32), TypeError, "must have dtype float64, not float32"),
        (second, g[:3], ValueError, r"must have shape \(4,\), not \(3,\)"),
        (second, g[:, None], ValueError, r"not \(4, 1\)"),
    ]:
        with pytest.raises(error, match=says):
            encoder.add(partition, partial)
        with pytest.raises(ValueError, match=rf"worker 2's message still lacks .* \[{second}\]"):
            encoder.message()
        np.testing.assert_array_equal(encoder._out, before)
    encoder.add(second, g[::-1])  # strided, so it is copied
    np.testing.assert_allclose(encoder.message(), code.encode(2, [g, g[::-1]]), atol=1e-14)
    with pytest.raises(ValueError, match="worker 5 does not exist: they are numbered 0 to 4"):
        code.encoder(5, 4)
    with pytest.raises(ValueError, match="p must be at least 1"):
        code.encoder(0, 0)
    with pytest.raises(TypeError, match="dtype"):
        code.encoder(0, 4, np.int32)


# -------------------------------------------------------------------------------------- round


@EVERY_CODE
@EVERY_DTYPE
def test_any_order_of_arrival(code, dtype):
    if not fits(code, dtype):
        pytest.skip("packed=False takes real gradients")
    for p in SIZES:
        check_any_order(code, dtype, p)


def check_any_order(code, dtype, p):
    unit = np.finfo(dtype).eps
    received = code.round(p, dtype)
    rng = np.random.default_rng(p)
    for seed in range(4):
        partials = partial_gradients(code, p, dtype, seed)
        messages = encoded(code, partials)
        heard = []
        for worker in rng.permutation(code.n):
            ready = received.receive(worker, messages[worker])
            heard.append(worker)
            assert ready == received.ready == code.decodable(heard)
            assert received.survivors.tolist() == heard
            if ready:  # from the threshold on, with each further message
                gradient = received.gradient()
                assert gradient.dtype == dtype
                assert gradient.shape == (p,)
                truth = exact(code, partials.astype(np.clongdouble), heard)
                np.testing.assert_allclose(
                    gradient.astype(complex), truth.astype(complex), atol=400 * unit
                )
                again = code.decode(heard, [messages[i] for i in heard], p=p)
                np.testing.assert_allclose(gradient, again, atol=100 * unit)
            else:
                with pytest.raises(NotDecodableError):
                    received.gradient()
        assert received.ready
        received.reset()
        assert not received.ready
        assert received.survivors.size == 0


@given(st.permutations(range(8)))
@settings(max_examples=30, deadline=None)
def test_ready_as_soon_as_can_be(order):
    """With clusters, a round may be ready with fewer than f messages, as soon as possible."""
    code = CODES[2]
    dense = code.matrix()
    received = code.round(2)
    for t, worker in enumerate(order):
        ready = received.receive(worker, np.zeros(2))
        rows = dense[list(order[: t + 1])]
        vector = np.linalg.lstsq(rows.T, np.ones(code.k), rcond=None)[0]
        assert ready == (np.abs(vector @ rows - 1).max() < 1e-9)
        assert ready or t + 1 < code.threshold


@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_more_messages_make_it_more_precise():
    """Every |a_i| falls to 1/n. The root is 1, so that precision can still improve."""
    code = ReedSolomon(64, stragglers=20, root=1)
    partials = partial_gradients(code, 50, np.float64)
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


def test_round_refuses_and_stays_as_it_was():
    code = ReedSolomon(6, stragglers=2)
    partials = partial_gradients(code, 5, np.float64)
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
        (-1, good, ValueError, "worker -1 does not exist"),
        (1.0, good, TypeError, "worker must be an integer, not 1.0"),
        (1, good.astype(np.float32), TypeError, "message of worker 1 must have dtype float64"),
        (1, good.astype(np.complex128), TypeError, "message of worker 1 must have dtype float64"),
        (1, good.astype(">f8"), TypeError, "message of worker 1 must have dtype float64, not >f8"),
        (1, good[:5], ValueError, r"message of worker 1 must have shape \(6,\), not \(5,\)"),
        (1, good[None], ValueError, r"message of worker 1 must have shape"),
        (1, spoilt(np.nan), NonFiniteMessageError, "worker 1 is not finite: element 3 is nan"),
        (1, spoilt(np.inf, 5), NonFiniteMessageError, "worker 1 is not finite: element 5 is inf"),
        (1, spoilt(-np.inf, 0), NonFiniteMessageError, "worker 1 is not finite: element 0 is -inf"),
    ]:
        with pytest.raises(error, match=says) as caught:
            received.receive(worker, message)
        if error is NonFiniteMessageError:
            assert caught.value.worker == 1
        assert received.survivors.tolist() == [4, 0, 2]
        assert not received.ready
        with pytest.raises(NotDecodableError, match="at least 1 more message is needed"):
            received.gradient()
    assert received.receive(1, good)  # the refused worker may send again
    np.testing.assert_allclose(received.gradient(), partials.sum(axis=0), atol=1e-13)


@pytest.mark.parametrize("packed", [True, False])
def test_unchecked_rounds_read_messages_once(packed, monkeypatch):
    rng, code = np.random.default_rng(2), ReedSolomon(8, stragglers=2, packed=packed)
    partials = rng.standard_normal((8, 5))
    messages = [code.encode(i, partials[code.partitions(i)]) for i in range(8)]
    checked, unchecked = code.round(5), code.round(5, check_finite=False)
    read, norm = [], rounds.square_norm
    monkeypatch.setattr(rounds, "square_norm", lambda row: read.append(row) or norm(row))
    for worker in (3, 0, 7, 5, 1, 2):
        ready = unchecked.receive(worker, messages[worker])
    assert ready
    assert not read
    for worker in (3, 0, 7, 5, 1, 2):
        checked.receive(worker, messages[worker])
    np.testing.assert_array_equal(unchecked.gradient(), checked.gradient())
    assert unchecked.trust() == checked.trust() == unchecked.trust()
    unchecked.receive(4, messages[4])  # trust() has changed nothing in the round
    checked.receive(4, messages[4])
    assert unchecked.trust() == checked.trust()
    unchecked.reset()
    for worker in range(6):
        unchecked.receive(worker, messages[worker] * (np.nan if worker == 2 else 1))
    assert np.isnan(unchecked.gradient()).any()
    with pytest.raises(ValueError, match="not with check_finite=False"):
        code.round(5, verify=True, check_finite=False)


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
    partials = partial_gradients(code, 6, np.float64)
    wide = np.zeros((4, 12))
    wide[:, ::2] = encoded(code, partials)
    messages = encoded(code, partials)
    received = code.round(6)
    for i in range(3):
        received.receive(i, messages[i])
    assert received._rows.addresses[:3].tolist() == [m.ctypes.data for m in messages[:3]]
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


@EVERY_CODE
def test_out_of_a_round(code):
    p = 5
    partials = partial_gradients(code, p, np.float64)
    received = code.round(p)
    for i, message in enumerate(encoded(code, partials)):
        received.receive(i, message)
    read_only = np.full(p, 7.0)
    read_only.flags.writeable = False
    for out, error, says in [
        (read_only, ValueError, "out is read-only"),
        (np.full(2 * p, 7.0)[::2], ValueError, "out must be contiguous"),
        (np.full(p, 7, np.float32), TypeError, "out must have dtype float64"),
        (np.full(p + 1, 7.0), ValueError, r"out must have shape \(5,\), not \(6,\)"),
        (np.full((1, p), 7.0), ValueError, "out must have shape"),
        ([7.0] * p, TypeError, "out must be an array whose memory NumPy can view, not list"),
    ]:
        with pytest.raises(error, match=says):
            received.gradient(out)
        assert (np.asarray(out) == 7).all()
    room = np.full(p + 4, 7.0)
    assert received.gradient(room[2:-2]).base is room
    np.testing.assert_allclose(room[2:-2], exact(code, partials, range(code.n)), atol=1e-13)
    assert (room[:2] == 7).all()
    assert (room[-2:] == 7).all()


# ------------------------------------------------------------------------------------ decoder


@EVERY_CODE
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
        out = np.empty(survivors.size, decoder.vector.dtype)
        assert code.decoding_vector(survivors, out=out) is out
        np.testing.assert_array_equal(out, vector)
    assert code.decoding_vector(list(range(code.n))).base is None  # an array of its own
    if code.n > 1:
        with pytest.raises(ValueError, match="a second time"):
            decoder([0] * (code.n + 1))  # more survivors than there is room for
    with pytest.raises(NotDecodableError):
        decoder([])
    decoder(range(code.n))


# ------------------------------------------------------------------------------ bound decoder


@EVERY_SMALL
def test_bound_decoder_is_decode(code):
    job, rng = Job(code), np.random.default_rng(5)
    size = job.messages[0].size
    room = np.full((code.scheme.messages.count, size + 3), np.nan, job.messages[0].dtype)
    messages, gradient = room[:, 1 : size + 1], np.empty(job.p)
    bound = code.bind(messages, gradient)
    new = code.bind(messages, p=job.p, check_finite=False)
    assert bound.gradient is gradient
    for _ in range(8):
        survivors = rng.permutation(code.scheme.messages.count)
        survivors = survivors[: rng.integers(code.threshold, code.scheme.messages.count + 1)]
        if not code.decodable(survivors):  # really, a worker's messages come in order
            continue
        messages[:] = np.nan
        messages[survivors] = [job.messages[m] for m in survivors]
        expected = job.decode(survivors)
        assert bound(survivors.tolist()) is gradient
        np.testing.assert_array_equal(gradient, expected)
        np.testing.assert_array_equal(new(survivors), expected)
        assert new(survivors) is new.gradient
    assert np.isnan(room[:, [0, -1]]).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_bound_decoder_of_any_packed_code(data):
    n = data.draw(st.integers(1, 12))
    code = ReedSolomon(n, stragglers=data.draw(st.integers(0, n - 1)))
    p, dtype = data.draw(st.integers(1, 9)), data.draw(st.sampled_from(DTYPES))
    partials = partial_gradients(code, p, dtype)
    messages = np.array(encoded(code, partials))
    order = data.draw(st.permutations(range(n)))
    survivors = order[: data.draw(st.integers(code.threshold, n))]
    gradient = code.bind(messages, p=p)(survivors)
    assert gradient.dtype == dtype
    np.testing.assert_array_equal(gradient, code.decode(survivors, messages[survivors], p=p))
    scale = np.abs(code.decoding_vector(survivors)).sum() * np.abs(messages).max()
    np.testing.assert_allclose(
        gradient, partials.sum(axis=0), atol=40 * np.finfo(dtype).eps * scale
    )


@pytest.mark.parametrize("dtype", HALVES)
def test_bound_decoder_of_halves(dtype):
    code = ReedSolomon(7, stragglers=2)
    partials = partial_gradients(code, 6, np.float32)
    messages = np.array(
        [code.encode(i, partials[code.partitions(i)], message_dtype=dtype) for i in range(7)]
    )
    gradient = code.bind(messages)([6, 1, 2, 3, 0])
    assert gradient.dtype == np.float32
    np.testing.assert_array_equal(gradient, code.decode([6, 1, 2, 3, 0], messages[[6, 1, 2, 3, 0]]))


def test_bound_decoder_reads_no_more_than_it_needs():
    messages = np.ones((6, 8))
    bound = BinaryCode(6, stragglers=1).bind(messages)
    messages[[1, 3]] = np.nan  # not read: 0, 2 and 5 suffice like 1, 3 and 5, and are found first
    np.testing.assert_array_equal(bound([5, 3, 0, 1, 2]), np.full(8, 3.0))


def test_bound_decoder_refuses_and_writes_nothing():
    code = ReedSolomon(7, stragglers=2)
    messages = np.array(encoded(code, partial_gradients(code, 6, np.float64)))
    gradient = np.full(6, 7.0)
    bound = code.bind(messages, gradient)
    for survivors, error, says in [
        (range(4), NotDecodableError, "1 more message is needed"),
        ([0, 1, 2, 3, 3], ValueError, "names worker 3 a second time"),
        ([0, 1, 2, 3, 7], ValueError, "workers are numbered 0 to 6"),
        ([0, 1, 2, 3, -1], ValueError, "workers are numbered 0 to 6"),
        ([0.0, 1, 2, 3, 4], TypeError, "survivors must be integers"),
        (range(8), ValueError, "workers are numbered 0 to 6"),
    ]:
        with pytest.raises(error, match=says):
            bound(survivors)
    with pytest.raises(ValueError, match="unknown method"):
        bound(range(5), method="none")
    assert (gradient == 7).all()
    messages[3, 2] = np.inf
    with pytest.raises(NonFiniteMessageError, match="of worker 3 is not finite: element 2 is inf"):
        bound(range(5))
    bound([0, 1, 2, 4, 5])
    assert np.isfinite(gradient).all()
    assert not np.isfinite(code.bind(messages, gradient, check_finite=False)(range(5))).all()
    several = Uncoded(2, 4, load=2)
    bound = several.bind(np.array([[1.0], [2], [np.nan], [3]]))
    with pytest.raises(NonFiniteMessageError, match="worker 1"):
        bound(range(4))


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
    senders = [code.scheme.messages.sender(m) for m in chosen.tolist()]
    sent = [
        code.encode(worker, partials[code.partitions(worker, index)], index=index)
        for worker, index in senders
    ]
    size = sent[0].nbytes // 8
    for at in range(3):
        for shift in range(-p + 1, size, 3):
            memory = np.full(2 * p + size, np.nan)
            held = memory[p : p + size].view(sent[0].dtype)
            out = memory[p + shift :][:p]
            messages = [*sent[:at], held, *sent[at + 1 :]]
            held[:] = sent[at]
            rnd, before = code.round(p), memory.copy()
            for (worker, index), message in zip(senders, messages, strict=True):
                rnd.receive(worker, message, index)
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
    for (worker, index), message in zip(senders, messages, strict=True):
        rnd.receive(worker, message, index)
    np.testing.assert_allclose(rnd.gradient(out=beside[size:]), truth, atol=1e-12)
    rnd.lapse("the memory is gone")
    with pytest.raises(RuntimeError, match="the memory is gone"):
        rnd.gradient()


def test_what_cannot_be_bound():
    code = ReedSolomon(7, stragglers=2)
    messages = np.zeros((7, 6))
    for array, out, error, says in [
        (messages[:5], None, ValueError, r"a row for each of 7 messages, not of shape \(5, 6\)"),
        (messages[0], None, ValueError, "a row for each of 7 messages"),
        (messages.tolist(), None, TypeError, "messages must be an array whose memory"),
        (np.zeros((7, 12))[:, ::2], None, ValueError, "rows of messages must be contiguous"),
        (np.zeros((6, 7)).T, None, ValueError, "rows of messages must be contiguous"),
        (np.frombuffer(bytes(337), offset=1).reshape(7, 6), None, ValueError, "and aligned"),
        (messages.astype(int), None, TypeError, "one of the dtypes"),
        (messages, np.zeros(6, np.float32), TypeError, "out must have dtype float64"),
        (messages, np.zeros(8), ValueError, "must have 8 elements, not 6"),
        (messages, messages[3], ValueError, "out shares memory with messages"),
        (messages, [0.0] * 6, TypeError, "out must be an array whose memory NumPy can view"),
    ]:
        with pytest.raises(error, match=says):
            code.bind(array, out)
    with pytest.raises(ValueError, match="must have 8 elements, not 6"):
        code.bind(messages, p=8)
    side_by_side = np.zeros((7, 12))
    code.bind(side_by_side[:, :6], side_by_side[0, 6:])


# -------------------------------------------------------------------------------------- trust


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
def test_trust_is_within_ten_of_the_truth():
    rng = np.random.default_rng(3)
    ratios = {"round": [], "code": []}
    while len(ratios["round"]) < 80:
        n, k = int(rng.integers(2, 90)), int(rng.integers(2, 90))
        s, root = int(rng.integers(0, max(1, n // 3))), "stable" if rng.random() < 0.7 else 1
        clusters = 1 if rng.random() < 0.7 else "auto"
        if root == 1 and s > 8:
            continue  # no digit left to estimate
        code = ReedSolomon(n, k, stragglers=s, root=root, clusters=clusters)
        dtype = np.float32 if rng.random() < 0.5 else np.float64
        partials = partial_gradients(code, 200, dtype, len(ratios["round"]))
        survivors = rng.permutation(n)[: rng.integers(code.threshold, n + 1)]
        received = code.round(200, dtype)
        for i in survivors:
            received.receive(i, code.encode(i, partials[code.partitions(i)]))
        truth = partials.astype(np.longdouble).sum(axis=0)
        error = np.linalg.norm((received.gradient() - truth).astype(float))
        error /= np.linalg.norm(truth.astype(float))
        if error > 0.1:
            continue
        ratios["round"].append(received.trust().relative_error / error)
        ratios["code"].append(code.trust(survivors, dtype).relative_error / error)
    for ratio in ratios.values():
        assert min(ratio) > 0.1
        assert max(ratio) < 10


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
@pytest.mark.parametrize("messages", [np.float32, *HALVES])
@pytest.mark.parametrize(
    "code",
    [
        ReedSolomon(80, stragglers=12),
        BinaryCode(20, stragglers=4),
        CyclicRepetition(20, stragglers=4),
    ],
    ids=lambda code: type(code).__name__,
)
def test_trust_of_messages_of_little_precision(code, messages):
    rng, ratios = np.random.default_rng(0), []
    received = code.round(200, np.float32, messages)
    for seed in range(9):
        partials = partial_gradients(code, 200, np.float32, seed)
        survivors = rng.permutation(code.n)[: code.threshold]
        received.reset()
        for i in survivors:
            held = partials[code.partitions(i)]
            received.receive(i, code.encode(i, held, message_dtype=messages))
        truth = partials.astype(np.float64).sum(axis=0)
        error = np.linalg.norm(received.gradient() - truth) / np.linalg.norm(truth)
        ratios.append(received.trust().relative_error / error)
        ratios.append(code.trust(survivors, np.float32, messages).relative_error / error)
    assert 0.5 < np.median(ratios) < 2


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    "code",
    [
        ReedSolomon(100, stragglers=99),
        ReedSolomon(96, 12, stragglers=23, clusters="auto"),
        ReedSolomon(144, 6, stragglers=47, clusters="auto"),
    ],
    ids=repr,
)
def test_copies_of_a_message_are_rounded_alike(code, dtype):
    """So their errors do not cancel if all copies are read."""
    experiment = Experiment(code, dtype=dtype)
    rounded = {"dtype": "float32" if dtype == "float16" else dtype, "message_dtype": dtype}
    for lost in (0, 1, 3):
        heard = np.arange(lost, code.n)
        vector = code.decoding_vector(heard, message_dtype=dtype)
        error = experiment.error(heard, vector).relative
        received = code.round(experiment.p, **rounded)
        for worker in heard.tolist():
            received.receive(worker, experiment.messages[worker])
        for trusted in (experiment.trust(heard), received.trust().relative_error):
            assert error / 3 <= trusted <= 5 * error


def test_trust_sees_cancellation_between_partials():
    """If partial gradients nearly cancel, the sum is small, but its relative error is not."""
    code = ReedSolomon(20, stragglers=5)
    partials = partial_gradients(code, 100, np.float64)
    partials[0] -= partials.sum(axis=0)
    truth = np.full(100, 1e-9)
    partials[1] += truth
    truth = partials.astype(np.longdouble).sum(axis=0)
    received = code.round(100)
    for i in range(3, 20):
        received.receive(i, code.encode(i, partials[code.partitions(i)]))
    error = np.linalg.norm((received.gradient() - truth).astype(float))
    error /= np.linalg.norm(truth.astype(float))
    assert error > 1e-8
    assert 0.1 < received.trust().relative_error / error < 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("apart", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize(
    "code",
    [
        ReedSolomon(38, stragglers=13),
        CyclicRepetition(20, stragglers=4),
        FractionalRepetition(20, stragglers=19),
        BinaryCode(20, stragglers=4),
        Grouped([ReedSolomon(8, stragglers=3)] * 2),
    ],
    ids=lambda code: type(code).__name__,
)
def test_trust_sees_cancellation_inside_messages(code, dtype, apart):
    """Partial gradients of one direction nearly cancel in each message, as signs alternate."""
    rng, ratios, blind = np.random.default_rng(0), [], []
    received, untold = code.round(50, dtype), code.round(50, dtype)
    for _ in range(9):
        sizes = rng.uniform(0.5, 1, code.k) * (-1.0) ** np.arange(code.k)
        sizes -= sizes.mean()
        partials = sizes[:, None] * rng.standard_normal(50)
        partials = (partials + apart * rng.standard_normal(partials.shape)).astype(dtype)
        lost = rng.permutation(code.n)[: code.stragglers]
        received.reset()
        untold.reset()
        for worker in np.delete(np.arange(code.n), lost).tolist():
            encoder = code.encoder(worker, 50, dtype)
            for j in code.partitions(worker).tolist():
                encoder.add(j, partials[j])
            squares = np.abs(code.coefficients(worker)) ** 2
            each = np.array([float(partials[j] @ partials[j]) for j in code.partitions(worker)])
            assert encoder.energy == pytest.approx(squares @ each, rel=1e-5)
            received.receive(worker, encoder.message(), energy=encoder.energy)
            untold.receive(worker, encoder.message())
        truth = partials.astype(np.longdouble).sum(axis=0)
        error = np.linalg.norm((received.gradient() - truth).astype(float))
        error /= np.linalg.norm(truth.astype(float))
        ratios.append(received.trust().relative_error / error)
        blind.append(untold.trust().relative_error / error)
    # Trust says too much: alternating sums do not grow as sums of random signs do.
    assert 0.1 < np.median(ratios) < 20
    if apart < 1e-3 and isinstance(code, FractionalRepetition):
        assert np.median(blind) < 1e-2  # without energies, trust misses it


def test_energy_is_of_one_message():
    code = ReedSolomon(6, stragglers=2)
    encoder = code.encoder(1, 5)
    energies = []
    for size in (1.0, 1.0, 3.0):
        encoder.reset()
        for j in code.partitions(1).tolist():
            encoder.add(j, np.full(5, size))
        energies.append(encoder.energy)
    weight = np.sum(np.abs(code.coefficients(1)) ** 2)
    np.testing.assert_allclose(energies, 5 * weight * np.array([1, 1, 9]), rtol=1e-14)


def test_energies_that_say_nothing():
    """A worker may lie about its energy, and squares may exceed float64."""
    received = Uncoded(2).round(3)
    for energy, expected in ((math.nan, 1), (-1.0, 1), (3.0, 1), (300.0, 10), (math.inf, math.inf)):
        received.reset()
        received.receive(0, np.ones(3), energy=energy)
        received.receive(1, 1e-9 * np.ones(3), energy=energy)
        assert received.trust().growth == pytest.approx(expected, rel=0.5)
    received.reset()
    received.receive(0, np.ones(3), energy=300.0)
    received.receive(1, 1e-9 * np.ones(3), energy=-50.0)  # one bad energy voids all
    assert received.trust().growth == pytest.approx(1)


def test_trust_of_zero():
    code = ReedSolomon(6, stragglers=2)
    received = code.round(4)
    for i in range(5):
        received.receive(i, np.zeros(4))
    assert received.trust() == (0, 0)
    received.reset()
    received.receive(0, np.ones(4))
    with pytest.raises(NotDecodableError):
        received.trust()
    with pytest.raises(NotDecodableError):
        code.trust([0, 1])


def test_trust_of_nothing_but_cancellation():
    """Messages that decode to exactly zero say nothing about the rounding errors."""
    received = Uncoded(2).round(3)
    received.receive(0, np.ones(3))
    received.receive(1, -np.ones(3))
    assert received.trust() == (np.inf, np.inf)


def test_trust_of_nothing_but_cancellation_inside():
    """Energies show what messages do not; NaN stands for an unknown energy."""
    received = Uncoded(2).round(3)
    for energy, expected in ((0.0, 0.0), (math.nan, 0.0), (1e-30, np.inf)):
        received.reset()
        received.receive(0, np.zeros(3), energy=energy if math.isnan(energy) else 0.0)
        received.receive(1, np.zeros(3), energy=energy)
        assert received.trust() == (expected, expected)


def test_trust_of_adding_up():
    """Uncoded, every message counts once, as if partial gradients were added."""
    trust = Uncoded(10).trust(range(10))
    assert trust.growth == pytest.approx(1)
    # Roundings: a product, a sum and two coefficients; four sums in a group of eight and 10 / 8 of
    # groups, which count a third each; the result.
    expected = 2.0**-53 * np.sqrt(3 + 5.25 / 3 + 1)
    assert trust.relative_error == pytest.approx(expected, abs=0)
    # The last rounding; none of messages, which are partial gradients. Also those of
    # coefficients, and of sums of up to eight of the ten floats.
    single = Uncoded(10).trust(range(10), np.float32).relative_error
    assert single == pytest.approx(2.0**-24 * np.sqrt(6.5 * 0.154), rel=1e-3, abs=0)
    half = Uncoded(10).trust(range(10), np.float32, np.float16).relative_error
    assert half == pytest.approx(2.0**-11 * np.sqrt(0.154), rel=1e-3, abs=0)
    assert pickle.loads(pickle.dumps(trust)) == trust


@pytest.mark.every_backend
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@EVERY_SMALL
def test_bound_encoder(code, dtype):
    rng, p = np.random.default_rng(0), 7
    kind = code.scheme.format(1, dtype).partial_dtype
    for worker in {0, code.n - 1}:
        for index in range(code.scheme.messages.counts[worker]):
            shape = code.partitions(worker, index).size, p
            partials = np.zeros(shape, kind)
            out = np.empty(code.message_size(p, dtype), code.scheme.format(1, dtype).message_dtype)
            bound = code.bind_encoder(worker, partials, out, index=index)
            unbound = code.bind_encoder(worker, partials, index=index)
            assert bound.worker == worker
            assert bound.partials is partials
            for _ in range(2):
                partials[:] = rng.standard_normal(shape)
                assert bound() is out
                # Bound calls are C's under every backend, and Numba's sums are rounded otherwise.
                off = 0 if backend() == "c" else 4 * np.finfo(out.dtype).eps
                expected = code.encode(worker, partials, index=index)
                np.testing.assert_allclose(out, expected, rtol=off, atol=off)
                assert unbound() is unbound.message
                np.testing.assert_array_equal(unbound.message, out)


@pytest.mark.parametrize("sent", [np.float16, "float64"])
def test_bound_encoder_of_other_messages(sent):
    code, rng = ReedSolomon(6, stragglers=2), np.random.default_rng(0)
    partials = np.zeros((6, 5), np.float32)[::2]
    bound = code.bind_encoder(1, partials, message_dtype=sent)
    for _ in range(2):
        partials[:] = rng.standard_normal((3, 5))
        np.testing.assert_array_equal(bound(), code.encode(1, partials, message_dtype=sent))


def test_bound_encoder_of_rows_with_gaps():
    code, rng = ReedSolomon(6, stragglers=2), np.random.default_rng(0)
    partials = np.zeros((3, 10))[:, ::2]
    bound = code.bind_encoder(1, partials)
    partials[:] = rng.standard_normal((3, 5))
    np.testing.assert_array_equal(bound(), code.encode(1, partials))


def test_bound_encoder_refuses():
    code = ReedSolomon(6, stragglers=2)
    partials = np.zeros((3, 4))
    with pytest.raises(TypeError, match="the partial gradients must be an array whose memory"):
        code.bind_encoder(0, [[1.0] * 4] * 3)
    with pytest.raises(ValueError, match="worker 0 computes 3 partial gradients, but 2 were given"):
        code.bind_encoder(0, partials[:2])
    with pytest.raises(ValueError, match="a partial gradient must be a vector"):
        code.bind_encoder(0, np.zeros(3))
    with pytest.raises(ValueError, match="out shares memory with a partial gradient"):
        code.bind_encoder(0, partials, partials[1])
    with pytest.raises(ValueError, match="worker 6 does not exist"):
        code.bind_encoder(6, partials)


def test_rows_of_many_workers_are_kept_and_long_rows_are_let_go():
    short, long = ReedSolomon(700, stragglers=1), ReedSolomon(700, stragglers=600)
    for code in (short, long):
        for worker in range(700):
            code.coefficients(worker)
        kept = code.scheme._kept.rows
        held = sum(partitions.size for partitions, _ in kept.values())
        assert (len(kept) == 700) == (code is short)
        assert held <= 2**18
        np.testing.assert_array_equal(code.coefficients(0), code.scheme.row(0)[1])
