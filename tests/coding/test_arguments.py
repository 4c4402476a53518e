"""Arguments that are accepted or refused; refusing writes nothing."""

import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest
from tables import encoded, partial_gradients

import fastgc
from fastgc import NonFiniteMessageError, NotDecodableError, Reactive, ReedSolomon, Uncoded, errors
from fastgc.coding.arguments import Recorded, arguments_of, check_sizes, shown, unasked

P = 5
PACKED = ReedSolomon(6, 5, stragglers=2)  # reads every message that came
EXPANDED = ReedSolomon(6, 5, stragglers=2, packed=False)
PLAIN = Uncoded(6, 12, tolerance=0.5)
EVERY_CODE = pytest.mark.parametrize(
    "code", [PACKED, EXPANDED, PLAIN], ids=["packed", "expanded", "uncoded"]
)


def canary(size, dtype):
    return np.full(size, 7, dtype)


def misaligned(array):
    found = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype)
    found[:] = array
    return found


def bad_outputs(size, dtype):
    """Yield outputs that must be refused for a vector of this size and dtype, and the error."""
    read_only = canary(size, dtype)
    read_only.flags.writeable = False
    other = np.dtype(np.float32 if dtype == np.float64 else np.float64)
    return [
        (read_only, ValueError, "out is read-only: it must be writable"),
        (canary(2 * size, dtype)[::2], ValueError, "out must be contiguous: it has strides"),
        (canary(size, dtype)[::-1], ValueError, "out must be contiguous"),
        (misaligned(canary(size, dtype)), ValueError, "out must be aligned"),
        (canary(size, other), TypeError, f"out must have dtype {np.dtype(dtype)}, not {other}"),
        (canary(size, np.dtype(dtype).newbyteorder()), TypeError, "out must have dtype"),
        (canary(size + 1, dtype), ValueError, rf"out must have shape \({size},\), not"),
        (canary((1, size), dtype), ValueError, rf"out must have shape \({size},\), not"),
        (
            [7.0] * size,
            TypeError,
            "out must be an array whose memory NumPy can view, not list",
        ),
    ]


# ----------------------------------------------------------------------------------- encode


@EVERY_CODE
def test_encode_refuses(code):
    good = partial_gradients(code, P)[: len(code.partitions(1))]
    w = len(good)
    for worker, partials, error, says in [
        (6, good, ValueError, "worker 6 does not exist: they are numbered 0 to 5"),
        (-1, good, ValueError, "worker -1 does not exist"),
        (1, good[1:], ValueError, f"computes {w} partial gradients, but {w - 1} were given"),
        (1, good[:, None], ValueError, r"must be a vector, not of shape \(1, 5\)"),
        (1, good[:, 0], ValueError, r"must be a vector, not of shape \(\)"),
        (1, good[:, :0], ValueError, "p must be at least 1, not 0"),
        (1, good.astype(int), TypeError, "bfloat16, not int64: convert integers"),
        (1, [*good[:-1], good[-1][:-1]], ValueError, f"partial gradient {w - 1} must have shape"),
        (
            1,
            [*good[:-1], good[-1].astype(np.float32)],
            TypeError,
            f"partial gradient {w - 1} must have dtype float64, not float32",
        ),
    ]:
        out = canary(code.message_size(P), code.scheme.format(1, np.float64).message_dtype)
        for given in (partials, list(partials)):
            code.encode(1, list(good) if given is not partials else good)  # prepares a way
            with pytest.raises(error, match=says):
                code.encode(worker, given, out)
            assert (out == 7).all()


def test_encode_over_a_partial_gradient_is_refused():
    given = list(partial_gradients(PACKED, 6)[:3])
    before = np.array(given)
    for partials, out in ((given, given[1]), (stacked := np.array(given), stacked[-1])):
        with pytest.raises(ValueError, match="out shares memory with a partial gradient"):
            PACKED.encode(0, partials, out)
        np.testing.assert_array_equal(partials, before)


def test_unpacked_codes_want_real_gradients():
    partials = partial_gradients(EXPANDED, P)[EXPANDED.partitions(0)]
    with pytest.raises(TypeError, match="use packed=True"):
        EXPANDED.encode(0, partials.astype(complex))
    with pytest.raises(TypeError, match="use packed=True"):
        EXPANDED.round(P, np.complex64)
    with pytest.raises(TypeError, match="messages of this code must be complex, not float64"):
        EXPANDED.decode(range(6), np.ones((6, P)))


