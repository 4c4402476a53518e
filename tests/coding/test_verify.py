"""What parity checks can tell: which corruption shows, whose it is, and what no lie can hide."""

import copy
import itertools
import math
import os
from collections import Counter
from functools import partial

import ml_dtypes
import numpy as np
import pytest
from liars import cancelling, dense, play, receive, send, verifiable
from oracles.table import HALVES
from strength import much
from tables import EVERY_LARGE, EVERY_SMALL, SMALL, Job, streamed

import fastgc
from fastgc import (
    BinaryCode,
    CyclicRepetition,
    FractionalRepetition,
    LagrangeCode,
    PartialWork,
    ReedSolomon,
    Uncoded,
)
from fastgc.coding import verify
from fastgc.coding.format import Format
from fastgc.coding.rules import Blocks
from fastgc.coding.scheme import Scheme
from fastgc.coding.verify import SEEN, STRETCH, Projection, liars_of
from fastgc.errors import CorruptMessageError, NonFiniteMessageError, UnverifiedError
from fastgc.kernels import Rows, unchecked
from fastgc.kernels.arrivals import ROW, SIDE, Arrivals
from fastgc.numerics.parity import Parity, root_mean_square

# ------------------------------------------------------------------------------------- checks


@EVERY_SMALL
def test_parity_of_every_set(code):
    """A code's checks, and any scheme's, hold for true messages: one for each dependent one."""
    rng = np.random.default_rng(0)
    everyone = np.arange(code.scheme.messages.count)
    for f in sorted(8 * list(range(1, everyone.size + 1))):
        numbers = rng.permutation(everyone)[:f]
        rows = code.scheme.equations(numbers)[0]
        dependent = f - np.linalg.matrix_rank(rows, tol=1e-9)
        for parity in (code.scheme.parity(numbers), Scheme.parity(code.scheme, numbers)):
            H = dense(parity, f)
            np.testing.assert_allclose(H @ rows, 0, atol=1e-12 * np.abs(H).max(initial=1))
            assert len(H) == dependent
            if len(H):
                lengths = np.linalg.norm(H, axis=1, keepdims=True)
                assert np.linalg.matrix_rank(H / lengths, tol=1e-9) == dependent
        assert (parity.error < 1e-12).all()


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


def test_checks_that_have_lost_all_digits_accuse_nobody():
    with pytest.warns(fastgc.InstabilityWarning):
        code = ReedSolomon(256, stragglers=32, root=1)
    g = np.random.default_rng(0).standard_normal((code.k, 4))
    rnd = code.round(4, verify=True)
    for seed in range(much(4, 1)):
        play(rnd, np.random.default_rng(seed), g)
        assert rnd.corrupt == []


# -------------------------------------------------------------------------------- projections


