"""What a worker computes: messages, their energies, answers, and what it reports of errors."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

import fastgc
from fastgc import RandomAssignment, Uncoded
from fastgc.codes import Share
from fastgc.engines.interface import Question, Task
from fastgc.engines.worker import (
    TRACEBACK_BYTES,
    Cancelling,
    Worker,
    asked_of,
    failure,
    partial_gradient,
)

FLOAT = np.dtype(np.float64)


def task_of(code, shards, gradient=np.multiply, size=3, dtype=FLOAT, sent=None, **others):
    dtype = np.dtype(dtype)
    form = code.scheme.format(size, dtype, sent)
    return Task(
        code,
        shards,
        gradient,
        others.pop("batch", None),
        size,
        dtype,
        form.message_size,
        form.message_dtype,
        others.pop("spread", False),
        size,
        **others,
    )


def worker_of(number, task, out=None):
    return Worker(number, task, task.data(number), out)


# ---------------------------------------------------------------------------------- a gradient


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_partial_gradient_must_write_all_of_out(dtype):
    out = np.empty(4, dtype)

    def written(theta, shard, out):
        out[:] = shard * theta
        return None if theta[0] else out

    for theta in (np.zeros(4), np.arange(1.0, 5.0), np.full(4, np.nan)):
        partial_gradient(written, theta, 2.0, out)
        np.testing.assert_array_equal(out, 2.0 * theta)

    def in_part(theta, shard, out):
        out[0] = 1.0
        out[1:2].real = 1.0
        if shard:
            out[3] = 1.0

    if np.dtype(dtype).kind == "f":  # a real has one part only
        lacking = [(0.0, "2 of the 4 .*out\\[2\\]"), (1.0, "1 of the 4 .*out\\[2\\]")]
    else:
        lacking = [(0.0, "3 of the 4 .*out\\[1\\]"), (1.0, "2 of the 4 .*out\\[1\\]")]
    for shard, says in lacking:
        with pytest.raises(ValueError, match=says):
            partial_gradient(in_part, np.ones(4), shard, out)
    with pytest.raises(TypeError, match="returned float"):
        partial_gradient(lambda theta, shard, out: 1.0, np.ones(4), 1.0, out)
    with pytest.raises(ValueError, match="4 of the 4"):
        partial_gradient(adding, np.ones(4), 1.0, out)


def adding(theta, shard, out):
    out += shard


def told(theta, shard, out, *, partition, round):
    out[:] = 10 * partition + round


def test_partial_gradient_tells_what_is_asked_for():
    out = np.empty(1)
    partial_gradient(told, np.ones(1), None, out, partition=4, round=7)
    assert out == 47
    asked = ["partition", "round"]
    partial_gradient(told, np.ones(1), None, out, partition=3, round=7, asked=asked)
    assert out == 37
    with pytest.raises(TypeError, match="partition"):
        partial_gradient(told, np.ones(1), None, out, asked=[])


@pytest.mark.parametrize(
    ("gradient", "asked"),
    [
        (told, ["partition", "round"]),
        (lambda theta, shard, out, round=None: None, ["round"]),
        (lambda round, shard, out, /, partition=0: None, ["partition"]),
        (lambda theta, shard, *round, **partition: None, []),
        (np.multiply, []),
        (dict.fromkeys, []),
        (3, []),
    ],
)
def test_asked_of(gradient, asked):
    assert asked_of(gradient) == asked


def test_cancelling_is_of_coded_data_only():
    code = fastgc.LagrangeCode(4, 2, load=1)
    X, y = np.random.default_rng(0).standard_normal((2, 8, 3))
    shards = code.encode_data(X, y[:, :2])
    theta, parts, made = np.ones(6), [], code.scheme.data.cancelling
    task = task_of(code, shards, size=6)

    class Counting:
        coded = True

        def cancelling(self, part):
            parts.append(part)
            return made(part)

    class Coded:
        class code:
            class scheme:
                data = Counting()

        batch = None

    expected = made(shards[1])(theta)
    assert expected > 0
    assert Cancelling(task)(theta, 1, shards[1]) == expected
    known = Cancelling(Coded)
    assert [known(theta, 1, shards[1]) for _ in range(3)] == [expected] * 3
    assert len(parts) == 1
    Coded.batch = max  # other parts in each round
    assert [known(theta, 1, shards[j]) for j in (1, 2)] == [expected, made(shards[2])(theta)]
    assert len(parts) == 3
    assert Cancelling(task_of(Uncoded(2), [1.0] * 2))(theta, 0, shards[1]) == 0.0


# ------------------------------------------------------------------------------------ messages


@pytest.mark.parametrize(
    ("dtype", "sent"),
    [("f8", None), ("f8", "float32"), ("f8", "float16"), ("f4", None), ("c16", None)],
)
@pytest.mark.parametrize(
    "code",
    [
        Uncoded(3),
        Uncoded(2, 4, load=2),
        fastgc.LinearCode([[2.0, 0.0], [0.0, -3.0]]),
        fastgc.ReedSolomon(4, stragglers=2),
        fastgc.ReedSolomon(3, stragglers=0),
        fastgc.BinaryCode(4, stragglers=1),
    ],
    ids=repr,
)
def test_messages_are_encoded_partial_gradients(code, dtype, sent):
    rng, theta = np.random.default_rng(1), np.linspace(1.0, 2.0, 5).astype(dtype)
    shards = list(rng.standard_normal((code.k, 5)).astype(dtype))
    task = task_of(code, shards, size=5, dtype=dtype, sent=sent)
    for number in range(code.n):
        out = [
            np.empty(task.message_size, task.message_dtype)
            for _ in range(code.scheme.messages.counts[number])
        ]
        for given in (None, out):
            worker = worker_of(number, task, given)
            assert worker.message_count == len(out)
            for index in [*range(len(out)), 0]:
                encoder = code.encoder(
                    number, 5, dtype, index=index, message_dtype=task.message_dtype
                )
                for j in code.partitions(number, index).tolist():
                    encoder.add(j, shards[j] * theta)
                message, energy = worker.message(theta, index, 0)
                np.testing.assert_array_equal(message, encoder.message())
                assert energy == pytest.approx(encoder.energy, rel=1e-12)
                assert energy > 0
                assert given is None or message is out[index]
                assert worker.partition == -1


@pytest.mark.parametrize("code", [Uncoded(2, 4, load=2), fastgc.BinaryCode(4, stragglers=1)])
@pytest.mark.parametrize("sent", [None, "float32"])
def test_gradients_of_messages_are_checked(code, sent):
    """The error names what is wrong, and the worker the partition."""
    last = int(code.partitions(1)[-1])
    index = code.scheme.messages.counts[1] - 1

    def wrong(theta, shard, out):
        out[: 3 if shard != last else 1] = 1.0
        return out if shard >= 0 else 1.0

    worker = worker_of(1, task_of(code, list(range(code.k)), wrong, sent=sent))
    with pytest.raises(ValueError, match="did not write 2 of the 3"):
        worker.message(np.ones(3), index, 0)
    assert worker.partition == last
    worker = worker_of(1, task_of(code, [-2.0] * code.k, wrong, sent=sent))
    with pytest.raises(TypeError, match="returned float"):
        worker.message(np.ones(3), index, 0)


@pytest.mark.parametrize("code", [Uncoded(2), fastgc.BinaryCode(4, stragglers=1)])
def test_messages_of_batches_and_of_gradients_that_are_told(code):
    shards = [1.0, 2.0, 4.0, 8.0][: code.k]
    task = task_of(code, shards, told, batch=lambda shard, partition, round: None)
    worker = worker_of(1, task)
    held = list(zip(code.partitions(1).tolist(), code.coefficients(1), strict=True))
    row = sum(c * (10 * j + 6) for j, c in held)
    np.testing.assert_allclose(worker.message(np.ones(3), 0, 6)[0], row)

    def batch(shard, partition, round):
        return shard + 100 * partition + 1000 * round

    worker = worker_of(1, task_of(code, shards, batch=batch))
    row = sum(c * batch(shards[j], j, 6) for j, c in held)
    np.testing.assert_allclose(worker.message(np.ones(3), 0, 6)[0], row)


@pytest.mark.parametrize(("spread", "sleeps"), [(False, [6.0, 0.0, 0.0]), (True, [2.0] * 3)])
def test_sleep_before_each_message(spread, sleeps):
    task = task_of(Uncoded(1, 3, load=3), [1.0, 2.0, "a"], size=1, spread=spread)
    worker = worker_of(0, task)
    assert [worker.sleep_before(index, 6.0) for index in range(3)] == sleeps
    assert worker.message(np.ones(1), 1, 0) == ([2.0], 4.0)  # message and energy
    assert worker.partition == -1
    with pytest.raises(TypeError):
        worker.message(np.ones(1), 2, 0)
    assert worker.partition == 2


@pytest.mark.parametrize("send", ["each", "together"])
def test_message_of_those_sent_together(send):
    """Partials are computed by the time each message needs them, and anew in each round."""
    code = RandomAssignment(3, 4, load=3, send=send, seed=2)
    size, seen = 5, []

    def gradient(theta, shard, out):
        seen.append(shard)
        out[:] = shard * theta

    task = task_of(code, [1.0, 2.0, 4.0, 8.0], gradient, size=size, spread=True)
    worker = worker_of(1, task)
    shards = [2.0**j for j in code.partitions(1).tolist()]
    for number, first in ((0, 0), (1, 0), (2, 1)):
        theta = np.full(size, 1.0 + number)
        for index in range(first, 3):
            message, energy = worker.message(theta, index, number)
            computed = shards[first:] if send == "together" else shards[first : index + 1]
            assert seen == computed
            np.testing.assert_array_equal(message, shards[index] * theta)
            assert energy == pytest.approx(np.sum(message**2))
        seen.clear()
    waits = [worker.sleep_before(index, 0.6) for index in range(3)]
    assert waits == ([0.6, 0.0, 0.0] if send == "together" else pytest.approx([0.2] * 3))
    worker.message(np.ones(size), 0, 3)  # the worker leaves this round after its first message
    seen.clear()
    message, _ = worker.message(np.full(size, 3.0), 0, 4)
    np.testing.assert_array_equal(message, shards[0] * 3.0)


# ------------------------------------------------------------------------------------ answers


def test_answers_are_other_workers_messages():
    code = fastgc.Reactive(4, 6, holders=2)
    shards = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    task = task_of(code, shards, asks=True)
    worker = worker_of(1, task)
    theta = np.array([1.0, 2.0, 3.0])
    assert worker.answer(Question(0, 3, Share(0))) is None  # it is at no round yet
    worker.message(theta, 0, 3)
    theta[:] = 9.0  # the answer's parameters are those of the round, wherever they lie
    theta[:] = [1.0, 2.0, 3.0]
    expected = sum(shards[j] for j in code.partitions(0)) * theta
    for _ in range(2):
        message, energy = worker.answer(Question(0, 3, Share(0)))
        np.testing.assert_array_equal(message, expected)
        held = [np.sum((shards[j] * theta) ** 2) for j in code.partitions(0)]
        assert energy == pytest.approx(sum(held))
    out = np.empty(3)
    found = worker.answer(Question(0, 3, Share(0)), out)
    assert found[0] is out
    np.testing.assert_array_equal(out, expected)
    assert worker.answer(Question(0, 2, Share(0))) is None
    assert worker.answer(Question(0, 3, Share(2))) is None  # it does not hold it
    silent = worker_of(1, replace(task, asks=False))
    silent.message(theta, 0, 3)
    assert silent.answer(Question(0, 3, Share(0))) is None


def test_answers_have_parameters_that_are_read_only():
    def writing(theta, shard, out):
        out[:] = shard
        if shard == 1.0:
            theta[:] = 0.0

    code = fastgc.Reactive(3, holders=2)
    worker = worker_of(1, task_of(code, [1.0, 2.0, 3.0], writing, asks=True))
    worker.message(np.ones(3), 0, 0)
    with pytest.raises(ValueError, match="read-only"):
        worker.answer(Question(0, 0, Share(0)))


def test_failure_names_the_partition_and_keeps_the_end():
    def failing(theta, shard, out):
        raise ArithmeticError("x" * 100_000 + " the end")

    worker = worker_of(0, task_of(Uncoded(2), [1.0, 2.0], failing))
    try:
        worker.message(np.ones(3), 0, 0)
    except ArithmeticError:
        text, unknown = failure(worker), failure(None)
    assert text.startswith(b" on partition 0:\n")
    assert unknown.startswith(b":\n")
    for each in (text, unknown):
        assert len(each) == TRACEBACK_BYTES
        assert each.endswith(b" the end\n")


class Pair(NamedTuple):
    X: object
    y: object


def test_shards_are_read_only():
    """Whatever contains the arrays; what is no array is given as it is."""
    other = object()
    a = np.ones(3)
    shards = [a, (a, [a, 1]), {"x": a}, Pair(a, "y"), other]
    seen = []

    def gradient(theta, shard, out):
        seen.append(shard)
        out[:] = 0

    code = Uncoded(5)
    for number in range(5):
        task = task_of(code, shards, gradient)
        Worker(number, task, task.data(number)).message(np.ones(3), 0, 0)
    arrays = [seen[0], seen[1][0], seen[1][1][0], seen[2]["x"], seen[3].X]
    for array in arrays:
        assert np.shares_memory(array, a)
        with pytest.raises(ValueError, match="read-only"):
            array += 1
    assert type(seen[3]) is Pair
    assert seen[4] is other
    a += 1  # the program's own array stays as it was
