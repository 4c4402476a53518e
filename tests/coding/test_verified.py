"""Rounds that verify: corrupt workers are named, and rounding is never taken for a lie."""

import ml_dtypes
import numpy as np
import pytest
from floating import flushing
from hypothesis import given, settings
from hypothesis import strategies as st
from liars import (
    EVERY_VERIFIED,
    KINDS,
    VERIFIED,
    consistent,
    explaining,
    in_random_order,
    play,
    receive,
    receive_until_ready,
    send,
    spoilt,
)
from oracles.table import HALVES
from strength import much
from tables import EVERY_LARGE, LARGE, Job, awaited, encoded, streamed

import fastgc
from fastgc import (
    BinaryCode,
    CyclicRepetition,
    FractionalRepetition,
    Grouped,
    LagrangeCode,
    LinearCode,
    ReedSolomon,
    Uncoded,
)
from fastgc.errors import CorruptMessageError, NotDecodableError, UnverifiedError
from fastgc.kernels.arrivals import ROW
from fastgc.stability import StabilityTracker


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
                assert rnd.verified >= (not any(map(awaited(code).missing, without)))
        assert rnd.ready
        assert rnd.corrupt == []
        rnd.reset()
        assert not rnd.decodable
        assert not rnd.ready
        assert not rnd.verified


def messages_awaited(code, verify):
    """Return the number of messages taken in 20 rounds, in random orders."""
    job = Job(code)
    rnd = code.round(job.p, verify=verify)
    total = 0
    for seed in range(20):
        rnd.reset()
        order = in_random_order(code, np.random.default_rng(seed))
        total += receive_until_ready(rnd, order, job.messages)
    return total


def test_no_more_are_awaited_than_needed():
    code = ReedSolomon(13, stragglers=3)
    assert messages_awaited(code, True) == messages_awaited(code, False) + 20
    code = FractionalRepetition(12, stragglers=3)
    assert messages_awaited(code, False) < messages_awaited(code, True) < 20 * 10


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")  # for messages of low precision
@settings(deadline=None, max_examples=much(50, 30))
@given(
    code=st.sampled_from([c for c in VERIFIED + LARGE[:6] if not c.scheme.data.coded]),
    dtype=st.sampled_from([np.float32, np.float64, *HALVES]),
    magnitude=st.integers(-30, 30),
    p=st.sampled_from([1, 2, 7, 64, ROW + 3]),
    shape=st.sampled_from(["random", "constant", "skewed", "sparse", "tiny"]),
    seed=st.integers(0, 2**32),
)
def test_rounding_is_never_taken_for_corruption(code, dtype, magnitude, p, shape, seed):
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
    if shape == "tiny":  # below the normal range, rounding errors are large beside numbers
        scale = 3 * float(ml_dtypes.finfo(dtype).smallest_subnormal)
    kind = np.float32 if dtype in HALVES else dtype
    sent = dtype if dtype in HALVES else None
    g = (scale * g).astype(kind)
    rnd = code.round(p, kind, sent, verify=True)
    play(rnd, rng, g)
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
        partials = np.array([code.compute(shard, theta) for shard in shards])
        cancels = [code.scheme.data.cancelling(shard)(theta) for shard in shards]
        for number in in_random_order(code, rng):
            worker, index = code.scheme.messages.sender(number)
            encoder = code.encoder(worker, 5, dtype, index=index)
            for j in code.partitions(worker, index).tolist():
                encoder.add(j, partials[j], cancels[j])
            receive(rnd, number, encoder.message(), encoder.energy)
        assert rnd.corrupt == []
        if distance > 1e-9:
            rnd.gradient()


# --------------------------------------------------------------------------------- corrupt messages


