"""Verify that messages fit each other: parity checks on one random projection of each message.

A check h with h c_F = 0 holds for the projections y_i = <r, c_i> on any vector r as well. So one
number stands for all elements of a message, as in Freivalds' test of matrix products (1977). Each
round draws a new r from the system's own source of randomness, and tells it to nobody.

Let at most e workers of a round be liars. They may know everything but r, and collude. Then, except
for rounding errors and misses, whose bounds follow,

1. a gradient is not verified if a liar contributes to it anything but what its code says;
2. no honest worker is accused;
3. if t workers contribute something else, all t are accused, at once, as soon as the other workers
   cannot have caused the contradiction. This takes

   - e + t messages to spare where any `threshold` messages determine all others (Reed-Solomon
     codes, in each cluster; cyclic repetition; Lagrange codes of one message a worker);
   - e + t + 1 copies where messages are copies of each other (repetition codes);
   - e + t + 1 paths between the ends of a liar's message, with no message in common, where messages
     are edges of a graph (binary codes).

Proof of 1. A gradient is verified if all checks hold and it can be decoded without any e of the
messages. The difference between its decoding vector and one without the liars' messages is a check.
The liars change this check by exactly what they change the gradient by. A code that has too few
messages to spare even when all have come is refused, and an unverified gradient is not decoded.

Proof of 2 and 3. A set of workers explains failed checks if other messages of theirs would make all
checks hold. Accused are the workers that are in every explaining set of at most e workers; the set
T of the liars is one of these sets. `fastgc.numerics.parity` says how they are found. Another set S
explains the checks only if changes of messages of S and T alone can keep all checks true. In the
first case that takes more workers than there are messages to spare; in the second it takes all
copies. Both are more than the e + t workers of S and T.

With fewer messages nobody is accused, and the round raises `CorruptMessageError`. After t workers
are accused, at most e - t others may lie; the round still looks for at least one. Failed checks are
inspected again only when enough messages have come to tell who is corrupt, which is a few messages
late if others are accused in between.

If there are more than e liars, nothing is guaranteed. With three copies and e = 1, two liars that
send the same message outvote the honest third, which is dropped. With e = 2, it takes five copies
to name two liars; three copies only show that someone lies.

Rounding hides more if several lie together. Neighbours on the circle of a large Reed-Solomon code
can change their messages so that checks see next to nothing. They then change the gradient by no
more than the rounding errors of a gradient decoded without them. They can also imitate a single
worker between them. As the smallest explaining set is accused, they can so frame an honest worker.
The gradient decoded without that worker is as precise as the one decoded without the liars.

If a change of messages moves a check by t times its rounding bound, the probability of a miss is at
most ``27 (1 + log t) / t``. For r is an outer product u w', and the entries of u and w have
densities of at most 0.77. So <u, v> has a density of at most ``0.77 sqrt(2) / ||v||`` (Ball and
Rogozin). The same holds for ``w' d`` with any row d of the change. By Markov's inequality, rows
with ``|w' d| < x ||d||`` hold more than half of the change's square with a probability of at most
4.4 x.

A corruption is found if it exceeds ten times the rounding errors of what it is compared with.
Relative to the message's norm, that is about ``10 u sqrt(f)`` for float16 and bfloat16, u their
unit roundoff (2% and 17% for 20 workers). For float32 and float64, whose sums are rounded as well,
it is about ``10 u sqrt(f) w`` (2e-5 and 3e-14 at a load of 8). Ill-conditioned codes amplify it; in
an unstable code almost anything passes.

Where partial gradients cancel inside messages, rounding errors are those of the partial gradients.
Only energies (`Round.receive`), which engines send with each message, tell how large these are.
Without energies a round assumes that partial gradients are as long as messages, and may take
rounding for a lie.

A liar may send any energy, also an infinite one, with each of its messages. So sizes are ranked
over workers, each by its largest message, and the bound is the size that e + 1 workers reach. One
of these is honest, so no set of e liars can raise it beyond what an honest worker computed. (Ranked
over messages, e + 1 of them could be one liar's, which would then confirm itself.) Where e + 1
honest workers hold the largest partial gradient, no honest energy exceeds this bound times the
largest ratio of a message's norm of coefficients to one of them. One that does counts as a lie, and
nothing is verified with it. With codes of the data no two workers compute the same, so an energy is
believed only up to the bound. An energy that is not finite is believed only if e + 1 workers report
such energies; then no check sees anything, and nothing is verified.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import combinations, islice
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from .._base.arrays import Array, Bools, Floats, Ints, least_number, unit_roundoff
from ..errors import CorruptMessageError, UnverifiedError
from ..numerics.parity import CHECKS, SAFETY, Failure, Parity, blame
from .format import Format
from .rules import Blocks, Span, withstands
from .scheme import Scheme, message_row

# Largest number of liars that a round looks for.
MOST_LIARS = 16

# Finding liars takes two checks for each; twice this many more make it more precise.
MARGIN = 3

# Most sets of workers that are searched one by one for changes that checks do not see.
SETS_LOOKED_AT, SETS_AT_A_TIME = 10_000, 10_000

# Norms between SMALL and LARGE, and the elements of such vectors, have squares in float64. A sum
# may be 0 if it is smaller than this part of its terms.
SMALL, LARGE, CANCELLED = 1e-140, 1e140, 1e-6

# Root of the largest number of float64. An energy beyond it is told as infinite.
LARGEST_ROOT = math.sqrt(np.finfo(np.float64).max)

# Messages with no more than this share in a change, relative to their sizes, have no part in it.
HIDDEN = 1e-3

# Elements that share a factor of the projection. Of 256 to 16384, at 1e6 elements, 1024 and 4096
# cost least: no more than reading the message.
WIDTH = 4096


class Projection:
    """Inner products of messages with one random vector, in one pass over each message.

    The vector is an outer product. A message is cut into rows of `WIDTH` elements;
    `kernels.combine` adds the rows with random factors, in any precision; then the sum is
    multiplied by random numbers again. `renew` draws the vector. Its factors have random signs and
    moduli between 1 and 2 (over their root mean square), so that none hides an element.

    With `paired` two reals stand for a complex number, as in codes with complex coefficients. The
    source of the vector, `rng`, has a secret seed by default.

    Attributes
    ----------
    passes : float
        Number of roundings of a projection, in the precision of sums.
    unit : float
        Factor of all projections and norms: a power of two that prevents overflow.
    underflow : float
        Error of a projection by underflow.
    """

    def __init__(self, form: Format, paired: bool, rng: np.random.Generator | None = None) -> None:
        self._real = real = np.empty(0, form.message_dtype).real.dtype
        self._size = size = form.message_size * form.message_dtype.itemsize // real.itemsize
        self._paired = paired
        count, rest = divmod(size, WIDTH)
        self.passes = count / kernels.rows.LEAST_GROUP + 4
        shrink = math.ldexp(1.0, -count.bit_length() - 1)
        wide = real == np.dtype(np.float64)
        beyond = math.ldexp(1.0, -64) if wide else 1.0
        self.unit = shrink * beyond
        self._sum = np.empty(WIDTH, dtype=np.float64 if wide else np.float32)
        # Underflow of elements, of sums of them, and of their products, which are float64.
        least = least_number(np.dtype(np.float64))
        lost = max(least_number(real) * self.unit, least)
        cut = max(least_number(self._sum.dtype) * beyond, least)
        self.underflow = math.hypot(math.sqrt(size) * lost, math.sqrt(WIDTH) * cut)
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

    def __call__(self, message: Array) -> complex:
        """Return the projection of a message; it is real for codes with real coefficients."""
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

    def norm(self, message: Array, square: float) -> float:
        """Return a message's norm, from its sum of squares unless that over- or underflows."""
        if SMALL**2 < square < math.inf:
            return math.sqrt(square) * self.unit
        wide = message.view(self._real).astype(np.float64)
        largest = float(np.abs(wide).max(initial=0.0))
        if not largest:
            return 0.0
        exponent = math.frexp(largest)[1]
        return math.ldexp(float(np.linalg.norm(np.ldexp(wide, -exponent))) * self.unit, exponent)

    def _numbers(self, reals: Array) -> Any:
        wide = reals.astype(np.float64, copy=False)
        return wide.view(np.complex128) if self._paired else wide


