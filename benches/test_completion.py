"""Simulated rounds a second, by rule and backend, against rounds followed message by message."""

import time

import numpy as np
import pytest
from kernel_table import COMPLETIONS

import fastgc

WORKERS, MESSAGES, ROUNDS, FOLLOWED = 40, 40, 5000, 50


@pytest.mark.parametrize("backend", fastgc.backends())
@pytest.mark.parametrize("kernel", COMPLETIONS, ids=lambda k: k.name)
def test_completion(benchmark, note, kernel, backend):
    rng = np.random.default_rng(0)
    rounds = ROUNDS if backend != "numpy" else ROUNDS // 10
    arguments = kernel.make(rng, WORKERS, MESSAGES, np.float64, rounds)
    benchmark.group = f"kernel: {kernel.name}, n={WORKERS}, {MESSAGES} messages each"
    with fastgc.use_backend(backend):
        benchmark.pedantic(kernel.run, args=(arguments,), rounds=5, warmup_rounds=1)
    few = arguments | {name: arguments[name][:FOLLOWED] for name in ("delay", "work")}
    start = time.perf_counter()
    kernel.truth(few)
    followed = (time.perf_counter() - start) / FOLLOWED
    note(rule=kernel.name, backend=backend, rounds=rounds, followed_seconds=followed)
