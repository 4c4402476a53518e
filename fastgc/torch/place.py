"""The rank of this process, as torch.distributed or torchrun knows it.

A process group of one member, as `fastgc.torch.coded_ddp` needs it, knows only its own process. If
torchrun started several, their ranks are torchrun's.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed

__all__ = ["own_rank", "own_store", "place_of", "world_size"]

dist: Any = torch.distributed  # type checkers do not see all that it exports


def _grouped() -> bool:
    """Whether torch.distributed knows the ranks."""
    if not dist.is_initialized():
        return False
    return dist.get_world_size() > 1 or int(os.environ.get("WORLD_SIZE", "1")) == 1


def own_rank() -> int:
    """Return the rank of this process.

    Raises
    ------
    RuntimeError
        If neither torch.distributed nor torchrun knows it.
    """
    if _grouped():
        return int(dist.get_rank())
    if "RANK" not in os.environ:
        raise RuntimeError(
            "this process has no rank: start it by torchrun, which gives it one, or give rank="
        )
    return int(os.environ["RANK"])


def world_size() -> int | None:
    """Return the number of ranks, or None if it is unknown."""
    if _grouped():
        return int(dist.get_world_size())
    world = os.environ.get("WORLD_SIZE")
    return None if world is None else int(world)


def place_of(group: Any, rank: int | None) -> tuple[int, int | None]:
    """Return the rank of this process, and the number of ranks, or None if it is unknown."""
    if group is not None:
        return int(dist.get_rank(group)), int(dist.get_world_size(group))
    if rank is not None:
        return rank, None
    return own_rank(), world_size()


def own_store() -> Any:
    """Return the store of the job: that of torchrun, or else of ``init_process_group``.

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
