"""Pickles whose tensors' memory is left where it is, as that of NumPy's arrays is."""

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
    """Pickle a thing; memory of tensors and arrays may be kept out of it by ``keep``."""
    file = io.BytesIO()
    Pickler(file, 5, buffer_callback=keep).dump(thing)
    return file.getvalue()


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles by value what is not importable, and memory of tensors as buffers (PEP 574).

    PyTorch's own way writes them into the pickle, each with all that it is a view of.
    """

    def reducer_override(self, obj: Any) -> Any:
        """How to pickle an object; NotImplemented: as usual."""
        if type(obj) is torch.Tensor and _is_plain(obj):
            # Of the bits: there are dtypes that NumPy does not have.
            bits = obj.reshape(-1).view(torch.uint8).numpy()
            return _tensor, (bits, obj.dtype, obj.shape)
        return super().reducer_override(obj)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its elements, one after the other in memory, are all there is to it."""
    return (
        tensor.device.type == "cpu"
        and tensor.numel() > 0
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
        and not (tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
        and not vars(tensor)
    )


def _tensor(bits: NDArray[np.uint8], dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    if not bits.flags.writeable:  # tensors are, always
        bits = bits.copy()
    return torch.from_numpy(bits).view(dtype).view(shape)