def test_a_lie_is_not_let_in_by_a_coefficient_that_rounding_left():
    """Workers 0, 2, 3 and 5 form a cycle; no check has seen worker 4, which lies."""
    code = fastgc.GraphCode(6, degree=3)
    g = np.random.default_rng(53).standard_normal((6, 9))
    rnd = code.round(9, verify=True)
    heard = [4, 0, 5, 3, 2]
    for worker in heard:
        message = code.encode(worker, g[code.partitions(worker)])
        send(rnd, worker, np.full(9, 1e300) if worker == 4 else message)
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
            named = blamed if blamed == [bad] else []
            assert rnd.corrupt == named or (kind == "huge" and rnd.corrupt == [bad])  # its energy
            if not rnd.corrupt:
                assert rnd.suspects == blamed
            if not rnd.corrupt and not rnd.verified:
                assert rnd.ready == (len(heard) == code.scheme.messages.count)
                for decode in (rnd.gradient, rnd.best):
                    with pytest.raises(CorruptMessageError) as caught:
                        decode()
                    assert caught.value.suspects == tuple(blamed)
        else:
            assert rnd.corrupt in ([], [bad])
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
    workers = code.scheme.messages.workers
    order = sorted(in_random_order(code, rng), key=lambda m: workers[m] != 17)
    receive_until_ready(rnd, order, messages)
    assert rnd.corrupt == [17]
    assert rnd.verified
    numbers = rnd.survivors
    expected = code.decode(numbers, [job.messages[m] for m in numbers], p=job.p)
    np.testing.assert_array_equal(rnd.gradient(), expected)


# ------------------------------------------------------------------------------------ resolution


def test_a_lie_that_only_an_imprecise_vector_shows_is_not_verified():
    """Without worker 9, the first nine messages give a gradient of no correct digits in float32."""
    code, rng = CyclicRepetition(12, stragglers=4), np.random.default_rng(0)
    rnd = code.round(100, np.float32, verify=1)
    for _ in range(much(400, 40)):
        g = rng.standard_normal((12, 100)).astype(np.float32)
        rnd.reset()
        for worker in (3, 10, 4, 9, 5, 6, 8, 2, 11):
            message, energy = streamed(code, worker, g)
            assert not receive(rnd, worker, -message if worker == 9 else message, energy)
            assert not rnd.verified
        for worker in (0, 1, 7):
            receive(rnd, worker, *streamed(code, worker, g))
        assert rnd.corrupt == [9]
        assert rnd.verified
        truth = g.astype(float).sum(axis=0)
        error = np.linalg.norm(rnd.gradient() - truth) / np.linalg.norm(truth)
        assert error < rnd.resolution() < 3.5e-4


@pytest.mark.parametrize(
    ("code", "e"),
    [
        (BinaryCode(7, stragglers=2), 1),
        (BinaryCode(20, stragglers=2), 1),
        (BinaryCode(11, stragglers=4), 2),
    ],
    ids=repr,
)
def test_a_round_decodes_what_all_explanations_agree_on(code, e):
    """Some rounds cannot tell who lies, but in none does the gradient depend on it."""
    rng, rnd = np.random.default_rng(0), code.round(30, verify=e)
    suspected = 0
    for _ in range(much(200, 30)):
        g = rng.standard_normal((code.k, 30))
        bad = rng.permutation(code.n)[:e].tolist()
        play(rnd, rng, g, bad, lambda message, energy: (message + rng.standard_normal(30), energy))
        np.testing.assert_allclose(rnd.gradient(), g.sum(axis=0), atol=1e-12)
        assert set(rnd.corrupt) <= set(bad)
        assert set(bad) <= {*rnd.corrupt, *rnd.suspects}
        suspected += bool(rnd.suspects)
    assert suspected


def test_a_round_decodes_what_a_small_message_may_have_left_alone():
    """A huge lie is explained by any of three edges in a row, of which one should be small.

    Copies that agree say all of the gradient. So that it can be a lie of the small message says
    nothing against them.
    """
    code, rng = BinaryCode(11, stragglers=4), np.random.default_rng(0)
    sizes = 10.0 ** np.array([-1, 0, 1, 4, -4, -3, -4, -3, 3, 3, -4])
    g = (sizes[:, None] * rng.standard_normal((11, 700))).astype(np.float32)
    rnd = code.round(700, np.float32, verify=2)
    for worker in (2, 9, 0, 1, 5, 7, 3, 10, 6):
        message, energy = streamed(code, worker, g)
        lie = 1e4 * np.linalg.norm(message) / 26 * rng.standard_normal(700)
        rnd.receive(worker, message + (worker == 10) * lie.astype(np.float32), energy=energy)
    truth = g.astype(float).sum(axis=0)
    error = np.linalg.norm(rnd.gradient() - truth) / np.linalg.norm(truth)
    assert error < rnd.resolution() < 3.5e-4
    assert rnd.suspects == [0, 5, 10]


