"""Workers that lie, and brute force that tells what can be found.

Messages are consistent if the least-squares solution of their equations has no residual. A worker
explains an inconsistency if the messages without its own are consistent.
"""

import itertools

import numpy as np
import pytest
from tables import SMALL, Job, streamed


def verifiable(code, liars=1):
    """Whether all messages together expose any `liars` workers that lie, by brute force."""
    for lost in itertools.combinations(range(code.n), liars):
        kept = np.setdiff1d(np.arange(code.scheme.messages.count), code.scheme.messages.of(lost))
        if code.residual(kept) > 1e-7:
            return False
    return True


VERIFIED = [code for code in SMALL if verifiable(code)]


EVERY_VERIFIED = pytest.mark.parametrize("code", VERIFIED, ids=lambda code: type(code).__name__)


def dense(parity, size):
    """Return the checks as a matrix."""
    H = np.zeros((parity.first.size, size), parity.coefficient.dtype)
    H[parity.row, parity.position] = parity.coefficient
    return H


def consistent(code, numbers, values):
    """Whether some partial gradients give these messages, in all of their elements."""
    rows = code.scheme.equations(np.array(numbers, dtype=np.int64))[0]
    if not len(rows):
        return True
    values = np.array(values)
    if values.dtype.kind != "c" and rows.dtype.kind == "c":
        values = values.view(np.complex128)
    found = np.linalg.lstsq(rows, values)[0]
    return np.linalg.norm(rows @ found - values) <= 1e-7 * np.linalg.norm(values)


def explaining(code, numbers, messages):
    """Return the workers without whose messages the others are consistent."""
    sender = {m: code.scheme.messages.sender(m)[0] for m in numbers}
    found = []
    for worker in sorted(set(sender.values())):
        kept = [m for m in numbers if sender[m] != worker]
        if consistent(code, kept, [messages[m] for m in kept]):
            found.append(worker)
    return found


KINDS = ["scaled", "sign", "zeros", "noise", "stale", "element", "another's", "huge"]


def spoilt(job, bad, kinds, rng):
    """Return the job's messages; those of the workers `bad` are wrong in these ways."""
    code, messages = job.code, list(job.messages)
    earlier = Job(code, seed=1000)
    scale = max(np.linalg.norm(m) for m in messages)
    for worker, kind in zip(bad, kinds, strict=True):
        for m in code.scheme.messages.of([worker]).tolist():
            true = job.messages[m]
            element = np.zeros_like(true)
            element[rng.integers(true.size)] = 0.01 * scale * rng.uniform(1, 2)
            messages[m] = {
                "scaled": 1.01 * true,
                "sign": -true,
                "zeros": np.zeros_like(true),
                "noise": true + 0.01 * scale * rng.standard_normal(true.size),
                "stale": earlier.messages[m],
                "element": true + element,
                "another's": earlier.messages[(m + 1) % code.scheme.messages.count],
                "huge": 1e300 * true,
            }[kind]
    return messages


def receive(rnd, number, message, energy=None):
    """Hand a message to a round unless its worker is not wanted, as engines do."""
    worker, index = rnd.code.scheme.messages.sender(number)
    if not rnd.wants(worker):
        return rnd.ready
    return (
        send(rnd, worker, message, index)
        if energy is None
        else rnd.receive(worker, message, index, energy=energy)
    )


def send(rnd, worker, message, index=None):
    """Hand a message to a round; its energy is that of random partial gradients."""
    with np.errstate(over="ignore", under="ignore"):
        energy = min(1e300, float(np.linalg.norm(message.astype(complex)) ** 2))
    return rnd.receive(worker, message, index, energy=energy)


def receive_until_ready(rnd, numbers, messages):
    """Hand messages to a round until it is ready; return how many it was handed."""
    for at, number in enumerate(numbers):
        if receive(rnd, number, messages[number]):
            return at + 1
    return len(numbers)


def play(rnd, rng, partials, bad=(), lie=None):
    """Hand a round all messages of partial gradients in random order.

    ``lie(message, energy)`` returns what is sent in place of the messages numbered `bad`.
    """
    rnd.reset()
    for number in in_random_order(rnd.code, rng):
        sent = streamed(rnd.code, number, partials, rnd.form.message_dtype)
        message, energy = lie(*sent) if number in bad else sent
        receive(rnd, number, message, energy)


def in_random_order(code, rng):
    return rng.permutation(code.scheme.messages.count).tolist()


def cancelling(code, rng, dtype, size=1e-4):
    """Return partial gradients that nearly cancel in pairs."""
    g = rng.standard_normal((code.k, 32))
    g[1::2] = -g[: 2 * (code.k // 2) : 2] + size * rng.standard_normal(g[1::2].shape)
    return g.astype(dtype)
