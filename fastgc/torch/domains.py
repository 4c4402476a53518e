"""The ranks on each machine, which die together."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed

from .._arrays import at_least, check_index
from ..codes import Code
from ..coding.placement import warn_of_machines
from .place import own_rank, own_store, world_size

__all__ = ["hosts", "warn_of_host"]

dist: Any = torch.distributed  # type checkers do not see all that it exports


def hosts(
    ranks: int | None = None,
    *,
    host: str | None = None,
    rank: int | None = None,
    store: Any = None,
) -> list[str]:
    """Return the machine of each rank: the domains of `fastgc.Code.placed`.

    Call it on all ranks; they wait for each other. Each then makes the same code::

        code = fastgc.BinaryCode(8, stragglers=1).placed(hosts())

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


def warn_of_host(code: Code, enough: Callable[[list[int]], bool]) -> None:
    """Warn, on one rank of a machine, that the other machines' ranks cannot go on without it.

    There is no warning for ranks that torchrun did not start, nor where `warn_of_machines` gives
    none. `enough` says whether a list of ranks can go on.
    """
    try:
        names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE")
        rank, local, here, world = (int(os.environ[name]) for name in names)
    except (KeyError, ValueError):
        return
    if local or world != code.n:
        return
    warn_of_machines(
        code,
        world,
        {"this machine": range(rank, rank + here)},
        enough,
        what="ranks",
        remedy=", on all ranks and for the sampler, too: code = code.placed(fastgc.torch.hosts())",
    )
