"""Gradients of integers are exact, in their dtype, by codes of sums; other codes refuse them."""

import itertools

import numpy as np
import pytest

from fastgc import (
    BinaryCode,
    Code,
    CouponCollector,
    CyclicRepetition,
    FractionalRepetition,
    Grouped,
    LagrangeCode,
    LinearCode,
    NotDecodableError,
    RandomAssignment,
    ReedSolomon,
    Uncoded,
)
from fastgc.codes.binary import BinaryScheme
from fastgc.stability import StabilityTracker

pytestmark = pytest.mark.any_backend

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
CODES = [
    BinaryCode(7, stragglers=2),
    BinaryCode(7, 9, stragglers=2, speeds=[1, 2, 3, 1, 1, 5, 2]),
    BinaryCode(5, stragglers=1, speeds=[1, 2, 3, 1, 1], assignment="classes"),
    FractionalRepetition(6, stragglers=2),
    CouponCollector(8, load=3, seed=2),
    RandomAssignment(4, load=2, seed=2),
    Uncoded(4),
    Uncoded(3, 6, load=3),
    Uncoded(5, tolerance=0.2, rescale=False),
    Grouped([BinaryCode(4, stragglers=1), Uncoded(3)]),
]
OTHERS = [
    ReedSolomon(5, stragglers=1),
    ReedSolomon(5, stragglers=1, packed=False),
    CyclicRepetition(5, stragglers=1),
    LinearCode([[1.0, 1, 0], [0, 1, 1], [1, 0, 1]]),
    LagrangeCode(5, load=2),
    Uncoded(5, tolerance=0.2, rescale=True),
    Grouped([BinaryCode(4, stragglers=1), ReedSolomon(3, stragglers=1)]),
]


