"""Every way to decode and to encode gives what the definition says, or refuses and writes nothing.

Arrays come as one array, as a list, with gaps, misaligned or read-only; results go to a new array
or to `out`; decoders and encoders may be bound. First, the kernels that take rows anywhere.
"""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from liars import receive
from oracles.table import HALVES
from tables import EVERY_SMALL

import fastgc
from fastgc import NonFiniteMessageError, NotDecodableError, ReedSolomon, Uncoded, backend, kernels
from fastgc.coding.format import Format
from fastgc.kernels import EXPAND, PACKED, REAL, REAL_PART, Status
from fastgc.kernels.c import calls

# ------------------------------------------------------------------------------------- kernels

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
    """Return functions that call `run`, one for each way of giving rows."""
    listed = kernels.Rows.of(list(rows), rows.shape[1], rows.dtype)
    return (
        lambda: run(rows, out, count),
        lambda: run(list(rows[:count]), out, count),
        lambda: run(listed, out, count),
    )


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
        coef += 100 if mode == REAL else 100 + 100j  # no coefficient is 0 yet
        if mode != REAL:
            coef.real[::2] = 0  # these are not 0 either
        for zeros in (0, count // 2):
            coef[:zeros] = 0
            rows[:zeros] = np.nan  # coefficients of 0: these rows are not read
            rows[count] = rows[0]
            truth = np.empty(size, kinds[1])
            used = kernels.Rows.of(rows[zeros:count], length, kinds[0])
            kernels.combine(mode, used, coef[zeros:count], truth)
            out = np.empty_like(truth)
            run = kernels.unchecked.bind_apart(
                mode, coef, (kinds[0], length), (kinds[1], size), True
            )
            for call in three_ways(run, rows, out, count):
                out[:] = 3
                assert call() == Status.OK
                np.testing.assert_array_equal(out.view(np.uint8), truth.view(np.uint8))


@pytest.mark.parametrize("mode", MODES)
def test_no_byte_of_a_row_is_written(mode):
    """Outputs lie at every place around two rows, read or not, and rows may be misaligned."""
    mode = MODES[mode]
    row, made = layout(mode, np.dtype(np.float32))
    length, size = 2, 2
    coef = np.array([1, 0], float if mode == REAL else complex)
    run = kernels.unchecked.bind_apart(mode, coef, (row, length), (made, size))
    room = np.zeros(200, np.uint8)
    start = -room.ctypes.data % 8 + 64
    two = [room[start + at : start + at + length * row.itemsize].view(row) for at in (0, 32)]
    listed = kernels.Rows.of(two, length, row)
    stacked = room[start : start + 2 * length * row.itemsize].view(row)
    for at in range(start - 48, start + 72, 4):
        out = room[at : at + size * made.itemsize].view(made)
        for way, arrays in (
            (partial(run, two, out, 2), two),
            (partial(run, listed, out, 2), two),
            (partial(run, stacked, out, 2), [stacked]),
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
        assert run(rows, out, 2) == Status.MISPLACED
        assert (out == 3).all()
    gaps = [np.zeros(2 * length, row)[::2], two[1]]
    assert run(gaps, out, 2) == Status.MISPLACED
    assert run(two[:1], out, 2) == Status.MISPLACED  # too few
    assert run([two[0], "no array"], out, 2) == Status.MISPLACED
    assert run(np.zeros((2, 2 * length), row)[:, ::2], out, 2) == Status.MISPLACED
    assert (out == 3).all()


@pytest.mark.parametrize("mode", ["real", "packed", "expand"])
def test_nothing_is_added_to_itself(mode):
    mode = MODES[mode]
    row, made = layout(mode, np.dtype(np.float32))
    room = np.zeros(128, np.uint8)
    start = -room.ctypes.data % 8 + 40
    out = room[start : start + 2 * made.itemsize].view(made)
    coef = np.ones(1, float if mode == REAL else complex)
    told, add, where = kernels.unchecked.bind_add(mode, coef, np.ones(1), (row, 2), out, out)
    for at in range(start - 24, start + 40):
        room[:] = 0
        out[:] = 3
        told.more = True
        g = room[at : at + 2 * row.itemsize].view(row)
        fits = at % 4 == start % 4 and not np.shares_memory(g, out)
        before = room.copy()
        assert add(told, where(g), 0) == (Status.OK if fits else Status.MISPLACED)
        assert (room == before).all()
    assert told.energy == 0


# ---------------------------------------------------------------------------- what is taken

FIVE = ReedSolomon(7, stragglers=2)  # of whose messages five decode
CODES = [
    FIVE,
    ReedSolomon(7, stragglers=2, packed=False),
    ReedSolomon(8, stragglers=2, clusters="auto"),
    ReedSolomon(80, stragglers=12),
    ReedSolomon(700, stragglers=300),
    fastgc.BinaryCode(8, stragglers=2),
    fastgc.FractionalRepetition(9, stragglers=2),
    fastgc.Uncoded(4, load=2),
    fastgc.GraphCode(8, 9, degree=3),
]
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


class Sub(np.ndarray):
    pass


def fixed(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array):
    found = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


# Arrays of the same numbers, and of the same dtype but for its byte order.
SAME = {
    "one array": lambda x: x,
    "misaligned": unaligned,
    "read-only": fixed,
    "with gaps": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backwards": lambda x: x[..., ::-1].copy()[..., ::-1],
    "by columns": np.asfortranarray,
    "a subclass": lambda x: x.view(Sub),
    "wider rows": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
}


def each_way(rows):
    """Yield the rows as one array and as lists of arrays, in every layout."""
    for change in SAME.values():
        yield change(rows)
        yield [change(row) for row in rows]
        yield [rows[0], *(change(row) for row in rows[1:])]
    yield tuple(rows)


def defined(code, numbers, partials):
    """Return messages by the definition: combinations of partial gradients, or of pairs."""
    p = partials.shape[1]
    pairs = partials.astype(np.result_type(partials.dtype, complex))
    if code.scheme.layout == "packed" and partials.dtype.kind != "c":
        pairs = np.pad(partials, ((0, 0), (0, p % 2))).astype(float).view(complex)
    messages = code.matrix()[numbers] @ pairs
    form = code.scheme.format(p, partials.dtype)
    if form.message_dtype.kind != "c":
        packed = code.scheme.layout == "packed"
        messages = np.ascontiguousarray(messages).view(float) if packed else messages.real
    return messages.astype(form.message_dtype)


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_every_way_gives_what_the_definition_says(code, dtype):
    rng, eps = np.random.default_rng(0), float(np.finfo(dtype).eps)
    for p in (1, 2, 5, 33) if code.n < 50 else (3,):
        try:
            form = code.scheme.format(p, dtype)
        except TypeError:
            return  # there are no such gradients
        g = some(rng, (code.k, p), form.partial_dtype)
        for worker in range(min(code.n, 3)):
            held, number = code.partitions(worker, 0), code.scheme.messages.number(worker, 0)
            [truth] = defined(code, [number], g)
            first, out = code.encode(worker, g[held]), np.empty_like(truth)
            room = 40 * eps * len(held) * np.abs(g).max() * np.abs(code.matrix()[number]).max()
            np.testing.assert_allclose(first, truth, atol=room)
            bound = code.bind_encoder(worker, g[held], out)
            for rows in each_way(g[held]):
                for made in (code.encode(worker, rows), code.encode(worker, rows, out), bound()):
                    np.testing.assert_array_equal(made, first)
                    assert made.dtype == form.message_dtype
                out[:] = np.nan
            encoder, squares = code.encoder(worker, p, dtype, out), np.abs(g.astype(complex)) ** 2
            for _ in range(2):  # the second time after a reset, over the old contents
                encoder.reset()
                for j in rng.permutation(held).tolist():
                    encoder.add(j, g[j])
                assert encoder.message() is out
                np.testing.assert_allclose(out, truth, atol=room)
            energy = np.abs(code.coefficients(worker, 0)) ** 2 @ squares[held].sum(axis=1)
            assert encoder.energy == pytest.approx(energy, rel=1e-5)
        sent = defined(code, np.arange(code.scheme.messages.count), g)
        memory = np.empty((len(sent), sent.shape[1] + 3), sent.dtype)
        heard, truth = memory[:, 1:-2], g.sum(axis=0)
        bound, unchecked = code.bind(heard, p=p), code.bind(heard, p=p, check_finite=False)
        for f in {code.threshold, len(sent)}:
            came = rng.permutation(len(sent))[:f]
            if not code.decodable(came):  # really, a worker's messages come in order
                continue
            first, out = code.decode(came, sent[came], p=p), np.empty(p, form.gradient_dtype)
            memory[:] = np.nan  # messages that did not come are not read
            heard[came] = sent[came]
            np.testing.assert_array_equal(unchecked(came), first)
            vector = code.decoding_vector(came)
            room = 40 * eps * np.abs(vector).sum() * np.abs(sent).max()
            np.testing.assert_allclose(first, truth, atol=room)
            np.testing.assert_array_equal(code.decoding_vector(came.tolist()), vector)
            for rows in each_way(sent[came]):
                for made in (
                    code.decode(came, rows, p=p),
                    code.decode(came, rows, out),
                    code.decode(came, rows, out, check_finite=False),
                    bound(came),
                ):
                    np.testing.assert_array_equal(made, first)
                    assert made.dtype == form.gradient_dtype
                assert made is bound.gradient
                out[:] = bound.gradient[:] = np.nan
            rnd = code.round(p, dtype)
            for number in came.tolist():
                receive(rnd, number, sent[number])
            assert rnd.ready
            np.testing.assert_allclose(rnd.gradient(), first, atol=room)
            assert rnd.gradient().dtype == form.gradient_dtype


def test_arrays_that_fit_are_combined_at_once(monkeypatch):
    """A prepared kernel takes them, at the second call: Python looks at no row."""
    rows, came = np.random.default_rng(0).standard_normal((5, 6)), np.array([6, 0, 3, 2, 5])
    bound, rnd = FIVE.bind(np.ones((7, 6))), FIVE.round(6)
    for number, row in zip(came.tolist(), rows, strict=True):
        rnd.receive(number, row)
    calls = (
        lambda: FIVE.decode(came, rows),
        lambda: FIVE.decode(came, list(rows), np.empty(6)),
        lambda: FIVE.encode(0, rows[:3]),
        lambda: FIVE.encode(0, list(rows[:3]), np.empty(6)),
        lambda: bound(came),
        rnd.gradient,
    )
    expected = [call().copy() for call in calls]
    for name in ("rows", "messages", "combine", "sums"):
        monkeypatch.setattr(Format, name, None)
    for call, wanted in zip(calls, expected, strict=True):
        np.testing.assert_array_equal(call(), wanted)


def test_whatever_stands_for_survivors():
    sent, right = np.random.default_rng(0).standard_normal((7, 4)), np.array([6, 0, 3, 2, 5])
    mask = np.zeros(7, bool)
    mask[right] = True
    bound, vector = FIVE.bind(sent), np.empty(7, complex)
    taken = [np.repeat(right, 2)[::2], right[::-1], unaligned(right), right.view(Sub), mask]
    taken += [right.astype(kind) for kind in (np.int32, np.uint64, ">i8")]
    taken += [right.tolist(), tuple(right.tolist()), fixed(right), np.arange(7)]
    for survivors in taken:
        numbers = np.arange(7)[np.asarray(survivors)].tolist()
        truth = FIVE.decoding_vector(numbers)
        out = vector[: len(numbers)]
        assert FIVE.decoding_vector(survivors, out=out) is out
        np.testing.assert_array_equal(out, truth)
        gradient = FIVE.decode(numbers, sent[numbers])
        np.testing.assert_array_equal(FIVE.decode(survivors, sent[numbers]), gradient)
        np.testing.assert_array_equal(bound(survivors), gradient)


def test_the_vector_may_overwrite_its_survivors():
    room, came = np.empty(5, complex), np.arange(5)
    mine = room.view(np.int64)[5:]
    mine[:] = came
    np.testing.assert_array_equal(FIVE.decoding_vector(mine, out=room), FIVE.decoding_vector(came))


class Idle(fastgc.Code):
    """A code with coefficients that are zero, whose partial gradients must be read all the same."""

    def __init__(self):
        self.n = self.k = 2

    def row(self, worker):
        return np.arange(2), np.array([1.0, 0.0] if worker else [0.0, 1.0])


def test_partial_gradients_times_zero_are_not_overlooked():
    g = np.array([[1.0, 2.0], [np.nan, np.inf]])
    for given in (tuple(g), list(g), g):
        assert np.isnan(Idle().encode(1, given)).all()
    assert np.isnan(Idle().bind_encoder(1, g)()).all()


def test_imprecise_gradients_are_warned_of_each_time():
    nodes = np.linspace(-1, 1, 8) + 0.01, np.linspace(-1, 1, 32)
    code = fastgc.LagrangeCode(8, 8, load=4, messages=4, nodes=nodes)
    g = np.random.default_rng(0).standard_normal((code.scheme.messages.count, 4))
    came = np.arange(15)
    for given in (g[came], list(g[came])) * 2:
        with pytest.warns(fastgc.InstabilityWarning, match="decodes more of them better"):
            code.decode(came, given)


def test_threads_and_copies():
    rng = np.random.default_rng(0)
    for n, s in ((12, 4), (300, 20)):  # work space on the stack, and too large for it
        code, jobs = ReedSolomon(n, stragglers=s), []
        for _ in range(4):
            came = rng.permutation(n)[: int(rng.integers(n - s, n + 1))]
            rows = rng.standard_normal((came.size, 6))
            jobs.append((came, rows, code.decode(came, tuple(rows)), code.decoding_vector(came)))

        def work(job, code=code):
            came, rows, gradient, vector = job
            out, own = np.empty_like(gradient), np.empty_like(vector)
            for _ in range(100):
                np.testing.assert_array_equal(code.decode(came, rows, out), gradient)
                np.testing.assert_array_equal(code.decode(came, list(rows)), gradient)
                np.testing.assert_array_equal(code.decoding_vector(came, out=own), vector)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, jobs))
        for other in (copy.copy(code), copy.deepcopy(code), pickle.loads(pickle.dumps(code))):
            work(jobs[0], other)
            assert other == code


