"""Arrays of other libraries are read and written in place, and the libraries never imported."""

import array
import mmap
import sys
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import programs
import pytest
from floating import flushing

import fastgc
from fastgc import interpolation, kernels, vandermonde
from fastgc._base import arrays
from fastgc._base.arrays import as_array, view_of
from fastgc.engines.local import LocalCluster
from fastgc.training.models import (
    LeastSquares,
    LinearRegression,
    SoftmaxRegression,
)
from fastgc.training.optimizers import SGD

DTYPES = [np.float16, np.float32, np.float64, np.complex64, np.complex128]
CODES = [
    fastgc.ReedSolomon(7, stragglers=2),
    fastgc.ReedSolomon(5, stragglers=2, packed=False),
    fastgc.BinaryCode(7, stragglers=2),
    fastgc.CyclicRepetition(5, stragglers=1),
    fastgc.LagrangeCode(6, 5, load=4, nodes="roots"),
]


class Exporter:
    """Lends its memory only through DLPack."""

    def __init__(self, lent):
        self.lent = lent

    def __dlpack__(self, **options):
        return self.lent.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.lent.__dlpack_device__()


class Copier:
    """Gives only copies of its memory."""

    def __init__(self, kept):
        self.kept = kept

    def __array__(self, dtype=None, copy=None):
        return self.kept.copy()


def tensor(lent):
    return pytest.importorskip("torch").from_numpy(lent)


LENDERS = pytest.mark.parametrize("lend", [memoryview, Exporter, tensor], ids=lambda f: f.__name__)


def canary(like):
    return np.full_like(like, 7)


# ---------------------------------------------------------------------------- zero copies


@LENDERS
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_is_shared(lend, dtype):
    lent = np.arange(12, dtype=dtype).reshape(3, 4)
    for given in (lent, lent[1], lent[:, ::2]):
        view = view_of("out", lend(given))
        assert view.dtype == dtype
        assert view.ctypes.data == given.ctypes.data
        np.testing.assert_array_equal(view, given)
        assert np.shares_memory(as_array("x", lend(given)), lent)


def test_memory_of_bytes():
    numbers = array.array("d", [1, 2, 3])
    view_of("out", numbers)[1] = 5
    assert numbers[1] == 5
    with mmap.mmap(-1, 64) as memory:
        with memoryview(memory) as whole, whole.cast("d") as mapped:
            view_of("out", mapped)[2] = 4
        assert np.frombuffer(memory[16:24]) == 4


def test_bfloat16_tensors_share_memory():
    torch, ml_dtypes = pytest.importorskip("torch"), pytest.importorskip("ml_dtypes")
    given = torch.tensor([1.5, -2, 3e38], dtype=torch.bfloat16)
    view = view_of("out", given)
    assert view.dtype == ml_dtypes.bfloat16
    assert view.ctypes.data == given.data_ptr()
    np.testing.assert_array_equal(view.astype(np.float32), given.float().numpy())
    view[0] = 8
    assert given[0] == 8
    for wrong, says in [(given.to("meta"), "meta"), (given.requires_grad_(), "detach")]:
        with pytest.raises(TypeError, match=f"out cannot be taken as a NumPy array.*{says}"):
            view_of("out", wrong)


# -------------------------------------------------------------------------- masked arrays


