"""Decode messages that are tensors on another device, where they stay.

fastgc's kernels compute the decoding vector, and PyTorch combines the messages. All verbs of a code
take tensors of the CPU like arrays; this is for all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from .._base.arrays import Array, check_dtype, check_workers
from ..coding.code import Code
from ..coding.format import Format, not_finite
from ..coding.plan import format_of, warn_of_doubt
from ..kernels.rows import PACKED, REAL_PART

__all__ = ["decode"]


def decode(
    code: Code,
    survivors: ArrayLike,
    messages: Iterable[torch.Tensor],
    out: torch.Tensor | None = None,
    p: int | None = None,
    *,
    method: str = "auto",
    check_finite: bool = True,
) -> torch.Tensor:
    """Decode the gradient from messages on one device, as `fastgc.Code.decode` does on the host.

    What crosses to the host is whether all numbers of the gradient are finite.

    Parameters
    ----------
    code : Code
    survivors, p, method, check_finite
        As in `fastgc.Code.decode`. With `check_finite` False, nothing crosses to the host.
    messages : (f, message_size) tensor or sequence of f tensors of shape (message_size,)
        Message i is that of ``survivors[i]``.
    out : (p,) tensor, optional
        Contiguous, on the same device; it must share no memory with messages.

    Returns
    -------
    (p,) tensor
        On the device: `out` if it is given.

    Raises
    ------
    ValueError, TypeError, NotDecodableError
        As `fastgc.Code.decode`, and if tensors are not all on one device.
    NonFiniteMessageError
        If a message that was read holds NaN or Inf.
    """
    scheme, rows = code.scheme, list(messages)
    came = check_workers("survivors", survivors, scheme.messages.count)
    if len(rows) != came.size:
        raise ValueError(f"{came.size} survivors, but {len(rows)} messages")
    if not rows:
        scheme.raise_too_few(came)
    first = _tensor("messages", rows[0])
    if first.ndim != 1:
        raise ValueError(f"a message must be a vector, not of shape {tuple(first.shape)}")
    if p is None and out is not None:
        p = _tensor("out", out).numel()
    dtype = check_dtype(str(first.dtype).removeprefix("torch."), halves=True)
    form = format_of(scheme, np.broadcast_to(np.empty((), dtype), first.shape), p)
    device, size = first.device, form.message_size
    senders = [scheme.messages.sender(number)[0] for number in came.tolist()]
    for worker, row in zip(senders, rows, strict=True):
        _check(f"message of worker {worker}", row, device, form.message_dtype, size)
    if out is not None:
        _check("out", out, device, form.gradient_dtype, form.gradient_size)
        if not out.is_contiguous():
            raise ValueError(f"out must be contiguous: it has strides {out.stride()}")
    vector = code.decoding_vector(came, method, message_dtype=form.message_dtype)
    warn_of_doubt(scheme, came, vector, form)
    sums = _combined(form, rows, vector)
    if check_finite and not bool(sums.isfinite().all()):
        _blame(senders, rows, vector)
    if out is None:
        return sums.to(_of_torch(form.gradient_dtype))
    return out.copy_(sums)


def _of_torch(dtype: np.dtype[Any]) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtype.name)
    return found


def _tensor(what: str, given: Any) -> torch.Tensor:
    if not isinstance(given, torch.Tensor):
        raise TypeError(
            f"{what} must be tensors, not {type(given).__name__}: Code.decode takes arrays"
        )
    return given


def _check(what: str, given: Any, device: torch.device, dtype: np.dtype[Any], size: int) -> None:
    """Raise TypeError or ValueError unless it is a vector of this dtype and size on the device."""
    tensor = _tensor(what, given)
    if tensor.device != device:
        raise TypeError(f"{what} must be on {device}, as the others are, not on {tensor.device}")
    if tensor.requires_grad:
        raise TypeError(f"{what} requires grad: use tensor.detach()")
    if tensor.layout is not torch.strided:
        raise TypeError(f"{what} must be a dense tensor, not {tensor.layout}: use to_dense()")
    if tensor.dtype != _of_torch(dtype):
        raise TypeError(f"{what} must have dtype {dtype}, not {tensor.dtype}")
    if tuple(tensor.shape) != (size,):
        raise ValueError(f"{what} must have shape {(size,)}, not {tuple(tensor.shape)}")


def _combined(form: Format, rows: list[torch.Tensor], vector: Array) -> torch.Tensor:
    """Combine messages in `form.decoded_dtype`. Those with coefficients of 0 are not read."""
    packed = form.decode_mode == PACKED and form.message_dtype.kind != "c"
    dtype = _of_torch(form.decoded_dtype)
    sums = torch.zeros(form.message_size, dtype=dtype, device=rows[0].device)
    whole = torch.view_as_complex(sums.view(-1, 2)) if packed else sums
    for row, a in zip(rows, vector.tolist(), strict=True):
        if a == 0:
            continue
        if form.decode_mode == REAL_PART:
            parts = torch.view_as_real(row.resolve_conj())
            whole.add_(parts[:, 0], alpha=a.real).add_(parts[:, 1], alpha=-a.imag)
            continue
        if packed:  # complex numbers begin at an even place of memory, so rows may need a copy
            pairs = row.to(dtype).contiguous().view(-1, 2)
            row = torch.view_as_complex(pairs.clone() if pairs.storage_offset() % 2 else pairs)
        whole.add_(row, alpha=a)
    return sums[: form.gradient_size]


def _blame(senders: list[int], rows: list[torch.Tensor], vector: Array) -> None:
    """Raise NonFiniteMessageError if a message that was read holds NaN or Inf."""
    for worker, row, a in zip(senders, rows, vector.tolist(), strict=True):
        if a != 0 and not bool((finite := row.isfinite()).all()):
            at = int((~finite).nonzero()[0])
            raise not_finite(worker, at, row[at].item())
