"""Messages of another precision than gradients: float16 and bfloat16, and float64."""

import re
import warnings

import ml_dtypes
import numpy as np
import programs
import pytest
from oracles.table import HALVES
from tables import encoded, partial_gradients, streamed

from fastgc import (
    BinaryCode,
    CyclicRepetition,
    InstabilityWarning,
    LagrangeCode,
    NonFiniteMessageError,
    ReedSolomon,
    Uncoded,
)
from fastgc._base.arrays import unit_roundoff
from fastgc._base.extras import pip_install
from fastgc.coding.format import Format
from fastgc.engines import SimulatedCluster

CODES = [
    ReedSolomon(7, stragglers=2),
    ReedSolomon(8, 10, stragglers=1, clusters="auto"),
    BinaryCode(6, stragglers=2),
    CyclicRepetition(6, stragglers=2),
    LagrangeCode(6, load=3),
    Uncoded(5, 11),
]
EVERY_CODE = pytest.mark.parametrize("code", CODES, ids=repr)
EVERY_HALF = pytest.mark.parametrize("half", HALVES, ids=lambda half: half.__name__)


@EVERY_CODE
@EVERY_HALF
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 2, 9, 1001])
def test_messages_are_rounded_once(code, half, dtype, p):
    partials = partial_gradients(code, p, dtype)
    for worker in range(code.n):
        held = partials[code.partitions(worker)]
        whole = code.encode(worker, held)
        message = code.encode(worker, held, message_dtype=half)
        assert message.dtype == half
        assert message.size == code.message_size(p, dtype, half)
        np.testing.assert_array_equal(message, whole.astype(half))
        out = np.zeros(message.size + 2, half)
        assert code.encode(worker, list(held), out[1:-1], message_dtype=half).base is out
        np.testing.assert_array_equal(out[1:-1], message)
        assert not out[[0, -1]].any()
        encoder = code.encoder(worker, p, dtype, message_dtype=np.dtype(half).name)
        for _ in range(2):
            encoder.reset()
            for j in code.partitions(worker):
                encoder.add(j, partials[j])
            # Rounding in sums moves a few elements across the middle of two halves.
            tolerance = 1.01 * 2 * unit_roundoff(np.dtype(half))
            streamed = encoder.message()
            assert streamed.dtype == half
            np.testing.assert_allclose(
                streamed.astype(float), message.astype(float), rtol=tolerance, atol=1e-5
            )
            again = streamed.copy()
            assert encoder.message() is streamed  # a second call gives the same message
            np.testing.assert_array_equal(streamed, again)


@EVERY_CODE
@EVERY_HALF
@pytest.mark.parametrize("p", [1, 8, 9, 1001])
def test_decoding_is_that_of_the_same_numbers_in_float32(code, half, p):
    partials = partial_gradients(code, p, np.float32)
    messages = encoded(code, partials, message_dtype=half)
    everyone = np.random.default_rng(1).permutation(code.n)
    floats = [messages[i].astype(np.float32) for i in everyone]
    expected = code.decode(everyone, floats, p=p)
    scale = max(np.abs(m).max() for m in floats) * np.abs(code.decoding_vector(everyone)).sum()
    close = {"rtol": 0, "atol": 4 * 2.0**-24 * float(scale)}
    for each in ([messages[i] for i in everyone], np.stack(messages)[everyone]):
        decoded = code.decode(everyone, each, p=p)
        assert decoded.dtype == np.float32
        np.testing.assert_allclose(decoded, expected, **close)
        out = np.empty(p, np.float32)
        assert code.decode(everyone, each, out) is out
        np.testing.assert_array_equal(out, decoded)
    np.testing.assert_array_equal(code.bind(np.stack(messages), p=p)(everyone), decoded)
    received = code.round(p, np.float32, half)
    for i in everyone:
        received.receive(i, messages[i])
    np.testing.assert_allclose(received.gradient(), expected, **close)