def test_masked_arrays_are_refused():
    """A mask marks numbers as missing, but they would be read anyway."""
    code = fastgc.BinaryCode(4, stragglers=1)
    given = np.ones((3, 5))
    masked = np.ma.masked_array(given, mask=given > 0)
    out = np.ma.masked_array(np.zeros(5), mask=True)
    three, rnd = np.arange(3), code.round(5)
    held = np.ones((len(code.partitions(0)), 5))

    class Masked:
        def sample(self, round, workers, seed):
            return np.ma.masked_array(np.ones(workers), mask=True)

    for call in (
        lambda: code.encode(0, np.ma.masked_array(held, mask=True)),
        lambda: code.encode(0, [np.ma.masked_array(g, mask=True) for g in held]),
        lambda: code.encode(0, held, out=out),
        lambda: code.encoder(0, 5, out=out),
        lambda: code.encoder(0, 5).add(code.partitions(0)[0], masked[0]),
        lambda: code.decode(three, masked),
        lambda: code.decode(three, list(masked)),
        lambda: code.decode(three, given, out=out),
        lambda: code.decode(np.ma.masked_array(three, mask=True), given),
        lambda: code.decoding_vector(np.ma.masked_array(three, mask=True)),
        lambda: code.decoding_vectors(np.ma.masked_array(np.ones((1, 4), bool), mask=True)),
        lambda: code.bind(np.ma.masked_array(np.ones((4, 5)), mask=True)),
        lambda: code.bind(np.ones((4, 5)), out=out),
        lambda: rnd.receive(0, masked[0]),
        lambda: rnd.gradient(out=out),
        lambda: fastgc.LinearCode(np.ma.masked_array(np.eye(3), mask=True)),
        lambda: vandermonde.solve(np.ma.masked_array([1.0, 2.0], mask=True), [1.0, 2.0]),
        lambda: vandermonde.solve([1.0, 2.0], np.ma.masked_array([1.0, 2.0], mask=True)),
        lambda: SGD(0.1).reset(np.ma.masked_array(np.ones(3), mask=True)),
        lambda: fastgc.data.Dataset("x", masked, np.zeros(3, int), given, np.zeros(3, int)),
        lambda: fastgc.simulation.simulate(code, Masked(), rounds=2),
    ):
        with pytest.raises(TypeError, match=r"masked array.*filled\(0\)"):
            call()
    assert not rnd.survivors.size
    np.testing.assert_array_equal(out.data, 0.0)


# ---------------------------------------------------------------------- every verb of a code


def partials_of(code, p, dtype=np.float64):
    rng = np.random.default_rng(3)
    return rng.standard_normal((code.scheme.data.shards, p)).astype(
        code.scheme.format(1, dtype).partial_dtype
    )


@LENDERS
@pytest.mark.parametrize("dtype", [np.float16, np.complex64])
def test_every_precision(lend, dtype):
    code = fastgc.ReedSolomon(6, stragglers=1)
    partials = partials_of(code, 8).astype(dtype)
    messages = [code.encode(i, partials[code.partitions(i)]) for i in range(6)]
    out = np.empty(8, np.result_type(dtype, np.float32))
    code.decode(range(5), [lend(m) for m in messages[:5]], lend(out))
    np.testing.assert_array_equal(out, code.decode(range(5), messages[:5]))