def projected(projection, message):
    """Return the projections of a message."""
    left, right, paired, _ = projection.numbers
    found = np.empty(SIDE**2, dtype=complex if paired else float)
    reals = np.ascontiguousarray(message).view(message.real.dtype)
    unchecked.project_part(reals, left, right, paired, found)
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64, *HALVES])
@pytest.mark.parametrize("size", [2, 4, 700, ROW, ROW + 2, 3 * ROW + 10])
@pytest.mark.parametrize("layout", ["real", "packed"])
def test_projections_are_linear_and_see_every_element(dtype, size, layout):
    form = Format.of(layout, size, np.float32 if dtype in HALVES else dtype, dtype)
    rng = np.random.default_rng(size)
    projection = Projection(form, layout == "packed", rng)
    project = partial(projected, projection)
    roundoff = float(ml_dtypes.finfo(dtype).eps)
    x, y = rng.standard_normal((2, size)).astype(dtype)
    both = (x.astype(float) + y.astype(float)).astype(dtype)
    norm = float(np.linalg.norm(both.astype(float))) * projection.unit
    assert root_mean_square(project(both) - project(x) - project(y)) < 8 * roundoff * norm
    assert 0.3 < root_mean_square(project(both)) / norm < 3
    if layout == "packed":
        turned = (1j * x.astype(float).view(complex)).view(float).astype(dtype)
        assert root_mean_square(project(turned) - 1j * project(x)) < 1e-6 * norm
    for at in {0, size // 2, size - 1, size // ROW * ROW - 1}:
        one = np.zeros(size, dtype)
        one[at] = 1
        assert SEEN < root_mean_square(project(one)) / projection.unit < 3
        one[(at + 2) % size] -= 1  # opposite changes of two elements
        assert size == 2 or root_mean_square(project(one)) > SEEN * projection.unit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projections_do_not_overflow(dtype):
    size = 3 * ROW + 5
    projection = Projection(Format.of("real", size, dtype), False)
    project = partial(projected, projection)
    largest = [np.sign(project(row)[0]) for row in np.eye(size, dtype=dtype)]
    for message in np.ones(size), np.array(largest):
        assert np.isfinite(project((message * np.finfo(dtype).max).astype(dtype))).all()


# ---------------------------------------------------------------------------- honest messages


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
        play(rnd, rng, (size * rng.standard_normal((code.k, 24))).astype(dtype))
        assert rnd.corrupt == []
        with pytest.raises(UnverifiedError):
            rnd.gradient()


def test_projections_of_tiny_messages_keep_digits():
    code, rng = CyclicRepetition(12, stragglers=4), np.random.default_rng(0)
    rnd = code.round(700, verify=1)
    for worker in range(12):
        rnd.receive(worker, streamed(code, worker, 1e-290 * rng.standard_normal((12, 700)))[0])
    assert len(rnd.suspects) == 12  # each sends something else
    g, found = 1e-290 * rng.standard_normal((12, 700)), []
    for _ in range(3):  # other projections each time: one of 500 says up to 1.2e-9
        rnd.reset()
        for worker in range(12):
            rnd.receive(worker, streamed(code, worker, g)[0])
        found.append(rnd.resolution())
    assert np.median(found) < 1e-9


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
                send(rnd, i, (lie if i < e else 1) * job.messages[i])
        assert rnd.corrupt == list(range(e))
        assert job.error(rnd.gradient()) < 1e-9


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
        least = -5 if dtype is np.float32 else -12
        play(rnd, rng, cancelling(code, rng, dtype, 10.0 ** rng.uniform(least, 0)))
        assert rnd.corrupt == []
        assert rnd.verified
        rnd.gradient()


@pytest.mark.few(20)
@pytest.mark.parametrize("claim", [0.0, 1e6, 1e300, np.inf])
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
        play(rnd, rng, g, bad, lambda message, _: (message + rng.standard_normal(32), claim))
        assert set(rnd.corrupt) <= set(bad)
        if not rnd.verified:
            assert code.stragglers < 2 * e
            with pytest.raises((CorruptMessageError, UnverifiedError)):
                rnd.gradient()
            continue
        assert code.stragglers < 2 * e or sorted(rnd.corrupt) == sorted(bad)
        assert np.abs(rnd.gradient() - g.sum(axis=0)).max() < 1e-10


def test_negative_energies_are_refused():
    rnd = Uncoded(4, load=2).round(3, verify=1)
    with pytest.raises(NonFiniteMessageError, match=r"energy of worker 2's message is -1\.0"):
        rnd.receive(2, np.ones(3), energy=-1.0)
    assert not rnd.survivors.size
    assert not rnd.receive(2, np.ones(3), energy=3.0)


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
            message, energy = streamed(code, number, np.array(job.partials))
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


@pytest.mark.parametrize("zeros", [0.0, 1e-30])
def test_a_liar_is_named_where_most_messages_are_zero(zeros):
    """It claims what others computed, and sends zeros: what it claims is no more than they say."""
    code, g = PartialWork(8, load=4), np.full((8, 50), zeros)
    g[2:4] = np.random.default_rng(0).standard_normal((2, 50))
    rnd = code.round(50, verify=1)
    for number in range(32):
        worker, index = code.scheme.messages.sender(number)
        held = code.partitions(worker, index)[0]
        if held == 3 and worker not in (1, 3):
            continue  # two messages, of which one is the liar's
        message, energy = streamed(code, number, g)
        if worker == 1:
            message, energy = 0 * message, (held != 3) * energy
        if rnd.wants(worker):
            rnd.receive(worker, message, index, energy=energy)
    assert rnd.corrupt == [1]
    np.testing.assert_allclose(rnd.gradient(), g.sum(axis=0), rtol=1e-12)


def test_energies_beyond_float64_accuse_nobody():
    """Gradients so long that their squares overflow: energies are infinite, and honest."""
    code = Uncoded(6, load=3)
    g = 1.9e153 * np.random.default_rng(0).standard_normal((6, 50))
    rnd = code.round(50, verify=1)
    energies = [streamed(code, number, g)[1] for number in range(code.scheme.messages.count)]
    play(rnd, np.random.default_rng(0), g)
    assert 0 < np.isinf(energies).sum() < len(energies)
    assert rnd.corrupt == []
    with pytest.raises(UnverifiedError):
        rnd.gradient()


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
def test_what_is_too_small_or_too_large_to_compare_is_not_verified(code, dtype, sizes, lies):
    """Energies know nothing if squares underflow or overflow."""
    rng = np.random.default_rng(0)
    rnd = code.round(20, dtype, verify=1)
    for size in sizes:
        for _ in range(much(100, 5)):
            g = (size * rng.uniform(-1, 1, (code.k, 20))).astype(dtype)
            bad = rng.permutation(code.n)[: int(lies)].tolist()
            off = (size * rng.uniform(0.5, 1, rnd.message_size)).astype(dtype)
            play(rnd, rng, g, bad, lambda message, energy, off=off: (message + off, energy))
            assert rnd.corrupt in ([], bad)
            if rnd.verified:
                decoded, wide = rnd.gradient().astype(float) / size, g.astype(float) / size
                error = decoded - wide.sum(axis=0)
                assert np.abs(error).max() < (1e-11 if dtype is np.float64 else 1e-3)
            else:
                with pytest.raises((UnverifiedError, CorruptMessageError)):
                    rnd.gradient()
            least = 1e-37 if dtype is np.float32 else 1e-150
            assert rnd.verified or not least < size < 1 / least


def test_energies_of_lost_squares_spoil_no_checks():
    """They say nothing of a message's rounding, so that others are compared without it."""
    code, order = BinaryCode(11, stragglers=4), [8, 4, 6, 0, 3, 7, 9, 1, 10, 5, 2]
    g = np.tile(1e-290 * np.random.default_rng(0).standard_normal(700), (11, 1))
    rnd = code.round(700, verify=2)
    for worker in order:
        message, energy = streamed(code, worker, g)
        assert energy == 0
        told = energy if worker in (4, 6) else math.nan
        rnd.receive(worker, message * (worker != 8), energy=told)
    np.testing.assert_allclose(rnd.gradient() * 1e290, g.sum(axis=0) * 1e290, rtol=1e-10)
    assert rnd.suspects == [8]


@pytest.mark.parametrize("e", [1, 2])
def test_what_an_approximate_code_decodes_is_verified_by_copies(e):
    """Of each block that came, there must be more copies than workers may lie."""
    code = FractionalRepetition(6, stragglers=2, wait=3)
    job, rng, seen = Job(code), np.random.default_rng(0), set()
    with pytest.raises(ValueError, match=r"verify=3 takes messages of .* to spare"):
        code.round(4, verify=3)  # all of three copies may lie
    rnd = code.round(job.p, verify=e)
    for _ in range(40):
        rnd.reset()
        blocks, before = Counter(), False
        for number in rng.permutation(6).tolist():
            receive(rnd, number, job.messages[number])
            blocks[int(code.partitions(number)[0])] += 1
            enough = rnd.decodable and min(blocks.values()) > e
            assert rnd.verified == (enough or before)
            before = rnd.verified
            seen.add((enough, len(blocks)))
    assert {(True, 1), (True, 2)} <= seen


@pytest.mark.parametrize(
    ("verify", "liars"), [(False, 0), (0, 0), (True, 1), (np.True_, 1), (np.int64(3), 3), (16, 16)]
)
def test_liars_of(verify, liars):
    assert liars_of(verify) == liars


def test_liars_of_refuses():
    for wrong, error in ((17, ValueError), (-1, ValueError), (1.0, TypeError), (None, TypeError)):
        with pytest.raises(error, match=f"verify .* not {wrong}"):
            liars_of(wrong)


# --------------------------------------------------------------------------- corrupt messages


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
                    send(rnd, i, (message + size * noise * (i == 3)).astype(dtype))
            assert rnd.corrupt in ([], expected)
            found += rnd.corrupt == expected
        assert found >= 24 * len(expected)


# ------------------------------------------------------------------------------------- rounds


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
        (BinaryCode(8, stragglers=1), 2, "those of one worker"),
        (Uncoded(8), 1, "none"),
        (fastgc.GraphCode(15, degree=5), 8, "those of 4 workers"),
        (ReedSolomon(12, stragglers=3, clusters=2), 4, "those of 3 workers"),
    ],
    ids=repr,
)
def test_fewer_to_spare_than_may_lie(code, liars, spare):
    says = rf"verify={liars} .* has {spare}: use stragglers={liars} or more \({liars + 1} copies"
    with pytest.raises(ValueError, match=says):
        code.round(4, verify=liars)


