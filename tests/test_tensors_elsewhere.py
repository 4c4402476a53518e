"""Messages that are tensors on another device are combined there, by PyTorch.

Without such a device, two properties are tested separately. Nothing is read on the host from
tensors without memory (PyTorch's "meta"). Tensors of the CPU, treated like those of another device,
decode to the same as arrays.
"""

import numpy as np
import pytest

import fastgc
from fastgc._base import arrays as _arrays
from fastgc.coding import plan

torch = pytest.importorskip("torch")

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


@pytest.fixture
def elsewhere(monkeypatch):
    """Treat all tensors like those of another device."""
    for module in (_arrays, plan):
        monkeypatch.setattr(
            module, "lies_elsewhere", lambda array: isinstance(array, torch.Tensor), raising=True
        )


def tensor(array):
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def messages_of(code, p, dtype=np.float64, message_dtype=None):
    rng = np.random.default_rng(3)
    kind = code.scheme.format(1, dtype).partial_dtype
    partials = rng.standard_normal((code.scheme.shard_count, p)).astype(kind)
    return [
        code.encode(i, partials[code.partitions(i, at)], index=at, message_dtype=message_dtype)
        for i in range(code.n)
        for at in range(code.scheme.message_counts[i])
    ]


def survivors_of(code):
    order = np.random.default_rng(1).permutation(len(messages_of(code, 2)))
    count = next(f for f in range(1, order.size + 1) if code.decodable(order[:f]))
    return order[:count]


@pytest.mark.parametrize("p", [1, 7, 8])
@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("code", CODES, ids=repr)
def test_every_verb_gives_what_arrays_give(code, kind, p, elsewhere):
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

    def check(found):
        assert isinstance(found, torch.Tensor)
        assert found.shape == (p,)
        np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)
        assert found.numpy().dtype == expected.dtype

    for options in ({}, {"check_finite": False}, {"partial": "best"}):
        check(getattr(found := code.decode(survivors, lent, p=p, **options), "gradient", found))
    check(code.decode(survivors, torch.stack(lent), p=p))
    out = torch.full((p,), 7.0, dtype=torch.from_numpy(expected).dtype)
    assert code.decode(survivors, lent, out) is out
    check(out)
    rows = torch.full((code.scheme.message_count, len(given[0])), torch.nan).to(lent[0].dtype)
    rows[torch.from_numpy(survivors)] = torch.stack(lent)
    out.fill_(7.0)
    bound = code.bind(rows, out)
    assert bound.messages is rows
    assert bound(survivors) is out
    check(out)
    form = code.scheme.format(p, dtype, given[0].dtype)
    vector = code.decoding_vector(survivors, message_dtype=form.message_dtype)
    check(code.combine(vector, survivors, lent, p=p))
    rnd = code.round(p, form.gradient_dtype, form.message_dtype, device="cpu")
    same = code.round(p, form.gradient_dtype, form.message_dtype)
    for _ in range(2):
        rnd.reset(), same.reset()
        for m, array, there in zip(survivors, chosen, lent, strict=True):
            worker, index = code.scheme.sender(int(m))
            which = () if code.scheme.message_counts[worker] == 1 else (index,)  # as users do
            assert rnd.receive(worker, there, *which) == same.receive(worker, array, *which)
        known = same.gradient()
        to = torch.full((p,), 7.0, dtype=torch.from_numpy(known).dtype)
        assert rnd.gradient(to) is to
        for found in (to, rnd.best().gradient):
            assert found.dtype == to.dtype
            np.testing.assert_allclose(found.numpy(), known, rtol=tolerance, atol=tolerance)
        mine, theirs = rnd.trust().relative_error, same.trust().relative_error
        assert mine == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("code", [CODES[0], CODES[1], CODES[2]], ids=repr)
def test_nothing_is_read_on_the_host(code):
    """Reading a tensor without memory raises."""
    given = [torch.from_numpy(m).to("meta") for m in messages_of(code, 8, np.float32)]
    survivors = survivors_of(code)
    chosen = [given[m] for m in survivors]
    for messages in (chosen, torch.stack(chosen)):
        found = code.decode(survivors, messages, p=8, check_finite=False)
        assert (found.device.type, found.dtype) == ("meta", torch.float32)
    out = torch.empty(8, device="meta")
    assert code.bind(torch.stack(given), out, check_finite=False)(survivors) is out
    with pytest.raises(Exception, match=r"meta"):  # this reads the whole gradient
        code.decode(survivors, chosen, p=8)


def test_complex_gradients(elsewhere):
    code = fastgc.ReedSolomon(4, stragglers=1)
    partials = np.random.default_rng(0).standard_normal((4, 5, 2)).view(np.complex128)[..., 0]
    given = [tensor(code.encode(i, partials[code.partitions(i)])) for i in range(4)]
    found = code.decode([3, 1, 0], [given[i] for i in (3, 1, 0)])
    np.testing.assert_allclose(found.numpy(), partials.sum(0), rtol=1e-12)


def test_rows_that_are_cut_from_others(elsewhere):
    code = CODES[1]
    given, survivors = messages_of(code, 8, np.float32), survivors_of(code)
    expected = code.decode(survivors, [given[m] for m in survivors])
    room = torch.full((6, 2, 11), torch.nan)
    odd, gaps = room[:, 0, 1:9], torch.full((6, 16), torch.nan)[:, ::2]
    for rows in (odd, gaps):
        rows[:] = torch.from_numpy(np.array(given))
        found = code.decode(survivors, [rows[m] for m in survivors])
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            code.bind(rows)(survivors).numpy(), expected, rtol=1e-5, atol=1e-5
        )
    out = torch.empty(9)[1:]
    np.testing.assert_allclose(
        code.decode(survivors, odd[survivors], out).numpy(), expected, 1e-5, 1e-5
    )


