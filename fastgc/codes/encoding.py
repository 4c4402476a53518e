"""What workers send: combinations of their partial gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .. import kernels
from .._arrays import Output, as_array, as_rows, check_dtype, check_vector, is_half, is_integer
from .format import real_of
from .scheme import Scheme

__all__ = ["Encoder", "encode"]


def encode(
    code: Scheme,
    worker: int,
    partials: ArrayLike,
    out: Output | None,
    index: int,
    message_dtype: DTypeLike | None,
) -> NDArray[Any]:
    """Message of a worker: see `fastgc.codes.base.Code.encode`."""
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
    kernels.combine(mode, rows, coef, form.reals(sums, mode))
    form.finish(sums, message)
    return message if out is None else out


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
        self._coef = dict(zip(self._partitions.tolist(), coefficients.tolist(), strict=True))
        squares = (np.abs(coefficients) ** 2).tolist()
        self._squares = dict(zip(self._partitions.tolist(), squares, strict=True))
        if out is None:
            out = np.empty(form.message_size, dtype=form.message_dtype)
        self._out = out
        self._message = check_vector("out", out, form.message_dtype, form.message_size, output=True)
        self._sums = form.sums(self._message)
        kind = form.row_dtype
        self._wide = np.empty(form.gradient_size, kind) if kind != form.partial_dtype else None
        real = form.reals(np.empty(0, kind), form.encode_mode).dtype
        size = form.gradient_size if form.pieces == 1 else form.length
        self._rows = kernels.Rows(form.pieces, size * kind.itemsize // real.itemsize, real)
        self._factors = np.empty(form.pieces, dtype=coefficients.dtype)
        self._weights = np.empty(form.pieces)
        self._begin, self._continue = (
            kernels.bind_encode(
                form.encode_mode,
                self._rows,
                self._factors,
                self._weights,
                form.reals(self._sums, form.encode_mode),
                accumulate=accumulate,
            )
            for accumulate in (False, True)
        )
        self._added: set[int] = set()
        self._energy = 0.0

    @property
    def out(self) -> NDArray[Any]:
        """Where the message is written to."""
        return self._message

    def add(self, partition: int, g: ArrayLike) -> None:
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
        partial = check_vector("the partial gradient", g, form.partial_dtype, form.gradient_size)
        if np.may_share_memory(partial, self._message):
            raise ValueError("the partial gradient shares memory with the message")
        if self._wide is not None:
            self._wide[:] = partial
            partial = self._wide
        rows = self._rows
        for piece in form.cut(partial):
            rows.append(piece if piece.dtype.kind == "f" else form.reals(piece, form.encode_mode))
        self._factors[:] = coef
        self._weights[:] = self._squares[partition]
        encode = self._continue if self._added else self._begin
        self._energy += encode()
        rows.clear()
        self._added.add(partition)

    def message(self) -> NDArray[Any]:
        """The finished message (`out`, if given); ValueError if a partition is missing."""
        if len(self._added) < len(self._coef):
            missing = sorted(self._coef.keys() - self._added)
            raise ValueError(f"worker {self.worker}'s message still lacks partitions {missing}")
        self._form.finish(self._sums, self._message)
        return self._out

    @property
    def energy(self) -> float:
        """``sum_j |B_ij|^2 ||g_j||^2`` of what was added, for `Round.receive`.

        The message's squared norm tells nothing of what cancelled in it. NaN if any of it is, or
        Inf times 0; Inf where it is beyond float64.
        """
        return self._energy

    def reset(self) -> None:
        """Begin the next message."""
        self._added.clear()
        self._energy = 0.0
