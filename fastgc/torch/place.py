"""The store by which the ranks of a job find each other."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed

dist: Any = torch.distributed  # type checkers do not see all that it exports


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
