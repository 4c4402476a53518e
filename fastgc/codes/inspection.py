"""Whether messages fit each other: parity checks, on one random projection of each message.

Checks h with h c_F = 0 hold as well for the projections y_i = <r, c_i> on any vector r: one number
stands for all elements of a message, as in Freivalds' test of matrix products (1977). With r
random, a corruption d changes y_i by about ||d||, and by less than a hundredth of it about once in
a hundred times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .._arrays import unit_roundoff
from .format import Format
from .parity import Numbers, Parity
from .scheme import Scheme

__all__ = ["Finding", "Inspector", "Projection"]

# Rounding errors allowed for, in units of what they are typically. The projection of an error is
# normally distributed, at least: it exceeds this once in 1e23 times.
SAFETY = 10.0

# Elements that share a factor of the projection. Measured at 10^6 elements, 256 to 16384: 1024 and
# 4096 read a message as fast as it can be read.
WIDTH = 4096


class Projection:
    """Inner products of messages with one random vector, in a pass over each.

    The vector is an outer product: a message is cut into rows of `WIDTH` elements, which
    `kernels.combine` adds up with random factors, in any precision, and their sum is multiplied by
    random numbers again. It is drawn from a fixed seed, with elements of random sign and modulus
    between 1 and 2 (over their root mean square), none of which hides what it is multiplied by.

    Parameters
    ----------
    form : Format
        Of the messages.
    paired : bool
        Whether two reals stand for a complex number, as for codes with complex coefficients.

    Attributes
    ----------
    passes : float
        Roundings of a projection, in the precision of sums.
    unit : float
        What projections and norms are multiplied by: a power of two at which nothing overflows.
    least : float
        Error of a projection where numbers are too small to be normal.
    """

    def __init__(self, form: Format, paired: bool) -> None:
        self._real = real = np.empty(0, form.message_dtype).real.dtype
        self._size = size = form.length * form.message_dtype.itemsize // real.itemsize
        self._paired = paired
        count, rest = divmod(size, WIDTH)
        self.passes = count / kernels.rows.LEAST_GROUP + 4
        shrink = math.ldexp(1.0, -count.bit_length() - 1)
        wide = real == np.dtype(np.float64)
        beyond = math.ldexp(1.0, -64) if wide else 1.0
        self.unit = shrink * beyond
        self._sum = np.empty(WIDTH, dtype=np.float64 if wide else np.float32)
        lost, cut = _smallest(real) * self.unit, _smallest(self._sum.dtype) * beyond
        self.least = math.hypot(math.sqrt(size) * lost, math.sqrt(WIDTH) * cut)
        rng = np.random.default_rng(0)
        kind, each = (np.complex128, 2) if paired else (np.float64, 1)
        self._factors = _random(rng, count) * shrink
        self._within = (_random(rng, WIDTH // each) * beyond).astype(kind)
        self._rest = (_random(rng, rest // each) * self.unit).astype(kind)

    def __call__(self, message: NDArray[Any]) -> complex:
        """The projection of a message; real for codes with real coefficients."""
        reals = message.view(self._real)
        total: complex = 0.0
        cut = self._factors.size * WIDTH
        if cut:
            rows = kernels.Rows.of(reals[:cut].reshape(-1, WIDTH), WIDTH, self._real)
            kernels.combine(kernels.REAL, rows, self._factors, self._sum)
            total = self._within @ self._numbers(self._sum)
        if cut < self._size:
            total = total + self._rest @ self._numbers(reals[cut:])
        return total

    def norm(self, message: NDArray[Any], square: float) -> float:
        """A message's norm, from its sum of squares where that does not overflow."""
        if square < math.inf:
            # elements whose squares underflow count as what just does not
            return math.sqrt(square + self._size * np.finfo(np.float64).tiny) * self.unit
        small = np.ldexp(message.view(self._real), -600)
        return float(np.linalg.norm(small)) * (2.0**600 * self.unit)

    def _numbers(self, reals: NDArray[Any]) -> NDArray[Any]:
        wide = reals.astype(np.float64, copy=False)
        return wide.view(np.complex128) if self._paired else wide