def test_what_was_verified_stays_so():
    """A fifth copy that lies beside a fourth cannot make agreeing ones doubtful."""
    code = FractionalRepetition(6, stragglers=5)
    job = Job(code)
    rnd = code.round(job.p, verify=2)
    for worker in range(6):
        ready = send(rnd, worker, job.messages[worker] * (1 if worker < 3 else worker))
        assert ready == rnd.verified == (worker >= 2)
    assert job.error(rnd.gradient()) < 1e-12


@pytest.mark.parametrize(
    ("limit", "error"), [(-1e-9, ValueError), (float("nan"), ValueError), ("1e-6", TypeError)]
)
def test_a_limit_is_a_number(limit, error):
    with pytest.raises(error, match="limit must be"):
        BinaryCode(6, stragglers=2).round(3, verify=1, limit=limit)


def test_the_limit_of_the_resolution():
    """A finer one takes more messages, or more than there are."""
    code = ReedSolomon(12, stragglers=5)
    job, came = Job(code), []
    for limit in (1e-10, 1e-14, 1e-20):
        rnd = code.round(job.p, verify=1, limit=limit)
        for worker in range(12):
            if send(rnd, worker, job.messages[worker]):
                break
        came.append(worker + 1)
        assert rnd.ready
        assert rnd.verified == (rnd.resolution() <= limit)
        assert rnd.trust().resolution == rnd.resolution()
    assert came == [8, *sorted(came[1:])]
    assert came[2] == 12
    with pytest.raises(UnverifiedError, match=r"lies of .* could hide .* more than 1.0e-20"):
        rnd.gradient()
    assert np.isnan(code.round(3).resolution())


@pytest.mark.parametrize(
    ("code", "dtype", "message_dtype"),
    [
        (fastgc.GraphCode(6, 20_000, degree=3), np.float64, None),  # workers add up 10,000
        (FractionalRepetition(9, stragglers=2), np.float32, np.float64),
    ],
)
def test_resolution_of_honest_rounds(code, dtype, message_dtype):
    """Equal partial gradients have equal roundings; the gradient is rounded as well."""
    g = np.tile(np.random.default_rng(0).standard_normal(50), (code.k, 1)).astype(dtype)
    rnd = code.round(50, dtype, message_dtype, verify=1)
    for worker in range(code.n):
        receive(rnd, worker, *streamed(code, worker, g, message_dtype))
    truth, found = g.astype(np.longdouble).sum(axis=0), rnd.gradient()
    assert np.linalg.norm(found - truth) <= rnd.resolution() * np.linalg.norm(found)
    assert rnd.verified


def test_resolution_where_results_underflow():
    """The messages are precise, and the gradient has few digits in float32."""
    code, rng = Uncoded(6, load=3), np.random.default_rng(0)
    g = (1e-39 * rng.standard_normal((6, 50))).astype(np.float32)
    rnd = code.round(50, np.float32, np.float64, verify=1)
    for number in range(18):
        receive(rnd, number, *streamed(code, number, g, np.float64))
    assert rnd.resolution() > 1


def test_corrupt_is_nobody_that_tells_no_energy():
    """What is assumed of such a worker is no claim of its."""
    code = LinearCode(ReedSolomon(6, stragglers=2).matrix(), packed=False)
    g = np.random.default_rng(0).standard_normal((6, 50))
    for silent in range(6):
        rnd = code.round(50, verify=1)
        for worker in range(6):
            message, energy = streamed(code, worker, g)
            receive(rnd, worker, message, np.nan if worker == silent else energy)
        assert rnd.suspects == []
        assert rnd.survivors.size == 6


def test_zeros_of_two_liars_frame_no_third():
    """Their messages, which agree, have no rounding errors, as their energies are 0."""
    code, rng = BinaryCode(11, stragglers=4), np.random.default_rng(0)
    g = rng.standard_normal((11, 50))
    for _ in range(much(200, 20)):
        rnd, liars = code.round(50, verify=2), [3, 4]
        for worker in [3, 0, 9, 5, 1, 8, 6, 10, 4, 2, 7]:
            message, energy = streamed(code, worker, g)
            lies = worker in liars
            receive(rnd, worker, message * (not lies), energy * (not lies))
            assert set(rnd.corrupt) <= set(liars)
        np.testing.assert_allclose(rnd.gradient(), g.sum(axis=0), atol=1e-11)


