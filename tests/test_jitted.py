"""Codes in compiled functions: `fastgc.codes.jit`, and the functions that take its result."""

import pickle
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from code_table import SMALL, SMALL_IDS

import fastgc
from fastgc.codes import Scheme
from fastgc.kernels import Status

numba = pytest.importorskip("numba")
from fastgc.kernels import numba as nb  # noqa: E402

pytestmark = [pytest.mark.any_backend, pytest.mark.xdist_group("numba")]
compiles = pytest.mark.numba

BACKENDS = [name for name in ("c", "numba") if name in fastgc.backends()]
EVERY_BACKEND = pytest.mark.parametrize("by", BACKENDS)
P = 7  # odd, so that packed messages are longer than gradients


@numba.njit(cache=True)
def decode(code, survivors, messages, out):
    return nb.decode(code, survivors, messages, out)


@numba.njit(cache=True)
def encode_all(code, partials, messages):
    for message in range(len(messages)):
        nb.encode(code, message, partials, messages[message])


def jitted(code):
    """Return a code's `JittedCode`; None if it has none, which `jit` must say."""
    if type(getattr(code.scheme, "inner", code.scheme)).jit_rule is not Scheme.jit_rule:
        return fastgc.codes.jit(code)
    with pytest.raises(TypeError, match=r"code.decoding_vectors\(masks\)"):
        fastgc.codes.jit(code)
    return None


def sent(code, partials):
    numbers = map(code.scheme.sender, range(code.scheme.message_count))
    return np.array([code.encode(w, partials[code.partitions(w, t)], index=t) for w, t in numbers])


def gradients(code, dtype, seed=0):
    parts = np.random.default_rng(seed).standard_normal((2, code.k, P))
    return (parts[0] + 1j * parts[1] if np.dtype(dtype).kind == "c" else parts[0]).astype(dtype)


def agrees(code, by, dtype, sets):
    """Require that compiled functions encode, and decode these sets, like the code's verbs."""
    partials = gradients(code, dtype)
    messages, rng = sent(code, partials), np.random.default_rng(1)
    with fastgc.use_backend(by):
        plan = fastgc.codes.jit(code)
    found, near = np.empty_like(messages), 16 * np.finfo(partials.dtype).eps * code.k
    encode_all(plan, partials, found)
    np.testing.assert_allclose(found, messages, rtol=0, atol=near * np.abs(messages).max())
    for came in sets:
        survivors, out = rng.permutation(came).astype(np.int64), np.full(P, 9, dtype)
        status = decode(plan, survivors, messages, out)
        if code.decodable(survivors):
            assert status == 0, (code, came)
            expected = code.decode(survivors, messages[survivors], p=P)
            length = np.abs(code.decoding_vector(survivors)).sum()
            limit = near * length * np.abs(messages).max()
            np.testing.assert_allclose(out, expected, rtol=0, atol=limit)
        else:
            assert status == Status.TOO_FEW, (code, came)
            assert (out == 9).all()


def all_sets(code):
    count = code.scheme.message_count
    return [came for f in range(count + 1) for came in combinations(range(count), f)]


def kind(code):
    """Return what decides whether compiled functions are compiled again for a code."""
    scheme = code.scheme
    return type(getattr(scheme, "inner", scheme)).__name__, type(scheme).__name__, scheme.layout


FIRST = {kind(code): at for at, code in reversed([*enumerate(SMALL)])}


@compiles
@pytest.mark.few(12)  # each case compiles
@EVERY_BACKEND
@pytest.mark.parametrize(
    "at",
    [
        pytest.param(at, id=SMALL_IDS[at], marks=[] if at in FIRST.values() else pytest.mark.long)
        for at in range(len(SMALL))
    ],
)
def test_every_set_of_a_small_code(at, by):
    if jitted(code := SMALL[at]):
        agrees(code, by, np.float64, all_sets(code))


