"""A round of a thousand workers, some of whom lie, beside a round without verification.

``pytest benches/test_liars.py``. Messages come in a random order. A round ends as soon as its
gradient can be decoded; with `verify`, once it is verified. Such a round inspects the messages
several times; one inspection of all messages, which names all liars, is timed beside it.
"""

import statistics
import time

import numpy as np
import pytest

from fastgc import BinaryCode, FractionalRepetition, ReedSolomon

N, P, LIARS = 1000, 20, 10
CODES = {
    "rs": ReedSolomon(N, stragglers=30),
    "rs, 10 clusters": ReedSolomon(N, stragglers=30, clusters=10),
    "fractional": FractionalRepetition(N, stragglers=24),
    "binary": BinaryCode(N, stragglers=30),
}


@pytest.mark.parametrize("verify", [0, LIARS])
@pytest.mark.parametrize("name", CODES)
def test_round(benchmark, note, name, verify):
    benchmark.group = f"round of {N} workers, {LIARS} liars: {name}"
    code, rng = CODES[name], np.random.default_rng(0)
    partials = rng.standard_normal((code.k, P))
    sent = [code.encode(worker, partials[code.partitions(worker)]) for worker in range(N)]
    rnd = code.round(P, verify=verify)

    def drawn():
        liars, messages = rng.permutation(N)[:LIARS] if verify else [], list(sent)
        for worker in liars:
            messages[worker] = sent[worker] + rng.standard_normal(P)
        return (rng.permutation(N).tolist(), messages), {}

    def receive(worker, message):
        return rnd.receive(worker, message, energy=float(message @ message))

    def play(order, messages):
        rnd.reset()
        for worker in order:
            if rnd.wants(worker) and receive(worker, messages[worker]):
                break
        return rnd.gradient()

    gradient = benchmark.pedantic(play, setup=drawn, rounds=5, warmup_rounds=1)
    np.testing.assert_allclose(gradient, partials.sum(axis=0), atol=1e-6)
    if not verify:
        return
    settled, looks, seconds = rnd._settled, [], []
    inspect = rnd._inspector.inspect

    def counted(survivors, at):
        looks.append(survivors.size)
        return inspect(survivors, at)

    for _ in range(5):
        (order, messages), _ = drawn()
        rnd._inspector.inspect = counted
        play(order, messages)
        rnd._inspector.inspect = inspect
        rnd.reset()
        rnd._settled = lambda: False
        for worker in order:
            receive(worker, messages[worker])
        begin = time.perf_counter()
        named = rnd.corrupt
        seconds.append(time.perf_counter() - begin)
        rnd._settled = settled
        assert len(named) == LIARS
    note(code=name, looks=len(looks) / 5, times={"one look": statistics.median(seconds)})