def _random(rng: np.random.Generator, size: int) -> Floats:
    found: Floats = rng.uniform(-1, 1, size)
    return (found + np.copysign(1.0, found)) / math.sqrt(7 / 3)


def liars_of(verify: bool | int) -> int:
    """Return how many liars an option `verify` asks to look for.

    TypeError or ValueError if it is neither a bool nor a number of liars in 0 .. `MOST_LIARS`.
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
    """The result of the parity checks of some messages; the last three fields are those of `Blame`.

    A message is `covered` if checks would have noticed another of its size in its place, whichever
    other workers lie with it; none is if messages contradict each other.
    """

    covered: Bools
    holds: bool  # whether all checks hold
    corrupt: list[int]
    suspects: list[tuple[int, ...] | None]
    more: int = 1


class Inspector:
    """Takes the messages of a round as they come, and says whether they fit each other.

    The rounding error of a projection has two parts. Rounding the message itself costs a part of
    its norm. Rounding the sums in it costs a part of the root of its energy,
    ``sum_j |B_ij|^2 ||g_j||^2``; if partial gradients cancel, this is more than the norm suggests.
    Without energies, the largest ``||c_l|| / ||B_l||`` of all messages, times ``sum_j |B_ij|``,
    takes their place. It misses what cancels in every message. In codes of the data, errors do not
    shrink with the messages, which are residuals of an ever better fit. So for these codes the
    largest ratio also includes all earlier rounds that held, of messages that were covered.

    `liars` is the number of workers that may be corrupt, e, beside those found so far.
    """

    def __init__(self, scheme: Scheme, form: Format, liars: int = 1) -> None:
        self._scheme, self._all_liars = scheme, liars
        self._projection = projection = Projection(form, scheme.is_complex)
        self._senders = scheme.messages.workers
        rounding, sums = unit_roundoff(form.message_dtype), unit_roundoff(form.sum_dtype)
        steps, before = (
            scheme.load / scheme.messages.per_worker + 2,
            scheme.precision.data_roundings,
        )
        partial = unit_roundoff(form.partial_dtype)
        # Squared errors: for a message of norm 1, and for partial gradients of norm 1.
        self._own = rounding**2 + sums**2 * projection.passes
        with np.errstate(over="ignore", invalid="ignore"):
            self._norms = np.sqrt(scheme.precision.row_norms * scheme.k)
            parts = sums**2 * steps + partial**2 * before
            self._parts = parts * scheme.precision.row_sums**2
        # For a message of energy 1, whose partial gradients were added one by one.
        self._terms = (sums * steps + partial * before) ** 2
        self._underflow = math.sqrt(steps + before) * projection.underflow
        self._largest = 0.0
        self._most = max(CHECKS, 2 * MARGIN + 2 * liars)
        self.reset()

    def expect(self, liars: int) -> None:
        """Look for `liars` corrupt workers from now on, until `reset`."""
        self.liars = liars
        self._look_from = 0  # with fewer messages there cannot be enough to spare

    def reset(self) -> None:
        """Forget all messages and all corrupt workers."""
        self.expect(self._all_liars)
        self._values: list[complex] = []
        self._sizes: list[float] = []
        self._fresh = False  # whether the vector was drawn in this round
        self._inside: list[float] = []  # roots of energies; NaN: unknown

    def add(self, message: Array, square: float, energy: float = math.nan) -> None:
        """Take a message with its sum of squares; `energy` is that of `Round.receive`."""
        if not self._fresh:
            self._projection.renew()
            self._fresh = True
        self._values.append(self._projection(message))
        self._sizes.append(self._projection.norm(message, square))
        inside = math.sqrt(energy) if energy >= 0 else math.nan
        self._inside.append(inside * self._projection.unit)

    def keep(self, positions: Iterable[int]) -> None:
        """Keep the messages at these positions, and forget all others."""
        kept = list(positions)
        lists: list[list[Any]] = [self._values, self._sizes, self._inside]
        for each in lists:
            each[:] = [each[at] for at in kept]
        self._look_from = 0

    def matter(self, survivors: Ints, vector: Array) -> Bools:
        """Mark messages that would change the gradient noticeably if others of their size."""
        everything = Parity.of(vector[np.newaxis])
        found = np.zeros(survivors.size, dtype=np.bool_)
        if everything.first.size:
            found, _ = self._visible(survivors, everything)
        return found

    def heed(self, survivors: Ints, vector: Array) -> Array:
        """Set to 0, in place, coefficients of messages that count only because they are too large.

        Had they the expected size, the gradient would not depend on them, so checks need not see
        them. But 1e-17 times a lie may be more than the gradient.
        """
        used = self.matter(survivors, vector)
        if used.any():
            with np.errstate(over="ignore", invalid="ignore"):
                brought = np.abs(vector).reshape(used.size, -1).max(axis=1) * self._sizes
                rounding = SAFETY * math.sqrt(self._own) * np.linalg.norm(brought[used])
            vector[~used & (brought > rounding)] = 0
        return vector

    def withstands(self, survivors: Ints, most: int | None = None) -> int:
        """Lower bound, at most `most` (e), of how many workers can be taken away, whichever.

        The other messages still determine the gradient; -1: even all are too few.
        """
        scheme, most = self._scheme, self.liars if most is None else most
        least = -1
        # Checks see complex messages whole. A code that is found to need only their real parts may
        # tolerate more stragglers than they do.
        found = isinstance(scheme.rule, Span) and scheme.layout == "complex"
        if not (scheme.approximate or found) and scheme.stragglers:
            sent = np.bincount(self._senders[survivors], minlength=scheme.n)
            least = int((sent == scheme.messages.counts).sum()) - scheme.n + scheme.stragglers
        if least >= most:
            return most
        return max(least, withstands(scheme.rule, survivors, self._senders, most))

    def require_enough(self) -> None:
        """Raise ValueError if even all messages of the code could not show so many lies."""
        scheme, e = self._scheme, self.liars
        everyone = np.arange(scheme.messages.count)
        spare = self.withstands(everyone)
        if spare >= e:
            return
        used = self.matter(everyone, scheme.vector(everyone))
        if used.any() and self.covered(everyone)[used].all():
            return
        raise ValueError(
            f"verify={e} takes messages of {_workers(e)} to spare, and {scheme!r} has "
            f"{f'those of {_workers(spare)}' if spare > 0 else 'none'}: use stragglers={e} or more "
            f"({e + 1} copies of each partition) to see that {_workers(e)} may lie, and "
            f"stragglers={2 * e} ({2 * e + 1} copies) to tell who"
            + (f"; or verify={spare}" if spare > 0 else "")
        )

    def covered(self, survivors: Ints, parity: Parity | None = None) -> Bools:
        """Mark messages for which checks would notice another of their size, whoever else lies.

        If the gradient can be decoded without any e messages, changes of any e messages show: what
        they change in the gradient decoded from all, they do not change in the one without them.
        """
        if parity is None:
            parity = self._scheme.parity(survivors, self._most)
        covered, bound = self._visible(survivors, parity)
        if survivors.size < self._look_from:
            return np.zeros_like(covered)
        if not covered.any() or (spare := self.withstands(survivors)) >= self.liars:
            return covered
        if spare >= 0 and not self._scheme.approximate:  # some e can change the gradient unseen
            covered[:] = False
            self._look_from = survivors.size + self.liars - spare
        elif self.liars > 1 or self._scheme.messages.count > self._scheme.n:
            senders, norms = self._senders[survivors], self._norms[survivors]
            weight = np.zeros_like(bound)
            np.divide(1, bound, out=weight, where=(bound > 0) & np.isfinite(bound))
            covered &= _seen_together(parity, senders, norms, weight, self.liars)
        return covered

    def _visible(self, survivors: Ints, parity: Parity) -> tuple[Bools, Floats]:
        """Mark messages for which a check would notice another of their size; return the bounds."""
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
        """Return the error for messages that contradict each other: whose may be corrupt."""
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

    def unverified(self, survivors: Ints, unseen: Ints, first_worker: int) -> UnverifiedError:
        """Return the error for messages that fit each other, but from which nothing is decoded."""
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

    def resolves(self, vector: Array, norms: Floats) -> bool:
        """Say whether the gradient's norm, by its projection, surely has a square in float64.

        `norms` are the messages' sums of squares.
        """
        used = vector != 0
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.abs(np.array(self._values)[used] @ vector[used]) / self._projection.unit
            spread = math.sqrt(np.abs(vector[used]) ** 2 @ norms[used])
        return max(SMALL, CANCELLED * spread) < total and spread < LARGE

    def inspect(self, survivors: Ints) -> Finding:
        """Apply the checks to the messages taken, whose numbers are `survivors`."""
        parity = self._scheme.parity(survivors, self._most)
        sizes = np.array(self._sizes)
        top = sizes.max(initial=0.0) or 1.0
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            sizes /= top
            each = sizes / self._norms[survivors]
            largest = float(each.max(initial=0.0))
            if self._scheme.data.coded:
                largest = max(largest, self._largest / top)
            squares = self._own * sizes**2 + self._parts[survivors] * largest**2
            inside = np.array(self._inside) / top
            told = inside >= 0
            overstated = np.zeros_like(told)
            if told.any() and self._scheme.data.coded:
                inside = self._believed(survivors, inside)
            elif told.any():
                overstated = self._overstated(survivors, np.where(told, inside, sizes), top)
                # Without any 2e workers, e + 1 honest copies must be left.
                tells = overstated.any() and told.all()
                if tells and self.withstands(survivors, 2 * self.liars) >= 2 * self.liars:
                    named = np.unique(self._senders[survivors[overstated]]).tolist()
                    return Finding(np.zeros(survivors.size, dtype=np.bool_), False, named, [])
            if told.any():
                inside[~told] = 0
                squares += self._terms * inside**2
                each = np.maximum(each, inside / self._norms[survivors])
                largest = max(largest, float(each.max()))
            least = (self._underflow / top) ** 2
            blurred = (sizes > 0).any() & (least > SAFETY**2 * squares)
            squares += least
            bound = SAFETY * parity.spread(squares, largest)
            bound = np.where(np.isnan(bound), math.inf, bound)  # for codes beyond float64
            values = np.array(self._values) / top
            sums = parity.apply(values)
            failed = np.abs(sums) > bound
        if not failed.any():
            # `trust` ignores underflow, too.
            covered = self.covered(survivors, parity) & ~blurred & ~overstated.any()
            if covered.any():  # the others may be a liar's, of any size
                self._largest = max(self._largest, float(each[covered].max()) * top)
            return Finding(covered, True, [], [])
        senders, spare = self._senders[survivors], self._spare(survivors)
        failure = Failure(parity, senders, values, squares, sums, bound, failed, spare)
        found = blame(failure, self.liars)
        return Finding(np.zeros(survivors.size, dtype=np.bool_), False, *found)

    def _believed(self, survivors: Ints, inside: Floats) -> Floats:
        """Return roots of energies of codes of the data, none larger than e + 1 workers report.

        Each worker computes on data of its own, so nobody else can confirm its energy. But of e + 1
        workers one is honest.
        """
        each = inside / self._norms[survivors]
        found: Floats = np.minimum(each, self._reported(survivors, np.where(each >= 0, each, 0)))
        return found * self._norms[survivors]

    def _overstated(self, survivors: Ints, inside: Floats, top: float) -> Bools:
        """Mark messages with more energy than their partial gradients can have, by what others say.

        If e + 1 honest workers hold the largest partial gradient, it is in an energy of each of
        them, times a coefficient. Otherwise a liar could claim any rounding. An energy beyond
        float64 counts as the largest number there: what honest workers compute is no smaller.
        """
        norms = self._norms[survivors]
        likely = self._spread * self._reported(
            survivors, np.nan_to_num(inside / norms, posinf=math.inf)
        )
        claimed = np.minimum(inside, LARGEST_ROOT * self._projection.unit / top)
        found: Bools = claimed > likely * norms
        return found

    def _reported(self, survivors: Ints, each: Floats) -> float:
        """Return the largest size that e + 1 workers reach, with whichever of their messages.

        One that sends several messages counts once: of e + 1 workers one is honest, but e + 1
        messages may all be one liar's. If fewer workers have sent, return what all of them reach;
        then nothing is verified.
        """
        workers = np.zeros(self._scheme.n)
        np.maximum.at(workers, self._senders[survivors], each)
        came = np.unique(self._senders[survivors]).size
        return float(np.sort(workers)[::-1][min(self.liars, came - 1)])

    @cached_property
    def _spread(self) -> float:
        """Largest ratio of the norm of a message's coefficients to the least nonzero one."""
        least = math.inf
        scheme = self._scheme
        for number in range(scheme.messages.count):
            values = np.abs(message_row(scheme, number)[1]).reshape(-1)
            norm = float(np.linalg.norm(values))
            if norm:
                least = min(least, float(values[values > 0].min()) / norm)
        return (1 + 1e-6) / least

    def _spare(self, survivors: Ints) -> Ints:
        """Return how many messages each message's block has to spare; 0: unknown."""
        rule = self._scheme.rule
        if not isinstance(rule, Blocks) or self._scheme.messages.count != self._scheme.n:
            return np.zeros_like(survivors)
        came = np.bincount(rule.block[survivors], minlength=rule.need.size)
        spare: Ints = (came - rule.need)[rule.block[survivors]]
        return spare


def _seen_together(
    parity: Parity, senders: Ints, norms: Floats, weight: Floats, liars: int
) -> Bools:
    """Mark messages in no set that can hide a change; `weight` is 1 over each check's bound."""
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
            # What checks see of unit changes, relative to the messages' sizes; least visible last.
            _, values, ways = np.linalg.svd(H[:, positions].swapaxes(0, 1))
            hidden = np.ones(ways.shape[:2], dtype=np.bool_)
            hidden[:, : values.shape[1]] = values < math.sqrt(len(H))
            by = (np.abs(ways) > HIDDEN) & hidden[:, :, None]
            seen[positions[by.any(axis=1)]] = False
    return seen


def _of_one_length(arrays: list[Ints]) -> Iterator[Ints]:
    """Yield the arrays stacked, one stack for each length."""
    lengths = np.array([array.size for array in arrays])
    for length in np.unique(lengths).tolist():
        yield np.stack([array for array in arrays if array.size == length])