@EVERY_HALF
def test_partial_gradients_of_half_precision(half):
    code = ReedSolomon(7, stragglers=2)
    partials = partial_gradients(code, 9, np.float32).astype(half)
    for worker in range(7):
        held = partials[code.partitions(worker)]
        message = code.encode(worker, held)
        assert message.dtype == code.scheme.format(1, half).message_dtype == half
        assert message.size == code.message_size(9, half) == 10
        wide = code.encode(worker, held.astype(np.float32))
        np.testing.assert_allclose(message.astype(np.float32), wide, rtol=2.0**-7)
        floats = code.encode(worker, held, message_dtype=np.float32)
        assert floats.dtype == np.float32
        np.testing.assert_allclose(floats, wide, atol=1e-5)
        sent, _ = streamed(code, worker, partials)
        assert sent.dtype == half
        np.testing.assert_allclose(sent.astype(np.float32), wide, rtol=2.0**-7, atol=1e-5)


@EVERY_HALF
def test_misaligned_and_strided_messages(half):
    code = Uncoded(3)
    message = np.arange(40).astype(half)
    raw = np.zeros(2 * message.size + 1, np.uint8)
    misaligned = raw[1:].view(half)
    misaligned[:] = message
    strided = np.repeat(message, 2)[::2]
    np.testing.assert_array_equal(
        code.decode(range(3), [message, misaligned, strided]), 3 * np.arange(40)
    )


@EVERY_HALF
def test_what_is_not_finite_is_found(half):
    code = ReedSolomon(6, stragglers=2)
    partials = np.full((6, 5), np.inf, np.float32)
    messages = encoded(code, partials, message_dtype=half)
    with pytest.raises(NonFiniteMessageError, match="message of worker 2 is not finite") as caught:
        code.decode([2, 1, 0, 3, 4, 5], messages[2:] + messages[:2], p=5)
    assert caught.value.worker == 2


@pytest.mark.every_backend
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_message_beyond_float16_is_an_error(sign, dtype):
    """From 65520 on, numbers round to Inf in float16; bfloat16 has the range of float32."""
    code = Uncoded(1)
    encoder = code.encoder(0, 2, dtype, message_dtype=np.float16)
    # Binding looks at no numbers, which need not be there yet.
    bound = code.bind_encoder(0, np.array([[0, 1e5]], dtype), message_dtype=np.float16)
    for large in (65519.0, 65520.0, 1e30):
        x = np.array([0, sign * large], dtype)
        encoder.reset()
        encoder.add(0, x)
        for ask in (
            lambda x=x: code.encode(0, [x], message_dtype=np.float16),
            encoder.message,
        ):
            if large < 65520:
                np.testing.assert_array_equal(ask(), [0, sign * 65504])
                continue
            with pytest.raises(OverflowError, match=r"float16 ends at 65504. Send .bfloat16. or"):
                ask()
        message = code.encode(0, [x], message_dtype="bfloat16")
        np.testing.assert_allclose(message.astype(float), x, rtol=2.0**-8)
    with pytest.raises(OverflowError, match=r"its largest number is 1e\+05"):
        bound()


def test_messages_that_are_not_read():
    """They may be anything: one class of workers suffices, and the others send garbage."""
    code = BinaryCode(6, stragglers=1)
    g = np.random.default_rng(0).integers(-9, 9, (6, 4)).astype(np.float32)
    messages = encoded(code, g, message_dtype=np.float16)
    used = np.flatnonzero(code.decoding_vector(range(6)))
    assert 0 < used.size < 6
    for i in set(range(6)).difference(used.tolist()):
        messages[i] = np.full(4, np.inf, np.float16)
    for sent in (messages, np.stack(messages)):
        np.testing.assert_array_equal(code.decode(range(6), sent), g.sum(axis=0))
    np.testing.assert_array_equal(code.bind(np.stack(messages))(range(6)), g.sum(axis=0))