def test_sizes_and_dtypes_of_messages():
    for p in (1, 2, 7, 8):
        assert PACKED.message_size(p) == p + p % 2
        assert PACKED.message_size(p, np.complex64) == p
        assert EXPANDED.message_size(p) == PLAIN.message_size(p) == p
    for code, dtype, sent in (
        (PACKED, "f4", "f4"),
        (PLAIN, "f4", "f4"),
        (EXPANDED, "f4", "c8"),
        (EXPANDED, "f8", "c16"),
        (PACKED, "c8", "c8"),
    ):
        assert code.scheme.format(1, dtype).message_dtype == np.dtype(sent)
    for p, error in [(0, ValueError), (-1, ValueError), (2.0, TypeError)]:
        with pytest.raises(error, match="gradient dimension p must be"):
            PACKED.message_size(p)


# ----------------------------------------------------------------------------------- decode


@EVERY_CODE
def test_decode_refuses(code):
    messages = np.array(encoded(code, partial_gradients(code, P)))
    size = messages.shape[1]
    everyone = list(range(6))
    ragged = [*messages[:5], messages[5][:-1]]
    halves = messages.astype(np.result_type(messages.dtype, np.complex64)).astype(np.complex64)
    halves = halves if messages.dtype.kind == "c" else messages.astype(np.float32)
    for survivors, given, error, says in [
        (everyone, messages[:5], ValueError, "6 survivors, but 5 messages"),
        (everyone[:5], messages, ValueError, "5 survivors, but 6 messages"),
        ([0, 1, 2, 3, 4, 4], messages, ValueError, r"survivors\[5\] names worker 4 a second time"),
        ([0, 1, 2, 3, 4, 6], messages, ValueError, r"survivors\[5\] is 6"),
        ([0.0, 1, 2, 3, 4, 5], messages, TypeError, "survivors must be integers"),
        ([0], messages[:1], NotDecodableError, "at least . more message"),
        ([], [], NotDecodableError, "at least . more messages are needed"),
        (everyone, ragged, ValueError, r"message of worker 5 must have shape"),
        (everyone, [*messages[:5], halves[5]], TypeError, "message of worker 5 must have dtype"),
        (everyone, messages[:, : size - 2], ValueError, "must have . elements, not"),
        (everyone, messages[:, None], ValueError, r"a message must be a vector, not of shape"),
        (everyone, messages.real.astype(int), TypeError, "dtypes float32, float64"),
    ]:
        out = canary(P, np.float64)
        for rows in (given, list(given)):
            code.decode(everyone, messages if rows is given else list(messages))  # prepares a way
            with pytest.raises(error, match=says):
                code.decode(survivors, rows, out)
            assert (out == 7).all()
    for options, error, says in [
        ({"p": 9}, ValueError, "for a gradient of 9 elements must have"),
        ({"p": 0}, ValueError, "p must be at least 1"),
        ({"p": 5.0}, TypeError, "p must be an integer"),
        ({"method": "none"}, ValueError, "method"),
        ({"check_finite": 2.0}, TypeError, "check_finite must be True or False"),
        ({"check_finite": []}, TypeError, "check_finite must be True or False"),
    ]:
        for rows in (messages, list(messages)):
            with pytest.raises(error, match=says):
                code.decode(everyone, rows, out, **options)
            assert (out == 7).all()


@EVERY_CODE
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_decode_names_who_sent_nonsense(code, bad):
    good = encoded(code, partial_gradients(code, P))
    order = [5, 0, 2, 1, 4, 3]
    for at, worker in enumerate(order):
        for element in (0, P - 1):
            messages = [good[i].copy() for i in order]
            messages[at][element] = bad
            says = f"the message of worker {worker} is not finite: element {element} is "
            for given in (messages, np.array(messages)):
                before, out = [row.copy() for row in given], np.empty(P)
                with pytest.raises(NonFiniteMessageError, match=says) as caught:
                    code.decode(order, given, out)
                assert caught.value.worker == worker
                if given[0].dtype == out.dtype:  # in this case nothing is written
                    with pytest.raises(NonFiniteMessageError, match=says):
                        code.decode(order, given, given[0][:P])
                for row, as_it_was in zip(given, before, strict=True):
                    np.testing.assert_array_equal(row, as_it_was)
                with pytest.raises(NonFiniteMessageError):
                    code.decode(order, given, p=P)
            out = code.decode(order, messages, p=P, check_finite=False)
            assert not np.isfinite(out).all()


@pytest.mark.parametrize("out", [None, np.zeros(4)], ids=["new", "out"])
def test_a_sum_that_overflows_is_no_fault_of_a_message(out):
    """Every message is finite, but the gradient is not, and it is returned as it is."""
    messages = np.full((2, 4), np.finfo(float).max)
    assert (Uncoded(2).decode([0, 1], messages, out) == np.inf).all()


# -------------------------------------------------------------------------------------- outputs


