"""Calls from many Python threads at once give the results of one thread."""

import os
import pickle
import sys
import sysconfig
import threading
import time
import warnings

import numpy as np
import programs
import pytest
from beside import beside
from completions import COMPLETIONS
from oracles import KERNELS, named
from oracles.combine import BIND_COMBINE, COMBINE
from oracles.optimize import STEPS
from strength import much
from tables import EVERY_SMALL, Job

from fastgc import kernels
from fastgc.kernels import threads

THREADS = 8
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def at_once(task, count=THREADS):
    """Return ``[task(0), task(1), ...]``, each computed in its own thread; all begin together.

    Where threads take turns, by the global interpreter lock, they do so after each few bytecodes.
    """
    start, results, errors = threading.Barrier(count), [None] * count, []

    def work(number):
        start.wait()
        try:
            results[number] = task(number)
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(count)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
            assert not worker.is_alive(), "a thread waits for ever"
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]
    return results


def assert_same(found, expected):
    if isinstance(expected, dict):
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(found, expected)


def check_at_once(run, own):
    """Check that threads find what one does, of their own arguments and of those that all share."""
    expected = [run(arguments) for arguments in own]

    def task(number):
        return [(run(own[number]), run(own[0])) for _ in range(much(5, 2))]

    for number, pairs in enumerate(at_once(task)):
        for mine, shared in pairs:
            assert_same(mine, expected[number])
            assert_same(shared, expected[0])


@pytest.mark.parametrize(**named(KERNELS))
def test_each_kernel(kernel, case, dtype):
    rngs = [np.random.default_rng(seed) for seed in range(THREADS)]
    own = [kernel.make(rng, 67, 5, dtype, **case) for rng in rngs]
    check_at_once(lambda given: kernel.run(kernel.fresh(given)), own)


@pytest.mark.parametrize("kernel", COMPLETIONS, ids=lambda kernel: kernel.name)
def test_completion(kernel):
    rngs = [np.random.default_rng(seed) for seed in range(THREADS)]
    check_at_once(kernel.run, [kernel.make(rng, 67, 5) for rng in rngs])


@pytest.mark.every_backend
def test_many_callers_while_the_number_of_threads_changes(split_over):
    split_over(3)
    rng = np.random.default_rng(0)
    calls = [(each, each.cases[mode]) for each in (COMBINE, BIND_COMBINE) for mode in (0, 3)]
    calls += [(step, step.cases[0]) for step in STEPS]
    calls = [(each, each.make(rng, 6000, 3, np.float32, **case)) for each, case in calls]
    expected = [kernel.run(kernel.fresh(arguments)) for kernel, arguments in calls]

    def change(over):
        for number in range(10**6):
            threads.set_num_threads(1 + number % 5)
            time.sleep(0)
            if over.is_set():
                return

    def task(number):
        for _ in range(10):
            for (kernel, arguments), result in zip(calls, expected, strict=True):
                assert_same(kernel.run(kernel.fresh(arguments)), result)

    with beside(change):
        at_once(task)


@EVERY_SMALL
def test_all_verbs_of_one_code(code):
    """Each thread's calls, on arrays and on lists, give to the last bit what one thread computes.

    The code is new, so that nothing is prepared. Threads have messages of different lengths.
    """
    code, new = (pickle.loads(pickle.dumps(code)) for _ in range(2))
    calls = [_calls(Job(code), number) for number in range(THREADS)]
    expected = [[call(code) for call in mine] for mine in calls]

    def task(number):
        return [[call(new) for call in calls[number]] for _ in range(much(5, 2))]

    for found, truth in zip(at_once(task), expected, strict=True):
        for once in found:
            assert_same(once, truth)