@compiles
@pytest.mark.few(4)
@EVERY_BACKEND
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("of", [fastgc.ReedSolomon, fastgc.BinaryCode])
def test_every_dtype(of, dtype, by):
    code = of(7, stragglers=2)
    agrees(code, by, dtype, all_sets(code))


@compiles
@EVERY_BACKEND
def test_random_sets_of_a_large_code(by):
    code, rng = fastgc.ReedSolomon(80, stragglers=12), np.random.default_rng(0)
    agrees(code, by, np.float64, [rng.permutation(80)[:f] for f in (67, 68, 70, 80)])


@compiles
@EVERY_BACKEND
@pytest.mark.parametrize("of", [fastgc.ReedSolomon, fastgc.BinaryCode, fastgc.FractionalRepetition])
def test_what_is_wrong_is_told(of, by):
    code = of(6, stragglers=1)
    with fastgc.use_backend(by):
        plan = fastgc.codes.jit(code)
    messages, out = sent(code, gradients(code, float)), np.full(P, 9.0)
    for survivors, status in (
        ([0, 1, 2, 3, 9], Status.OUT_OF_RANGE),
        ([0, 1, -1, 3, 4], Status.OUT_OF_RANGE),
        ([0, 1, 2, 3, 0], Status.DUPLICATE),
        ([0, 3], Status.TOO_FEW),
        ([], Status.TOO_FEW),
    ):
        assert decode(plan, np.array(survivors, np.int64), messages, out) == status, survivors
        assert (out == 9).all()
    came = np.array([5, 1, 2, 4, 3])
    messages[0] = np.nan  # not a survivor, so it is not read
    assert decode(plan, came, messages, out) == 0
    messages[5] = np.inf
    used = code.decoding_vector(came)[0] != 0
    assert decode(plan, came, messages, out) == (Status.NOT_FINITE if used else 0)
    assert decode(plan, came.astype(np.int32)[::-1][:4], messages, out) in (0, Status.TOO_FEW)


@compiles
@EVERY_BACKEND
def test_lengths_are_checked(by):
    code = fastgc.ReedSolomon(6, stragglers=1)
    with fastgc.use_backend(by):
        plan = fastgc.codes.jit(code)
    came, partials = np.arange(5), gradients(code, float)
    messages, out = sent(code, partials), np.empty(P)
    for wrong in (messages[:5], messages[:, :-2].copy(), np.repeat(messages, 2, axis=1)[:, ::2]):
        with pytest.raises(ValueError, match=r"messages must have|as long as|contiguous"):
            decode(plan, came, wrong, out)
    with pytest.raises(ValueError, match="out must be contiguous"):
        decode(plan, came, messages, np.empty(2 * P)[::2])
    with pytest.raises(ValueError, match="as long as"):
        decode(plan, came, messages, np.empty(P + 2))
    with pytest.raises(ValueError, match="there is no such message"):
        encode_all(plan, partials, np.empty((7, P + 1)))
    with pytest.raises(ValueError, match="a row for each partition"):
        encode_all(plan, partials[:5], np.empty((6, P + 1)))
    with pytest.raises(ValueError, match="as long as"):
        encode_all(plan, partials, np.empty((6, P - 1)))
    if by == "c":
        shared = np.empty((7, P + 1))
        with pytest.raises(ValueError, match="share no memory"):
            encode_all(plan, shared[1:, :P], shared[:6])
        with pytest.raises(ValueError, match="share no memory"):
            decode(plan, came, shared[:6], shared.ravel()[3 : P + 3])
        with pytest.raises(ValueError, match="share no memory"):
            decode(plan, came, np.lib.stride_tricks.as_strided(shared, (6, P + 1), (0, 8)), out)


@compiles
@EVERY_BACKEND
def test_a_long_vector_is_told(by):
    """`Code.decode` takes a near-exact vector here; compiled code reports IMPRECISE instead."""
    code = fastgc.ReedSolomon(40, stragglers=18, root=1)
    with fastgc.use_backend(by):
        plan = fastgc.codes.jit(code)
    messages, out = sent(code, gradients(code, float)), np.full(P, 9.0)
    assert decode(plan, np.arange(22), messages, out) == Status.IMPRECISE
    assert np.isfinite(out).all()
    assert (out != 9).all()


