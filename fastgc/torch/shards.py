"""Modules that `fully_shard` has cut: a copy of the module is a replica of several ranks.

Each rank holds its part of every tensor, and has that part's gradient. Decoding is elementwise:
the ranks that hold the same part, one in each replica, decode it by themselves. If a replica dies
between the sums of two parts, one is decoded with it and the other without it. Both are the
gradient of the whole batch.

A replica that joins is different: its parts must be of one step. Its ranks compare the steps at
which they joined, and try again if these differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch.utils import _pytree as pytree

__all__ = ["gradients", "local", "pack", "require_cut", "same_step", "unpack", "whole"]

dist: Any = torch.distributed  # which exports less than it documents, for type checkers


class _Part(NamedTuple):
    """A part of a tensor, and how the tensor is cut, as it is sent to another replica."""

    tensor: torch.Tensor
    placements: Any
    shape: torch.Size
    stride: tuple[int, ...]


def _is_cut(tensor: Any) -> bool:
    return hasattr(tensor, "to_local")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a tensor that is here, which shares its memory; of one that is not cut, all."""
    if not _is_cut(tensor):
        return tensor
    cut: Any = tensor
    with torch.no_grad():
        part: torch.Tensor = cut.to_local()
    return part


def whole(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A tensor that is cut as another one, of which this is the part that is here."""
    return _whole(part, like, like.shape, like.stride()) if _is_cut(like) else part


def _whole(part: torch.Tensor, like: Any, shape: Any, stride: Any, placements: Any = None) -> Any:
    from torch.distributed.tensor import DTensor

    found: Any = DTensor
    placements = like.placements if placements is None else placements
    return found.from_local(
        part, like.device_mesh, placements, run_check=False, shape=shape, stride=stride
    )


def gradients(parameters: Sequence[torch.nn.Parameter]) -> list[torch.Tensor | None]:
    """The parts of parameters' gradients that are here."""
    return [None if p.grad is None else local(p.grad) for p in parameters]


def require_cut(parameters: list[torch.nn.Parameter], replica: Any) -> None:
    """Raise ValueError if a parameter is not cut over the ranks of a replica, and no others."""
    ranks = sorted(dist.get_process_group_ranks(replica))
    for p in parameters:
        cut: Any = p
        if not _is_cut(p):
            raise ValueError(
                f"replica= is for a module that fully_shard has cut, and a parameter of shape "
                f"{tuple(p.shape)} is not: its gradient is not summed up over the replica's ranks"
            )
        if (over := sorted(cut.device_mesh.mesh.flatten().tolist())) != ranks:
            raise ValueError(
                f"a parameter of shape {tuple(p.shape)} is cut over ranks {over}, and the replica "
                f"has ranks {ranks}: give fully_shard a mesh of the replica's ranks alone"
            )


def same_step(replica: Any, step: int, device: torch.device) -> bool:
    """Whether all ranks of a replica are at the same step; all must call it."""
    own = torch.tensor(step, device=device)
    steps = [torch.empty_like(own) for _ in range(dist.get_world_size(replica))]
    dist.all_gather(steps, own, group=replica)
    return len({int(each) for each in steps}) == 1


def pack(state: Any) -> Any:
    """A state in which tensors that are cut are replaced by their parts."""

    def part(each: Any) -> Any:
        if not _is_cut(each):
            return each
        return _Part(local(each), each.placements, each.shape, each.stride())

    return pytree.tree_map(part, state)


def unpack(state: Any, like: torch.Tensor) -> Any:
    """What was packed, on the mesh of a tensor."""

    def joined(each: Any) -> Any:
        if not isinstance(each, _Part):
            return each
        part = each.tensor.to(local(like).device)
        return _whole(part, like, each.shape, each.stride, each.placements)

    return pytree.tree_map(joined, state, is_leaf=lambda each: isinstance(each, _Part))
