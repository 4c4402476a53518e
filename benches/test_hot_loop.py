"""The master's cost of a round besides the gradients, in each kind of training loop.

n = 80, f = 68, p = 640, float64. Messages lie in one array before a round is timed. Every round has
other random survivors.
"""

import numba
import numpy as np
import pytest

import fastgc
from fastgc.kernels import numba as nb
from fastgc.training.optimizers import SGD

N, S, P = 80, 12, 640
F, ROUNDS, LR = N - S, 64, 1e-3
CODES = {
    "Reed-Solomon": fastgc.ReedSolomon(N, stragglers=S),
    "binary": fastgc.BinaryCode(N, stragglers=S),
}


@pytest.fixture(params=CODES)
def case(request):
    """Return a code, its messages, survivors of many rounds, and the expected gradient."""
    code, rng = CODES[request.param], np.random.default_rng(0)
    partials = rng.standard_normal((N, P))
    messages = np.array([code.encode(i, partials[code.partitions(i)]) for i in range(N)])
    arrivals = np.array([rng.permutation(N)[:F] for _ in range(ROUNDS)])
    return request.param, code, messages, arrivals, partials.sum(axis=0)


@pytest.fixture
def rounds(benchmark, note, case):
    """Benchmark ``step(survivors)``, round after round; rounds decode to `gradient`."""

    def rounds(loop, piece, step, gradient=None):
        name, _, _, arrivals, exact = case
        sets, turn = list(arrivals), iter(range(1 << 60))

        def one():
            step(sets[next(turn) % ROUNDS])

        one()
        if gradient is not None:
            np.testing.assert_allclose(gradient, exact, rtol=1e-9, atol=1e-9)
        benchmark.group = f"round, {name}"
        benchmark(one)
        note(across="code", loop=loop, piece=piece, code=name)

    return rounds


@pytest.mark.parametrize("piece", ["decoding vector", "bound decoder", "step", "round"])
def test_numpy(rounds, case, piece):
    """Time a decoder bound to the messages, and the optimizer."""
    _, code, messages, _, exact = case
    gradient, optimizer, decoder = np.empty(P), SGD(LR), code.decoder()
    decode = code.bind(messages, gradient)
    optimizer.reset(np.zeros(P))
    calls = {
        "decoding vector": (decoder, None),
        "bound decoder": (decode, gradient),
        "step": (lambda survivors: optimizer.step(exact), None),
        "round": (lambda survivors: optimizer.step(decode(survivors)), gradient),
    }
    rounds("NumPy", piece, *calls[piece])


@pytest.mark.parametrize("piece", ["receive, each", "round"])
def test_round_object(benchmark, rounds, case, piece):
    """Time a `Round`, which checks each message as it comes, while others are awaited."""
    _, code, messages, _, _ = case
    gradient, optimizer, rnd = np.empty(P), SGD(LR), code.round(P)
    optimizer.reset(np.zeros(P))
    rows = list(messages)

    def receive(survivors):
        rnd.reset()
        for worker in survivors.tolist():
            rnd.receive(worker, rows[worker])

    def step(survivors):
        receive(survivors)
        optimizer.step(rnd.gradient(gradient))

    if piece == "round":
        rounds("NumPy, Round", piece, step, gradient)
    else:
        rounds("NumPy, Round", piece, receive)
        benchmark.extra_info["calls"] = F


@numba.njit
def _train(tables, messages, arrivals, theta, vector, gradient, pieces):
    """Run rounds in a compiled loop, or pieces of them."""
    for survivors in arrivals:
        if pieces & 1:
            status, _ = nb.decoding_vector(tables, nb.SPREAD, survivors, vector)
            if status != 0:
                raise ValueError("not decodable")
        if pieces & 2:
            nb.combine_rows(vector, messages, gradient, survivors)
        if pieces & 4:
            theta -= LR * gradient


@pytest.mark.parametrize("case", ["Reed-Solomon"], indirect=True)
@pytest.mark.parametrize(
    ("piece", "pieces"), [("decoding vector", 1), ("combine_rows", 2), ("step", 4), ("round", 7)]
)
def test_compiled(benchmark, note, case, piece, pieces):
    """Time the whole loop in nopython mode."""
    name, code, messages, arrivals, exact = case
    theta, vector, gradient = np.zeros(P), np.empty(F, complex), np.empty(P)
    _train(code.scheme.tables, messages, arrivals, theta, vector, gradient, 7)
    np.testing.assert_allclose(gradient, exact, rtol=1e-9, atol=1e-9)
    benchmark.group = f"round, {name}"
    benchmark(_train, code.scheme.tables, messages, arrivals, theta, vector, gradient, pieces)
    note(across="code", loop="@njit", piece=piece, code=name, calls=ROUNDS)


@pytest.mark.parametrize("piece", ["bound decoder", "round", "torch.optim.SGD", "round with it"])
def test_torch(rounds, case, piece):
    """Time tensors as messages, gradient and parameters, with our step or PyTorch's.

    The many small calls of PyTorch's optimizer and the decoder evict each other from the caches, so
    a round takes longer than the sum of both.
    """
    torch = pytest.importorskip("torch")
    _, code, messages, _, _ = case
    theta = torch.nn.Parameter(torch.zeros(P, dtype=torch.float64))
    theta.grad = torch.empty_like(theta)
    decode = code.bind(torch.from_numpy(messages), theta.grad)
    step = torch.optim.SGD([theta], LR, foreach=False).step
    ours = SGD(LR)
    ours.reset(theta.detach())

    def by_torch(survivors):
        decode(survivors)
        step()

    calls = {
        "bound decoder": (decode, theta.grad),
        "round": (lambda survivors: ours.step(decode(survivors)), theta.grad),
        "torch.optim.SGD": (lambda survivors: step(), None),
        "round with it": (by_torch, theta.grad),
    }
    rounds("PyTorch", piece, *calls[piece])
