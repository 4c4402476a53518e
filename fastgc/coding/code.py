"""A gradient code as users see it: the verbs, the same for every scheme."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._base.arrays import (
    Array,
    Ints,
    Output,
    as_rows,
    at_least,
    check_dtype,
    check_output,
    check_word,
    check_workers,
    unit_roundoff,
    view_of,
)
from ..errors import NotDecodableError
from ..kernels.rows import DOUBLE
from . import display
from .arguments import Recorded, check_between, made_as
from .orders import random_arrivals
from .plan import BoundDecoder, BoundEncoder, Encoder, planned, planned_encoding
from .precision import Residuals
from .round import Round
from .scheme import Decoder, Scheme, empty_vector, fill_vectors
from .trust import (
    Approximation,
    Partial,
    Trust,
    Watch,
    check_partial,
    expected_trust,
    nearest_vector,
    residuals,
    warn_of_precision,
)
from .verified import round_of


class Recovery(NamedTuple):
    """What a round needs on average when messages arrive in random order.

    Attributes
    ----------
    workers : float
        Workers that had sent a message when the gradient could be decoded.
    messages : float
        Messages received by then.
    communication_load : float
        The size of these messages, in gradients.
    """

    workers: float
    messages: float
    communication_load: float


class Code(Recorded):
    """A gradient code: a scheme, and the verbs that are the same for all.

    Arrays, including `out`, are NumPy arrays or others whose memory NumPy can view: PyTorch tensors
    on the CPU, memoryviews, and anything that supports DLPack. They are read and written in place.
    A method that is given `out` returns it.

    Survivors are the numbers of the messages that came, or one boolean for each message of the
    code, True if it came. Booleans stand for the numbers in ascending order. If every worker sends
    one message, a message has its worker's number; otherwise see
    `fastgc.codes.Scheme.messages.number`.

    Parameters
    ----------
    scheme : Scheme, optional
        The definition of the code. A subclass may instead define one method, ``row``, as in
        `fastgc.codes.Scheme`. Its constructor then sets `n` and `k`, and may set `stragglers`,
        `wait` and `load`.

    Attributes
    ----------
    scheme : Scheme
        The definition of the code, and what follows from it.
    n, k : int
        Workers and partitions.
    load : int
        Partitions per worker, w; the largest if workers differ.
    stragglers : int or None
        Workers that may send nothing at all, whichever they are, s; None if it is not known.
    threshold : int or None
        Number of messages that always suffice if each worker's messages come in order; None if it
        is not known.

    Raises
    ------
    TypeError
        If `scheme` is not a `Scheme`, or if a class has both a scheme and ``row``, or neither.

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

    # The methods of a class's schemes, for those who ask before a code is made.
    _known_methods: ClassVar[tuple[str, ...]] = Scheme.methods

    def __init__(self, scheme: Scheme) -> None:
        own = hasattr(type(self), "row")
        if not isinstance(scheme, Scheme):
            raise TypeError(
                f"scheme must be a fastgc.codes.Scheme, not {scheme!r}"
                + ": a class with its own row sets n and k instead" * own
            )
        if own:
            raise TypeError(
                f"{type(self).__name__} defines row and is made with a scheme, {scheme!r}, which "
                "has rows: leave out one of them"
            )
        self.scheme = scheme
        if type(self) is not Code:
            made_as(scheme, self._made_by, self._made_with)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        hooks = sorted(name for name in vars(cls) if name in _HOOKS | _OBJECTS)
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

    def partitions(self, worker: int, index: int | None = None) -> Ints:
        """Return the partitions of a worker, in the order in which it computes them.

        Parameters
        ----------
        worker : int
        index : int, optional
            Only the partitions of this message, if the worker sends several.

        Returns
        -------
        (w,) int64 array
        """
        return self.scheme.partitions(worker, index)

    def coefficients(self, worker: int, index: int | None = None) -> Array:
        """Return the coefficients of ``partitions(worker, index)`` in the worker's messages.

        Returns
        -------
        (w,) float64 or complex128 array
        """
        return self.scheme.coefficients(worker, index)

    def matrix(self) -> Array:
        """Return B as a dense array with a row for each message, for small n and for tests.

        For codes of the data (`LagrangeCode`) the columns are coded blocks instead of partitions.
        """
        return self.scheme.matrix()

    def encode_data(self, X: Any, y: Any) -> list[tuple[Any, Any]]:
        """Return what the workers compute on: samples and labels of each partition.

        For `LagrangeCode`, those of each coded block.

        Parameters
        ----------
        X : (N, features) array
        y : (N,) or (N, outputs) array

        Returns
        -------
        list of pairs (X_j, y_j)
            Worker i computes on the pairs with numbers ``partitions(i)``.
        """
        return self.scheme.data.encode(X, y)

    # ---------------------------------------------------------------------------- encoding

    def message_size(
        self, p: int, dtype: DTypeLike = np.float64, message_dtype: DTypeLike | None = None
    ) -> int:
        """Return the number of elements in a message, for gradients of p elements of this dtype."""
        return self.scheme.format(p, dtype, message_dtype).message_size

    def encode(
        self,
        worker: int,
        partials: ArrayLike,
        out: Output | None = None,
        *,
        index: int = 0,
        message_dtype: DTypeLike | None = None,
    ) -> Array:
        """Return the message of a worker: a linear combination of its partial gradients.

        Parameters
        ----------
        worker : int
        partials : (w, p) array or sequence of w arrays of shape (p,)
            Partial gradients on ``partitions(worker, index)``, in that order: float16, bfloat16,
            float32, float64, complex64 or complex128. Integers must be converted to float64 before,
            which is exact up to 2^53. Separate arrays are not copied into one.
        out : (message_size(p),) array, optional
            Contiguous and writable, of ``message_dtype``.
        index : int, default 0
            Which of the worker's messages, if it sends several.
        message_dtype : numpy dtype, optional
            Dtype of real messages: float16, bfloat16 (from ml_dtypes), float32 or float64. A
            message is rounded to it once. If decoding loses digits, it helps to send messages that
            are more precise than the partial gradients. Default: the partial gradients' dtype.

        Returns
        -------
        (message_size(p),) array
            `out`, or a new array.

        Raises
        ------
        TypeError, ValueError
            If anything does not fit; nothing has been written then.
        OverflowError
            If a message of float16 has a number beyond 65504.
        """
        plan, given = planned_encoding(self.scheme, worker, index, partials, message_dtype)
        return plan.encode(given, out)  # type: ignore[no-any-return]

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
        """Return an encoder that adds one partial gradient at a time, and stores only their sum.

        `dtype` is the dtype of the partial gradients. Other parameters are as in `encode`.
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
        """`encode` for hot loops, bound to the array that partial gradients are written to.

        Parameters are as in `encode`. `partials` must be an array; its rows are read in place.

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
        """Return whether these messages suffice to decode the gradient (`Scheme.rule`)."""
        return not self.scheme.rule.missing(self.scheme.check_survivors(survivors))

    def decoding_vector(
        self,
        survivors: ArrayLike,
        method: str = "auto",
        out: Output | None = None,
        *,
        message_dtype: DTypeLike = np.float64,
    ) -> Array:
        """Return the decoding vector a_F of survivors: ``a_F @ B[survivors] = 1``.

        Parameters
        ----------
        survivors : (f,) integer array, or (N,) bool array
            Distinct messages (workers, if each sends one), in any order; or, for each of the N
            messages, whether it came. Booleans stand for the numbers in ascending order.
        method : str, default "auto"
            How to compute the vector, if the scheme has several methods (see the class).
        out : (f,) array, optional
            complex128, or float64 for real codes.
        message_dtype : numpy dtype, default float64
            Dtype of the messages. The more they are rounded, the shorter the best vector is.
            `decode` and rounds know the dtype from the messages.

        Returns
        -------
        (f,) complex128 or float64 array
            One coefficient for each survivor, in the order given.

        Raises
        ------
        NotDecodableError
            If more messages are needed; says how many.
        OverflowError
            If a coefficient is beyond float64.
        ValueError
            If a survivor is named twice or does not exist, or there are not N booleans.
        """
        unit = DOUBLE if message_dtype is np.float64 else _unit_of(message_dtype)
        found = self.scheme.decoder(unit)(survivors, method).copy()
        if out is None:
            return found
        check_output("out", out, found.dtype, found.shape)[:] = found
        return out  # type: ignore[no-any-return]

    def decoding_vectors(
        self,
        masks: ArrayLike,
        method: str = "auto",
        *,
        undecodable: Literal["raise", "nan"] = "raise",
        message_dtype: DTypeLike = np.float64,
    ) -> Array:
        """Return decoding vectors of many rounds in one call, for simulations.

        Parameters
        ----------
        masks : (rounds, N) bool array
            Which of the N messages came in each round (workers, if each sends one).
        method : str, default "auto"
            As in `decoding_vector`.
        undecodable : {"raise", "nan"}
            What to do if a round's messages do not suffice or its coefficients are beyond float64:
            raise the error, or fill the round's row with NaN.
        message_dtype : numpy dtype, default float64
            As in `decoding_vector`.

        Returns
        -------
        (rounds, N) complex128 or float64 array
            The coefficient of every message, 0 if it did not come.

        Raises
        ------
        NotDecodableError, OverflowError
            As in `decoding_vector`, for the first such round; a note says which.
        TypeError, ValueError
            If the masks are not boolean, or not of this shape.
        """
        check_word("undecodable", undecodable, "raise", "nan")
        given = view_of("masks", masks)
        if given.dtype != np.bool_:
            raise TypeError(f"masks must be boolean, not {given.dtype}: give came == 1, say")
        if given.ndim != 2 or given.shape[1] != self.scheme.messages.count:
            raise ValueError(
                f"masks must be of shape (rounds, {self.scheme.messages.count}), not {given.shape}"
            )
        unit = _unit_of(message_dtype)
        one = empty_vector(self.scheme, 1)
        vectors = np.zeros(given.shape + one.shape[1:], one.dtype)
        good = fill_vectors(self.scheme, given, method, vectors, unit)
        for r in np.flatnonzero(~good).tolist():
            if undecodable == "nan":
                vectors[r] = np.nan
                continue
            try:
                self.scheme.decoder(unit)(np.flatnonzero(given[r]), method)
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
    ) -> tuple[Array, float]:
        """Return the vector nearest to a decoding vector, for when too few messages came.

        Parameters
        ----------
        survivors, message_dtype
            As in `decoding_vector`.
        partial : "best" or "unbiased"
            "best": the shortest a_F that minimises ``||a_F B_F - 1||``. "unbiased": the same,
            divided by the mean of a_F B_F, so that this mean is 1.

        Returns
        -------
        (f,) complex128 or float64 array
            The exact decoding vector, if there is one.
        float
            The residual, as in `Approximation`, computed from the rows of B.

        Raises
        ------
        NotDecodableError
            If `partial` is "unbiased" and the messages hold nothing of the gradient.
        """
        unit = _unit_of(message_dtype)
        checked = self.scheme.check_survivors(survivors)
        return nearest_vector(self.scheme, checked, unit, partial)[:2]

    def decoder(self, message_dtype: DTypeLike = np.float64) -> Decoder:
        """Return `decoding_vector` for hot loops, with buffers and pointers made once.

        `message_dtype` is as in `decoding_vector`.
        """
        return Decoder(self.scheme, _unit_of(message_dtype))

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
    ) -> Array: ...

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
    ) -> Array | Approximation:
        """Decode the gradient from any messages that determine it.

        Parameters
        ----------
        survivors : (f,) integer array, or (N,) bool array
            The messages that came (workers, if each sends one), as in `decoding_vector`.
        messages : (f, message_size) array or sequence of f arrays
            In the order of `survivors`. Separate arrays are read in place.
        out : (p,) array, optional
            Contiguous and writable, with the gradient's dtype: float32 for float16 and bfloat16
            messages. It may share memory with a message, which is then overwritten at the end.
        p : int, optional
            The gradient dimension, if there is no `out`. Packed messages have the same length for p
            and p - 1 elements; without `p` the whole length is returned.
        method : str, default "auto"
            As in `decoding_vector`.
        partial : "best" or "unbiased", optional
            Return an approximation and its residual, instead of raising NotDecodableError if the
            messages do not suffice. "best": by least squares, too short on average. "unbiased":
            scaled so that it is not; see `best_vector`.
        check_finite : bool, default True
            Look for NaN and Inf in the messages that are combined: those with a coefficient other
            than 0. This takes no extra time.
        tracker : StabilityTracker, optional
            Records how precise the gradient is, as `trust` predicts it.

        Returns
        -------
        (p,) array
            `out`, or a new array; with `partial` an `Approximation` that holds it.

        Raises
        ------
        NotDecodableError
            If more messages are needed; says how many.
        NonFiniteMessageError
            If a message holds NaN or Inf; says whose. The contents of `out` are then undefined,
            unless it shares memory with a message, which is unchanged.
        UnstableRoundError
            If the tracker finds the gradient too imprecise and was told to raise.
        TypeError, ValueError
            If anything else does not fit; nothing has been written then.
        """
        if partial is not None:
            check_partial(partial, None)
            if not len(as_rows("the messages", messages)):
                raise ValueError("there is no approximation without any message")
        plan, given = planned(self.scheme, survivors, messages, out, p, check_finite)
        if partial is None and tracker is None:
            return plan.decode(survivors, given, out, method)  # type: ignore[no-any-return]
        came = check_workers("survivors", survivors, self.scheme.messages.count)
        return plan.assess(came, given, out, method, partial, tracker)  # type: ignore[no-any-return]

    def combine(
        self,
        vector: Array,
        survivors: ArrayLike,
        messages: ArrayLike,
        out: Output | None = None,
        *,
        p: int | None = None,
        check_finite: bool = True,
    ) -> Array:
        """Return the linear combination of messages by any vector.

        Parameters
        ----------
        vector : (f,) array
            complex128, or float64 for real codes.
        survivors, messages, out, p, check_finite
            As in `decode`.

        Raises
        ------
        NonFiniteMessageError, TypeError, ValueError
            As in `decode`.
        """
        checked = self.scheme.check_survivors(survivors)
        plan, given = planned(self.scheme, checked, messages, out, p, check_finite)
        coef = plan.checked_vector(vector, checked.size)
        found: Array = plan.combine(coef, checked, given, out)
        return found

    def bind(
        self,
        messages: ArrayLike,
        out: Output | None = None,
        *,
        p: int | None = None,
        check_finite: bool = True,
    ) -> BoundDecoder:
        """`decode` for hot loops, bound to the array that messages arrive in.

        Parameters
        ----------
        messages : (message_count, message_size) array
            Not a list. Row m holds message m when m is a survivor. Rows must be contiguous; they
            are read in place.
        out, p, check_finite
            As in `decode`; each call writes the gradient to `out`.

        Returns
        -------
        BoundDecoder
            Call it with survivors: ``bound(survivors)`` returns the gradient, in `out`.

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
        limit: float | None = None,
        partial_dtype: DTypeLike | None = None,
    ) -> Round:
        """Make a round, one iteration at the master: messages in, gradient out; reusable.

        Parameters
        ----------
        p, dtype, message_dtype, tracker, partial_dtype
            As in `Round`.
        verify : bool or int, default False
            Look for corrupt messages of at most so many workers, up to 16; True means 1. As in
            `fastgc.codes.VerifiedRound`.
        limit : float, optional
            With `verify`: the largest `Round.resolution` of a verified gradient.
        """
        named: Any = {"limit": limit, "partial_dtype": partial_dtype}
        found = round_of(self, p, dtype, message_dtype, tracker, verify=verify, **named)
        warn_of_precision(self.scheme, found.form)
        return found

    # ----------------------------------------------------------------------- what to expect

    def trust(
        self,
        survivors: ArrayLike,
        dtype: DTypeLike = np.float64,
        message_dtype: DTypeLike | None = None,
    ) -> Trust:
        """Predict how far to trust a gradient decoded from these survivors, without messages.

        Partial gradients of `dtype` are assumed to have equal norms and random directions, and
        messages of `message_dtype` to be made by `encode`. The error is relative to the gradient's
        expected norm. `Round.trust` uses the messages that came, and the decoded gradient's norm.
        """
        checked = self.scheme.check_survivors(survivors)
        return expected_trust(self.scheme, checked, dtype, message_dtype)

    def residual(self, survivors: ArrayLike, vector: Array | None = None) -> float:
        """Compute how far ``a_F B_F`` is from 1: what decoding leaves out, plus rounding.

        Parameters
        ----------
        survivors : (f,) integer array, or (N,) bool array
            As in `decoding_vector`.
        vector : (f,) array, optional
            Default: the decoding vector, or the best vector if the messages do not suffice.

        Returns
        -------
        float
            ``||a_F B_F - 1|| / sqrt(k)``. If partial gradients have equal norms and random
            directions, this is the expected error relative to the gradient's expected norm.
        """
        return self.scheme.residual(survivors, vector)

    def residuals(
        self, workers: int | None = None, *, sets: int = 2000, seed: int = 0
    ) -> Residuals:
        """Find the mean and worst residual over sets of workers that send all their messages.

        Parameters
        ----------
        workers : int, optional
            How many workers respond. Default: `Scheme.awaited`, or all if that is unknown.
        sets : int, default 2000
            Examine all sets of workers if there are no more than this, otherwise so many random
            ones.
        seed : int
            Seed of the random sets.

        Raises
        ------
        TypeError, ValueError
            If `workers` is not in 1 .. n.
        """
        if workers is None:
            workers = self.n if self.scheme.awaited is None else self.scheme.awaited
        f = check_between("workers", workers, 1, self.n, "n")
        sets, seed = at_least("sets", sets, 1), at_least("seed", seed, 0)
        return residuals(self.scheme, f, sets, seed)

    def recovery(self, trials: int = 1000, seed: int = 0) -> Recovery:
        """Simulate what a round needs on average when messages arrive in random order.

        Each worker's own messages come in order. All such orders are equally likely.

        Parameters
        ----------
        trials : int
            Rounds to average over.
        seed : int
        """
        trials, seed = at_least("trials", trials, 1), at_least("seed", seed, 0)
        workers = messages = 0
        for heard in random_arrivals(self.scheme, trials, seed):
            messages += len(heard)
            workers += self.scheme.messages.senders(np.array(heard)).size
        load = messages * self.scheme.message_weight / trials
        return Recovery(workers / trials, messages / trials, load)

    # ------------------------------------------------------------------------------ to look at

    def table(self, workers: Iterable[int] | None = None, digits: int = 3) -> str:
        """Return the encoding matrix B as text to print: what each worker computes and sends.

        Numbers are rounded, and a real or imaginary part that is negligible beside the other is
        left out. `matrix` has the exact numbers that the kernels use.

        Parameters
        ----------
        workers : iterable of int, optional
            Default: the first 20.
        digits : int
            Significant digits of the coefficients.

        Returns
        -------
        str
            A line for each message. If there are at most 16 partitions, each has a column.

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


