"""What the master does with messages: decoding vectors, and the combinations they stand for."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import kernels
from .._arrays import (
    Output,
    check_dtype,
    check_vector,
    check_workers,
    is_half,
    is_integer,
    is_pairs,
    kind_of,
    lies_elsewhere,
    view_of,
)
from ..errors import InstabilityWarning, NonFiniteMessageError
from .format import Format, real_of, rescale, scaled_vector
from .scheme import Scheme
from .tensors import to_gradient
from .trust import DOUBLE, Trust

__all__ = [
    "BoundDecoder",
    "Decoder",
    "combine",
    "expected_trust",
    "message_format",
    "require_finite",
    "trust_by_rows",
    "trust_of",
    "trust_of_sums",
    "warn_of_doubt",
]

_INT64 = np.dtype(np.int64)

# Combines the rows of the first f survivors of a buffer: ``combine(f) -> status``.
CombineRows = Callable[[int], int]


class Decoder:
    """Decoding vectors with everything prepared: pointers are taken once.

    Not for use by two threads at once.

    Attributes
    ----------
    survivors : (N,) int64 array
    vector : (N,) complex128 or float64 array, or (N, 2) of pairs
        Buffers that each call overwrites, N the messages of a round.
    fill_vector : callable
        ``fill_vector(f, method)``: as `fill`, where there are as many; returns nothing.
    """

    __slots__ = ("_buffer", "backend", "code", "fill_vector", "survivors", "vector")

    def __init__(self, code: Scheme, unit: float = DOUBLE) -> None:
        self.code = code
        self.survivors = np.empty(code.message_count, dtype=np.int64)
        self._buffer: Any = self.survivors.data  # a memoryview: assigned to in half the time
        self.vector = code._empty_vector(code.message_count, unit)
        self.fill_vector = code.bind_vector(self.survivors, self.vector, unit)
        self.backend = kernels.choice.active  # which now is loaded

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.code!r}>"

    def __call__(self, survivors: ArrayLike, method: str = "auto") -> NDArray[Any]:
        """Decoding vector for `survivors`: a view of `vector`, valid until the next call.

        Survivors and errors as in `Code.decoding_vector`.
        """
        return self.vector[: self._compute(survivors, method)]

    def _compute(self, survivors: ArrayLike, method: str) -> int:
        """Write `vector`; how many survivors there are."""
        checked: NDArray[np.int64]
        if type(survivors) is np.ndarray and survivors.dtype is _INT64 and survivors.ndim == 1:
            checked = survivors
        else:
            checked = check_workers("survivors", survivors, self.survivors.size)
        f = len(checked)
        if f > self.survivors.size:
            self.code.check_survivors(checked)
        self._buffer[:f] = checked
        self.fill_vector(f, method)
        return f

    def fill(self, f: int, method: str = "auto") -> NDArray[Any]:
        """Decoding vector for ``self.survivors[:f]``; ValueError if there are fewer."""
        if not 0 <= f <= self.survivors.size:
            raise ValueError(f"f must be in 0 .. {self.survivors.size}, not {f}")
        self.fill_vector(f, method)
        return self.vector[:f]


class BoundDecoder:
    """Gradients decoded from the rows of one array, with everything prepared: see `Code.bind`.

    Not for use by two threads at once.

    Attributes
    ----------
    messages : (message_count, message_size) array
        Message m is row m.
    gradient : (p,) array
        The `out` that was given; each call overwrites it.
    form : Format
        Dtypes and sizes of gradient and messages.
    """

    __slots__ = (
        "_coefficients",
        "_combine",
        "_decoder",
        "_gated",
        "_once",
        "_rows",
        "_scaled",
        "_sums",
        "_target",
        "_whole",
        "code",
        "form",
        "gradient",
        "messages",
    )

    def __init__(
        self,
        code: Scheme,
        messages: ArrayLike,
        out: Output | None,
        p: int | None,
        check_finite: bool,
    ) -> None:
        rows = view_of("messages", messages)
        if rows.ndim != 2 or len(rows) != code.message_count:
            raise ValueError(
                f"messages must be an array with a row for each of {code.message_count} messages, "
                f"not of shape {rows.shape}"
            )
        form = message_format(code, rows[0], out, p)
        if rows.strides[1] != rows.itemsize or not rows.flags.aligned:
            raise ValueError(
                f"the rows of messages must be contiguous and aligned: strides are {rows.strides} "
                "bytes"
            )
        p, size, mode = form.gradient_size, form.length, form.decode_mode
        target = np.empty(p, form.gradient_dtype)
        if out is not None:
            target = check_vector("out", out, form.gradient_dtype, p, output=True)
        if np.shares_memory(target, rows):
            raise ValueError("out shares memory with messages")
        self.code, self.form = code, form
        self._gated, self._scaled = code.gated, form.scaled
        self._once: CombineRows | None = None
        self.messages, self._whole = messages, rows
        self.gradient: Any = target if out is None else out
        self._target = target
        self._sums = target
        if form.pieces > 1 and form.pieces * size > p:  # the last piece is longer than what is left
            self._sums = np.empty(form.pieces * size, form.gradient_dtype)
        self._decoder = decoder = Decoder(code, form.unit)
        reals = form.reals(rows[:, :-1] if form.scaled else rows, mode)
        self._rows = kernels.Rows.of(reals, reals.shape[1], reals.dtype)
        one = form.pieces == 1
        # what messages are multiplied by: of those that are scaled, not the vector itself
        self._coefficients = np.empty_like(decoder.vector) if form.scaled else decoder.vector
        vectors = [self._coefficients] if one else list(self._coefficients.T)
        parts = [self._sums] if one else list(self._sums.reshape(form.pieces, size))
        if form.paired:
            self._combine: tuple[CombineRows, ...] = (partial(self._combine_pairs, check_finite),)
            return
        self._combine = tuple(
            kernels.bind_combine(
                mode,
                self._rows,
                decoder.survivors,
                coef,
                form.reals(part, mode),
                check=check_finite,
            )
            for coef, part in zip(vectors, parts, strict=True)
        )
        if one and not (self._gated or self._scaled):
            (self._once,) = self._combine

    def __repr__(self) -> str:
        size = self.form.gradient_size
        return f"<{type(self).__name__} of {self.code!r}: {size} elements a gradient>"

    def __call__(self, survivors: ArrayLike, method: str = "auto") -> NDArray[Any]:
        """The gradient from the rows of `survivors`.

        Parameters
        ----------
        survivors : (f,) integer array, or (message_count,) bool array
            As in `Code.decoding_vector`.
        method : str, default "auto"
            As in `Code.decoding_vector`.

        Returns
        -------
        (p,) array
            `gradient`.

        Raises
        ------
        NotDecodableError
            If more messages are needed; says how many.
        NonFiniteMessageError
            If a message holds NaN or Inf, unless `check_finite` is off; says whose. What
            `gradient` holds then is undefined.
        TypeError, ValueError
            If a survivor is named twice or does not exist. In every other case nothing has been
            written.
        """
        f = self._decoder._compute(survivors, method)
        if self._once is None:
            self._step_by_step(f)
        elif status := self._once(f):
            self._raise(status, self._decoder.vector[:f])
        return self.gradient  # type: ignore[no-any-return]

    def _step_by_step(self, f: int) -> None:
        """The rest of a call where there is more to do than one combination."""
        vector = self._decoder.vector[:f]
        if self._gated:
            warn_of_doubt(self.code, self._decoder.survivors[:f], vector, self.form)
        unit = self._scale(vector) if self._scaled else 1.0
        for combine_piece in self._combine:
            if status := combine_piece(f):
                self._raise(status, vector)
        if unit != 1.0:
            rescale(self._sums, unit)
        if self._sums is not self._target:
            self._target[:] = self._sums[: self._target.size]

    def _combine_pairs(self, check: bool, f: int) -> int:
        decoder = self._decoder
        rows = self._rows.select(decoder.survivors[:f])
        good = self.form.combine(rows, decoder.vector[:f], self._sums, check)
        return kernels.Status.OK if good else kernels.Status.NOT_FINITE

    def _scale(self, vector: NDArray[Any]) -> float:
        """Multiply the vector by the messages' scales, over a unit, which is returned."""
        f, code = len(vector), self.code
        numbers = self._decoder.survivors[:f]
        scales = self.form.scales(
            self._whole[numbers, -1], vector, lambda at: code.sender(int(numbers[at]))[0]
        )
        self._coefficients[:f], unit = scaled_vector(vector, scales)
        return unit

    def _raise(self, status: int, vector: NDArray[Any]) -> None:
        if status == kernels.Status.NO_MEMORY:
            raise MemoryError("no memory for the addresses of what is combined")
        used = vector.reshape(len(vector), -1).any(axis=1)
        for number in self._decoder.survivors[: len(vector)][used].tolist():
            row = self.form.elements(self._rows.arrays[number])
            require_finite(self.code.sender(number)[0], row)


