"""What a code is: what a scheme must say of itself, what it may say, and what follows from that.

One method is required: `row`, which says what a worker computes and sends (`Assignment`). From it
alone everything follows, correctly if slowly. What else a scheme may say makes it faster or more
precise; each such method stands here, with its contract and its default. The verbs that use them
are `fastgc.coding.code.Code`'s.
"""

from __future__ import annotations

import math
import struct
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import kernels
from ..errors import NotDecodableError
from .assignment import Assignment
from .cache import SurvivorCache, SurvivorMask, VectorFunction, filling, key_of
from .format import Format, Layout
from .parity import Parity
from .ridge import near_exact_solution
from .rounding import DOUBLE, sums_of
from .rules import Follower, Rule, Waiting, check_wait
from .span import SOLVED, Equations, Span, least_squares, tolerated

__all__ = ["Scheme"]

# Coefficients kept, at most, to compute what combinations of messages lack.
ENTRIES_KEPT = 1 << 20

SETS_KEPT = 256  # survivor sets whose shortest vectors are remembered

FORMATS_KEPT = 64  # sizes and dtypes of gradients: making one takes as long as a small decode


class Scheme(Assignment):
    """A gradient code: n workers, k partitions, and their coefficients.

    Messages are numbered: worker by worker, and each worker's in the order it sends them. Where
    every worker sends one, a message has its worker's number, and `survivors` are workers;
    otherwise they are numbers of messages, see `message_number`.

    Attributes
    ----------
    n, k : int
        Workers and partitions. Every scheme sets them.
    load : int
        Partitions per worker, w (the largest, where workers differ). Default: that of its rows.
    stragglers : int or None
        Workers of which nothing need come in the worst case, s. Default: what the rows tolerate,
        found by trying all sets of a small code; None, unknown, for others. A scheme that declares
        it is decoded with the messages of n - s workers at the latest, whatever they are; what is
        missing then is its `residual`.
    wait : int or None
        Workers that are waited for at most, f, of a scheme that gives up exactness for time: with
        all messages of any f workers a round is ready, or before if what came is exact. It is
        decoded as well as can be, and what that leaves out is its `residual`. `vector` must then
        give the least-squares optimum of whatever came. `stragglers` are still those tolerated
        exactly. Default: None, no approximations but of `stragglers` that are declared.
    awaited : int or None
        Workers that are waited for at most: `wait`, else n - s. None where neither is known.
    threshold : int or None
        Messages with which a round is ready in any case, if each worker's come in order: where
        every worker sends one, `awaited`.
    packed : bool
        Whether complex codes send real gradients as pairs taken for complex numbers.
    pieces : int
        Pieces of equal length that gradients are cut into, m. A message is as long as a piece, and
        the gradient is decoded piece by piece, each with a vector of its own.
    codes_data : bool
        Whether the data are coded instead of the gradients, which must then be quadratic in them.
    integral : bool
        Whether all coefficients, of messages and in decoding vectors, are integers. Gradients may
        then be of integers, too.
    exact : bool
        Whether vectors satisfy a_F B_F = 1 by a formula, of which nothing but rounding errors is
        left. Where not, what they leave is computed before anything is said about a gradient.
    cache : SurvivorCache or None
        Decoding vectors of the survivor sets used last, where computing one takes longer than
        finding it. ``code.cache.nbytes = 0`` turns it off, ``code.cache.info()`` says what it does.
    """

    packed: bool = True
    integral: bool = False
    exact: bool = False
    wait: int | None = None
    cache: SurvivorCache[Any] | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Who says anew what the vector is, is asked for it, and not what its base had prepared.
        if "vector" in vars(cls):
            for name in {"bind_vector", "fill_vectors", "follower"} - vars(cls).keys():
                setattr(cls, name, getattr(Scheme, name))

    # ------------------------------------------------------- what it may say: to be faster

    @cached_property
    def stragglers(self) -> int | None:
        """Workers of which nothing need come in the worst case, s; None if it is not known."""
        self._stragglers_found = True
        return tolerated(
            self.n, lambda came: self._solve_by_rows(self.messages_of(came))[1] <= SOLVED
        )

    def known_stragglers(self) -> int:
        """Workers that a round does without, n - `awaited`; ValueError where it is not known."""
        if self.awaited is None:
            raise ValueError(
                f"it is not known how many stragglers {self!r} tolerates: the scheme does not say, "
                "and too many sets would have to be tried"
            )
        return self.n - self.awaited

    @property
    def threshold(self) -> int | None:
        """Messages that always suffice, if each worker's come in order; None if unknown."""
        awaited = self.awaited
        return None if awaited is None else self.message_count - (self.n - awaited)

    @property
    def awaited(self) -> int | None:
        """Workers that are waited for at most: `wait`, else n - s; None if neither is known."""
        if self.wait is not None:
            return check_wait(self.wait, self.n)
        return None if self.stragglers is None else self.n - self.stragglers

    @cached_property
    def rule(self) -> Rule:
        """Which messages suffice. Default: those that span the sum, or all that are waited for."""
        left = self.residual if self.wait is not None else self._shortest_residual
        spans = Span(self.equations, left, self.message_count)
        declared = "stragglers" in vars(self) and not vars(self).get("_stragglers_found")
        declared = declared or type(self).stragglers is not Scheme.stragglers
        return self.waiting(spans) if declared or self.wait is not None else spans

    def waiting(self, rule: Rule) -> Rule:
        """A rule of exact decoding, or all messages of the workers that are `awaited`."""
        if self.awaited is None:
            return rule
        sender = np.repeat(np.arange(self.n), self.message_counts)
        return Waiting(rule, sender, self.awaited)

    def vector(self, survivors: NDArray[np.int64]) -> NDArray[Any]:
        """Decoding vector for checked survivors; NotDecodableError if they are too few.

        Of a scheme that sets `wait`: the vector nearest to one, however few they are.

        Default: the one that amplifies roundings of messages least of those with a_F B_F = 1; or
        nearly so, where roundings would cost more than what is left out.

        Parameters
        ----------
        survivors : (f,) int64 array
            Distinct numbers of messages.

        Returns
        -------
        (f,) or (f, pieces) array
        """
        return self._vector_by_rows(survivors, DOUBLE)

    def _vector_by_rows(self, survivors: NDArray[np.int64], unit: float) -> NDArray[Any]:
        """The same, for messages of this unit roundoff."""
        vector, residual = self._shortest_solution(survivors, unit)
        if self.wait is None and residual > SOLVED and self.rule.missing(survivors):
            self.raise_too_few(survivors)
        return vector

    def bind_vector(
        self, survivors: NDArray[np.int64], vector: NDArray[Any], unit: float = DOUBLE
    ) -> VectorFunction:
        """Return ``fill(f, method)``: check ``survivors[:f]`` and write ``vector[:f]``.

        For schemes that prepare something for hot loops, or know several methods. Default: `vector`
        of checked survivors, for "auto". `unit`: that of messages, where the best depends on it.
        """
        mask = SurvivorMask(self.message_count, survivors)

        def run(f: int) -> int:
            if sound := mask.sound(f):
                came = survivors[:f]
                if self.wait is not None and self.rule.missing(came):
                    self.raise_too_few(came)
                vector[:f] = self._vector_for(came, unit)
            return not sound

        return filling(self, run, survivors)

    def _vector_for(self, survivors: NDArray[np.int64], unit: float) -> NDArray[Any]:
        """`vector`, for messages of this unit roundoff, where it depends on that."""
        if type(self).vector is not Scheme.vector:
            return self.vector(survivors)
        return self._vector_by_rows(survivors, unit)

    def fill_vectors(
        self, masks: NDArray[np.bool_], method: str, out: NDArray[Any], unit: float = DOUBLE
    ) -> NDArray[np.bool_]:
        """Write vectors of many sets to `out`, which is 0; whether each could be decoded.

        For schemes that can do many at once. Default: one after the other. `unit` as of
        `bind_vector`.
        """
        survivors = np.empty(self.message_count, dtype=np.int64)
        vector = np.empty_like(out[0]) if len(out) else np.empty(0)
        fill = self.bind_vector(survivors, vector, unit)
        good = np.ones(len(masks), dtype=np.bool_)
        for r, mask in enumerate(masks):
            came = np.flatnonzero(mask)
            survivors[: came.size] = came
            try:
                fill(came.size, method)
                out[r, came] = vector[: came.size]
            except (NotDecodableError, OverflowError):
                good[r] = False
        return good

    def follower(
        self, survivors: NDArray[np.int64], vector: NDArray[Any], unit: float = DOUBLE
    ) -> Follower | None:
        """What prepares ``vector[:f]`` while ``survivors[:f]`` come in, where that pays.

        For schemes whose workers send one message each. Default: nothing. `unit` as of
        `bind_vector`.
        """
        return None

    def parity(self, survivors: NDArray[np.int64]) -> Parity:
        """Checks of these messages: all, or so many that any one corrupt worker can be found.

        Default: by a singular value decomposition, O(f k min(f, k)).
        """
        left, singular, _ = np.linalg.svd(rows := self.equations(survivors).rows)
        rank = int((singular > singular[:1] * max(rows.shape) * np.finfo(np.float64).eps).sum())
        H = left[:, rank:].conj().T
        H[np.abs(H) < max(rows.shape) * np.finfo(np.float64).eps] = 0  # of messages not in a check
        return Parity.of(H, error=np.linalg.norm(H @ rows, axis=1))

    # --------------------------------------------- what it may say: of precision and search

    def deviation(self, survivors: NDArray[np.int64], vector: NDArray[Any]) -> NDArray[Any]:
        """``a_F B_F - 1`` of what is taken of a decoded sum; in extended precision, if there is.

        Default: from the rows, whatever the vector is said to be.

        Returns
        -------
        (k,) or (k, pieces, pieces) array
            Of each partition; with `pieces`, of each of its pieces in each of the gradient's.
        """
        wide = np.clongdouble if self.is_complex else np.longdouble
        m = self.pieces
        total = np.zeros((self.shard_count, m, m), dtype=wide)
        a = vector.reshape(len(vector), m)
        used = np.flatnonzero(a.any(axis=1))
        survivors, a = survivors[used], a[used].astype(wide)
        if m == 1 and self.n * self.load <= ENTRIES_KEPT:
            first, held, values = self._all_entries
            sizes = first[survivors + 1] - first[survivors]
            at = np.arange(sizes.sum()) + np.repeat(
                first[survivors] - np.cumsum(sizes) + sizes, sizes
            )
            factor = np.repeat(a[:, 0], sizes)
            np.add.at(total.reshape(-1), held[at], factor * values[at])
        else:
            for number, factor in zip(survivors.tolist(), a, strict=True):
                held, values = self._message_row(number)
                total[held] += values.reshape(-1, m, 1) * factor
        total -= np.eye(m)
        if self.layout == "complex":
            total = total.real
        return total.reshape(self.shard_count) if m == 1 else total

    def vector_errors(
        self, survivors: NDArray[np.int64], vector: NDArray[Any]
    ) -> NDArray[np.float64] | None:
        """Squares of the errors to expect of each message's coefficients, as computed.

        Default: None, for vectors whose every coefficient is as precise as a rounding or two, or is
        what its residual says.
        """
        return None

    @property
    def message_roundings(self) -> float:
        """Roundings in a message: its products and sums, and the coefficients of a and B."""
        return sums_of(self.load * self.pieces / self.messages_per_worker) + 2

    @property
    def data_roundings(self) -> float:
        """Roundings that coded data bring to each partial gradient. Default: none."""
        return 0.0

    @property
    def wanted(self) -> int:
        """Numbers that decoding must make 1: one for each piece of each partition."""
        return self.k * self.pieces

    def computation_roundings(self, terms: int) -> int:
        """Roundings in a computation of so many terms that count as the code's. Default: none."""
        return 0

    @cached_property
    def row_norms(self) -> NDArray[np.float64]:
        """Squared 2-norm of each message, that of the gradient being 1."""
        with np.errstate(over="ignore"):
            norms = [float(np.sum(np.abs(values) ** 2)) for _, values in self.message_rows()]
        return np.array(norms) / self.wanted

    @cached_property
    def row_sums(self) -> NDArray[np.float64]:
        """Sum of each message's ``|B_ij|``; Inf beyond float64."""
        return np.array([float(np.abs(values).sum()) for _, values in self.message_rows()])

    @cached_property
    def log_row_sums(self) -> NDArray[np.float64]:
        """Their logarithms, also of those beyond float64."""
        return np.log(self.row_sums)

    def log_vector(self, survivors: NDArray[np.int64]) -> NDArray[np.complex128]:
        """``log a_i``; -Inf for zeros. For schemes that can say more than float64 holds."""
        with np.errstate(divide="ignore"):
            logs: NDArray[np.complex128] = np.log(self._vector_by(survivors).astype(complex))
        return logs

    def rings(self) -> list[NDArray[np.int64]]:
        """Workers in circles along which neighbouring stragglers may do the most harm."""
        return [np.arange(self.n)]

    @property
    def gated(self) -> bool:
        """Whether `doubt` ever says anything: of codes whose rounds may wait for more messages."""
        return False

    @property
    def waits(self) -> bool:
        """Whether rounds may wait for more messages than suffice. Default: where `gated`."""
        return self.gated

    def doubt(self, survivors: NDArray[np.int64], vector: NDArray[Any], form: Format) -> float:
        """Relative error to expect of what this vector decodes to, where it is too large; else 0.

        Rounds then wait for more messages, but not for more than n - s workers.
        """
        return 0.0

    def awaits_more(
        self,
        survivors: NDArray[np.int64],
        vector: Callable[[], NDArray[Any]] | None = None,
        form: Format | None = None,
    ) -> bool:
        """Whether a round goes on for a better set of messages than these, which suffice.

        It never does once all messages of n - s workers came.

        Parameters
        ----------
        survivors : (f,) int64 array
        vector : callable, optional
            Returns the decoding vector, or raises OverflowError. Default: `vector` of the scheme.
        form : Format, optional
            Default: of float64.
        """
        if not self.gated:
            return False
        try:
            found = self.vector(survivors) if vector is None else vector()
            if not self.doubt(survivors, found, form or self.format(1, np.float64)):
                return False
        except OverflowError:
            pass
        return self.expects_more(survivors)

    def expects_more(self, survivors: NDArray[np.int64]) -> bool:
        """Whether fewer workers than are `awaited` have sent all their messages."""
        senders = np.searchsorted(self.first_messages, survivors, side="right") - 1
        whole = np.bincount(senders, minlength=self.n) == self.message_counts
        return int(whole.sum()) < (self.n if self.awaited is None else self.awaited)

    # ------------------------------------------- what it may say: where the data are coded

    @property
    def layout(self) -> Layout:
        """How gradients and messages are laid out, see `fastgc.coding.format.Format`."""
        if self.integral and not self.is_complex:
            return "integer"
        return "real" if not self.is_complex else "packed" if self.packed else "complex"

    def equations(self, survivors: NDArray[np.int64]) -> Equations:
        """What a decoding vector of these messages must satisfy."""
        rows = self._dense_rows(survivors).reshape(len(survivors), self.shard_count * self.pieces)
        target: NDArray[np.float64] = np.ones(self.k)
        if self.pieces > 1:
            target = np.tile(np.eye(self.pieces), (self.k, 1))
        return Equations(rows, target, real_part=self.layout == "complex")

    # --------------------------------------------------------------- what follows: decoding

    def _shortest_solution(
        self, survivors: NDArray[np.int64], unit: float = DOUBLE
    ) -> tuple[NDArray[Any], float]:
        """What `vector` is for messages of this unit, and its residual; of the sets seen last."""
        key = key_of(self.message_count, survivors) + struct.pack("d", unit)
        found = self._known_solutions.get(key)
        if found is None:
            ascending = np.sort(survivors)
            solved, residual = self._solve_by_rows(ascending, unit)
            vector = np.zeros((self.message_count, *solved.shape[1:]), dtype=solved.dtype)
            vector[ascending] = solved
            found = vector, residual
            self._known_solutions.keep(key, found, vector.nbytes)
        return found[0][survivors], found[1]

    def _shortest_residual(self, survivors: NDArray[np.int64]) -> float:
        return self._shortest_solution(survivors)[1]

    @cached_property
    def _known_solutions(self) -> SurvivorCache[tuple[NDArray[Any], float]]:
        return SurvivorCache(SETS_KEPT)

    def _solve_by_rows(
        self, survivors: NDArray[np.int64], unit: float = DOUBLE
    ) -> tuple[NDArray[Any], float]:
        """The same, computed."""
        return near_exact_solution(*self.equations(survivors)[:2], unit)

    def residual(self, survivors: ArrayLike, vector: NDArray[Any] | None = None) -> float:
        """How far ``a_F B_F`` is from 1, computed: what decoding leaves out, and rounding adds.

        Parameters
        ----------
        survivors : (f,) integer array, or (N,) bool array
            As in `Code.decoding_vector`.
        vector : (f,) or (f, pieces) array, optional
            Default: the decoding vector, or the best there is where they do not suffice.

        Returns
        -------
        float
            ``||a_F B_F - 1|| / sqrt(k)``: the expected error over the gradient's expected norm, for
            partial gradients of equal norm in random directions.
        """
        checked = self.check_survivors(survivors)
        if vector is None:
            if self.wait is not None:
                vector = self.vector(checked)
            elif self.rule.missing(checked):
                return least_squares(self.equations(checked))[1]
            else:
                vector = self._vector_by(checked)
        lacking = self.deviation(checked, np.asarray(vector))
        kind = np.complex128 if lacking.dtype.kind == "c" else np.float64
        with np.errstate(over="ignore", invalid="ignore"):
            size = float(np.linalg.norm(lacking.astype(kind)))
        return size / math.sqrt(self.wanted)

    def left_out(self, survivors: NDArray[np.int64], vector: NDArray[Any]) -> float:
        """What their decoding vector leaves beyond rounding: 0 of exact codes, else computed."""
        return 0.0 if self.exact else self.residual(survivors, vector)

    def _vector_by(
        self, survivors: NDArray[np.int64], method: str = "auto", unit: float = DOUBLE
    ) -> NDArray[Any]:
        """Decoding vector of these survivors; errors as of `bind_vector`."""
        f = survivors.size
        if f > self.message_count:
            self.check_survivors(survivors)  # says which one is too many
        own = self._thread_own
        # Bound once for each thread: it takes five times as long as one call.
        try:
            backend, buffer, whole, fill = own.bound[unit]
            bound = backend is kernels.choice.active
        except (AttributeError, KeyError):
            bound = False
        if not bound:
            backend, buffer, whole, fill = self._bind_own(own, unit)
        buffer[:f] = survivors
        fill(f, method)
        vector: NDArray[Any] = whole[:f].copy(order="A")
        return vector

    def _bind_own(
        self, own: threading.local, unit: float
    ) -> tuple[kernels.choice.Backend, memoryview, NDArray[Any], VectorFunction]:
        """Bind to a thread's own buffers, by the backend in use: these, and what fills one."""
        active = kernels.choice.active or kernels.choice.load()
        if getattr(own, "backend", None) is not active:
            own.survivors = np.empty(self.message_count, dtype=np.int64)
            own.bound, own.backend = {}, active
        vector = self._empty_vector(self.message_count, unit)
        fill = self.bind_vector(own.survivors, vector, unit)
        # A memoryview of survivors is assigned to in half the time.
        own.bound[unit] = bound = active, own.survivors.data, vector, fill
        return bound

    @cached_property
    def _thread_own(self) -> threading.local:
        return threading.local()

    def _empty_vector(self, size: int, unit: float = DOUBLE) -> NDArray[Any]:
        """Room for decoding vectors of so many messages: of each piece, contiguous; or of pairs."""
        if unit < DOUBLE:
            return np.empty((size, 2), dtype=np.complex128)
        kind = np.complex128 if self.is_complex else np.float64
        if self.pieces == 1:
            return np.empty(size, dtype=kind)
        return np.empty((self.pieces, size), dtype=kind).T

    # ------------------------------------------------------------------ what follows: sizes

    def format(self, p: int, dtype: DTypeLike, message_dtype: DTypeLike | None = None) -> Format:
        """Dtypes, sizes and kernel modes for gradients of p elements of this dtype."""
        key = type(p), p, dtype, message_dtype
        try:
            return self._made_formats[key]
        except (KeyError, TypeError):  # the latter: of what is no dtype, which is told below
            found = Format.of(self.layout, p, dtype, message_dtype, self.pieces)
            if found.paired:
                self.pair_row(0)
        if len(self._made_formats) >= FORMATS_KEPT:
            self._made_formats.clear()
        self._made_formats[key] = found
        return found

    @cached_property
    def _made_formats(self) -> dict[Any, Format]:
        return {}

    @cached_property
    def _made_encodings(self) -> dict[Any, Any]:
        return {}  # see `fastgc.coding.plan`

    @property
    def message_weight(self) -> float:
        """Size of a message in gradients, for long real gradients."""
        p = 2 * self.pieces
        form = self.format(p, np.float64)
        return form.message_size * form.message_dtype.itemsize / (p * 8)

    def raise_too_few(self, survivors: NDArray[np.int64]) -> NoReturn:
        """Raise NotDecodableError, which says how many messages more are needed."""
        missing = self.rule.missing(survivors)
        more = "1 more message is" if missing == 1 else f"{missing} more messages are"
        what = "workers" if self.messages_per_worker == 1 else "messages in order"
        enough = f"any {self.threshold} of {self.message_count} {what} suffice"
        if self.threshold is None:
            enough = "how many always suffice is not known of this code"
        raise NotDecodableError(
            f"{survivors.size} messages do not determine the gradient: at least {more} needed "
            f"({enough})",
            missing,
        )
