"""Process groups of gloo: how one is made, summed with, and let go.

Each is made from scratch, in 3 ms for five ranks of one machine. Tried: PyTorch 2.14 can make an
existing one anew (`torch.distributed._reconfigure`), in 23 ms, since it closes the old one first.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

__all__ = ["Group", "Socket", "handle_of", "peer_of", "sockets_open"]

dist: Any = torch.distributed  # which exports less than it documents, for type checkers

Socket = tuple[int, int]  # its number, and that of its inode, which no later one has


class Group:
    """A gloo group of its own, beside those of torch.distributed.

    Without references it closes its sockets. Gloo takes 10 ms for each, so that a thread does it:
    the rank is to agree with others on the next group. These may wait for this rank in the old one,
    so connections that are known (`note`) are shut down at once.

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
        self._others, self._lines = size - 1, list[Socket]()

    def note(self, opened: Iterable[Socket]) -> None:
        """Tell it which sockets were opened while it was made; others may be among them.

        If there are as many connections as other members, they are its own.
        """
        connected = [each for each in opened if peer_of(each) is not None]
        self._lines = connected if len(connected) == self._others else []

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
        if not held:  # it could not be made
            return
        for each in self._lines:
            if (found := handle_of(each)) is not None:
                with found, contextlib.suppress(OSError):  # the other one has closed it
                    found.shutdown(socket.SHUT_RDWR)
        # The interpreter may not end while gloo closes sockets. So it waits for this thread, no
        # daemon; and where it waits for threads no more, none is started.
        if threading.main_thread().is_alive():
            with contextlib.suppress(RuntimeError):  # no more threads can be started
                threading.Thread(target=held.clear, name="fastgc-closes", daemon=False).start()
                return
        held.clear()


def sockets_open() -> set[Socket]:
    """Sockets of this process; none where that cannot be told."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                status = os.fstat(int(name))
                if stat.S_ISSOCK(status.st_mode):
                    found.add((int(name), status.st_ino))
    return found


def handle_of(each: Socket) -> socket.socket | None:
    """Another handle of a socket; None if it was closed: the number may be another file's."""
    try:
        fd = os.dup(each[0])
    except OSError:
        return None
    try:
        if os.fstat(fd).st_ino == each[1]:
            return socket.socket(fileno=fd)
    except OSError:
        pass
    os.close(fd)
    return None


def peer_of(each: Socket) -> str | None:
    """The address of the host that a socket is connected to; None if it is to none."""
    found = handle_of(each)
    if found is None:
        return None
    with found:
        try:
            inet = found.family in (socket.AF_INET, socket.AF_INET6)
            return str(found.getpeername()[0]) if inet else None
        except OSError:
            return None