# -------------------------------------------------------------------------- what nobody would see


def test_checks_of_complex_messages_withstand_fewer_than_decoding_does():
    """One of these messages gives the gradient, by its real part; checks see them whole."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 2)) + 1j * rng.standard_normal((3, 2))
    code = fastgc.LinearCode(rows, packed=False)
    assert code.stragglers == 2
    with pytest.raises(ValueError, match="verify=1"):
        code.round(4, verify=2)


def compared(rng, kind, f, m, parts, liars=1):
    """Return an inspector of random checks of random messages, and these checks in units of errors.

    Also its notes of messages, and what the checks show.
    """
    H = rng.standard_normal((m, f)).astype(kind)
    if kind is complex:
        H += 1j * rng.standard_normal((m, f))
    H[(np.arange(m) % parts)[:, None] != rng.integers(parts, size=f)] = 0
    H[-1:] *= rng.random() < 0.5
    H[-1:] += H[: m - 1 : parts].sum(axis=0)  # depends on the others
    error = 10.0 ** rng.uniform(-3, 0, m) * (rng.random() < 0.5)
    parity = Parity.of(H, error=error)
    inspector = inspecting(parity, kind, f, liars)
    notes, sums = inspector._notes.reshape(4, f), inspector._compared.sums
    for each in (inspector._scaled, sums):
        each[:] = rng.standard_normal(each.shape)
    notes[:] = 10.0 ** rng.uniform(-3, 1, notes.shape)
    inspector._c.size, inspector._top = 0.1, 1.0
    H = H[(H != 0).any(axis=1)]
    return inspector, np.hstack([H * np.sqrt(notes[0]), np.diag(0.1 * parity.error)])


def inspecting(parity, kind, f, liars):
    """Return an inspector that has applied these checks to f messages."""
    inspector = verify.Inspector(Uncoded(int(f)).scheme, Format.of("real", 4, np.float64), liars)
    numbers = inspector.projection.numbers._replace(paired=kind is complex)
    rows = Rows(int(f), 4, np.dtype(float))
    came = Arrivals(rows, np.arange(f), np.arange(f + 1), project=numbers)
    came.norms[:] = came.energies[:] = 1
    came.values[:] = 0
    inspector.attach(came)
    inspector._scheme.parity = lambda survivors, most: parity
    inspector.inspect(np.arange(f), np.arange(f))
    return inspector


def orthonormal(inspector, kind, f):
    """Return the checks that an inspector makes orthonormal, and what they show."""
    inspector.unseen(np.ones(f, kind), [()])
    rank = inspector._rank[0]
    return inspector._basis[:rank], inspector._shown[:rank]


@pytest.mark.parametrize("kind", [float, complex])
def test_orthonormal_checks(kind):
    """They are combinations of the checks, as many as are independent, and show what these show."""
    rng = np.random.default_rng(0)
    for _ in range(much(300, 60)):
        f, m, parts = rng.integers([1, 0, 1], [12, 6, 3])
        inspector, A = compared(rng, kind, f, m, parts)
        inspector._compared.sums[:] = np.eye(len(A), SIDE**2)
        basis, shown = orthonormal(inspector, kind, f)
        T = shown[:, : len(A)]
        assert len(T) == (np.linalg.matrix_rank(A) if A.size else 0)
        np.testing.assert_allclose(T @ A @ (T @ A).conj().T, np.eye(len(T)), atol=1e-9)
        np.testing.assert_allclose(T @ A[:, :f], basis, atol=1e-9)


def test_resolution_counts_errors_of_coefficients():
    """Of these points coefficients lose three digits, which is more than messages lose."""
    code = LagrangeCode(10, 6, load=4, messages=4)
    job, rnd = Job(code), code.round(6, verify=1, limit=1e300)
    for number in (35, 11, 27, 33, 24, 8, 6, 9, 5, 13, 10, 28):
        worker, index = code.scheme.messages.sender(number)
        message, energy = streamed(code, number, np.array(job.partials))
        rnd.receive(worker, message, index, energy=energy)
    given = rnd.survivors, rnd._answer.vector
    errors = code.scheme.precision.vector_errors(*given)
    sizes = np.array([np.sum(job.messages[number] ** 2) for number in rnd.survivors])
    assert rnd._answer.unseen.rounding > 0.3 * math.sqrt(errors @ sizes) / np.linalg.norm(
        job.gradient
    )


@pytest.mark.parametrize("p", [1, 3, 15, 51, 513, 1001, 40_001])
def test_padding_is_no_part_of_a_gradient(p):
    """Of messages of an odd p, the last real is none of the gradient's, however large it is."""
    code, rng = ReedSolomon(7, stragglers=3), np.random.default_rng(p)
    g = rng.standard_normal((7, p + 1))
    g[:, -1] *= 1e9  # in honest messages only rounding errors add up to a padding
    rnd = code.round(p, verify=1)
    for worker in range(7):
        send(rnd, worker, code.encode(worker, g[code.partitions(worker)]))
    gradient = rnd.gradient()
    off = np.linalg.norm(gradient - g.sum(axis=0)[:p]) / np.linalg.norm(gradient)
    assert 0 < off <= rnd.resolution()
    inspector = rnd._inspector
    size = inspector._told[0] * inspector._top / inspector.projection.unit
    assert 0.1 < size / np.linalg.norm(gradient) < 3


