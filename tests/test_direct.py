"""Fast paths straight to a kernel return and refuse the same as calls with full checks."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from code_table import EVERY_SMALL
from kernel_table import HALVES

import fastgc
from fastgc import ReedSolomon, kernels
from fastgc.kernels import EXPAND, PACKED, REAL, REAL_PART, Status

MODES = {"real": REAL, "packed": PACKED, "real part": REAL_PART, "expand": EXPAND}
REALS = [np.dtype(kind) for kind in (np.float32, np.float64, *HALVES)]


def layout(mode, dtype):
    """Return the dtypes of rows (as elements are counted) and output, or None if not supported."""
    if dtype.itemsize == 2:
        return (dtype, np.dtype(np.float32)) if mode in (REAL, PACKED) else None
    pair = np.result_type(dtype, np.complex64)
    return {REAL_PART: (pair, dtype), EXPAND: (dtype, pair)}.get(mode, (dtype, dtype))


def some(rng, shape, dtype):
    numbers = 8 * rng.standard_normal(shape)
    return (numbers + 8j * rng.standard_normal(shape) if dtype.kind == "c" else numbers).astype(
        dtype
    )


def three_ways(run, rows, out, count):
    """Yield each way of giving rows: its name, and a function that calls it."""
    listed = kernels.Rows.of(list(rows), rows.shape[1], rows.dtype)
    return {
        "stacked": lambda: run.stacked(rows, out, count),
        "separate": lambda: run.separate(list(rows[:count]), out, count),
        "listed": lambda: run.listed(listed, out, count),
    }


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_combinations_are_those_of_combine(mode, dtype):
    mode, rng = MODES[mode], np.random.default_rng(0)
    if (kinds := layout(mode, dtype)) is None:
        pytest.skip("no such kernel")
    for count, length in [(1, 1), (2, 2), (3, 5), (7, 8), (97, 3), (120, 9)]:
        rows = some(rng, (count + 1, length), kinds[0])
        coef = np.rint(some(rng, count + 1, np.dtype(float if mode == REAL else complex)))
        size = length + length % 2 if mode == PACKED else length
        coef[:] += 100  # no coefficient is 0 yet
        for zeros in (0, count // 2):
            coef[:zeros] = 0
            if kinds[0].kind != "i":
                rows[:zeros] = np.nan  # coefficients of 0: these rows are not read
            rows[count] = rows[0]
            truth = np.empty(size, kinds[1])
            used = kernels.Rows.of(rows[zeros:count], length, kinds[0])
            kernels.combine(mode, used, coef[zeros:count], truth)
            out = np.empty_like(truth)
            run = kernels.unchecked.bind_apart(mode, coef, length, kinds[0], size, check=True)
            for call in three_ways(run, rows, out, count).values():
                out[:] = 3
                assert call() == Status.OK
                np.testing.assert_array_equal(out.view(np.uint8), truth.view(np.uint8))


@pytest.mark.every_backend
@pytest.mark.parametrize("dtype", REALS[:-1], ids=str)
def test_combinations_that_are_not_finite(dtype):
    rows, out = np.ones((3, 4), dtype), np.empty(4, layout(REAL, dtype)[1])
    coef = np.array([1.0, 2.0, 0.0])
    for bad in (np.nan, np.inf, -np.inf):
        for where, status in ((0, Status.NOT_FINITE), (1, Status.NOT_FINITE), (2, Status.OK)):
            spoilt = rows.copy()
            spoilt[where, 3] = bad
            for check in (True, False):
                run = kernels.unchecked.bind_apart(REAL, coef, 4, dtype, 4, check)
                for call in three_ways(run, spoilt, out, 3).values():
                    assert call() == (status if check else Status.OK)


@pytest.mark.few(2)
@pytest.mark.every_backend
@pytest.mark.parametrize("mode", MODES)
def test_no_byte_of_a_row_is_written(mode):
    """Outputs lie at every place around two rows, read or not, and rows may be misaligned."""
    mode = MODES[mode]
    row, made = layout(mode, np.dtype(np.float32))
    length, size = 2, 2
    coef = np.array([1, 0], float if mode == REAL else complex)
    run = kernels.unchecked.bind_apart(mode, coef, length, row, size)
    room = np.zeros(200, np.uint8)
    start = -room.ctypes.data % 8 + 64
    two = [room[start + at : start + at + length * row.itemsize].view(row) for at in (0, 32)]
    listed = kernels.Rows.of(two, length, row)
    stacked = room[start : start + 2 * length * row.itemsize].view(row)
    for at in range(start - 48, start + 72, 4):
        out = room[at : at + size * made.itemsize].view(made)
        for way, arrays in (
            (partial(run.separate, two, out, 2), two),
            (partial(run.listed, listed, out, 2), two),
            (partial(run.stacked, stacked, out, 2), [stacked]),
        ):
            room[:] = 0
            shared = any(np.shares_memory(out, array) for array in arrays)
            out[:] = 3
            before = room.copy()
            assert way() == (Status.MISPLACED if shared else Status.OK)
            assert (room == before).all() if shared else not out.any()
    out = np.full(size, 3, made)
    for off in (1, 2, 3):
        begin = start + off
        rows = [room[begin + at : begin + at + length * row.itemsize].view(row) for at in (0, 32)]
        assert run.separate(rows, out, 2) == Status.MISPLACED
        assert (out == 3).all()
    gaps = [np.zeros(2 * length, row)[::2], two[1]]
    assert run.separate(gaps, out, 2) == Status.MISPLACED
    assert (out == 3).all()


def results_of(call):
    """Return what a call returns, or the type and text of its error."""
    try:
        return call()
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        return type(error), str(error)


def same(found, truth):
    if isinstance(truth, tuple):
        assert found == truth
        return
    assert found.dtype == truth.dtype
    assert found.shape == truth.shape
    np.testing.assert_array_equal(found.view(np.uint8), truth.view(np.uint8))


@EVERY_SMALL
@pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")
def test_verbs_are_those_that_look_closely(code):
    """Tuples only take the path with full checks; results and errors must be the same."""
    for dtype in (np.float32, np.float64, np.complex64, np.complex128, np.int32):
        check_verbs(code, dtype)


def check_verbs(code, dtype):
    rng, dtype = np.random.default_rng(0), np.dtype(dtype)
    numbers = np.arange(code.scheme.messages.count)
    for p in (1, 3):
        try:
            form = code.scheme.format(p, dtype)
        except TypeError:
            return
        rows = [some(rng, p, form.partial_dtype) for _ in range(code.load)]
        for worker in range(min(code.n, 3)):
            count = code.partitions(worker, 0).size
            closely = code.encode(worker, tuple(rows[:count]))
            out = np.empty_like(closely)
            for _ in range(2):
                same(code.encode(worker, rows[:count]), closely)
                same(code.encode(worker, np.array(rows[:count])), closely)
                assert code.encode(worker, rows[:count], out) is out
                same(out, closely)
                out[:] = 0
                assert code.encode(worker, np.array(rows[:count]), out) is out
                same(out, closely)
        sent = [some(rng, form.message_size, form.message_dtype) for _ in numbers]
        for survivors in (rng.permutation(numbers), numbers[:1], numbers[:0]):
            given = [sent[i] for i in survivors]
            for size in (None, p):
                truth = results_of(lambda: code.decode(survivors, tuple(given), p=size))  # noqa: B023
                for _ in range(2):
                    for messages in (given, np.array(given)):
                        call = lambda: code.decode(survivors, messages, p=size)  # noqa: B023, E731
                        same(results_of(call), truth)
            truth = results_of(lambda: code.decode(survivors, tuple(given), p=p))  # noqa: B023
            for messages in (given, np.array(given)):
                out = np.full(p, 3, form.gradient_dtype)
                call = lambda: code.decode(survivors, messages, out)  # noqa: B023, E731
                same(results_of(call), truth)
                if isinstance(truth, np.ndarray):
                    same(out, truth)
                else:
                    assert (out == 3).all()


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def misaligned(array):
    room = np.empty(array.nbytes + 1, np.uint8)
    shifted = room[1:].view(array.dtype).reshape(array.shape)
    shifted[...] = array
    return shifted


class Sub(np.ndarray):
    pass


# Forms in which an array, or each array of a list, may come.
FORMS = {
    "as it is": lambda x: x,
    "read-only": read_only,
    "misaligned": misaligned,
    "with gaps": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: x[..., ::-1].copy()[..., ::-1],
    "a subclass": lambda x: x.view(Sub),
    "float32": lambda x: x.astype(np.float32),
    "big-endian": lambda x: x.astype(">f8"),
    "integers": lambda x: x.astype(int),
    "objects": lambda x: x.astype(object),
    "too long": lambda x: np.concatenate([x, x], axis=-1),
    "a column": lambda x: x[..., None],
    "of nothing": lambda x: x[..., :0],
    "not finite": lambda x: np.where(np.arange(x.size).reshape(x.shape) == x.size - 1, np.nan, x),
    "a list": lambda x: x.tolist(),
    "masked": lambda x: np.ma.masked_array(x),
}


@pytest.mark.every_backend
@pytest.mark.parametrize("what", FORMS)
def test_whatever_comes_is_taken_or_refused_alike(what):
    """Earlier calls have prepared the fast path for arrays that differ only in what is strange."""
    rng, code, size = np.random.default_rng(0), ReedSolomon(5, stragglers=2), 6
    stack, numbers, strange = rng.standard_normal((3, size)), np.array([3, 0, 4]), FORMS[what]
    outs = {
        "none": lambda: None,
        "an array": lambda: np.full(size, 7.0),
        "strange": lambda: strange(np.full(size, 7.0)),
        "two-dimensional": lambda: np.full((1, size), 7.0),
    }
    for _ in range(2):
        for messages in (stack, list(stack)):
            code.decode(numbers, messages, np.empty(size))
            code.decode(numbers, messages)
            code.encode(1, messages, np.empty(size))
    for make in outs.values():
        for given in (
            strange(stack),
            [strange(row) for row in stack],
            [*stack[:2], strange(stack[2])],
        ):
            for verb in (
                lambda given, out: code.decode(numbers, given, out),
                lambda given, out: code.decode(numbers, given, out, check_finite=False),
                lambda given, out: code.encode(1, given, out),
            ):
                one, two = make(), make()
                truth = results_of(lambda: verb(tuple(given), one))  # noqa: B023
                found = results_of(lambda: verb(given, two))  # noqa: B023
                if isinstance(truth, tuple) and not isinstance(found, tuple):
                    pytest.fail(f"{truth} was not raised")
                if one is not None and not isinstance(truth, tuple):
                    assert found is two
                    truth, found = np.asarray(one), np.asarray(two)
                if isinstance(truth, tuple):
                    assert found[0] is truth[0]
                    if isinstance(two, np.ndarray) and "NonFinite" not in found[0].__name__:
                        np.testing.assert_array_equal(two, make())
                else:
                    same(found, truth)


@pytest.mark.every_backend
@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("mode", ["real", "packed", "expand"])
def test_rows_are_added_one_by_one(mode, dtype):
    mode, rng = MODES[mode], np.random.default_rng(0)
    if (kinds := layout(mode, dtype)) is None:
        pytest.skip("no such kernel")
    for count, length in [(1, 1), (2, 2), (3, 5), (4, 130)]:
        rows = np.rint(some(rng, (count, length), np.dtype(float))).astype(kinds[0])
        coef = np.rint(some(rng, count, np.dtype(float if mode == REAL else complex)))
        weights = np.rint(rng.uniform(1, 9, count))
        size = length + length % 2 if mode == PACKED else length
        truth, out = np.empty(size, kinds[1]), np.full(size, 9, kinds[1])
        kernels.combine(mode, kernels.Rows.of(rows, length, kinds[0]), coef, truth)
        energy = np.zeros(1)
        add = kernels.unchecked.bind_add(mode, coef, weights, length, kinds[0], out, energy)
        for turn in range(2):
            order = rng.permutation(count)
            for done, at in enumerate(order):
                assert add(rows[at], int(at), done > 0) == Status.OK
            np.testing.assert_array_equal(out, truth)  # sums of integers are exact in any order
            squares = (rows.astype(float) ** 2).sum(axis=1)
            assert energy[0] == (turn + 1) * (weights @ squares)


@pytest.mark.every_backend
@pytest.mark.parametrize("mode", ["real", "packed", "expand"])
def test_nothing_is_added_to_itself(mode):
    mode = MODES[mode]
    row, made = layout(mode, np.dtype(np.float32))
    room = np.zeros(128, np.uint8)
    start = -room.ctypes.data % 8 + 40
    out = room[start : start + 2 * made.itemsize].view(made)
    energy, coef = np.zeros(1), np.ones(1, float if mode == REAL else complex)
    add = kernels.unchecked.bind_add(mode, coef, np.ones(1), 2, row, out, energy)
    for at in range(start - 24, start + 40):
        room[:] = 0
        out[:] = 3
        g = room[at : at + 2 * row.itemsize].view(row)
        fits = at % 4 == start % 4 and not np.shares_memory(g, out)
        before = room.copy()
        assert add(g, 0, True) == (Status.OK if fits else Status.MISPLACED)
        assert (room == before).all()
    assert energy[0] == 0


class Idle(fastgc.Code):
    """A code with a coefficient of 0."""

    def __init__(self):
        self.n = self.k = 2

    def row(self, worker):
        return np.arange(2), np.array([1.0, 0.0] if worker else [0.0, 1.0])


def test_partial_gradients_times_zero_are_not_overlooked():
    code, partials = Idle(), np.array([[1.0, 2.0], [np.nan, np.inf]])
    for _ in range(2):
        for given in (tuple(partials), list(partials), partials):
            assert np.isnan(code.encode(1, given)).all()


def test_a_zero_real_part_is_not_zero():
    code = fastgc.LinearCode(np.array([[1j, 1], [1, 1j]]) / (1 + 1j))
    g = np.array([[1.0, 2.0], [3.0, 4.0]])
    sent = np.array([code.encode(i, g) for i in range(2)])
    for _ in range(2):
        np.testing.assert_allclose(code.decode([0, 1], sent), [4, 6], rtol=1e-14)


@pytest.mark.parametrize("what", ["an array", "a list"])
def test_imprecise_gradients_are_warned_of_each_time(what):
    nodes = np.linspace(-1, 1, 8) + 0.01, np.linspace(-1, 1, 32)
    code = fastgc.LagrangeCode(8, 8, load=4, messages=4, nodes=nodes)
    g = np.random.default_rng(0).standard_normal((code.scheme.messages.count, 4))
    came = np.arange(15)
    given = g[came] if what == "an array" else list(g[came])
    for _ in range(3):
        with pytest.warns(fastgc.errors.InstabilityWarning, match="decodes more of them better"):
            code.decode(came, given)


def test_threads_decode_each_its_own():
    code, rng = ReedSolomon(12, stragglers=4), np.random.default_rng(0)
    jobs = []
    for _ in range(4):
        survivors = rng.permutation(12)[: int(rng.integers(8, 13))]
        given = rng.standard_normal((survivors.size, 6))
        jobs.append((survivors, given, code.decode(survivors, tuple(given))))

    def work(job):
        survivors, given, truth = job
        for _ in range(300):
            np.testing.assert_array_equal(code.decode(survivors, given), truth)
            np.testing.assert_array_equal(code.decode(survivors, list(given)), truth)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, jobs))


def test_arguments_are_looked_at_after_calls_like_these():
    code, out = ReedSolomon(5, stragglers=2), np.empty(4)
    g = np.random.default_rng(0).standard_normal((4, 4))
    for given in (g, list(g)):
        for _ in range(2):
            code.decode([0, 1, 2], given[:3], out)
            code.decode([0, 1, 2], given[:3], p=4)
            code.encode(1, given[:3])
        for wrong in (4.0, "4", np.float64(4)):
            with pytest.raises(TypeError, match="p must be an integer"):
                code.decode([0, 1, 2], given[:3], p=wrong)
        with pytest.raises(ValueError, match="must have"):
            code.decode([0, 1, 2], given[:3], out, p=6)
        for count in (2, 4):
            with pytest.raises(ValueError, match=f"3 survivors, but {count} messages"):
                code.decode([0, 1, 2], given[:count], out)
        for survivors in ([0, 1, 1], [0, 1, 5], [-1, 0, 1]):
            with pytest.raises(ValueError, match="survivors"):
                code.decode(survivors, given[:3], out)
        for worker, index in ((1.0, 0), (1, 0.0)):
            with pytest.raises(TypeError, match="must be an integer"):
                code.encode(worker, given[:3], index=index)


def test_a_message_that_lies_in_the_output_is_as_it_was():
    code, g = ReedSolomon(5, stragglers=2), np.random.default_rng(0).standard_normal((3, 4))
    room = g.copy()
    given = list(room)
    truth = code.decode([0, 1, 2], tuple(g))
    code.decode([0, 1, 2], given)
    room[2, 3] = np.nan
    with pytest.raises(fastgc.NonFiniteMessageError, match="worker 2"):
        code.decode([0, 1, 2], given, room[0])
    np.testing.assert_array_equal(room[:2], g[:2])
    room[2] = g[2]
    assert code.decode([0, 1, 2], given, given[1]) is given[1]
    np.testing.assert_array_equal(room, [g[0], truth, g[2]])


def test_gradients_of_rounds():
    code, p = ReedSolomon(6, stragglers=2), 5
    sent = np.random.default_rng(0).standard_normal((6, code.message_size(p)))
    rnd, out = code.round(p), np.full(p, 7.0)
    for worker in range(3):
        rnd.receive(worker, sent[worker])
    with pytest.raises(fastgc.NotDecodableError, match="at least 1 more"):
        rnd.gradient(out)
    with pytest.raises(ValueError, match="shares memory"):
        rnd.gradient(sent[1, :p])
    assert (out == 7).all()
    for worker in (5, 3):
        rnd.receive(worker, sent[worker])
    came = [0, 1, 2, 5, 3]
    truth = code.decode(came, tuple(sent[came]), p=p)
    assert rnd.gradient(out) is out
    np.testing.assert_array_equal(out, truth)
    np.testing.assert_array_equal(rnd.gradient(), truth)
    out[:] = 7
    with pytest.raises(ValueError, match="unknown method"):
        rnd.gradient(out, method="luck")
    for wrong, match in (
        (sent[3, :p], "shares memory"),
        (np.empty(p + 1), "shape"),
        (read_only(out), "read-only"),
        (out.astype(np.float32), "dtype"),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            rnd.gradient(wrong)
    gaps = np.zeros((p, 2))[:, 0]
    with pytest.raises(ValueError, match="contiguous"):
        rnd.gradient(gaps)
    rnd.lapse("the ring went round")
    with pytest.raises(RuntimeError, match="the ring went round"):
        rnd.gradient(out)
    assert (out == 7).all()
    rnd.reset()
    for worker in (4, 1, 0, 2):
        rnd.receive(worker, sent[worker])
    other = code.decode([4, 1, 0, 2], tuple(sent[[4, 1, 0, 2]]), p=p)
    np.testing.assert_array_equal(rnd.gradient(out), other)


@pytest.mark.parametrize(
    ("code", "dtype", "sent"),
    [
        (ReedSolomon(5, stragglers=2), "float64", "float64"),
        (ReedSolomon(5, stragglers=2), "float32", "float16"),
        (fastgc.Uncoded(4), "float32", "float64"),
    ],
    ids=str,
)
def test_no_encoder_takes_what_lies_in_its_message(code, dtype, sent):
    p, room = 6, np.zeros(200, np.uint8)
    start = -room.ctypes.data % 16
    size = code.message_size(p, dtype, sent)
    kind = code.scheme.format(p, dtype, sent).message_dtype
    out = room[start : start + size * kind.itemsize].view(kind)
    encoder = code.encoder(0, p, dtype, out, message_dtype=sent)
    inside, (first, *_) = (
        room[start : start + p * np.dtype(dtype).itemsize].view(dtype),
        code.partitions(0),
    )
    for _ in range(2):
        with pytest.raises(ValueError, match="shares memory with the message"):
            encoder.add(int(first), inside)
        assert not room.any()
    encoder.add(int(first), np.ones(p, dtype))  # the failed call was not recorded
    assert encoder.energy > 0


def test_the_first_call_of_a_process_may_decode_an_array():
    script = (
        "import numpy as np, fastgc\n"
        "code = fastgc.ReedSolomon(5, stragglers=2)\n"
        "for messages in (np.ones((3, 4)), [np.ones(4)] * 3):\n"
        "    code.decode(np.array([0, 1, 3]), messages, np.empty(4))\n"
    )
    subprocess.run([sys.executable, "-P", "-c", script], check=True)