@compiles
def test_types_that_do_not_fit_are_told():
    plan, out = fastgc.codes.jit(fastgc.BinaryCode(6, stragglers=1)), np.empty(P)
    for messages in (np.ones((6, P), np.float32), np.ones((6, P), int), np.ones((6, P), complex)):
        with pytest.raises(numba.core.errors.TypingError, match=r"of one (precision|dtype)"):
            nb.decode(plan, np.arange(6), messages, out)


@compiles
@EVERY_BACKEND
def test_a_copy_by_pickle_knows_its_own_addresses(by):
    code = fastgc.ReedSolomon(6, 8, stragglers=1, clusters="auto").placed(list("aaabbb"))
    with fastgc.use_backend(by):
        plan = fastgc.codes.jit(code)
        copy = pickle.loads(pickle.dumps(plan))
    assert type(copy) is type(plan)
    messages, out = sent(code, gradients(code, float)), np.empty(P)
    assert decode(copy, np.arange(5), messages, out) == 0
    del plan  # the copy must have its own tables
    expected = code.decode(np.arange(5), messages[:5], p=P)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-12)
    start = copy.rule.inner.tables.start
    assert copy.c is None or start.ctypes.data in copy.c


@compiles
@pytest.mark.skipif("c" not in BACKENDS, reason="no addresses without C")
@pytest.mark.parametrize("of", [fastgc.ReedSolomon, fastgc.BinaryCode])
def test_what_was_compiled_for_another_release_says_so(of):
    """Numba does not see that fastgc has changed, and calls C at addresses."""
    code = of(6, stragglers=1)
    with fastgc.use_backend("c"):
        plan = fastgc.codes.jit(code)
    other = plan._replace(c=plan.c + np.eye(1, plan.c.size, plan.c.size - 1, np.int64)[0])
    partials, out = gradients(code, float), np.full(P, 9.0)
    messages = sent(code, partials)
    before = messages.copy()
    with pytest.raises(RuntimeError, match="another version of fastgc"):
        encode_all(other, partials, messages)
    with pytest.raises(RuntimeError, match="another version of fastgc"):
        decode(other, np.arange(5), messages, out)
    assert (messages == before).all()
    assert (out == 9).all()


def test_numba_is_loaded_when_asked_for():
    code = "fastgc.BinaryCode(4, stragglers=1)"
    source = f"import sys, fastgc; fastgc.codes.jit({code}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "fastgc" in done.stdout.split()
    assert "numba" not in done.stdout.split()


USERS = """
import sys
import numba
import numpy as np
import fastgc
from fastgc.kernels import numba as nb


@numba.njit(cache=True)
def train(code, targets, f, rounds, lr):
    n, p = targets.shape
    theta, gradient, messages = np.zeros(p), np.empty(p), np.empty((n, p))
    for _ in range(rounds):
        partials = theta - targets
        survivors = np.random.permutation(n)[:f]
        for i in survivors:
            nb.encode(code, i, partials, messages[i])
        if nb.decode(code, survivors, messages, gradient) != 0:
            return None
        theta -= lr * gradient
    return theta


targets = np.random.default_rng(0).standard_normal((12, 8))
theta = train(fastgc.codes.jit(fastgc.ReedSolomon(12, stragglers=3)), targets, 9, 40, 0.5 / 12)
np.testing.assert_allclose(theta, targets.mean(axis=0), atol=1e-10)
print(sum(train.stats.cache_hits.values()), sum(train.stats.cache_misses.values()))
"""


@compiles
def test_a_loop_is_kept_on_disk(tmp_path):
    """A second process compiles nothing, though C's functions have other addresses."""
    (tmp_path / "users.py").write_text(USERS)
    for kept in ("0 1", "1 0"):
        command = [sys.executable, "-P", "-W", "error", str(tmp_path / "users.py")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == kept
