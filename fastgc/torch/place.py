"""The rank of this process, as torch.distributed or torchrun knows it, and the ranks' machines."""

from __future__ import annotations

import os
import socket
from typing import Any

import torch
import torch.distributed

from .._base.arrays import at_least, check_index

dist: Any = torch.distributed  # type checkers do not see all that it exports


def _grouped() -> bool:
    """Whether torch.distributed knows the ranks."""
    if not dist.is_initialized():
        return False
    return dist.get_world_size() > 1 or int(os.environ.get("WORLD_SIZE", "1")) == 1


def own_rank() -> int:
    """Return this process's rank; RuntimeError if neither torch.distributed nor torchrun knows."""
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


def own_store() -> Any:
    """Return the store of the job: that of torchrun, or else of ``init_process_group``."""
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


def hosts(
    ranks: int | None = None, *, host: str | None = None, rank: int | None = None, store: Any = None
) -> list[str]:
    """Return the machine of each rank: the domains of `fastgc.engines.placement`.

    Call it on all ranks; they wait for each other. Each then finds the same order::

        order = fastgc.engines.placement(code, hosts())

    Parameters
    ----------
    ranks : int, optional
        Number of ranks. Default: that of torch.distributed or torchrun.
    host : str, optional
        Name of this rank's machine, or of its rack or zone if these fail as a whole. Default: its
        hostname.
    rank : int, optional
        Default: that of torch.distributed or torchrun.
    store : torch.distributed.Store, optional
        The store through which ranks tell each other. Default: that of torchrun, otherwise that of
        ``init_process_group``.

    Returns
    -------
    list of str
        A label for each rank, in order. A rank that restarts gets the labels of the first start,
        wherever it runs now, because the work of the others depends on them. With
        `fastgc.torch.CodedDataParallel`, rank 0 is the master, so the workers' labels are
        ``hosts()[1:]``.

    Raises
    ------
    TypeError, ValueError
        If `ranks` is not a number of ranks, or `rank` is not one of them.
    RuntimeError
        If there is no store, or a rank does not come within the store's timeout.
    """
    if ranks is None:
        told = world_size()
        if told is None:
            raise RuntimeError(
                "it is not known how many ranks there are: start them by torchrun, or give ranks="
            )
        ranks = told
    ranks = at_least("ranks", ranks, 1)
    rank = check_index("rank", own_rank() if rank is None else rank, ranks)
    host = socket.gethostname() if host is None else host
    if not isinstance(host, str) or not host:
        raise TypeError(f"host must be the name of a machine, not {host!r}")
    store = own_store() if store is None else store
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"fastgc/hosts/{restarts}", store)
    store.compare_set(str(rank), "", host)  # an earlier life of this rank may have set it
    return [store.get(str(other)).decode() for other in range(ranks)]
