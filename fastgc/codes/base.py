"""What every scheme shares: the verbs, the checks and the plan objects.

A scheme says which partitions a worker holds (`partitions`), with which coefficients
(`coefficients`), when the gradient can be decoded (`_blocks`) and with which vector
(`_bind_vector`). Everything else is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import kernels
from .._arrays import check_dtype, check_index, check_vector, check_workers
from ..errors import NonFiniteMessageError, NotDecodableError
from .format import Format

__all__ = ["Blocks", "Code", "Decoder", "Encoder", "Round", "Trust"]

VectorFunction = Callable[[int, str], None]


class Trust(NamedTuple):
    """How far to trust a decoded gradient.

    Attributes
    ----------
    relative_error : float
        Estimated error of the gradient over its norm, from rounding alone.
    amplification : float
        By how much decoding amplifies the relative rounding errors of the messages; 1 or less is
        as good as adding up the partial gradients themselves.
    """

    relative_error: float
    amplification: float


class Blocks(NamedTuple):
    """When messages suffice: in every block b, the weights heard must reach ``need[b]``."""

    block: NDArray[np.int64]  # of each worker
    weight: NDArray[np.int64]  # of each worker
    need: NDArray[np.int64]  # of each block

    def missing(self, survivors: NDArray[np.int64]) -> int:
        """Least number of further messages after which decoding can succeed; 0: it does now."""
        heard = np.zeros_like(self.need)
        np.add.at(heard, self.block[survivors], self.weight[survivors])
        lacking = self.need - heard
        absent = np.ones(self.block.size, dtype=bool)
        absent[survivors] = False
        count = 0
        for b in np.flatnonzero(lacking > 0):
            heaviest = np.sort(self.weight[absent & (self.block == b)])[::-1]
            count += int(np.searchsorted(np.cumsum(heaviest), lacking[b]) + 1)
        return count


class Code(ABC):
    """A gradient code: n workers, k partitions, and the verbs of every scheme.

    Attributes
    ----------
    n, k : int
        Workers and partitions.
    load : int
        Partitions per worker, w (the largest, where workers differ).
    stragglers : int
        Stragglers tolerated in the worst case, s.
    threshold : int
        Messages that always suffice, f = n - s.
    packed : bool
        Whether complex codes send real gradients as pairs taken for complex numbers.
    """

    n: int
    k: int
    load: int
    stragglers: int
    packed: bool = True
    _complex: bool  # whether coefficients are complex

    @property
    def threshold(self) -> int:
        """Messages that always suffice, f = n - s."""
        return self.n - self.stragglers

    # ------------------------------------------------------------------ what a scheme defines

    @abstractmethod
    def partitions(self, worker: int) -> NDArray[np.int64]:
        """Partitions of a worker, in the order of computation.

        Returns
        -------
        (w,) int64 array
        """

    @abstractmethod
    def coefficients(self, worker: int) -> NDArray[Any]:
        """Row `worker` of B on ``partitions(worker)``.

        Returns
        -------
        (w,) float64 or complex128 array
        """

    @property
    @abstractmethod
    def _blocks(self) -> Blocks: ...

    @abstractmethod
    def _bind_vector(self, survivors: NDArray[np.int64], vector: NDArray[Any]) -> VectorFunction:
        """Return ``fill(f, method)``: check ``survivors[:f]`` and write ``vector[:f]``."""

    # ------------------------------------------------------------------------------ encoding

    def matrix(self) -> NDArray[Any]:
        """B as a dense (n, k) array: for small n, and for tests."""
        dense = np.zeros((self.n, self.k), dtype=np.complex128 if self._complex else np.float64)
        for worker in range(self.n):
            dense[worker, self.partitions(worker)] = self.coefficients(worker)
        return dense

    def message_size(self, p: int, dtype: DTypeLike = np.float64) -> int:
        """Elements of a message for gradients of p elements."""
        return self._format(p, dtype).message_size

    def message_dtype(self, dtype: DTypeLike = np.float64) -> np.dtype[Any]:
        """Dtype of a message's elements for gradients of this dtype."""
        return self._format(1, dtype).message_dtype

    def _format(self, p: int, dtype: DTypeLike) -> Format:
        return Format.of(self._complex, self.packed, p, dtype)

    def encode(
        self,
        worker: int,
        partials: NDArray[Any] | Sequence[NDArray[Any]],
        out: NDArray[Any] | None = None,
    ) -> NDArray[Any]:
        """Message of a worker: its combination of its partial gradients.

        Parameters
        ----------
        worker : int
        partials : (w, p) array or sequence of w arrays of shape (p,)
            Partial gradients on ``partitions(worker)``, in that order; float32, float64, or
            complex of either precision. Separate arrays are not stacked.
        out : (message_size(p),) array, optional
            Contiguous and writable, of ``message_dtype``.

        Returns
        -------
        (message_size(p),) array
            `out`, or a new array.

        Raises
        ------
        TypeError, ValueError
            If anything does not fit; nothing has been written then.
        """
        coef = self.coefficients(worker)
        if len(partials) != coef.size:
            raise ValueError(
                f"worker {worker} computes {coef.size} partial gradients, but {len(partials)} "
                "were given"
            )
        first = np.asarray(partials[0])
        if first.ndim != 1:
            raise ValueError(f"a partial gradient must be a vector, not of shape {first.shape}")
        form = self._format(first.size, first.dtype)
        rows = _rows(
            "partial gradient",
            range(coef.size),
            partials,
            form.gradient_dtype,
            form.gradient_size,
            form,
            form.encode_mode,
        )
        if out is None:
            out = np.empty(form.message_size, dtype=form.message_dtype)
        else:
            check_vector("out", out, form.message_dtype, form.message_size, output=True)
        kernels.combine(form.encode_mode, rows, coef, form.reals(out, form.encode_mode))
        return out

    def encoder(
        self,
        worker: int,
        p: int,
        dtype: DTypeLike = np.float64,
        out: NDArray[Any] | None = None,
    ) -> Encoder:
        """Streaming encoder: one accumulator instead of w partial gradients."""
        return Encoder(self, worker, p, dtype, out)

    # ------------------------------------------------------------------------------ decoding

    def decodable(self, survivors: ArrayLike) -> bool:
        """Whether the messages of these workers determine the gradient."""
        return not self._blocks.missing(self._check_survivors(survivors))

    def decoding_vector(
        self, survivors: ArrayLike, method: str = "auto", out: NDArray[Any] | None = None
    ) -> NDArray[Any]:
        """Decoding vector a_F: ``a_F @ B[survivors] = 1``.

        Parameters
        ----------
        survivors : (f,) integer array
            Distinct workers, in any order.
        method : str, default "auto"
            How to compute it, where the scheme knows several ways (see the class).
        out : (f,) array, optional
            complex128, or float64 for real codes.

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
            If a survivor is named twice or does not exist.
        """
        survivors = check_workers("survivors", survivors)
        # A plan no other thread uses: preparing one takes three times as long as using it.
        try:
            decoder = self._idle.pop()
        except IndexError:
            decoder = self.decoder()
        if decoder.backend is not kernels.active:
            decoder = self.decoder()
        if out is not None:
            check_vector("out", out, decoder.vector.dtype, survivors.size, output=True)
        vector = decoder._of(survivors, method)
        if out is None:
            out = vector.copy()
        else:
            out[:] = vector
        self._idle.append(decoder)
        return out

    @cached_property
    def _idle(self) -> list[Decoder]:
        return []

    def decoder(self) -> Decoder:
        """A plan for decoding vectors in hot loops: buffers and pointers are made once."""
        return Decoder(self)

    def decode(
        self,
        survivors: ArrayLike,
        messages: NDArray[Any] | Sequence[NDArray[Any]],
        out: NDArray[Any] | None = None,
        *,
        p: int | None = None,
        method: str = "auto",
        check_finite: bool = True,
    ) -> NDArray[Any]:
        """The gradient, from the messages of any survivors that determine it.

        Parameters
        ----------
        survivors : (f,) integer array
        messages : (f, message_size) array or sequence of f arrays
            In the order of `survivors`. Separate buffers are read where they are.
        out : (p,) array, optional
            Contiguous and writable, of the gradient's dtype.
        p : int, optional
            The gradient dimension, if `out` does not say: packed messages of p or p - 1 elements
            have the same length, and without `p` the whole length is returned.
        method : str, default "auto"
            As in `decoding_vector`.
        check_finite : bool, default True
            Look for NaN and Inf. With `out`, this costs a temporary of p elements, so that nothing
            is written before the messages are known to be good.

        Returns
        -------
        (p,) array
            `out`, or a new array.

        Raises
        ------
        NotDecodableError
            If more messages are needed; says how many.
        NonFiniteMessageError
            If a message holds NaN or Inf; says whose.
        TypeError, ValueError
            If anything else does not fit; nothing has been written then.
        """
        survivors = check_workers("survivors", survivors)
        if len(messages) != survivors.size:
            raise ValueError(f"{survivors.size} survivors, but {len(messages)} messages")
        vector = self.decoding_vector(survivors, method)
        first = np.asarray(messages[0])
        form = self._message_format(first, out, p)
        rows = _rows(
            "message of worker",
            survivors,
            messages,
            form.message_dtype,
            form.message_size,
            form,
            form.decode_mode,
        )
        if out is not None:
            check_vector("out", out, form.gradient_dtype, form.gradient_size, output=True)
        direct = out is not None and not check_finite
        gradient = out if direct else np.empty(form.gradient_size, dtype=form.gradient_dtype)
        assert gradient is not None
        reals = form.reals(gradient, form.decode_mode)
        if not kernels.combine(form.decode_mode, rows, vector, reals, check=check_finite):
            for worker, row in zip(survivors, rows.arrays, strict=True):
                _require_finite(int(worker), row)
        if out is not None and not direct:
            out[:] = gradient
            return out
        return gradient

    def _message_format(
        self, message: NDArray[Any], out: NDArray[Any] | None, p: int | None
    ) -> Format:
        """Format of messages like this one, for a gradient of p elements or of out's size."""
        if message.ndim != 1:
            raise ValueError(f"a message must be a vector, not of shape {message.shape}")
        dtype = check_dtype(message.dtype)
        if self._complex and not self.packed:
            if dtype.kind != "c":
                raise TypeError(f"messages of packed=False must be complex, not {dtype}")
            dtype = np.empty(0, dtype).real.dtype
        if p is None:
            p = message.size if out is None else np.size(out)
        form = self._format(p, dtype)
        if form.message_size != message.size:
            raise ValueError(
                f"messages for a gradient of {p} elements must have {form.message_size} elements, "
                f"not {message.size}"
            )
        return form

    def round(self, p: int, dtype: DTypeLike = np.float64) -> Round:
        """One iteration at the master: messages in, gradient out; reusable."""
        return Round(self, p, dtype)

    def trust(self, survivors: ArrayLike, dtype: DTypeLike = np.float64) -> Trust:
        """How far to trust a gradient decoded from these survivors, before any message is there.

        For partial gradients of equal norm in random directions. `Round.trust` says it for the
        messages that came.
        """
        survivors = self._check_survivors(survivors)
        vector = self.decoding_vector(survivors)
        weights = np.abs(vector) ** 2 * self._row_norms[survivors]
        return self._trust(float(weights.sum() / self.k), survivors.size, check_dtype(dtype))

    def _trust(self, amplification_squared: float, terms: int, dtype: np.dtype[Any]) -> Trust:
        # Rounding errors add up like a random walk. In the messages, each amplified: w products
        # and sums, and the coefficients of a and B. In the gradient: one error of the size of a
        # partial sum for each term (1/3 on average, as they grow), and that of the last rounding.
        unit = float(np.finfo(dtype).eps) / 2
        steps = amplification_squared * (self.load + 2) + terms / 3 + 1
        return Trust(unit * float(np.sqrt(steps)), float(np.sqrt(amplification_squared)))

    @cached_property
    def _row_norms(self) -> NDArray[np.float64]:
        """Squared 2-norms of the rows of B."""
        return np.array([float(np.sum(np.abs(self.coefficients(i)) ** 2)) for i in range(self.n)])

    def _check_survivors(self, survivors: ArrayLike) -> NDArray[np.int64]:
        checked = check_workers("survivors", survivors)
        outside = (checked < 0) | (checked >= self.n)
        if outside.any():
            self._raise_outside(checked, int(np.argmax(outside)))
        if np.bincount(checked, minlength=1).max() > 1:
            self._raise_duplicate(checked, _second(checked))
        return checked

    def _raise_outside(self, survivors: NDArray[np.int64], at: int) -> None:
        raise ValueError(
            f"survivors[{at}] is {survivors[at]}, but workers are numbered 0 to {self.n - 1}"
        )

    def _raise_duplicate(self, survivors: NDArray[np.int64], at: int) -> None:
        raise ValueError(f"survivors[{at}] names worker {survivors[at]} a second time")

    def _raise_too_few(self, survivors: NDArray[np.int64]) -> None:
        missing = self._blocks.missing(survivors)
        more = "1 more message is" if missing == 1 else f"{missing} more messages are"
        raise NotDecodableError(
            f"{survivors.size} messages do not determine the gradient: at least {more} needed "
            f"(any {self.threshold} of {self.n} workers suffice)",
            missing,
        )

    def _parameters(self) -> dict[str, Any]:
        """Arguments that make this code again."""
        raise NotImplementedError

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self._parameters().items())
        return f"{type(self).__name__}({listed})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (type(self), self._parameters())


