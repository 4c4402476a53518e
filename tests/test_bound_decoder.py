"""Verbs and bound decoders that do a whole call at once, in C, agree with the way step by step."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastgc
from fastgc import NonFiniteMessageError, NotDecodableError
from fastgc.kernels import Status

CODES = [
    fastgc.ReedSolomon(7, stragglers=2),
    fastgc.ReedSolomon(7, stragglers=2, packed=False),
    fastgc.ReedSolomon(8, stragglers=2, clusters="auto"),
    fastgc.ReedSolomon(80, stragglers=12),
    fastgc.ReedSolomon(40, stragglers=18, root=1),
    fastgc.ReedSolomon(700, stragglers=300),
]
PLAIN_SUMS = [
    fastgc.BinaryCode(8, stragglers=2),
    fastgc.FractionalRepetition(9, stragglers=2),
    fastgc.Uncoded(5),
    fastgc.GraphCode(8, 9, degree=3),
]
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
EVERY_CODE = pytest.mark.parametrize("code", CODES, ids=repr)


def bound(code, dtype=np.float64, p=5, **options):
    """Return a decoder and its messages."""
    rng = np.random.default_rng(0)
    partials = rng.standard_normal((code.k, p)).astype(dtype)
    if partials.dtype.kind == "c":
        partials = partials * (1 + 2j)
    messages = np.array([code.encode(i, partials[code.partitions(i)]) for i in range(code.n)])
    return code.bind(messages, np.empty(p, partials.dtype), **options), messages


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
@EVERY_CODE
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_the_same_to_the_last_bit(code, dtype):
    """For few survivors and all, with neighbours gone, and where transforms compute vectors."""
    if not code.scheme.packed and np.dtype(dtype).kind == "c":
        pytest.skip("there are no such gradients")
    quick, messages = bound(code, dtype)
    rng, f = np.random.default_rng(1), code.threshold
    sets = [rng.permutation(code.n)[:count] for count in (f, f, f + 1, code.n)]
    for survivors in [*sets, np.arange(f), np.arange(code.n)[-f:]]:
        found = quick(survivors)
        assert found is quick.gradient
        np.testing.assert_array_equal(found, code.decode(survivors, messages[survivors], p=5))


def test_one_call_of_c_decodes():
    """Survivors in, vector and gradient out; what it leaves, or refuses, is done in steps."""
    for code in (
        CODES[0],
        fastgc.BinaryCode(9, stragglers=2),
        fastgc.FractionalRepetition(6, stragglers=2),
    ):
        quick, _ = bound(code)
        came = np.arange(code.threshold)
        truth, calls = quick(came).copy(), []
        decode = quick._decode
        quick._decode = lambda f, decode=decode, calls=calls: calls.append(decode(f)) or calls[-1]
        quick.gradient[:] = np.nan
        np.testing.assert_array_equal(quick(came), truth)
        with pytest.raises(NotDecodableError):
            quick(came[:1])
        assert calls == [Status.OK, Status.TOO_FEW]


def test_whatever_stands_for_survivors():
    quick, messages = bound(CODES[0])
    numbers = np.array([6, 0, 3, 2, 5])
    mask = np.zeros(7, bool)
    mask[numbers] = True
    wide = np.repeat(numbers, 2)
    unaligned = np.zeros(8 * numbers.size + 1, np.uint8)[1:].view(np.int64)
    unaligned[:] = numbers
    others = [wide[::2], numbers.astype(np.int32), numbers.astype(np.uint64), numbers[::-1]]
    others += [numbers.tolist(), tuple(numbers.tolist()), mask, numbers.astype(">i8"), numbers]
    others.append(unaligned)
    for survivors in others:
        quick.gradient[:] = np.nan
        truth = CODES[0].decode(survivors, messages[np.arange(7)[np.asarray(survivors)]], p=5)
        np.testing.assert_array_equal(quick(survivors), truth)
    right = CODES[0].decoding_vector(numbers)
    np.testing.assert_array_equal(CODES[0].decoding_vector(unaligned), right)


def test_what_is_wrong_is_said_as_step_by_step():
    quick, messages = bound(CODES[0])
    for wrong, error, says in (
        (np.array([0, 1, 2, 3]), NotDecodableError, "1 more"),
        (np.array([0, 1, 2, 3, 7]), ValueError, "7"),
        (np.array([0, 1, 2, 3, -1]), ValueError, "-1"),
        (np.array([0, 1, 2, 3, 3]), ValueError, "second time"),
        (np.arange(8), ValueError, "7"),
        (np.empty(0, np.int64), NotDecodableError, "5 more"),
        (np.zeros((5, 1), np.int64), ValueError, "shape|one"),
        (np.array(3), ValueError, "shape|one"),
    ):
        with pytest.raises(error, match=says):
            quick(wrong)
    messages[2, 1] = np.inf
    with pytest.raises(NonFiniteMessageError, match="worker 2"):
        quick(np.arange(5))
    assert np.isfinite(quick(np.array([0, 1, 3, 4, 5]))).all()


def test_a_scheme_that_fills_vectors_itself_is_asked():
    """A subclass that overrides a hook must not inherit its base's faster paths."""

    class Doubled(type(CODES[0].scheme)):
        def bind_vector(self, survivors, vector, unit=2.0**-53):
            fill = super().bind_vector(survivors, vector, unit)

            def twice(f, method):
                fill(f, method)
                vector[:f] *= 2

            return twice

    code, scheme = CODES[0], CODES[0].scheme
    doubled = fastgc.Code(Doubled(scheme._clusters, packed=True))
    messages, survivors = np.random.default_rng(0).standard_normal((7, 4)), np.arange(5)
    vector, gradient = np.empty(5, complex), np.empty(4)
    expected = 2 * code.decode(survivors, messages[:5])
    for _ in range(2):
        doubled.decode(survivors, messages[:5], gradient)
        doubled.decoding_vector(survivors, out=vector)
        np.testing.assert_allclose(gradient, expected, rtol=1e-12)
        np.testing.assert_allclose(vector, 2 * code.decoding_vector(survivors), rtol=1e-12)
    np.testing.assert_allclose(doubled.bind(messages)(survivors), expected, rtol=1e-12)