def verbs(code):
    """Return what each verb that writes to `out` writes, and a function that calls it."""
    partials = partial_gradients(code, P)
    messages, held = encoded(code, partials), partials[code.partitions(1)]
    rnd = code.round(P)
    for worker, message in enumerate(messages):
        rnd.receive(worker, message)

    def stream(out):
        encoder = code.encoder(1, P, out=out)
        for j, g in zip(code.partitions(1).tolist(), held, strict=True):
            encoder.add(j, g)
        return encoder.message()

    everyone = range(6)
    vector, gradient = code.decoding_vector(everyone), code.decode(everyone, messages, p=P)
    return {
        "encode": (messages[1], lambda out: code.encode(1, held, out)),
        "bind_encoder": (messages[1], lambda out: code.bind_encoder(1, held, out)()),
        "encoder": (messages[1], stream),
        "decode": (gradient, lambda out: code.decode(everyone, messages, out, p=P)),
        "unchecked": (
            gradient,
            lambda out: code.decode(everyone, messages, out, p=P, check_finite=False),
        ),
        "bind": (gradient, lambda out: code.bind(np.array(messages), out, p=P)(everyone)),
        "gradient": (gradient, rnd.gradient),
        "best": (gradient, lambda out: rnd.best(out).gradient),
        "decoding_vector": (vector, lambda out: code.decoding_vector(everyone, out=out)),
    }


@EVERY_CODE
@pytest.mark.parametrize("verb", verbs(PACKED))
def test_outputs(code, verb):
    wanted, call = verbs(code)[verb]
    for out, error, says in bad_outputs(wanted.size, wanted.dtype):
        with pytest.raises(error, match=says):
            call(out)
        assert (np.asarray(out) == 7).all()
    room = canary(wanted.size + 4, wanted.dtype)
    given = room[2:-2]
    assert call(given) is given
    np.testing.assert_allclose(given, wanted, rtol=1e-12, atol=1e-12)
    assert (room[[0, 1, -2, -1]] == 7).all()


@EVERY_CODE
def test_decoding_vector_of_too_few_writes_nothing(code):
    out = canary(1, code.decoding_vector(range(6)).dtype)
    with pytest.raises(NotDecodableError):
        code.decoding_vector([0], out=out)
    assert (out == 7).all()


@EVERY_CODE
def test_no_such_worker(code):
    for ask in (code.partitions, code.coefficients, lambda i: code.encoder(i, P)):
        with pytest.raises(ValueError, match="worker 6 does not exist"):
            ask(6)
        with pytest.raises(TypeError, match="worker must be an integer"):
            ask("0")


@EVERY_CODE
def test_a_vector_of_another_length_has_no_residual(code):
    survivors = np.arange(code.scheme.messages.count)
    vector = code.decoding_vector(survivors)
    assert code.residual(survivors, vector) <= 1e-9
    for wrong in (vector[:-1], np.append(vector, 1.0)):
        with pytest.raises(ValueError, match="vector must have shape"):
            code.residual(survivors, wrong)


def test_coefficients_cannot_be_spoilt():
    """Arrays that a code caches are read-only for callers."""
    loads = fastgc.LinearCode([[1, 1], [1, 0]]).scheme.loads
    for array in (PACKED.coefficients(0), PACKED.partitions(0), loads):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(
    ("kind", "given", "name"),
    [
        (errors.NotDecodableError, 3, "missing"),
        (errors.UnverifiedError, 3, "missing"),
        (errors.NonFiniteMessageError, 4, "worker"),
        (errors.WorkerFailedError, 5, "worker"),
        (errors.CorruptMessageError, (1, 4), "suspects"),
    ],
)
def test_errors_cross_processes(kind, given, name):
    error = pickle.loads(pickle.dumps(kind("what happened", given)))
    assert (str(error), getattr(error, name)) == ("what happened", given)


# ----------------------------------------------------------- objects that remember their arguments


class Pair(Recorded):
    def __init__(self, first, second=2, *, third=None):
        pass


