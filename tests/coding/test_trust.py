"""Trust estimates errors of sums that cancel, underflow, or are rounded more than once."""

import itertools
import math
import pickle
import warnings
from itertools import combinations, permutations

import ml_dtypes
import numpy as np
import pytest
from examples import example
from floating import flushing
from hypothesis import given, settings
from hypothesis import strategies as st
from liars import receive
from oracles.table import HALVES
from oracles.trust import trust
from strength import much
from tables import encoded, partial_gradients, streamed

import fastgc
from fastgc import (
    BinaryCode,
    Code,
    CyclicRepetition,
    FractionalRepetition,
    GraphCode,
    Grouped,
    InstabilityWarning,
    LagrangeCode,
    LinearCode,
    NotDecodableError,
    ReedSolomon,
    Uncoded,
    UnstableCodeError,
    stability,
)
from fastgc.codes.linear import LinearScheme
from fastgc.coding.arguments import arguments_of
from fastgc.coding.trust import Estimate, check_stability, typical_error
from fastgc.stability.precision import Experiment


def played(code, g, message=None, heard=None, told=True):
    """Return the true and the trusted relative error of a round of these messages, or of all."""
    form = code.scheme.format(g.shape[1], g.dtype, message)
    kinds = form.gradient_dtype, form.message_dtype
    rnd = code.round(g.shape[1], *kinds, partial_dtype=form.partial_dtype)
    for number in range(code.scheme.messages.count) if heard is None else heard:
        sent, energy = streamed(code, int(number), g, message)
        receive(rnd, int(number), sent, energy if told else np.nan)
    truth = g.astype(np.clongdouble if g.dtype.kind == "c" else np.longdouble).sum(axis=0)
    decoded = rnd.gradient()
    size = np.linalg.norm(decoded.astype(float))
    error = np.linalg.norm((decoded - truth).astype(float))
    return error / size if size else np.inf, rnd.trust().relative_error


def test_energies_below_the_squares_of_float64():
    """Workers' threads may have flushed them to 0: then nobody knows what cancelled."""
    code, rng = FractionalRepetition(8, stragglers=7), np.random.default_rng(0)
    g = 1e-155 * rng.standard_normal((8, 6))
    g[1::2] = -g[::2] * (1 - 1e-5)
    rnd = code.round(6)
    message, _ = streamed(code, 0, g)
    rnd.receive(0, message, energy=0.0)
    truth = g.astype(np.longdouble).sum(axis=0)
    error = np.linalg.norm(((rnd.gradient() - truth) / 1e-155).astype(float))
    size = np.linalg.norm((truth / 1e-155).astype(float))
    assert 1e-13 < error / size < 30 * rnd.trust().relative_error


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
    for number in range(8):
        receive(rnd, number, *streamed(code, number, g, np.float32))
        if number < 4:
            receive(alone, number, *streamed(code.codes[0], number, g[:4], np.float32))
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
    ("dtype", "message", "larger"),
    [
        ("float32", None, 1),
        ("float64", "float32", 1),
        ("float32", "bfloat16", 1),
        ("float32", "float16", 1e30),
    ],
)
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_numbers_too_small_to_be_normal(code, dtype, message, larger, size):
    """Losses to underflow are part of the error."""
    g = (size * larger * np.random.default_rng(0).standard_normal((code.k, 50))).astype(dtype)
    error, trusted = played(code, g, message)
    assert error < 4 * trusted or trusted == np.inf


@pytest.mark.parametrize("size", [1e-36, 1e-37, 1e-38, 1e-39, 1e-42])
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_numbers_that_a_thread_flushes_to_zero(code, size):
    """Trust knows that any thread may; but messages of zeros are taken for zeros."""
    g = (size * np.random.default_rng(0).standard_normal((code.k, 50))).astype(np.float32)
    messages = [streamed(code, number, g) for number in range(code.n)]
    truth = g.astype(float).sum(axis=0) / size
    for encodes, decodes in itertools.product([False, True], repeat=2):
        rnd = code.round(50, np.float32)
        with flushing(encodes):
            sent = [streamed(code, number, g) for number in range(code.n)] if encodes else messages
        with flushing(decodes):
            for number, (message, energy) in enumerate(sent):
                rnd.receive(number, message, energy=energy)
            gradient, trusted = rnd.gradient(), rnd.trust().relative_error
        decoded = gradient.astype(float) / size
        error = np.linalg.norm(decoded - truth)
        if decodes or any(message.any() for message, _ in sent):
            assert trusted == np.inf or error < 4 * trusted * np.linalg.norm(decoded)