def _make(kind: Callable[..., Code], parameters: dict[str, Any]) -> Code:
    return kind(**parameters)


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
    checked = [
        check_vector(what, array, dtype, size, number=number)
        for number, array in zip(numbers, arrays, strict=True)
    ]
    if dtype.kind == "c":
        checked = [form.reals(array, mode) for array in checked]
    return kernels.Rows.of(checked, checked[0].size, checked[0].dtype)


def _square_norm(vector: NDArray[Any]) -> float:
    if vector.dtype.kind == "c":
        vector = vector.view(vector.real.dtype)
    return kernels.square_sum(vector)


def _require_finite(worker: int, message: NDArray[Any]) -> None:
    bad = np.flatnonzero(~np.isfinite(message))
    if bad.size:
        raise NonFiniteMessageError(
            f"the message of worker {worker} is not finite: element {bad[0]} is {message[bad[0]]}",
            worker,
        )


class Decoder:
    """Decoding vectors with everything prepared: pointers are taken once.

    Not for use by two threads at once.

    Attributes
    ----------
    survivors : (n,) int64 array
    vector : (n,) complex128 or float64 array
        Buffers that each call overwrites.
    """

    __slots__ = ("_buffer", "_fill", "backend", "code", "survivors", "vector")

    def __init__(self, code: Code) -> None:
        self.code = code
        self.survivors = np.empty(code.n, dtype=np.int64)
        self._buffer: Any = self.survivors.data  # a memoryview: assigned to in half the time
        self.vector = np.empty(code.n, dtype=np.complex128 if code._complex else np.float64)
        self._fill = code._bind_vector(self.survivors, self.vector)
        self.backend = kernels.active  # which now is loaded

    def __call__(self, survivors: ArrayLike, method: str = "auto") -> NDArray[Any]:
        """Decoding vector for `survivors`: a view of `vector`, valid until the next call."""
        return self._of(check_workers("survivors", survivors), method)

    def _of(self, survivors: NDArray[np.int64], method: str) -> NDArray[Any]:
        f = survivors.size
        if f > self.code.n:
            self.code._check_survivors(survivors)
        self._buffer[:f] = survivors
        self._fill(f, method)
        return self.vector[:f]

    def fill(self, f: int, method: str = "auto") -> NDArray[Any]:
        """Decoding vector for ``self.survivors[:f]``."""
        self._fill(f, method)
        return self.vector[:f]