def test_no_padding_hides_how_small_a_gradient_is():
    """Where partial gradients cancel, more may be left of the padding than of the gradient."""
    code, rng, worst = ReedSolomon(7, stragglers=3), np.random.default_rng(0), 0.0
    for _ in range(much(2000, 300)):
        g = rng.standard_normal((7, 1)).astype(np.float32)
        g[1::2], g[-1] = -g[:6:2], 1e-7 * g[-1]
        rnd, sent = code.round(1, np.float32, verify=1), [streamed(code, i, g) for i in range(7)]
        for worker, (message, energy) in enumerate(sent):
            rnd.receive(worker, message, energy=energy)
        assert rnd.verified
        messages = np.array([sent[i][0] for i in rnd.survivors], np.longdouble)
        decoded = (rnd._vector() @ messages.view(np.clongdouble)).real.item()
        off = abs(decoded - g.sum(dtype=np.longdouble)) / max(abs(decoded), 1e-15)
        worst = max(worst, off / rnd.resolution())
    assert worst < 0.1


def by_singular_values(notes, basis, shown, vector, at, real):
    """The largest change of the messages `at` that nobody would see, another way."""
    units = np.sqrt(notes[0, at])
    left, values, right = np.linalg.svd(basis[:, at], full_matrices=False)
    rest, reach = vector[at] * units, notes[1, at] / units
    error, square, told = STRETCH * np.abs(rest) @ reach, 0.0, 0.0
    for size, way, its in zip(values, left.T, right, strict=True):
        along = rest @ its.conj() / size
        rest = rest - along * size * its
        square, told = square + abs(along) ** 2, told + along * (way.conj() @ shown)
        seen = float(root_mean_square(told.real if real else told))
        error = min(error, max(math.sqrt(square), seen) / SEEN + STRETCH * np.abs(rest) @ reach)
    return error