@pytest.mark.subnormal
@pytest.mark.parametrize(("size", "expected"), [(0.0, 0.0), (-0.0, 0.0), (1e-310, np.inf)])
def test_zero_and_what_has_no_square_are_told_apart(size, expected):
    """Copies add up to 0, or cancel: the squares of both are 0."""
    rnd = fastgc.Uncoded(2).round(3)
    for worker, sign in enumerate((1, -1)):
        rnd.receive(worker, np.full(3, sign * size), energy=0.0)
    assert not rnd.gradient().any()
    assert rnd.trust().relative_error == expected


@pytest.mark.subnormal
def test_squares_of_messages_that_are_lost_but_not_the_gradients():
    rnd = LinearCode([[1.0], [1.0]]).round(1)
    for worker in range(2):
        rnd.receive(worker, np.full(1, 2.3e-162), energy=0.0)
    assert 1e-16 < rnd.trust().relative_error < 1


@pytest.mark.parametrize("size", [1.0, 1e-160, 1e-310, 1e160, 1e300])
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_floating_point_errors_that_raise(code, size):
    """Trust answers whatever the program does about overflow and underflow."""
    g = size * np.random.default_rng(0).standard_normal((code.k, 50))
    messages = [streamed(code, number, g) for number in range(code.n)]
    expected, found = code.round(50), code.round(50, tracker=fastgc.stability.StabilityTracker())
    with np.errstate(all="raise"):
        for number, (message, energy) in enumerate(messages):
            expected.receive(number, message, energy=energy)
            found.receive(number, message, energy=energy)
        found.gradient()
        told, before = found.trust(), code.trust(range(code.n))
    assert told == expected.trust()
    assert before == code.trust(range(code.n))


# ----------------------------------------- unbiased gradients: the definition, and where it applies


def coefficients(code, F, **options):
    """Return v = a_F B_F and the residual, for a code of one message per worker."""
    a, residual = code.best_vector(F, **options)
    return a @ code.matrix()[list(F)], residual


ALIKE = [  # codes that treat all partitions alike
    fastgc.FractionalRepetition(6, stragglers=1),
    fastgc.FractionalRepetition(6, 12, stragglers=2, wait=2),
    fastgc.BinaryCode(6, stragglers=1),
    fastgc.LinearCode(
        [[1.0 * ((j - i) % 7 in (0, 1, 3)) for j in range(7)] for i in range(7)], wait=3
    ),
    fastgc.ReedSolomon(6, stragglers=2),
    fastgc.Uncoded(5),
]


@pytest.mark.parametrize("code", ALIKE, ids=repr)
def test_every_partition_is_taken_once_on_average(code):
    """By enumeration: over all sets of survivors, each partition's mean coefficient is 1."""
    for f in range(1, code.n + 1):
        best, unbiased = [], []
        for F in combinations(range(code.n), f):
            best.append(coefficients(code, F)[0])
            unbiased.append(coefficients(code, F, partial="unbiased")[0])
        np.testing.assert_allclose(np.mean(unbiased, axis=0), 1, atol=1e-9)
        if f == 1:
            assert np.mean(np.real(best)) < 0.9


