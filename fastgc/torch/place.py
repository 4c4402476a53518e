"""Who this process is among the ranks, as torch.distributed or torchrun knows it.

A process group of one member, as `fastgc.torch.coded_ddp` asks for, knows its own process alone:
where torchrun started several, ranks are torchrun's.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed

__all__ = ["own_rank", "own_store", "place_of", "world_size"]

dist: Any = torch.distributed  # which exports less than it documents, for type checkers


def _grouped() -> bool:
    """Whether ranks are those of torch.distributed."""
    if not dist.is_initialized():
        return False
    return dist.get_world_size() > 1 or int(os.environ.get("WORLD_SIZE", "1")) == 1


def own_rank() -> int:
    """The rank of this process.

    Raises
    ------
    RuntimeError
        If neither knows one.
    """
    if _grouped():
        return int(dist.get_rank())
    if "RANK" not in os.environ:
        raise RuntimeError(
            "this process has no rank: start it by torchrun, which gives it one, or give rank="
        )
    return int(os.environ["RANK"])


def world_size() -> int | None:
    """The number of ranks, where it is known."""
    if _grouped():
        return int(dist.get_world_size())
    world = os.environ.get("WORLD_SIZE")
    return None if world is None else int(world)


def place_of(group: Any, rank: int | None) -> tuple[int, int | None]:
    """The rank of this process, and the number of ranks where it is known."""
    if group is not None:
        return int(dist.get_rank(group)), int(dist.get_world_size(group))
    if rank is not None:
        return rank, None
    return own_rank(), world_size()


def own_store() -> Any:
    """The store of the job: that of torchrun, or else of ``init_process_group``.

    Raises
    ------
    RuntimeError
        If there is none.
    """
    # The agent's store outlives every rank.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return dist.TCPStore(address, port, None, False, wait_for_workers=False)
    if _grouped():
        return dist.distributed_c10d._get_default_store()
    raise RuntimeError(
        "there is no store by which ranks find each other: start them by torchrun, or give "
        "store=torch.distributed.TCPStore(...), kept by a process that outlives them"
    )