@pytest.mark.parametrize("kind", [float, complex])
def test_unseen_changes(kind):
    """Equal, but for which way to fall back on the sizes of messages is the shortest."""
    rng, near = np.random.default_rng(0), []
    for _ in range(much(300, 60)):
        f, m, liars = rng.integers([2, 1, 1], [12, 6, 4])
        inspector, _ = compared(rng, kind, f, m, 1, int(liars))
        basis, shown = orthonormal(inspector, kind, f)
        vector = rng.standard_normal(f).astype(kind)
        unseen = inspector.unseen(vector, [()])
        if not basis.any(axis=0).all():  # a message is in no check
            assert unseen.error == math.inf
            continue
        notes = inspector._notes.reshape(4, f)
        gradient = float(root_mean_square(vector @ inspector._scaled))
        rounded = np.linalg.norm(np.abs(vector) * np.sqrt(notes[0]))
        usually = np.linalg.norm(np.abs(vector) * notes[2])
        assert unseen.rounding == pytest.approx(usually / gradient, rel=1e-12)
        given = notes, basis, shown, vector
        sets = itertools.combinations(range(f), min(inspector.liars, f))
        worst = max(by_singular_values(*given, list(at), False) for at in sets)
        near.append((worst + 10 * rounded) / gradient / unseen.error)
        if inspector.liars == 1 or f == 1:
            assert near[-1] == pytest.approx(1)
    assert 0.25 < min(near) <= np.median(near) < 1.01
    assert max(near) < 2