def test_over_all_orders_of_the_data_whoever_the_survivors_are():
    """By enumeration of orders, for a code that does not treat partitions alike."""
    code = fastgc.LinearCode([[1, 2, 0, 0], [0, 1, -1, 3], [0, 0, 1, 1], [2, 0, 1, 0]], wait=2)
    g = np.random.default_rng(0).standard_normal((4, 3))
    for F in ([0, 1], [1, 3], [2, 3], [0]):
        totals = {"best": 0.0, "unbiased": 0.0}
        orders = list(permutations(range(4)))
        for order in orders:
            h = g[list(order)]
            messages = [code.encode(i, h[code.partitions(i)]) for i in F]
            for partial in totals:
                found = code.decode(F, messages, partial=partial)
                totals[partial] = totals[partial] + found.gradient / len(orders)
        np.testing.assert_allclose(totals["unbiased"], g.sum(axis=0), atol=1e-12)
        short = code.decode(F, messages, partial="best").mean
        np.testing.assert_allclose(totals["best"], short * g.sum(axis=0), atol=1e-12)
        assert short < 0.999


@given(st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_the_nearest_of_all_with_mean_one(seed, is_complex):
    """It agrees with constrained least squares, and residuals agree with the formulas."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((5, 7)) * (rng.random((5, 7)) < 0.7) + np.eye(5, 7)
    B[:, 5:] += 0.5
    if is_complex:
        B = B * np.exp(1j * rng.random((5, 7)))
    code = fastgc.LinearCode(B, wait=2)
    F = sorted(rng.permutation(5)[: rng.integers(1, 5)].tolist())
    v, r = coefficients(code, F)
    u, left = coefficients(code, F, partial="unbiased")
    assert v.mean().real == pytest.approx(1 - r**2, abs=1e-9)
    assert u.mean() == pytest.approx(1, abs=1e-9)
    assert left == pytest.approx(r / math.sqrt(1 - r**2), abs=1e-9)
    assert left == pytest.approx(np.linalg.norm(u - 1) / math.sqrt(7), abs=1e-9)
    rows = B[F]
    for _ in range(5):
        w = rng.standard_normal(len(F)) @ rows
        if abs(w.sum()) > 1e-3:
            other = w * (7 / w.sum())
            assert np.linalg.norm(other - 1) >= np.linalg.norm(u - 1) - 1e-9


def test_of_coded_data_each_block_counts_once_on_average():
    code = fastgc.LagrangeCode(7, load=2)
    F = [0, 1, 2]
    a, residual = code.best_vector(F, partial="unbiased")
    lacking = code.scheme.precision.deviation(np.array(F), a)
    assert np.diagonal(lacking).mean() == pytest.approx(0, abs=1e-9)
    assert residual > code.best_vector(F)[1]


def test_messages_that_hold_nothing_of_the_gradient():
    code = fastgc.LinearCode([[1, -1], [1, 1]], wait=1)
    with pytest.raises(NotDecodableError, match="hold nothing of the gradient"):
        code.best_vector([0], partial="unbiased")
    with pytest.raises(NotDecodableError, match="these 1 messages is unbiased"):
        code.decode([0], [[1.0]], partial="unbiased")
    rnd = code.round(1)
    assert rnd.receive(0, np.ones(1))
    with pytest.raises(NotDecodableError, match="hold nothing"):
        rnd.best(partial="unbiased")


def test_verbs_say_which():
    code = fastgc.FractionalRepetition(6, stragglers=1)
    g = np.random.default_rng(3).standard_normal((6, 4))
    messages = encoded(code, g)
    best = code.decode([0, 1], messages[:2], partial="best")
    unbiased = code.decode([0, 1], messages[:2], partial="unbiased")
    assert (best.mean, unbiased.mean) == (pytest.approx(2 / 3), pytest.approx(1))
    np.testing.assert_allclose(unbiased.gradient, 1.5 * best.gradient)
    assert best.residual == pytest.approx(math.sqrt(1 / 3))
    assert unbiased.residual == pytest.approx(math.sqrt(1 / 2))
    rnd = code.round(4)
    for i in (0, 1):
        rnd.receive(i, messages[i])
    for partial, wanted in (("best", best), ("unbiased", unbiased)):
        np.testing.assert_allclose(rnd.best(partial=partial).gradient, wanted.gradient)
    rnd.receive(2, messages[2])
    assert rnd.best(partial="unbiased")[1:] == (0, 1)
    for verb in (
        lambda: rnd.best(partial="most"),
        lambda: code.best_vector([0], partial="most"),
        lambda: code.decode([0], messages[:1], partial="most"),
    ):
        with pytest.raises(ValueError, match=r"partial must be .*, not 'most'"):
            verb()


# ------------------------------------------------------------------------------ residuals over sets


def test_residuals_over_sets():
    """All sets of so many workers, or random ones if there are too many."""
    code = fastgc.CyclicRepetition(6, stragglers=2)
    left = [code.residual(F) for F in combinations(range(6), 3)]
    found = code.residuals(3)
    assert found == (3, pytest.approx(math.sqrt(np.mean(np.square(left)))), max(left), 20, True)
    drawn = code.residuals(3, sets=10, seed=1)
    assert (drawn.sets, drawn.exhaustive) == (10, False)
    assert drawn.worst <= found.worst
    assert code.residuals().mean < 1e-9
    assert code.residuals(3, sets=1).sets == 1
    for wrong in ({"workers": 0}, {"workers": 7}, {"sets": 0}):
        with pytest.raises(ValueError, match="|".join(wrong)):
            code.residuals(**wrong)


# ---------------------------------------------------------------------------------- trust of rounds


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
        if rng.random() < 0.3:
            code = BinaryCode(n, stragglers=s)
        dtype = np.float32 if rng.random() < 0.5 else np.float64
        partials = partial_gradients(code, 200, dtype, len(ratios["round"]))
        sent = rng.choice([None, *HALVES]) if dtype == np.float32 and root != 1 else None
        survivors = rng.permutation(n)[: rng.integers(code.threshold, n + 1)]
        error, trusted = played(code, partials, sent, survivors, told=False)
        if error > 0.1:
            continue
        ratios["round"].append(trusted / error)
        ratios["code"].append(code.trust(survivors, dtype, sent).relative_error / error)
    for ratio in ratios.values():
        assert min(ratio) > 0.1
        assert max(ratio) < 10


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
        for trusted in (experiment.trust(heard, vector), received.trust().relative_error):
            assert error / 3 <= trusted <= 5 * error


def test_trust_sees_cancellation_between_partials():
    """If partial gradients nearly cancel, the sum is small, but its relative error is not."""
    code = ReedSolomon(20, stragglers=5)
    partials = partial_gradients(code, 100, np.float64)
    partials[0] -= partials.sum(axis=0)
    partials[1] += 1e-9
    error, trusted = played(code, partials, heard=range(3, 20), told=False)
    assert error > 1e-8
    assert 0.1 < trusted / error < 10


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
    for _ in range(9):
        sizes = rng.uniform(0.5, 1, code.k) * (-1.0) ** np.arange(code.k)
        sizes -= sizes.mean()
        partials = sizes[:, None] * rng.standard_normal(50)
        partials = (partials + apart * rng.standard_normal(partials.shape)).astype(dtype)
        heard = rng.permutation(code.n)[code.stragglers :]
        for told, found in ((True, ratios), (False, blind)):
            error, trusted = played(code, partials, heard=heard, told=told)
            found.append(trusted / error)
    # Trust says too much: alternating sums do not grow as sums of random signs do.
    assert 0.1 < np.median(ratios) < 20
    if apart < 1e-3 and isinstance(code, FractionalRepetition):
        assert np.median(blind) < 1e-2  # without energies, trust misses it


def test_trust_of_messages_at_the_end_of_float64():
    """The sum of their norms has no square."""
    rnd = Uncoded(8).round(1)
    for worker in range(8):
        rnd.receive(worker, np.full(1, 2e153 * (1 if worker < 6 else -1)), energy=4e306)
    assert 1e-17 < rnd.trust().relative_error < 1e-15


UNKNOWN = math.nan, math.nan


@pytest.mark.subnormal
@pytest.mark.parametrize(
    ("sizes", "energies", "expected"),
    [
        ((0, 0), UNKNOWN, 0),
        ((1, -1), UNKNOWN, math.inf),  # nothing but cancellation says nothing of rounding errors
        ((0, 0), (0, 0), 0),
        ((0, 0), (0, math.nan), 0),
        ((0, 0), (0, 1e-30), math.inf),  # an energy shows what messages do not
        ((1e200, 1e200), UNKNOWN, math.inf),
        ((1e-200, 1e-200), UNKNOWN, math.inf),
        ((1, 1e-9), UNKNOWN, 1),
        ((1, 1e-9), (-1, -1), 1),
        ((1, 1e-9), (3, 3), 1),
        ((1, 1e-9), (300, 300), 10),
        ((1, 1e-9), (math.inf, math.inf), math.inf),
        ((1, 1e-9), (300, -50), 1),  # one bad energy voids all
    ],
)
def test_trust_of_two_messages(sizes, energies, expected):
    """A worker may lie about its energy, and squares may exceed float64."""
    rnd = Uncoded(2).round(3)
    for number in (0, 1):
        rnd.receive(number, np.full(3, float(sizes[number])), energy=energies[number])
    if expected in (0, math.inf):
        assert rnd.trust()[:2] == (expected, expected)
    assert rnd.trust().growth == pytest.approx(expected, rel=0.5)


def test_trust_of_too_few_messages():
    code = ReedSolomon(6, stragglers=2)
    rnd = code.round(4)
    rnd.receive(0, np.ones(4))
    for ask in (rnd.trust, lambda: code.trust([0, 1])):
        with pytest.raises(NotDecodableError):
            ask()


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


@given(
    code=st.sampled_from(
        [
            lambda load: FractionalRepetition(2, load, stragglers=1),
            lambda load: BinaryCode(4, load, stragglers=1),
            lambda load: ReedSolomon(4, load, stragglers=1),
            lambda load: CyclicRepetition(4, load, stragglers=1),
            lambda load: Uncoded(2, load),
        ]
    ),
    load=st.sampled_from([4, 60, 400, *much((2000, 20_000), (2000,))]),
    dtypes=st.sampled_from([("f4", None), ("f4", "f2"), ("f4", "f8"), ("f8", None)]),
    apart=st.sampled_from([0.0, 1e-3, 0.02, 0.3, 3.0]),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=much(300, 60))
def test_streamed_sums_of_alike_gradients_err_by_no_more_than_trust_says(
    code, load, dtypes, apart, seed
):
    """A common part makes partial sums long; roundings of equal terms add up."""
    made, rng, (dtype, sent) = code(load), np.random.default_rng(seed), dtypes
    common = rng.standard_normal(30)
    g = (common + apart * rng.standard_normal((made.k, 30))).astype(dtype)
    rnd = made.round(30, dtype, sent)
    for i in range(made.n):
        message, energy = streamed(made, i, g, sent)
        if rnd.receive(i, message, energy=energy):
            break
    truth = g.astype(np.longdouble).sum(axis=0)
    error = np.linalg.norm((rnd.gradient() - truth).astype(float)) / np.linalg.norm(truth)
    assert error <= 30 * rnd.trust().relative_error
    if apart >= 0.3:  # more than rounding tells
        assert rnd.trust().relative_error < 1e-3


@pytest.mark.parametrize("size", [1.0, 1e-155])
@pytest.mark.parametrize("flushes", [False, True])
def test_roundings_of_equal_terms_add_up(flushes, size):
    """Also if their squares underflow, or messages hold more or less than others."""
    code, rng = BinaryCode(7, 20_000, stragglers=2), np.random.default_rng(0)
    g = np.tile(size * rng.standard_normal(20), (20_000, 1))
    rnd = code.round(20)
    for worker in range(7):
        with flushing(flushes):
            message, energy = streamed(code, worker, g)
        rnd.receive(worker, message, energy=energy)
    truth = 20_000 * g[0].astype(np.longdouble)
    error = np.linalg.norm(((rnd.gradient() - truth) / size).astype(float))
    error /= np.linalg.norm((truth / size).astype(float))
    assert error <= 10 * rnd.trust().relative_error <= 1e-10


def one_large(k, g):
    """What is added to a large term is rounded each time in the same direction."""
    return np.vstack([1e4 * g, np.tile(g, (k - 1, 1))])


ROUNDED_ALIKE = {
    "in groups of other coefficients": (
        CyclicRepetition(7, 23_333, stragglers=2),
        None,
        lambda k, g: np.tile(g, (k, 1)),
    ),
    "one large": (BinaryCode(7, 23_333, stragglers=2), None, one_large),
    "messages": (
        fastgc.RandomAssignment(8, 1_600, load=1_000),
        "f2",
        lambda k, g: g * np.where(np.arange(k) % 2, -0.9, 1)[:, None],
    ),
}


@pytest.mark.parametrize("case", ROUNDED_ALIKE)
def test_roundings_of_one_direction_are_within_thirty_of_trust(case):
    """Terms, or messages, of few values have errors that add up as they do."""
    code, sent, drawn = ROUNDED_ALIKE[case]
    g = drawn(code.k, np.random.default_rng(1).standard_normal(6))
    g *= 1e3 / np.abs(g).sum(axis=0).max()  # in the range of float16
    error, trusted = played(code, g.astype(np.float32), sent)
    assert error <= 30 * trusted


@pytest.mark.parametrize("load", [100, 10_000])
def test_roundings_of_random_directions_are_within_ten_of_trust(load):
    code, rng = FractionalRepetition(2, load, stragglers=1), np.random.default_rng(0)
    error, trusted = played(code, rng.standard_normal((load, 50)).astype(np.float32), heard=[0])
    assert error / 3 < trusted < 10 * error


def test_roundings_of_random_directions_with_little_in_common_are_within_two_of_trust():
    """All but a 90th of a sum's squared norm grows like that of random directions."""
    frame = np.linalg.qr(np.random.default_rng(0).standard_normal((101, 101)))[0]
    g = (frame[:100] + frame[100] * 0.0105).astype(np.float32)
    error, trusted = played(FractionalRepetition(2, 100, stragglers=1), g, heard=[0])
    assert error / 2 < trusted < 2 * error


def test_residual_is_the_expected_error():
    """This holds for partial gradients of equal norms in random directions, as documented."""
    code = ReedSolomon(11, stragglers=3)
    rng = np.random.default_rng(0)
    F = [0, 3, 4, 5, 8, 9]
    errors, norms = [], []
    for _ in range(50):
        partials = rng.standard_normal((11, 40))
        messages = [code.encode(i, partials[code.partitions(i)]) for i in F]
        found = code.decode(F, messages, partial="best")
        errors.append(np.sum((found.gradient - partials.sum(axis=0)) ** 2))
        norms.append(np.sum(partials.sum(axis=0) ** 2))
    assert np.sqrt(np.mean(errors) / np.mean(norms)) == pytest.approx(found.residual, rel=0.1)
    assert 0.1 < found.residual < 0.9


def test_trust_counts_the_residual():
    code = LinearCode([[1, 1 - 1e-7], [0, 1]], stragglers=0)
    assert code.trust([0]).relative_error == pytest.approx(5e-8, rel=0.1)  # half on either side


def test_trust_counts_what_the_vector_at_hand_leaves():
    """It is not what the shortest vector leaves out, as a subclass may use another vector."""

    class Short(LinearScheme):
        def bind_vector(self, survivors, vector, unit=2.0**-53):
            return self.by_formula(lambda came: 0.9 * self._solution(came)[0], survivors, vector)

    scheme = Short(np.eye(4), 10)
    with pytest.warns(InstabilityWarning, match="relative error is about 1e-01"):
        check_stability(scheme, False, "use another")
    code = Code(scheme)
    assert code.trust(range(4)).relative_error == pytest.approx(0.1)
    assert code.residual(range(4)) == pytest.approx(0.1)


# ----------------------------------------------------------------- what approximate codes leave out


LEAVING = [
    example("codes/expander").ExpanderCode(12, load=4, wait=8),
    example("codes/bernoulli").BernoulliCode(12, load=3, wait=8, seed=1),
    example("codes/bibd").BIBDCode(3, wait=9),
    GraphCode(12, degree=3, wait=6),
    FractionalRepetition(12, load=2, wait=8),
    LinearCode(np.random.default_rng(0).standard_normal((9, 8)), wait=5),
    Grouped([FractionalRepetition(6, load=2, wait=3), example("codes/bibd").BIBDCode(2, wait=4)]),
    Uncoded(12, tolerance=0.3),
    Uncoded(12, tolerance=0.3, rescale=False),
    Uncoded(12, load=3, tolerance=0.1),
]


# Partial gradients near to each other, in random directions, and those whose sum is small.
DRAWN = {
    "alike": lambda g: g[0] + 0.1 * g,
    "anyhow": lambda g: g,
    "cancelling": lambda g: g - (1 - 1e-6) * g.mean(axis=0),
}


@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize("code", LEAVING, ids=repr)
def test_trust_in_what_leaves_something_out_is_of_what_was_decoded(code, drawn):
    """Over draws, the median of trust is off by little, and by more without energies."""
    rng, p, off = np.random.default_rng(0), 50, {True: [], False: []}
    for _ in range(much(60, 12)):
        g = DRAWN[drawn](rng.standard_normal((code.k, p))) * 10.0 ** rng.integers(-9, 9)
        rounds = {told: code.round(p) for told in off}
        for worker in rng.permutation(code.n).tolist():
            for t in range(code.scheme.messages.counts[worker]):
                message, energy = streamed(code, code.scheme.messages.number(worker, t), g)
                for told, rnd in rounds.items():
                    if not rnd.ready:
                        rnd.receive(worker, message, energy=energy if told else np.nan)
        for told, rnd in rounds.items():
            trusted, decoded = rnd.trust().relative_error, rnd.gradient()
            error = np.linalg.norm(decoded - g.sum(axis=0)) / np.linalg.norm(decoded)
            off[told].append(error / trusted)
    for told, ratios in off.items():
        assert (0.5 if told else 0.2) < np.median(ratios) < 2
        assert max(ratios) < 10


def test_nothing_left_out_of_equal_partial_gradients_is_said_to_be_nothing():
    """The mean of those that came is the mean of all."""
    rnd = Uncoded(10, tolerance=0.3).round(4)
    for worker in range(7):
        rnd.receive(worker, np.arange(4.0))
    assert rnd.residual() == pytest.approx(np.sqrt(3 / 7))
    assert rnd.trust().relative_error < 1e-7


unstable = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")


@unstable
def test_trust_counts_the_rounding_of_messages():
    """Decoding multiplies it, here by ten thousand: single precision keeps four digits."""
    code = ReedSolomon(25, stragglers=8, root=1)
    neighbours = np.arange(17)
    single, double = (code.trust(neighbours, dtype) for dtype in (np.float32, np.float64))
    assert 1e4 < single.growth < double.growth < 1.001 * single.growth
    # Rounding of messages' elements, and of the sums and coefficients in them and in decoding.
    assert 0.2 * 2.0**-24 < single.relative_error / single.growth < 2 * 2.0**-24
    assert double.relative_error < 1e-10


@unstable
def test_trust_beyond_float64():
    code = ReedSolomon(1024, stragglers=512, root=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert min(code.trust(np.arange(512))[:2]) > 1e100
        assert stability.measured_error(code, np.arange(512), p=2).relative > 1e100


def test_typical_error_of_the_papers_construction_is_warned_of():
    with pytest.warns(InstabilityWarning, match=r'error is about \de\+1\d .*root="stable"'):
        code = ReedSolomon(256, stragglers=32, root=1)
    with pytest.raises(UnstableCodeError, match='root="stable"'):
        ReedSolomon(256, stragglers=32, root=1, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(code))  # as in each worker process: no second warning
        ReedSolomon(256, stragglers=32, strict=True)
        ReedSolomon(1000, stragglers=100, clusters="auto", strict=True)
        ReedSolomon(4096, stragglers=1024, strict=True)
        ReedSolomon(16, stragglers=3, root=1, strict=True)
    assert again == code
    assert "strict" not in repr(code)
    with pytest.warns(InstabilityWarning):  # a code made again from parameters is a new one
        type(code)(**arguments_of(code))


def test_typical_error_of_other_codes_is_warned_of():
    with pytest.raises(UnstableCodeError, match='nodes="roots"'):
        LagrangeCode(
            40, load=4, nodes=(np.linspace(0, 1, 10), np.linspace(1.1, 2, 40)), strict=True
        )
    with pytest.raises(UnstableCodeError, match="better conditioned"):
        LinearCode([[1, 0], [1, 1e-9]], strict=True)
    with pytest.warns(InstabilityWarning, match="LinearCode"):
        LinearCode([[1, 0], [1, 1e-9]])


@unstable
@pytest.mark.parametrize("root", ["stable", 1])
@pytest.mark.parametrize(("n", "s"), [(16, 4), (80, 12), (256, 32), (1000, 100)])
def test_typical_error_agrees_with_trust(n, s, root):
    """They agree within a factor of 30; where no digit is left, the estimate is no lower."""
    code = ReedSolomon(n, stragglers=s, root=root)
    rng = np.random.default_rng(1)
    trusted = [code.trust(rng.permutation(n)[s:]).relative_error for _ in range(50)]
    assert np.median(trusted) < 30 * typical_error(code.scheme)
    if typical_error(code.scheme) < 1:
        assert np.median(trusted) > typical_error(code.scheme) / 30


ESTIMATED = [
    BinaryCode(9, stragglers=2),
    FractionalRepetition(6, stragglers=2),
    ReedSolomon(6, stragglers=2),
    ReedSolomon(6, stragglers=5),  # all messages are copies
    Uncoded(6, tolerance=0.5),
    LagrangeCode(8, 3, load=2, messages=2),
    LinearCode(np.diag([1.0, -1.0, 2.0])),
    LinearCode([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, -1.0]]),
]
ESTIMATED[-1].scheme.precision.row_norms = np.array([0.0, np.inf, 1.0, 2.0])  # 0, or beyond
ESTIMATED[-1].scheme._kept.trusted.clear()
FORMATS = [("d", None), ("f", None), ("f", "d"), ("f", "e"), ("d", "f")]


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("code", ESTIMATED, ids=repr)
def test_estimate(code, exact, monkeypatch):
    """Of any messages: unused ones, copies, no norms or energies, sums that are 0 or beyond."""
    if exact:  # what random vectors leave out is far more than rounding
        monkeypatch.setattr(type(code.scheme.precision), "left_out", lambda *_: 0.0)
    scheme, rng, count = code.scheme, np.random.default_rng(0), code.scheme.messages.count
    for kinds, p, told, way in itertools.product(FORMATS, [1, 5], [False, True], range(12)):
        form, f = scheme.format(p, *kinds), int(rng.integers(1, count + 1))

        def drawn(size, *others):
            these = rng.random(size) < 0.2 * len(others)
            return np.where(these, rng.choice([1.0, *others], size), 10 ** rng.uniform(-3, 3, size))

        survivors, squares, energies, zero = rng.permutation(count), None, None, False
        turns = rng.choice([1, 1j, 1 + 2j], count) if scheme.is_complex else 1.0
        vector = drawn(count, 0.0) * turns
        if told:
            energies = drawn(count, *[np.nan, 0.0][way % 3 :])
            squares = np.append(np.where(vector, drawn(count), np.nan), 1.0)
            squares[f] = [0.0, 0.0, 1e-300, np.inf, np.nan, *drawn(7)][way]
            zero, energies = way == 0, energies * (way > 0)
        found = Estimate(scheme, form, vector, survivors, squares, energies)(slice(f), f, zero)
        with np.errstate(all="ignore"):
            wanted = trust(scheme, form, vector[:f], survivors[:f], squares, energies, zero)
        np.testing.assert_allclose(found[:2], wanted, rtol=1e-12)