@EVERY_HALF
def test_what_has_no_half_precision(half):
    name = np.dtype(half).name
    expanded = ReedSolomon(6, stragglers=2, packed=False)
    coded = LagrangeCode(6, load=3, nodes="roots")
    for code in (expanded, coded):
        for ask in (
            lambda code=code: code.round(5, np.float32, half),
            lambda code=code: code.encode(0, np.zeros((code.scheme.loads[0], 5), half)),
        ):
            with pytest.raises(TypeError, match=f"complex64 messages, not {name}: use packed"):
                ask()
    packed = ReedSolomon(6, stragglers=2)
    for dtype in (np.complex64, np.complex128):
        with pytest.raises(TypeError, match=rf"must be {np.dtype(dtype)}, not {name}; .*view"):
            packed.encoder(0, 5, dtype, message_dtype=half)
    with pytest.raises(TypeError, match=f"messages of {name} decode to gradients of float32"):
        packed.round(5, np.float64, half)
    for call, says in (
        (lambda: packed.round(5, np.float32, np.int16), "bfloat16, not int16"),
        (
            lambda: packed.round(5, np.float32, half).receive(0, np.zeros(6, np.float32)),
            f"worker 0 must have dtype {name}, not float32",
        ),
        (
            lambda: packed.decode(range(6), np.zeros((6, 6), half), np.zeros(6)),
            "out must have dtype float32, not float64",
        ),
    ):
        with pytest.raises(TypeError, match=says):
            call()


def test_bfloat16_by_name():
    code = Uncoded(3)
    assert code.round(4, np.float32, "bfloat16").receive(0, np.ones(4, ml_dtypes.bfloat16)) is False
    source = (
        "import sys; sys.modules['ml_dtypes'] = None; import fastgc, numpy\n"
        "fastgc.Uncoded(3).round(4, numpy.float32, 'float16')\n"
        "fastgc.Uncoded(3).round(4, numpy.float32, 'bfloat16')"
    )
    ran = programs.run(programs.python("-c", source), status=1)
    assert ran.stderr.splitlines()[-1].startswith("ImportError: bfloat16")
    assert pip_install("half") in ran.stderr


# ----------------------------------------- messages of more precision, and warnings of too little


WIDE = [
    ReedSolomon(30, stragglers=8),
    ReedSolomon(8, 10, stragglers=1, clusters="auto"),
    ReedSolomon(9, stragglers=3, packed=False),
    BinaryCode(6, stragglers=2),
    CyclicRepetition(20, stragglers=4),
    LagrangeCode(6, load=3),
    LagrangeCode(6, load=3, nodes="roots"),
]


@pytest.mark.parametrize("p", [1, 7, 40])
@pytest.mark.parametrize("code", WIDE, ids=repr)
@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
def test_messages_of_float64_for_gradients_of_float32(code, p):
    """Messages are those of the same numbers in float64, and the gradient is rounded once."""
    partials = partial_gradients(code, p, np.float32)
    if code.scheme.layout == "complex data":
        partials = partials + 1j * partials[::-1]
    exact = partials.astype(np.complex128 if partials.dtype.kind == "c" else np.float64)
    messages = []
    for worker in range(code.n):
        held = code.partitions(worker)
        message = code.encode(worker, partials[held], message_dtype=np.float64)
        np.testing.assert_array_equal(message, code.encode(worker, exact[held]))
        messages.append(message)
        sent, _ = streamed(code, worker, partials, "float64")
        np.testing.assert_allclose(sent, message, rtol=1e-13, atol=1e-13)
        out = np.empty_like(message)
        assert code.encode(worker, list(partials[held]), out, message_dtype=np.float64) is out
    rnd, wide = code.round(p, np.float32, np.float64), code.round(p)
    for worker, message in enumerate(messages):
        rnd.receive(worker, message)
        wide.receive(worker, message)
    np.testing.assert_array_equal(rnd.gradient(), wide.gradient().astype(np.float32))
    out = np.empty(p, np.float32)
    assert rnd.gradient(out) is out
    most = 2.0**-24 + 2 * wide.trust().relative_error
    assert rnd.trust().relative_error < most or code.scheme.data.coded


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
def test_float64_messages_are_a_way_up():
    """float32 loses all digits of Reed-Solomon codes with the papers' root; float64 does not."""
    code, rng = ReedSolomon(40, stragglers=10, root=1), np.random.default_rng(0)
    partials = partial_gradients(code, 20, np.float32)
    truth, errors = partials.astype(np.float64).sum(axis=0), {}
    for kind in (np.float32, np.float64):
        sent, found = np.array(encoded(code, partials, message_dtype=kind)), []
        for _ in range(9):
            heard = rng.permutation(40)[:30]
            off = code.decode(heard, sent[heard], p=20) - truth
            found.append(np.linalg.norm(off) / np.linalg.norm(truth))
        errors[kind] = max(found)
    assert errors[np.float32] > 1e-3
    assert errors[np.float64] < 1e-7