def test_what_a_small_message_may_have_changed():
    """Its part of a check is as small as its rounding error, and shows how little it changes."""
    inspector = inspecting(Parity.of(np.ones((1, 2))), float, 2, 1)
    inspector._notes[:4] = 1e-44, 1e-24, 1, 1  # rounding errors squared, and reach
    inspector._scaled[:] = 1
    inspector._compared.sums[:] = 0
    inspector.unseen(np.array([1.0, 0.0]), [(0,)])
    error, apart = inspector._told[3:5]
    assert error == pytest.approx(1e-12 / SEEN)
    assert apart == 0


def test_unseen_changes_of_messages_that_checks_hardly_tell_apart():
    """What two liars change is no more than is said, however much rounding leaves of directions."""
    rng, near = np.random.default_rng(0), []
    for _ in range(much(2000, 500)):
        H = np.round(rng.standard_normal((3, 4)) * 2**10) / 2**10
        H[:, 1] = 2 * H[:, 0] + H[:, 1] * 2.0 ** -rng.integers(20, 30)
        inspector = inspecting(Parity.of(H), float, 4, 2)
        inspector._notes[:8] = np.repeat([1e-32, 2.0], 4)  # rounding errors squared, and reach
        inspector._scaled[:] = 1
        change = np.array([2.0, rng.choice([-1, 2])])
        shared = np.round(rng.standard_normal(SIDE**2) * 2**8) / 2**8
        inspector._compared.sums[:] = np.outer(H[:, :2] @ change, shared)  # not rounded
        inspector.unseen(np.eye(4)[0], [(0, 1)])
        near.append(2 * root_mean_square(shared) / inspector._told[3])
    assert 0.2 < np.median(near) < max(near) < 0.5


# ------------------------------------------------------------------- workers that lie and collude


@pytest.fixture
def projections(monkeypatch):
    """The projections of all rounds from now on, as if all workers could see them afterwards."""
    seen = []

    class Seen(Projection):
        def __init__(self, *given):
            super().__init__(*given)
            seen.append(self)

    monkeypatch.setattr(verify, "Projection", Seen)
    return seen


def test_nobody_knows_the_projection(projections):
    """Each round and each master has another one, so knowing its source is of no use.

    That holds for each part of the vector: along a row of `ROW` elements, from row to row, and
    for what is left.
    """
    code, p = ReedSolomon(6, stragglers=2), 3 * ROW + 10
    parts = [range(0, ROW, 2), range(0, 3 * ROW, ROW), range(3 * ROW, p, 2)]
    vectors = []

    def numbers():
        ones = ((np.arange(p + p % 2) == at).astype(float) for part in parts for at in part)
        each = [projected(projections[-1], one)[0] for one in ones]
        found = np.split(each, np.cumsum([*map(len, parts)])[:-1])
        return [part[1:] / part[0] for part in found]

    for _ in range(2):
        rnd = code.round(p, verify=True)
        for _ in range(2):
            rnd.reset()
            send(rnd, 0, np.ones(p + p % 2))
            vectors.append(numbers())
            send(rnd, 1, np.ones(p + p % 2))
            for first, second in zip(numbers(), vectors[-1], strict=True):
                np.testing.assert_array_equal(first, second)  # one for all messages of a round
    for first, second in itertools.combinations(vectors, 2):
        for a, b in zip(first, second, strict=True):
            assert abs(np.corrcoef(a.real, b.real)[0, 1]) < (0.5 if a.size > 99 else 1.1)
            assert not (a == b).any()