def require_finite(worker: int, message: NDArray[Any]) -> None:
    """Raise NonFiniteMessageError if the message holds NaN or Inf."""
    if message.dtype.names is not None:  # of float64x2
        message = message["high"] + message["low"]
    bad = np.flatnonzero(~np.isfinite(message))
    if bad.size:
        raise NonFiniteMessageError(
            f"the message of worker {worker} is not finite: element {bad[0]} is {message[bad[0]]}",
            worker,
        )


def message_format(
    code: Scheme, message: NDArray[Any], out: Output | None, p: int | None
) -> Format:
    """Format of messages like this one, for a gradient of p elements or of out's size."""
    if message.ndim != 1:
        raise ValueError(f"a message must be a vector, not of shape {message.shape}")
    dtype, sent = message.dtype, None
    if is_pairs(dtype):
        dtype, sent = np.dtype(np.float64), dtype
    if code.layout in ("complex", "complex data") and not (is_half(dtype) or is_integer(dtype)):
        dtype = real_of(check_dtype(dtype), "messages")
    if p is None:
        if out is None:
            p = max(1, code.pieces * (message.size - (dtype.char == "e")))  # see `Format.scaled`
        else:
            p = (kind_of if lies_elsewhere(out) else view_of)("out", out).size
    form = code.format(p, dtype, sent)
    if form.message_size != message.size:
        raise ValueError(
            f"messages for a gradient of {p} elements must have {form.message_size} elements, "
            f"not {message.size}"
        )
    return form


