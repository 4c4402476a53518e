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
   codes, in each cluster, cyclic repetition, Lagrange codes of one message a worker), that is with
   e + t messages to spare; where messages are copies of each other (repetition codes), with
   e + t + 1 of each; where they are edges of a graph (binary codes), with e + t + 1 paths between
   the ends of a liar's that share none.

A gradient is verified if all checks hold, and it can be decoded without any e of the messages: the
difference of its vector from one without the liars' is a check, and what they change about the
gradient is what they change about that check. A round that could not have so many to spare with all
messages at hand is refused, and what is not verified is not decoded.

For who is accused are those whom every set of at most e workers holds that explains the checks that
fail, and the liars are such a set: `fastgc.coding.liars` says how they are found. A set S other
than the liars T explains checks only if some messages of S and T, and no others, can be changed so
that all checks hold: not of fewer workers than there are messages to spare, and one, in the first
case; not but of all copies, in the second. With fewer messages nobody is accused, and the round
raises a `CorruptMessageError`. Once t are, at most e - t others may lie, and at least one
is looked for. Checks that fail are looked at again when as many messages came as it takes to tell
who is corrupt: a few later than could be where others are found to be first.

Of more than e liars nothing is said. Two that send the same, where there are three copies and e is
1, outvote the third, which is dropped in their place; e = 2 wants five copies to name them, and
with three only says that someone lies.

"But for rounding errors" is more for many liars than for one. Neighbours on the circle of a large
Reed-Solomon code can change their messages so that checks see next to nothing: what they change of
the gradient is then no more than rounding errors are of one that is decoded without them. And they
can imitate a single worker among them: the smallest set is accused that explains the checks, so
that whom several frame so may be one that is honest. What is decoded without it is as precise as
without them.

A change of messages that moves a check by t times what rounding may is missed with a probability of
at most ``27 (1 + log t) / t``: r is an outer product u w' whose entries have densities of at most
0.77, so has <u, v> a density of at most ``0.77 sqrt(2) / ||v||`` (Ball and Rogozin), and so has
``w' d`` for each row d of the change, of which those whose products are smaller than so much of
what they are hold half of its square or less.

What is found is a corruption larger than ten times the rounding errors of what it is compared with.
Of its message's norm that is about ``10 u sqrt(f)`` for float16 and bfloat16, u their unit roundoff
(2% and 17% for 20 workers), and ``10 u sqrt(f) w`` for float32 and float64, whose sums are rounded
as well (2e-5 and 3e-14 at a load of 8); more by what an ill-conditioned code amplifies: of one that
is unstable, next to anything passes. Where partial gradients cancel inside messages, rounding
errors are those of the partial gradients: energies tell (`Round.receive`), which engines send with
each message. A round that is told none takes partial gradients to be as long as messages, and may
take rounding for a lie. A liar may send any energy; one that is larger than what others say of the
same partitions is a lie like any other. Of codes of the data, where no two workers compute the
same, none is believed that is larger than e + 1 of them are.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import kernels
from .._arrays import is_integer, least_number, unit_roundoff
from ..errors import CorruptMessageError, UnverifiedError
from .format import Format
from .liars import SAFETY, Failure, blame
from .parity import CHECKS, Numbers, Parity
from .rules import Blocks, withstands
from .scheme import Scheme

__all__ = ["MOST_LIARS", "Finding", "Inspector", "Projection", "check_rounded", "liars_of"]

# Workers that may lie in a round, at most.
MOST_LIARS = 16

# Checks beyond the two for each liar that it takes to find them, which make them more precise.
MARGIN = 3

# Sets of workers of which it is looked at one by one whether checks see what they do together.
SETS_LOOKED_AT, SETS_AT_A_TIME = 10_000, 10_000

# Norms between these have squares, also those of elements; a sum that is less than such a part of
# what it is made of may be 0.
SMALL, LARGE, CANCELLED = 1e-140, 1e140, 1e-6

# Changes of a message by this part of its size, beside others by theirs, do not count.
HIDDEN = 1e-3

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
        # Of elements, of sums of them, and of products with either, which are doubles.
        least = least_number(np.dtype(np.float64))
        lost = max(least_number(real) * self.unit, least)
        cut = max(least_number(self._sum.dtype) * beyond, least)
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
        if SMALL**2 < square < math.inf:
            return math.sqrt(square) * self.unit
        wide = message.view(self._real).astype(np.float64)
        largest = float(np.abs(wide).max(initial=0.0))
        if not largest:
            return 0.0
        exponent = math.frexp(largest)[1]
        return math.ldexp(float(np.linalg.norm(np.ldexp(wide, -exponent))) * self.unit, exponent)

    def _numbers(self, reals: NDArray[Any]) -> NDArray[Any]:
        wide = reals.astype(np.float64, copy=False)
        return wide.view(np.complex128) if self._paired else wide


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