@pytest.mark.parametrize("shape", [(1, 7), (40, 1), (40, 40), "low rank", "one row"])
def test_how_rarely_a_change_is_missed(shape):
    """Less than once in 1e6 times, also for changes that fit outer products.

    That cannot be measured, but how fast misses become rare can: twice the size divides them by
    2^8 at least, so half the limit once in 1e6 times is the whole limit once in 1e4 times.
    """
    size = 40 * ROW if isinstance(shape, str) or shape[0] > 1 else ROW - 1
    form = Format.of("real", size, np.float64)
    rng = np.random.default_rng(0)
    projection = Projection(form, False, rng)
    project = partial(projected, projection)
    change = np.zeros(size)
    if shape == "low rank":
        change[:] = np.outer(rng.standard_normal(40), rng.standard_normal(ROW)).ravel()
    elif shape == "one row":
        change[ROW : ROW + 50] = rng.standard_normal(50)
    else:
        for row, column in itertools.product(range(shape[0]), range(shape[1])):
            change[row * ROW + column] = rng.standard_normal()
    change /= np.linalg.norm(change)
    seen = []
    for _ in range(much(3000, 400)):
        projection.renew()
        seen.append(root_mean_square(project(change)) / projection.unit)
    assert min(seen) > 2 * SEEN
    assert 0.7 < np.median(seen) < 1.3


def test_seen_follows_from_the_bound():
    """``exp(s x^2) E phi(s R^2)^8`` is at most 1e-6 for some s, R^2 a sum of eight squares."""
    end, x = math.sqrt(1.5), 8 * SEEN
    r = np.linspace(1e-4, end, 2000)
    density = 2 * math.pi**4 / math.gamma(4) / 2**8 * r**7 / end**8  # of R, below `end`
    squares = np.random.default_rng(0).uniform(0, end, (20_000, 8)) ** 2
    beyond = np.sqrt(squares.sum(axis=1))
    beyond = beyond[beyond > end]

    def phi(size):
        return math.sqrt(math.pi) / 2 / size

    chances = []
    for s in np.geomspace(1, 2000, 200):
        sizes = end * math.sqrt(s) * r
        within = np.array([math.erf(size) for size in sizes]) * phi(sizes)
        outside = np.minimum(1, phi(end * math.sqrt(s) * beyond)) ** 8
        total = np.trapezoid(density * within**8, r) + outside.sum() / 20_000
        chances.append(math.exp(s * x**2) * total)
    assert 0.9e-6 < min(chances) <= 1e-6


def test_stretch_follows_from_the_bound():
    """``E M^13 / x^26`` is at most 1e-6 for the product M of two means of eight squares."""
    mean = math.prod((8 + 2 * i) / 8 for i in range(13))  # E A^13, A a mean of Gaussian squares
    assert mean**2 / STRETCH**26 < 1e-6 < mean**2 / (STRETCH - 0.1) ** 26


def test_a_lie_that_no_check_sees_may_be_of_any_size():
    """Nobody else has told how large the partial gradients are that the liar leaves out."""
    code, rng = fastgc.BinaryCode(7, stragglers=2), np.random.default_rng(0)
    g = 1e-10 * rng.standard_normal((7, 50))
    g[5] = rng.standard_normal(50)
    rnd = code.round(50, verify=1, limit=1e300)
    for worker in (0, 3, 6):  # they hold 0 to 2, 3 and 4, 5 and 6: nothing is compared
        message, energy = streamed(code, worker, g)
        lies = worker == 6
        rnd.receive(worker, message * (not lies), energy=energy * (not lies))
    assert rnd.decodable
    assert rnd.resolution() == math.inf
    with pytest.raises(fastgc.UnverifiedError):
        rnd.gradient()


ATTACKS = ("known", "last", "codeword", "frame", "noise")


def changes_by(kind, job, liars, rng, last):
    """Return changes of the messages of colluding workers: hundredths to thousands of a message.

    They know everything but the projection of this round; `last` is that of the round before.
    """
    code, size = job.code, job.messages[0].size
    scale = np.linalg.norm(job.messages[0]) * 10.0 ** rng.uniform(-2, 3) / np.sqrt(size)
    changes = rng.standard_normal((len(liars), size))
    paired = code.scheme.is_complex
    if kind in ("known", "last"):  # a projection that they know sees nothing of the changes
        form = code.scheme.format(job.p, np.float64)
        projection = last if kind == "last" else Projection(form, paired, np.random.default_rng(0))
        basis = (
            np.array([projected(projection, row)[:2] for row in np.eye(size)])[:: 1 + paired]
            / projection.unit
        )
        numbers = changes.view(complex) if paired else changes
        numbers -= numbers @ basis @ np.linalg.pinv(basis)
    elif kind in ("codeword", "frame") and len(liars) > 1:
        mixed = code.scheme.equations(liars)[0]  # as many checks hold as possible
        if kind == "frame":  # with a change of an honest worker's, checks see least
            victim = rng.choice(np.setdiff1d(np.arange(code.n), liars))
            H = dense(code.scheme.parity(np.arange(code.n)), code.n)
            way = np.linalg.svd(H[:, np.append(liars, victim)])[2][-1].conj()[:-1, None]
            mixed = np.where(np.abs(way) > 1e-3, way, 0)
        g = rng.standard_normal((mixed.shape[1], size))
        changes = mixed @ (g.view(complex) if mixed.dtype.kind == "c" else g)
        changes = np.ascontiguousarray(changes).view(float)
    equal = rng.random() < 0.3 and isinstance(code, FractionalRepetition)
    return scale * (np.broadcast_to(changes[0], changes.shape) if equal else changes)


