"""Modules that `fully_shard` has cut: a replica of several ranks holds one copy of the module.

Each rank holds its part of every tensor, and that part's gradient. Decoding is elementwise: the
ranks that hold the same part, one in each replica, decode it by themselves. If a replica dies
between the sums of two parts, one part is decoded with it and the other without it. Both are the
gradient of the whole batch.

A replica that joins differs: all its parts must be of one step (`Admission`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch.utils import _pytree as pytree

from ..errors import FinishedError

_POLL = 0.02  # seconds between looks at the store

dist: Any = torch.distributed  # type checkers do not see all that it exports


class _Part(NamedTuple):
    """A part of a tensor, and how the tensor is cut: what one replica sends to another."""

    tensor: torch.Tensor
    placements: Any
    shape: torch.Size
    stride: tuple[int, ...]


def _is_cut(tensor: Any) -> bool:
    return hasattr(tensor, "to_local")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, in the same memory; the tensor itself if not cut."""
    if not _is_cut(tensor):
        return tensor
    cut: Any = tensor
    with torch.no_grad():
        part: torch.Tensor = cut.to_local()
    return part


def whole(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the tensor of which `part` is this rank's part, cut as `like`."""
    if not _is_cut(like):
        return part
    cut: Any = like
    found: torch.Tensor = _whole(part, cut.device_mesh, cut.placements, cut.shape, cut.stride())
    return found


def _whole(part: torch.Tensor, mesh: Any, placements: Any, shape: Any, stride: Any) -> Any:
    from torch.distributed.tensor import DTensor

    found: Any = DTensor
    return found.from_local(part, mesh, placements, run_check=False, shape=shape, stride=stride)


def gradients(parameters: Sequence[torch.nn.Parameter]) -> list[torch.Tensor | None]:
    """Return this rank's parts of the parameters' gradients."""
    return [None if p.grad is None else local(p.grad) for p in parameters]


def require_cut(parameters: list[torch.nn.Parameter], replica: Any) -> None:
    """Raise ValueError if a parameter is not cut over exactly the ranks of a replica."""
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


class Admission:
    """How a replica joins running ones, with all its parts at one step.

    1. The newcomer's ranks wait for each other. Its rank 0 takes a ticket from the store.
    2. Before each sum, rank 0 of a running replica reads the number of tickets, and tells its other
       ranks. So all of them hear of a new ticket before the same step's sum. Rank 0 writes down
       that step, unless another replica has. Its ranks begin the sum when their views hold the
       newcomer's rank, or when they have waited long enough.
    3. The newcomer's ranks wait for that step to be written down, and join. While all wait, none
       can join at a later step. A rank that does, because something else failed meanwhile, raises
       an error. Its process ends, and so the whole replica starts again.

    A replica that asks after the end gets a FinishedError. Before the first sum, no tickets are
    needed: ranks that start wait for each other, as in any run.

    `replica` is the group of this replica's ranks, `number` its number, and `store` that of all
    replicas, for this run alone. The replica's ranks exchange numbers on `device`. A ticket must be
    answered within so many `seconds`.
    """

    def __init__(
        self, replica: Any, number: int, store: Any, device: torch.device, seconds: float
    ) -> None:
        self._replica, self._number, self._device = replica, number, device
        self._store = store
        self._seconds, self._first = seconds, dist.get_rank(replica) == 0
        self._seen = 0  # number of tickets seen
        self._runs = False

    def ask(self) -> int | None:
        """Wait for the step at which this replica may join; None if no run has begun."""
        ticket = 0
        if self._first and self._store.check(["runs"]):
            ticket = self._store.add("tickets", 1)
            self._store.set(f"{ticket}/who", str(self._number))
        self._seen, *_ = self._told(ticket)
        if not self._seen:
            return None
        until = time.monotonic() + self._seconds
        while not self._store.check([f"{self._seen}/step"]):
            if self._store.check(["ended"]):
                raise FinishedError(
                    "the run has ended: there is nothing that this replica could join; to train "
                    "on, start all replicas with a new store"
                )
            if time.monotonic() > until:
                raise RuntimeError(
                    f"no running replica has let this one in within {self._seconds:g} s"
                )
            time.sleep(_POLL)
        return int(self._store.get(f"{self._seen}/step").split()[0])

    def end(self) -> None:
        """Note that the run has ended, so that no replica can join."""
        self._store.set("ended", "")

    def require_one_step(self, step: int, expected: int | None) -> None:
        """Raise RuntimeError if this replica's ranks have joined at different steps."""
        if expected is None:
            self._seen = 0
            steps = self._told(step)
            expected = step if len(set(steps)) == 1 else -1
        if step != expected:
            raise RuntimeError(
                "the ranks of this replica have joined at different steps, because another one "
                "failed meanwhile: start all ranks of this replica again"
            )

    def newcomers(self, step: int) -> list[int]:
        """Return the replicas that this one lets in, and waits for, before this step's sum."""
        count, *_ = self._told(self._store.add("tickets", 0) if self._first else 0)
        found = []
        for ticket in range(self._seen + 1, count + 1):
            if self._first:
                answer = f"{step} {self._number}"
                self._store.compare_set(f"{ticket}/step", "", answer)
            if int(self._store.get(f"{ticket}/step").split()[1]) == self._number:
                found.append(int(self._store.get(f"{ticket}/who")))
        self._seen = count
        return found

    def note(self) -> None:
        """Note that a sum was done: from now on, replicas that start must ask."""
        if not self._runs:
            self._store.set("runs", "")
        self._runs = True

    def _told(self, number: int) -> list[int]:
        own = torch.tensor(number, device=self._device)
        found = [torch.empty_like(own) for _ in range(dist.get_world_size(self._replica))]
        dist.all_gather(found, own, group=self._replica)
        return [int(each) for each in found]


def pack(state: Any) -> Any:
    """Return a state with the local parts in place of cut tensors."""

    def part(each: Any) -> Any:
        if not _is_cut(each):
            return each
        return _Part(local(each), each.placements, each.shape, each.stride())

    return pytree.tree_map(part, state)


def unpack(state: Any, like: torch.Tensor) -> Any:
    """Return the state that was packed, with its tensors on the mesh of `like`."""
    cut: Any = like

    def joined(each: Any) -> Any:
        if not isinstance(each, _Part):
            return each
        part = each.tensor.to(local(like).device)
        return _whole(part, cut.device_mesh, each.placements, each.shape, each.stride)

    return pytree.tree_map(joined, state, is_leaf=lambda each: isinstance(each, _Part))
