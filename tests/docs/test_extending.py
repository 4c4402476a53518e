"""The pages on adding your own parts show the files of docs/examples, and these work."""

import math
import re
import threading

import numpy as np
import pytest
from examples import EXAMPLES, ROOT, example

import fastgc
from fastgc.delays.interface import described
from fastgc.engines import LocalCluster, SimulatedCluster
from fastgc.testing import codes as of_codes
from fastgc.testing import engines as of_engines

RandomShifts = example("own_code").RandomShifts
Approximation = example("own_approximation")
Bursts = example("own_delay_model").Bursts
ThreadCluster = example("own_engine").ThreadCluster


@pytest.mark.parametrize("name", ["code", "approximation", "delay_model", "engine"])
def test_pages_show_the_files(name):
    page = (ROOT / "docs" / "extending" / f"{name}.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```python\n(# \w+\.py\n.*?)^```", page, re.M | re.S)
    assert shown == (EXAMPLES / f"own_{name}.py").read_text(encoding="utf-8")


def test_the_code():
    code = RandomShifts(12, load=3, stragglers=4)
    of_codes.check(code, engines=["simulated"], report=lambda line: None)
    assert code.load == 3
    assert code.residual(range(8)) > 0.1 > 1e-12 > code.residual(range(12))
    with pytest.raises(ValueError, match="load must be between 1 and n=12, got 13"):
        RandomShifts(12, load=13, stragglers=4)


def test_the_approximate_code_in_few_lines():
    code, delays = Approximation.Permuted(12, load=2, wait=9), Approximation.Weibull(shape=2.0)
    of_codes.check(code, engines=["simulated"], report=lambda line: None)
    assert 0.2 < code.residuals().mean < 0.4
    drawn = np.array([delays.sample(r, 400, 3) for r in range(50)])
    assert drawn.mean() == pytest.approx(0.01 * math.gamma(1.5), rel=0.05)
    lines = (EXAMPLES / "own_approximation.py").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line) for line in lines) <= 25


def test_the_delay_model():
    model = Bursts(share=0.3, length=10, slow=1.0, usual=0.001)
    drawn = np.array([model.sample(r, 50, 7) for r in range(200)])
    np.testing.assert_array_equal(drawn[3], model.sample(3, 50, 7))
    slow = drawn.reshape(20, 10, 50).mean(axis=1) > 0.05
    assert 0.25 < slow.mean() < 0.35
    assert (slow[0] != slow[1]).any()
    assert len(np.unique(drawn)) == drawn.size
    assert described(model) == "own_delay_model.Bursts(share=0.3, length=10, slow=1.0, usual=0.001)"
    code = fastgc.ReedSolomon(50, stragglers=6)
    found = fastgc.simulation.simulate(code, model, rounds=200, seed=7)
    np.testing.assert_allclose(found.times, np.sort(drawn)[:, 43])
    assert found.mean_exists is True
    with pytest.raises(ValueError, match="share must be between 0 and 1, got 2"):
        Bursts(share=2)
    with pytest.raises(ValueError, match="length must be at least 1, got 0"):
        Bursts(length=0)


# The master decides how long a round waits; test_conformance.py tests this with processes.
WAITING = {of_engines.rounds_of_ones_own_end_when_they_say, of_engines.rounds_time_out}


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, id=check.__name__, marks=pytest.mark.long if check in WAITING else ())
        for check in of_engines.CHECKS
    ],
)
def test_the_engine(check):
    check(ThreadCluster)


def test_a_late_thread_leaves_a_round_between_two_messages():
    may_go = [threading.Event(), threading.Event()]
    late = threading.Event()  # worker 1 computes for round 0; otherwise it might skip that round

    def gradient(theta, shard, out):
        worker = int(threading.current_thread().name.removeprefix("worker "))
        late.set() if worker else late.wait()
        may_go[worker].wait()
        out[:] = theta * shard

    zero, one = may_go
    out = np.empty(1)
    with ThreadCluster(fastgc.Uncoded(2, load=2), [1.0, 2.0], gradient, 1) as cluster:
        zero.set()
        for value in range(1, 4):
            report = cluster.step(np.full(1, float(value)), out)
            assert report.survivors.tolist() == [0]
            assert out[0] == 3.0 * value
        zero.clear()
        one.set()
        report = cluster.step(np.full(1, 10.0), out)
        assert report.survivors.tolist() == [1]
        assert report.stale == 1  # its first message of round 0; it must not compute the second
        assert out[0] == 30.0
        zero.set()


def test_threads_of_the_engine_end():
    before = set(threading.enumerate())  # threads of other tests may still be ending
    code = fastgc.Uncoded(4)
    with ThreadCluster(code, [1.0] * 4, np.multiply, 1) as cluster:
        cluster.step(np.ones(1), np.empty(1))
        own = set(threading.enumerate()) - before
        assert len(own) == 4
    for _ in range(1000):
        if not any(thread.is_alive() for thread in own):
            return
        threading.Event().wait(0.01)
    pytest.fail(f"{sum(thread.is_alive() for thread in own)} threads are left")


def test_a_run_on_threads_is_repeated_by_others():
    """They agree to the last bit, from the messages that came first."""
    shards = list(np.random.default_rng(0).standard_normal((6, 20)))
    code, out = fastgc.ReedSolomon(6, stragglers=2), np.empty(20)
    received, gradients = [], []
    with ThreadCluster(code, shards, np.multiply, 20) as cluster:
        for value in range(1, 6):
            received.append(cluster.step(np.full(20, float(value)), out).received)
            gradients.append(out.copy())
    for engine in (SimulatedCluster, LocalCluster):
        with engine(code, shards, np.multiply, 20, survivors=received.__getitem__) as cluster:
            for value, gradient in enumerate(gradients, 1):
                cluster.step(np.full(20, float(value)), out)
                np.testing.assert_array_equal(out, gradient)