def job(code, dtype, p=5, seed=0):
    """Return partial gradients of the whole range, messages, and the sum in Python's integers."""
    rng = np.random.default_rng(seed)
    held = np.iinfo(dtype)
    partials = rng.integers(held.min, held.max, (code.k, p), dtype, endpoint=True)
    messages = [
        code.encode(worker, partials[code.partitions(worker, index)], index=index)
        for worker, index in map(code.scheme.sender, range(code.scheme.message_count))
    ]
    size = 1 << held.bits
    total = [sum(map(int, column)) % size for column in partials.T]
    total = [each - size if each > held.max else each for each in total]
    return partials, messages, np.array(total, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_gradients_are_exact(code, dtype):
    """Decode, a round, a bound decoder and encoders agree with sums modulo 2^bits."""
    partials, messages, total = job(code, dtype)
    rows = np.array(messages)
    assert rows.dtype == dtype
    out = np.empty(5, dtype)
    bound = code.bind(rows, out)
    rnd = code.round(5, dtype)
    some = code.stragglers > 0
    for survivors in (
        list(range(code.scheme.message_count)),
        next(code.scheme.random_arrivals(1, seed=3)),
    ):
        if code.residual(survivors) > 0:  # leaves out partitions
            continue
        for decoded in (
            code.decode(survivors, [messages[m] for m in survivors]),
            code.decode(survivors, rows[survivors], out=out),
            bound(survivors),
        ):
            assert decoded.dtype == dtype
            np.testing.assert_array_equal(decoded, total)
        rnd.reset()
        for m in survivors:
            worker, index = code.scheme.sender(m)
            ready = rnd.receive(worker, messages[m], index)
        assert ready
        np.testing.assert_array_equal(rnd.gradient(), total)
        assert rnd.trust().relative_error == 0
        some = True
    assert some
    for worker, index in map(code.scheme.sender, range(code.scheme.message_count)):
        encoder = code.encoder(worker, 5, dtype, index=index)
        for j in code.partitions(worker, index):
            encoder.add(j, partials[j])
        number = code.scheme.message_number(worker, index)
        np.testing.assert_array_equal(encoder.message(), messages[number])
        mine = partials[code.partitions(worker, index)].astype(np.float64)
        assert encoder.energy == pytest.approx((mine**2).sum())


def test_sums_beyond_double_precision():
    """2^53 + 1 is no double. All sets of 2 stragglers, also if a message is subtracted."""
    code = BinaryCode(6, 7, stragglers=2)
    partials = np.full((7, 2), 2**53 + 1)
    messages = np.array([code.encode(i, partials[code.partitions(i)]) for i in range(6)])
    for F in itertools.combinations(range(6), 4):
        F = list(F)
        assert code.decode(F, messages[F]).tolist() == [7 * 2**53 + 7] * 2
    found = code.combine([1.0, -1.0, 3.0], [0, 1, 2], messages[:3])
    np.testing.assert_array_equal(found, messages[0] - messages[1] + 3 * messages[2])


def test_blocks_are_subtracted_exactly():
    """The path [0, 2) - [1, 2) + [1, 4) goes back."""

    code = Code(BinaryScheme(4, 0, np.array([0, 1, 1]), np.array([2, 2, 4])))
    partials = np.array([[200], [100], [255], [7]], dtype=np.uint8)
    messages = [code.encode(i, partials[code.partitions(i)]) for i in range(3)]
    assert code.decoding_vector([0, 1, 2]).tolist() == [1, -1, 1]
    assert code.decode([0, 1, 2], messages).tolist() == [(200 + 100 + 255 + 7) % 256]


@pytest.mark.parametrize("code", OTHERS, ids=repr)
def test_other_codes_say_so(code):
    partials = np.ones((code.scheme.loads[0], 4), dtype=np.int32)
    says = r"dtypes float32, .*not int32: this code multiplies by numbers that are not integers"
    with pytest.raises(TypeError, match=says):
        code.encode(0, partials[: len(code.partitions(0, 0))])
    with pytest.raises(TypeError, match=says):
        code.round(4, np.int32)
    with pytest.raises(TypeError, match=says):
        code.encoder(0, 4, np.int32)
    messages = np.ones((code.scheme.message_count, 4), dtype=np.int32)
    with pytest.raises(TypeError, match=says):
        code.decode(range(code.scheme.message_count), messages)
    with pytest.raises(TypeError, match=says):
        code.bind(messages)


def test_what_integers_are_not():
    code = BinaryCode(4, stragglers=1)
    ones = np.ones((4, 3), dtype=np.int64)
    with pytest.raises(TypeError, match="messages of int64 partial gradients must be int64, not f"):
        code.round(3, np.int64, np.float64)
    with pytest.raises(TypeError, match="messages of float32 partial gradients must be float32"):
        code.encoder(0, 3, np.float32, message_dtype=np.int32)
    tracker = StabilityTracker()
    for options in ({"verify": True}, {"tracker": tracker}):
        with pytest.raises(TypeError, match=r"verify= and tracker= go by rounding.*not int64"):
            code.round(3, np.int64, **options)
    out = np.full(3, -7)
    with pytest.raises(TypeError, match=r"dtypes float32.*not int64"):
        code.decode(range(4), ones, out, tracker=tracker)
    assert out.tolist() == [-7] * 3
    with pytest.raises(TypeError, match="must have dtype int64, not int32"):
        code.decode(range(4), [ones[0], *ones[1:].astype(np.int32)])
    with pytest.raises(TypeError, match="out must have dtype int64, not float64"):
        code.decode(range(4), ones, out=np.empty(3))
    with pytest.raises(TypeError, match=r"dtypes float32.*not bool"):
        code.encode(0, ones[:2].astype(bool))
    with pytest.raises(TypeError, match=r"dtypes float32.*not >i4"):
        code.encode(0, ones[:2].astype(">i4"))
    with pytest.raises(NotDecodableError):
        code.decode([0], ones[:1])


def test_no_approximation_of_integers():
    """A least-squares vector has fractions, so it is refused, and nothing is written."""
    code = BinaryCode(4, stragglers=1, speeds=[1, 1, 1, 1], assignment="classes")
    ones = np.ones((1, 3), dtype=np.int64)
    out = np.full(3, -7)
    with pytest.raises(TypeError, match="int64 messages are combined with integers only"):
        code.combine([0.5], [0], ones, out)
    assert out.tolist() == [-7] * 3
    # Two messages approximate the sum only with fractions.
    blocks = Code(BinaryScheme(3, 0, np.array([0, 1, 2]), np.array([2, 3, 3])))
    with pytest.raises(TypeError, match="int64 messages are combined with integers only"):
        blocks.decode([0, 1], np.ones((2, 3), np.int64), out, partial="best")
    assert out.tolist() == [-7] * 3