def test_recorded_objects_are_their_arguments():
    array = np.arange(3.0)
    same = [Pair(1), Pair(1, 2), Pair(second=2, first=1), Pair(np.int64(1), third=None)]
    others = [Pair(2), Pair(1, 3), Pair(1, third=()), Pair([1]), Pair((1, 2)), Pair({"a": [1]})]
    assert len(set(same)) == 1
    assert all(one == other for one in same for other in same)
    assert len(set(same + others)) == 1 + len(others)
    assert not any(same[0] == other for other in (*others, 1, "Pair(first=1)", type(Pair(1))))
    assert Pair([1, [2]]) == Pair((1, (2,))) != Pair([1, 2])
    assert Pair({"a": 1, "b": 2}) == Pair({"b": 2, "a": 1}) != Pair({"a": 1, "b": 3})

    class Other(Pair):
        pass

    assert Other(1) != Pair(1)
    made = Pair(array)
    array[0] = 5  # the caller's
    assert made == Pair(np.array([0.0, 1, 2])) != Pair(array)
    assert arguments_of(made)["first"].tolist() == [0, 1, 2]
    assert arguments_of(Pair(1, third=3)) == {"first": 1, "third": 3}
    again = pickle.loads(pickle.dumps(made))
    assert (again, repr(again)) == (made, "Pair(first=[0.0, 1.0, 2.0])")
    assert str(inspect.signature(Pair)) == "(first, second=2, *, third=None)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.arange(12), str([*range(12)])),
        (np.zeros((13, 1), np.float32), "<float32 array of shape (13, 1)>"),
        ([*range(12)], str([*range(12)])),
        ([*range(13)], f"[{', '.join(map(str, range(12)))}, … 13 in all]"),
        ((1,), "(1,)"),
        ((1, "a"), "(1, 'a')"),
        ([[*range(12)], [1]], f"[{[*range(12)]}, [1]]"),
        ([[*range(13)], [1]], "<2 lists>"),
        ([], "[]"),
        ("text", "'text'"),
    ],
)
def test_shown(value, text):
    assert shown(value) == text


def test_warns_once_of_each_code_that_is_made():
    """Copies do not warn, nor codes that somebody else will check; strict ones raise there, too."""
    given = {"n": 128, "stragglers": 12, "root": 1}

    def made():
        with pytest.warns(fastgc.InstabilityWarning):
            return ReedSolomon(**given)

    code = made()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pickle.loads(pickle.dumps(code)) == code
        with unasked():
            assert ReedSolomon(**given) == code
            with pytest.raises(fastgc.UnstableCodeError):
                ReedSolomon(**given, strict=True)
    assert made() == code


def test_check_sizes():
    assert check_sizes(1, 1) == check_sizes(1, None, at_least_n=True) == (1, 1)
    assert check_sizes(3, 2) == (3, 2)
    for n, k, least in (
        (0, 1, False),
        (1, 0, False),
        (3, 2, True),
        (2**31, 1, False),
        (1, 2**63, False),
    ):
        with pytest.raises(ValueError, match=f"n={n}"):
            check_sizes(n, k, at_least_n=least)


def test_decode_takes_a_true_number_for_true():
    """C adds `check_finite` to its other flags."""
    messages = np.array(encoded(PACKED, partial_gradients(PACKED, P)))
    gradient = PACKED.decode(range(6), messages, p=P)
    for check in (1, 2, 4, -8, np.True_):
        assert (PACKED.decode(range(6), messages, p=P, check_finite=check) == gradient).all()
        assert (PACKED.bind(messages, p=P, check_finite=check)(range(6)) == gradient).all()
    with pytest.raises(TypeError, match="check_finite must be True or False"):
        PACKED.bind(messages, p=P, check_finite=np.float32(2))


def test_decode_takes_messages_in_order():
    messages = encoded(PACKED, partial_gradients(PACKED, P))
    for given in (iter(messages), dict(enumerate(messages)), {1.0}, np.array(1.0), np.float64(1)):
        with pytest.raises(TypeError, match="messages must be an array or a list, in order"):
            PACKED.decode(range(6), given)
        with pytest.raises(TypeError, match="gradients must be an array or a list, in order"):
            PACKED.encode(0, given)


def test_uncopied_shares_no_memory():
    """A copy of a round would take its messages into the memory of the other one."""
    code = PACKED
    made = [
        *(code.round(P), code.round(P, verify=1), Reactive(6, holders=2).round(P), code.decoder()),
        *(code.encoder(0, P), code.bind(np.zeros((6, 6)))),
        code.bind_encoder(0, np.zeros((len(code.partitions(0)), 6))),
    ]
    for one in made:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"a {type(one).__name__} can be neither copied"):
                copied(one)


@pytest.mark.parametrize("given", ["no", "maybe", None, 1.0, [], np.zeros(0)], ids=repr)
def test_flags_are_true_or_false(given):
    """Others than "" would count as True."""
    nodes, held = np.arange(1.0, 4), [[0, 1], [1, 0]]
    for name, call in {
        "packed": lambda: ReedSolomon(4, stragglers=1, packed=given),
        "packed ": lambda: fastgc.LinearCode(np.eye(3), packed=given),
        "rescale": lambda: Uncoded(4, rescale=given),
        "ordered": lambda: fastgc.PartialWork(2, assignment=held, ordered=given),
        "transpose": lambda: fastgc.vandermonde.solve(nodes, nodes, given),
        "interrupted": lambda: fastgc.simulation.simulate(PACKED, interrupted=given),
        "relative": lambda: fastgc.optimizers.CADA(3, relative=given),
        "bias": lambda: fastgc.models.LinearRegression(3, bias=given),
    }.items():
        with pytest.raises(TypeError, match=f"{name.strip()} must be True or False, not "):
            call()