@pytest.mark.parametrize("small", [1e-3, 1e-5])
def test_small_messages_tell_who_lies(small):
    """Two workers sent the large partial gradient; one of them also sent others, which have copies.

    Copies of small partial gradients differ by more than they round, but by less than the large one
    may round.
    """
    code, rng = Uncoded(6, load=3), np.random.default_rng(0)
    g = rng.standard_normal((6, 30)) * np.where(np.arange(6) == 2, 1, small)[:, None]
    rnd = code.round(30, np.float32, verify=1)
    for worker in range(6):
        for index, j in enumerate(code.partitions(worker).tolist()):
            if (worker, j) != (1, 2):
                message = (g[j] * (1 + 1e-2 * (worker == 2))).astype(np.float32)
                rnd.receive(worker, message, index, energy=float(message @ message))
    assert rnd.corrupt == [2]
    np.testing.assert_allclose(rnd.gradient(), g.sum(axis=0), rtol=1e-5)


@pytest.mark.parametrize("order", [(2, 4, 3, 5, 1, 7), (5, 1, 2, 4, 3, 7)])
@pytest.mark.parametrize(("size", "energy"), [(1.0, np.inf), (1.0, 1e308), (1e-100, 1e308)])
def test_energies_without_end_hide_no_others(size, energy, order):
    """Checks of such messages say nothing, but others do: whoever lies, lies hardly differ."""
    code, rng = FractionalRepetition(8, stragglers=7), np.random.default_rng(0)
    g = size * rng.standard_normal((8, 10))
    rnd = code.round(10, verify=3, limit=0.1)
    for worker in order:
        message, told = streamed(code, worker, g)
        told = energy if worker in (5, 1) else told
        rnd.receive(worker, message * (1 + 1e-5 * (worker == 7)), energy=told)
    assert rnd.verified
    assert rnd.corrupt == []
    np.testing.assert_allclose(rnd.gradient(), g.sum(axis=0), rtol=0, atol=1e-3 * size)


@pytest.mark.parametrize("claim", [1e8, 1e12, 1e20, 1e30])
@pytest.mark.parametrize(
    ("code", "e"),
    [
        (CyclicRepetition(8, stragglers=3), 2),
        (Grouped([ReedSolomon(4, stragglers=2), BinaryCode(4, stragglers=1)]), 1),
    ],
    ids=repr,
)
def test_energies_of_any_size_spoil_no_check(code, e, claim):
    """Who says that its sums may be wrong by any amount is one that did not answer."""
    G = np.random.default_rng(0).standard_normal((8, 50))
    for order in ([0, *range(1, 8)], [*range(1, 8), 0]):
        rnd = code.round(50, verify=e)
        for worker in order:
            message, energy = streamed(code, worker, G)
            receive(rnd, worker, message, energy * claim**2 if worker == 0 else energy)
        assert rnd.verified
        assert rnd.resolution() < 1e-10


@pytest.mark.parametrize("liar", [None, 0, 1, 3, 4, 5, 6, 7])
def test_honest_energies_beyond_float64(liar):
    """The messages without the one whose energy is too large suffice, and name the liar."""
    rows, rng = ReedSolomon(8, stragglers=3).matrix(), np.random.default_rng(0)
    code = LinearCode(rows * np.where(np.arange(8) == 2, 100, 1)[:, None])
    rnd, g = code.round(10, verify=1), rng.standard_normal((8, 10))
    for worker in range(8):
        message, energy = streamed(code, worker, 1e152 * g)
        assert np.isinf(energy) == (worker == 2)
        rnd.receive(worker, message * (1 + 1e-3 * (worker == liar)), energy=energy)
    assert rnd.corrupt == ([] if liar is None else [liar])
    assert rnd.verified
    np.testing.assert_allclose(rnd.gradient() / 1e152, g.sum(axis=0), rtol=1e-9)


