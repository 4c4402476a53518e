"""A gradient code as users see it: the verbs, the same for every scheme."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._arrays import (
    Output,
    at_least,
    check_integer,
    check_output,
    check_workers,
    view_of,
)
from .._shown import listed
from ..errors import NotDecodableError, warn_caller
from ..kernels.rows import DOUBLE
from . import approximation, display
from .approximation import Partial, nearest_vector
from .arguments import Recorded
from .placement import (
    Domains,
    PlacedScheme,
    check_order,
    labels_of,
    losses,
    members_of,
    placement,
    survived,
    what_would_do,
)
from .plan import BoundDecoder, BoundEncoder, Decoder, Encoder, Plan, decode, encode
from .round import DeviceRound, Round
from .scheme import Residuals, Scheme
from .trust import Approximation, Trust, Watch, expected_trust, warn_of_precision

__all__ = ["Code", "Placed", "Recovery"]


class Recovery(NamedTuple):
    """What a round takes on average, when messages arrive in random order.

    Attributes
    ----------
    workers : float
        Workers heard from before the gradient could be decoded.
    messages : float
        Messages received by then, with all that came together with the last one.
    communication_load : float
        Their size in gradients.
    """

    workers: float
    messages: float
    communication_load: float


class Code(Recorded):
    """A gradient code: a scheme, and the verbs that are the same for all.

    Arrays, `out` among them, are NumPy's or others whose memory NumPy can view: tensors of PyTorch
    on the CPU, memoryviews, or whatever speaks DLPack. They are read and written where they are,
    and what is returned is the `out` that was given.

    Survivors are the numbers of the messages that came, or one boolean for each of all messages,
    True where it came, which stand for their numbers in ascending order. Where every worker sends
    one message, a message has its worker's number; else see `fastgc.codes.Scheme.message_number`.

    Parameters
    ----------
    scheme : Scheme, optional
        What the code says of itself. A subclass may do without, and write one method, ``row``, as
        of `fastgc.codes.Scheme`. Its constructor then sets `n` and `k`, and may set `stragglers`,
        `wait` and `load`.

    Attributes
    ----------
    scheme : Scheme
        What the code says of itself, and what follows from that.
    n, k : int
        Workers and partitions.
    load : int
        Partitions per worker, w (the largest, where workers differ).
    stragglers : int or None
        Workers of which nothing need come in the worst case, s; None if it is not known.
    threshold : int or None
        Messages with which a round is ready in any case, if each worker's come in order; None if it
        is not known.

    Raises
    ------
    TypeError
        If `scheme` is none; if a class with one writes ``row``, or neither is there.

    Examples
    --------
    >>> import numpy as np, fastgc
    >>> class Ring(fastgc.Code):
    ...     def __init__(self, n, *, load):
    ...         self.n = self.k = n
    ...         self._load = load
    ...
    ...     def row(self, worker):
    ...         return (worker + np.arange(self._load)) % self.n, np.ones(self._load)
    >>> code = Ring(6, load=3)
    >>> code, code.stragglers, code.decodable([1, 4])
    (Ring(n=6, load=3), 2, True)
    """

    # Those of its schemes, to be known before one is made.
    _known_methods: ClassVar[tuple[str, ...]] = Scheme.methods

    def __init__(self, scheme: Scheme) -> None:
        if not isinstance(scheme, Scheme):
            raise TypeError(f"scheme must be a fastgc.codes.Scheme, not {scheme!r}")
        if hasattr(type(self), "row"):
            raise TypeError(
                f"{type(self).__name__} has a row of its own and is made with a scheme, "
                f"{scheme!r}: the scheme says what rows are"
            )
        self.scheme = scheme
        if type(self) is not Code:
            scheme._made_as(self._made_by, self._made_with)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        hooks = sorted(name for name in vars(cls) if name in _HOOKS)
        if hooks:
            raise TypeError(
                f"{cls.__name__} defines {', '.join(hooks)}: a subclass of Code writes row, and no "
                "other hook of its scheme; to say more, write a subclass of fastgc.codes.Scheme, "
                "and make the code by Code(scheme)"
            )

    @cached_property
    def scheme(self) -> Scheme:
        return _RowScheme(self)

    @cached_property
    def n(self) -> int:
        return self.scheme.n

    @cached_property
    def k(self) -> int:
        return self.scheme.k

    @cached_property
    def load(self) -> int:
        return self.scheme.load

    @cached_property
    def stragglers(self) -> int | None:
        return self.scheme.stragglers

    @property
    def threshold(self) -> int | None:
        return self.scheme.threshold

    # --------------------------------------------------------------------- who computes what

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
        return self.scheme.partitions(worker, index)

    def coefficients(self, worker: int, index: int | None = None) -> NDArray[Any]:
        """Coefficients of ``partitions(worker, index)`` in the worker's messages.

        Returns
        -------
        (w,) or (w, pieces) float64 or complex128 array
        """
        return self.scheme.coefficients(worker, index)

    def matrix(self) -> NDArray[Any]:
        """B as a dense array, a row for each message: for small n, and for tests.

        For codes of the data it says which coded blocks a message sums. With `pieces` it has three
        dimensions: messages, partitions, pieces.
        """
        return self.scheme.matrix()

    def encode_data(self, X: Any, y: Any) -> list[tuple[Any, Any]]:
        """What the workers compute on: samples and labels of each partition.

        Of `LagrangeCode` those of each coded block.

        Parameters
        ----------
        X : (N, features) array
        y : (N,) or (N, outputs) array

        Returns
        -------
        list of pairs (X_j, y_j)
            Of which worker i computes on those that ``partitions(i)`` names.
        """
        return self.scheme.encode_data(X, y)

    # ---------------------------------------------------------------------------- encoding

    def message_size(
        self, p: int, dtype: DTypeLike = np.float64, message_dtype: DTypeLike | None = None
    ) -> int:
        """Elements of a message for gradients of p elements of this dtype.

        Messages of float16 (`message_dtype`, or the gradients' own) have one more than others, for
        the power of two that they are scaled by.
        """
        return self.scheme.format(p, dtype, message_dtype).message_size

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

        Codes of integer coefficients (`Scheme.integral`) also take integers, here and wherever
        gradients or messages are given. Messages and gradients are then of the same dtype and never
        rounded. Sums wrap around as NumPy's do, without a warning: the gradient is exact if it fits
        in the dtype, whatever overflowed on the way, and else modulo 2^bits.

        Parameters
        ----------
        worker : int
        partials : (w, p) array or sequence of w arrays of shape (p,)
            Partial gradients on ``partitions(worker, index)``, in that order; float32, float64, or
            complex of either precision; float16 or bfloat16; integers where coefficients
            are. Separate arrays are not stacked.
        out : (message_size(p),) array, optional
            Contiguous and writable, of ``message_dtype``.
        index : int, default 0
            Which of its messages, where it sends several.
        message_dtype : numpy dtype, optional
            Of real messages: float16, bfloat16 (from ml_dtypes), float32 or float64. What they add
            up to is rounded to it once. More precise ones than the partial gradients are for codes
            that decoding loses digits of; of float64 gradients "float64x2", pairs of float64
            (`ReedSolomon`). Default: that of the partial gradients.

        Returns
        -------
        (message_size(p),) array
            `out`, or a new array.

        Raises
        ------
        TypeError, ValueError
            If anything does not fit; nothing has been written then.
        """
        found: NDArray[Any] = encode(self.scheme, worker, partials, out, index, message_dtype)
        return found

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
        return Encoder(self.scheme, worker, p, dtype, out, index, message_dtype)

    def bind_encoder(
        self,
        worker: int,
        partials: ArrayLike,
        out: Output | None = None,
        *,
        index: int = 0,
        message_dtype: DTypeLike | None = None,
    ) -> BoundEncoder:
        """A plan for `encode` in hot loops, on the array that partial gradients are written to.

        Parameters as of `encode`; `partials` is an array, whose rows are read where they are.

        Returns
        -------
        BoundEncoder
            Call it: ``bound()`` is the message, in `out`.

        Raises
        ------
        TypeError, ValueError
            If the arrays do not fit the code or each other, or overlap.

        Examples
        --------
        >>> import numpy as np, fastgc
        >>> code = fastgc.BinaryCode(4, 8, stragglers=1)
        >>> partials, message = np.zeros((4, 2)), np.empty(2)
        >>> encode = code.bind_encoder(0, partials, out=message)
        >>> partials[:] = [[1, 2], [30, 40], [5, 6], [0, 1]]
        >>> encode()
        array([36., 49.])
        """
        return BoundEncoder(self.scheme, worker, partials, out, index, message_dtype)

    # ---------------------------------------------------------------------------- decoding

    def decodable(self, survivors: ArrayLike) -> bool:
        """Whether these messages, numbers or booleans, suffice: see `Scheme.rule`."""
        return not self.scheme.rule.missing(self.scheme.check_survivors(survivors))

    def decoding_vector(
        self,
        survivors: ArrayLike,
        method: str = "auto",
        out: Output | None = None,
        *,
        message_dtype: DTypeLike = np.float64,
        log: bool = False,
    ) -> NDArray[Any]:
        """Decoding vector a_F: ``a_F @ B[survivors] = 1``.

        Parameters
        ----------
        survivors : (f,) integer array, or (N,) bool array
            Distinct messages (workers, where each sends one), in any order; or, for each of all N
            messages, whether it came: those that did, ascending.
        method : str, default "auto"
            How to compute it, where the scheme knows several ways (see the class).
        out : (f,) array, optional
            complex128, or float64 for real codes.
        message_dtype : numpy dtype, default float64
            Of the messages' elements: the more rounding they have seen, the shorter the best vector
            is. `decode` and rounds look at the messages. Of "float64x2": the vector is of pairs.
        log : bool, default False
            Return the logarithms of the exact vector instead, of which also those can be told whose
            coefficient is beyond float64: ``log|a_i|``, and the angle, in (-pi, pi], as imaginary
            part. Not with an `out`, nor a `method`.

        Returns
        -------
        (f,) complex128 or float64 array
            One coefficient for each survivor, in the order given; with `log` always complex128.
            For messages of float64x2 of shape (f, 2): coefficients, and what these lack.

        Raises
        ------
        NotDecodableError
            If more messages are needed; says how many.
        OverflowError
            If a coefficient is beyond float64.
        ValueError
            If a survivor is named twice or does not exist, or booleans are not N.
        """
        if log:
            if out is not None or method != "auto":
                raise ValueError("log=True takes neither out nor a method")
            return self.scheme.log_vector(self.scheme.check_survivors(survivors))
        survivors = check_workers("survivors", survivors, self.scheme.message_count)
        target = None
        unit = DOUBLE if message_dtype is np.float64 else self.scheme.unit_of(message_dtype)
        if out is not None:
            wanted = self.scheme._empty_vector(survivors.size, unit)
            target = check_output("out", out, wanted.dtype, wanted.shape)
        found = self.scheme._vector_by(survivors, method, unit)
        if out is None or target is None:
            return found
        target[:] = found
        return out  # type: ignore[no-any-return]

    def decoding_vectors(
        self,
        masks: ArrayLike,
        method: str = "auto",
        *,
        undecodable: Literal["raise", "nan"] = "raise",
        message_dtype: DTypeLike = np.float64,
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
        message_dtype : numpy dtype, default float64
            As in `decoding_vector`.

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
        if given.ndim != 2 or given.shape[1] != self.scheme.message_count:
            raise ValueError(
                f"masks must be of shape (rounds, {self.scheme.message_count}), not {given.shape}"
            )
        unit = self.scheme.unit_of(message_dtype)
        one = self.scheme._empty_vector(1, unit)
        vectors = np.zeros(given.shape + one.shape[1:], one.dtype)
        good = self.scheme.fill_vectors(given, method, vectors, unit)
        for r in np.flatnonzero(~good).tolist():
            if undecodable == "nan":
                vectors[r] = np.nan
                continue
            try:
                self.scheme._vector_by(np.flatnonzero(given[r]), method, unit)
            except (NotDecodableError, OverflowError) as error:
                error.add_note(f"round {r} of {len(given)}")
                raise
        return vectors

    def best_vector(
        self,
        survivors: ArrayLike,
        *,
        partial: Partial = "best",
        message_dtype: DTypeLike = np.float64,
    ) -> tuple[NDArray[Any], float]:
        """The vector nearest to a decoding vector, when too few messages came.

        Parameters
        ----------
        survivors, message_dtype
            As in `decoding_vector`.
        partial : "best" or "unbiased"
            The shortest a_F that minimises ``||a_F B_F - 1||``; or that divided by the mean of its
            a_F B_F, which is then 1.

        Returns
        -------
        (f,) complex128 or float64 array
            A decoding vector if there is one.
        float
            The residual, as in `Approximation`, computed from the rows.

        Raises
        ------
        NotDecodableError
            If it is to be unbiased, and the messages hold nothing of the gradient.
        """
        unit = self.scheme.unit_of(message_dtype)
        checked = self.scheme.check_survivors(survivors)
        return nearest_vector(self.scheme, checked, unit, partial)[:2]

    def decoder(self, message_dtype: DTypeLike = np.float64) -> Decoder:
        """A plan for decoding vectors in hot loops: buffers and pointers are made once.

        `message_dtype` as in `decoding_vector`.
        """
        return Decoder(self.scheme, self.scheme.unit_of(message_dtype))

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
        partial: Partial,
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
        partial: Partial | None = None,
        check_finite: bool = True,
        tracker: Watch | None = None,
    ) -> NDArray[Any] | Approximation:
        """The gradient, from any messages that determine it.

        Parameters
        ----------
        survivors : (f,) integer array, or (N,) bool array
            Numbers of the messages (workers, where each sends one), or which came, as in
            `decoding_vector`.
        messages : (f, message_size) array or sequence of f arrays
            In the order of `survivors`. Separate buffers are read where they are.
        out : (p,) array, optional
            Contiguous and writable, of the gradient's dtype: float32 for messages of float16 or
            bfloat16. It may lie in the memory of a message, which is then overwritten at the end.
        p : int, optional
            The gradient dimension, if `out` does not say: packed messages of p or p - 1 elements
            have the same length, and without `p` the whole length is returned.
        method : str, default "auto"
            As in `decoding_vector`.
        partial : "best" or "unbiased", optional
            Return an approximation and its residual instead of raising NotDecodableError: by least
            squares, whose coefficients on the partial gradients are too small on average, or
            divided by their mean; see `best_vector`.
        check_finite : bool, default True
            Look for NaN and Inf in what is combined (messages whose coefficient is 0 are not
            read), on the way: this costs nothing.
        tracker : StabilityTracker, optional
            Takes down how precise the gradient is, as `trust` predicts.

        Returns
        -------
        (p,) array
            `out`, or a new array; with `partial` an `Approximation` that holds it.

        Raises
        ------
        NotDecodableError
            If more messages are needed; says how many.
        NonFiniteMessageError
            If a message holds NaN or Inf; says whose. What `out` holds then is undefined, unless it
            lies in the memory of a message, which is as it was.
        UnstableRoundError
            If the tracker finds the gradient too imprecise and is to raise.
        TypeError, ValueError
            If anything else does not fit; nothing has been written then.
        """
        found: NDArray[Any] | Approximation = decode(
            self.scheme, survivors, messages, out, p, method, partial, check_finite, tracker
        )
        return found

    def combine(
        self,
        vector: NDArray[Any],
        survivors: ArrayLike,
        messages: ArrayLike,
        out: Output | None = None,
        *,
        p: int | None = None,
        check_finite: bool = True,
    ) -> NDArray[Any]:
        """What messages add up to by a vector that is given, whatever it is.

        Parameters
        ----------
        vector : (f,) or (f, pieces) array
            complex128, or float64 for real codes.
        survivors, messages, out, p, check_finite
            As in `decode`.

        Raises
        ------
        NonFiniteMessageError, TypeError, ValueError
            As `decode`.
        """
        checked = self.scheme.check_survivors(survivors)
        plan, given = Plan.of_thread(self.scheme, checked, messages, out, p, check_finite)
        coef = plan.checked_vector(vector, checked.size)
        found: NDArray[Any] = plan.combine(coef, checked, given, out)
        return found

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
        bound = BoundDecoder(self.scheme, messages, out, p, check_finite)
        warn_of_precision(self.scheme, bound.form)
        return bound

    def round(
        self,
        p: int,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
        *,
        tracker: Watch | None = None,
        verify: bool | int = False,
        check_finite: bool = True,
        device: Any = None,
        partial_dtype: DTypeLike | None = None,
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
        verify : bool or int, default False
            Wait for messages to spare, and look for corrupt ones, of at most so many workers: see
            `Round`.
        check_finite : bool, default True
            Look for NaN and Inf in each message as it comes: see `Round`.
        device : torch.device or str, optional
            Where messages are, if they are tensors on another device than the CPU.
        partial_dtype : numpy dtype, optional
            The workers' partial gradients', where messages are of less precision: see `Round`.
        """
        named: Any = {"tracker": tracker, "verify": verify, "check_finite": check_finite}
        named["partial_dtype"] = partial_dtype
        if device is not None:
            found: Round = DeviceRound(self, p, dtype, message_dtype, device=device, **named)
        else:
            found = Round(self, p, dtype, message_dtype, **named)
        warn_of_precision(self.scheme, found.form)
        return found

    # ----------------------------------------------------------------------- what to expect

    def trust(
        self,
        survivors: ArrayLike,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
    ) -> Trust:
        """How far to trust a gradient decoded from these survivors, before any message is there.

        For partial gradients of `dtype`, of equal norm in random directions, and messages of
        `message_dtype` made by `encode`; over the norm that their sum is expected to have.
        `Round.trust` says it for the messages that came, over the norm of what they decode to.
        """
        checked = self.scheme.check_survivors(survivors)
        return expected_trust(self.scheme, checked, dtype, message_dtype)

    def residual(self, survivors: ArrayLike, vector: NDArray[Any] | None = None) -> float:
        """How far ``a_F B_F`` is from 1, computed: what decoding leaves out, and rounding adds.

        Parameters
        ----------
        survivors : (f,) integer array, or (N,) bool array
            As in `decoding_vector`.
        vector : (f,) or (f, pieces) array, optional
            Default: the decoding vector, or the best there is where they do not suffice.

        Returns
        -------
        float
            ``||a_F B_F - 1|| / sqrt(k)``: the expected error over the gradient's expected norm, for
            partial gradients of equal norm in random directions.
        """
        return self.scheme.residual(survivors, vector)

    def residuals(
        self, workers: int | None = None, *, sets: int = 2000, seed: int = 0
    ) -> Residuals:
        """What gradients leave out that are decoded from all messages of any so many workers.

        Parameters
        ----------
        workers : int, optional
            Default: those that are `Scheme.awaited`; all, where that is unknown.
        sets : int, default 2000
            Look at all sets of workers if there are no more than these, else at so many random
            ones.
        seed : int
            Of these.

        Raises
        ------
        TypeError, ValueError
            If there are not so many workers.
        """
        if workers is None:
            workers = self.n if self.scheme.awaited is None else self.scheme.awaited
        f = check_integer("workers", workers)
        if not 1 <= f <= self.n:
            raise ValueError(f"workers must be in 1 .. n = {self.n}, not {f}")
        sets, seed = at_least("sets", sets, 1), at_least("seed", seed, 0)
        return approximation.residuals(self.scheme, f, sets, seed)

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
        for heard in self.scheme.random_arrivals(trials, seed):
            messages += len(heard)
            workers += self.scheme.senders(np.array(heard)).size
        load = messages * self.scheme.message_weight / trials
        return Recovery(workers / trials, messages / trials, load)

    # ----------------------------------------------------------------------- who does whose work

    def placed(self, domains: Domains, *, strict: bool = False) -> Placed:
        """The same code with its workers dealt out so that any one domain may be lost.

        Deaths come by node and by zone: those of one domain die together. Which of the workers
        share it decides whether the others suffice, and costs nothing. The order is that of the
        numbers where it will do; else it is found by theory, by trying all orders of up to 12
        workers, or by search.

        Parameters
        ----------
        domains : sequence of n labels, or mapping of labels to workers
            In which domain each worker is: ``["a", "a", "b", "b"]``, ``{"a": [0, 1], "b": [2,
            3]}``. Those of ranks of PyTorch are ``fastgc.torch.hosts()``.
        strict : bool, default False
            Raise an error where not any one domain may be lost, instead of a warning.

        Returns
        -------
        Placed

        Raises
        ------
        TypeError, ValueError
            If domains are not those of n workers, or with `strict` one of them may not be lost;
            says why.

        Warns
        -----
        UserWarning
            If a domain may not be lost in the best order that was found; says which, and why.

        Examples
        --------
        >>> import fastgc
        >>> code, nodes = fastgc.BinaryCode(6, stragglers=1), [0, 0, 0, 1, 1, 1]
        >>> code.decodable([3, 4, 5])  # node 0 is lost
        False
        >>> placed = code.placed(nodes)
        >>> placed.decodable([3, 4, 5]), placed.order.tolist()
        (True, [0, 2, 4, 1, 3, 5])
        >>> print(placed.losses)
        any one of 2 domains may be lost, of 3 workers
        """
        labels = labels_of(domains, self.n)
        found = placement(self.scheme, labels)
        if found.why:
            members = members_of(labels)
            lost = listed(each for each in members if each not in found.survived)
            which = "every domain" if not found.survived else f"domains {lost}"
            text = (
                f"{self!r} does not survive the loss of {which} in any order of its workers that "
                f"was found: {found.why}; {what_would_do(members)}"
            )
            if strict:
                raise ValueError(text)
            warn_caller(text, UserWarning)
        return Placed(self, labels, found.order)

    # ------------------------------------------------------------------------------ to look at

    def table(self, workers: Iterable[int] | None = None, digits: int = 3) -> str:
        """The encoding matrix B as a text to print: what each worker computes and sends.

        Numbers are rounded, and what is too small to be seen beside the rest of its number is left
        out: `matrix` has what the kernels use, rounding errors and all.

        Parameters
        ----------
        workers : iterable of int, optional
            Default: the first 20.
        digits : int
            Significant digits of the coefficients.

        Returns
        -------
        str
            A line for each message, of up to 16 partitions with a column for each.

        Raises
        ------
        TypeError, ValueError
            If there is no such worker, or `digits` is below 1.

        Examples
        --------
        >>> import fastgc
        >>> print(fastgc.ReedSolomon(4, stragglers=1).table())
        ReedSolomon(n=4, stragglers=1): coefficients of partitions in messages
        worker     0     1     2     3
             0  2-2j     ·  2-2j     ·
             1  2+2j     ·  2+2j     ·
             2     ·  2-2j     ·  2-2j
             3     ·  2+2j     ·  2+2j
        """
        return display.table(self.scheme, workers, digits)

    def _repr_html_(self) -> str:
        """What notebooks show: parameters, and who computes what."""
        return display.html_of(self.scheme)


class _RowScheme(Scheme):
    """The scheme of a code that is a `row`, and some numbers."""

    def __init__(self, code: Code) -> None:
        kind = type(code)
        if not hasattr(kind, "row"):
            raise TypeError(f"{kind.__name__} has neither a row nor a scheme")
        if strange := sorted(_HOOKS & vars(code).keys()):
            raise TypeError(
                f"{kind.__name__} sets {', '.join(strange)}: to say more than rows, write a "
                "subclass of fastgc.codes.Scheme, and make the code by Code(scheme)"
            )
        self._made_as(code._made_by, code._made_with)
        for name in ("n", "k", "load", "stragglers", "wait"):
            # what the code's class or constructor sets; a name of the base's own is not set
            if name in vars(code) or getattr(kind, name, None) is not getattr(Code, name, None):
                setattr(self, name, getattr(code, name))
        self._row = code.row  # type: ignore[attr-defined]

    def row(self, worker: int) -> tuple[ArrayLike, ArrayLike]:
        return self._row(worker)  # type: ignore[no-any-return]


# Names by which a scheme says something that a code says by its scheme alone.
_HOOKS = {name for name in dir(Scheme) if not name.startswith("_")} - {*dir(Code), "row", "wait"}


class Placed(Code):
    """A code whose workers are dealt out to domains: worker i does what ``order[i]`` of it does.

    Made by `Code.placed`, which finds the order.

    Parameters
    ----------
    code : Code
    domains : sequence of n labels, or mapping of labels to workers
        As of `Code.placed`.
    order : sequence of n int
        Each worker of `code` once.

    Attributes
    ----------
    code : Code
        The code, as it was numbered.
    order : (n,) int64 array
    domains : dict
        Of each label, its workers.
    survived : tuple of labels
        Domains of which any one may be lost, all of its workers at a time.
    losses : str
        The same in a sentence.

    Raises
    ------
    TypeError, ValueError
        If `code` is none, or an argument is not of its n workers.
    """

    scheme: PlacedScheme

    def __init__(self, code: Code, domains: Domains, order: ArrayLike) -> None:
        if not isinstance(code, Code):
            raise TypeError(f"code must be a code of fastgc, not {code!r}")
        self.code, self.order = code, check_order(order, code.n)
        self._labels = labels_of(domains, code.n)
        self.domains = members_of(self._labels)
        super().__init__(PlacedScheme(code.scheme, self.order))

    @cached_property
    def survived(self) -> tuple[Hashable, ...]:
        return survived(self.code.scheme, self.domains, self.order)

    @property
    def losses(self) -> str:
        return losses(self.domains, self.survived)