# ---------------------------------------------------------------------------------------- verbs


def result(call):
    """Return what a call returns, or the type and the text of its error."""
    try:
        return call()
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        return type(error), str(error)


def fresh(code):
    return pickle.loads(pickle.dumps(code))


def numbers(rng, shape, dtype):
    found = rng.standard_normal(shape)
    return (found + 1j * found[::-1] if np.dtype(dtype).kind == "c" else found).astype(dtype)


class Steps(list):
    """A list that C does not read."""


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("code", [*CODES[:4], *PLAIN_SUMS], ids=repr)
def test_verbs_take_every_layout(code, dtype):
    """With every dtype, length, number and order of survivors, and layout of rows."""
    if not code.scheme.packed and np.dtype(dtype).kind == "c":
        pytest.skip("there are no such gradients")
    code, rng = fresh(code), np.random.default_rng(0)
    plain = fresh(code)
    for p in (1, 2, 5, 130):
        form = code.scheme.format(p, dtype)
        size, kind = form.message_size, form.message_dtype
        room = numbers(rng, (2 * code.n, size + 3), kind)
        for f in sorted({code.threshold, min(code.threshold + 1, code.n), code.n}):
            came = rng.permutation(code.n)[:f]
            steady = code.decoding_vector(came.tolist())
            same = code.decoding_vector(came)
            np.testing.assert_array_equal(same, steady)
            out = np.empty_like(steady)
            assert code.decoding_vector(came, out=out) is out
            np.testing.assert_array_equal(out, steady)
            strided = room[1::2, 1:-2][:f][::-1]
            apart = [row.copy() for row in strided]
            for rows in (room[:f, :size].copy(), room[:f, 3:], strided, apart, tuple(apart)):
                truth = plain.decode(came, Steps(rows))
                made = code.decode(came, rows)
                assert made.dtype == truth.dtype
                np.testing.assert_array_equal(made, truth)
                np.testing.assert_array_equal(code.decode(came, rows, p=p), truth[:p])
                for check in (True, False):
                    out = np.empty(p, form.gradient_dtype)
                    assert code.decode(came, rows, out, check_finite=check) is out
                    np.testing.assert_array_equal(out, truth[:p])
        for worker in range(min(code.n, 5)):
            load = code.partitions(worker).size
            partials = numbers(rng, (2 * load, p + 1), form.partial_dtype)
            out = np.empty(size, kind)
            strided = partials[::-2, :-1]
            apart = [row.copy() for row in strided]
            for rows in (partials[:load, 1:].copy(), strided, apart, tuple(apart)):
                assert code.encode(worker, rows, out) is out
                steady = plain.encode(worker, Steps(rows))
                for found in (out, code.encode(worker, rows)):
                    assert found.dtype == steady.dtype
                    np.testing.assert_array_equal(found, steady)


