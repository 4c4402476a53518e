"""Codes of every scheme, and what tests need to do with any of them.

Partial gradients are those of least squares on random data, so that codes of the data are tested by
the same means as codes of the gradients.
"""

from __future__ import annotations

import numpy as np

from fastgc import (
    BernoulliCode,
    BIBDCode,
    BinaryCode,
    CouponCollector,
    CyclicRepetition,
    ExpanderCode,
    FractionalRepetition,
    GraphCode,
    Grouped,
    LagrangeCode,
    LinearCode,
    PartialWork,
    RandomAssignment,
    ReedSolomon,
    Uncoded,
)
from fastgc.models import least_squares_gradient

FEATURES, OUTPUTS = 3, 2

# Small enough for every set of messages.
SMALL = [
    ReedSolomon(7, stragglers=2),
    ReedSolomon(6, 8, stragglers=1, clusters="auto"),
    ReedSolomon(5, stragglers=2, packed=False),
    FractionalRepetition(6, 7, stragglers=1),
    FractionalRepetition(6, stragglers=2),
    FractionalRepetition(3, 4, stragglers=2),
    CyclicRepetition(6, stragglers=2),
    CyclicRepetition(6, 8, stragglers=3, seed=1),
    CyclicRepetition(4, stragglers=0),
    CyclicRepetition(4, stragglers=3),
    LinearCode([[1, 2, 0], [0, -1, 3], [1, 1, 1], [2, 0, 5]]),
    LinearCode(ReedSolomon(5, stragglers=1).matrix(), packed=False),
    BinaryCode(7, stragglers=2),
    BinaryCode(8, 5, stragglers=2),
    BinaryCode(9, stragglers=1),
    BinaryCode(7, 9, stragglers=2, speeds=[1, 2, 3, 1, 1, 5, 2]),
    CouponCollector(8, load=3, seed=2),
    CouponCollector(6, 10, load=4, seed=8),
    CouponCollector(4, loads=[3, 2, 3, 1], send="together", seed=1),
    RandomAssignment(4, load=2, seed=2),
    RandomAssignment(3, 5, load=[3, 4, 1], seed=4),
    Uncoded(5),
    Uncoded(4, 7),
    Uncoded(4, load=2),
    Uncoded(3, 6, load=3),
    PartialWork(4, load=2),
    PartialWork(3, 4, assignment=[[0, 1, 3], [2, 1], [3, 2, 0]]),
    LagrangeCode(7, load=2),
    LagrangeCode(6, 5, load=4, messages=1, nodes="roots"),
    LagrangeCode(3, 3, load=2, messages=2),
    LagrangeCode(3, 4, load=4, messages=2, nodes="roots"),
    LagrangeCode(4, load=2, nodes=([0, 1], [2, 3, -1, -2])),
    LagrangeCode(1, load=1),
    Grouped.repetition(6, 2),
    Grouped([ReedSolomon(3, 4, stragglers=1), ReedSolomon(4, stragglers=2)]),
    Grouped([BinaryCode(4, 5, stragglers=1), BinaryCode(3, stragglers=1)]),
    Grouped([Uncoded(2, load=2), ReedSolomon(3, stragglers=1), BinaryCode(3, stragglers=1)]),
    GraphCode(6, graph="complete"),
    GraphCode(8, 9, degree=3),
    GraphCode(5, graph=[[0, 1], [1, 2], [2, 0], [3, 4], [3, 4]]),
    BIBDCode(7),
    ExpanderCode(7, 9, load=4),
    BernoulliCode(7, load=3, seed=1),
]
SMALL_IDS = [f"{i}-{type(code).__name__}" for i, code in enumerate(SMALL)]

# As large as anyone uses.
LARGE = [
    ReedSolomon(200, stragglers=20),
    ReedSolomon(200, stragglers=20, clusters="auto"),
    FractionalRepetition(200, stragglers=19),
    CyclicRepetition(60, stragglers=6),
    CyclicRepetition(200, stragglers=5),
    BinaryCode(200, stragglers=20),
    BinaryCode(199, 301, stragglers=13, speeds=np.linspace(1, 5, 199)),
    CouponCollector(200, load=20, seed=1),
    CouponCollector(60, loads=[20 + i % 7 for i in range(60)], send="together"),
    RandomAssignment(90, load=15),
    Uncoded(200),
    Uncoded(200, load=4),
    PartialWork(80, load=6),
    LagrangeCode(60, load=10),
    LagrangeCode(200, load=10, nodes="roots"),
    LagrangeCode(40, load=4, messages=4, nodes="roots"),
    LagrangeCode(100, load=10, messages=5, nodes="roots"),
    Grouped([ReedSolomon(40, stragglers=4)] * 2 + [BinaryCode(60, stragglers=7)]),
    GraphCode(200, degree=6),
]
LARGE_IDS = [f"{i}-{type(code).__name__}" for i, code in enumerate(LARGE)]


class Job:
    """Random data, coded; what every worker sends, and the gradient it should give."""

    def __init__(self, code, dtype=np.float64, seed=0):
        rng = np.random.default_rng(seed)
        self.code = code
        samples = 2 * code.k + 1
        X = rng.standard_normal((samples, FEATURES)).astype(dtype)
        y = rng.standard_normal((samples, OUTPUTS)).astype(dtype)
        theta = rng.standard_normal(FEATURES * OUTPUTS).astype(dtype)
        self.p = theta.size
        shards = code.encode_data(X, y)
        assert len(shards) == code.scheme.shard_count
        self.partials = [least_squares_gradient(theta, *shard) for shard in shards]
        self.gradient = least_squares_gradient(theta, X.astype(np.longdouble), y)
        self.messages = [
            code.encode(w, [self.partials[j] for j in code.partitions(w, t)], index=t)
            for w, t in map(code.scheme.sender, range(code.scheme.message_count))
        ]

    def decode(self, survivors, **options):
        messages = [self.messages[m] for m in survivors]
        return self.code.decode(survivors, messages, p=self.p, **options)

    def error(self, gradient):
        """Relative to the gradient."""
        difference = (gradient - self.gradient).astype(float)
        return float(np.linalg.norm(difference) / np.linalg.norm(self.gradient.astype(float)))


def spans(code, survivors):
    """Whether any linear decoder could: the definition, by least squares."""
    if not len(survivors):
        return False
    if (
        code.scheme.codes_data
    ):  # any 2K - 1 values determine h, and for points in general fewer do not
        return len(survivors) >= code.threshold
    B = code.matrix()[list(survivors)]
    a = np.linalg.lstsq(B.T, np.ones(code.k), rcond=None)[0]
    return bool(np.linalg.norm(a @ B - 1) < 1e-8)


def claims_all_that_spans(code):
    """Whether the code promises to decode whenever a linear decoder could.

    Reed-Solomon codes and Lagrange codes promise it for n - s (in each cluster), or 2K - 1,
    messages; that some smaller sets do by chance is left alone.
    """
    if isinstance(code, Grouped):
        return all(claims_all_that_spans(inner) for inner in code.codes)
    return not isinstance(code, ReedSolomon | LagrangeCode)