@LENDERS
@pytest.mark.parametrize("code", CODES, ids=lambda code: type(code).__name__)
def test_every_verb(code, lend):
    p = 6
    partials = partials_of(code, p)
    held = [partials[code.partitions(i)] for i in range(code.n)]
    messages = np.array([code.encode(i, held[i]) for i in range(code.n)])
    size, dtype = messages[0].size, messages.dtype

    for given in (lend(held[1]), [lend(g) for g in held[1]]):
        message = np.full(size, 7, dtype)
        out = lend(message)
        assert code.encode(1, given, out) is out
        np.testing.assert_array_equal(message, messages[1])
        np.testing.assert_array_equal(code.encode(1, given), messages[1])
    streamed = np.full(size, 7, dtype)
    out = lend(streamed)
    encoder = code.encoder(1, p, out=out)
    for j, g in zip(code.partitions(1), held[1], strict=True):
        encoder.add(j, lend(g))
    assert encoder.message() is out
    np.testing.assert_allclose(streamed, messages[1], rtol=1e-12)

    survivors = np.random.default_rng(0).permutation(code.n)[: code.threshold]
    chosen = messages[survivors]
    vector = np.full(survivors.size, 7, code.decoder().vector.dtype)
    out = lend(vector)
    assert code.decoding_vector(lend(survivors), out=out) is out
    np.testing.assert_array_equal(vector, code.decoding_vector(survivors))

    exact = code.decode(survivors, chosen, p=p)
    gradient = np.empty(p)
    for given in (lend(chosen), [lend(m) for m in chosen], tuple(map(lend, chosen))):
        for options in ({}, {"check_finite": False}):
            gradient[:], out = 7, lend(gradient)
            assert code.decode(lend(survivors), given, out, **options) is out
            np.testing.assert_array_equal(gradient, exact)
        np.testing.assert_array_equal(code.decode(survivors, given, p=p), exact)
        gradient[:], out = 7, lend(gradient)
        assert code.decode(survivors, given, out, partial="best").gradient is out
        np.testing.assert_array_equal(gradient, exact)

    gradient[:], out, given = 7, lend(gradient), lend(messages)
    bound = code.bind(given, out)
    assert bound.messages is given
    assert bound(lend(survivors)) is out
    np.testing.assert_array_equal(gradient, exact)

    rnd = code.round(p)
    for worker, m in zip(survivors, chosen, strict=True):
        rnd.receive(worker, lend(m))
    for decode in (rnd.gradient, lambda out: rnd.best(out).gradient):
        gradient[:], out = 7, lend(gradient)
        assert decode(out=out) is out
        np.testing.assert_allclose(gradient, exact, rtol=1e-10, atol=1e-13)


@LENDERS
def test_messages_are_read_where_they_are(lend, monkeypatch):
    code = fastgc.ReedSolomon(5, stragglers=2)  # which takes all three
    partials = partials_of(code, 6)
    messages = [code.encode(i, partials[code.partitions(i)]) for i in range(3)]
    room = np.zeros((3, 10))
    room[:, 2:8] = messages
    stacked = room[:, 2:8]
    seen = []
    combine = kernels.unchecked.combine

    def spy(mode, rows, coef, out, *rest, **named):
        seen.append((out.ctypes.data, [int(a) for a in rows.addresses[: rows.count]]))
        return combine(mode, rows, coef, out, *rest, **named)

    monkeypatch.setattr(kernels.unchecked, "combine", spy)
    gradient = np.empty(6)
    for given, at in [(tuple(map(lend, messages)), messages), (lend(stacked), stacked)]:
        code.decode(range(3), given, lend(gradient), check_finite=False)
        assert seen.pop() == (gradient.ctypes.data, [m.ctypes.data for m in at])


@LENDERS
def test_functions_of_numbers(lend):
    nodes, b = np.array([0.5, -1, 2]), np.array([[1.0, 2], [3, 4], [5, 6]])
    for options in ({}, {"refine": 1}):
        x = canary(b)
        out = lend(x)
        assert vandermonde.solve(lend(nodes), lend(b), out=out, **options) is out
        np.testing.assert_array_equal(x, vandermonde.solve(nodes, b, **options))
    points, room = np.array([0.25, 1]), np.full((2, 3), 7.0)
    out = lend(room)
    assert interpolation.basis(lend(nodes), lend(points), out=out) is out
    np.testing.assert_array_equal(room, interpolation.basis(nodes, points))
    code = fastgc.BinaryCode(4, stragglers=1)
    partials = np.random.default_rng(0).standard_normal((4, 5))
    measured = fastgc.stability.measured_error(code, lend(np.arange(3)), lend(partials))
    assert measured == fastgc.stability.measured_error(code, range(3), partials)


@LENDERS
def test_models(lend):
    rng = np.random.default_rng(1)
    X, labels = rng.standard_normal((9, 3)), rng.integers(0, 4, 9)
    targets = rng.standard_normal((9, 4))
    for model, y in ((SoftmaxRegression(3, 4), labels), (LinearRegression(3, 4), targets)):
        theta = rng.standard_normal(model.size)
        given, gradient = (lend(theta), lend(X), lend(y)), canary(theta)
        out = lend(gradient)
        assert model.gradient(*given, out=out) is out
        np.testing.assert_array_equal(gradient, model.gradient(theta, X, y))
        for quantity in (model.loss, model.error):
            assert quantity(*given) == quantity(theta, X, y)