def unaligned(array):
    found = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def fixed(array):
    array.flags.writeable = False
    return array


class Sub(np.ndarray):
    pass


def test_lists_of_anything_are_taken_or_refused_as_step_by_step():
    code, came = fresh(CODES[0]), np.array([6, 0, 3, 2, 5])
    plain = fresh(CODES[0])
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5, 4))
    wrong = [None, 1.0, "row", rows, rows[1].tolist(), rows[1, 0], rows[1, :3].copy(), rows[:, 1]]
    wrong += [np.array(rows[1], dtype) for dtype in (np.float32, complex, int, object, ">f8")]
    wrong += [rows[1].reshape(2, 2), rows[1].view(Sub), unaligned(rows[1]), rng.random(8)[::2]]
    wrong += [np.broadcast_to(rows[1, 0], 4), fixed(rows[1].copy()), rows[1:2], rows[1, :0]]
    lists = [[*rows[:at], other, *rows[at + 1 :]] for other in wrong for at in (0, 2, 4)]
    lists += [[], [*rows[:4]], [*rows, rows[0]], list(rows.T), [rows[1]] * 5, [[0.0] * 4] * 5]
    lists += [[None] * 5, [[]] * 5, [np.array(1.0)] * 5, [rows] * 5, [rows[1].view(Sub)] * 5]
    for given in lists:
        for made in (False, True):
            outs = [None if made else np.empty(4) for _ in range(4)]
            for true, found in (
                (
                    result(lambda: plain.decode(came, Steps(given), outs[0])),  # noqa: B023
                    result(lambda: code.decode(came, given, outs[1])),  # noqa: B023
                ),
                (
                    result(lambda: plain.encode(0, Steps(given[:3]), outs[2])),  # noqa: B023
                    result(lambda: code.encode(0, given[:3], outs[3])),  # noqa: B023
                ),
            ):
                if isinstance(true, tuple):
                    assert found == true, given
                else:
                    np.testing.assert_array_equal(found, true)


def test_survivors_of_any_kind_are_taken_or_refused_as_a_list_of_them():
    code = fresh(CODES[0])
    plain = fresh(CODES[0])
    rng = np.random.default_rng(0)
    right, mask = np.array([6, 0, 3, 2, 5]), np.zeros(7, bool)
    mask[right] = True
    taken = [right, right[::-1].copy(), fixed(right.copy()), np.arange(7), np.arange(1, 7)]
    others = [np.repeat(right, 2)[::2], right[::-1], right.astype(">i8"), right.astype(np.int32)]
    others += [right.astype(np.uint64), right.view(Sub), unaligned(right), mask, ~mask]
    others += [right.astype(float), right[:, None], right[:4], right[:0], np.array(3)]
    others += [
        np.array(x) for x in ([0, 1, 2, 3, 3], [0, 1, 2, 3, 7], [-1, 0, 1, 2, 3], [2**62] * 5)
    ]
    others.append(np.arange(5000) % 7)
    for survivors in [*taken, *others]:
        f = int(survivors.sum()) if survivors.dtype == bool else survivors.size
        rows, out, vector = rng.standard_normal((f, 6)), np.full(6, 7.0), np.full(f, 7.0 + 1j)
        given = survivors.tolist() if survivors.dtype.kind != "f" else survivors
        truth = result(lambda: plain.decode(given, Steps(rows)))  # noqa: B023
        found = result(lambda: code.decode(survivors, rows, out))  # noqa: B023
        own = result(lambda: code.decoding_vector(given))  # noqa: B023
        filled = result(lambda: code.decoding_vector(survivors, out=vector))  # noqa: B023
        again = result(lambda: code.decoding_vector(survivors))  # noqa: B023
        if isinstance(truth, tuple):
            assert found == truth, survivors
            assert filled == again == own
            assert (out == 7).all()
            assert (vector == 7 + 1j).all()
        else:
            np.testing.assert_array_equal(found, truth)
            np.testing.assert_array_equal(filled, own)
            np.testing.assert_array_equal(again, own)
            assert found is out
            assert filled is vector


