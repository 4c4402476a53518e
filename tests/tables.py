"""Codes of every scheme, and a job of messages and their gradient for any of them.

Partial gradients are those of least squares on random data, so the same tests cover codes of the
data and codes of the gradients.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from examples import example

import fastgc
from fastgc.coding.rules import Sooner
from fastgc.sequential import MSGC, SRSGC, Independent
from fastgc.training.models import least_squares_gradient

FEATURES, OUTPUTS = 3, 2

# Small enough to try every set of messages.
SMALL = [
    fastgc.ReedSolomon(7, stragglers=2),
    fastgc.ReedSolomon(6, stragglers=1),
    fastgc.ReedSolomon(8, 7, load=3),  # the columns of B are dependent
    fastgc.ReedSolomon(6, 8, stragglers=1, clusters="auto"),
    fastgc.ReedSolomon(5, 6, stragglers=2, packed=False, root=2),
    fastgc.FractionalRepetition(6, 7, stragglers=1),
    fastgc.FractionalRepetition(6, stragglers=2),
    fastgc.FractionalRepetition(3, 4, stragglers=2),
    fastgc.CyclicRepetition(6, stragglers=2),
    fastgc.CyclicRepetition(6, 8, stragglers=3, seed=1),
    fastgc.CyclicRepetition(4, stragglers=0),
    fastgc.CyclicRepetition(4, stragglers=3),
    fastgc.LinearCode([[1, 2, 0], [0, -1, 3], [1, 1, 1], [2, 0, 5]]),
    fastgc.LinearCode(fastgc.ReedSolomon(5, stragglers=1).matrix(), packed=False),
    fastgc.BinaryCode(7, stragglers=2),
    fastgc.BinaryCode(8, 5, stragglers=2),
    fastgc.BinaryCode(9, stragglers=1),
    fastgc.BinaryCode(7, 9, stragglers=2, speeds=[1, 2, 3, 1, 1, 5, 2]),
    fastgc.CouponCollector(8, load=3, seed=2),
    fastgc.CouponCollector(6, 10, load=4, seed=8),
    fastgc.CouponCollector(4, loads=[3, 2, 3, 1], send="together", seed=1),
    fastgc.RandomAssignment(4, load=2, seed=2),
    fastgc.RandomAssignment(3, 5, load=[3, 4, 1], seed=4),
    fastgc.Uncoded(5),
    fastgc.Uncoded(4, 7),
    fastgc.Uncoded(4, load=2),
    fastgc.Uncoded(3, 6, load=3),
    fastgc.PartialWork(4, load=2),
    fastgc.PartialWork(3, 4, assignment=[[0, 1, 3], [2, 1], [3, 2, 0]]),
    fastgc.Reactive(4, 6, holders=3),
    fastgc.LagrangeCode(7, load=2),
    fastgc.LagrangeCode(6, 5, load=4, messages=1, nodes="roots"),
    fastgc.LagrangeCode(3, 3, load=2, messages=2),
    fastgc.LagrangeCode(3, 4, load=4, messages=2, nodes="roots"),
    fastgc.LagrangeCode(4, load=2, nodes=([0, 1], [2, 3, -1, -2])),
    fastgc.LagrangeCode(1, load=1),
    fastgc.Grouped([fastgc.Grouped.repetition(4, 2), fastgc.Uncoded(2)]),
    fastgc.Grouped([fastgc.ReedSolomon(3, 4, stragglers=1), fastgc.ReedSolomon(4, stragglers=2)]),
    fastgc.Grouped([fastgc.BinaryCode(4, 5, stragglers=1), fastgc.BinaryCode(3, stragglers=1)]),
    fastgc.Grouped(
        [
            fastgc.Uncoded(2, load=2),
            fastgc.ReedSolomon(3, stragglers=1),
            fastgc.BinaryCode(3, stragglers=1),
        ]
    ),
    fastgc.GraphCode(6, degree=3),
    fastgc.GraphCode(8, 9, degree=3),
    fastgc.GraphCode(5, graph=[[0, 1], [1, 2], [2, 0], [3, 4], [3, 4]]),
    example("codes/bibd").BIBDCode(2),
]
SMALL_IDS = [f"{i}-{type(code).__name__}" for i, code in enumerate(SMALL)]
EVERY_SMALL = pytest.mark.parametrize("code", SMALL, ids=SMALL_IDS)

# Approximate codes, whose rounds wait for some workers at most.
WAITING = [
    fastgc.FractionalRepetition(6, stragglers=1, wait=3),
    fastgc.FractionalRepetition(6, 8, stragglers=2, wait=2),
    fastgc.FractionalRepetition(8, load=4, wait=8),
    fastgc.LinearCode(np.random.default_rng(0).standard_normal((7, 6)), wait=4),
    fastgc.LinearCode(np.random.default_rng(1).standard_normal((6, 5)) + 1j, wait=2),
    fastgc.GraphCode(8, 9, degree=3, wait=5),
]

# As large as codes in use.
LARGE = [
    fastgc.ReedSolomon(200, stragglers=20),
    fastgc.ReedSolomon(200, stragglers=20, clusters="auto"),
    fastgc.ReedSolomon(60, stragglers=8),
    fastgc.ReedSolomon(30, stragglers=3, packed=False),
    fastgc.FractionalRepetition(200, stragglers=19),
    fastgc.CyclicRepetition(60, stragglers=6),
    fastgc.CyclicRepetition(200, stragglers=5),
    fastgc.BinaryCode(200, stragglers=20),
    fastgc.BinaryCode(199, 301, stragglers=13, speeds=np.linspace(1, 5, 199)),
    fastgc.CouponCollector(200, load=20, seed=1),
    fastgc.CouponCollector(60, loads=[20 + i % 7 for i in range(60)], send="together"),
    fastgc.RandomAssignment(90, load=15),
    fastgc.Uncoded(200),
    fastgc.Uncoded(200, load=4),
    fastgc.PartialWork(80, load=6),
    fastgc.LagrangeCode(60, load=10),
    fastgc.LagrangeCode(200, load=10, nodes="roots"),
    fastgc.LagrangeCode(40, load=4, messages=4, nodes="roots"),
    fastgc.LagrangeCode(100, load=10, messages=5, nodes="roots"),
    fastgc.Grouped(
        [fastgc.ReedSolomon(41, stragglers=4)] * 2 + [fastgc.BinaryCode(60, stragglers=7)]
    ),
    fastgc.GraphCode(200, degree=6),
]
LARGE_IDS = [f"{i}-{type(code).__name__}" for i, code in enumerate(LARGE)]
EVERY_LARGE = pytest.mark.parametrize("code", LARGE, ids=LARGE_IDS)


class Job:
    """Random data for a code: its partial gradients, all messages, and the true gradient."""

    def __init__(self, code, dtype=np.float64, seed=0):
        rng = np.random.default_rng(seed)
        self.code = code
        samples = 2 * code.k + 1
        X = rng.standard_normal((samples, FEATURES)).astype(dtype)
        y = rng.standard_normal((samples, OUTPUTS)).astype(dtype)
        theta = rng.standard_normal(FEATURES * OUTPUTS).astype(dtype)
        self.p = theta.size
        shards = code.encode_data(X, y)
        assert len(shards) == code.scheme.data.shards
        self.partials = [least_squares_gradient(theta, *shard) for shard in shards]
        self.gradient = least_squares_gradient(theta, X.astype(np.longdouble), y)
        self.messages = encoded(code, np.array(self.partials))

    def decode(self, survivors, **options):
        messages = [self.messages[m] for m in survivors]
        return self.code.decode(survivors, messages, p=self.p, **options)

    def error(self, gradient):
        """Return the norm of the error, relative to the gradient's."""
        difference = (gradient - self.gradient).astype(float)
        return float(np.linalg.norm(difference) / np.linalg.norm(self.gradient.astype(float)))


