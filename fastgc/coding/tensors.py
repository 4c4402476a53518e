"""Arithmetic on tensors on another device: PyTorch does it there.

The vector comes from the kernels here; what is combined is never copied to the host. PyTorch is not
imported, because whoever passes tensors has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import is_integer
from ..kernels.rows import PACKED, REAL_PART
from .format import Format, not_finite

__all__ = ["TensorFormat", "TensorRows", "scale_of", "square_norm_of"]

Tensor = Any  # torch.Tensor


def _torch() -> Any:
    return sys.modules["torch"]


def _dtype(dtype: np.dtype[Any]) -> Any:
    return getattr(_torch(), dtype.name)


class TensorRows:
    """`fastgc.kernels.Rows` for tensors: separate vectors, or the rows of a matrix."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays

    def select(self, which: NDArray[np.int64]) -> TensorRows:
        """Return the rows `which`, in this order."""
        return TensorRows([self.arrays[at] for at in which.tolist()])

    def shortened(self, length: int) -> TensorRows:
        """Return the first `length` elements of each row."""
        return TensorRows([row[:length] for row in self.arrays])

    def last(self) -> NDArray[Any]:
        """Return the last element of each row, on the host."""
        return np.concatenate([scale_of(row) for row in self.arrays])

    def overlap(self, tensor: Tensor) -> bool:
        """Say whether a contiguous tensor shares memory with a row."""
        begin, end = _extent(tensor)
        return any(begin < last and first < end for first, last in map(_extent, self.arrays))


def _extent(tensor: Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    span = sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return begin, begin + span * tensor.element_size() if begin else begin  # 0: it has no memory


@dataclass(frozen=True)
class TensorFormat(Format):
    """`Format` for gradients and messages that are tensors on a device.

    Attributes
    ----------
    device : torch.device
    """

    device: Any = None

    @classmethod
    def on(cls, device: Any, form: Format) -> TensorFormat:
        """Return the same format for tensors on this device."""
        said = {field.name: getattr(form, field.name) for field in fields(Format)}
        return cls(**said, device=device)

    def checked(self, what: str, tensor: Tensor, dtype: np.dtype[Any], size: int) -> Tensor:
        """Return `tensor` if it is a vector of this dtype and size on the device, or raise."""
        torch, device = _torch(), self.device
        if not isinstance(tensor, torch.Tensor) or tensor.device != device:
            where = tensor.device if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise TypeError(f"{what} must be a tensor on {device}, as the others are, not {where}")
        if tensor.requires_grad:
            raise TypeError(f"{what} requires grad: use tensor.detach()")
        if tensor.layout is not torch.strided:
            raise TypeError(f"{what} must be a dense tensor, not {tensor.layout}: use to_dense()")
        if tensor.dtype != _dtype(dtype):
            raise TypeError(f"{what} must have dtype {dtype}, not {tensor.dtype}")
        if tuple(tensor.shape) != (size,):
            raise ValueError(f"{what} must have shape {(size,)}, not {tuple(tensor.shape)}")
        return tensor

    def rows(
        self,
        what: str,
        numbers: Iterable[int],
        arrays: Iterable[Tensor],
        dtype: np.dtype[Any],
        size: int,
        mode: int,
    ) -> Any:
        """Check vectors and return them as rows."""
        named = zip(numbers, arrays, strict=True)
        return TensorRows([self.checked(f"{what} {at}", row, dtype, size) for at, row in named])

    def matrix(self, messages: Tensor) -> Any:
        """Return the rows of a matrix of messages, one for each message of a round."""
        self.checked("messages", messages[0], self.message_dtype, self.message_size)
        return TensorRows(messages[:, : self.length])

    def ends(self, messages: Tensor, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Return the last elements of these rows, on the host."""
        found: NDArray[Any] = messages[numbers.tolist(), -1].cpu().numpy()
        return found

    def output(self, out: Tensor | None) -> Tensor:
        """Return `out`, checked, or a new tensor for a gradient."""
        if out is None:
            return self.empty(self.gradient_size, self.gradient_dtype)
        target = self.checked("out", out, self.gradient_dtype, self.gradient_size)
        if not target.is_contiguous():
            raise ValueError(f"out must be contiguous: it has strides {target.stride()}")
        return target

    def shared(self, out: Tensor, messages: Tensor) -> bool:
        """Say whether a gradient shares memory with a matrix of messages."""
        return TensorRows([messages]).overlap(out)

    def empty(self, size: int, dtype: np.dtype[Any]) -> Tensor:
        """Return a new vector, uninitialized."""
        return _torch().empty(size, dtype=_dtype(dtype), device=self.device)

    def add_up(self, rows: TensorRows, coef: NDArray[Any], out: Tensor, check: bool) -> bool:
        """Combine the rows of one piece into `out`; with `check`, say whether it is finite."""
        torch, mode, size = _torch(), self.decode_mode, self.length
        whole = out if len(out) == size else out.new_empty(size)
        sums = whole
        if mode == PACKED and not whole.is_complex():
            sums = whole.view(-1, 2)
            if sums.storage_offset() % 2:  # complex views must begin at an even offset
                sums = sums.clone()
            sums = torch.view_as_complex(sums)
        sums.zero_()
        for row, a in zip(rows.arrays, coef.tolist(), strict=True):
            if a == 0:
                continue
            if mode == REAL_PART:
                row = torch.view_as_real(row.resolve_conj())
                sums.add_(row[:, 0], alpha=a.real).add_(row[:, 1], alpha=-a.imag)
                continue
            if mode == PACKED and not row.is_complex():
                pairs = row.to(whole.dtype).contiguous().view(-1, 2)
                row = torch.view_as_complex(pairs.clone() if pairs.storage_offset() % 2 else pairs)
            exact = not (sums.is_complex() or sums.is_floating_point())
            sums.add_(row, alpha=int(a) if exact else a)
        if mode == PACKED and not whole.is_complex():
            written = torch.view_as_real(sums).view(-1)
            if written.data_ptr() != whole.data_ptr():
                whole.copy_(written)
        if whole is not out:
            out.copy_(whole[: len(out)])
        return not check or is_integer(self.message_dtype) or bool(out.isfinite().all())

    def rescale(self, array: Tensor, unit: float) -> None:
        """Multiply by a power of two."""
        array.mul_(unit)

    def store(self, array: Tensor, out: Tensor) -> None:
        """Copy to `out`, rounding to its dtype."""
        out.copy_(array)

    def require_finite(self, worker: int, row: Tensor) -> None:
        """Raise NonFiniteMessageError if a message, apart from its scale, holds NaN or Inf."""
        finite = row.isfinite()
        if not bool(finite.all()):
            at = int((~finite).nonzero()[0])
            raise not_finite(worker, at, row[at].item())


def scale_of(message: Tensor) -> NDArray[Any]:
    """Return the last element of a message, on the host."""
    found: NDArray[Any] = message[-1:].cpu().numpy()
    return found


def square_norm_of(tensor: Tensor) -> float:
    """Return the squared 2-norm, summed in float64."""
    torch = _torch()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    norm = torch.linalg.vector_norm(tensor.reshape(-1), dtype=torch.float64)
    return float(norm) ** 2
