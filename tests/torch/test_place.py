"""The rank and the machine of a process, as torchrun or torch.distributed knows them."""

import socket
import threading

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cloudpickle")
from fastgc.torch import hosts  # noqa: E402
from fastgc.torch.place import own_rank, own_store, world_size  # noqa: E402

SECONDS = 60.0
TOLD = (
    "RANK",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "WORLD_SIZE",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RESTART_COUNT",
)


@pytest.fixture(autouse=True)
def nothing_is_told(monkeypatch):
    for name in TOLD:
        monkeypatch.delenv(name, raising=False)


# What torchrun tells, and rank and size of a process group; then whose word counts.
PLACES = [
    ({"RANK": "3", "WORLD_SIZE": "6"}, None, (3, 6)),
    ({"RANK": "3"}, None, (3, None)),
    ({"RANK": "3", "WORLD_SIZE": "6"}, (1, 2), (1, 2)),
    ({}, (1, 2), (1, 2)),
    ({"RANK": "3", "WORLD_SIZE": "6"}, (0, 1), (3, 6)),  # a group of its own
    ({}, (0, 1), (0, 1)),
]


@pytest.mark.parametrize(("told", "grouped", "expected"), PLACES)
def test_own_rank_and_world_size(told, grouped, expected, monkeypatch):
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    if grouped is not None:
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: group or grouped[0])
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: grouped[1])
    assert (own_rank(), world_size()) == expected


def test_own_rank_and_store_that_nobody_told():
    assert world_size() is None
    with pytest.raises(RuntimeError, match="no rank"):
        own_rank()
    with pytest.raises(RuntimeError, match="no store"):
        own_store()


def test_own_store_is_the_agents_or_that_of_the_process_group(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
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


def test_hosts_are_those_of_the_first_time(monkeypatch):
    store = torch.distributed.HashStore()
    found = {}

    def tell(rank, host):
        found[rank] = hosts(3, rank=rank, store=store, host=host)

    threads = [threading.Thread(target=tell, args=each) for each in ((0, "a"), (2, "b"), (1, "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert found == {rank: ["a", "a", "b"] for rank in range(3)}
    assert hosts(3, rank=1, store=store, host="c") == ["a", "a", "b"]
    assert hosts(1, rank=0, store=store, host="c") == ["a"]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")  # torchrun has started all of them again
    assert hosts(1, rank=0, store=store, host="c") == ["c"]
    with pytest.raises(ValueError, match="ranks must be at least 1, not 0"):
        hosts(0, rank=0, store=store)
    for host in ("", 5):
        with pytest.raises(TypeError, match=f"host.*not {host!r}"):
            hosts(3, rank=1, store=store, host=host)
    with pytest.raises(ValueError, match="rank 3 does not exist"):
        hosts(3, rank=3, store=store)


def test_hosts_of_a_process_alone(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("RANK", "0")
    assert hosts(store=torch.distributed.HashStore()) == [socket.gethostname()]
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(RuntimeError, match="how many ranks there are"):
        hosts(store=torch.distributed.HashStore())