@pytest.mark.parametrize("size", [1.0, 1e-160, 1e-310, 1e160, 1e300])
def test_floating_point_errors_that_raise(size):
    """A round verifies whatever the program does about overflow and underflow."""
    code, rng = ReedSolomon(8, stragglers=3), np.random.default_rng(0)
    g = size * rng.standard_normal((8, 30))
    sent = [streamed(code, worker, g) for worker in range(8)]
    rnd = code.round(30, verify=1)
    with np.errstate(all="raise"):
        for worker, (message, energy) in enumerate(sent):
            receive(rnd, worker, 2 * message if worker == 3 else message, energy)
        assert rnd.corrupt in ([], [3])
        assert rnd.verified or size != 1
    if rnd.verified:
        np.testing.assert_allclose(rnd.gradient() / size, g.sum(axis=0) / size, atol=1e-6)


# ------------------------------------------------------------------------------ the life of a round


def test_the_life_of_a_corrupt_worker():
    code = ReedSolomon(9, stragglers=4)
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    send(rnd, 0, 2 * job.messages[0])
    for i in range(1, 5):
        assert not send(rnd, i, job.messages[i])
    assert rnd.decodable
    assert not rnd.verified
    with pytest.raises(UnverifiedError, match="more must come") as caught:
        rnd.gradient()
    assert caught.value.missing == 1
    assert not send(rnd, 5, job.messages[5])  # a contradiction, but it is unknown who lies
    out = np.full(job.p, 7.0)
    says = "one of the workers 0, 1, 2, 3, 4, 5 must be corrupt; at least 1 more"
    for decode in (rnd.gradient, rnd.best):
        with pytest.raises(CorruptMessageError, match=says):
            decode(out)
    assert (out == 7).all()
    assert send(rnd, 6, job.messages[6])  # worker 0 lies: the others have one to spare, and agree
    assert rnd.corrupt == [0]
    assert rnd.verified
    assert rnd.survivors.tolist() == [1, 2, 3, 4, 5, 6]
    assert not rnd.wants(0)
    assert rnd.wants(7)
    with pytest.raises(ValueError, match="worker 0 were found to be corrupt in this round"):
        send(rnd, 0, job.messages[0])
    assert job.error(rnd.gradient()) < 1e-13
    rnd.require(np.array([0, 1, 2, 3, 4, 5]))
    with pytest.raises(NotDecodableError):
        rnd.require(np.array([0, 1, 2, 3, 4]))  # worker 0 does not count
    rnd.reset()
    assert rnd.corrupt == []
    assert rnd.wants(0)
    for i in range(6):
        ready = send(rnd, i, job.messages[i])
    assert ready
    assert rnd.verified


@pytest.mark.parametrize(
    ("code", "e"),
    [(ReedSolomon(16, stragglers=11), 4), (FractionalRepetition(12, stragglers=11), 5)],
    ids=repr,
)
def test_a_round_that_waits_to_look_again_is_not_ready(code, e):
    """Of copies, five liars need six that agree: meanwhile, rounds look at none."""
    job = Job(code)
    rnd = code.round(job.p, verify=e)
    for i in range(code.n):
        lie = (i + 1) * np.random.default_rng(i).standard_normal(job.messages[i].size)
        ready = rnd.wants(i) and send(rnd, i, job.messages[i] + (i < e) * lie)
        assert not ready or (rnd.verified and job.error(rnd.gradient()) < 1e-9)
    assert ready
    assert sorted(rnd.corrupt) == list(range(e))


# Numbers of messages that come, by what they are multiplied; those after which the round is ready;
# those after which workers are known to be corrupt, and these workers.
ROUNDS = [
    # The message after the last needed is looked at, too.
    (ReedSolomon(7, stragglers=3), {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: -1}, {4, 5}, {5: [5]}),
    # Copies 1 and 5 agree. As worker 3 lies, nobody else does.
    (FractionalRepetition(6, stragglers=2), {0: 1, 1: 1, 3: 2, 5: 1, 2: 1}, {2}, {5: [3]}),
    # Worker 0's partition 1 contradicts worker 1's, and is one against two; all it sent is dropped.
    (Uncoded(3, load=3), {0: 1, 1: 2, 3: 1, 4: 1, 8: 1}, (), {8: [0]}),
]