def _workers(count: int) -> str:
    return "one worker" if count == 1 else f"{count} workers"


class Finding(NamedTuple):
    """What parity says of some messages.

    Attributes
    ----------
    covered : (f,) bool array
        Of each message, whether checks would have found another of its size in its place, and in
        those of as many others as may lie with it. Of messages that contradict each other, none is.
    holds : bool
        Whether all checks do.
    corrupt : list of int
        Workers whose messages must be corrupt.
    suspects : list of tuple of int or None
        For checks that failed together, and that do not tell who is corrupt, the workers of all
        sets that explain them; none, if more must be corrupt than may lie; None if that cannot be
        told, either.
    more : int
        How many messages must come at least before checks that failed can hold, unless somebody is
        named meanwhile.
    """

    covered: NDArray[np.bool_]
    holds: bool
    corrupt: list[int]
    suspects: list[tuple[int, ...] | None]
    more: int = 1


class Inspector:
    """Looks at the messages of a round as they come, and says whether they fit each other.

    What rounding may do to a projection follows from the norm of its message, for the message's own
    rounding, and from its energy, ``sum_j |B_ij|^2 ||g_j||^2``, for that of the sums it consists
    of. Where messages are no larger than that they cancel, and no norm would tell. Without energies
    the largest ``||c_l|| / ||B_l||`` there is stands for the partial gradients, times
    ``sum_j |B_ij|``: what cancels in all messages is then not known. Codes of the data have
    messages whose errors do not shrink with them, as residuals do that fit better and better:
    theirs is the largest of all rounds that held, of messages that were compared.

    Parameters
    ----------
    scheme : Scheme
    form : Format
    liars : int
        How many workers may be corrupt, e.

    Attributes
    ----------
    liars : int
        How many may still be, beside those that were found to.
    """

    def __init__(self, scheme: Scheme, form: Format, liars: int = 1) -> None:
        self._scheme, self._all_liars = scheme, liars
        self._projection = projection = Projection(form, scheme.is_complex)
        self._senders = np.repeat(np.arange(scheme.n), scheme.message_counts)
        rounding, sums = unit_roundoff(form.message_dtype), unit_roundoff(form.sum_dtype)
        steps, before = scheme.load / scheme.messages_per_worker + 2, scheme.data_roundings
        partial = unit_roundoff(form.partial_dtype)
        # Squared errors: for a message of norm 1, and for partial gradients of norm 1.
        self._own = rounding**2 + sums**2 * projection.passes
        with np.errstate(over="ignore", invalid="ignore"):
            self._norms = np.sqrt(scheme.row_norms * (scheme.k * scheme.pieces))
            parts = sums**2 * steps + partial**2 * before
            self._parts = parts * scheme.row_sums**2
        # For a message of energy 1, to which partial gradients were added one by one.
        self._terms = (sums * steps + partial * before) ** 2
        self._least = math.sqrt(steps + before) * projection.least
        self._largest = 0.0
        self._most = max(CHECKS, 2 * MARGIN + 2 * liars)
        self.reset()

    def expect(self, liars: int) -> None:
        """Look for so many corrupt workers from now on, until `reset`."""
        self.liars = liars
        self._awaited = 0  # messages before which there cannot be enough to spare

    def reset(self) -> None:
        """Forget all messages, and who was corrupt."""
        self.expect(self._all_liars)
        self._values: list[complex] = []
        self._sizes: list[float] = []
        self._fresh = False  # whether the projection is one that no message was compared by
        self._scales: list[float] = []
        self._inside: list[float] = []  # roots of energies, NaN where they are not known

    def add(
        self, message: NDArray[Any], square: float, scale: float = 1.0, energy: float = math.nan
    ) -> None:
        """Take a message, whose sum of squares is known, and what it is to be multiplied by.

        `energy` as in `Round.receive`.
        """
        if not self._fresh:
            self._projection.renew()
            self._fresh = True
        self._values.append(self._projection(message) * scale)
        self._sizes.append(self._projection.norm(message, square) * scale)
        self._scales.append(scale)
        inside = math.sqrt(energy) if energy >= 0 else math.nan
        self._inside.append(inside * self._projection.unit)

    def keep(self, positions: Iterable[int]) -> None:
        """Forget all messages but these."""
        kept = list(positions)
        lists: list[list[Any]] = [self._values, self._sizes, self._scales, self._inside]
        for each in lists:
            each[:] = [each[at] for at in kept]
        self._awaited = 0

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

    def withstands(self, survivors: Numbers, most: int | None = None) -> int:
        """Of how many workers messages can be taken away from these; at least, and at most e."""
        scheme, most = self._scheme, self.liars if most is None else most
        least = -1
        if not scheme.approximate and scheme.stragglers:
            sent = np.bincount(self._senders[survivors], minlength=scheme.n)
            least = int((sent == scheme.message_counts).sum()) - scheme.n + scheme.stragglers
        if least >= most:
            return most
        return max(least, withstands(scheme.rule, survivors, self._senders, most))

    def require_enough(self) -> None:
        """Raise ValueError if not even all messages of the code would show so many lies."""
        scheme, e = self._scheme, self.liars
        everyone = np.arange(scheme.message_count)
        spare = self.withstands(everyone)
        if spare >= e:
            return
        used = self.matter(everyone, scheme._vector_by(everyone))
        if used.any() and self.covered(everyone)[used].all():
            return
        raise ValueError(
            f"verify={e} takes messages of {_workers(e)} to spare, and {scheme!r} has "
            f"{f'those of {_workers(spare)}' if spare > 0 else 'none'}: use stragglers={e} or more "
            f"({e + 1} copies of each partition) to see that {_workers(e)} may lie, and "
            f"stragglers={2 * e} ({2 * e + 1} copies) to tell who"
            + (f"; or verify={spare}" if spare > 0 else "")
        )

    def covered(self, survivors: Numbers, parity: Parity | None = None) -> NDArray[np.bool_]:
        """Messages for which checks would find another of their size, whoever else lies.

        If the gradient can be decoded without any e messages, it is a check of each e of them: what
        they change about the gradient decoded from all, others would show.
        """
        if parity is None:
            parity = self._scheme.parity(survivors, self._most)
        covered, bound = self._visible(survivors, parity)
        if survivors.size < self._awaited:
            return np.zeros_like(covered)
        if not covered.any() or (spare := self.withstands(survivors)) >= self.liars:
            return covered
        if spare >= 0 and not self._scheme.approximate:  # some could change the gradient unseen
            covered[:] = False
            self._awaited = survivors.size + self.liars - spare
        elif self.liars > 1 or self._scheme.message_count > self._scheme.n:
            senders, norms = self._senders[survivors], self._norms[survivors]
            weight = np.zeros_like(bound)
            np.divide(1, bound, out=weight, where=(bound > 0) & np.isfinite(bound))
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
        groups = [
            None if group is None else tuple(first_worker + i for i in group)
            for group in finding.suspects
        ]
        most = self.liars
        named = [
            "some must be corrupt, and it is unknown whose"
            if group is None
            else f"those of {'one' if most == 1 else 'some'} of the workers "
            f"{', '.join(map(str, group))} must be corrupt"
            if group
            else f"those of more than {_workers(most)} must be corrupt"
            for group in groups
        ]
        more = (
            "no further message can come that would tell which"
            if complete
            else f"at least {len(groups)} more, from others, would be needed to tell which"
        )
        return CorruptMessageError(
            f"the messages contradict each other: {', and '.join(named)}; {more}",
            tuple(sorted(worker for group in groups for worker in group or ())),
        )

    def unverified(self, survivors: Numbers, unseen: Numbers, first_worker: int) -> UnverifiedError:
        """The error that says why nothing is decoded from messages that fit each other."""
        e, spare = self.liars, max(self.withstands(survivors), 0)
        if spare < e:
            came = np.unique(self._senders[survivors]).size
            shown = f"more than {_workers(spare)} lying" if spare else "a lie"
            return UnverifiedError(
                f"messages of {_workers(came)} agree, but are too few to show {shown}, and "
                f"{_workers(e)} may lie: more must come",
                e - spare,
            )
        if unseen.size:
            workers = (first_worker + np.unique(self._senders[unseen])).tolist()
            why = f"rounding errors would hide wrong messages of workers {workers}"
        else:
            why = "the gradient is 0, or its square is beyond float64, so nothing can be verified"
        return UnverifiedError(f"the messages agree, but {why}", 1)

    def resolves(self, vector: NDArray[Any], norms: NDArray[np.float64]) -> bool:
        """Whether the gradient is surely far from what has no square, by its projection."""
        a = vector.reshape(norms.size, -1)
        used = a.any(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.abs(np.array(self._values)[used] @ a[used]).max(initial=0.0)
            total /= self._projection.unit
            spread = math.sqrt((np.abs(a[used]) ** 2).sum(axis=1) @ norms[used])
        return max(SMALL, CANCELLED * spread) < total and spread < LARGE

    def inspect(self, survivors: Numbers) -> Finding:
        """What parity says of the messages taken, whose numbers are `survivors`."""
        parity = self._scheme.parity(survivors, self._most)
        sizes = np.array(self._sizes)
        top = sizes.max(initial=0.0) or 1.0
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            sizes /= top
            each = sizes / self._norms[survivors]
            largest = float(each.max(initial=0.0))
            if self._scheme.codes_data:
                largest = max(largest, self._largest / top)
            squares = self._own * sizes**2 + self._parts[survivors] * largest**2
            inside = np.array(self._inside) / top
            told = inside >= 0
            overstated = np.zeros_like(told)
            if told.any() and self._scheme.codes_data:
                inside = self._believed(survivors, inside)
            elif told.any():
                overstated = self._overstated(survivors, np.where(told, inside, sizes))
                if overstated.any() and told.all() and self._tells(survivors):
                    named = np.unique(self._senders[survivors[overstated]]).tolist()
                    return Finding(np.zeros(survivors.size, dtype=np.bool_), False, named, [])
            if told.any():
                inside[~told] = 0
                squares += self._terms * inside**2
                each = np.maximum(each, inside / self._norms[survivors])
                largest = max(largest, float(each.max()))
            least = (self._least / top * np.array(self._scales)) ** 2
            blurred = (sizes > 0).any() & (least > SAFETY**2 * squares)
            squares += least
            bound = SAFETY * parity.spread(squares, largest)
            bound = np.where(np.isnan(bound), math.inf, bound)  # of a code beyond float64
            values = np.array(self._values) / top
            sums = parity.apply(values)
            failed = np.abs(sums) > bound
        if not failed.any():
            # `trust` knows nothing of numbers too small to be normal, either.
            covered = self.covered(survivors, parity) & ~blurred & ~overstated.any()
            if covered.any():  # others may be a liar's, of any size
                self._largest = max(self._largest, float(each[covered].max()) * top)
            return Finding(covered, True, [], [])
        senders, spare = self._senders[survivors], self._spare(survivors)
        failure = Failure(parity, senders, values, squares, sums, bound, failed, spare)
        found = blame(failure, self.liars)
        return Finding(np.zeros(survivors.size, dtype=np.bool_), False, *found)

    def _believed(self, survivors: Numbers, inside: NDArray[np.float64]) -> NDArray[np.float64]:
        """Roots of energies of codes of the data, none larger than e + 1 workers say.

        Workers compute on data of their own, so none can be told from what others say; but of e + 1
        one is honest.
        """
        each = inside / self._norms[survivors]
        rank = np.sort(np.where(each >= 0, each, 0))[::-1]
        found: NDArray[np.float64] = np.minimum(each, rank[min(self.liars, rank.size - 1)])
        return found * self._norms[survivors]

    def _overstated(self, survivors: Numbers, inside: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Messages of more energy than their partial gradients can have, by what others say.

        Where e + 1 honest workers hold the largest partial gradient, it is in the energies of all
        of them, times a coefficient each. A liar could otherwise claim that rounding is anything.
        """
        each = inside / self._norms[survivors]
        rank = np.sort(each)[::-1]
        likely = rank[min(self.liars, rank.size - 1)]
        found: NDArray[np.bool_] = each > likely
        if found.any():
            found = ~(each <= self._spread * likely)
        return found

    @cached_property
    def _spread(self) -> float:
        """Norm of a message's coefficients over the least of them, at most; and rounding."""
        least = math.inf
        scheme = self._scheme
        for number in range(scheme.message_count):
            values = np.abs(scheme._message_row(number)[1]).reshape(-1)
            norm = float(np.linalg.norm(values))
            if norm:
                least = min(least, float(values[values > 0].min()) / norm)
        return (1 + 1e-6) / least

    def _tells(self, survivors: Numbers) -> bool:
        """Whether there are so many copies that even with e liars, e + 1 honest ones are there."""
        return self.withstands(survivors, 2 * self.liars) >= 2 * self.liars

    def _spare(self, survivors: Numbers) -> Numbers:
        """Messages to spare where each is, if any others than so many determine all; else 0."""
        rule = self._scheme.rule
        if not isinstance(rule, Blocks) or self._scheme.message_count != self._scheme.n:
            return np.zeros_like(survivors)
        came = np.bincount(rule.block[survivors], minlength=rule.need.size)
        spare: Numbers = (came - rule.need)[rule.block[survivors]]
        return spare


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
