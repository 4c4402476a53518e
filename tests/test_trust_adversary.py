"""Trust and bounds hold in rounds that a search chooses to refute them; and in cases once found.

For longer: ``python -m tests.trust_adversary --seconds 60``.
"""

import ml_dtypes
import numpy as np
import pytest
import trust_adversary as adversary
from strength import much
from trust_adversary import MOST, Found, Kind

import fastgc
from fastgc.codes import catalogue
from fastgc.coding import round as rounds
from fastgc.coding import verify

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning"),
]


def searched(name, climbs, each):
    """Return what `climbs` climbs of `each` rounds find."""
    found = Found()
    for number in range(climbs):
        goal = adversary.GOALS[number % 3]
        adversary.climb(name, found, np.random.default_rng((0, number)), goal, each)
    return found


@pytest.mark.few(10)
@pytest.mark.parametrize("name", catalogue.BUILT_IN)
def test_trust_is_off_by_little_and_no_bound_is_exceeded(name):
    found = searched(name, much(60, 6), much(400, 20))
    assert found.rounds
    assert not found.wrong, found.worst


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_it_sees_what_is_off(factor, monkeypatch):
    right = rounds.trust_of_sums

    def wrong(*given):
        trusted = right(*given)
        return trusted._replace(relative_error=factor * trusted.relative_error)

    monkeypatch.setattr(rounds, "trust_of_sums", wrong)
    found = searched("rs", 6, 40)
    ratio = found.optimistic if factor < 1 else found.pessimistic
    assert ratio > MOST
    assert found.wrong


def test_it_sees_a_bound_that_is_none(monkeypatch):
    right = adversary.stability.error_bound
    monkeypatch.setattr(
        adversary.stability, "error_bound", lambda *given, **named: 1e-3 * right(*given, **named)
    )
    adversary.bound_of.cache_clear()
    try:
        assert searched("binary", 6, 40).bound > 1
    finally:
        adversary.bound_of.cache_clear()


def played(code, g, kind):
    """Return the true and the trusted relative error of a round of all workers."""
    p = g.shape[1]
    form = code.scheme.format(p, *kind)
    rnd = code.round(p, form.gradient_dtype, form.message_dtype, partial_dtype=kind.gradient)
    for worker in range(code.n):
        encoder = code.encoder(worker, p, kind.gradient, message_dtype=kind.message)
        for j in code.partitions(worker).tolist():
            encoder.add(j, g[j])
        rnd.receive(worker, encoder.message(), energy=encoder.energy)
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
        error, trusted = played(code, g, Kind(np.float64, message))
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
    for worker in range(code.n):
        encoder = code.encoder(worker, 50, np.float64, message_dtype=np.float32)
        for j in code.partitions(worker).tolist():
            encoder.add(j, g[j])
        rnd.receive(worker, encoder.message(), energy=encoder.energy)
        if worker < 4:
            alone.receive(worker, encoder.message(), energy=encoder.energy)
    assert rnd.of(0).trust() == alone.trust()
    error = np.linalg.norm(rnd.of(0).gradient() - g[:4].sum(axis=0))
    assert 0.2 < error / rnd.of(0).trust().relative_error / np.linalg.norm(g[:4].sum(axis=0)) < 2


def test_data_of_more_precision_than_messages():
    """The data round like partial gradients, not like messages."""
    code = fastgc.LagrangeCode(8, load=2, messages=2)
    kind, sizes = Kind(np.float64, np.float32), np.zeros(code.k)
    rng = np.random.default_rng(0)
    job = adversary.job_of(code, adversary.Law(kept=-2.0), sizes, 24, kind, rng)
    once = adversary.play(code, kind, np.repeat(np.arange(code.n), 2), 0, job)
    assert 0.1 < once.error / once.trusted < 4


def test_partial_gradients_of_another_precision_are_refused():
    code = fastgc.BinaryCode(4, stragglers=1)
    with pytest.raises(TypeError, match="do not decode to gradients of float64, but to float32"):
        code.round(3, np.float64, partial_dtype=np.float32)


@pytest.mark.parametrize("kind", [Kind(np.float16), Kind(ml_dtypes.bfloat16), Kind(np.float32)])
def test_messages_that_are_partial_gradients_are_not_rounded_once_more(kind):
    g = np.random.default_rng(0).standard_normal((8, 50)).astype(kind.gradient)
    error, trusted = played(fastgc.Uncoded(8), g, kind)
    assert error < 1e-7
    assert trusted < 3e-7


@pytest.mark.parametrize("size", [1e-30, 1e-37, 1e-39, 1e-41, 1e-43])
@pytest.mark.parametrize(
    "kind", [Kind(np.float32), Kind(np.float64, np.float32), Kind(np.float32, ml_dtypes.bfloat16)]
)
@pytest.mark.parametrize(
    "code",
    [
        fastgc.ReedSolomon(8, stragglers=2),
        fastgc.CyclicRepetition(8, stragglers=2),
        fastgc.BinaryCode(8, stragglers=2),
    ],
    ids=repr,
)
def test_numbers_too_small_to_be_normal(code, kind, size):
    """Losses to underflow are part of the error; sums of such numbers lose nothing."""
    g = (size * np.random.default_rng(0).standard_normal((code.k, 50))).astype(kind.gradient)
    if code.scheme.integral and kind.message is None:
        assert played(code, g, kind)[0] < 1e-7
        return
    error, trusted = played(code, g, kind)
    if trusted < 1:
        assert error / trusted < 4
        assert error / trusted > 0.1


@pytest.mark.parametrize("size", [1.0, 1e-5, 1e-7])
@pytest.mark.parametrize(
    "code",
    [fastgc.CyclicRepetition(8, stragglers=2), fastgc.BinaryCode(8, stragglers=2)],
    ids=repr,
)
def test_small_numbers_are_less_precise_in_float16(code, size):
    g = (size * np.random.default_rng(0).standard_normal((8, 50))).astype(np.float32)
    error, trusted = played(code, g, Kind(np.float32, np.float16))
    assert 0.5 < error / trusted < 2


def test_honest_workers_and_liars():
    """No honest worker is accused, and no wrong gradient is verified."""
    names = ["rs", "binary", "fractional", "lcc", "cyclic"]
    assert adversary.play_honest(names, much(20_000, 140), 0)
    assert adversary.play_lies(names, much(20_000, 100), 0)


def test_it_sees_who_is_accused_and_what_is_let_through(monkeypatch):
    monkeypatch.setattr(verify, "SAFETY", 1e-3)
    adversary.kept.cache_clear()
    assert not adversary.play_honest(["rs", "binary"], 60, 0)
    adversary.kept.cache_clear()

    def blind(inspector, survivors):
        return verify.Finding(np.ones(survivors.size, np.bool_), True, [], [])

    monkeypatch.setattr(verify.Inspector, "inspect", blind)
    assert not adversary.play_lies(["rs", "binary"], 100, 0)
    adversary.kept.cache_clear()