def _smallest(dtype: np.dtype[Any]) -> float:
    """The smallest positive number."""
    return float(np.nextafter(np.zeros(1, dtype), np.ones(1, dtype))[0])


def _random(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    found: NDArray[np.float64] = rng.choice([-1.0, 1.0], size) * rng.uniform(1, 2, size)
    return found / math.sqrt(7 / 3)


class Finding(NamedTuple):
    """What parity says of some messages.

    Attributes
    ----------
    covered : (f,) bool array
        Of each message, whether some check would have found another of its size in its place.
    holds : bool
        Whether all checks do.
    corrupt : list of int
        Workers whose messages must be corrupt: each alone explains checks that failed.
    suspects : list of tuple of int
        For checks that failed together, and that no one worker or more than one explains, those
        that do.
    """

    covered: NDArray[np.bool_]
    holds: bool
    corrupt: list[int]
    suspects: list[tuple[int, ...]]


class Inspector:
    """Looks at the messages of a round as they come, and says whether they fit each other.

    What rounding may do to a projection follows from the norm of its message, for the message's own
    rounding, and from ``sum_j |B_ij|`` and the largest ``||c_l|| / ||B_l||`` there is, for that of
    the sums it consists of. Codes of the data have messages whose errors do not shrink with them,
    as residuals do that fit better and better: theirs is the largest of all rounds that held.

    Parameters
    ----------
    code : Code
    form : Format
    """

    def __init__(self, code: Scheme, form: Format) -> None:
        self._code = code
        self._projection = projection = Projection(form, code.is_complex)
        self._senders = np.repeat(np.arange(code.n), code.message_counts)
        rounding, sums = unit_roundoff(form.message_dtype), unit_roundoff(form.sum_dtype)
        steps = code.load / code.messages_per_worker + 2 + code.data_roundings
        # Squared errors: for a message of norm 1, and for partial gradients of norm 1.
        self._own = rounding**2 + sums**2 * projection.passes
        with np.errstate(over="ignore", invalid="ignore"):
            self._norms = np.sqrt(code.row_norms * (code.k * code.pieces))
            self._parts = sums**2 * steps * code.row_sums**2
        self._least = math.sqrt(steps) * projection.least
        self._largest = 0.0
        self._coverable: tuple[list[int], NDArray[np.bool_]] | None = None
        self.reset()

    def reset(self) -> None:
        """Forget all messages."""
        self._values: list[complex] = []
        self._sizes: list[float] = []
        self._scales: list[float] = []

    def add(self, message: NDArray[Any], square: float, scale: float = 1.0) -> None:
        """Take a message, whose sum of squares is known, and what it is to be multiplied by."""
        self._values.append(self._projection(message) * scale)
        self._sizes.append(self._projection.norm(message, square) * scale)
        self._scales.append(scale)

    def keep(self, positions: Iterable[int]) -> None:
        """Forget all messages but these."""
        kept = list(positions)
        lists: list[list[Any]] = [self._values, self._sizes, self._scales]
        for each in lists:
            each[:] = [each[at] for at in kept]

    def coverable(self, corrupt: Sequence[int]) -> NDArray[np.bool_]:
        """Which messages are covered once all have come but those of corrupt workers."""
        if self._coverable is None or self._coverable[0] != corrupt:
            rest = np.flatnonzero(~np.isin(self._senders, corrupt))
            found = np.zeros(self._senders.size, dtype=np.bool_)
            found[rest] = self._covered(rest, self._code.parity(rest))
            self._coverable = list(corrupt), found
        return self._coverable[1]

    def matter(self, survivors: Numbers, vector: NDArray[Any]) -> NDArray[np.bool_]:
        """Messages of which another of their size would change the gradient beyond rounding."""
        everything = Parity.of(vector.reshape(survivors.size, -1).T)  # a row for each piece
        found = np.zeros(survivors.size, dtype=np.bool_)
        if everything.first.size:
            found = self._covered(survivors, everything)
        return found

    def _covered(self, survivors: Numbers, parity: Parity) -> NDArray[np.bool_]:
        """Messages for which some check would find another of their size in their place."""
        norms, at = self._norms[survivors], parity.position
        with np.errstate(over="ignore", invalid="ignore"):
            bound = SAFETY * parity.spread(self._own * norms**2 + self._parts[survivors], 1.0)
            seen = np.abs(parity.coefficient) * norms[at] >= bound[parity.row]
        covered = np.zeros(survivors.size, dtype=np.bool_)
        covered[at[seen]] = True
        return covered

    def inspect(self, survivors: Numbers) -> Finding:
        """What parity says of the messages taken, whose numbers are `survivors`."""
        parity = self._code.parity(survivors)
        covered = self._covered(survivors, parity)
        sizes = np.array(self._sizes)
        top = sizes.max(initial=0.0) or 1.0
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            sizes /= top
            largest = float((sizes / self._norms[survivors]).max(initial=0.0))
            if self._code.codes_data:
                largest = max(largest, self._largest / top)
            squares = self._own * sizes**2 + self._parts[survivors] * largest**2
            least = self._least / top * np.array(self._scales)
            bound = SAFETY * parity.spread(squares + least**2, largest)
            bound = np.where(np.isnan(bound), math.inf, bound)  # of a code beyond float64
            sums = parity.apply(np.array(self._values) / top)
            failed = np.abs(sums) > bound
            if not failed.any():
                self._largest = max(self._largest, largest * top)
                return Finding(covered, True, [], [])
            sums, weight = sums / bound, 1 / bound
        corrupt, suspects = [], []
        senders = self._senders[survivors]
        for checks in _together(parity, senders, failed):
            found = _explaining(parity, senders, checks, sums, weight)
            if len(found) == 1:
                corrupt.append(found[0])
            else:
                suspects.append(found)
        return Finding(covered, False, corrupt, suspects)


def _together(
    parity: Parity, senders: Numbers, failed: NDArray[np.bool_]
) -> Iterator[NDArray[np.bool_]]:
    """Sets of checks that share workers, directly or through others, and of which some failed."""
    row, worker = parity.row, senders[parity.position]
    left = failed.copy()
    while left.any():
        checks = np.zeros_like(left)
        grown = np.arange(left.size) == np.argmax(left)
        while (grown != checks).any():
            checks = grown
            named = np.isin(worker, worker[checks[row]])
            grown = np.zeros_like(left)
            grown[row[named]] = True
        left &= ~checks
        yield checks


def _explaining(
    parity: Parity,
    senders: Numbers,
    checks: NDArray[np.bool_],
    sums: NDArray[Any],
    weight: NDArray[np.float64],
) -> tuple[int, ...]:
    """Workers whose messages alone, were they others, would make all these checks hold."""
    row = parity.row
    entries = np.flatnonzero(checks[row])
    used, column = np.unique(parity.position[entries], return_inverse=True)
    place = np.cumsum(checks) - 1
    H = np.zeros((int(checks.sum()), used.size), dtype=parity.coefficient.dtype)
    H[place[row[entries]], column] = parity.coefficient[entries] * weight[row[entries]]
    wrong = sums[checks]
    found = []
    for worker in np.unique(senders[used]):
        mine = H[:, senders[used] == worker]
        # columns of one length: what they are multiplied by is not bounded
        lengths = np.abs(mine).max(axis=0)
        mine = mine / np.where(lengths > 0, lengths, 1)
        change = np.linalg.lstsq(mine, wrong)[0]
        if np.linalg.norm(wrong - mine @ change) <= math.sqrt(wrong.size):
            found.append(int(worker))
    return tuple(found)