def test_what_vectors_cannot_be_written_to_is_refused():
    code, came = fresh(CODES[0]), np.arange(5)
    right = np.full(5, 7 + 1j)
    good = code.decoding_vector(came)
    for out, says in (
        (fixed(right.copy()), "read-only"),
        (np.repeat(right, 2)[::2], "contiguous"),
        (right[::-1], "contiguous"),
        (unaligned(right), "aligned"),
        (right.astype(np.complex64), "dtype"),
        (np.full(5, 7.0), "dtype"),
        (right[:4].copy(), "shape"),
        (np.full(6, 7 + 1j), "shape"),
        (right[None].copy(), "shape"),
    ):
        with pytest.raises((TypeError, ValueError), match=says):
            code.decoding_vector(came, out=out)
        assert (out.real == 7).all()
    with pytest.raises(TypeError, match="memory"):
        code.decoding_vector(came, out=[0] * 5)
    own = right.copy().view(Sub)
    assert code.decoding_vector(came, out=own) is own
    np.testing.assert_array_equal(own, good)
    # The vector overwrites its survivors.
    room = np.empty(5, complex)
    mine = room.view(np.int64)[5:]
    mine[:] = came
    np.testing.assert_array_equal(code.decoding_vector(mine, out=room), good)
    single = code.decoding_vector(came, message_dtype=np.float32, out=room)
    np.testing.assert_array_equal(single, good)
    assert code.decoding_vector(came, "locator", out=room) is room


def test_gradients_lie_where_messages_do():
    """If `out` overlaps a message, it is written last, and holds the same gradient."""
    code, rng = fresh(CODES[0]), np.random.default_rng(0)
    plain = fresh(CODES[0])
    came = np.array([6, 0, 3, 2, 5])
    for at in range(5):
        room = rng.standard_normal((5, 12))
        rows = room[:, :6]
        truth = plain.decode(came, Steps(rows.copy()))
        apart = room[at, 6:]
        np.testing.assert_array_equal(code.decode(came, rows, apart), truth)
        for begin in (0, 1, 5):
            own = room.copy()
            out = own[at, begin : begin + 6]
            np.testing.assert_array_equal(code.decode(came, own[:, :6], out), truth)
        with pytest.raises(ValueError, match="shares memory"):
            code.encode(0, room[:3, :6], room[2, 5:11])


def test_messages_that_are_not_finite_are_found():
    code, came = fresh(CODES[0]), np.array([6, 0, 3, 2, 5])
    rows, out = np.ones((5, 4)), np.empty(4)
    for bad in (np.nan, np.inf):
        rows[2, 1] = bad
        with pytest.raises(NonFiniteMessageError, match="worker 3"):
            code.decode(came, rows, out)
        assert not np.isfinite(code.decode(came, rows, out, check_finite=False)).all()
    for count in (4, 6):
        with pytest.raises(ValueError, match=f"5 survivors, but {count} messages"):
            code.decode(came, np.ones((count, 4)), out)
    for size in (3, 5, 6):
        with pytest.raises(ValueError, match="must have"):
            code.decode(came, np.ones((5, size)), np.empty(size - size % 2 + 2))
    for given in (np.ones((5, 4))[:, :0], np.ones((5, 4, 1)), np.ones(5)):
        with pytest.raises((ValueError, TypeError)):
            code.decode(came, given, np.empty(given[0].size))


def test_what_else_is_asked_for_is_done_step_by_step():
    code, came = fresh(CODES[0]), np.array([6, 0, 3, 2, 5])
    plain = fresh(CODES[0])
    rows, out = np.random.default_rng(0).standard_normal((5, 4)), np.empty(4)
    truth = plain.decode(came, Steps(rows))
    for options in ({"method": "locator"}, {"p": 4}, {"partial": "best"}):
        found = code.decode(came, rows, out, **options)
        np.testing.assert_allclose(out, truth, rtol=1e-12)
        assert (found is out) == ("partial" not in options)
    with pytest.raises(ValueError, match="unknown method"):
        code.decode(came, rows, out, method="none")
    partials, message = np.ones((3, 4)), np.empty(4, np.float32)
    code.encode(0, partials, message, message_dtype=np.float32)