def check_code(code: object, name: str = "code") -> None:
    """Raise TypeError unless this is a code."""
    if not isinstance(code, Code):
        example = "such as fastgc.BinaryCode(8, stragglers=2)"
        raise TypeError(f"{name} must be a code of fastgc, {example}, not {code!r}")


def _unit_of(message_dtype: DTypeLike) -> float:
    """Unit roundoff of messages of this dtype, or TypeError."""
    return unit_roundoff(check_dtype(message_dtype, halves=True))


class _RowScheme(Scheme):
    """The scheme of a code whose class defines only `row` and some numbers."""

    def __init__(self, code: Code) -> None:
        kind = type(code)
        if not hasattr(kind, "row"):
            raise TypeError(f"{kind.__name__} has neither a row nor a scheme")
        if strange := sorted(_HOOKS & vars(code).keys()):
            raise TypeError(
                f"{kind.__name__} sets {', '.join(strange)}: to say more than rows, write a "
                "subclass of fastgc.codes.Scheme, and make the code by Code(scheme)"
            )
        made_as(self, code._made_by, code._made_with)
        for name in ("n", "k", "load", "stragglers", "wait"):
            # Copy what the code's class or constructor sets, not what it inherits from `Code`.
            if name in vars(code) or getattr(kind, name, None) is not getattr(Code, name, None):
                setattr(self, name, getattr(code, name))
        self._row = code.row  # type: ignore[attr-defined]

    def row(self, worker: int) -> tuple[ArrayLike, ArrayLike]:
        return self._row(worker)  # type: ignore[no-any-return]


# What a scheme may say beside its rows, and a code leaves to its scheme: hooks, and objects.
_HOOKS = frozenset(
    (
        *("is_complex", "packed", "exact", "entries", "rule", "bind_vector", "methods"),
        *("equations", "parity", "rings"),
    )
)
# Its objects. A code of one's own may keep something else by these names.
_OBJECTS = frozenset(("messages", "holders", "data", "gate", "precision"))