@pytest.mark.parametrize(("code", "sent", "ready", "corrupt"), ROUNDS)
def test_corrupt_workers_are_dropped_once_they_are_known(code, sent, ready, corrupt):
    job = Job(code)
    rnd, known = code.round(job.p, verify=True), []
    for number, factor in sent.items():
        known = corrupt.get(number, known)
        assert receive(rnd, number, factor * job.messages[number]) == (number in ready)
        assert rnd.corrupt == known
        assert rnd.verified >= (number in ready)
    dropped = code.scheme.messages.of(known)
    assert rnd.survivors.tolist() == [m for m in sent if m not in dropped]
    if rnd.verified:
        assert job.error(rnd.gradient()) < 1e-13


def test_more_lie_than_may():
    """One group's corrupt worker is named and dropped; nobody else may lie, but one does."""
    code = Grouped([ReedSolomon(5, stragglers=2), ReedSolomon(4, 3, stragglers=1)])
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    for i in range(9):
        ready = send(rnd, i, job.messages[i] * (-1 if i in (1, 7) else 1))
        assert ready == (i == 8)
    assert rnd.corrupt == [1]
    with pytest.raises(
        CorruptMessageError, match="those of more than one worker must be corrupt; no further"
    ) as caught:
        rnd.gradient()
    assert caught.value.suspects == ()


def test_best_of_too_few_looks_as_well():
    code = FractionalRepetition(6, stragglers=2)
    job = Job(code)
    rnd = code.round(job.p, verify=True)
    send(rnd, 0, job.messages[0])
    send(rnd, 2, 2 * job.messages[2])
    with pytest.raises(NotDecodableError):
        rnd.gradient()
    with pytest.raises(CorruptMessageError, match="workers 0, 2 must"):
        rnd.best()
    send(rnd, 4, job.messages[4])
    assert rnd.best().residual == pytest.approx(np.sqrt(0.5))
    assert rnd.corrupt == [2]
    assert rnd.survivors.tolist() == [0, 4]


def test_a_tracker_may_want_still_more():
    code = CyclicRepetition(8, stragglers=3)
    job = Job(code)
    tracker = StabilityTracker(limit=1e-30, action="wait")
    rnd = code.round(job.p, tracker=tracker, verify=True)
    assert [send(rnd, i, job.messages[i]) for i in range(8)] == [False] * 7 + [True]
    assert rnd.verified


def test_groups_that_take_part_are_verified_each():
    code = Grouped([ReedSolomon(5, stragglers=2), BinaryCode(4, stragglers=1), Uncoded(2, load=2)])
    rng = np.random.default_rng(0)
    g = rng.standard_normal((code.k, 5))
    messages = encoded(code, g)
    messages[2] = -messages[2]
    rnd = code.group_round(5, verify=True)
    rnd.reset([0, 1])
    for i in (2, 0, 1, 3):
        assert not send(rnd, i, messages[i])
    assert not rnd.decodable
    assert rnd.wants(4)
    send(rnd, 4, messages[4])
    assert rnd.corrupt == [2]
    assert rnd.survivors.tolist() == [0, 1, 3, 4]
    assert not rnd.wants(2)
    for i in (5, 7):
        send(rnd, i, messages[i])
    assert rnd.decodable
    assert not rnd.ready
    send(rnd, 6, messages[6])
    send(rnd, 8, -messages[8])
    with pytest.raises(
        CorruptMessageError, match="one of the workers 7, 8 must be corrupt; no further"
    ) as caught:
        rnd.gradient(1)
    assert caught.value.suspects == (7, 8)
    assert not rnd.verified
    np.testing.assert_allclose(rnd.gradient(0), g[:5].sum(axis=0), atol=1e-13)
    rnd.reset([2])
    assert rnd.corrupt == []


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
        receive_until_ready(rnd, in_random_order(code, rng), messages)
        try:
            assert job.error(rnd.gradient()) < 1e-9
        except CorruptMessageError:
            raised += 1
            assert bad
    assert raised


def test_corrupt_is_nobody_without_energies():
    """Rounding errors may be larger than assumed; the gradient is right all the same."""
    rng, code, suspected = np.random.default_rng(0), fastgc.BinaryCode(7, stragglers=2), 0
    for _ in range(60):
        liar, G, rnd = int(rng.integers(7)), rng.standard_normal((7, 5)), code.round(5, verify=1)
        for i in rng.permutation(7).tolist():
            if rnd.receive(i, code.encode(i, G[code.partitions(i)]) + 3 * (i == liar)):
                break
        np.testing.assert_allclose(rnd.gradient(), G.sum(axis=0), atol=1e-12)
        assert rnd.verified
        assert rnd.corrupt == []
        suspected += liar in rnd.suspects
    assert suspected > 40


