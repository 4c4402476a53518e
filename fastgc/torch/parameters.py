"""A module's parameters and buffers as parts of one vector."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._base.arrays import Array


def trainable(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters that require gradients, tied ones once.

    Raise TypeError if `module` is no module, or its parameters are not all of one real dtype, and
    ValueError if there are no such parameters, or some are not initialised yet.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}")
    found = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not found:
        raise ValueError("the module has no parameter that requires a gradient")
    for name, p in found.items():
        if torch.nn.parameter.is_lazy(p):
            raise ValueError(f"parameter {name} has no shape yet: call the module once before")
        if hasattr(p, "placements"):
            raise TypeError(
                f"parameter {name} is a part of one that several processes share (DTensor, as of "
                "fully_shard), of which no gradient can be decoded here: give the module as it is "
                "before that"
            )
    dtypes = {p.dtype for p in found.values()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        names = ", ".join(sorted(str(d) for d in dtypes))
        raise TypeError(
            f"parameters must be all float32 or all float64, not {names}: keep them in float32 "
            "(module.float()), complex ones as pairs (torch.view_as_real), compute in less inside "
            'the loss (torch.autocast), and send less by message_dtype="bfloat16"'
        )
    return list(found.values())


def views(flat: torch.Tensor, like: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return views of a flat tensor, one after another, in the shapes of `like`."""
    found, stop = [], 0
    for each in like:
        begin, stop = stop, stop + each.numel()
        found.append(flat[begin:stop].view(each.shape))
    return found


def apart(array: Array, like: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return `views` with a storage each, so that saving one does not save the whole array."""
    return [torch.from_numpy(each.numpy()) for each in views(torch.from_numpy(array), like)]


class Unsent:
    """The part of a module that workers got at the start only. It must not change.

    It is all except the tensors of `sent`, which workers get in each step.
    """

    def __init__(self, module: torch.nn.Module, sent: Iterable[torch.Tensor]) -> None:
        self._module, self._sent = module, {id(each): each for each in sent}
        self._known, self._tensors = self._now()
        self._prints = {name: fingerprint([each]) for name, each in self._tensors.items()}

    def _now(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Return what changes with each part, by name, and the parts that are tensors."""
        module, tensors = self._module, dict[str, torch.Tensor]()
        known: dict[str, Any] = {
            f"the mode of module {name!r}": part.training for name, part in module.named_modules()
        }
        for kind, named in (
            ("parameter", module.named_parameters()),
            ("buffer", module.named_buffers()),
        ):
            for name, each in named:
                known[f"requires_grad of {kind} {name}"] = each.requires_grad
                if id(each) not in self._sent:
                    tensors[f"{kind} {name}"] = each
                    known[f"{kind} {name}"] = id(each), each._version
        return known, tensors

    def check(self) -> None:
        """Raise RuntimeError if anything in it has changed, or a parameter has a hook."""
        now, tensors = self._now()
        for name in {} if now == self._known else now | self._known:
            if now.get(name) == self._known.get(name):
                continue
            if name in tensors and self._prints.get(name) == fingerprint([tensors[name]]):
                continue
            how = "has changed"
            if name not in now:
                how = "is no longer a part of the module"
            elif name not in self._known:
                how = "was put in the place of one that workers know"
            raise RuntimeError(
                f"{name} {how}, and workers go on with what was: they are sent the parameters that "
                "required gradients at the start, in place, and nothing else. Undo it, or make a "
                "new CodedDataParallel after such a change"
            )
        self._known, self._tensors = now, tensors  # which keep their numbers as long as they live
        hooks = ("_backward_hooks", "_post_accumulate_grad_hooks")
        if any(getattr(p, each, None) for p in self._sent.values() for each in hooks):
            raise RuntimeError(
                "a parameter has a hook (register_hook), which is never called, as workers compute "
                "its gradient: change .grad after backward() instead"
            )


@torch.no_grad()
def fingerprint(tensors: Iterable[torch.Tensor]) -> int:
    """Return a number that most likely differs if any bit of the tensors differs."""
    found = 0
    for each in tensors:
        whole = each.detach().cpu().contiguous().view(-1)
        found = zlib.crc32(whole.view(torch.uint8).numpy().data, found)
    return found


def as_tensor(array: NDArray[np.generic]) -> torch.Tensor:
    """Return a tensor that shares an array's memory; if the array is read-only, only read it."""
    lacks = array.dtype.name == "bfloat16"  # NumPy and PyTorch have no such dtype in common
    with warnings.catch_warnings():
        # PyTorch warns about read-only memory; nobody writes to this tensor.
        warnings.simplefilter("ignore", UserWarning)
        tensor = torch.from_numpy(array.view(np.int16) if lacks else array)
    return tensor.view(torch.bfloat16) if lacks else tensor