def _calls(job, number):
    """Functions of a code, which call its verbs with a thread's own survivors and arrays."""
    scheme, p = job.code.scheme, job.p * (1 + number % 3)
    survivors = np.random.default_rng(number).permutation(scheme.messages.count)
    partials = [np.resize(each, p) for each in job.partials]

    def held(worker, index):
        return [partials[j] for j in job.code.partitions(worker, index)]

    whole = np.array(
        [
            job.code.encode(worker, held(worker, index), index=index)
            for worker, index in map(scheme.messages.sender, range(scheme.messages.count))
        ]
    )
    stack = whole[survivors]

    def bound(code):
        decode = code.bind(whole, p=p)
        return [decode(survivors).copy() for _ in range(3)]

    def a_round(code):
        rnd = code.round(p)
        for m in survivors:
            worker, index = scheme.messages.sender(m)
            rnd.receive(worker, whole[m], index)
        return rnd.gradient()

    def trust(code):
        with pytest.raises(ValueError, match="a second time"):
            code.decode([0, 0], whole[[0, 0]], p=p)
        return np.array(code.trust(survivors))

    def messages(code):
        found = []
        for m in survivors:
            worker, index = scheme.messages.sender(m)
            mine, message = held(worker, index), np.empty_like(whole[m])
            found += [
                code.encode(worker, mine, index=index),
                code.encode(worker, np.array(mine), message, index=index),
                code.bind_encoder(worker, np.array(mine), index=index)(),
            ]
        return found

    return [
        lambda code: code.decoding_vector(survivors),
        lambda code: code.decoding_vector(survivors.tolist()),
        lambda code: code.decode(survivors, stack, np.empty(p)),
        lambda code: code.decode(survivors, list(stack), np.empty(p)),
        lambda code: code.decode(survivors, list(stack), p=p),
        bound,
        a_round,
        trust,
        messages,
    ]


COLD = """
import threading
import numpy as np
import fastgc

start, wrong = threading.Barrier(8), []
code = fastgc.ReedSolomon(6, stragglers=2)
nodes, g = np.arange(1.0, 5.0), np.arange(30.0).reshape(6, 5)

def first():
    start.wait()
    try:
        messages = [code.encode(i, g[code.partitions(i)]) for i in (4, 0, 5, 2)]
        np.testing.assert_allclose(code.decode([4, 0, 5, 2], messages, p=5), g.sum(axis=0))
        solved = fastgc.vandermonde.solve(nodes, nodes**2)
        np.testing.assert_allclose(solved, [0, 0, 1, 0], atol=1e-12)
        optimizer = fastgc.optimizers.SGD(0.5)
        optimizer.reset(np.ones(3))
        optimizer.step(np.ones(3))
        np.testing.assert_array_equal(optimizer.theta, [0.5] * 3)
    except BaseException as error:
        wrong.append(error)

threads = [threading.Thread(target=first) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(wrong)
"""


@pytest.mark.every_backend
def test_first_calls_of_a_process():
    """In all threads, kernels are made or compile, and codes fill their caches."""
    found = programs.run(programs.python("-c", COLD))
    assert (found.stdout, found.stderr) == ("[]\n", "")


@pytest.mark.every_backend
@pytest.mark.skipif(not FREE_THREADED, reason="this Python has a global interpreter lock")
def test_no_kernel_brings_the_lock_back():
    source = "import sys, fastgc; fastgc.backend(); print(sys._is_gil_enabled())"
    found = programs.run(programs.python("-c", source))
    assert (found.stdout, found.stderr) == ("False\n", "")


@pytest.mark.every_backend
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_the_pool_is_at_work(split_over):
    """Children have none of their parent's threads, and start their own."""
    split_over(3)
    arguments = COMBINE.make(np.random.default_rng(1), 6000, 3, np.float64, kernels.REAL)
    arguments["accumulate"] = False

    def found():
        return COMBINE.run(arguments | {"out": np.zeros(6000)})["out"]

    expected = found()

    def work(over):
        while not over.is_set():
            found()

    with beside(work, 3):
        for _ in range(5):
            assert _child(lambda: np.array_equal(found(), expected))


def _child(task):
    """Whether a task returns true in a forked child, within half a minute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads is the test
        pid = os.fork()
    if not pid:
        try:
            os._exit(0 if task() else 1)
        finally:
            os._exit(2)
    deadline = time.monotonic() + 30
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return False
        time.sleep(0.01)


def test_simd_levels_change_while_kernels_run():
    compiled = pytest.importorskip("fastgc.kernels.c")
    before = compiled.simd()
    levels = [name for name in ("baseline", "avx2", "avx512") if compiled.select_simd(name)]
    x = np.arange(1000.0)

    def task(number):
        for i in range(200):
            assert compiled.select_simd(levels[(number + i) % len(levels)])
            assert kernels.unchecked.square_sum(x) == 332833500.0

    try:
        at_once(task)
    finally:
        assert compiled.select_simd(before)


def test_errors_in_threads_are_seen():
    with pytest.raises(ZeroDivisionError):
        at_once(lambda number: 1 // number)