class Encoder:
    """A worker's message, built up as its partial gradients are computed.

    Holds one accumulator, the message itself (``c += B_ij * g_j``), instead of w gradients.
    """

    def __init__(
        self, code: Code, worker: int, p: int, dtype: DTypeLike, out: NDArray[Any] | None
    ) -> None:
        self._form = form = code._format(p, dtype)
        self.worker = check_index("worker", worker, code.n)
        self._partitions = code.partitions(worker)
        coefficients = code.coefficients(worker)
        self._coef = {int(j): coefficients[r : r + 1] for r, j in enumerate(self._partitions)}
        if out is None:
            out = np.empty(form.message_size, dtype=form.message_dtype)
        self._out = check_vector("out", out, form.message_dtype, form.message_size, output=True)
        self._reals = form.reals(self._out, form.encode_mode)
        real = self._reals.real.dtype
        self._row = kernels.Rows(
            1, form.gradient_size * form.gradient_dtype.itemsize // real.itemsize, real
        )
        self._added: set[int] = set()

    def add(self, partition: int, g: NDArray[Any]) -> None:
        """Add the partial gradient of one partition, a (p,) array of the encoder's dtype."""
        form = self._form
        coef = self._coef.get(partition)
        if coef is None:
            raise ValueError(
                f"partition {partition} is not among those of worker {self.worker}: "
                f"{self._partitions.tolist()}"
            )
        if partition in self._added:
            raise ValueError(f"partition {partition} was added already")
        g = check_vector("the partial gradient", g, form.gradient_dtype, form.gradient_size)
        row, mode = self._row, form.encode_mode
        row.arrays.clear()
        row.append(g if g.dtype.kind == "f" else form.reals(g, mode))
        kernels.combine(mode, row, coef, self._reals, bool(self._added))
        self._added.add(partition)

    def message(self) -> NDArray[Any]:
        """The finished message (the accumulator itself); ValueError if a partition is missing."""
        if len(self._added) < len(self._coef):
            missing = sorted(self._coef.keys() - self._added)
            raise ValueError(f"worker {self.worker}'s message still lacks partitions {missing}")
        return self._out

    def reset(self) -> None:
        """Begin the next message."""
        self._added.clear()


