"""What a gradient code is: the hooks of a scheme, and what follows from them.

A scheme must have one method, `Scheme.row`, which says what a worker computes and sends. Everything
else follows from the rows, correctly but slowly. Each further hook makes a code faster or more
precise; `Scheme` documents its contract and its default. `fastgc.coding.code.Code` has the verbs.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .. import kernels
from .._base.arrays import (
    Array,
    Bools,
    Ints,
    as_array,
    check_index,
    check_word,
    check_workers,
)
from ..errors import NotDecodableError
from ..kernels.rows import DOUBLE
from ..numerics.parity import CHECKS, Parity
from ..numerics.solve import SOLVED, Equations, least_squares, near_exact_solution
from .arguments import Recorded, Uncopied, shown
from .data import Data
from .format import Format, Layout
from .gate import Gate
from .holders import Holders
from .messages import Messages
from .precision import Precision
from .rules import Rule, Span, Waiting, check_wait, tolerated

__all__ = ["Scheme"]

# Most bytes of the vectors that a scheme remembers for sets of survivors: thousands at n = 100.
# To find one takes 4 microseconds; to solve the equations for it takes 60 at n = 40.
SOLUTIONS_BYTES = 1 << 24

FORMATS_KEPT = 64  # sizes and dtypes of gradients: making a format takes as long as a small decode

# What is kept of rows of B: a worker needs only its own, a simulation needs many.
_ROWS_KEPT, _NUMBERS_KEPT = 256, 1 << 17

Row = tuple[Ints, Array]


# What `Scheme.bind_vector` returns: ``function(f, method)`` writes the vector of the first f bound
# survivors. The function may have two attributes:
# - ``decode = function.decoder(mode, rows, out, check)`` binds the vector by "auto", and a
#   combination of rows by it, to one compiled call. If ``decode(f)`` returns another status than
#   ``OK``, do it step by step; the function says what is wrong.
# - ``function.many(masks, method, out)`` writes the vectors of many sets to `out`, which is 0, and
#   returns whether each could be decoded; or None if it does not know the method.
VectorFunction = Callable[[int, str], None]


class _OfThread(threading.local):
    """What each thread has of its own: decoders by unit, and `fastgc.coding.plan`'s plans."""

    def __init__(self) -> None:
        self.decoders: dict[float, Decoder] = {}
        self.plans: dict[Any, Any] = {}


class _Kept:
    """What a scheme remembers; see also `fastgc.coding.plan` and `fastgc.coding.trust`.

    ``solution(present, unit)`` is `Scheme._solve` of the messages that came, a byte each, with an
    entry of the vector for every message.
    """

    def __init__(self, scheme: Scheme) -> None:
        self.rows: dict[int, Row] = {}
        most = SOLUTIONS_BYTES // (32 * scheme.n + 500)  # a key, a vector, and their overhead
        self.solution = lru_cache(maxsize=most)(partial(_solve_all, scheme))
        self.formats: dict[Any, Format] = {}
        self.encodings: dict[Any, Any] = {}
        self.precisions: dict[Any, float] = {}
        self.trusted: dict[Format, Any] = {}
        self.thread = _OfThread()


