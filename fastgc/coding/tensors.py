"""Combinations of tensors that lie on another device: by PyTorch, where they are.

The vector comes from the kernels here, and what is combined is never copied to the host. PyTorch is
not imported: whoever brings its tensors has done that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._arrays import is_integer, lies_elsewhere
from ..errors import NonFiniteMessageError
from ..kernels.rows import PACKED, REAL_PART
from .format import Format, scaled_vector

__all__ = [
    "checked",
    "combine_tensors",
    "output_beside",
    "overlap",
    "require_finite",
    "scale_of",
    "square_norm_of",
    "to_gradient",
]

Tensor = Any  # torch.Tensor


def _torch() -> Any:
    return sys.modules["torch"]


def _dtype(dtype: np.dtype[Any]) -> Any:
    return getattr(_torch(), dtype.name)


def checked(
    what: str, tensor: Tensor, dtype: np.dtype[Any], size: int, device: Any, output: bool = False
) -> Tensor:
    """`tensor` if it is a vector of this dtype and size on a device, detached; or an error."""
    torch = _torch()
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
    if output and not tensor.is_contiguous():
        raise ValueError(f"{what} must be contiguous: it has strides {tensor.stride()}")
    return tensor


def output_beside(out: Any, form: Format, device: Any) -> Tensor:
    """`out`, checked, or a new tensor for a gradient."""
    dtype, size = form.gradient_dtype, form.gradient_size
    if out is None:
        return _torch().empty(size, dtype=_dtype(dtype), device=device)
    return checked("out", out, dtype, size, device, output=True)


def overlap(tensor: Tensor, others: Iterable[Tensor]) -> bool:
    """Whether a contiguous tensor shares memory with one of them."""
    begin, end = _extent(tensor)
    return any(begin < last and first < end for first, last in map(_extent, others))


def _extent(tensor: Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    span = sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return begin, begin + span * tensor.element_size() if begin else begin  # 0: there is no memory


def scale_of(message: Tensor) -> NDArray[Any]:
    """The last element of a message, on the host."""
    found: NDArray[Any] = message[-1:].cpu().numpy()
    return found


def square_norm_of(tensor: Tensor) -> float:
    """Squared 2-norm, summed in double precision."""
    torch = _torch()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    norm = torch.linalg.vector_norm(tensor.reshape(-1), dtype=torch.float64)
    return float(norm) ** 2


def to_gradient(
    form: Format,
    senders: Sequence[int],
    messages: Any,
    vector: NDArray[Any],
    out: Any,
    check: bool,
) -> Tensor:
    """What these workers' messages decode to, on their device.

    Raises
    ------
    NonFiniteMessageError
        If a message that is read is not finite; says whose.
    TypeError, ValueError
        If something does not fit; nothing has been written then.
    """
    device = next(filter(lies_elsewhere, messages)).device
    rows = [
        checked(f"message of worker {worker}", row, form.message_dtype, form.message_size, device)
        for worker, row in zip(senders, messages, strict=True)
    ]
    target = output_beside(out, form, device)
    scales = None
    if form.scaled:
        ends = np.concatenate([scale_of(row) for row in rows])
        scales = form.scales(ends, vector, senders.__getitem__)
    private = overlap(target, rows)
    gradient = output_beside(None, form, device) if private else target
    combine_tensors(form, vector, rows, gradient, scales)
    if check and not is_integer(form.message_dtype) and not bool(gradient.isfinite().all()):
        used = vector.reshape(len(vector), -1).any(axis=1)
        for at in np.flatnonzero(used).tolist():
            require_finite(senders[at], rows[at][: form.length])
    if private:
        target.copy_(gradient)
    return target


def require_finite(worker: int, message: Tensor) -> None:
    """Raise NonFiniteMessageError if a tensor holds NaN or Inf."""
    finite = message.isfinite()
    if not bool(finite.all()):
        at = int((~finite).nonzero()[0])
        raise NonFiniteMessageError(
            f"the message of worker {worker} is not finite: element {at} is {message[at].item()}",
            worker,
        )


def combine_tensors(
    form: Format,
    vector: NDArray[Any],
    rows: Sequence[Tensor],
    out: Tensor,
    scales: Sequence[float] | None = None,
) -> None:
    """`Format.combine` of tensors: what is multiplied by zero is not read."""
    if is_integer(form.message_dtype) and (vector != np.rint(vector)).any():
        raise TypeError(
            f"{form.message_dtype} messages are combined with integers only, not with "
            f"{vector.tolist()}"
        )
    unit = 1.0
    if scales is not None:
        vector, unit = scaled_vector(vector, scales)
    rows = [row[: form.length] for row in rows]
    size, p = form.length, form.gradient_size
    wide = out
    if form.decoded_dtype != form.gradient_dtype or form.pieces * size != p:
        wide = out.new_empty(form.pieces * size, dtype=_dtype(form.decoded_dtype))
    pieces = vector.reshape(len(vector), -1).T
    for coef, piece in zip(pieces, wide.view(form.pieces, size), strict=True):
        _combine(form.decode_mode, rows, coef, piece)
    if unit != 1.0:
        wide.mul_(unit)
    if wide is not out:
        out.copy_(wide[:p])


def _combine(mode: int, rows: Sequence[Tensor], coef: NDArray[Any], out: Tensor) -> None:
    """One piece."""
    torch = _torch()
    sums = out
    if mode == PACKED and not out.is_complex():
        sums = out.view(-1, 2)
        if sums.storage_offset() % 2:  # a complex number would begin inside another
            sums = sums.clone()
        sums = torch.view_as_complex(sums)
    sums.zero_()
    for row, a in zip(rows, coef.tolist(), strict=True):
        if a == 0:
            continue
        if mode == REAL_PART:
            row = torch.view_as_real(row.resolve_conj())
            sums.add_(row[:, 0], alpha=a.real).add_(row[:, 1], alpha=-a.imag)
            continue
        if mode == PACKED and not row.is_complex():
            pairs = row.to(out.dtype).contiguous().view(-1, 2)
            row = torch.view_as_complex(pairs.clone() if pairs.storage_offset() % 2 else pairs)
        sums.add_(row, alpha=int(a) if not (sums.is_complex() or sums.is_floating_point()) else a)
    if mode == PACKED and not out.is_complex():
        written = torch.view_as_real(sums).view(-1)
        if written.data_ptr() != out.data_ptr():
            out.copy_(written)
