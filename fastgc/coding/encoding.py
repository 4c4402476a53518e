"""What workers send: combinations of their partial gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import kernels
from .._arrays import (
    Output,
    as_array,
    as_rows,
    check_dtype,
    check_vector,
    is_half,
    is_integer,
    view_of,
)
from .direct import encode_directly, prepare_encoding
from .format import real_of
from .scheme import Scheme

__all__ = ["BoundEncoder", "Encoder", "encode"]


def encode(
    code: Scheme,
    worker: int,
    partials: ArrayLike,
    out: Output | None,
    index: int,
    message_dtype: DTypeLike | None,
) -> NDArray[Any]:
    """Message of a worker: see `fastgc.coding.code.Code.encode`."""
    found = encode_directly(code, worker, partials, out, index, message_dtype)
    if found is not None:
        return found
    code.message_number(worker, index)
    coef = code._whole_row(worker)[1]
    if code.message_counts[worker] > 1:
        coef = coef[code._part_of(worker, index)]
    given = as_rows("the partial gradients", partials)
    if len(given) != len(coef):
        what = "" if code.message_counts[worker] == 1 else f" for message {index}"
        raise ValueError(
            f"worker {worker} computes {len(coef)} partial gradients{what}, but "
            f"{len(given)} were given"
        )
    first = as_array("a partial gradient", given[0])
    if first.ndim != 1:
        raise ValueError(f"a partial gradient must be a vector, not of shape {first.shape}")
    dtype = check_dtype(first.dtype, halves=True, integers=True)
    if code.layout == "complex data" and not (is_half(dtype) or is_integer(dtype)):
        dtype = real_of(dtype, "partial gradients")
    form = code.format(first.size, dtype, message_dtype)
    mode, numbers = form.encode_mode, range(len(coef))
    size = form.gradient_size
    rows = form.rows("partial gradient", numbers, given, form.partial_dtype, size, mode)
    if out is None:
        message = np.empty(form.message_size, dtype=form.message_dtype)
    else:
        message = check_vector("out", out, form.message_dtype, form.message_size, output=True)
        if rows.overlap(message):
            raise ValueError("out shares memory with a partial gradient")
    wide = form.row_dtype != form.partial_dtype
    if form.pieces > 1 or wide:
        kind = form.partial_dtype
        checked = [check_vector("partial gradient", row, kind, size) for row in given]
        if wide:
            checked = [row.astype(form.row_dtype) for row in checked]
        pieces = [form.reals(piece, mode) for row in checked for piece in form.cut(row)]
        rows = kernels.Rows.of(pieces, pieces[0].size, pieces[0].dtype)
        coef = coef.ravel()
    sums = form.sums(message)
    if form.paired:
        kernels.combine_pairs(rows, code.pair_row(worker), form.reals(sums, mode), paired=False)
    else:
        kernels.combine(mode, rows, coef, form.reals(sums, mode))
        prepare_encoding(code, worker, index, message_dtype, coef, form)
    form.finish(sums, message)
    return message if out is None else out


class BoundEncoder:
    """Messages encoded from the rows of one array, with everything prepared: `Code.bind_encoder`.

    Not for use by two threads at once.

    Attributes
    ----------
    worker : int
    partials : (w, p) array
        Partial gradients, in the order of the worker's partitions.
    message : (message_size,) array
        The `out` that was given; each call overwrites it.
    """

    __slots__ = ("_run", "message", "partials", "worker")

    def __init__(
        self,
        code: Scheme,
        worker: int,
        partials: ArrayLike,
        out: Output | None,
        index: int,
        message_dtype: DTypeLike | None,
    ) -> None:
        rows = view_of("the partial gradients", partials)
        self.partials, self.worker = partials, worker
        self.message: Any = encode(code, worker, rows, out, index, message_dtype)  # or says why not
        dtype = rows.dtype
        if code.layout == "complex data" and not (is_half(dtype) or is_integer(dtype)):
            dtype = real_of(dtype, "partial gradients")
        form = code.format(rows.shape[1], dtype, message_dtype)
        written = self.message if out is None else view_of("out", out)
        there = rows.strides[1] == rows.itemsize and rows.flags.aligned
        self._run: Callable[[], object] = partial(
            encode, code, worker, rows, written, index, message_dtype
        )
        plain = form.sum_dtype == form.message_dtype and form.row_dtype == form.partial_dtype
        if not (there and plain) or form.paired or form.pieces > 1:
            return
        reals = form.reals(rows, form.encode_mode)
        run = kernels.bind_combine(
            form.encode_mode,
            kernels.Rows.of(reals, reals.shape[1], reals.dtype),
            np.arange(len(rows)),
            np.ascontiguousarray(code.coefficients(worker, index)),
            form.reals(written, form.encode_mode),
        )
        self._run = partial(run, len(rows))

    def __repr__(self) -> str:
        return f"<BoundEncoder of worker {self.worker}: {len(self.message)} elements a message>"

    def __call__(self) -> NDArray[Any]:
        """The message of the partial gradients that are there now: `message`."""
        found = self._run()  # a message, or a kernel's status
        if isinstance(found, int) and found == kernels.Status.NO_MEMORY:
            raise MemoryError("no memory for the addresses of what is combined")
        return self.message  # type: ignore[no-any-return]


class Encoder:
    """A message, built up as its partial gradients are computed.

    Holds one accumulator, the message itself (``c += B_ij * g_j``), instead of w gradients; where
    the message is of less precision than they are, one that is rounded to it in the end. In an
    accumulator of float32 the error is that of w roundings, where `Code.encode` has one.
    """

    def __init__(
        self,
        code: Scheme,
        worker: int,
        p: int,
        dtype: DTypeLike,
        out: Output | None,
        index: int,
        message_dtype: DTypeLike | None = None,
    ) -> None:
        self._form = form = code.format(p, dtype, message_dtype)
        code.message_number(worker, index)
        self.worker = int(worker)
        self._partitions = code.partitions(worker, index)
        coefficients = code.coefficients(worker, index)
        self._at = {number: at for at, number in enumerate(self._partitions.tolist())}
        if out is None:
            out = np.empty(form.message_size, dtype=form.message_dtype)
        self._out = out
        self._message = check_vector("out", out, form.message_dtype, form.message_size, output=True)
        self._sums = form.sums(self._message)
        kind = form.row_dtype
        self._wide = np.empty(form.gradient_size, kind) if kind != form.partial_dtype else None
        self._coef = np.ascontiguousarray(coefficients)
        self._squares = np.abs(self._coef) ** 2
        self._energy = np.zeros(1)
        self._added: set[int] = set()
        self._direct = (
            self._wide is None
            and self._sums is self._message
            and form.pieces == 1
            and not form.paired
        )
        real = form.reals(np.empty(0, kind), form.encode_mode).dtype
        size = form.gradient_size if form.pieces == 1 else form.length
        size *= kind.itemsize // real.itemsize
        sums = form.reals(self._sums, form.encode_mode)
        self._add: kernels.AddRow = self._add_pieces
        if form.paired:
            self._rows, self._add = kernels.Rows(1, size, real), self._add_pairs
            self._pairs = code.pair_row(worker)
        elif form.pieces > 1:
            self._rows = kernels.Rows(form.pieces, size, real)
            self._factors = np.empty(form.pieces, dtype=coefficients.dtype)
            self._weights = np.empty(form.pieces)
            self._begin, self._continue = (
                kernels.bind_encode(
                    form.encode_mode,
                    self._rows,
                    self._factors,
                    self._weights,
                    sums,
                    accumulate=accumulate,
                )
                for accumulate in (False, True)
            )
        else:
            self._add = kernels.bind_add(
                form.encode_mode, self._coef, self._squares, size, real, sums, self._energy
            )

    def __repr__(self) -> str:
        added = f"{len(self._added)} of {len(self._partitions)} partial gradients added"
        return f"<Encoder of worker {self.worker}: {added}>"

    @property
    def out(self) -> NDArray[Any]:
        """Where the message is written to."""
        return self._message

    @property
    def sums(self) -> NDArray[Any]:
        """What is added up, and in the end rounded to the message, or that itself."""
        return self._sums

    def add(self, partition: int, g: ArrayLike) -> None:
        """Add the partial gradient of one partition, a (p,) array of the encoder's dtype."""
        form = self._form
        at = self._at.get(partition)
        if at is None:
            raise ValueError(
                f"partition {partition} is not among those of worker {self.worker}: "
                f"{self._partitions.tolist()}"
            )
        if partition in self._added:
            raise ValueError(f"partition {partition} was added already")
        partial = check_vector("the partial gradient", g, form.partial_dtype, form.gradient_size)
        # what is added where the message lies is told by the kernel
        shared = not self._direct and np.may_share_memory(partial, self._message)
        if self._wide is not None and not shared:
            self._wide[:] = partial
            partial = self._wide
        if shared or self._add(partial, at, bool(self._added)):
            raise ValueError("the partial gradient shares memory with the message")
        self._added.add(partition)

    def _add_pieces(self, partial: NDArray[Any], at: int, accumulate: bool) -> int:
        """What `kernels.bind_add` prepares, of a gradient cut into pieces."""
        form, rows = self._form, self._rows
        rows.clear()
        for piece in form.cut(partial):
            rows.append(form.reals(piece, form.encode_mode))
        self._factors[:], self._weights[:] = self._coef[at], self._squares[at]
        self._energy[0] += (self._continue if accumulate else self._begin)()
        return kernels.Status.OK

    def _add_pairs(self, partial: NDArray[Any], at: int, accumulate: bool) -> int:
        """The same of a message of float64x2."""
        rows, sums = self._rows, self._form.reals(self._sums, self._form.encode_mode)
        rows.clear()
        rows.append(self._form.reals(partial, self._form.encode_mode))
        pair = self._pairs[at : at + 1]
        kernels.combine_pairs(rows, pair, sums, paired=False, accumulate=accumulate)
        self._energy[0] += self._squares[at] * kernels.square_sum(partial)
        return kernels.Status.OK

    def message(self) -> NDArray[Any]:
        """The finished message (`out`, if given); ValueError if a partition is missing."""
        if len(self._added) < len(self._at):
            missing = sorted(self._at.keys() - self._added)
            raise ValueError(f"worker {self.worker}'s message still lacks partitions {missing}")
        self._form.finish(self._sums, self._message)
        return self._out

    @property
    def energy(self) -> float:
        """``sum_j |B_ij|^2 ||g_j||^2`` of what was added, for `Round.receive`.

        The message's squared norm tells nothing of what cancelled in it. NaN if any of it is, or
        Inf times 0; Inf where it is beyond float64.
        """
        return float(self._energy[0])

    def reset(self) -> None:
        """Begin the next message."""
        self._added.clear()
        self._energy[0] = 0.0