# --------------------------------------------------------------------------- what is refused

OTHER = {
    "float32": lambda x: x.astype(np.float32),
    "objects": lambda x: x.astype(object),
    "too long": lambda x: np.concatenate([x, x], axis=-1),
    "a column": lambda x: x[..., None],
    "of nothing": lambda x: x[..., :0],
    "a number": lambda x: 1.0,
    "nothing": lambda x: None,
}


@pytest.mark.parametrize("read", ["in C", "in Python"])
@pytest.mark.parametrize("what", OTHER)
def test_lists_with_one_row_of_another_kind_are_refused(what, read, monkeypatch):
    """Calls before them have prepared a way for rows that differ only in what is strange."""
    if read == "in Python":  # as where NumPy's arrays are laid out otherwise
        monkeypatch.setattr(calls, "_HEAD", 0)
    code = copy.copy(FIVE)  # it keeps what it has prepared
    rows, came = np.random.default_rng(0).standard_normal((5, 6)), np.array([6, 0, 3, 2, 5])
    for _ in range(2):
        code.decode(came, list(rows), np.empty(6))
        code.encode(1, list(rows[:3]), np.empty(6))
    out = np.full(6, 7.0)
    for at in (1, 2, 4):
        wrong = [OTHER[what](row) if i == at else row for i, row in enumerate(rows)]
        for result in (None, out):
            with pytest.raises((TypeError, ValueError)):
                code.decode(came, wrong, result)
            with pytest.raises((TypeError, ValueError)):
                code.encode(1, wrong[at - 1 : at + 2] if at < 4 else wrong[2:], result)
    for other in (None, [], 1.0, np.array(1.0), rows):
        with pytest.raises((TypeError, ValueError)):
            code.decode(came, [other] * 5, out)
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("code", "dtype", "sent"),
    [
        (FIVE, "float64", "float64"),
        (FIVE, "float32", "float16"),
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
    inside = room[start : start + p * np.dtype(dtype).itemsize].view(dtype)
    first = int(code.partitions(0)[0])
    for _ in range(2):
        with pytest.raises(ValueError, match="shares memory with the message"):
            encoder.add(first, inside)
        assert not room.any()
    encoder.add(first, np.ones(p, dtype))  # the failed call was not recorded
    assert encoder.energy > 0


@pytest.mark.parametrize("sent", ["float64", "float16"])
def test_an_encoder_takes_what_fits_at_once(sent, monkeypatch):
    """C looks at it, and whether it lies in the message, also where that is not the sum."""
    dtype = "float64" if sent == "float64" else "float32"
    rows = np.random.default_rng(0).standard_normal((3, 6)).astype(dtype)
    encoder, held = FIVE.encoder(0, 6, dtype, message_dtype=sent), FIVE.partitions(0).tolist()
    monkeypatch.setattr(np, "may_share_memory", None)
    for _ in range(2):
        encoder.reset()
        for j, row in zip(held, rows, strict=True):
            encoder.add(j, row)
    expected = FIVE.encode(0, list(rows), message_dtype=sent)
    np.testing.assert_allclose(encoder.message(), expected, rtol=0, atol=4 * np.finfo(sent).eps)


def test_encoder_refuses():
    code = ReedSolomon(5, stragglers=1)
    first, second = code.partitions(2).tolist()
    absent = next(j for j in range(5) if j not in (first, second))
    g = np.arange(4.0)
    encoder = code.encoder(2, 4)
    with pytest.raises(ValueError, match=rf"lacks partitions \[{first}, {second}\]"):
        encoder.message()
    room = np.zeros(4)
    encoder = code.encoder(2, 4, out=room)
    encoder.add(first, g)
    before = room.copy()
    for partition, given, error, says in [
        (absent, g, ValueError, rf"partition {absent} is not among those of worker 2"),
        (first, g, ValueError, f"partition {first} was added already"),
        (np.int64(second), g.astype("f"), TypeError, "must have dtype float64, not float32"),
    ]:
        with pytest.raises(error, match=says):
            encoder.add(partition, given)
        with pytest.raises(ValueError, match=rf"worker 2's message still lacks .* \[{second}\]"):
            encoder.message()
        np.testing.assert_array_equal(room, before)
    encoder.add(second, g[::-1])  # strided, so it is copied
    np.testing.assert_allclose(encoder.message(), code.encode(2, [g, g[::-1]]), atol=1e-14)
    with pytest.raises(ValueError, match="worker 5 does not exist: they are numbered 0 to 4"):
        code.encoder(5, 4)


# ----------------------------------------------------------------------------------- bound decoders


def test_bound_decoder_refuses_and_writes_nothing():
    code = ReedSolomon(7, stragglers=2)
    messages = np.random.default_rng(0).standard_normal((7, 6))
    gradient = np.full(6, 7.0)
    bound = code.bind(messages, gradient)
    for survivors, error, says in [
        (range(4), NotDecodableError, "1 more message is needed"),
        ([0, 1, 2, 3, 3], ValueError, "names worker 3 a second time"),
        (range(8), ValueError, "workers are numbered 0 to 6"),
    ]:
        for given in (survivors, np.array(survivors)):
            with pytest.raises(error, match=says):
                bound(given)
            with pytest.raises(error, match=says):
                code.decoding_vector(given)
    with pytest.raises(ValueError, match="method must be"):
        bound(range(5), method="none")
    with pytest.raises(ValueError, match="shape"):
        bound(np.arange(5)[:, None])
    with pytest.raises(TypeError, match="must be integers"):
        bound(np.arange(5).astype("m8[s]"))  # eight bytes each, as those of integers
    assert (gradient == 7).all()
    messages[3, 2] = np.inf
    with pytest.raises(NonFiniteMessageError, match="of worker 3 is not finite: element 2 is inf"):
        bound(range(5))
    bound([0, 1, 2, 4, 5])
    assert np.isfinite(gradient).all()
    assert not np.isfinite(code.bind(messages, gradient, check_finite=False)(range(5))).all()
    several = Uncoded(2, 4, load=2)
    bound = several.bind(np.array([[1.0], [2], [np.nan], [3]]))
    with pytest.raises(NonFiniteMessageError, match="worker 1"):
        bound(range(4))


def test_what_cannot_be_bound():
    code = ReedSolomon(7, stragglers=2)
    messages = np.zeros((7, 6))
    for array, out, error, says in [
        (messages[:5], None, ValueError, r"a row for each of 7 messages, not of shape \(5, 6\)"),
        (np.zeros((7, 12))[:, ::2], None, ValueError, "rows of messages must be contiguous"),
        (np.zeros((6, 7)).T, None, ValueError, "rows of messages must be contiguous"),
        (np.frombuffer(bytes(337), offset=1).reshape(7, 6), None, ValueError, "and aligned"),
        (messages, np.zeros(8), ValueError, "must have 8 elements, not 6"),
        (messages, messages[3], ValueError, "out shares memory with messages"),
    ]:
        with pytest.raises(error, match=says):
            code.bind(array, out)
    with pytest.raises(ValueError, match="must have 8 elements, not 6"):
        code.bind(messages, p=8)
    side_by_side = np.zeros((7, 12))
    code.bind(side_by_side[:, :6], side_by_side[0, 6:])


# ----------------------------------------------------------------------------------- bound encoders


@pytest.mark.every_backend
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@EVERY_SMALL
def test_bound_encoder(code, dtype):
    rng, p = np.random.default_rng(0), 7
    kind = code.scheme.format(1, dtype).partial_dtype
    for worker in {0, code.n - 1}:
        for index in range(code.scheme.messages.counts[worker]):
            shape = code.partitions(worker, index).size, p
            partials = np.zeros(shape, kind)
            out = np.empty(code.message_size(p, dtype), code.scheme.format(1, dtype).message_dtype)
            bound = code.bind_encoder(worker, partials, out, index=index)
            unbound = code.bind_encoder(worker, partials, index=index)
            assert bound.worker == worker
            assert bound.partials is partials
            for _ in range(2):
                partials[:] = rng.standard_normal(shape)
                assert bound() is out
                # Bound calls are C's under every backend, and Numba's sums are rounded otherwise.
                off = 0 if backend() == "c" else 4 * np.finfo(out.dtype).eps
                expected = code.encode(worker, partials, index=index)
                np.testing.assert_allclose(out, expected, rtol=off, atol=off)
                assert unbound() is unbound.message
                np.testing.assert_array_equal(unbound.message, out)


@pytest.mark.parametrize(
    ("partials", "sent"),
    [
        (np.zeros((6, 5), np.float32)[::2], np.float16),
        (np.zeros((6, 5), np.float32)[::2], "float64"),
        (np.zeros((3, 10))[:, ::2], None),
    ],
    ids=["halves", "wide", "gaps"],
)
def test_bound_encoder_of_other_arrays(partials, sent):
    code, rng = ReedSolomon(6, stragglers=2), np.random.default_rng(0)
    bound = code.bind_encoder(1, partials, message_dtype=sent)
    for _ in range(2):
        partials[:] = rng.standard_normal((3, 5))
        np.testing.assert_array_equal(bound(), code.encode(1, partials, message_dtype=sent))


def test_bound_encoder_refuses():
    code = ReedSolomon(6, stragglers=2)
    partials = np.zeros((3, 4))
    with pytest.raises(TypeError, match="the partial gradients must be an array whose memory"):
        code.bind_encoder(0, [[1.0] * 4] * 3)
    with pytest.raises(ValueError, match="worker 0 computes 3 partial gradients, but 2 were given"):
        code.bind_encoder(0, partials[:2])
    with pytest.raises(ValueError, match="out shares memory with a partial gradient"):
        code.bind_encoder(0, partials, partials[1])


@pytest.mark.parametrize(
    "kinds", [(np.float64, None), (np.float32, np.float16), (np.complex64, None)]
)
def test_add_takes_gradients_however_they_lie(kinds):
    """Strided, unaligned, as a list, of a subclass, or of a dtype that is an object of its own."""
    dtype, message_dtype = np.dtype(kinds[0]), kinds[1]
    code, rng = fastgc.BinaryCode(4, stragglers=1), np.random.default_rng(0)
    held = code.partitions(0).tolist()
    partials = (8 * rng.standard_normal((len(held), 5))).astype(dtype)
    named = np.dtype(dtype.str, metadata={"of": "a user"})
    shifted = np.zeros(5 * dtype.itemsize + 1, np.uint8)[1:].view(dtype)

    def of_bytes(g):
        shifted[:] = g
        return shifted

    ways = [
        lambda g: g,
        lambda g: np.repeat(g, 2)[::2],
        of_bytes,
        lambda g: g.view(type("Own", (np.ndarray,), {})),
        lambda g: g.astype(named),
    ]
    encoder, made = code.encoder(0, 5, dtype, message_dtype=message_dtype), []
    for way in ways:
        encoder.reset()
        for j, g in zip(held, partials, strict=True):
            encoder.add(j, way(g))
        made.append((encoder.message().copy(), encoder.energy))
    for message, energy in made:
        np.testing.assert_array_equal(message, made[0][0])
        assert energy == made[0][1] > 0
    encoder.reset()
    if encoder.out.dtype == dtype:
        with pytest.raises(ValueError, match="shares memory"):
            encoder.add(held[0], encoder.out)
    encoder.add(held[0], partials[0])
    assert encoder.energy > 0
