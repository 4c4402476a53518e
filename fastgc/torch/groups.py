"""Process groups of gloo: how one is made, summed with, and let go."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

__all__ = ["Group"]

dist: Any = torch.distributed  # which exports less than it documents, for type checkers


class Group:
    """A gloo group of its own, beside those of torch.distributed.

    Without references it closes its sockets, in a thread: gloo takes 10 ms for each peer, during
    which the rank is to agree with others on the next group.

    Parameters
    ----------
    store : torch.distributed.Store
        By which the members find each other; no other group uses it.
    rank, size : int
    host : str
        The address at which this rank listens.
    seconds : float
        For each wait while the group is made.

    Raises
    ------
    RuntimeError
        If a member is not there in time.
    """

    def __init__(self, store: Any, rank: int, size: int, host: str, seconds: float) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=seconds)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
        self._held = [dist.ProcessGroupGloo(store, rank, size, options)]

    def sum(self, tensor: torch.Tensor, seconds: float) -> None:
        """Sum over all members, in place; others' data are waited for so long, each time.

        Raises
        ------
        RuntimeError
            If a member is gone or late.
        """
        options = dist.AllreduceOptions()
        options.timeout = timedelta(seconds=seconds)
        self._held[0].allreduce([tensor], options).wait()

    def copy(self, tensor: torch.Tensor, root: int, seconds: float) -> None:
        """Copy one member's tensor to all. Raises as `sum` does."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = root, 0
        options.timeout = timedelta(seconds=seconds)
        self._held[0].broadcast([tensor], options).wait()

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if held:
            try:
                # Not a daemon: the interpreter may not end while gloo closes sockets.
                threading.Thread(target=held.clear, name="fastgc-closes", daemon=False).start()
            except RuntimeError:  # no more threads can be started
                held.clear()