@LENDERS
def test_rounds_of_a_cluster(lend):
    rng = np.random.default_rng(2)
    model, code = LeastSquares(3, 2), fastgc.BinaryCode(3, stragglers=1)
    X, y = rng.standard_normal((9, 3)), rng.integers(0, 2, 9)
    theta, gradient = rng.standard_normal(model.size), np.full(model.size, 7.0)
    shards = code.encode_data(*model.prepare(X, y))
    with LocalCluster(code, shards, model.partial_gradient, model.size) as cluster:
        cluster.step(lend(theta), out=lend(gradient))
        with pytest.raises(TypeError, match="out must be an array whose memory NumPy can view"):
            cluster.step(theta, out=gradient.tolist())
    np.testing.assert_allclose(gradient, model.gradient(theta, X, y), rtol=1e-12, atol=1e-12)


def test_data_of_tensors():
    torch = pytest.importorskip("torch")
    X, y = torch.arange(20.0).reshape(10, 2), torch.arange(10)
    for part, labels in fastgc.BinaryCode(4, stragglers=1).encode_data(X, y):
        assert isinstance(part, torch.Tensor)  # partitions are views of the same kind as the data
        assert X.data_ptr() <= part.data_ptr() < X.data_ptr() + 80
        assert len(part) == len(labels)
    code = fastgc.LagrangeCode(4, load=2)
    expected = code.encode_data(X.numpy(), y.numpy())
    for coded, plain in zip(code.encode_data(X, y), expected, strict=True):
        np.testing.assert_array_equal(coded[0], plain[0])
        np.testing.assert_array_equal(coded[1], plain[1])


# ---------------------------------------------------------------------------------- errors


def test_tensors_that_cannot_be_written_or_read():
    torch = pytest.importorskip("torch")
    zeros = torch.zeros(6, dtype=torch.float64)
    pairs = torch.zeros(6, dtype=torch.complex128)
    for out, error, says in (
        (zeros.clone().requires_grad_(), TypeError, "out cannot .* requires grad.*detach"),
        (zeros.to("meta"), TypeError, r"out cannot .*meta.*cpu\(\)"),
        (pairs.conj(), TypeError, "out cannot .*conjugate bit.*resolve_conj"),
        (pairs.conj().imag, TypeError, "out cannot .*negative bit.*resolve_neg"),
        (zeros.to_sparse(), TypeError, "out cannot .*Sparse.*to_dense"),
        (torch.zeros(12, dtype=torch.float64)[::2], ValueError, "out must be contiguous"),
        (zeros.float(), TypeError, "out must have dtype float64, not float32"),
        (zeros.reshape(2, 3), ValueError, r"out must have shape \(6,\), not \(2, 3\)"),
    ):
        refused(error, says, arrays.check_output, "out", out, FLOAT, (6,))
    code = fastgc.ReedSolomon(4, stragglers=1)
    rnd = code.round(6)
    message = zeros.requires_grad_()
    refused(TypeError, "message of worker 2 cannot .*detach", rnd.receive, 2, message)
    assert not rnd.survivors.size
    gradient = np.full(6, 7.0)
    for messages in ([message] * 4, [np.zeros(6)] * 3 + [message]):
        refused(TypeError, "message.* cannot .*detach", code.decode, range(4), messages, gradient)
    refused(TypeError, "partial gradient cannot", code.encode, 0, [message] * 2, gradient)
    assert (gradient == 7).all()


# ----------------------------------------------------------------------------- each check alone

FLOAT, COMPLEX = np.dtype(float), np.dtype(complex)
HUGE = np.longdouble(2.0) ** 2000 if np.finfo(np.longdouble).maxexp > 2000 else np.inf