@pytest.mark.parametrize("code", [CODES[0], PLAIN_SUMS[0]], ids=repr)
def test_lengths_of_gradients_are_taken_or_refused_as_step_by_step(code):
    code, plain = fresh(code), fresh(code)
    came = np.arange(code.threshold)
    rows = np.random.default_rng(0).standard_normal((came.size, 4))
    taken = []
    for p in (-1, 0, 1, 2, 3, 4, 5, 10**13, 4.0, "4", np.int64(4), True):
        steady = result(lambda p=p: plain.decode(came, Steps(rows), p=p).tolist())
        for messages in rows, list(rows):
            found = result(lambda p=p, m=messages: code.decode(came, m, p=p).tolist())
            assert found == steady
        taken += [p] * isinstance(steady, list)
    assert taken == ([3, 4, 4] if code.message_size(3) == 4 else [4, 4])


def test_rows_are_lines_that_are_contiguous():
    code, rng = fresh(CODES[0]), np.random.default_rng(0)
    plain = fresh(CODES[0])
    came = np.array([6, 0, 3, 2, 5])
    one = rng.standard_normal((5, 4))
    for rows in (
        np.asfortranarray(one),
        one[:, ::-1],
        rng.standard_normal((5, 8))[:, ::2],
        np.lib.stride_tricks.as_strided(one, (5, 4), (32, 0)),
        np.lib.stride_tricks.as_strided(np.ones(25).view("u1")[8:16].view(float), (5, 2), (32, -1)),
        one[:, :2],
    ):
        out = np.empty(rows.shape[1])
        truth = plain.decode(came, Steps(rows))
        np.testing.assert_array_equal(code.decode(came, rows, out), truth)


class Idle(fastgc.Code):
    """A code with coefficients that are zero, whose partial gradients must be read all the same."""

    def __init__(self):
        self.n = self.k = 2

    def row(self, worker):
        return np.arange(2), np.array([1.0, 0.0] if worker else [0.0, 1.0])


def test_partial_gradients_are_what_a_worker_has():
    out, code = np.empty(2), Idle()
    assert np.isnan(code.encode(1, np.array([[1.0, 2.0], [np.nan, np.inf]]), out)).all()
    code = fresh(CODES[0])
    right = np.ones((3, 4))
    for rows in (right[:2], np.ones((4, 4)), np.ones((3, 4, 1)), right[0]):
        with pytest.raises(ValueError, match=r"3 partial gradients|vector|size"):
            code.encode(0, rows, np.empty(4))
    for worker, index in ((7, 0), (-1, 0), (0, 1), (0, -1)):
        with pytest.raises(ValueError, match="does not exist"):
            code.encode(worker, right, np.empty(4), index=index)
    for worker, index in ((1.0, 0), (0, 0.0), ("0", 0), ([], 0)):
        with pytest.raises(TypeError, match="integer"):
            code.encode(worker, right, np.empty(4), index=index)
    for size in (3, 5, 0):
        with pytest.raises(ValueError, match="must have shape"):
            code.encode(0, right, np.empty(size))
    out = np.empty(4)
    assert code.encode(np.int64(0), right, out) is code.encode(True, right, out) is out


def test_threads_and_copies():
    rng = np.random.default_rng(0)
    for n, s in ((12, 4), (300, 20)):  # work space on the stack, and too large for it
        code = fastgc.ReedSolomon(n, stragglers=s)
        plain = fresh(code)
        jobs = []
        for _ in range(4):
            came = rng.permutation(n)[: int(rng.integers(n - s, n + 1))]
            rows = rng.standard_normal((came.size, 6))
            jobs.append(
                (came, rows, plain.decode(came, Steps(rows)), code.decoding_vector(came.tolist()))
            )

        def work(job, code=code):
            came, rows, gradient, vector = job
            out, own = np.empty_like(gradient), np.empty_like(vector)
            for _ in range(100):
                np.testing.assert_array_equal(code.decode(came, rows, out), gradient)
                np.testing.assert_array_equal(code.decoding_vector(came, out=own), vector)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, jobs))
        for other in (copy.copy(code), copy.deepcopy(code), fresh(code)):
            work(jobs[0], other)
            assert other == code