def partial_gradients(code, p, dtype=np.float64, seed=0):
    """Return random partial gradients for a code, as rows."""
    rng = np.random.default_rng(seed)
    partials = rng.standard_normal((code.scheme.data.shards, p))
    if np.dtype(dtype).kind == "c":
        partials = partials + 1j * rng.standard_normal(partials.shape)
    return partials.astype(dtype)


def awaited(code):
    """The rule that rounds of a code wait for."""
    rule = code.scheme.rule
    return rule.whole() if isinstance(rule, Sooner) else rule


def encoded(code, partials, **options):
    """Return all messages of partial gradients."""
    return [
        code.encode(w, partials[code.partitions(w, t)], index=t, **options)
        for w, t in map(code.scheme.messages.sender, range(code.scheme.messages.count))
    ]


def streamed(code, number, partials, message_dtype=None):
    """Return a message whose terms are added one by one, and its energy."""
    worker, index = code.scheme.messages.sender(number)
    kinds = {"index": index, "message_dtype": message_dtype}
    coded = code.scheme.layout == "complex data"
    dtype = partials.real.dtype if coded else partials.dtype
    encoder = code.encoder(worker, partials.shape[1], dtype, **kinds)
    for j in code.partitions(worker, index).tolist():
        encoder.add(j, partials[j])
    return encoder.message(), encoder.energy


