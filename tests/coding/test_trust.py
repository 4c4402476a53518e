"""Trust estimates errors of sums that cancel, underflow, or are rounded more than once."""

import ml_dtypes
import numpy as np
import pytest

import fastgc

pytestmark = pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")


def receive_all(code, rnd, g, message=None):
    """Hand a round all messages of these partial gradients."""
    for worker in range(code.n):
        for index in range(code.scheme.messages.per_worker):
            encoder = code.encoder(worker, g.shape[1], g.dtype, index=index, message_dtype=message)
            for j in code.partitions(worker, index).tolist():
                encoder.add(j, g[j])
            rnd.receive(worker, encoder.message(), index, energy=encoder.energy)


def played(code, g, message=None):
    """Return the true and the trusted relative error of a round of all workers."""
    form = code.scheme.format(g.shape[1], g.dtype, message)
    rnd = code.round(
        g.shape[1], form.gradient_dtype, form.message_dtype, partial_dtype=form.partial_dtype
    )
    receive_all(code, rnd, g, message)
    decoded = rnd.gradient().astype(np.float64)
    size = np.linalg.norm(decoded)
    error = np.linalg.norm(decoded - g.astype(np.float64).sum(axis=0))
    return error / size if size else np.inf, rnd.trust().relative_error


@pytest.mark.parametrize("message", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_messages_of_less_precision_than_the_sums_they_hold(message):
    """Partial gradients cancel in a message before it is rounded."""
    code = fastgc.FractionalRepetition(4, stragglers=3)
    rng = np.random.default_rng(0)
    for left in (1.0, 1e-3, 1e-6):
        g = rng.standard_normal((4, 50))
        g -= (1 - left) * g.mean(axis=0)
        error, trusted = played(code, g, message)
        assert 0.2 < error / trusted < 2


def test_groups_know_the_partial_gradients_precision():
    """Each group's round is like one of its code alone."""
    code = fastgc.codes.Grouped([fastgc.FractionalRepetition(4, stragglers=3)] * 2)
    rng = np.random.default_rng(0)
    g = rng.standard_normal((code.k, 50))
    g[:4] -= (1 - 1e-6) * g[:4].mean(axis=0)  # cancels before rounding
    rnd = code.group_round(50, np.float32, np.float32, partial_dtype=np.float64)
    alone = code.codes[0].round(50, np.float32, np.float32, partial_dtype=np.float64)
    rnd.reset([0, 1])
    receive_all(code, rnd, g, np.float32)
    receive_all(code.codes[0], alone, g[:4], np.float32)
    assert rnd.of(0).trust() == alone.trust()


def test_partial_gradients_of_another_precision_are_refused():
    code = fastgc.BinaryCode(4, stragglers=1)
    with pytest.raises(TypeError, match="do not decode to gradients of float64, but to float32"):
        code.round(3, np.float64, partial_dtype=np.float32)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_messages_that_are_partial_gradients_are_not_rounded_once_more(dtype):
    g = np.random.default_rng(0).standard_normal((8, 50)).astype(dtype)
    error, trusted = played(fastgc.Uncoded(8), g)
    assert error < 1e-7
    assert trusted < 3e-7


CODES = [
    fastgc.ReedSolomon(8, stragglers=2),
    fastgc.CyclicRepetition(8, stragglers=2),
    fastgc.BinaryCode(8, stragglers=2),
]


@pytest.mark.parametrize("size", [1e-30, 1e-39, 1e-43])
@pytest.mark.parametrize(
    ("dtype", "message"), [("float32", None), ("float64", "float32"), ("float32", "bfloat16")]
)
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_numbers_too_small_to_be_normal(code, dtype, message, size):
    """Losses to underflow are part of the error; sums of such numbers lose nothing."""
    g = (size * np.random.default_rng(0).standard_normal((code.k, 50))).astype(dtype)
    error, trusted = played(code, g, message)
    if code.scheme.precision.integral and message is None:
        assert error < 1e-7
    elif trusted < 1:
        assert 0.1 < error / trusted < 4


@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-7])
@pytest.mark.parametrize("code", CODES[1:], ids=repr)
def test_small_numbers_are_less_precise_in_float16(code, size):
    g = (size * np.random.default_rng(0).standard_normal((8, 50))).astype(np.float32)
    error, trusted = played(code, g, np.float16)
    assert 0.5 < error / trusted < 2