def combine(
    code: Scheme,
    vector: NDArray[Any],
    survivors: NDArray[np.int64],
    messages: NDArray[Any] | Sequence[Any],
    out: Output | None,
    form: Format,
    check_finite: bool,
) -> NDArray[Any]:
    """The combination of messages by a decoding vector, which each of `Code.decode` ends in."""
    if type(messages) is not np.ndarray and any(map(lies_elsewhere, messages)):
        senders = list(_senders(code, survivors))
        found: NDArray[Any] = to_gradient(form, senders, messages, vector, out, check_finite)
        return found
    target: Any = None
    if out is not None:
        target = check_vector("out", out, form.gradient_dtype, form.gradient_size, output=True)
    rows, scales = form.messages(_senders(code, survivors), messages, vector)
    private = target is None or rows.overlap(target)  # where messages are still to be read
    gradient = np.empty(form.gradient_size, dtype=form.gradient_dtype) if private else target
    if not form.combine(rows, vector, gradient, check_finite, scales):
        for worker, row in zip(_senders(code, survivors), rows.arrays, strict=True):
            require_finite(worker, form.elements(row))
    if target is not None and private:
        target[:] = gradient
    return gradient if out is None else out


def _senders(code: Scheme, survivors: NDArray[np.int64]) -> Iterator[int]:
    """Workers of these messages, which need not exist."""
    one = code.messages_per_worker == 1
    for number in survivors.tolist():
        yield number if one else code.sender(number)[0]