PROOF = [
    (ReedSolomon(13, stragglers=5), 1),
    (ReedSolomon(13, stragglers=5), 2),
    (ReedSolomon(14, stragglers=8, packed=True), 3),
    (ReedSolomon(15, stragglers=4), 2),  # copies, but for a factor
    (ReedSolomon(15, stragglers=5), 2),  # five columns that differ, of two kinds of partitions
    (CyclicRepetition(10, stragglers=4), 2),
    (LagrangeCode(15, load=3), 2),
    (FractionalRepetition(12, stragglers=2), 1),
    (FractionalRepetition(15, stragglers=4), 2),
]


@pytest.mark.few(3)
@pytest.mark.parametrize(("code", "e"), PROOF, ids=repr)
def test_no_adaptive_attack_is_missed(code, e, projections):
    """The theorem of `fastgc.coding.verify` holds for all numbers of liars that it covers.

    At most e workers lie. They collude, and know the checks, all messages, and the projections of
    all earlier rounds. Longer: VERIFY_ATTACKS=143000 pytest tests/coding/test_verify.py -k adaptive
    """
    rng = np.random.default_rng(e)
    job = Job(code)
    rnd = code.round(job.p, verify=e)
    send(rnd, 0, job.messages[0])
    last = projections[-1]
    named = told = 0
    for number in range(int(os.environ.get("VERIFY_ATTACKS", much(20_000, 120)))):
        liars = rng.permutation(code.n)[: rng.integers(0, e + 1)]
        came = rng.permutation(code.n)[int(rng.integers(0, (code.stragglers or 0) + 1)) :]
        kind = ATTACKS[number % len(ATTACKS)]
        sent = changes_by(kind, job, liars, rng, last) if liars.size else []
        changes = dict(zip(liars.tolist(), sent, strict=True))
        last = copy.deepcopy(projections[-1])
        rnd.reset()
        for i in came.tolist():
            receive(rnd, i, job.messages[i] + changes.get(i, 0.0))
        assert set(rnd.corrupt) <= set(liars.tolist()), (kind, liars, came)
        lied = set(came.tolist()) & {i for i, change in changes.items() if change.any()}
        if not rnd.decodable:
            continue
        try:
            assert job.error(rnd.gradient()) < 1e-7, (kind, liars, came)
            assert rnd.verified
        except UnverifiedError:
            assert not rnd.verified
            continue
        except CorruptMessageError as error:
            told, suspects = told + 1, set(error.suspects)
            assert not rnd.verified
            assert lied
            assert not suspects or lied & suspects
        rule = code.scheme.rule
        if isinstance(rule, Blocks) and rule.need.size == 1:
            spare = came.size - code.threshold
            assert spare < e + len(lied) or set(rnd.corrupt) == lied, (kind, liars, came)
            assert spare < e or lied or rnd.verified
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
    # With copies == 3, e == 1 and t == 2, the theorem holds no more: liars outvote the third copy.
    for t in range(min(e + 1, copies) + (copies == 3 and e == 1)):
        rnd = code.round(6, verify=e)
        for i in range(copies):
            receive(rnd, i, lie if i < t else truth)
        if t > e:
            assert rnd.corrupt == [2]
        elif copies >= e + t + 1:
            assert rnd.corrupt == list(range(t))
            assert rnd.verified
        else:
            assert rnd.corrupt == []
            assert not rnd.verified
            with pytest.raises(CorruptMessageError):
                rnd.gradient()
