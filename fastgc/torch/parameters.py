"""A module's parameters and buffers as parts of one vector."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Buffers", "Vector", "as_tensor", "dtype_of", "fingerprint", "trainable"]

_REAL: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}
# What NumPy has no dtype for, by integers of its width.
_SAME_WIDTH = {"bfloat16": (np.dtype(np.int16), torch.bfloat16)}


def trainable(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that require gradients; tied ones once.

    Raises
    ------
    TypeError
        If `module` is none, or its parameters are not all of one real dtype.
    ValueError
        If there are none, or some are not initialised yet.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}")
    found = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not found:
        raise ValueError("the module has no parameter that requires a gradient")
    for name, p in found.items():
        if torch.nn.parameter.is_lazy(p):
            raise ValueError(f"parameter {name} has no shape yet: call the module once before")
    dtypes = {p.dtype for p in found.values()}
    if len(dtypes) > 1 or not dtypes <= _REAL.keys():
        names = ", ".join(sorted(str(d) for d in dtypes))
        raise TypeError(
            f"parameters must be all float32 or all float64, not {names}: keep them in float32 "
            "(module.float()), compute in less inside the loss (torch.autocast), and send less by "
            'message_dtype="bfloat16"'
        )
    return list(found.values())


def dtype_of(parameters: list[torch.nn.Parameter]) -> np.dtype[Any]:
    """NumPy's name of the parameters' dtype."""
    return _REAL[parameters[0].dtype]


class Vector:
    """Views of a flat tensor in the shapes of others, one after another; they end at `stop`."""

    def __init__(self, flat: torch.Tensor, like: Iterable[torch.Tensor]) -> None:
        self.tensors: list[torch.Tensor] = []
        self.stop = 0
        for each in like:
            begin, self.stop = self.stop, self.stop + each.numel()
            self.tensors.append(flat[begin : self.stop].view(each.shape))


@torch.no_grad()
def fingerprint(tensors: Iterable[torch.Tensor]) -> int:
    """A number that differs, most likely, where any bit of the tensors does."""
    found = 0
    for each in tensors:
        whole = each.detach().cpu().contiguous().view(-1)
        found = zlib.crc32(whole.view(torch.uint8).numpy().data, found)
    return found


class Buffers:
    """A module's buffers, and what they were before a step that is under way."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._kept: dict[str, tuple[torch.Tensor, int, torch.Tensor]] = {}
        self.keep()

    @torch.no_grad()
    def keep(self) -> None:
        """A step is done: keep what those are that it has changed."""
        before, self._kept = self._kept, {}
        for name, now in self._module.named_buffers():
            known = before.get(name)
            if known is None or known[0] is not now or known[1] != now._version:
                known = now, now._version, now.clone()
            self._kept[name] = known

    @property
    def kept(self) -> dict[str, torch.Tensor]:
        """What they were when `keep` was called."""
        return {name: value for name, (_, _, value) in self._kept.items()}

    @torch.no_grad()
    def restore(self, values: dict[str, torch.Tensor]) -> None:
        """Set them to what others kept."""
        for name, now in self._module.named_buffers():
            if name in values:
                now.copy_(values[name])
        self.keep()


def as_tensor(array: NDArray[np.generic]) -> torch.Tensor:
    """A tensor of an array's memory, which may be read-only (then it must not be written)."""
    width, dtype = _SAME_WIDTH.get(array.dtype.name, (array.dtype, None))
    with warnings.catch_warnings():
        # PyTorch warns of memory that must not be written: nor is it
        warnings.simplefilter("ignore", UserWarning)
        tensor = torch.from_numpy(array.view(width))
    return tensor if dtype is None else tensor.view(dtype)