def expected_trust(
    code: Scheme,
    survivors: NDArray[np.int64],
    dtype: DTypeLike,
    message_dtype: DTypeLike | None,
) -> Trust:
    """How far to trust what checked survivors decode to, before any message is there."""
    form = code.format(1, dtype, message_dtype)
    return trust_by_rows(code, survivors, code._vector_by(survivors, unit=form.unit), form)


def trust_by_rows(
    code: Scheme, survivors: NDArray[np.int64], vector: NDArray[Any], form: Format
) -> Trust:
    """The same, by this vector."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = (np.abs(vector) ** 2).reshape(survivors.size, -1).sum(axis=1)
        weights = squares * code.row_norms[survivors]
    weights[~vector.reshape(survivors.size, -1).any(axis=1)] = 0  # messages that are not read
    return trust_of(code, float(weights.sum()), vector, survivors, code.row_norms[survivors], form)


def warn_of_doubt(
    code: Scheme, survivors: NDArray[np.int64], vector: NDArray[Any], form: Format
) -> None:
    """Warn where a gradient is imprecise that these messages are decoded to all the same."""
    if code.gated and (error := code.doubt(survivors, vector, form)):
        warnings.warn(
            f"the gradient decoded from these {survivors.size} messages has a relative error of "
            f"about {error:.0e}: {type(code).__name__} decodes more of them better",
            InstabilityWarning,
            stacklevel=4,
        )


def trust_of(
    code: Scheme,
    growth_squared: float,
    vector: NDArray[Any],
    survivors: NDArray[np.int64],
    squares: NDArray[np.float64],
    form: Format,
    inside: float = math.nan,
) -> Trust:
    """How far to trust what this vector decodes to, if it amplifies errors by so much.

    `squares`: squared norms of the messages over that of the gradient. `inside`: by how much it
    amplifies errors of messages that were built up by encoders, NaN if that is not known.
    """
    wrong = code.left_out(survivors, vector)
    if growth_squared < math.inf:
        errors = code.vector_errors(survivors, vector)
        if errors is not None:
            wrong = math.hypot(wrong, math.sqrt(float(errors @ squares)))
    return Trust.of(
        growth_squared,
        inside,
        int(np.count_nonzero(vector[:, 0] if form.paired else vector)) // code.pieces,
        code.load * code.pieces / code.messages_per_worker,
        code.message_roundings,
        code.data_roundings,
        wrong,
        form.gradient_dtype,
        form.message_dtype,
    )


def trust_of_sums(
    code: Scheme,
    gradient: NDArray[Any],
    size: float,
    vector: NDArray[Any],
    survivors: NDArray[np.int64],
    norms: NDArray[np.float64],
    energies: NDArray[np.float64],
    form: Format,
) -> Trust:
    """How far to trust a gradient, by its squared norm and those and energies of its messages."""
    squares = np.abs(vector) ** 2
    if squares.ndim > 1:  # of all pieces
        squares = squares.sum(axis=1)
    spread = float(squares @ norms)
    used = squares > 0
    inside = float(squares[used] @ energies[used])  # NaN: not known
    if size == 0 or not np.isfinite(size + spread):
        # All is zero, or cancels, or squares are beyond a double: nothing can be said.
        zero = spread == 0 and not inside > 0 and not gradient.any()
        unknown = 0.0 if zero else np.inf
        return Trust(unknown, unknown)
    return trust_of(code, spread / size, vector, survivors, norms / size, form, inside / size)
