"""Messages that are tensors on another device are combined there, by PyTorch.

Without such a device, two properties are tested separately. Nothing is read on the host from
tensors without memory (PyTorch's "meta"). Tensors of the CPU decode to the same as arrays.
"""

import numpy as np
import pytest

import fastgc

torch = pytest.importorskip("torch")
from fastgc.torch import decode  # noqa: E402

CODES = [
    fastgc.BinaryCode(6, stragglers=2),
    fastgc.ReedSolomon(6, stragglers=2),
    fastgc.ReedSolomon(6, stragglers=1, packed=False),
    fastgc.CyclicRepetition(6, stragglers=2),
    fastgc.LagrangeCode(8, load=2),
    fastgc.Uncoded(4),
]
MESSAGES = {
    "float32": (np.float32, None),
    "float64": (np.float64, None),
    "float16": (np.float32, "float16"),
    "bfloat16": (np.float32, "bfloat16"),
    "wider": (np.float32, np.float64),
}


def tensor(array):
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def messages_of(code, p, dtype=np.float64, message_dtype=None):
    rng = np.random.default_rng(3)
    kind = code.scheme.format(1, dtype).partial_dtype
    partials = rng.standard_normal((code.scheme.data.shards, p)).astype(kind)
    return [
        code.encode(i, partials[code.partitions(i, at)], index=at, message_dtype=message_dtype)
        for i in range(code.n)
        for at in range(code.scheme.messages.counts[i])
    ]


def survivors_of(code):
    order = np.random.default_rng(1).permutation(len(messages_of(code, 2)))
    count = next(f for f in range(1, order.size + 1) if code.decodable(order[:f]))
    return order[:count]


@pytest.mark.parametrize("p", [1, 7, 8])
@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_tensors_decode_to_what_arrays_give(code, kind, p):
    dtype, message_dtype = MESSAGES[kind]
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    try:
        given = messages_of(code, p, dtype, message_dtype)
    except TypeError:
        pytest.skip("no messages of this dtype")
    survivors = survivors_of(code)
    chosen = [given[m] for m in survivors]
    expected = code.decode(survivors, chosen, p=p)
    lent = [tensor(m) for m in chosen]
    tolerance = 1e-12 if expected.dtype == np.float64 else 3e-5
    out = torch.full((p,), 7.0, dtype=torch.from_numpy(expected).dtype)
    for found in (
        decode(code, survivors, lent, p=p),
        decode(code, survivors, torch.stack(lent), p=p, check_finite=False),
        decode(code, survivors, lent, out),
    ):
        assert isinstance(found, torch.Tensor)
        assert found.numpy().dtype == expected.dtype
        assert found.shape == (p,)
        np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)
    assert found is out


@pytest.mark.parametrize("code", [CODES[0], CODES[1], CODES[2]], ids=repr)
def test_nothing_is_read_on_the_host(code):
    """Reading a tensor without memory raises."""
    given = [torch.from_numpy(m).to("meta") for m in messages_of(code, 8, np.float32)]
    survivors = survivors_of(code)
    chosen = [given[m] for m in survivors]
    for messages in (chosen, torch.stack(chosen)):
        found = decode(code, survivors, messages, p=8, check_finite=False)
        assert (found.device.type, found.dtype) == ("meta", torch.float32)
    out = torch.empty(8, device="meta")
    assert decode(code, survivors, chosen, out, check_finite=False) is out
    with pytest.raises(Exception, match=r"meta"):  # this reads the whole gradient
        decode(code, survivors, chosen, p=8)


def test_complex_gradients():
    code = fastgc.ReedSolomon(4, stragglers=1)
    partials = np.random.default_rng(0).standard_normal((4, 5, 2)).view(np.complex128)[..., 0]
    given = [tensor(code.encode(i, partials[code.partitions(i)])) for i in range(4)]
    found = decode(code, [3, 1, 0], [given[i] for i in (3, 1, 0)])
    np.testing.assert_allclose(found.numpy(), partials.sum(0), rtol=1e-12)


def test_rows_that_are_cut_from_others():
    code = CODES[1]
    given, survivors = messages_of(code, 8, np.float32), survivors_of(code)
    expected = code.decode(survivors, [given[m] for m in survivors])
    room = torch.full((6, 2, 11), torch.nan)
    odd, gaps = room[:, 0, 1:9], torch.full((6, 16), torch.nan)[:, ::2]
    for rows in (odd, gaps):
        rows[:] = torch.from_numpy(np.array(given))
        found = decode(code, survivors, [rows[m] for m in survivors])
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
    found = decode(code, survivors, odd[survivors], torch.empty(9)[1:])
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_named(bad):
    code = CODES[0]
    given = [tensor(m) for m in messages_of(code, 5)]
    survivors = [0, 1, 2, 4, 5]
    vector = code.decoding_vector(survivors)
    used, unused = (
        int(np.array(survivors)[(vector != 0) == is_used][0]) for is_used in (True, False)
    )
    given[unused][2] = bad  # it is not read
    chosen = [given[m] for m in survivors]
    assert bool(decode(code, survivors, chosen).isfinite().all())
    given[used][3] = bad
    says = f"message of worker {used} is not finite: element 3 is {bad}"
    with pytest.raises(fastgc.NonFiniteMessageError, match=says):
        decode(code, survivors, chosen)
    assert not bool(decode(code, survivors, chosen, check_finite=False).isfinite().all())


def test_what_does_not_fit():
    code = CODES[0]
    given = [torch.from_numpy(m).to("meta") for m in messages_of(code, 5)]
    survivors = survivors_of(code)
    chosen = [given[m] for m in survivors]
    host = [*chosen[:-1], torch.zeros(5, dtype=torch.float64)]
    single, grad = chosen[0].float(), chosen[0].clone().requires_grad_()
    gaps = torch.empty(10, device="meta").double()[::2]
    for messages, out, error, says in [
        (host, None, TypeError, "must be on meta.*not on cpu"),
        ([*chosen[:-1], np.zeros(5)], None, TypeError, "not ndarray"),
        (chosen, np.zeros(5), TypeError, "out must be tensors, not ndarray"),
        (chosen, single, TypeError, "out must have dtype float64"),
        (chosen, gaps, ValueError, "out must be contiguous"),
        ([*chosen[:-1], chosen[0][:4]], None, ValueError, "have shape"),
        ([*chosen[:-1], single], None, TypeError, "float64, not"),
        ([grad] * len(chosen), None, TypeError, "detach"),
        (chosen[:-1], None, ValueError, "survivors, but"),
    ]:
        with pytest.raises(error, match=f"(?s){says}"):
            decode(code, survivors, messages, out)
    with pytest.raises(fastgc.NotDecodableError, match="more"):
        decode(code, survivors[:1], chosen[:1])
    with pytest.raises(fastgc.NotDecodableError):
        decode(code, [], [])
    with pytest.raises(TypeError, match=r"of worker 0 cannot.*meta"):
        code.round(5).receive(0, given[0])
