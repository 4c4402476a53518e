"""Times after the last arrival: vectors kept current, against vectors computed then."""

import time

import numpy as np
import pytest

import fastgc
from fastgc.codes.reed_solomon import worth_following

pytestmark = pytest.mark.filterwarnings("ignore::fastgc.errors.InstabilityWarning")

SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
ROUNDS = 15


def case(n):
    code = fastgc.ReedSolomon(n, stragglers=n // 8)
    if code.scheme.cache is not None:
        code.scheme.cache.nbytes = 0  # these survivors come again and again
    return code, np.random.default_rng(n).permutation(n)[: code.threshold].astype(np.int64)


def median(call, setup=lambda: None, rounds=ROUNDS):
    times = []
    for _ in range(rounds + 1):
        setup()
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


@pytest.mark.parametrize("backend", fastgc.backends())
@pytest.mark.parametrize("n", SIZES)
def test_stream(benchmark, note, n, backend):
    """Time the last arrival, and the vector after it."""
    code, survivors = case(n)
    last = int(survivors[-1])
    with fastgc.use_backend(backend):
        stream, direct = code.stream(survivors), code.decoder()

        def last_arrives():
            stream.arrive(last)
            return stream.vector()

        benchmark.group = f"last arrival, n={n}"
        vector = benchmark.pedantic(
            last_arrives, setup=lambda: stream.depart(last), rounds=ROUNDS, warmup_rounds=2
        )
        truth = code.decoding_vector(stream.members, "locator")
        note(
            streamed=n,
            backend=backend,
            direct_seconds=median(lambda: direct(survivors)),
            event_seconds=median(lambda: stream.arrive(last), lambda: stream.depart(last)),
            error=float((np.abs(vector - truth) / np.abs(truth)).max()),
        )


@pytest.mark.parametrize("backend", fastgc.backends())
@pytest.mark.parametrize("n", SIZES)
def test_round(benchmark, note, n, backend):
    """Time a round's last message, of two numbers, and its gradient, if following vectors pays."""
    code, survivors = case(n)
    if not worth_following(code):
        pytest.skip("rounds of this code do not follow their vectors")
    messages = list(np.random.default_rng(n).standard_normal((n, 2)))
    *others, last = survivors.tolist()
    with fastgc.use_backend(backend):
        rounds = {"followed": code.round(2), "direct": code.round(2)}
        rounds["direct"]._follower = None
        gradients = {name: np.empty(2) for name in rounds}

        def all_but_one(name):
            rounds[name].reset()
            for worker in others:
                rounds[name].receive(worker, messages[worker])

        def last_comes(name):
            rounds[name].receive(last, messages[last])
            rounds[name].gradient(gradients[name])

        benchmark.group = f"last message, n={n}"
        benchmark.pedantic(
            last_comes,
            args=("followed",),
            setup=lambda: all_but_one("followed"),
            rounds=ROUNDS,
            warmup_rounds=1,
        )
        note(
            followed=n,
            backend=backend,
            direct_seconds=median(lambda: last_comes("direct"), lambda: all_but_one("direct")),
        )
    np.testing.assert_allclose(*gradients.values(), rtol=1e-6)