@pytest.mark.parametrize(
    "code", [FractionalRepetition(4, stragglers=3), ReedSolomon(4, stragglers=3, packed=False)]
)
def test_an_energy_that_underflows_is_no_lie(code):
    """What squares lose is not in the energy that a worker tells: it claims nothing by it."""
    g = 1e-290 * np.random.default_rng(0).standard_normal((4, 6))
    sent = [code.encode(worker, g[code.partitions(worker)]) for worker in range(4)]
    rnd = code.round(6, verify=1)
    for worker in (1, 2, 0, 3):
        rnd.receive(worker, sent[worker], energy=0.0 if worker == 3 else np.nan)
    assert rnd.verified
    assert rnd.suspects == []
    rnd.reset()
    for worker in (1, 2, 3, 0):  # of which the first lies, and two tell next to nothing
        message = 3 * sent[worker] if worker == 1 else sent[worker]
        rnd.receive(worker, message, energy=np.nan if worker in (1, 2) else 0.0)
    assert not rnd.verified


@pytest.mark.parametrize("seed", [3, 7, 20, 22, 25])
def test_the_only_copy_of_the_largest_partial_gradient_is_no_lie(seed):
    """A code that may leave out partitions decodes without having two copies of each."""
    rng = np.random.default_rng(seed)
    code = Uncoded(8, load=4, tolerance=0.5)
    g = rng.standard_normal((8, 5))
    rnd = code.round(5, verify=1)
    for number in rng.permutation(code.scheme.messages.count).tolist():
        receive(rnd, number, *streamed(code, number, g, None))
        assert rnd.corrupt == []
        if rnd.ready:
            break
    assert rnd.verified


def test_resolution_counts_floats_that_workers_flush():
    """Their messages are float64, but numbers below 1e-38 are lost where they are read."""
    code, rng = ReedSolomon(3, k=10_000, stragglers=2), np.random.default_rng(0)
    g = 1e-36 * (rng.standard_normal(50) + 0.1 * rng.standard_normal((code.k, 50)))
    g = g.astype(np.float32)
    rnd = code.round(50, np.float32, np.float64, verify=1, partial_dtype=np.float32, limit=0.01)
    with flushing():
        for worker in range(3):
            encoder = code.encoder(worker, 50, np.float32, message_dtype=np.float64)
            for number in code.partitions(worker).tolist():
                encoder.add(number, g[number])
            rnd.receive(worker, encoder.message(), energy=encoder.energy)
    truth = 1e36 * g.astype(np.float64).sum(axis=0)
    error = np.linalg.norm(1e36 * rnd.gradient().astype(np.float64) - truth)
    assert error < rnd.resolution() * np.linalg.norm(truth)
    assert error < 4 * rnd.trust().relative_error * np.linalg.norm(truth)


@pytest.mark.parametrize("size", [1e-161, 1e-200])
def test_resolution_of_small_messages_without_energies(size):
    """Squares are lost in energies, but nobody told any. The resolution is that of any size.

    It depends on secret projections: of 600 rounds of size 1 the largest was 1.7e-9.
    """
    code, rng = CyclicRepetition(12, stragglers=4), np.random.default_rng(0)
    rnd, G = code.round(50, verify=1), size * rng.standard_normal((12, 50))
    for worker in range(12):
        rnd.receive(worker, code.encode(worker, G[code.partitions(worker)]))
    assert rnd.verified
    assert rnd.resolution() < 1e-8


def test_corrupt_is_nobody_where_pairs_cancel_and_no_energy_is_told():
    rng, code = np.random.default_rng(1), fastgc.FractionalRepetition(6, stragglers=2)
    for _ in range(40):
        G = 1e6 * rng.standard_normal((6, 50))
        G[1::2] = -G[::2] + 1e-3 * rng.standard_normal((3, 50))
        rnd = code.round(50, verify=1)
        for i in rng.permutation(6).tolist():
            own = code.partitions(i)
            order = rng.permutation(len(own))  # each worker rounds in its own order
            rnd.receive(i, np.add.accumulate(G[own][order])[-1])
        assert rnd.corrupt == []
