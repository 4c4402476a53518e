"""A code that is checked, and what is known of it by its rows alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...models import least_squares_gradient
from ..base import Code
from ..span import least_squares

__all__ = ["OFF", "Numbers", "P", "Subject", "alike", "close", "raises", "require"]

Numbers = NDArray[np.int64]

# Sets of messages that are looked at: all, if they are no more, or so many at random.
SETS = 300

# By how much trust may be off, as a factor, over the sets looked at.
OFF = 30.0

P = 37  # elements of a gradient: an odd number, which no number of pieces divides


class Subject:
    """A code, and what the checks know of it by its rows alone."""

    def __init__(self, code: Code, seed: int) -> None:
        self.code, self.seed = code, seed

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @cached_property
    def sets(self) -> list[Numbers]:
        """Sets of messages: all of a small code; else of random sizes, and such as just suffice."""
        count, rng = self.code.message_count, self.rng
        if 2**count <= SETS:
            each = (itertools.combinations(range(count), f) for f in range(1, count + 1))
            return [np.array(F) for F in itertools.chain(*each)]
        found = [np.arange(count)]
        for heard in self.code.random_arrivals(SETS // 3, self.seed):
            found += [np.array(heard), np.array(heard[:-1])]
        while len(found) < SETS:
            found.append(rng.permutation(count)[: rng.integers(1, count + 1)])
        return [F for F in found if F.size]

    @cached_property
    def ready(self) -> list[Numbers]:
        """Those of them that the code decodes."""
        return [F for F in self.sets if self.code.decodable(F)]

    def some(self, sets: Sequence[Numbers], most: int) -> list[Numbers]:
        """At most so many, spread over all."""
        return list(sets[:: max(1, len(sets) // most)])[:most]

    def left(self, survivors: Numbers) -> float:
        """What least squares leave of the gradient."""
        if self.code.codes_data:
            return least_squares(self.code.equations(survivors))[1]
        rows, target = self._system(survivors)
        vector = np.linalg.lstsq(rows.T, target)[0]
        return float(np.linalg.norm(rows.T @ vector - target) / np.linalg.norm(target))

    def left_by(self, survivors: Numbers, vector: NDArray[Any]) -> float:
        """What this vector leaves."""
        code = self.code
        rows = self._matrix[survivors].reshape(survivors.size, -1)
        target = np.tile(np.eye(code.pieces), (code.k, 1))
        lacking = rows.T @ vector.reshape(survivors.size, -1) - target
        if code.layout == "complex":
            lacking = lacking.real
        return float(np.linalg.norm(lacking) / np.linalg.norm(target))

    @cached_property
    def _matrix(self) -> NDArray[Any]:
        return self.code.matrix()

    def _system(self, survivors: Numbers) -> tuple[NDArray[Any], NDArray[np.float64]]:
        rows = self._matrix[survivors].reshape(survivors.size, -1)
        return rows, np.tile(np.eye(self.code.pieces), (self.code.k, 1))

    @cached_property
    def work(self) -> tuple[list[Any], list[NDArray[Any]], NDArray[Any], NDArray[Any]]:
        """Shards, what is computed on them, the gradient, and the parameters."""
        code, rng = self.code, self.rng
        X, y = rng.standard_normal((3 * code.k, P)), rng.standard_normal(3 * code.k)
        theta = rng.standard_normal(P)
        shards = list(code.encode_data(X, y))
        partials = [least_squares_gradient(theta, *shard) for shard in shards]
        return shards, partials, least_squares_gradient(theta, X, y), theta

    @cached_property
    def messages(self) -> list[NDArray[Any]]:
        code, (_, partials, _, _) = self.code, self.work
        return [
            code.encode(worker, [partials[j] for j in code.partitions(worker, index)], index=index)
            for worker, index in map(code.sender, range(code.message_count))
        ]

    def expected(self, survivors: Numbers) -> float:
        """Relative error that a gradient from these may have: as far as it is trusted."""
        return OFF * self.code.trust(survivors).relative_error + 1e-12

    def gradients_error(self, gradient: NDArray[Any]) -> float:
        truth = self.work[2]
        return float(np.linalg.norm(gradient - truth) / np.linalg.norm(truth))


def require(holds: bool, otherwise: str) -> None:
    """Raise AssertionError, with what holds otherwise."""
    if not holds:
        raise AssertionError(otherwise)


def close(found: float, expected: float, what: str, slack: float = 0.0) -> None:
    """Require two numbers to be the same, but for rounding."""
    require(
        abs(found - expected) <= 1e-9 + slack + 1e-6 * expected,
        f"{what} is said to be {found:.3g}, but is {expected:.3g}",
    )


def alike(found: NDArray[Any], expected: NDArray[Any], what: str, tolerance: float) -> None:
    """Require two arrays to be the same, but for so much of their norm."""
    size = float(np.linalg.norm(expected)) or 1.0
    off = float(np.linalg.norm(found - expected)) / size
    require(off <= tolerance, f"{what} is off by {off:.2g}")


class raises:
    """Expect an error of a kind, with a text."""

    def __init__(self, kind: type[Exception], what: str) -> None:
        self._kind, self._what = kind, what

    def __enter__(self) -> list[Exception]:
        self._caught: list[Exception] = []
        return self._caught

    def __exit__(self, kind: type | None, error: BaseException | None, trace: Any) -> bool:
        name = self._kind.__name__
        require(error is not None, f"{self._what} raises no {name}")
        if not isinstance(error, self._kind):
            return False
        require(bool(str(error)), f"{self._what} raises {name} without a word")
        self._caught.append(error)
        return True