def unaligned(numbers):
    """Return a copy that begins inside an element's place."""
    memory = bytearray(numbers.nbytes + 1)
    copy = np.ndarray(numbers.shape, numbers.dtype, memory, 1)
    copy[...] = numbers
    return copy


def refused(error, match, check, *arguments, **options):
    with pytest.raises(error, match=match):
        check(*arguments, **options)


@pytest.mark.parametrize(
    ("name", "half", "gradient", "roundoff", "least"),
    [
        ("float16", True, "float32", 2.0**-11, 2.0**-24),
        ("bfloat16", True, "float32", 2.0**-8, 2.0**-126),
        ("float32", False, "float32", 2.0**-24, 2.0**-126),
        ("complex64", False, "complex64", 2.0**-24, 2.0**-126),
        ("float64", False, "float64", 2.0**-53, 2.0**-1022),
        ("complex128", False, "complex128", 2.0**-53, 2.0**-1022),
    ],
)
def test_check_dtype_takes_names(name, half, gradient, roundoff, least):
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes")
    dtype = arrays.check_dtype(name, halves=True)
    assert dtype.name == name
    assert arrays.is_half(dtype) == half
    assert arrays.gradient_dtype_of(dtype) == gradient
    assert arrays.unit_roundoff(dtype) == roundoff
    assert arrays.least_number(dtype) == least
    if half:
        refused(TypeError, "gradients must .*complex128, not b?float16$", arrays.check_dtype, name)
    else:
        assert arrays.check_dtype(name) == dtype


def test_check_dtype_refuses(monkeypatch):
    assert not arrays.is_half(np.dtype(np.int16))
    wanted = "gradients and messages must .* float16, bfloat16, not int16: .*astype"
    refused(TypeError, wanted, arrays.check_dtype, np.int16, halves=True)
    refused(TypeError, "complex128, not uint8: .*astype", arrays.check_dtype, np.uint8)
    refused(TypeError, "complex128, not bool$", arrays.check_dtype, bool)
    refused(TypeError, "no dtype 'float8': take float64", arrays.check_dtype, "float8")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    refused(ImportError, r"bfloat16 .*\[half\]", arrays.check_dtype, "bfloat16", halves=True)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_is_zero(dtype):
    one = np.zeros(3, dtype)
    assert arrays.is_zero(one)
    one[1] = -one[1]
    assert arrays.is_zero(one)
    one[2] = np.nextafter(one.real.dtype.type(0), one.real.dtype.type(1))
    assert not arrays.is_zero(one)


def test_is_zero_where_subnormal_numbers_are_flushed():
    """Nothing is surely 0 in such a thread."""
    with flushing():
        assert not arrays.is_zero(np.zeros(3))
        assert not arrays.is_zero(np.full(3, 5e-324))


def test_as_array_prefers_the_protocol_of_arrays():
    class Both(Copier):
        def __dlpack__(self, **options):
            raise AssertionError

    np.testing.assert_array_equal(as_array("x", Both(np.arange(3))), [0, 1, 2])


def test_as_array_takes_bfloat16_of_a_library_that_looks_like_torch(monkeypatch):
    """Its tensors lend no bits of bfloat16, but of float16."""
    ml_dtypes = pytest.importorskip("ml_dtypes")

    class Tensor:
        def __init__(self, dtype, requires_grad=False):
            self.dtype, self.requires_grad = dtype, requires_grad

        def view(self, dtype):
            assert dtype == "half"
            return np.array([1.5, -2.0], ml_dtypes.bfloat16).view(np.float16)

        def __array__(self, dtype=None, copy=None):
            return np.array([7.0])

    monkeypatch.setitem(
        sys.modules, "torch", SimpleNamespace(bfloat16="b", float16="half", Tensor=Tensor)
    )
    assert as_array("x", Tensor("b")).astype(float).tolist() == [1.5, -2.0]
    assert as_array("x", Tensor("f")).tolist() == [7.0]
    assert as_array("x", [3.0]).tolist() == [3.0]
    refused(ValueError, "x cannot be taken as a NumPy array", as_array, "x", [[0], [1, 2]])
    refused(TypeError, "x cannot .*detach", as_array, "x", Tensor("b", requires_grad=True))
    monkeypatch.setitem(sys.modules, "torch", None)
    assert as_array("x", Tensor("b")).tolist() == [7.0]