PAPERS = ReedSolomon(40, stragglers=10, root=1)


@pytest.mark.parametrize(
    ("code", "dtype", "sent", "warned"),
    [
        (PAPERS, np.float32, None, "float32 imp.*; send .*=float64"),
        (PAPERS, np.float64, None, None),
        (PAPERS, np.float32, np.float64, None),
        (PAPERS, np.complex64, None, "complex64 .*=complex128"),
        (ReedSolomon(300, stragglers=60), np.float32, None, None),  # near-exact vectors are short
        (ReedSolomon(20, stragglers=4), np.float32, np.float16, None),
        (CyclicRepetition(20, stragglers=4), np.float32, None, None),
        (CyclicRepetition(20, stragglers=4), np.float32, np.float16, "float16 imprecisely"),
        (BinaryCode(300, stragglers=60), np.float32, np.float16, None),
        (Uncoded(20, tolerance=0.3), np.float32, np.float16, None),  # leaves out more than rounding
        (LagrangeCode(40, load=4), np.float32, None, "float32 imprecisely.*; compute in float64"),
        (LagrangeCode(40, load=4), np.float32, np.float64, "compute in float64"),
        (LagrangeCode(40, load=4, messages=4), np.float32, None, None),  # its rounds wait
    ],
    ids=repr,
)
def test_warnings_of_the_dtype_in_use(code, dtype, sent, warned):
    form = code.scheme.format(4, dtype, sent)
    asks = [lambda: code.round(4, dtype, sent)]
    if sent is None:
        room = np.empty((code.scheme.messages.count, form.message_size), dtype)
        asks.append(lambda: code.bind(room))
    for ask in asks:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ask()
        if warned is None:
            assert not caught
        else:
            (one,) = caught
            assert issubclass(one.category, InstabilityWarning)
            assert one.filename == __file__
            assert re.search(warned, str(one.message))


def test_engines_warn_of_float32():
    theta, out = np.ones(3, np.float32), np.empty(3, np.float32)
    with pytest.warns(InstabilityWarning, match="of float32 imprecisely"):
        SimulatedCluster(PAPERS, [1.0] * 40, np.multiply, 3, np.float32)
    sent = {"message_dtype": "float64"}
    with SimulatedCluster(PAPERS, [1.0] * 40, np.multiply, 3, np.float32, **sent) as cluster:
        cluster.step(theta, out)
    np.testing.assert_allclose(out, 40.0, rtol=2.0**-23)


@pytest.mark.parametrize("layout", ["real", "packed"])
@pytest.mark.parametrize(
    ("dtype", "sent"),
    [("c16", "c8"), ("c8", "f8"), ("c16", "f8"), ("f8", "c16"), ("f4", "c8"), ("f2", "c8")],
)
def test_complex_gradients_are_sent_as_complex_numbers_no_less_precise(layout, dtype, sent):
    with pytest.raises(TypeError, match=f"not {np.dtype(sent)};"):
        Format.of(layout, 3, dtype, sent)
    assert Format.of(layout, 3, "c8", "c16").message_dtype == np.complex128
