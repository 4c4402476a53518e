"""The verbs of every scheme: encode, decode, and what is prepared for hot loops."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._arrays import (
    Output,
    check_output,
    check_workers,
    view_of,
)
from ..errors import NotDecodableError
from .approximation import Approximate, Partial
from .format import unit_of
from .plan import BoundDecoder, BoundEncoder, Decoder, Encoder, Plan, decode, encode
from .precision import Precise, Watch
from .recovery import Recoverable, Recovery
from .round import DeviceRound, Round
from .shown import ShownCode
from .trust import DOUBLE, Approximation

__all__ = ["Code", "Recovery"]


class Code(Precise, Recoverable, Approximate, ShownCode):
    """A gradient code: what its scheme says, and the verbs that are the same for all.

    To add one, subclass this and write `row`; see `fastgc.coding.scheme.Scheme` for all that a
    scheme may say of itself, and `fastgc.testing.codes.check` to hold it to that.

    Arrays, `out` among them, are NumPy's or others whose memory NumPy can view: tensors of PyTorch
    on the CPU, memoryviews, or whatever speaks DLPack. They are read and written where they are,
    and what is returned is the `out` that was given.

    Survivors are the numbers of the messages that came, or one boolean for each of all messages,
    True where it came, which stand for their numbers in ascending order.

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

    def message_size(
        self, p: int, dtype: DTypeLike = np.float64, message_dtype: DTypeLike | None = None
    ) -> int:
        """Elements of a message for gradients of p elements of this dtype.

        Messages of float16 (`message_dtype`, or the gradients' own) have one more than others, for
        the power of two that they are scaled by.
        """
        return self.format(p, dtype, message_dtype).message_size

    def message_dtype(self, dtype: DTypeLike = np.float64) -> np.dtype[Any]:
        """Dtype of a message's elements for gradients of this dtype."""
        return self.format(1, dtype).message_dtype

    def partial_dtype(self, dtype: DTypeLike = np.float64) -> np.dtype[Any]:
        """Dtype of the partial gradients that workers compute, for gradients of this dtype."""
        return self.format(1, dtype).partial_dtype

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

        Codes of integer coefficients (`integral`) also take integers, here and wherever gradients
        or messages are given. Messages and gradients are then of the same dtype and never rounded.
        Sums wrap around as NumPy's do, without a warning: the gradient is exact if it fits in the
        dtype, whatever overflowed on the way, and else modulo 2^bits.

        Parameters
        ----------
        worker : int
        partials : (w, p) array or sequence of w arrays of shape (p,)
            Partial gradients on ``partitions(worker, index)``, in that order; float32, float64, or
            complex of either precision; float16 or bfloat16; integers where the code is
            `integral`. Separate arrays are not stacked.
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
        found: NDArray[Any] = encode(self, worker, partials, out, index, message_dtype)
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
        return Encoder(self, worker, p, dtype, out, index, message_dtype)

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
        return BoundEncoder(self, worker, partials, out, index, message_dtype)

    def decodable(self, survivors: ArrayLike) -> bool:
        """Whether these messages, numbers or booleans, suffice: see `rule`."""
        return not self.rule.missing(self.check_survivors(survivors))

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
            return self.log_vector(self.check_survivors(survivors))
        survivors = check_workers("survivors", survivors, self.message_count)
        target = None
        unit = DOUBLE if message_dtype is np.float64 else unit_of(self, message_dtype)
        if out is not None:
            wanted = self._empty_vector(survivors.size, unit)
            target = check_output("out", out, wanted.dtype, wanted.shape)
        found = self._vector_by(survivors, method, unit)
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
        if given.ndim != 2 or given.shape[1] != self.message_count:
            raise ValueError(
                f"masks must be of shape (rounds, {self.message_count}), not {given.shape}"
            )
        unit = unit_of(self, message_dtype)
        one = self._empty_vector(1, unit)
        vectors = np.zeros(given.shape + one.shape[1:], one.dtype)
        good = self.fill_vectors(given, method, vectors, unit)
        for r in np.flatnonzero(~good).tolist():
            if undecodable == "nan":
                vectors[r] = np.nan
                continue
            try:
                self._vector_by(np.flatnonzero(given[r]), method, unit)
            except (NotDecodableError, OverflowError) as error:
                error.add_note(f"round {r} of {len(given)}")
                raise
        return vectors

    def decoder(self, message_dtype: DTypeLike = np.float64) -> Decoder:
        """A plan for decoding vectors in hot loops: buffers and pointers are made once.

        `message_dtype` as in `decoding_vector`.
        """
        return Decoder(self, unit_of(self, message_dtype))

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
            self, survivors, messages, out, p, method, partial, check_finite, tracker
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
        checked = self.check_survivors(survivors)
        plan, given = Plan.of_thread(self, checked, messages, out, p, check_finite)
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
        bound = BoundDecoder(self, messages, out, p, check_finite)
        self.warn_of_precision(bound.form)
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
        """
        named: Any = {"tracker": tracker, "verify": verify, "check_finite": check_finite}
        if device is not None:
            found: Round = DeviceRound(self, p, dtype, message_dtype, device=device, **named)
        else:
            found = Round(self, p, dtype, message_dtype, **named)
        self.warn_of_precision(found.form)
        return found