def test_as_rows_leaves_sequences_as_they_are():
    class Own(np.ndarray):
        pass

    interface = SimpleNamespace(__array_interface__=np.arange(6.0).__array_interface__)
    for given in ([1, 2], (1, 2), range(3), np.arange(3), np.arange(3).view(Own)):
        assert arrays.as_rows("x", given) is given
    for given in (memoryview(np.arange(6.0)), Copier(np.arange(6.0)), Exporter(np.arange(6.0))):
        assert arrays.as_rows("x", given).tolist() == [0, 1, 2, 3, 4, 5]
    assert isinstance(arrays.as_rows("x", interface), np.ndarray)
    refused(TypeError, "x must not be a masked", arrays.as_rows, "x", np.ma.masked_array([1.0]))
    own = np.arange(3).view(Own)
    assert view_of("x", own) is own
    for given in (iter([1.0]), {0: 1.0}, {1.0}, {0: 1.0}.values(), 1.0, np.array(1.0)):
        refused(TypeError, "x must be an array or a list, in order", arrays.as_rows, "x", given)


def test_store_rounds_and_overflows_in_silence():
    out = np.zeros(3, np.float32)
    arrays.store(np.array([1e300, 0.1, np.nan]), out)
    np.testing.assert_array_equal(out, np.array([np.inf, 0.1, np.nan], np.float32))


def test_numbers_of_things():
    assert [arrays.check_index("x", i, 3) for i in (0, np.int64(2))] == [0, 2]
    for wrong in (-1, 3):
        refused(ValueError, f"x {wrong} does not exist", arrays.check_index, "x", wrong, 3)
    refused(TypeError, "x must be an integer, not 1.0", arrays.check_index, "x", 1.0, 3)
    assert arrays.at_least("x", 2, 2) == 2
    refused(ValueError, "x must be at least 2, not 1", arrays.at_least, "x", 1, 2)


def test_words():
    arrays.check_word("x", "b", "a", "b")
    refused(ValueError, 'x must be "a" or "b", not 1', arrays.check_word, "x", 1, "a", "b")
    arrays.check_word("x", None, None, "b")
    refused(ValueError, 'x must be None or "b", not', arrays.check_word, "x", "c", None, "b")


@pytest.mark.parametrize("value", [0, 5e-324, 3, np.float32(2.5), np.array(2.0), Fraction(1, 4)])
def test_check_real_takes(value):
    found = arrays.check_real("x", value)
    assert type(found) is float
    assert found == value
    if value:
        assert arrays.check_real("x", value, positive=True) == value


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((value, ValueError) for value in (-1e-9, np.inf, np.nan, 10**400, -(10**400))),
        *((value, TypeError) for value in ("1", None, 1j, np.ones(1))),
    ],
)
def test_check_real_refuses(value, error):
    refused(error, "^x must be", arrays.check_real, "x", value)
    refused(ValueError, "^x must be positive", arrays.check_real, "x", 0.0, positive=True)
    if isinstance(value, np.ndarray) or value not in (np.inf, 10**400):
        refused(error, "^x must be", arrays.check_real, "x", value, infinite=True)


def test_check_real_infinite():
    for value, found in ((np.inf, np.inf), (10**400, np.inf), (0, 0.0)):
        assert arrays.check_real("x", value, infinite=True) == found
    refused(ValueError, "^x must be positive, not 0", arrays.check_real, "x", 0, True, True)


