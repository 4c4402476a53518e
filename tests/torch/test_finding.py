"""The store of a job, as torchrun or torch.distributed knows it."""

import programs
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cloudpickle")
from fastgc.torch.finding import own_store  # noqa: E402


def test_own_store_is_the_agents_or_that_of_the_process_group(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    with pytest.raises(RuntimeError, match="no store"):
        own_store()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch.distributed.distributed_c10d, "_get_default_store", lambda: "of the group"
    )
    assert own_store() == "of the group"
    agent = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    agent.set("who", "agent")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(agent.port))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    assert own_store() == "of the group"
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert own_store().get("who") == b"agent"


SILENT = """
import os, socket
import numpy as np
from fastgc import Uncoded
from fastgc.engines import torch as engine
from fastgc.torch import finding

silent = socket.create_server(("127.0.0.1", 0))
os.environ |= {"RANK": "0", "WORLD_SIZE": "3", "TORCHELASTIC_USE_AGENT_STORE": "True"}
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(silent.getsockname()[1])}
engine._SECONDS = finding._SECONDS = 0.2
for begin in (
    lambda: finding.find(None, None, None),
    lambda: engine.TorchCluster(Uncoded(2), [1.0] * 2, np.multiply, 1),
):
    try:
        begin()
    except RuntimeError as error:
        print(error, flush=True)
os._exit(0)  # its threads still wait
"""


def test_find_and_the_engine_do_not_wait_for_a_store_that_is_silent():
    done = programs.run(programs.python("-c", SILENT))
    said = "torchrun's store cannot be used: there was no answer for"
    assert done.stdout == f"{said} 0.22 s\n{said} 0.2 s\n", done.stderr
