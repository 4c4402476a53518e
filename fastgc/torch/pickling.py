"""Pickles that leave the memory of tensors where it is, as they do for NumPy's arrays."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Pickler", "pickled"]


def pickled(thing: Any, keep: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Pickle a thing; `keep` may take the memory of tensors and arrays out of the pickle."""
    file = io.BytesIO()
    Pickler(file, 5, buffer_callback=keep).dump(thing)
    return file.getvalue()


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickle by value what cannot be imported, and the memory of tensors as buffers (PEP 574).

    PyTorch itself writes a tensor into the pickle, with the whole storage of which it is a view.
    """

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle an object; NotImplemented means as usual."""
        if type(obj) is torch.Tensor and _is_plain(obj):
            # As bytes, because NumPy lacks some of the dtypes.
            bits = obj.reshape(-1).view(torch.uint8).numpy()
            return _tensor, (bits, obj.dtype, obj.shape)
        return super().reducer_override(obj)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is nothing more than its elements, one after another in memory."""
    return (
        tensor.device.type == "cpu"
        and tensor.numel() > 0
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not vars(tensor)
    )


def _tensor(bits: NDArray[np.uint8], dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    if not bits.flags.writeable:  # PyTorch has no read-only tensors
        bits = bits.copy()
    return torch.from_numpy(bits).view(dtype).view(shape)