def test_check_reals():
    given = np.array([1.0, np.inf, np.nan])
    assert arrays.check_reals("x", given) is given
    for same in ([[1, 2]], np.array([[1, 2]], ">f8"), np.array([[1, 2]], np.uint8)):
        found = arrays.check_reals("x", same)
        assert found.dtype is FLOAT
        assert found.tolist() == [[1.0, 2.0]]
    large = arrays.check_reals("x", np.array([[10**400], [-(10**400)]], object))
    assert large.tolist() == [[np.inf], [-np.inf]]
    assert arrays.check_reals("x", np.array([HUGE])).tolist() == [np.inf]
    assert arrays.check_reals("x", []).shape == (0,)
    for wrong in ([True], [1j], ["1"], [None]):
        refused(TypeError, "^x must be", arrays.check_reals, "x", wrong)


def test_check_cost():
    assert arrays.check_cost(2, 0).shape == ()
    assert arrays.check_cost(2, [0.0, 0.5]).tolist() == [0.0, 0.5]
    refused(ValueError, "one for each of 2 workers", arrays.check_cost, 2, [0.1])
    for wrong in ([0.1, -1e-9], [np.inf, 0.0], np.nan):
        refused(ValueError, "cost must be seconds", arrays.check_cost, 2, wrong)


def test_check_vector_copies_only_if_it_must():
    given = np.arange(3.0)
    assert arrays.check_vector("x", given, FLOAT, 3) is given
    given.flags.writeable = False
    assert np.shares_memory(arrays.check_vector("x", given, FLOAT, 3), given)
    for held in (np.arange(6.0)[::2], unaligned(np.array([0.0, 2.0, 4.0]))):
        found = arrays.check_vector("x", held, FLOAT, 3)
        assert found.tolist() == [0.0, 2.0, 4.0]
        assert found.flags.c_contiguous
        assert found.flags.aligned
    for wrong, number, error, says in (
        ([1.0], 5, ValueError, r"^x 5 must have shape \(3,\)"),
        (np.arange(3), None, TypeError, "^x must have dtype float64"),
        ([[1.0] * 3], None, ValueError, r"^x must have shape \(3,\), not \(1, 3\)"),
    ):
        refused(error, says, arrays.check_vector, "x", wrong, FLOAT, 3, number=number)


def test_check_output_is_written_in_place():
    out = np.zeros(3)
    assert arrays.check_output("out", out, FLOAT, (3,)) is arrays.output_of(out, FLOAT, (3,)) is out
    assert arrays.output_of(None, FLOAT, (2, 3)).shape == (2, 3)
    view = arrays.check_output("out", memoryview(out), FLOAT, (3,))
    view[1] = 5.0
    assert out.tolist() == [0.0, 5.0, 0.0]
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    for wrong, error, says in (
        (frozen, ValueError, "read-only"),
        (np.zeros(6)[::2], ValueError, "contiguous"),
        (unaligned(np.zeros(3)), ValueError, "aligned"),
        (np.zeros(3, np.float32), TypeError, "dtype float64, not float32"),
        (np.zeros(4), ValueError, r"shape \(3,\), not \(4,\)"),
        ([0.0] * 3, TypeError, "not list"),
        (7.0, TypeError, "not float"),
        (Copier(np.zeros(3)), TypeError, "memory NumPy can view, not Copier"),
        (memoryview(bytes(24)).cast("d"), ValueError, "read-only"),
        (Exporter(frozen), ValueError, "read-only"),
        (bytearray(24), TypeError, "dtype float64, not uint8"),
    ):
        refused(error, says, arrays.check_output, "out", wrong, FLOAT, (3,))
        refused(error, says, arrays.output_of, wrong, FLOAT, (3,))