class _Required:
    """An attribute that every scheme must set; reading it before raises a clear error."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, scheme: Scheme | None, kind: type) -> Any:
        if scheme is None:
            return self
        raise AttributeError(
            f"{scheme._made_by.__name__} must set self.{self._name}, the number of {self._what}, "
            "in its __init__"
        )


class Scheme(Recorded, ABC):
    """The definition of a gradient code: who computes what, and how it is decoded.

    A subclass defines `row`, sets `n` and `k`, and overrides other hooks if it likes.
    ``fastgc.Code(MyScheme(...))`` is then a code. It is compared, copied and pickled by the
    arguments of its constructor.

    Messages are numbered worker by worker, and for each worker in the order in which it sends them.
    If every worker sends one message, a message has the number of its worker, and `survivors` are
    workers. Otherwise `survivors` are numbers of messages, see `messages`.

    Attributes
    ----------
    n, k : int
        Workers and partitions. Every scheme sets them.
    load : int
        Partitions per worker, w; the largest if workers differ. Default: that of its rows.
    stragglers : int or None
        Workers that may send nothing at all, whichever they are, s. Default: what the rows
        tolerate, found by trying all sets if the code is small; otherwise None, unknown. If a
        scheme sets it, its rounds end with the messages of any n - s workers at the latest. If
        these do not suffice, the `residual` says what is missing, and
        `fastgc.testing.codes.check` fails.
    wait : int or None
        Most workers that a round waits for, f, if the scheme gives up exactness for time. A round
        is ready with all messages of any f workers, or earlier if the gradient is exact. The
        gradient is decoded as well as possible, and the `residual` says what it leaves out.
        `bind_vector` must then write the least-squares optimum for any messages. `stragglers` still
        counts the workers tolerated exactly. Default: None, no approximations, except if
        `stragglers` is set too high.
    awaited : int or None
        Most workers that a round waits for: `wait`, otherwise n - s. None if neither is known.
    threshold : int or None
        Number of messages that always suffice, if each worker's messages come in order. It is
        `awaited` if every worker sends one message.
    packed : bool
        Whether complex codes send pairs of real numbers as complex ones.
    exact : bool
        Whether vectors satisfy a_F B_F = 1 by a formula, up to rounding errors. If not, the
        residual is computed before anything is said about a gradient.
    methods : tuple of str
        Methods to compute decoding vectors: the `method` of `fastgc.Code.decoding_vector`.
    """

    n: int = _Required("workers")  # type: ignore[assignment]
    k: int = _Required("partitions")  # type: ignore[assignment]
    packed: bool = True
    exact: bool = False
    wait: int | None = None
    methods: tuple[str, ...] = ("auto",)

    _kept = cached_property(_Kept)

    def __reduce__(self) -> tuple[Any, ...]:
        made = super().__reduce__()
        return made if self._made_by is type(self) else (_scheme_of, made)

    # ----------------------------------------------- hooks: who sends what (only `row` is required)

    @abstractmethod
    def row(self, worker: int) -> tuple[ArrayLike, ArrayLike]:
        """What a worker computes and sends.

        Parameters
        ----------
        worker : int
            In 0 .. n-1.

        Returns
        -------
        partitions : (w,) integers
            Distinct, in the order of computation, in 0 .. k-1.
        coefficients : (w,) numbers
            Coefficients of B, real or complex. A worker that sends several messages sends equal
            shares of the partitions, in order.
        """

    @cached_property
    def load(self) -> int:
        """Partitions per worker, w: the largest number, if workers differ."""
        return int(self.loads.max())

    @cached_property
    def holders(self) -> Holders:
        """Who holds the partitions of a worker's message. Default: that worker alone."""
        return Holders(self)

    @cached_property
    def data(self) -> Data:
        """What workers compute on. Default: k partitions of the samples, as they are."""
        return Data(self.k)

    @cached_property
    def messages(self) -> Messages:
        """How messages are numbered, and who sends which. Default: each worker sends one."""
        return Messages([1] * self.n)

    @cached_property
    def is_complex(self) -> bool:
        """Whether coefficients are complex. Default: whether those of some row are."""
        return any(np.iscomplexobj(whole_row(self, worker)[1]) for worker in range(self.n))

    # ------------------------------------------------------------------ hooks: to be faster

    @cached_property
    def stragglers(self) -> int | None:
        """Workers that may send nothing at all, whichever they are, s; None if it is not known."""
        self._stragglers_found = True
        return tolerated(self.n, lambda came: self._solve(self.messages.of(came))[1] <= SOLVED)

    def known_stragglers(self) -> int:
        """Workers that a round does without, n - `awaited`; ValueError if that is unknown."""
        if self.awaited is None:
            raise ValueError(
                f"it is not known how many stragglers {self!r} tolerates: the scheme does not say, "
                "and too many sets would have to be tried"
            )
        return self.n - self.awaited

    @property
    def threshold(self) -> int | None:
        """Messages that always suffice, if each worker's come in order; None if it is unknown."""
        awaited = self.awaited
        return None if awaited is None else self.messages.count - (self.n - awaited)

    @property
    def awaited(self) -> int | None:
        """Most workers that a round waits for: `wait`, or else n - s; None if both are unknown."""
        if self.wait is not None:
            return check_wait(self.wait, self.n)
        return None if self.stragglers is None else self.n - self.stragglers

    @cached_property
    def rule(self) -> Rule:
        """Which messages suffice. Default: those that span the sum, or all of `awaited` workers."""
        left = self.residual if self.wait is not None else lambda came: self._solution(came)[1]
        spans = Span(self.equations, left, self.messages.count)
        declared = "stragglers" in vars(self) and not vars(self).get("_stragglers_found")
        declared = declared or type(self).stragglers is not Scheme.stragglers
        return self.waiting(spans) if declared or self.wait is not None else spans

    def waiting(self, rule: Rule) -> Rule:
        """`rule`, but all messages of `awaited` workers, whichever they are, suffice, too."""
        if self.awaited is None:
            return rule
        return Waiting(rule, self.messages.workers, self.awaited)

    def bind_vector(self, survivors: Ints, vector: Array, unit: float = DOUBLE) -> VectorFunction:
        """Return ``fill(f, method)``: check ``survivors[:f]`` and write ``vector[:f]``.

        Raises NotDecodableError if the messages are too few. If a scheme sets `wait`, the best
        approximation of a decoding vector is written, however few they are.

        Default: of all vectors with a_F B_F = 1, the one by which rounding errors of messages grow
        least. Its residual may be slightly above 0, where rounding would cost more. The best vector
        may depend on messages' unit roundoff, `unit`. To write a vector by a formula, return
        `by_formula`.
        """

        def compute(came: Ints) -> Array:
            found, residual = self._solution(came, unit)
            if self.wait is None and residual > SOLVED and self.rule.missing(came):
                self.raise_too_few(came)
            return found

        return self.by_formula(compute, survivors, vector)

    def by_formula(
        self, compute: Callable[[Ints], ArrayLike], survivors: Ints, vector: Array
    ) -> VectorFunction:
        """What `bind_vector` returns if ``compute(came)`` is the vector of checked survivors."""
        count = self.messages.count
        bits = np.empty(-(-count // 8), dtype=np.uint8)
        wrong = kernels.unchecked.bind_survivor_mask(count, survivors, bits)

        def run(f: int) -> int:
            status: int = wrong(f)
            if not status:
                vector[:f] = compute(survivors[:f])
            return status

        return vector_function(self, run, survivors)

    @property
    def counting_rule(self) -> Rule:
        """Which messages suffice for whoever must know exactly how many are missing.

        It may ask for more messages than `rule`, if it counts them instead. Default: `rule`.
        """
        return self.rule

    def parity(self, survivors: Ints, most: int = CHECKS) -> Parity:
        """Parity checks of these messages: all, or enough to notice any `most` corrupt messages.

        Default: by a singular value decomposition, O(f k min(f, k)).
        """
        left, singular, _ = np.linalg.svd(rows := self.equations(survivors).rows)
        rank = int((singular > singular[:1] * max(rows.shape) * np.finfo(np.float64).eps).sum())
        H = left[:, rank:].conj().T
        H[np.abs(H) < max(rows.shape) * np.finfo(np.float64).eps] = 0  # messages not in a check
        return Parity.of(H, error=np.linalg.norm(H @ rows, axis=1))

    # ------------------------------------------------- hooks: precision, the worst, more messages

    @cached_property
    def precision(self) -> Precision:
        """Errors of messages and of vectors. Default: from the rows."""
        return Precision(self)

    @property
    def approximate(self) -> bool:
        """Whether a round may end before the gradient is exact.

        It may if `wait` is set, or if a code that defines only its rows sets `stragglers`.
        """
        return not self.exact and isinstance(self.rule, Waiting)

    def rings(self) -> list[Ints]:
        """Circles of workers along which neighbouring stragglers may do the most harm."""
        return [np.arange(self.n)]

    @cached_property
    def gate(self) -> Gate:
        """Whether rounds wait for more messages than suffice. Default: none does."""
        return Gate(self)

    # -------------------------------------------------------------------- layout, and equations

    @property
    def layout(self) -> Layout:
        """How gradients and messages are laid out, see `fastgc.coding.format.Format`."""
        if not self.is_complex:
            return "real"
        if self.data.coded:
            return "complex data"
        return "packed" if self.packed else "complex"

    def equations(self, survivors: Ints) -> Equations:
        """The equations that a decoding vector of these messages must satisfy."""
        real = self.layout == "complex"
        return Equations(_dense_rows(self, survivors), np.ones(self.k), real_part=real)

    # --------------------------------------------------------------- what follows: decoding

    def _solution(self, survivors: Ints, unit: float = DOUBLE) -> tuple[Array, float]:
        """The vector for messages of this unit, and its residual; recent sets are remembered."""
        present = np.zeros(self.messages.count, dtype=np.bool_)
        present[survivors] = True
        vector, residual = self._kept.solution(present.tobytes(), unit)
        return vector[survivors], residual

    def _solve(self, survivors: Ints, unit: float = DOUBLE) -> tuple[Array, float]:
        """The shortest vector of these messages, or a near-exact one, and its residual."""
        rows, target, real_part = self.equations(survivors)
        return near_exact_solution(rows, target, unit, real_part)

    def residual(self, survivors: ArrayLike, vector: Array | None = None) -> float:
        """See `fastgc.Code.residual`."""
        checked = self.check_survivors(survivors)
        if vector is not None and np.shape(vector) != checked.shape:
            raise ValueError(f"vector must have shape {checked.shape}, not {np.shape(vector)}")
        if vector is None:
            if self.wait is None and self.rule.missing(checked):
                return least_squares(self.equations(checked))[1]
            vector = self.vector(checked)
        return self.precision.residual(checked, np.asarray(vector))

    def vector(self, survivors: Ints, unit: float = DOUBLE) -> Array:
        """Decoding vector of these survivors; errors as in `bind_vector`."""
        decoder = self.decoder(unit)
        f = decoder._take(survivors)
        decoder.fill_vector(f, "auto")
        return decoder.vector[:f].copy()

    def decoder(self, unit: float = DOUBLE) -> Decoder:
        """Return the thread's decoder; binding takes as long as five calls."""
        known = self._kept.thread.decoders
        found = known.get(unit)
        if found is None:
            known[unit] = found = Decoder(self, unit)
        return found

    # ------------------------------------------------------------------ what follows: sizes

    def format(self, p: int, dtype: DTypeLike, message_dtype: DTypeLike | None = None) -> Format:
        """Dtypes, sizes and kernel modes for gradients of p elements of this dtype."""
        key = type(p), p, dtype, message_dtype
        try:
            return self._kept.formats[key]
        except (KeyError, TypeError):  # TypeError: not a dtype; `Format.of` raises a clear error
            found = Format.of(self.layout, p, dtype, message_dtype)
        if len(self._kept.formats) >= FORMATS_KEPT:
            self._kept.formats.clear()
        self._kept.formats[key] = found
        return found

    @property
    def message_weight(self) -> float:
        """Size of a message relative to that of a gradient, for long real gradients."""
        form = self.format(2, np.float64)
        return form.message_size * form.message_dtype.itemsize / 16

    def raise_too_few(self, survivors: Ints) -> NoReturn:
        """Raise NotDecodableError; it says how many more messages are needed."""
        missing = self.rule.missing(survivors)
        came = "1 message does" if survivors.size == 1 else f"{survivors.size} messages do"
        more = "1 more message is" if missing == 1 else f"{missing} more messages are"
        what = "workers" if self.messages.per_worker == 1 else "messages in order"
        enough = f"any {self.threshold} of {self.messages.count} {what} suffice"
        if self.threshold is None:
            enough = "how many always suffice is not known of this code"
        raise NotDecodableError(
            f"{came} not determine the gradient: at least {more} needed ({enough})",
            missing,
        )

    # ------------------------------------------------------------------ what follows: loads

    @cached_property
    def loads(self) -> Ints:
        """Partitions of each worker, (n,) int64 array, read-only."""
        sizes = [whole_row(self, worker)[0].size for worker in range(self.n)]
        return frozen(np.array(sizes, dtype=np.int64))

    # ------------------------------------------------------------------- what follows: rows

    def partitions(self, worker: int, index: int | None = None) -> Ints:
        """See `fastgc.Code.partitions`."""
        return _part_of(self, worker, index, whole_row(self, worker)[0])

    def coefficients(self, worker: int, index: int | None = None) -> Array:
        """See `fastgc.Code.coefficients`."""
        return _part_of(self, worker, index, whole_row(self, worker)[1])

    def message_rows(self) -> Iterator[Row]:
        """Partitions and coefficients of every message, in order."""
        for worker, count in enumerate(self.messages.counts):
            held, values = whole_row(self, worker)
            share = held.size // count if count > 1 else held.size
            for index in range(count):
                part = slice(index * share, (index + 1) * share)
                yield held[part], values[part]

    def matrix(self) -> Array:
        """See `fastgc.Code.matrix`."""
        return _dense_rows(self, np.arange(self.messages.count))

    @cached_property
    def entries(self) -> tuple[Ints, Ints, Array]:
        """Where each message's entries begin, and all messages' partitions and coefficients.

        For schemes that know the entries of all workers at once. Default: from the rows.

        Returns
        -------
        (messages + 1,) int64 array
            The last is the end.
        (entries,) int64 array
        (entries,) array
        """
        held, values = zip(*self.message_rows(), strict=True)
        first = np.cumsum([0, *(each.size for each in held)])
        return first, np.concatenate(held), np.concatenate(values)

    # ----------------------------------------------------------------------------- checks

    def check_survivors(self, survivors: ArrayLike) -> Ints:
        """`survivors`, numbers or booleans, as distinct numbers of messages.

        Otherwise raise a ValueError that names the first wrong one.
        """
        count = self.messages.count
        checked = check_workers("survivors", survivors, count)
        # The first count + 1 numbers suffice: one of them does not exist or is named twice.
        checked = checked[: count + 1]
        # One comparison for both ends of the range: negative numbers wrap to huge ones.
        many = self.messages.per_worker > 1
        if checked.size and checked.view(np.uint64).max() >= count:
            at = int(np.argmax(checked.view(np.uint64) >= count))
            raise ValueError(
                f"survivors[{at}] is {checked[at]}, but {'messages' if many else 'workers'} are "
                f"numbered 0 to {count - 1}"
            )
        present = np.zeros(count, dtype=np.bool_)
        present[checked] = True
        if np.count_nonzero(present) < checked.size:
            first = np.unique(checked, return_index=True)[1]
            at = int(np.setdiff1d(np.arange(checked.size), first)[0])
            what = "message" if many else "worker"
            raise ValueError(f"survivors[{at}] names {what} {checked[at]} a second time")
        return checked


def _solve_all(scheme: Scheme, present: bytes, unit: float) -> tuple[Array, float]:
    came = np.flatnonzero(np.frombuffer(present, dtype=np.bool_))
    solved, residual = scheme._solve(came, unit)
    vector = np.zeros(len(present), dtype=solved.dtype)
    vector[came] = solved
    return vector, residual


def vector_function(scheme: Scheme, run: Callable[[int], int], survivors: Ints) -> VectorFunction:
    """Make the function of `Scheme.bind_vector` of ``run(f)``: 0 if it wrote the vector."""

    def fill(f: int, method: str) -> None:
        check_word(f"method of {scheme._made_by.__name__}", method, "auto")
        if run(f):
            scheme.raise_too_few(scheme.check_survivors(survivors[:f]))

    vars(fill)["bound"] = getattr(run, "bound", None)
    return fill


def empty_vector(scheme: Scheme, size: int) -> Array:
    """Room for decoding vectors of `size` messages."""
    return np.empty(size, dtype=np.complex128 if scheme.is_complex else np.float64)


def frozen(sizes: Any) -> Ints:
    """Make an array read-only, and return it."""
    sizes.flags.writeable = False
    return sizes  # type: ignore[no-any-return]


def whole_row(scheme: Scheme, worker: int) -> Row:
    """Return a worker's `row`, checked: partitions and coefficients, read-only.

    Returns
    -------
    (w,) int64 array
    (w,) float64 or complex128 array

    Raises
    ------
    TypeError, ValueError
        If there is no such worker, or the scheme's row is not valid.
    """
    if type(worker) is not int:
        worker = check_index("worker", worker, scheme.n)
    row = scheme._kept.rows.get(worker)
    if row is None:
        worker = check_index("worker", worker, scheme.n)
        row = _checked_row(scheme, worker)
        make_room(scheme._kept.rows, row[0].size)
        scheme._kept.rows[worker] = row
    return row


def _part_of(scheme: Scheme, worker: int, index: int | None, row: Array) -> Array:
    """Part of a worker's partitions or coefficients that goes into message `index`; None: all."""
    if index is None:
        return row[:]
    scheme.messages.number(worker, index)
    size = row.size // scheme.messages.counts[worker]
    return row[index * size : (index + 1) * size]


def _checked_row(scheme: Scheme, worker: int) -> Row:
    row = scheme.row(worker)
    what = f"row({worker}) of {scheme._made_by.__name__}"
    if not isinstance(row, (tuple, list)) or len(row) != 2:
        raise TypeError(
            f"{what} must be a pair: the partitions that the worker holds, and as many "
            f"numbers, not {shown(row)}"
        )
    held, values = row
    held, values = as_array(f"partitions of {what}", held), as_array(what, values)
    if held.ndim != 1 or held.dtype.kind not in "iu":
        raise TypeError(
            f"{what} must begin with a vector of integers, the partitions, not with "
            f"{held.dtype} of shape {held.shape}"
        )
    if values.shape != held.shape or values.dtype.kind not in "biufc":
        raise ValueError(
            f"{what} must have as many numbers as its {held.size} partitions, not "
            f"{values.dtype} of shape {values.shape}"
        )
    ascending = held.size > 0 and bool((held[1:] > held[:-1]).all())
    if held.size and not (ascending and held[0] >= 0 and held[-1] < scheme.data.shards):
        if not 0 <= held.min() <= held.max() < scheme.data.shards:
            raise ValueError(
                f"{what} names partition {held.max() if held.min() >= 0 else held.min()}: they "
                f"are numbered 0 to {scheme.data.shards - 1}"
            )
        if held.size > 1 and not (np.diff(np.sort(held)) > 0).all():
            raise ValueError(f"{what} names a partition twice: {held.tolist()}")
    kind = np.complex128 if values.dtype.kind == "c" else np.float64
    row = held.astype(np.int64, copy=False).view(), values.astype(kind, copy=False).view()
    row[0].flags.writeable = row[1].flags.writeable = False
    return row


def message_row(scheme: Scheme, number: int) -> Row:
    worker, index = scheme.messages.sender(number)
    held, values = whole_row(scheme, worker)
    return _part_of(scheme, worker, index, held), _part_of(scheme, worker, index, values)


def _dense_rows(scheme: Scheme, numbers: Ints) -> Array:
    rows = [message_row(scheme, int(number)) for number in numbers]
    dtype = np.complex128 if scheme.is_complex else np.float64
    dense = np.zeros((len(numbers), scheme.data.shards), dtype=dtype)
    for line, (held, values) in zip(dense, rows, strict=True):
        line[held] = values
    return dense


class Decoder(Uncopied):
    """Decoding vectors for hot loops, with buffers and pointers prepared once.

    Two threads must not use it at the same time.

    Attributes
    ----------
    survivors : (N,) int64 array
    vector : (N,) complex128 or float64 array
        Buffers that each call overwrites; N is the number of messages in a round.
    fill_vector : callable
        What `Scheme.bind_vector` returned.
    least : int
        If the scheme sets `wait`: so many messages are always enough. Otherwise 0.
    """

    __slots__ = (
        *("_buffer", "_fill", "_fill_taken", "fill_vector", "least", "scheme", "survivors"),
        "vector",
    )

    def __init__(self, scheme: Scheme, unit: float = DOUBLE) -> None:
        self.scheme = scheme
        self.survivors = np.empty(scheme.messages.count, dtype=np.int64)
        self._buffer: Any = self.survivors.data  # assigning to a memoryview takes half the time
        self.vector = empty_vector(scheme, scheme.messages.count)
        self.fill_vector = scheme.bind_vector(self.survivors, self.vector, unit)
        self.least = 0 if scheme.wait is None else scheme.messages.count - scheme.n + scheme.wait
        self._fill = self._fill_enough if self.least else self.fill_vector
        # Where C finds the vector, it takes survivors from their array as well.
        bound, bind = getattr(self.fill_vector, "bound", None), kernels.unchecked.bind_taken
        self._fill_taken = None if bound is None else bind(bound, self.survivors, self.least)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.scheme!r}>"

    def __call__(self, survivors: ArrayLike, method: str = "auto") -> Array:
        """Return the decoding vector of `survivors`: a view of `vector`, valid until the next call.

        Survivors and errors are as in `Code.decoding_vector`.
        """
        return self.vector[: self._compute(survivors, method)]

    def _compute(self, survivors: ArrayLike, method: str = "auto") -> int:
        """Write `vector`, as in a call. Returns the number of survivors."""
        if self._fill_taken is not None and method == "auto":
            f = self._fill_taken(id(survivors))
            if f >= 0:
                return f
        f = self._take(survivors)
        self._fill(f, method)
        return f

    def _fill_enough(self, f: int, method: str) -> None:
        """`fill_vector`, if rounds do not wait for more than ``self.survivors[:f]``."""
        if f < self.least:
            came = self.survivors[:f].copy()
            if self.scheme.rule.missing(self.scheme.check_survivors(came)):
                self.scheme.raise_too_few(came)
            self._buffer[:f] = came  # the rule may have used this decoder
        self.fill_vector(f, method)

    def _take(self, survivors: Any) -> int:
        """Write `survivors`, whose numbers are not checked. Returns how many there are."""
        if type(survivors) is not np.ndarray:
            survivors = check_workers("survivors", survivors, self.survivors.size)
        try:  # a memoryview takes aligned vectors of int64 only, and no more than fit
            f = len(survivors)
            self._buffer[:f] = survivors
        except (TypeError, ValueError):
            checked = check_workers("survivors", survivors, self.survivors.size)
            f = len(checked)
            if f > self.survivors.size:
                self.scheme.check_survivors(checked)
            self._buffer[:f] = checked.copy()
        return f

    def fill(self, f: int, method: str = "auto") -> Array:
        """Return the decoding vector of ``self.survivors[:f]``; ValueError if there are fewer."""
        if not 0 <= f <= self.survivors.size:
            raise ValueError(f"f must be in 0 .. {self.survivors.size}, not {f}")
        self._fill(f, method)
        return self.vector[:f]


def fill_vectors(scheme: Scheme, masks: Bools, method: str, out: Array, unit: float) -> Bools:
    """Write vectors of many sets to `out`, which is 0; return whether each could be decoded."""
    decoder = scheme.decoder(unit)
    if (many := getattr(decoder.fill_vector, "many", None)) is not None:
        good: Bools | None = many(masks, method, out)
        if good is not None:
            return good
    good = np.zeros(len(masks), dtype=np.bool_)
    bound = getattr(decoder.fill_vector, "bound", None)
    if bound is not None and method == "auto":
        given = np.ascontiguousarray(masks)
        good = kernels.unchecked.take_masks(bound, decoder.survivors, decoder.least, given, out)
    for r in np.flatnonzero(~good).tolist():
        came = np.flatnonzero(masks[r])
        with suppress(NotDecodableError, OverflowError):
            out[r, came] = decoder(came, method)
            good[r] = True
    return good


class Coded(Protocol):
    """A `fastgc.Code`, as far as the modules below it know it."""

    @property
    def scheme(self) -> Scheme: ...


def make_room(kept: dict[Any, Any], size: int) -> None:
    """Empty what is kept of rows of B, of about `size` numbers each, if it holds enough of them."""
    if len(kept) >= max(_ROWS_KEPT, _NUMBERS_KEPT // max(size, 1)):
        kept.clear()


def _scheme_of(make: Callable[..., Any], arguments: tuple[Any, ...]) -> Scheme:
    """The scheme of the code that ``make(*arguments)`` makes."""
    found: Scheme = make(*arguments).scheme
    return found
