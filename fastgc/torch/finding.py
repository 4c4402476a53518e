"""Where the coordinator is, and which rank this process is."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, NamedTuple

import torch.distributed

from .._base.deadline import in_time
from .coordinator import Server
from .member import own_host

dist: Any = torch.distributed  # type checkers do not see all that it exports

_SECONDS = 60.0  # in which torchrun's store must answer


class Place(NamedTuple):
    """What `Member` needs to take part; `server` is set if this process keeps the coordinator."""

    address: tuple[str, int]
    run: str
    rank: int | None
    ranks: int
    server: Server | None = None


def find(store: str | None, rank: int | None, ranks: int | None) -> Place:
    """Find the coordinator: by `store`, or by the environment of the guard, or of torchrun."""
    around = os.environ
    if rank is None and "RANK" in around:
        rank = int(around["RANK"])
    world = int(around.get("WORLD_SIZE", "1")) if ranks is None else ranks
    restarts = around.get("TORCHELASTIC_RESTART_COUNT", "0")
    run = around.get("FASTGC_RUN", f"{around.get('TORCHELASTIC_RUN_ID', 'run')}/{restarts}")
    store = around.get("FASTGC_STORE") if store is None else store
    if store is not None:
        host, _, port = store.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"store must be host:port of python -m fastgc.store, not {store!r}")
        return Place((host, int(port)), run, rank, world)
    if world == 1:
        own = Server().start()
        return Place(("127.0.0.1", own.port), run, rank, world, own)
    served = around.get("FASTGC_COORDINATOR")  # the port, if the guard keeps it
    server: Server | None = None
    if rank == 0 and served is None:  # without a guard: it ends with this rank
        server = Server().start()
        served = str(server.port)
    try:
        address = in_time(lambda: _told(rank, served, restarts), 1.1 * _SECONDS)
    except Exception as error:
        raise RuntimeError(f"torchrun's store cannot be used: {error}") from error
    return Place(address, run, rank, world, server)


def _told(rank: int | None, port: str | None, restarts: str) -> tuple[str, int]:
    """Return the coordinator's address, which rank 0 writes into torchrun's store."""
    store = dist.PrefixStore(f"fastgc/{restarts}", own_store())
    store.set_timeout(timedelta(seconds=_SECONDS))
    if rank == 0:
        store.set("coordinator", f"{own_host()}:{port}")
    host, _, told = store.get("coordinator").decode().rpartition(":")
    return host, int(told)


def own_store() -> Any:
    """Return the store of the job: that of torchrun, or else of ``init_process_group``."""
    # The agent's store outlives every rank.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return dist.TCPStore(address, port, None, False, wait_for_workers=False)
    if dist.is_initialized():
        return dist.distributed_c10d._get_default_store()
    raise RuntimeError(
        "there is no store by which ranks find each other: start them by torchrun, or give the "
        "address of a process that runs python -m fastgc.store"
    )
