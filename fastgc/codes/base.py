"""What every scheme shares: the verbs and the checks.

A scheme says which partitions a worker computes and with which coefficients (`_row`), which
messages suffice (`_rule`) and with which vector they are decoded (`_vector`). Everything else is
here.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, NamedTuple, NoReturn, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import data, kernels
from .._arrays import (
    Output,
    as_array,
    as_rows,
    at_least,
    check_dtype,
    check_index,
    check_vector,
    check_workers,
    is_half,
    store,
    view_of,
)
from ..errors import InstabilityWarning, NotDecodableError, UnstableCodeError
from .cache import SurvivorCache, SurvivorMask
from .format import Format, Layout, real_of
from .parity import Parity
from .plans import (
    BoundDecoder,
    Decoder,
    Encoder,
    Round,
    StackDecoder,
    StackEncoder,
    Watch,
    nonzero,
    require_finite,
)
from .rules import Rule
from .streaming import Follower
from .trust import Approximation, Trust, sums_of

__all__ = ["Code", "Recovery"]

VectorFunction = Callable[[int, str], None]

# Relative error from which on a code counts as unstable: half of float64's digits are lost.
UNSTABLE = 2.0**-26

# Coefficients kept, at most, to compute what combinations of messages lack.
ENTRIES_KEPT = 1 << 20

# Messages or partial gradients of this size together, at most, are combined by plans that are kept:
# they save some microseconds, and take no more memory than that.
PREPARED_BYTES = 1 << 20

_made_before: ContextVar[bool] = ContextVar("_made_before", default=False)


class Recovery(NamedTuple):
    """What a round takes on average, when messages arrive in random order.

    Attributes
    ----------
    workers : float
        Workers heard from before the gradient could be decoded.
    messages : float
        Messages received by then.
    communication_load : float
        Their size in gradients.
    """

    workers: float
    messages: float
    communication_load: float


class Code(ABC):
    """A gradient code: n workers, k partitions, and the verbs of every scheme.

    Messages are numbered: worker by worker, and each worker's in the order it sends them. Where
    every worker sends one, a message has its worker's number, and `survivors` are workers;
    otherwise they are numbers of messages, see `message_number`.

    Arrays, `out` among them, are NumPy's or others whose memory NumPy can view: tensors of PyTorch
    on the CPU, memoryviews, or whatever speaks DLPack. They are read and written where they are,
    and what is returned is the `out` that was given.

    Attributes
    ----------
    n, k : int
        Workers and partitions.
    load : int
        Partitions per worker, w (the largest, where workers differ).
    stragglers : int
        Workers of which nothing need come in the worst case, s.
    threshold : int
        Messages that always suffice, if each worker's come in order: f = n - s where every worker
        sends one.
    packed : bool
        Whether complex codes send real gradients as pairs taken for complex numbers.
    codes_data : bool
        Whether the data are coded instead of the gradients, which must then be quadratic in them.
    cache : SurvivorCache or None
        Decoding vectors of the survivor sets used last, where computing one takes longer than
        finding it. ``code.cache.nbytes = 0`` turns it off, ``code.cache.info()`` says what it does.
    """

    n: int
    k: int
    load: int
    stragglers: int
    packed: bool = True
    codes_data = False
    cache: SurvivorCache[Any] | None = None
    _complex = False  # whether decoding vectors are
    _sparse = False  # whether they have zeros

    # ------------------------------------------------------------------ what a scheme defines

    @abstractmethod
    def _row(self, worker: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Partitions of a worker in the order of computation, and their coefficients in B."""

    @property
    @abstractmethod
    def _rule(self) -> Rule:
        """Which messages suffice."""

    def _vector(self, survivors: NDArray[np.int64]) -> NDArray[Any]:
        """Decoding vector for checked survivors; NotDecodableError if they are too few."""
        raise NotImplementedError

    def _bind_vector(self, survivors: NDArray[np.int64], vector: NDArray[Any]) -> VectorFunction:
        """Return ``fill(f, method)``: check ``survivors[:f]`` and write ``vector[:f]``.

        For schemes that prepare something here; others define `_vector`.
        """
        mask = SurvivorMask(survivors)

        def fill(f: int, method: str) -> None:
            if method != "auto":
                raise ValueError(f'{type(self).__name__} knows the method "auto", not {method!r}')
            if not mask.sound(f):
                self._check_survivors(survivors[:f])  # says what is wrong
            vector[:f] = self._vector(survivors[:f])

        return fill

    def _follower(self, survivors: NDArray[np.int64], vector: NDArray[Any]) -> Follower | None:
        """What prepares ``vector[:f]`` while ``survivors[:f]`` come in, where that pays.

        For schemes whose workers send one message each.
        """
        return None

    @cached_property
    def message_counts(self) -> list[int]:
        """Messages of each worker: equal shares of its computations."""
        return [1] * self.n

    def _parameters(self) -> dict[str, Any]:
        """Arguments that make this code again."""
        raise NotImplementedError

    # ------------------------------------------------------------------------ what it consists of

    @property
    def threshold(self) -> int:
        """Messages that always suffice, if each worker's come in order."""
        return self.n - self.stragglers

    @cached_property
    def messages(self) -> int:
        """Messages of a worker in a round (the most, where workers differ)."""
        return max(self.message_counts)

    @cached_property
    def message_count(self) -> int:
        """Messages in a round, all workers together."""
        return sum(self.message_counts)

    @property
    def shard_count(self) -> int:
        """Length of what `encode_data` returns: the numbers `partitions` gives lie below it."""
        return self.k

    @property
    def loads(self) -> NDArray[np.int64]:
        """Partitions of each worker, (n,) int64 array."""
        return np.array([self._row(i)[0].size for i in range(self.n)], dtype=np.int64)

    @cached_property
    def _first(self) -> list[int]:
        """Number of each worker's first message."""
        return [0, *accumulate(self.message_counts)]

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        """Part of its worker's computation after which each message is sent: equal parts."""
        return np.concatenate([np.arange(1, count + 1) / count for count in self.message_counts])

    def message_number(self, worker: int, index: int = 0) -> int:
        """Number of a worker's message: what `survivors` consist of."""
        worker = check_index("worker", worker, self.n)
        return self._first[worker] + check_index(
            f"message of worker {worker}, which sends {self.message_counts[worker]}: index",
            index,
            self.message_counts[worker],
        )

    def sender(self, number: int) -> tuple[int, int]:
        """Worker and index of a message."""
        number = check_index("message", number, self.message_count)
        worker = bisect_right(self._first, number) - 1
        return worker, number - self._first[worker]

    def messages_of(self, workers: Iterable[int]) -> NDArray[np.int64]:
        """Numbers of all messages of these workers, ascending."""
        heard = np.zeros(self.n, dtype=bool)
        heard[[check_index("worker", worker, self.n) for worker in workers]] = True
        return np.flatnonzero(np.repeat(heard, self.message_counts))

    def partitions(self, worker: int, index: int | None = None) -> NDArray[np.int64]:
        """Partitions of a worker, in the order of computation.

        Parameters
        ----------
        worker : int
        index : int, optional
            Only those of this message, where the worker sends several.

        Returns
        -------
        (w,) int64 array
        """
        return self._row(worker)[0][self._part(worker, index)]

    def coefficients(self, worker: int, index: int | None = None) -> NDArray[Any]:
        """Coefficients of ``partitions(worker, index)`` in the worker's messages.

        Returns
        -------
        (w,) float64 or complex128 array
        """
        return self._row(worker)[1][self._part(worker, index)]

    def _part(self, worker: int, index: int | None) -> slice:
        worker = check_index("worker", worker, self.n)
        if index is None:
            return slice(None)
        self.message_number(worker, index)
        return self._share(self._row(worker)[0].size, worker, index)

    def _share(self, held: int, worker: int, index: int) -> slice:
        """Which of a worker's partitions go into a message."""
        if self.message_counts[worker] == 1:
            return slice(None)
        each = held // self.message_counts[worker]
        return slice(index * each, (index + 1) * each)

    def _message_rows(self) -> Iterator[tuple[NDArray[np.int64], NDArray[Any]]]:
        """Partitions and coefficients of every message, in order."""
        for worker, count in enumerate(self.message_counts):
            held, values = self._row(worker)
            for index in range(count):
                part = self._share(held.size, worker, index)
                yield held[part], values[part]

    def matrix(self) -> NDArray[Any]:
        """B as a dense array, a row for each message: for small n, and for tests.

        For codes of the data it says which coded blocks a message sums.
        """
        return self._dense(np.arange(self.message_count))

    def _dense(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        coefficients = [self.coefficients(*self.sender(int(m))) for m in numbers]
        dtype = np.result_type(np.float64, *coefficients)
        dense = np.zeros((len(numbers), self.shard_count), dtype=dtype)
        for row, m, values in zip(dense, numbers, coefficients, strict=True):
            row[self.partitions(*self.sender(int(m)))] = values
        return dense

    def encode_data(
        self, X: NDArray[Any], y: NDArray[Any]
    ) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """What the workers compute on: samples and labels of each partition.

        Parameters
        ----------
        X : (N, features) array
        y : (N,) or (N, outputs) array

        Returns
        -------
        list of `shard_count` pairs (X_j, y_j)
        """
        return data.partition(X, y, self.k)

    # ------------------------------------------------------------------------------ encoding

    def message_size(self, p: int, dtype: DTypeLike = np.float64) -> int:
        """Elements of a message for gradients of p elements, whatever the message's precision."""
        return self._format(p, dtype).message_size

    def message_dtype(self, dtype: DTypeLike = np.float64) -> np.dtype[Any]:
        """Dtype of a message's elements for gradients of this dtype."""
        return self._format(1, dtype).message_dtype

    def partial_dtype(self, dtype: DTypeLike = np.float64) -> np.dtype[Any]:
        """Dtype of the partial gradients that workers compute, for gradients of this dtype."""
        return self._format(1, dtype).partial_dtype

    @property
    def _layout(self) -> Layout:
        return "real" if not self._complex else "packed" if self.packed else "complex"

    def _format(self, p: int, dtype: DTypeLike, message_dtype: DTypeLike | None = None) -> Format:
        return Format.of(self._layout, p, dtype, message_dtype)

    def encode(
        self,
        worker: int,
        partials: ArrayLike,
        out: Output | None = None,
        *,
        index: int = 0,
        message_dtype: DTypeLike | None = None,
    ) -> NDArray[Any]:
        """Message of a worker: its combination of its partial gradients.

        Parameters
        ----------
        worker : int
        partials : (w, p) array or sequence of w arrays of shape (p,)
            Partial gradients on ``partitions(worker, index)``, in that order; float32, float64, or
            complex of either precision; float16 or bfloat16. Separate arrays are not stacked.
        out : (message_size(p),) array, optional
            Contiguous and writable, of ``message_dtype``.
        index : int, default 0
            Which of its messages, where it sends several.
        message_dtype : numpy dtype, optional
            Of real messages: float16, bfloat16 (from ml_dtypes), or another that is no more precise
            than the partial gradients. What they add up to is rounded to it once. Default: that of
            the partial gradients.

        Returns
        -------
        (message_size(p),) array
            `out`, or a new array.

        Raises
        ------
        TypeError, ValueError
            If anything does not fit; nothing has been written then.
        """
        self.message_number(worker, index)
        coef = self._row(worker)[1]
        coef = coef[self._share(coef.size, worker, index)]
        given = as_rows("the partial gradients", partials)
        if len(given) != coef.size:
            what = "" if self.message_counts[worker] == 1 else f" for message {index}"
            raise ValueError(
                f"worker {worker} computes {coef.size} partial gradients{what}, but "
                f"{len(given)} were given"
            )
        one = type(given) is np.ndarray and given.nbytes <= PREPARED_BYTES
        if stacked := one and message_dtype is None:
            prepared = self._encode_stacked(coef, given, out)
            if prepared is not None:
                return prepared
        first = as_array("a partial gradient", given[0])
        if first.ndim != 1:
            raise ValueError(f"a partial gradient must be a vector, not of shape {first.shape}")
        dtype = check_dtype(first.dtype, halves=True)
        if self._layout == "complex data" and not is_half(dtype):
            dtype = real_of(dtype, "partial gradients")
        form = self._format(first.size, dtype, message_dtype)
        rows = _rows(
            "partial gradient",
            range(coef.size),
            given,
            form.partial_dtype,
            form.gradient_size,
            form,
            form.encode_mode,
        )
        if out is None:
            message = np.empty(form.message_size, dtype=form.message_dtype)
        else:
            message = check_vector("out", out, form.message_dtype, form.message_size, output=True)
            inputs = [rows.arrays] if isinstance(rows.arrays, np.ndarray) else rows.arrays
            if any(np.may_share_memory(message, array) for array in inputs):
                raise ValueError("out shares memory with a partial gradient")
        sums = form.sums(message)
        kernels.combine(form.encode_mode, rows, coef, form.reals(sums, form.encode_mode))
        if sums is not message:
            store(sums, message)
        elif stacked:  # the next ones may be like it
            self._stack_encoders.append(StackEncoder(form, coef.size))
        return message if out is None else out

    def _encode_stacked(
        self, coef: NDArray[Any], partials: Any, out: Output | None
    ) -> NDArray[Any] | None:
        """Message by a plan that no other thread uses, if there is one for such arrays."""
        try:
            plan = self._stack_encoders.pop()
        except IndexError:
            return None
        message = plan.message(coef, partials, out)
        if message is not None:
            self._stack_encoders.append(plan)
        return message

    @cached_property
    def _stack_encoders(self) -> list[StackEncoder]:
        return []

    def encoder(
        self,
        worker: int,
        p: int,
        dtype: DTypeLike = np.float64,
        out: Output | None = None,
        *,
        index: int = 0,
        message_dtype: DTypeLike | None = None,
    ) -> Encoder:
        """Streaming encoder of one message: one accumulator instead of w partial gradients.

        `dtype` is that of the partial gradients; the rest as in `encode`.
        """
        return Encoder(self, worker, p, dtype, out, index, message_dtype)

    # ------------------------------------------------------------------------------ decoding

    def decodable(self, survivors: ArrayLike) -> bool:
        """Whether these messages determine the gradient."""
        return not self._rule.missing(self._check_survivors(survivors))

    def decoding_vector(
        self,
        survivors: ArrayLike,
        method: str = "auto",
        out: Output | None = None,
        *,
        log: bool = False,
    ) -> NDArray[Any]:
        """Decoding vector a_F: ``a_F @ B[survivors] = 1``.

        Parameters
        ----------
        survivors : (f,) integer array
            Distinct messages (workers, where each sends one), in any order.
        method : str, default "auto"
            How to compute it, where the scheme knows several ways (see the class).
        out : (f,) array, optional
            complex128, or float64 for real codes.
        log : bool, default False
            Return the logarithms instead, of which also those can be told whose coefficient is
            beyond float64: ``log|a_i|``, and the angle, in (-pi, pi], as imaginary part. Not with
            an `out`, nor a `method`.

        Returns
        -------
        (f,) complex128 or float64 array
            One coefficient for each survivor, in the order given; with `log` always complex128.

        Raises
        ------
        NotDecodableError
            If more messages are needed; says how many.
        OverflowError
            If a coefficient is beyond float64.
        ValueError
            If a survivor is named twice or does not exist.
        """
        if log:
            if out is not None or method != "auto":
                raise ValueError("log=True takes neither out nor a method")
            return self._log_vector(self._check_survivors(survivors))
        survivors = check_workers("survivors", survivors)
        # A plan no other thread uses: preparing one takes three times as long as using it.
        try:
            decoder = self._idle.pop()
        except IndexError:
            decoder = self.decoder()
        if decoder.backend is not kernels.active:
            decoder = self.decoder()
        target = None
        if out is not None:
            target = check_vector("out", out, decoder.vector.dtype, survivors.size, output=True)
        vector = decoder._of(survivors, method)
        if target is not None:
            target[:] = vector
        found: NDArray[Any] = vector.copy() if out is None else out
        self._idle.append(decoder)
        return found

    @cached_property
    def _idle(self) -> list[Decoder]:
        return []

    def decoding_vectors(
        self,
        masks: ArrayLike,
        method: str = "auto",
        *,
        undecodable: Literal["raise", "nan"] = "raise",
    ) -> NDArray[Any]:
        """Decoding vectors of many rounds in one call, as simulations need them.

        Parameters
        ----------
        masks : (rounds, N) bool array
            Which of the N messages came in each round (workers, where each sends one).
        method : str, default "auto"
            As in `decoding_vector`.
        undecodable : {"raise", "nan"}
            What to do about rounds whose messages do not suffice, or whose coefficients are beyond
            float64: raise the error, or fill their rows with NaN.

        Returns
        -------
        (rounds, N) complex128 or float64 array
            The coefficient of every message; 0 of those that did not come.

        Raises
        ------
        NotDecodableError, OverflowError
            As `decoding_vector`, for the first such round; a note says which.
        TypeError, ValueError
            If the masks are not boolean, or not of this shape.
        """
        if undecodable not in ("raise", "nan"):
            raise ValueError(f'undecodable must be "raise" or "nan", not {undecodable!r}')
        given = view_of("masks", masks)
        if given.dtype != np.bool_:
            raise TypeError(f"masks must be boolean, not {given.dtype}: give came == 1, say")
        if given.ndim != 2 or given.shape[1] != self.message_count:
            raise ValueError(
                f"masks must be of shape (rounds, {self.message_count}), not {given.shape}"
            )
        vectors = np.zeros(given.shape, dtype=np.complex128 if self._complex else np.float64)
        good = self._fill_vectors(given, method, vectors)
        for r in np.flatnonzero(~good).tolist():
            if undecodable == "nan":
                vectors[r] = np.nan
                continue
            try:
                self.decoding_vector(np.flatnonzero(given[r]), method)
            except (NotDecodableError, OverflowError) as error:
                error.add_note(f"round {r} of {len(given)}")
                raise
        return vectors

    def _fill_vectors(
        self, masks: NDArray[np.bool_], method: str, out: NDArray[Any]
    ) -> NDArray[np.bool_]:
        """Write rows of `out`, which are 0; whether each could be decoded.

        Schemes that can do many at once redefine this.
        """
        decode, good = self.decoder(), np.ones(len(masks), dtype=np.bool_)
        for r, mask in enumerate(masks):
            survivors = np.flatnonzero(mask)
            try:
                out[r, survivors] = decode(survivors, method)
            except (NotDecodableError, OverflowError):
                good[r] = False
        return good

    def decoder(self) -> Decoder:
        """A plan for decoding vectors in hot loops: buffers and pointers are made once."""
        return Decoder(self)

    def best_vector(self, survivors: ArrayLike) -> tuple[NDArray[Any], float]:
        """The vector nearest to a decoding vector, when too few messages came.

        Returns
        -------
        (f,) complex128 or float64 array
            The shortest a_F that minimises ``||a_F B_F - 1||``; a decoding vector if there is one.
        float
            The residual, as in `Approximation`; 0 if the gradient is exact.
        """
        survivors = self._check_survivors(survivors)
        if not self._rule.missing(survivors):
            return self.decoding_vector(survivors), self._left_out(survivors)
        rows, target = self._design(survivors)
        real_part = self._layout in ("complex", "complex data")
        if real_part:  # of the combination is what the master takes
            rows = np.concatenate([rows.real, -rows.imag])
        vector = np.linalg.lstsq(rows.T, target)[0]
        residual = np.linalg.norm(vector @ rows - target) / np.linalg.norm(target)
        if real_part:
            vector = vector[: survivors.size] + 1j * vector[survivors.size :]
        return vector, float(residual)

    def _design(self, survivors: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Rows that a decoding vector must combine to a target, and this target."""
        return self._dense(survivors), np.ones(self.k)

    @overload
    def decode(
        self,
        survivors: ArrayLike,
        messages: ArrayLike,
        out: Output | None = None,
        *,
        p: int | None = None,
        method: str = "auto",
        partial: None = None,
        check_finite: bool = True,
        tracker: Watch | None = None,
    ) -> NDArray[Any]: ...

    @overload
    def decode(
        self,
        survivors: ArrayLike,
        messages: ArrayLike,
        out: Output | None = None,
        *,
        p: int | None = None,
        method: str = "auto",
        partial: Literal["best"],
        check_finite: bool = True,
        tracker: Watch | None = None,
    ) -> Approximation: ...

    def decode(
        self,
        survivors: ArrayLike,
        messages: ArrayLike,
        out: Output | None = None,
        *,
        p: int | None = None,
        method: str = "auto",
        partial: Literal["best"] | None = None,
        check_finite: bool = True,
        tracker: Watch | None = None,
    ) -> NDArray[Any] | Approximation:
        """The gradient, from any messages that determine it.

        Parameters
        ----------
        survivors : (f,) integer array
            Numbers of the messages: workers, where each sends one.
        messages : (f, message_size) array or sequence of f arrays
            In the order of `survivors`. Separate buffers are read where they are.
        out : (p,) array, optional
            Contiguous and writable, of the gradient's dtype: float32 for messages of float16 or
            bfloat16.
        p : int, optional
            The gradient dimension, if `out` does not say: packed messages of p or p - 1 elements
            have the same length, and without `p` the whole length is returned.
        method : str, default "auto"
            As in `decoding_vector`.
        partial : "best", optional
            Return the least-squares approximation and its residual, see `best_vector`, instead of
            raising NotDecodableError.
        check_finite : bool, default True
            Look for NaN and Inf in what is combined (messages whose coefficient is 0 are not
            read). With `out`, this costs a temporary of p elements, so that nothing
            is written before the messages are known to be good.
        tracker : StabilityTracker, optional
            Takes down how precise the gradient is, as `trust` predicts.

        Returns
        -------
        (p,) array
            `out`, or a new array; with ``partial="best"`` an `Approximation` that holds it.

        Raises
        ------
        NotDecodableError
            If more messages are needed; says how many.
        NonFiniteMessageError
            If a message holds NaN or Inf; says whose.
        UnstableRoundError
            If the tracker finds the gradient too imprecise and is to raise.
        TypeError, ValueError
            If anything else does not fit; nothing has been written then.
        """
        survivors = check_workers("survivors", survivors)
        given = as_rows("the messages", messages)
        if len(given) != survivors.size:
            raise ValueError(f"{survivors.size} survivors, but {len(given)} messages")
        if partial not in (None, "best"):
            raise ValueError(f'partial must be None or "best", not {partial!r}')
        plain = partial is None and tracker is None and p is None  # and finite: else, as below
        if plain and type(given) is type(out) is np.ndarray and survivors.size:
            plan = self._stack_decoder(given, out)
            if plan is not None and not plan.decode(survivors, given, method):
                out[:] = plan.sums
                self._stacks.append(plan)
                return out
        residual = 0.0
        if partial is None:
            vector = self.decoding_vector(survivors, method)
        elif survivors.size == 0:
            raise ValueError("there is no approximation without any message")
        else:
            vector, residual = self.best_vector(survivors)
        if tracker is not None:
            form = self._message_format(as_array("a message", given[0]), out, p)
            predicted = residual
            if self.decodable(survivors):
                kinds = form.gradient_dtype, form.message_dtype
                predicted = self.trust(survivors, *kinds).relative_error
            tracker.record(self, survivors, vector, form.message_dtype, predicted)
        gradient = self._decode_by(vector, survivors, given, out, p, check_finite)
        return gradient if partial is None else Approximation(gradient, residual)

    def _stack_decoder(self, messages: NDArray[Any], out: NDArray[Any]) -> StackDecoder | None:
        """A plan no other thread uses, if there is one for such arrays."""
        if messages.nbytes > PREPARED_BYTES:
            return None
        try:
            plan = self._stacks.pop()
        except IndexError:
            plan = None
        if plan is None or plan.backend is not kernels.active or not plan.fits(messages, out):
            form = self._message_format(as_array("a message", messages[0]), out, None)
            plan = StackDecoder(self, form)
            if not plan.fits(messages, out):
                return None
        return plan

    @cached_property
    def _stacks(self) -> list[StackDecoder]:
        return []

    def _decode_by(
        self,
        vector: NDArray[Any],
        survivors: NDArray[np.int64],
        messages: NDArray[Any] | Sequence[Any],
        out: Output | None,
        p: int | None,
        check_finite: bool,
    ) -> NDArray[Any]:
        """The combination of messages by a decoding vector."""
        form = self._message_format(as_array("a message", messages[0]), out, p)
        rows = _rows(
            "message of worker",
            self._senders(survivors),
            messages,
            form.message_dtype,
            form.message_size,
            form,
            form.decode_mode,
        )
        target = None
        if out is not None:
            target = check_vector("out", out, form.gradient_dtype, form.gradient_size, output=True)
        if target is None or check_finite:
            gradient = np.empty(form.gradient_size, dtype=form.gradient_dtype)
        else:
            gradient = target
        used = rows
        if self._sparse:
            vector, used = nonzero(vector, rows)
        reals = form.reals(gradient, form.decode_mode)
        if not kernels.combine(form.decode_mode, used, vector, reals, check=check_finite):
            for worker, row in zip(self._senders(survivors), rows.arrays, strict=True):
                require_finite(worker, row)
        if target is not None and target is not gradient:
            target[:] = gradient
        return gradient if out is None else out

    def _senders(self, survivors: NDArray[np.int64]) -> Iterator[int]:
        """Workers of these messages, which need not exist."""
        for number in survivors.tolist():
            yield number if self.messages == 1 else self.sender(number)[0]

    def _message_format(self, message: NDArray[Any], out: Output | None, p: int | None) -> Format:
        """Format of messages like this one, for a gradient of p elements or of out's size."""
        if message.ndim != 1:
            raise ValueError(f"a message must be a vector, not of shape {message.shape}")
        dtype = message.dtype
        if self._layout in ("complex", "complex data") and not is_half(dtype):
            dtype = real_of(check_dtype(dtype), "messages")
        if p is None:
            p = message.size if out is None else view_of("out", out).size
        form = self._format(p, dtype)
        if form.message_size != message.size:
            raise ValueError(
                f"messages for a gradient of {p} elements must have {form.message_size} elements, "
                f"not {message.size}"
            )
        return form

    def bind(
        self,
        messages: ArrayLike,
        out: Output | None = None,
        *,
        p: int | None = None,
        check_finite: bool = True,
    ) -> BoundDecoder:
        """A plan for `decode` in hot loops, on the array that messages come to.

        Parameters
        ----------
        messages : (message_count, message_size) array
            Not a list. Message m will lie in row m, which only has to hold it when m is a
            survivor. Rows must be contiguous; they are read where they are.
        out : (p,) array, optional
            Where each call writes the gradient: contiguous, writable, of the gradient's dtype.
        p : int, optional
            The gradient dimension, if `out` does not say, as in `decode`.
        check_finite : bool, default True
            Look for NaN and Inf in what is combined, as in `decode`.

        Returns
        -------
        BoundDecoder
            Call it with survivors: ``bound(survivors)`` is the gradient, in `out`.

        Raises
        ------
        TypeError, ValueError
            If the arrays do not fit the code or each other, or overlap.

        Examples
        --------
        >>> import numpy as np, fastgc
        >>> code = fastgc.BinaryCode(4, stragglers=1)
        >>> messages, gradient = np.zeros((4, 2)), np.empty(2)
        >>> decode = code.bind(messages, out=gradient)
        >>> messages[:3] = [[1, 2], [30, 40], [5, 6]]  # the last one straggles
        >>> decode([0, 1, 2])
        array([6., 8.])
        """
        return BoundDecoder(self, messages, out, p, check_finite)

    def round(
        self,
        p: int,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
        *,
        tracker: Watch | None = None,
        verify: bool = False,
        check_finite: bool = True,
    ) -> Round:
        """One iteration at the master: messages in, gradient out; reusable.

        Parameters
        ----------
        p : int
            The gradient dimension.
        dtype : numpy dtype
            The gradient's: float32 for a `message_dtype` of float16 or bfloat16.
        message_dtype : numpy dtype, optional
            The messages'.
        tracker : StabilityTracker, optional
            Takes down how precise each gradient is, and may ask for more messages.
        verify : bool, default False
            Wait for messages to spare, and look for corrupt ones: see `Round`.
        check_finite : bool, default True
            Look for NaN and Inf in each message as it comes: see `Round`.
        """
        return Round(
            self, p, dtype, message_dtype, tracker, verify=verify, check_finite=check_finite
        )

    # -------------------------------------------------------------------------- what to expect

    def trust(
        self,
        survivors: ArrayLike,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
    ) -> Trust:
        """How far to trust a gradient decoded from these survivors, before any message is there.

        For partial gradients of `dtype`, of equal norm in random directions, and messages of
        `message_dtype` made by `encode`. `Round.trust` says it for the messages that came.
        """
        survivors = self._check_survivors(survivors)
        vector = self.decoding_vector(survivors)
        with np.errstate(over="ignore", invalid="ignore"):
            weights = np.abs(vector) ** 2 * self._row_norms[survivors]
        weights[vector == 0] = 0  # of messages that are not read
        form = self._format(1, dtype, message_dtype)
        return self._trust(float(weights.sum()), vector, survivors, form)

    def _trust(
        self,
        growth_squared: float,
        vector: NDArray[Any],
        survivors: NDArray[np.int64],
        form: Format,
    ) -> Trust:
        return Trust.of(
            growth_squared,
            int(np.count_nonzero(vector)),
            self._message_steps,
            self._partial_steps,
            self._left_out(survivors),
            form.gradient_dtype,
            form.message_dtype,
        )

    def _parity(self, survivors: NDArray[np.int64]) -> Parity:
        """Checks of these messages: all, or so many that any one corrupt worker can be found.

        O(f k min(f, k)); schemes that know better redefine this.
        """
        rows, _ = self._design(survivors)
        left, singular, _ = np.linalg.svd(rows)
        rank = int((singular > singular[:1] * max(rows.shape) * np.finfo(np.float64).eps).sum())
        H = left[:, rank:].conj().T
        return Parity.of(H, error=np.linalg.norm(H @ rows, axis=1))

    def _left_out(self, survivors: NDArray[np.int64]) -> float:
        """Residual of the decoding vector, as in `Approximation`: 0 for exact codes."""
        return 0.0

    @property
    def _message_steps(self) -> float:
        """Roundings in a message: its products and sums, and the coefficients of a and B."""
        return sums_of(self.load / self.messages) + 2

    @property
    def _partial_steps(self) -> float:
        """Roundings that coded data bring to each partial gradient."""
        return 0.0

    @cached_property
    def _row_norms(self) -> NDArray[np.float64]:
        """Squared 2-norm of each message, that of the gradient being 1."""
        with np.errstate(over="ignore"):
            norms = [float(np.sum(np.abs(values) ** 2)) for _, values in self._message_rows()]
        return np.array(norms) / self.k

    def _deviation(self, survivors: NDArray[np.int64], vector: NDArray[Any]) -> NDArray[Any]:
        """``a_F B_F - 1`` of what is taken of a decoded sum; in extended precision, if there is."""
        wide = np.clongdouble if self._complex else np.longdouble
        total = np.full(self.k, -1, dtype=wide)
        used = np.flatnonzero(vector)
        survivors, a = survivors[used], vector[used].astype(wide)
        if self.n * self.load <= ENTRIES_KEPT:
            first, held, values = self._entries
            sizes = first[survivors + 1] - first[survivors]
            at = np.arange(sizes.sum()) + np.repeat(
                first[survivors] - np.cumsum(sizes) + sizes, sizes
            )
            np.add.at(total, held[at], np.repeat(a, sizes) * values[at])
        else:
            for number, factor in zip(survivors.tolist(), a, strict=True):
                sender = self.sender(number)
                total[self.partitions(*sender)] += factor * self.coefficients(*sender)
        return total.real if self._layout == "complex" else total

    @cached_property
    def _entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """Where each message begins in what follows, its partitions and its coefficients."""
        held, values = zip(*self._message_rows(), strict=True)
        first = np.cumsum([0, *(each.size for each in held)])
        return first, np.concatenate(held), np.concatenate(values)

    def _circles(self) -> list[NDArray[np.int64]]:
        """Workers in rings along which neighbouring stragglers may do the most harm."""
        return [np.arange(self.n)]

    def _computation_roundings(self, terms: int) -> int:
        """Roundings in a worker's computation that count as the code's: none, but see there."""
        return 0

    @cached_property
    def _row_sums(self) -> NDArray[np.float64]:
        """Sum of each message's ``|B_ij|``; Inf beyond float64."""
        return np.array([float(np.abs(values).sum()) for _, values in self._message_rows()])

    @cached_property
    def _log_row_sums(self) -> NDArray[np.float64]:
        """Their logarithms; schemes whose coefficients may be beyond float64 redefine this."""
        return np.log(self._row_sums)

    def _log_vector(self, survivors: NDArray[np.int64]) -> NDArray[np.complex128]:
        """``log a_i``; -Inf for zeros. Schemes that can say more than float64 redefine this."""
        with np.errstate(divide="ignore"):
            logs: NDArray[np.complex128] = np.log(self.decoding_vector(survivors).astype(complex))
        return logs

    def _typical_error(self) -> float:
        """Relative error to expect in float64, as many workers straggling as may."""
        rng = np.random.default_rng(0)
        # Errors spread over many decades; where sets take long, only a few are tried.
        sets = 25 if self.message_count <= 400 else 5
        errors: list[float] = []
        while len(errors) < sets:
            heard = rng.permutation(self.n)[self.stragglers :]
            try:
                trust = self.trust(self.messages_of(heard))
                errors.append(trust.relative_error)
            except (OverflowError, NotDecodableError):  # the latter: a vector worth nothing
                errors.append(np.inf)
            bad = sum(not error <= UNSTABLE for error in errors)
            if 2 * max(bad, len(errors) - bad) > sets:  # the median's side is settled
                break
        return float(np.median(errors))

    def _check_stability(self, strict: bool, remedy: str) -> None:
        """Warn, or raise if `strict`, when rounding would leave nothing worth having."""
        if _made_before.get():  # and said then
            return
        error = self._typical_error()
        if not error <= UNSTABLE:
            text = (
                f"{self!r} is numerically unstable: with {self.stragglers} random stragglers the "
                f"gradient's relative error is about {error:.0e} in float64; {remedy}"
            )
            if strict:
                raise UnstableCodeError(text)
            warnings.warn(text, InstabilityWarning, stacklevel=3)

    @property
    def communication_load(self) -> float:
        """Size of the messages that the master receives in the worst case, in gradients.

        Li et al., definition 3, for real gradients; `recovery` estimates the mean.
        """
        return self.threshold * self._message_weight

    @property
    def _message_weight(self) -> float:
        form = self._format(2, np.float64)
        return form.message_size * form.message_dtype.itemsize / (2 * 8)

    def recovery(self, trials: int = 1000, seed: int = 0) -> Recovery:
        """What a round takes on average when messages arrive in random order.

        Every order in which each worker's own messages keep theirs is equally likely.

        Parameters
        ----------
        trials : int
            Rounds to average over.
        seed : int
        """
        trials, seed = at_least("trials", trials, 1), at_least("seed", seed, 0)
        workers = messages = 0
        for heard in self._random_sets(trials, seed):
            messages += len(heard)
            workers += len({self.sender(m)[0] for m in heard})
        load = messages * self._message_weight / trials
        return Recovery(workers / trials, messages / trials, load)

    def _random_sets(self, trials: int, seed: int) -> Iterator[list[int]]:
        """Messages that came in random order, until they sufficed."""
        rng = np.random.default_rng(seed)
        senders = np.repeat(np.arange(self.n), self.message_counts)
        tracker = self._rule.tracker()
        for _ in range(trials):
            tracker.reset()
            due = self._first[:-1].copy()
            heard = []
            for worker in rng.permutation(senders).tolist():
                heard.append(due[worker])
                due[worker] += 1
                if tracker.add(heard[-1]):
                    break
            yield heard

    # ---------------------------------------------------------------------------------- checks

    def _check_survivors(self, survivors: ArrayLike) -> NDArray[np.int64]:
        checked = check_workers("survivors", survivors)
        count = self.message_count
        # Of more than there are messages, these hold one that does not exist or is named twice.
        checked = checked[: count + 1]
        # One comparison for both ends of the range: negative numbers wrap to huge ones.
        if checked.size and checked.view(np.uint64).max() >= count:
            outside = checked.view(np.uint64) >= count
            self._raise_outside(checked, int(np.argmax(outside)))
        present = np.zeros(count, dtype=np.bool_)
        present[checked] = True
        if np.count_nonzero(present) < checked.size:
            self._raise_duplicate(checked, _second(checked))
        return checked

    def _raise_outside(self, survivors: NDArray[np.int64], at: int) -> None:
        what = "workers" if self.messages == 1 else "messages"
        raise ValueError(
            f"survivors[{at}] is {survivors[at]}, but {what} are numbered 0 to "
            f"{self.message_count - 1}"
        )

    def _raise_duplicate(self, survivors: NDArray[np.int64], at: int) -> None:
        what = "worker" if self.messages == 1 else "message"
        raise ValueError(f"survivors[{at}] names {what} {survivors[at]} a second time")

    def _raise_too_few(self, survivors: NDArray[np.int64]) -> NoReturn:
        missing = self._rule.missing(survivors)
        more = "1 more message is" if missing == 1 else f"{missing} more messages are"
        what = "workers" if self.messages == 1 else "messages in order"
        raise NotDecodableError(
            f"{survivors.size} messages do not determine the gradient: at least {more} needed "
            f"(any {self.threshold} of {self.message_count} {what} suffice)",
            missing,
        )

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self._parameters().items())
        return f"{type(self).__name__}({listed})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), self._parameters())


def _make(kind: Callable[..., Code], parameters: dict[str, Any]) -> Code:
    token = _made_before.set(True)
    try:
        return kind(**parameters)
    finally:
        _made_before.reset(token)


def _second(survivors: NDArray[np.int64]) -> int:
    """Position of the first entry that occurred before."""
    first = np.unique(survivors, return_index=True)[1]
    return int(np.setdiff1d(np.arange(survivors.size), first)[0])


def _rows(
    what: str,
    numbers: Iterable[int],
    arrays: Iterable[NDArray[Any]],
    dtype: np.dtype[Any],
    size: int,
    form: Format,
    mode: int,
) -> kernels.Rows:
    """Checked rows for a kernel of `mode`, without copying what is contiguous."""
    if isinstance(arrays, np.ndarray) and arrays.dtype == dtype and arrays.shape[1:] == (size,):
        if arrays.strides[1] != arrays.itemsize or not arrays.flags.aligned:
            arrays = arrays.copy()
        reals = form.reals(arrays, mode)
        return kernels.Rows.of(reals, reals.shape[1], reals.dtype)
    checked, shape = list(arrays), (size,)
    # What nearly every call brings, in one test: `check_vector` for each takes twice as long.
    if not all(
        type(array) is np.ndarray
        and array.dtype is dtype
        and array.shape == shape
        and array.flags.carray
        for array in checked
    ):
        checked = [
            check_vector(what, array, dtype, size, number=number)
            for number, array in zip(numbers, checked, strict=True)
        ]
    if dtype.kind == "c":
        checked = [form.reals(array, mode) for array in checked]
    return kernels.Rows.of(checked, checked[0].size, checked[0].dtype)
