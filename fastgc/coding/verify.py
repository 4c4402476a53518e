"""Whether messages fit each other: parity checks, on one random projection of each message.

Checks h with h c_F = 0 hold as well for the projections y_i = <r, c_i> on any vector r: one number
stands for all elements of a message, as in Freivalds' test of matrix products (1977). r is drawn
anew for each round, from the system's own source of randomness, and told to nobody.

Let at most e workers of a round be liars: they may know everything but r, and collude. Then, but
for rounding errors and the probability below,

1. no gradient is verified to which they contribute anything else than their code says;
2. no honest worker is accused;
3. t of them that contribute something else are accused, all of them and at once, as soon as the
   others cannot have done it. Where any `threshold` messages determine all others (Reed-Solomon
   codes in one cluster, cyclic repetition, Lagrange codes of one message a worker), that is with
   e + t messages to spare; where messages are copies of each other (repetition codes), with
   e + t + 1 of each.

For who is accused are those whom every set of at most e workers holds that explains the checks that
fail, and the liars are such a set. A set S other than the liars T explains them only if some
messages of S and T, and no others, can be changed so that all checks hold: not of fewer workers
than there are messages to spare, and one, in the first case; not but of all copies, in the second.
With fewer messages nobody is accused, and the round raises a `CorruptMessageError`.

Of more than e liars nothing is said. Two that send the same, where there are three copies and e is
1, outvote the third, which is dropped in their place; e = 2 wants five copies to name them, and
with three or four says only that someone lies.

A change of messages that moves a check by t times what rounding may is missed with a probability of
at most ``27 (1 + log t) / t``: r is an outer product u w' whose entries have densities of at most
0.77, so has <u, v> a density of at most ``0.77 sqrt(2) / ||v||`` (Ball and Rogozin), and so has
``w' d`` for each row d of the change, of which those whose products are smaller than so much of
what they are hold half of its square or less.

What is found is a corruption larger than ten times the rounding errors of what it is compared with.
Of its message's norm that is about ``10 u sqrt(f)`` for float16 and bfloat16, u their unit roundoff
(2% and 17% for 20 workers), and ``10 u sqrt(f) w`` for float32 and float64, whose sums are rounded
as well (2e-5 and 3e-14 at a load of 8); more by what an ill-conditioned code amplifies: of one that
is unstable, next to anything passes.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .._arrays import is_integer, unit_roundoff
from ..errors import CorruptMessageError
from .format import Format
from .parity import CHECKS, Numbers, Parity
from .scheme import Scheme

__all__ = ["MOST_LIARS", "Finding", "Inspector", "Projection", "check_rounded", "liars_of"]

# Workers that may lie in a round, at most: so many are named by the checks that a code makes.
MOST_LIARS = CHECKS // 2

# Sets of workers that are looked at, one by one, for those that explain checks: some seconds.
SETS_LOOKED_AT, SETS_AT_A_TIME = 100_000, 10_000

# Changes of a message by this part of its size, beside others by theirs, do not count.
HIDDEN = 1e-3

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
    random numbers again. It is drawn by `renew`, with elements of random sign and modulus
    between 1 and 2 (over their root mean square), none of which hides what it is multiplied by.

    Parameters
    ----------
    form : Format
        Of the messages.
    paired : bool
        Whether two reals stand for a complex number, as for codes with complex coefficients.
    rng : numpy.random.Generator, optional
        What it is drawn from. Default: one whose seed is secret.

    Attributes
    ----------
    passes : float
        Roundings of a projection, in the precision of sums.
    unit : float
        What projections and norms are multiplied by: a power of two at which nothing overflows.
    least : float
        Error of a projection where numbers are too small to be normal.
    """

    def __init__(self, form: Format, paired: bool, rng: np.random.Generator | None = None) -> None:
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
        self._rng = np.random.default_rng(secrets.randbits(128)) if rng is None else rng
        each = 2 if paired else 1
        self._kind = np.dtype(np.complex128 if paired else np.float64)
        within = WIDTH // each if count else 0
        self._parts = (count, shrink), (within, beyond), (rest // each, self.unit)
        self.renew()

    def renew(self) -> None:
        """Draw another vector."""
        factors, within, rest = (_random(self._rng, size) * unit for size, unit in self._parts)
        self._factors, self._within = factors, within.astype(self._kind)
        self._rest = rest.astype(self._kind)

    def __call__(self, message: NDArray[Any]) -> complex:
        """The projection of a message; real for codes with real coefficients."""
        reals = message.view(self._real)
        total: complex = 0.0
        cut = self._factors.size * WIDTH
        if cut:
            rows = kernels.Rows.of(reals[:cut].reshape(-1, WIDTH), WIDTH, self._real)
            kernels.unchecked.combine(kernels.REAL, rows, self._factors, self._sum)
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
    found: NDArray[np.float64] = rng.uniform(-1, 1, size)
    return (found + np.copysign(1.0, found)) / math.sqrt(7 / 3)


def check_rounded(form: Format, verify: bool | int | None, tracker: object) -> None:
    """Raise TypeError if messages of this format cannot be verified or tracked, and are to be."""
    if verify is not None and form.paired:
        raise TypeError(f"verify={verify} compares messages in float64: not those of float64x2")
    if is_integer(form.message_dtype) and (verify is not None or tracker is not None):
        raise TypeError(
            "verify= and tracker= go by rounding errors: messages must be of floating-point "
            f"numbers, not {form.message_dtype}"
        )


def liars_of(verify: bool | int) -> int:
    """How many liars to look for, of an option `verify`; 0: none.

    Raises
    ------
    TypeError, ValueError
        If it is neither True nor False, nor a number up to `MOST_LIARS`.
    """
    if isinstance(verify, bool | np.bool_):
        return int(verify)
    if not isinstance(verify, int | np.integer):
        raise TypeError(f"verify must be True, False or a number of liars, not {verify!r}")
    if not 0 <= verify <= MOST_LIARS:
        raise ValueError(f"verify must be a number of liars in 0 .. {MOST_LIARS}, not {verify}")
    return int(verify)


class Finding(NamedTuple):
    """What parity says of some messages.

    Attributes
    ----------
    covered : (f,) bool array
        Of each message, whether some check would have found another of its size in its place, and
        in those of as many others as may lie with it.
    holds : bool
        Whether all checks do.
    corrupt : list of int
        Workers whose messages must be corrupt: they are in every set of so many workers as may lie
        that explains checks that failed.
    suspects : list of tuple of int
        For checks that failed together, and that do not tell who is corrupt, the workers of all
        sets that explain them; none, if more must be corrupt than may lie.
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
    scheme : Scheme
    form : Format
    liars : int
        How many workers may be corrupt, e.
    """

    def __init__(self, scheme: Scheme, form: Format, liars: int = 1) -> None:
        self._scheme, self.liars = scheme, liars
        self._projection = projection = Projection(form, scheme.is_complex)
        self._senders = np.repeat(np.arange(scheme.n), scheme.message_counts)
        rounding, sums = unit_roundoff(form.message_dtype), unit_roundoff(form.sum_dtype)
        steps = scheme.load / scheme.messages_per_worker + 2 + scheme.data_roundings
        # Squared errors: for a message of norm 1, and for partial gradients of norm 1.
        self._own = rounding**2 + sums**2 * projection.passes
        with np.errstate(over="ignore", invalid="ignore"):
            self._norms = np.sqrt(scheme.row_norms * (scheme.k * scheme.pieces))
            self._parts = sums**2 * steps * scheme.row_sums**2
        self._least = math.sqrt(steps) * projection.least
        self._largest = 0.0
        self._coverable: tuple[list[int], NDArray[np.bool_]] | None = None
        self.reset()

    def expect(self, liars: int) -> None:
        """Look for so many corrupt workers from now on."""
        if liars != self.liars:
            self.liars, self._coverable = liars, None

    def reset(self) -> None:
        """Forget all messages."""
        self._values: list[complex] = []
        self._sizes: list[float] = []
        self._fresh = False  # whether the projection is one that no message was compared by
        self._scales: list[float] = []

    def add(self, message: NDArray[Any], square: float, scale: float = 1.0) -> None:
        """Take a message, whose sum of squares is known, and what it is to be multiplied by."""
        if not self._fresh:
            self._projection.renew()
            self._fresh = True
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
            found[rest] = self._covered(rest, self._scheme.parity(rest))
            self._coverable = list(corrupt), found
        return self._coverable[1]

    def matter(self, survivors: Numbers, vector: NDArray[Any]) -> NDArray[np.bool_]:
        """Messages of which another of their size would change the gradient beyond rounding."""
        everything = Parity.of(vector.reshape(survivors.size, -1).T)  # a row for each piece
        found = np.zeros(survivors.size, dtype=np.bool_)
        if everything.first.size:
            found, _ = self._visible(survivors, everything)
        return found

    def heed(self, survivors: Numbers, vector: NDArray[Any]) -> NDArray[Any]:
        """Put 0, in place, for messages that would not matter, were they of their size, but do.

        No check need have seen them: and 1e-17 times a lie may be more than the gradient.
        """
        used = self.matter(survivors, vector)
        if used.any():
            with np.errstate(over="ignore", invalid="ignore"):
                brought = np.abs(vector).reshape(used.size, -1).max(axis=1) * self._sizes
                rounding = SAFETY * math.sqrt(self._own) * np.linalg.norm(brought[used])
            vector[~used & (brought > rounding)] = 0
        return vector

    def _covered(self, survivors: Numbers, parity: Parity) -> NDArray[np.bool_]:
        """Messages for which checks would find another of their size, whoever else lies."""
        covered, bound = self._visible(survivors, parity)
        if self.liars > 1 and covered.any():
            weight = np.zeros_like(bound)
            np.divide(1, bound, out=weight, where=(bound > 0) & np.isfinite(bound))
            senders, norms = self._senders[survivors], self._norms[survivors]
            covered &= _seen_together(parity, senders, norms, weight, self.liars)
        return covered

    def _visible(
        self, survivors: Numbers, parity: Parity
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Messages for which some check would find another of their size; what checks allow."""
        norms, at = self._norms[survivors], parity.position
        with np.errstate(over="ignore", invalid="ignore"):
            bound = SAFETY * parity.spread(self._own * norms**2 + self._parts[survivors], 1.0)
            seen = np.abs(parity.coefficient) * norms[at] >= bound[parity.row]
        covered = np.zeros(survivors.size, dtype=np.bool_)
        covered[at[seen]] = True
        return covered, bound

    def contradiction(
        self, finding: Finding, first_worker: int, complete: bool
    ) -> CorruptMessageError:
        """The error that says of messages that contradict each other whose may be corrupt."""
        groups = [tuple(first_worker + i for i in group) for group in finding.suspects]
        most = self.liars
        named = [
            f"those of {'one' if most == 1 else 'some'} of the workers "
            f"{', '.join(map(str, group))} must be corrupt"
            if group
            else f"those of more than {'one worker' if most == 1 else f'{most} workers'} must be "
            "corrupt"
            for group in groups
        ]
        more = (
            "no further message can come that would tell which"
            if complete
            else f"at least {len(groups)} more, from others, would be needed to tell which"
        )
        return CorruptMessageError(
            f"the messages contradict each other: {', and '.join(named)}; {more}",
            tuple(sorted(worker for group in groups for worker in group)),
        )

    def inspect(self, survivors: Numbers) -> Finding:
        """What parity says of the messages taken, whose numbers are `survivors`."""
        parity = self._scheme.parity(survivors)
        covered = self._covered(survivors, parity)
        sizes = np.array(self._sizes)
        top = sizes.max(initial=0.0) or 1.0
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            sizes /= top
            largest = float((sizes / self._norms[survivors]).max(initial=0.0))
            if self._scheme.codes_data:
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
            found = _explaining(parity, senders, checks, sums, weight, self.liars)
            surely = set(found[0]).intersection(*found[1:]) if found else set()
            if surely:
                corrupt += sorted(surely)
            else:
                suspects.append(tuple(sorted(set().union(*found))))
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
    most: int,
) -> list[tuple[int, ...]]:
    """Sets of workers whose messages, were they others, would make all these checks hold.

    Those of at most so many workers, of which no part would do; none if there are too many to look
    at.
    """
    workers, columns = _columns(parity, senders, checks, weight)
    wrong = sums[checks]
    found: list[tuple[int, ...]] = []
    for size in range(1, min(most, len(workers)) + 1):
        if math.comb(len(workers), size) > SETS_LOOKED_AT:
            return []
        for some in combinations(range(len(workers)), size):
            if any(set(each) <= set(some) for each in found):
                continue
            mine = np.hstack([columns[i] for i in some])
            change = np.linalg.lstsq(mine, wrong)[0]
            if np.linalg.norm(wrong - mine @ change) <= math.sqrt(wrong.size):
                found.append(some)
    return [tuple(workers[i] for i in some) for some in found]


def _columns(
    parity: Parity, senders: Numbers, checks: NDArray[np.bool_], weight: NDArray[np.float64]
) -> tuple[list[int], list[NDArray[Any]]]:
    """The workers in these checks, and of each how its messages change them, of one length."""
    row = parity.row
    entries = np.flatnonzero(checks[row])
    used, column = np.unique(parity.position[entries], return_inverse=True)
    place = np.cumsum(checks) - 1
    H = np.zeros((int(checks.sum()), used.size), dtype=parity.coefficient.dtype)
    H[place[row[entries]], column] = parity.coefficient[entries] * weight[row[entries]]
    lengths = np.abs(H).max(axis=0)  # what they are multiplied by is not bounded
    H /= np.where(lengths > 0, lengths, 1)
    workers = np.unique(senders[used])
    return workers.tolist(), [H[:, senders[used] == worker] for worker in workers]


def _seen_together(
    parity: Parity,
    senders: Numbers,
    norms: NDArray[np.float64],
    weight: NDArray[np.float64],
    liars: int,
) -> NDArray[np.bool_]:
    """Messages that checks see whoever else may lie: not those of sets that can hide from them."""
    seen = np.ones(senders.size, dtype=np.bool_)
    H = np.zeros((parity.first.size, senders.size), dtype=parity.coefficient.dtype)
    H[parity.row, parity.position] = parity.coefficient
    H *= weight[:, None] * norms
    workers = np.unique(senders)
    size = min(liars, workers.size)
    if math.comb(workers.size, size) > SETS_LOOKED_AT:
        return np.zeros_like(seen)
    at = [np.flatnonzero(senders == worker) for worker in workers.tolist()]
    sets = combinations(at, size)
    while some := list(islice(sets, SETS_AT_A_TIME)):
        for positions in _of_one_length([np.concatenate(each) for each in some]):
            # what checks see of changes by the messages' own size, the least visible of all last
            _, values, ways = np.linalg.svd(H[:, positions].swapaxes(0, 1))
            hidden = np.ones(ways.shape[:2], dtype=np.bool_)
            hidden[:, : values.shape[1]] = values < math.sqrt(len(H))
            by = (np.abs(ways) > HIDDEN) & hidden[:, :, None]
            seen[positions[by.any(axis=1)]] = False
    return seen


def _of_one_length(arrays: list[Numbers]) -> Iterator[Numbers]:
    """The arrays stacked, those of each length for themselves."""
    lengths = np.array([array.size for array in arrays])
    for length in np.unique(lengths).tolist():
        yield np.stack([array for array in arrays if array.size == length])
