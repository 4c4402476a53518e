"""The store of a job, as torchrun or torch.distributed knows it."""

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