def test_check_numbers():
    for given in (np.arange(3.0), np.ones((2, 2), complex)):
        assert arrays.check_numbers("x", given) is given
    for given, dtype in (([1, 2], FLOAT), (np.ones(2, np.complex64), COMPLEX), ([0.5], FLOAT)):
        found = arrays.check_numbers("x", given)
        assert found.dtype is dtype
        np.testing.assert_array_equal(found, given)
    assert arrays.check_numbers("x", np.array([HUGE])).tolist() == [np.inf]
    for held in (np.arange(6.0).reshape(2, 3).T, unaligned(np.arange(3.0)), np.arange(6.0)[::2]):
        found = arrays.check_numbers("x", held)
        np.testing.assert_array_equal(found, held)
        assert found.flags.c_contiguous
        assert found.flags.aligned
    refused(TypeError, "x must be real .*not bool", arrays.check_numbers, "x", [True])
    refused(ValueError, "x must not be empty", arrays.check_numbers, "x", np.ones((0, 3)))
    assert arrays.check_line("x", [1]).tolist() == [1.0]
    refused(ValueError, "x must be one-dim", arrays.check_line, "x", [[1]])


def test_check_finite_names_the_first():
    arrays.check_finite("x", np.ones((2, 2)))
    wrong = np.array([[1.0, 2.0], [3.0, -np.inf], [np.nan, 4.0]])
    refused(ValueError, r"x\[1, 1\] is -inf: x must be finite", arrays.check_finite, "x", wrong)


def test_check_permutation():
    for given in ([2, 0, 1], np.array([2, 0, 1], np.uint8), np.array([2, 9, 0, 9, 1])[::2]):
        found = arrays.check_permutation("x", given, 3)
        assert found.tolist() == [2, 0, 1]
        assert found.dtype == np.int64
        assert found.flags.c_contiguous
    refused(TypeError, "x must be integers, not float64", arrays.check_permutation, "x", [1.0], 1)
    refused(ValueError, r"shape \(3,\), not \(2,\)", arrays.check_permutation, "x", [0, 1], 3)
    for outside in ([0, 1, 3], [0, 1, -1]):
        refused(ValueError, "reaches outside", arrays.check_permutation, "x", outside, 3)
    refused(ValueError, "1 is missing", arrays.check_permutation, "x", [0, 2, 2], 3)


def test_check_workers():
    given = np.array([2, 0])
    assert arrays.check_workers("x", given, 3) is given
    for same in ([2, 0], np.array([2, 0], np.uint16), (2, 0)):
        found = arrays.check_workers("x", same, 3)
        assert found.tolist() == [2, 0]
        assert found.dtype == np.int64
    assert arrays.check_workers("x", [False, True, True], 3).tolist() == [1, 2]
    assert arrays.check_workers("x", [], 3).dtype == np.int64
    refused(ValueError, "3 booleans, not 2", arrays.check_workers, "x", [True, False], 3)
    refused(ValueError, "x must be one-dim", arrays.check_workers, "x", np.zeros((1, 2), int), 3)
    refused(TypeError, "not float64", arrays.check_workers, "x", [1.0], 3)
    for other in ({0, 1}, frozenset([1]), (i for i in range(2)), {0: 1}, "01", None):
        said = f"in the order of messages, not a {type(other).__name__}"
        refused(TypeError, said, arrays.check_workers, "x", other, 3)


# ---------------------------------------------------------------------------------- imports

SOURCE = """
import array, sys
import numpy as np
import fastgc
class Torch:  # a finder of no module, but a witness
    def find_spec(self, name, *rest):
        assert name.partition(".")[0] not in ("torch", "jax", "cupy"), name
sys.meta_path.insert(0, Torch())
code = fastgc.ReedSolomon(4, stragglers=1)
messages = [memoryview(code.encode(i, np.ones((2, 6)))) for i in range(4)]
code.decode(array.array("q", range(4)), messages, array.array("d", bytes(48)))
rnd = code.round(6)
for worker, message in enumerate(messages):
    rnd.receive(worker, message)
rnd.gradient(array.array("d", bytes(48)))
try:
    rnd.gradient(object())
except TypeError:
    pass
code.encoder(0, 6, out=array.array("d", bytes(48))).add(0, array.array("d", bytes(48)))
fastgc.stability.measured_error(code, range(4))
print("torch" in sys.modules)
"""


def test_torch_is_never_imported():
    assert programs.printed(SOURCE) == "False"