class Round:
    """One iteration at the master: messages in, gradient out.

    Keeps references to the messages, not copies: they must stay as they are until `gradient` has
    returned. `reset` makes it ready for the next iteration.

    Parameters
    ----------
    code : Code
    p : int
        The gradient dimension.
    dtype : numpy dtype
        The gradient's.
    """

    def __init__(self, code: Code, p: int, dtype: DTypeLike = np.float64) -> None:
        self.code = code
        self._form = form = code._format(p, dtype)
        reals = form.reals(np.empty(0, form.message_dtype), form.decode_mode).dtype
        per_element = form.message_dtype.itemsize // reals.itemsize
        self._rows = kernels.Rows(code.n, form.message_size * per_element, reals)
        self._decoder = code.decoder()
        blocks = code._blocks
        self._need: list[int] = blocks.need.tolist()
        self._block: list[int] = blocks.block.tolist()  # of each worker
        self._weight: list[int] = blocks.weight.tolist()
        self.reset()

    def reset(self) -> None:
        """Forget all messages."""
        self._rows.clear()
        self._heard: set[int] = set()
        self._square: list[float] = []  # squared norm of each message, in order of arrival
        self._lacking = self._need.copy()  # weight that each block still needs
        self._open = sum(need > 0 for need in self._need)  # blocks that need any

    @property
    def survivors(self) -> NDArray[np.int64]:
        """Workers heard from, in order of arrival."""
        return self._decoder.survivors[: self._rows.count].copy()

    @property
    def ready(self) -> bool:
        """Whether the gradient can be decoded."""
        return self._open == 0

    def receive(self, worker: int, message: NDArray[Any]) -> bool:
        """Take a worker's message.

        Checks it, and reads it once for its norm: in the shadow of the wait for the others.

        Returns
        -------
        bool
            Whether the gradient can be decoded now.

        Raises
        ------
        NonFiniteMessageError
            If the message holds NaN or Inf.
        TypeError, ValueError
            If it does not fit, or the worker was heard before. The round is as it was.
        """
        worker = check_index("worker", worker, self.code.n)
        if worker in self._heard:
            raise ValueError(f"worker {worker} was heard already in this round")
        form = self._form
        message = check_vector(
            "message of worker", message, form.message_dtype, form.message_size, number=worker
        )
        square = _square_norm(message)
        if not square < np.inf:
            _require_finite(worker, message)
        self._decoder.survivors[len(self._square)] = worker
        self._rows.append(form.reals(message, form.decode_mode))
        self._square.append(square)
        self._heard.add(worker)
        b = self._block[worker]
        if self._lacking[b] > 0:
            self._lacking[b] -= self._weight[worker]
            self._open -= self._lacking[b] <= 0
        return self._open == 0

    def gradient(self, out: NDArray[Any] | None = None, method: str = "auto") -> NDArray[Any]:
        """Decode from every message received.

        Parameters
        ----------
        out : (p,) array, optional
            Contiguous and writable, of the round's dtype.
        method : str, default "auto"
            As in `Code.decoding_vector`.

        Raises
        ------
        NotDecodableError
            If more messages are needed.
        """
        form = self._form
        if out is None:
            out = np.empty(form.gradient_size, dtype=form.gradient_dtype)
        else:
            check_vector("out", out, form.gradient_dtype, form.gradient_size, output=True)
        vector = self._decoder.fill(self._rows.count, method)
        reals = form.reals(out, form.decode_mode)
        kernels.combine(form.decode_mode, self._rows, vector, reals)
        return out

    def trust(self) -> Trust:
        """How far to trust the gradient these messages decode to.

        From the norms of the messages and of the gradient itself, so that cancellation between
        partial gradients counts too. Decodes once more.
        """
        gradient = self.gradient()
        size = _square_norm(gradient)
        vector = self._decoder.vector[: self._rows.count]
        spread = float(np.abs(vector) ** 2 @ self._square)
        if size == 0:
            return Trust(0.0 if spread == 0 else np.inf, 0.0 if spread == 0 else np.inf)
        return self.code._trust(spread / size, len(self._square), self._form.gradient_dtype)