def prefixes(scheme):
    """Yield every set of messages in which each worker's own come in order."""
    for sent in itertools.product(*(range(count + 1) for count in scheme.messages.counts)):
        numbers = (scheme.messages.number(i, t) for i, c in enumerate(sent) for t in range(c))
        yield np.array([*numbers], dtype=np.int64)


def spans(code, survivors):
    """Whether some linear decoder can decode these survivors: the definition, by least squares."""
    if not len(survivors):
        return False
    if (
        code.scheme.data.coded
    ):  # any 2K - 1 values determine h; for points in general position, fewer do not
        return len(survivors) >= code.threshold
    B = code.matrix()[list(survivors)]
    if code.scheme.layout == "complex":  # of a_F B_F, only the real part counts
        B = np.concatenate([B.real, -B.imag])
    a = np.linalg.lstsq(B.T, np.ones(code.k), rcond=None)[0]
    return bool(np.linalg.norm(a @ B - 1) < 1e-8)


def claims_all_that_spans(code):
    """Whether the code promises to decode whenever a linear decoder can.

    Lagrange codes need 2K - 1 messages, and make no use of smaller sets that happen to suffice.
    """
    if isinstance(code, fastgc.Grouped):
        return all(claims_all_that_spans(inner) for inner in code.codes)
    return not isinstance(code, fastgc.LagrangeCode)


# Schemes across rounds, by kind, burst, window and stragglers.
SEQUENTIAL = {
    "sr 1 2 2": lambda: SRSGC(4, burst=1, window=2, stragglers=2),
    "sr 1 2 3": lambda: SRSGC(4, burst=1, window=2, stragglers=3),
    "sr 1 3 4": lambda: SRSGC(4, burst=1, window=3, stragglers=4),
    "sr 2 3 3": lambda: SRSGC(4, burst=2, window=3, stragglers=3),
    "sr 2 3 2, cyclic": lambda: SRSGC(
        4, burst=2, window=3, stragglers=2, code=fastgc.CyclicRepetition
    ),
    "sr 1 2 3, binary": lambda: SRSGC(5, burst=1, window=2, stragglers=3, code=fastgc.BinaryCode),
    "sr 2 5 3": lambda: SRSGC(4, burst=2, window=5, stragglers=3),
    "m 1 2 1": lambda: MSGC(4, burst=1, window=2, stragglers=1),
    "m 1 2 2": lambda: MSGC(4, burst=1, window=2, stragglers=2),
    "m 1 3 2": lambda: MSGC(3, burst=1, window=3, stragglers=2),
    "m 1 4 1": lambda: MSGC(3, burst=1, window=4, stragglers=1),
    "m 2 3 1": lambda: MSGC(4, burst=2, window=3, stragglers=1),
    "m 2 3 2": lambda: MSGC(3, burst=2, window=3, stragglers=2),
    "m 2 4 3": lambda: MSGC(3, burst=2, window=4, stragglers=3),
    "m 3 4 2": lambda: MSGC(3, burst=3, window=4, stragglers=2),
    "m 1 2 2, binary": lambda: MSGC(5, burst=1, window=2, stragglers=2, code=fastgc.BinaryCode),
    "independent": lambda: Independent(fastgc.ReedSolomon(4, stragglers=2)),
}