def test_out_in_a_message(elsewhere):
    code = CODES[0]
    given, survivors = [tensor(m) for m in messages_of(code, 5)], survivors_of(code)
    chosen = [given[m] for m in survivors]
    expected = code.decode(survivors, chosen).clone()
    assert torch.equal(code.decode(survivors, chosen, chosen[1]), expected)
    rows = torch.stack(given)
    with pytest.raises(ValueError, match="out shares memory with messages"):
        code.bind(rows, rows[0])
    rnd = code.round(5, device="cpu")
    for m in survivors:
        rnd.receive(int(m), given[m])
    with pytest.raises(ValueError, match="out shares memory with a message"):
        rnd.gradient(given[survivors[0]])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_named(bad, elsewhere):
    code = CODES[0]
    given = [tensor(m) for m in messages_of(code, 5)]
    survivors = [0, 1, 2, 4, 5]
    vector = code.decoding_vector(survivors)
    used, unused = (
        int(np.array(survivors)[(vector != 0) == is_used][0]) for is_used in (True, False)
    )
    given[unused][2] = bad  # it is not read
    chosen = [given[m] for m in survivors]
    assert bool(code.decode(survivors, chosen).isfinite().all())
    given[used][3] = bad
    says = f"message of worker {used} is not finite: element 3 is {bad}"
    for call in (
        lambda: code.decode(survivors, chosen),
        lambda: code.bind(torch.stack(given))(survivors),
        lambda: code.round(5, device="cpu").receive(used, given[used]),
    ):
        with pytest.raises(fastgc.NonFiniteMessageError, match=says):
            call()
    for found in (
        code.decode(survivors, chosen, check_finite=False),
        code.bind(torch.stack(given), check_finite=False)(survivors),
    ):
        assert not bool(found.isfinite().all())


def test_what_does_not_fit():
    code = CODES[0]
    given = [torch.from_numpy(m).to("meta") for m in messages_of(code, 5)]
    survivors = survivors_of(code)
    chosen = [given[m] for m in survivors]
    host = [torch.zeros(5, dtype=torch.float64), *chosen[1:]]
    rnd = code.round(5, device="meta")
    single, grad = chosen[0].float(), chosen[0].clone().requires_grad_()
    gaps = torch.empty(10, device="meta").double()[::2]
    for call, error, says in [
        (lambda: code.decode(survivors, host), TypeError, "must be a tensor on meta.*not cpu"),
        (lambda: code.decode(survivors, [*chosen[:-1], np.zeros(5)]), TypeError, "not ndarray"),
        (lambda: code.decode(survivors, chosen, np.zeros(5)), TypeError, "out must be a tensor on"),
        (lambda: code.decode(survivors, chosen, chosen[0].float()), TypeError, "dtype float64"),
        (lambda: code.decode(survivors, [*chosen[:-1], chosen[0][:4]]), ValueError, "have shape"),
        (lambda: code.decode(survivors, [*chosen[:-1], single]), TypeError, "float64, not"),
        (lambda: code.decode(survivors, [grad] * len(chosen)), TypeError, "detach"),
        (lambda: code.decode(survivors[:1], chosen[:1]), fastgc.NotDecodableError, "more"),
        (lambda: code.decode(survivors, chosen[:-1]), ValueError, "survivors, but"),
        (lambda: code.bind(torch.stack(given)[:3]), ValueError, "a row for each of 6"),
        (lambda: code.bind(torch.stack(given), np.zeros(5)), TypeError, "out must be a tensor"),
        (lambda: code.bind(torch.stack(given), gaps), ValueError, "contiguous"),
        (lambda: code.round(5, device="meta", verify=True), ValueError, "not with device=meta"),
        (lambda: rnd.receive(0, np.zeros(5)), TypeError, "of worker 0 must be a tensor on meta"),
        (lambda: code.round(5).receive(0, given[0]), TypeError, "of worker 0 cannot.*meta"),
    ]:  # fmt: skip
        with pytest.raises(error, match=f"(?s){says}"):
            call()
    assert not rnd.survivors.size


def test_a_round_refuses_what_it_has_and_starts_anew():
    code = CODES[0]
    given = [torch.from_numpy(m) for m in messages_of(code, 5)]
    rnd = code.round(5, device="cpu")
    rnd.receive(1, given[1])
    with pytest.raises(ValueError, match="worker 1 was heard already"):
        rnd.receive(1, given[1])
    with pytest.raises(ValueError, match="worker 9"):
        rnd.receive(9, given[1])
    with pytest.raises(fastgc.NotDecodableError):
        rnd.gradient()
    rnd.reset()
    for worker in (5, 4, 3, 2, 1, 0):
        rnd.receive(worker, given[worker])
    expected = code.decode([5, 4, 3, 2, 1, 0], [given[i].numpy() for i in (5, 4, 3, 2, 1, 0)])
    np.testing.assert_allclose(rnd.gradient().numpy(), expected, rtol=1e-12)


def test_trackers():
    code, seen = CODES[1], []
    given = messages_of(code, 8)
    for device in (None, "cpu"):
        tracker = fastgc.stability.StabilityTracker()
        rnd = code.round(8, tracker=tracker, device=device)
        for m in survivors_of(code):
            rnd.receive(int(m), given[m] if device is None else tensor(given[m]))
        rnd.gradient()
        seen.append([value for value in tracker.rounds[0] if isinstance(value, float)])
    assert len(seen[0]) > 1
    np.testing.assert_allclose(*seen, rtol=1e-6)
