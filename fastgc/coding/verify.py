"""Verify that messages fit each other: parity checks on random projections of each message.

A check h with h c_F = 0 holds for the projections y_i = U c_i W on random matrices U and W as well
(c_i cut into rows). So 64 numbers stand for all elements of a message, as in Freivalds' test of
matrix products (1977). Each round draws new ones from the system's own source of randomness, and
tells them to nobody.

Let at most e workers of a round be liars. They may know everything but U and W, and collude. What
they can have changed in the gradient without being seen is one number, its *resolution*. Then

1. the error of a gradient is at most its resolution, but once in 1e6 times; it is verified if the
   resolution is at most a limit;
2. no honest worker is accused;
3. if t workers contribute something else, all t are accused as soon as the other workers cannot
   have caused the contradiction. This takes

   - e + t messages to spare where any `threshold` messages determine all others (Reed-Solomon
     codes, in each cluster; cyclic repetition; Lagrange codes of one message a worker);
   - e + t + 1 copies where messages are copies of each other (repetition codes);
   - e + t + 1 paths between the ends of a liar's message, with no message in common, where messages
     are edges of a graph (binary codes);

4. the gradient need not wait for that. It is decoded as soon as all sets of at most e workers that
   explain the messages lead to the same one.

Proof of 1. Let T be the liars, a the decoding vector, and a_T one without the messages of T. Then
h = a - a_T is a check. What the liars change in the gradient, d, they change in h c_F. Honest
messages change it by rounding only. So ``U d W`` is what the check shows of the projections, but
for rounding, and this is known. Its root mean square is less than `SEEN` times the norm of d less
than once in 1e6 times. Nobody knows T; but T is among the sets of e workers that explain the
messages, and the resolution is the largest bound of all these sets. For each set, h is the check
that rounding disturbs least. Where checks see next to nothing of a combination of messages, the
messages' sizes bound it; what is in no check may be of any size. If there are more than
`SETS_TRIED` sets, the worst is grown worker by worker: then the resolution is an estimate.

Proof of `SEEN`. Entries are uniform with variance 1, so ``|<u, v>|`` for a vector v of norm 1 has a
density of at most 0.8165 (Ball 1986: a cube's sections), and is no smaller in distribution than a
uniform number Z in [0, 1.2247]. Let D be a matrix of norm 1, with ``D'D = sum_i l_i b_i b_i'``.
Given W, ``E exp(-s |u'DW|^2)`` is convex in the eigenvalues of DWW'D', so at most what one
eigenvalue gives: phi(s |DW|^2), where ``phi(x) = E exp(-x Z^2)``. phi^8 is completely monotone, so
``E phi(s |DW|^2)^8`` is convex in l, and at most ``E phi(s (Z_1^2 + ... + Z_8^2))^8``. By Markov's
inequality, ``|UDW| < x`` is at most exp(s x^2) times as probable, for any s. For x = 0.428 the
least of these is 1e-6, and x / 8 is `SEEN`. `tests/coding/test_verify.py` computes it.

Proof of 2 and 3. A set of workers explains failed checks if other messages of theirs would make all
checks hold. Accused are the workers that are in every explaining set of at most e workers; the set
T of the liars is one of these sets. `fastgc.numerics.parity` says how they are found. Another set S
explains the checks only if changes of messages of S and T alone can keep all checks true. In the
first case that takes more workers than there are messages to spare; in the second it takes all
copies. Both are more than the e + t workers of S and T. After t workers are accused, at most e - t
others may lie.

If there are more than e liars, nothing is guaranteed. With three copies and e = 1, two liars that
send the same message outvote the honest third, which is dropped. With e = 2, it takes five copies
to name two liars; three copies only show that someone lies.

Rounding hides more if several lie together. Neighbours on the circle of a large Reed-Solomon code
can change their messages so that checks see next to nothing. They can also imitate a single worker
between them. As the smallest explaining set is accused, they can so frame an honest worker. The
gradient decoded without that worker is as precise as the one decoded without the liars.

A check fails if the root mean square of its projections is more than ten times what rounding
typically is. Where partial gradients cancel inside messages, rounding errors are those of the
partial gradients. Only energies (`Round.receive`), which engines send with each message, tell how
large these are; without one, partial gradients are taken to be at most 8,000 times as long as
their message (float32: 50 times), and nobody is called corrupt.

A liar may send any energy, also an infinite one, with each of its messages. So sizes are ranked
over workers, each by its largest message, and the bound is the size that e + 1 workers reach. One
of these is honest, so no set of e liars can raise it beyond what an honest worker computed. (Ranked
over messages, e + 1 of them could be one liar's, which would then confirm itself.) Where e + 1
honest workers hold the largest partial gradient, no honest energy exceeds this bound times the
largest ratio of a message's norm of coefficients to one of them. One that does counts as a lie, if
there are messages enough to tell. Else it makes the resolution what it claims that rounding is.
With codes of the data no two workers compute the same, so an energy is believed only up to the
bound.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from .._base.arrays import Array, Bools, Floats, Ints, is_zero, least_number, unit_roundoff
from ..errors import CorruptMessageError, UnverifiedError
from ..kernels import unchecked
from ..kernels.arrivals import ROW, SIDE, Arrivals
from ..kernels.rows import DOUBLE, Projecting, address
from ..numerics.parity import CHECKS, SAFETY, Failure, Parity, Sets, blame
from .format import Format
from .rules import Blocks, Span, Waiting, withstands
from .scheme import Scheme

# Largest number of liars that a round looks for.
MOST_LIARS = 16

# Finding liars takes two checks for each; twice this many more make it more precise.
MARGIN = 3

# All sets of so many workers are tried; of more, those that checks see least of are grown.
SETS_TRIED = 2_000

# Singular values of checks below this part of the largest say that checks depend on each other.
DEPENDENT = 1e-10

# Norms from SMALL on, and the elements of such vectors, have squares in float64.
SMALL = 1e-140

# A message larger than this, relative to those of e + 1 workers, is taken as of this size.
HUGE = 1e100

# Root of the largest number of float64. An energy beyond it is told as infinite.
LARGEST_ROOT = math.sqrt(np.finfo(np.float64).max)

# The root mean square of a vector's projections is less than SEEN times its norm once in 1e6 times.
SEEN = 0.0535

# It is more than STRETCH times its norm once in 1e6 times. Moments of uniform entries are at most
# those of Gaussian ones, so those of the mean square M, at most those of a product of two means of
# eight squares: ``E M^13 / 4^26 < 1e-6``. Sizes that are compared with the gradient's projections
# are taken as so many times larger.
STRETCH = 4.0

# Coefficients below this part of the largest, times their messages' norms, are rounding errors.
DUST = 16 * DOUBLE

# By default, lies up to so many times the rounding errors of the gradient may be in it.
COARSEST = 200.0

# Messages are not compared more finely than this part of the rounding of a message as large as
# those that e + 1 workers sent: a check that is the difference of two others, so much coarser, is
# known up to DEPENDENT.
LEAST = DOUBLE / DEPENDENT

# Messages whose terms are so many times as long as those that e + 1 workers sent, and as they are
# themselves, are decoded last.
ROUGH = 1e3

# Singular values of orthonormal checks below this say that checks see next to nothing.
FINEST = 1e-6

# These, as C knows them (fgc_inspection in csrc/fastgc.h).
CONSTANTS = {
    "least": LEAST,
    "huge": HUGE,
    "safety": SAFETY,
    "small": SMALL**2,
    "seen": SEEN,
    "stretch": STRETCH,
    "dependent": DEPENDENT,
    "dust": DUST,
    "coarse": ROUGH,
}

# Where the only set of no workers begins and ends.
NONE = np.zeros(2, dtype=np.int64)


# How projections are added up (csrc/project.c and split.c): at most IN_ROW products of a row in a
# sum; then rows of one of PARTS parts; then parts.
IN_ROW, PARTS = ROW // 2, 64


class Projection:
    """Inner products of messages with SIDE^2 random vectors, in one pass over each message.

    A message is cut into rows of `ROW` elements (csrc/kernels.def says how): a matrix M. Its
    projections are ``U M W``, where U and W are random matrices of SIDE rows and columns. Their
    entries are distributed uniformly, with mean square 1. `renew` draws them; so each vector is an
    outer product.

    With `paired` two reals stand for a complex number, as in codes with complex coefficients. The
    source of the entries, `rng`, has a secret seed by default.

    Attributes
    ----------
    numbers : Projecting
        The entries, as `fastgc.kernels.arrivals.Arrivals` takes them.
    passes : float
        Number of roundings of a projection, in float64.
    unit : float
        Factor of all projections and norms: a power of two that prevents overflow.
    underflow : float
        Error of a projection by underflow.
    """

    def __init__(self, form: Format, paired: bool, rng: np.random.Generator | None = None) -> None:
        real = np.empty(0, form.message_dtype).real.dtype
        size = form.message_size * form.message_dtype.itemsize // real.itemsize
        rows, eights = -(-size // (2 * ROW)) * 2, -(-min(size, 2 * ROW) // 16)
        # `right` begins at a cache line. Else most vectors cross lines: 1.3 to 1.9 times the time.
        room = np.empty(eights * SIDE * 8 + 8)
        right = room[-(address(room) // 8) % 8 :][: eights * SIDE * 8].reshape(eights, SIDE, 8)
        wide = real == np.dtype(np.float64)
        # In the largest sum each row has ROW products with numbers below 3: at most 2^10 in all.
        self.unit = math.ldexp(1.0, -rows.bit_length() - 10) if wide else 1.0
        self.numbers = Projecting(np.empty((rows, SIDE)), right, paired, self.unit)
        # As many numbers are drawn as there are columns; those of a column are the same.
        self._drawn = self.numbers.left.reshape(1, -1), right.reshape(-1, 1 + paired).T
        self.passes = (min(size, IN_ROW) + min(rows, PARTS + rows // PARTS) + PARTS) / 6 + 4
        # Underflow of elements, and of sums of them.
        least = least_number(np.dtype(np.float64))
        lost = max(max(least_number(real), form.least) * self.unit, least)
        self.underflow = math.hypot(math.sqrt(size) * lost, math.sqrt(SIDE * rows) * least)
        self._rng = np.random.default_rng(secrets.randbits(128)) if rng is None else rng
        self.renew()

    def renew(self) -> None:
        """Draw other vectors: 32 random bits for each number."""
        left, right = self._drawn
        drawn = self._rng.bit_generator.random_raw((left.shape[1] + right.shape[1]) // 2)
        bits = drawn.view(np.int32)
        whole = 2.0**-31 * math.sqrt(3)
        np.multiply(bits[: left.shape[1]], whole, out=left)
        np.multiply(bits[left.shape[1] :], whole * self.unit, out=right)


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


def default_limit(form: Format, rounding: float = 0.0) -> float:
    """Return the resolution up to which a gradient is verified.

    It is that of half of the messages' digits. But where partial gradients nearly cancel, as at the
    end of a training, `rounding` may cost as much, and no comparison can be finer.
    """
    return max(math.sqrt(2 * unit_roundoff(form.message_dtype)), COARSEST * rounding)


def _workers(count: int) -> str:
    return "one worker" if count == 1 else f"{count} workers"


class Finding(NamedTuple):
    """What the checks of some messages say; the last four fields are those of `Blame`.

    `sets` has one entry for each group of checks that failed and proves nobody corrupt.
    """

    corrupt: list[int]
    sets: list[Sets | None]
    suspects: list[tuple[int, ...] | None]
    more: int = 1

    @property
    def holds(self) -> bool:
        """Whether all checks hold, but for those that name the corrupt."""
        return not self.suspects

    def explanations(self, most: int) -> Sets | None:
        """The least sets of workers that explain all checks, the smallest first; None: unknown.

        They have at most `most` workers.
        """
        found: Sets = [()]
        for sets in self.sets:
            if sets is None or len(sets) * len(found) > SETS_TRIED:
                return None
            both = ((*one, *other) for one in found for other in sets)
            found = [each for each in both if len(each) <= most]
        return sorted(found, key=len)


# What checks say that all hold.
AGREE = Finding([], [], [])


class Unseen(NamedTuple):
    """The largest error that liars can have caused, relative to the gradient's norm.

    `rounding` is the typical error of rounding, if no message is larger than those of e + 1
    workers. `apart` is by how much the gradient without some workers shows to be another, or may
    be if the other messages do not determine it. `dusty`: some coefficients are mere rounding
    errors.
    """

    error: float
    rounding: float = 0.0
    apart: float = 0.0
    dusty: bool = False


class Inspector:
    """Says whether the messages of a round fit each other.

    The rounding error of a projection has two parts. Rounding the message itself costs a part of
    its norm. Rounding the sums in it costs a part of the root of its energy,
    ``sum_j |B_ij|^2 ||g_j||^2``; if partial gradients cancel, this is more than the norm suggests.

    `liars` is the number of workers that may be corrupt, e, beside those found so far. `projection`
    is the one by which the round's messages are projected as they come. `unsure` tells which of the
    messages last inspected are useless by the energies told: these are in no check. `rough` tells
    which may err so much more than others that it is better to decode without them.
    """

    def __init__(self, scheme: Scheme, form: Format, liars: int = 1) -> None:
        self._scheme, self._form, self._all_liars = scheme, form, liars
        self.projection = projection = Projection(form, scheme.is_complex)
        self._senders = scheme.messages.workers
        rounding, sums = unit_roundoff(form.message_dtype), unit_roundoff(form.sum_dtype)
        steps = scheme.load / scheme.messages.per_worker + 2
        before = scheme.precision.data_roundings
        partial = unit_roundoff(form.partial_dtype)
        # Squared errors: for a message of norm 1, and for one of energy 1. If partial gradients are
        # equal, so are the roundings of their sums, which are half of the message on average.
        alike = sums * steps / (2 * SAFETY)
        own = rounding**2 + DOUBLE**2 * projection.passes + alike**2
        terms = (sums * steps + partial * before) ** 2
        with np.errstate(all="ignore"):
            self._norms = np.sqrt(scheme.precision.row_norms * scheme.k)
        underflow = math.sqrt(steps + before) * projection.underflow
        # What is below the squares of float64 is not in an energy.
        below = math.ldexp(math.sqrt(scheme.load), -511) * projection.unit
        spread = 0.0 if scheme.data.coded else (1 + 1e-6) * scheme.precision.unevenness
        # Without an energy, partial gradients may be 8,000 times as long as their message (float32:
        # 50 times).
        untold = 1 / math.sqrt(default_limit(form))
        largest = LARGEST_ROOT * projection.unit
        self._given: dict[str, Any] = {
            "own": own,
            "terms": terms,
            "underflow": underflow,
            "lost": below,
            "load": scheme.load,
            "most": largest,
            "spread": spread,
            "untold": untold,
            "sender": self._senders,
            "row_norms": self._norms,
            "workers": scheme.n,
            "coded": scheme.data.coded,
            "real": form.decode_mode == kernels.REAL_PART,
            "padding": form.gradient_size if form.message_size > form.gradient_size else 0,
        }
        # The gradient is rounded, too, and may be less precise than the messages.
        parts = np.empty(0, form.gradient_dtype).real.dtype.itemsize
        reals = form.gradient_size * form.gradient_dtype.itemsize // parts
        self._last = unit_roundoff(form.gradient_dtype)
        self._lost = least_number(form.gradient_dtype) * math.sqrt(reals) * projection.unit
        self._most = max(CHECKS, 2 * MARGIN + 2 * liars)
        self.liars = liars

    def reset(self) -> None:
        """Forget all corrupt workers, and draw other projections."""
        self.liars = self._all_liars
        self.projection.renew()

    def attach(self, arrivals: Arrivals) -> None:
        """Inspect these messages from now on."""
        self._arrivals, count = arrivals, arrivals.numbers.size
        self._scaled = np.empty_like(arrivals.values)
        self._notes, self._from = np.empty(4 * count), np.empty(count, np.int64)
        self._told, self._rank = np.empty(6), np.empty(1, np.int64)
        self._doubts = np.empty((2, count), np.bool_)
        room = {"scaled": self._scaled, "notes": self._notes, "from": self._from}
        room |= {"norm": np.empty(count), "rough": self._doubts[0], "unsure": self._doubts[1]}
        self._c = unchecked.struct_of(
            "fgc_inspection", came=arrivals.c, **CONSTANTS, **self._given, **room
        )

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

    @np.errstate(all="ignore")
    def require_enough(self) -> None:
        """Raise ValueError if even all messages of the code could not show so many lies."""
        scheme, e = self._scheme, self.liars
        everyone = np.arange(scheme.messages.count)
        spare = self.withstands(everyone)
        if spare >= e:
            return
        if self._expected(everyone) <= default_limit(self._form):
            return
        raise ValueError(
            f"verify={e} takes messages of {_workers(e)} to spare, and {scheme!r} has "
            f"{f'those of {_workers(spare)}' if spare > 0 else 'none'}: use stragglers={e} or more "
            f"({e + 1} copies of each partition) to see that {_workers(e)} may lie, and "
            f"stragglers={2 * e} ({2 * e + 1} copies) to tell who"
            + (f"; or verify={spare}" if spare > 0 else "")
        )

    def _expected(self, everyone: Ints) -> float:
        """Return the resolution if all messages of random partial gradients come."""
        rows, count = self._scheme.equations(everyone).rows, everyone.size
        listed = kernels.Rows(count, 1, np.dtype(np.float64))
        first = np.arange(count + 1)
        came = Arrivals(listed, everyone, first, project=self.projection.numbers)
        random = np.random.default_rng(0).standard_normal((rows.shape[1], SIDE**2))
        came.values[:], came.norms[:] = rows @ random, self._norms
        came.energies[:] = (self._norms / self.projection.unit) ** 2
        self.attach(came)
        self.inspect(everyone, everyone)
        return self.unseen(self._scheme.vector(everyone), [()]).error

    @np.errstate(all="ignore")
    def inspect(self, survivors: Ints, at: Ints) -> Finding:
        """Apply the checks to the messages at these positions; `survivors` are their numbers."""
        scheme, f = self._scheme, survivors.size
        self.rough, self.unsure = self._doubts[:, :f]
        self._survivors, self._at = survivors, at
        parity = scheme.parity(survivors, self._most)
        overstated, failed, unsure = self._compare(parity)
        if unsure:  # checks anew, without these messages, whose errors spoil them
            sure, rest = np.flatnonzero(~self.unsure), np.flatnonzero(self.unsure)
            checks = scheme.parity(survivors[sure], self._most), sure
            parity = Parity.beside([checks, (Parity.none(), rest)])
            overstated, failed, _ = self._compare(parity)
        if not (overstated or failed):
            return AGREE
        senders, notes = self._from[:f], self._notes[: 4 * f].reshape(4, f)
        # Without any 2e workers, e + 1 honest copies must be left. What a code may leave out can be
        # the largest partial gradient, whose only copy then claims more than all others.
        known = not scheme.approximate or isinstance(scheme.rule, Waiting)
        if (
            overstated
            and known
            and self.withstands(survivors, 2 * self.liars) >= 2 * self.liars > 0
        ):
            return Finding(np.unique(senders[notes[3] > 0]).tolist(), [], [])
        if not failed:
            return AGREE
        found, spare = self._compared, self._spare(survivors)
        results = found.sums, parity.error * self._size, found.bound, found.failed, spare
        failure = Failure(parity, senders, self._scaled[:f], notes[0], *results)
        return Finding(*blame(failure, self.liars))

    def _compare(self, parity: Parity) -> tuple[float, float, float]:
        """Apply these checks; count claims too large, checks that fail, unsure messages."""
        found = self._compared = Compared.of(parity, self._scaled)
        results = found.sums, found.bound, found.failed, self._told
        unchecked.inspect(self._at, self._c, *found.checks, self.liars, *results)
        self._rank[0] = -1  # there is no basis yet
        overstated, failed, self._top, self._size, unsure, _ = self._told.tolist()
        return overstated, failed, unsure

    @np.errstate(all="ignore")
    def unseen(self, vector: Array, sets: Sets) -> Unseen:
        """Return what liars can have changed unseen in what `vector` decodes.

        `vector` has a coefficient for each of the messages last inspected. The liars are e workers
        among which is one of these `sets`: all sets of e workers that contain one are tried, or if
        there are too many, the worst.
        """
        found, told = self._compared, self._told
        vector = np.ascontiguousarray(vector, dtype=self._scaled.dtype)
        if self._rank[0] < 0:
            m = found.bound.size
            self._basis = np.empty((m, vector.size), vector.dtype)
            self._shown = np.empty_like(found.sums)
        given = self._c, vector, self._basis, self._shown, self._rank
        start, workers = NONE, NONE[:0]
        if sets != [()] or math.comb(vector.size, min(self.liars, vector.size)) > SETS_TRIED:
            unchecked.unseen(*given, NONE[:1], NONE, 0, told)  # makes the basis
            sets = list(self._tried(vector, sets))
            start = np.cumsum([0, *map(len, sets)])
            workers = np.array([worker for some in sets for worker in some], np.int64)
        unchecked.unseen(*given, start, workers, self.liars, told)
        gradient, rounded, usually, error, apart, dusty = told.tolist()
        if not gradient:
            zero = self._zero and self.withstands(self._survivors) >= self.liars
            return Unseen(0.0 if zero else math.inf)
        own = self._own_error(vector)
        error += SAFETY * math.hypot(rounded, own) + self._lost / self._top
        error = error / gradient + self._last
        usually = math.hypot(usually / gradient, own / gradient, self._last)
        return Unseen(error if error == error else math.inf, usually, apart / gradient, dusty > 0)

    def _own_error(self, vector: Array) -> float:
        """Return the typical error of what `vector` decodes by errors of its coefficients.

        Messages are taken to be no larger than those of e + 1 workers. A residual costs no more
        than rounding: near-exact vectors balance both.
        """
        used = np.flatnonzero(vector)
        numbers = self._survivors[used]
        errors = self._scheme.precision.vector_errors(numbers, vector[used])
        if errors is None:
            return 0.0
        norms = self._arrivals.norms[self._at[used]] / self._top
        norms = np.minimum(norms, self._norms[numbers] * self._size)
        return math.sqrt(float(errors @ norms**2))

    @property
    def _zero(self) -> bool:
        """Whether all messages and energies are 0."""
        came = self._arrivals
        return not (came.energies[: came.count] > 0).any() and all(map(is_zero, came.rows.arrays))

    def _tried(self, vector: Array, sets: Sets) -> Iterator[tuple[int, ...]]:
        """Yield these sets of workers, grown to e workers if too many sets contain them."""
        workers = np.unique(self._from[: vector.size]).tolist()
        for base in sets:
            known = [worker for worker in base if worker in workers]
            others = len(workers) - len(known)
            more = max(0, min(self.liars - len(base), others))
            if len(sets) * math.comb(others, more) <= SETS_TRIED:
                yield base
            else:
                yield (*set(base).difference(known), *self._grown(vector, known, more))

    def _grown(self, vector: Array, known: list[int], more: int) -> list[int]:
        """Return a set that checks see little of: each further worker is the one they miss most."""
        f, senders = vector.size, self._from[: vector.size]
        units = np.sqrt(self._notes[:f])
        reach = self._notes[f : 2 * f] / units
        chosen, vector, basis = list(known), vector * units, self._basis[: self._rank[0]].copy()
        for turn in range(len(known) + more):
            if turn >= len(known):
                sizes = np.linalg.norm(basis, axis=0)
                gain = np.minimum(
                    np.abs(vector) / np.maximum(sizes, FINEST), np.abs(vector) * reach
                )
                gains = np.bincount(senders, gain**2)
                gains[np.bincount(senders) == 0] = -1
                gains[chosen] = -1
                chosen.append(int(gains.argmax()))
            at = np.flatnonzero(senders == chosen[turn])
            left, values, right = np.linalg.svd(basis[:, at], full_matrices=False)
            seen = values > FINEST
            left, along = left[:, seen], (vector[at] @ right[seen].conj().T) / values[seen]
            # What is left to see once these messages are fitted.
            vector = vector - along @ (left.conj().T @ basis)
            basis = basis - left @ (left.conj().T @ basis)
            vector[at], basis[:, at] = 0, 0
        return chosen

    def contradiction(
        self, finding: Finding, first_worker: int, complete: bool
    ) -> CorruptMessageError:
        """Return the error for messages that contradict each other: whose may be corrupt."""
        groups = [
            None if group is None else tuple(first_worker + i for i in group)
            for group in finding.suspects
        ]
        most = self.liars or self._all_liars
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

    def unverified(self, survivors: Ints, resolution: float, limit: float) -> UnverifiedError:
        """Return the error for messages that agree, but not finely enough."""
        e, spare = self.liars, max(self.withstands(survivors), 0)
        if spare < e:
            came = np.unique(self._senders[survivors]).size
            shown = f"more than {_workers(spare)} lying" if spare else "a lie"
            return UnverifiedError(
                f"messages of {_workers(came)} agree, but are too few to show {shown}, and "
                f"{_workers(e)} may lie: more must come",
                e - spare,
            )
        return UnverifiedError(
            f"the messages agree, but lies of {resolution:.1e} of the gradient could hide behind "
            f"rounding errors, which is more than {limit:.1e}",
            1,
        )

    def _spare(self, survivors: Ints) -> Ints:
        """Return how many messages each message's block has to spare; 0: unknown."""
        rule = self._scheme.rule
        if not isinstance(rule, Blocks) or self._scheme.messages.count != self._scheme.n:
            return np.zeros_like(survivors)
        came = np.bincount(rule.block[survivors[~self.unsure]], minlength=rule.need.size)
        spare: Ints = (came - rule.need)[rule.block[survivors]]
        return spare


class Compared(NamedTuple):
    """Checks of messages, and what they say, as C writes it."""

    checks: tuple[Ints, Ints, Array, Floats]  # those of a `Parity`, as C reads them
    sums: Array  # (m, SIDE^2)
    bound: Floats
    failed: Bools

    @classmethod
    def of(cls, parity: Parity, scaled: Array) -> Compared:
        """Return room for the results of these checks, of the messages' dtype."""
        m, kind = parity.first.size, scaled.dtype
        first, position, coefficient, error, _ = parity
        coefficient = np.ascontiguousarray(coefficient, dtype=kind)
        return cls(
            (first, np.ascontiguousarray(position), coefficient, error),
            np.empty((m, SIDE**2), kind),
            np.empty(m),
            np.empty(m, np.bool_),
        )
