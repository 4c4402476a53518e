"""A rank's line to the coordinator, groups of views, and the connection that brings the state."""

import contextlib
import functools
import gc
import json
import os
import socket
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cloudpickle")
from fastgc.torch import coordinator, handover, member  # noqa: E402
from fastgc.torch.coordinator import Server  # noqa: E402
from fastgc.torch.member import BrokenViewError, Member  # noqa: E402

SECONDS = 20.0


@pytest.fixture
def server():
    made = Server("127.0.0.1").start()
    yield made
    made.close()


@contextlib.contextmanager
def members(server, count, hang=SECONDS):
    made = [
        Member(("127.0.0.1", server.port), "run", rank, count, hang, None) for rank in range(count)
    ]
    try:
        yield made
    finally:
        for each in made:
            each.close()


def together(*calls):
    """Run calls in threads; return what they return or raise."""
    found = [None] * len(calls)

    def run(at, call):
        try:
            found[at] = call()
        except Exception as error:
            found[at] = error

    threads = [threading.Thread(target=run, args=each) for each in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    return found


def test_members_of_a_view_sum_and_copy(server):
    with members(server, 3) as made:
        views = [each.there() for each in made]
        assert [view.ranks for view in views] == [[0, 1, 2]] * 3
        assert [view.slot for view in views] == [0, 1, 2]
        tensors = [torch.full((4,), float(rank)) for rank in range(3)]
        done = []
        together(
            *(
                lambda m=m, v=v, t=t: m.sum(v, t, lambda: done.append(m.rank))
                for m, v, t in zip(made, views, tensors, strict=True)
            )
        )
        assert [each.tolist() for each in tensors] == [[3.0] * 4] * 3
        assert sorted(done) == [0, 1, 2]
        tensors[1].fill_(7.0)
        together(
            *(
                lambda m=m, v=v, t=t: m.copy(v, t, 1)
                for m, v, t in zip(made, views, tensors, strict=True)
            )
        )
        assert [each.tolist() for each in tensors] == [[7.0] * 4] * 3


def test_a_death_breaks_the_view_and_makes_the_next_one(server):
    with members(server, 3) as made:
        views = [each.there() for each in made]
        for each in made:
            each.hold()
        threading.Timer(0.3, made[2].close).start()
        begin = time.monotonic()
        both = zip(made[:2], views[:2], strict=True)
        found = together(*(lambda m=m, v=v: m.sum(v, torch.ones(3)) for m, v in both))
        assert [type(each) for each in found] == [BrokenViewError] * 2
        assert time.monotonic() - begin < 5
        after = [each.there() for each in made[:2]]
        assert [view.ranks for view in after] == [[0, 1]] * 2
        with pytest.raises(BrokenViewError):
            made[0].sum(views[0], torch.ones(3))


def test_the_group_works_while_the_coordinator_starts_again(server):
    with members(server, 2) as made:
        views = [each.there() for each in made]
        for each in made:
            each.hold()
        port = server.port
        server.close()
        tensors = [torch.ones(2), torch.ones(2)]
        together(
            *(
                lambda m=m, v=v, t=t: m.sum(v, t)
                for m, v, t in zip(made, views, tensors, strict=True)
            )
        )
        assert tensors[0].tolist() == [2.0, 2.0]
        again = Server("127.0.0.1", port).start()
        try:
            after = [each.there(views[0].number) for each in made]
            assert [view.ranks for view in after] == [[0, 1]] * 2
        finally:
            again.close()


@pytest.fixture
def hurry(monkeypatch):
    """Ranks ask a silent coordinator after a twentieth of a second, five times."""
    monkeypatch.setattr(member, "_PING", 0.05)
    monkeypatch.setattr(member, "_REACH", 0.25)


def test_a_coordinator_that_has_nothing_to_say_is_asked_and_answers(server, hurry):
    with members(server, 2, hang=0.25) as made:
        views = [each.there() for each in made]
        time.sleep(1.0)
        assert [each.there() for each in made] == views


def test_a_coordinator_that_never_speaks_is_an_error(hurry):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        made = Member(silent.getsockname(), "run", 0, 2, 0.25, None)
        try:
            with pytest.raises(RuntimeError, match=r"coordinator at .* has not answered for 0\.3"):
                made.there()
        finally:
            made.close()


def test_a_coordinator_that_stops_is_an_error_after_some_time(server, hurry):
    """The group works meanwhile."""
    with members(server, 2, hang=0.25) as made:
        views = [each.there() for each in made]
        with stopped(server):
            pairs = zip(made, views, strict=True)
            found = together(*(lambda m=m, v=v: m.sum(v, torch.ones(2)) for m, v in pairs))
            assert found == [None, None]
            for each, view in zip(made, views, strict=True):
                with pytest.raises(RuntimeError, match=r"has not answered for 0\.3"):
                    each.there(view.number)


def test_others_do_not_wait_longer_than_hang_for_one_that_is_in_no_sum(server):
    with members(server, 3, hang=0.5) as made:
        views = [each.there() for each in made]
        both = zip(made[:2], views[:2], strict=True)
        begin = time.monotonic()
        found = together(*(lambda m=m, v=v: m.sum(v, torch.ones(3)) for m, v in both))
        assert [type(each) for each in found] == [BrokenViewError] * 2
        assert time.monotonic() - begin > 0.5


def test_a_group_that_others_do_not_build_is_given_up(server, monkeypatch):
    monkeypatch.setattr(member, "_BUILD", 0.1)
    with members(server, 2) as made:
        board = member._Board(made[0].there().number + 1, made[0])
        with pytest.raises(RuntimeError, match="view has changed"):
            board.get("what nobody puts there")


def test_a_group_is_closed_if_the_view_changes_while_it_is_built(server, monkeypatch):
    class Board(member._Board):
        def get(self, key):
            if key == "ports 0":  # which is asked for once gloo has made its group
                raise RuntimeError("the view has changed")
            return super().get(key)

    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with members(server, 1) as made:
        view = made[0].there()
        made[0]._board = board = Board(view.number, made[0])
        monkeypatch.setattr(board, "set", board.take)
        with pytest.raises(RuntimeError, match="view has changed"):
            member.Group(board, 0, 1)
    gc.collect()
    assert not unraisable


def test_the_coordinator_does_not_wait_for_what_connections_say_or_take(server, monkeypatch):
    monkeypatch.setattr(coordinator, "_SPEAK", 0.1)
    monkeypatch.setattr(coordinator, "_TAKE", 0.1)
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as silent:
        assert silent.recv(1) == b""
    with socket.create_connection(("127.0.0.1", server.port), SECONDS) as deaf:
        told = {"run": "r", "rank": 0, "world": 2, "life": "a", "address": None, "holds": False}
        told |= {"ready": False, "at": 0, "number": 0, "view": 0, "lives": [], "hang": None}
        deaf.sendall(json.dumps(["hello", told]).encode() + b"\n")
        assert b"welcome" in deaf.recv(1000)
        [line] = server._lines.values()
        server._write(line, ["x" * 10**7])
        end = time.monotonic() + SECONDS
        while server.connected:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_nobody_waits_for_those_who_are_to_take_or_send_the_state_and_are_silent(
    server, monkeypatch
):
    monkeypatch.setattr(member, "_ANSWER", 0.4)
    monkeypatch.setattr(member, "_PIECE", 0.1)
    with members(server, 2, hang=0.1) as made, socket.create_server(("127.0.0.1", 0)) as silent:
        newcomer, other = made
        number = newcomer.there().number
        with pytest.raises(TimeoutError):
            other.call("a newcomer", list(silent.getsockname()), number)
        address = list(newcomer.state_at.getsockname()[:2])
        with socket.create_connection((address[0], address[1])):  # says nothing
            ends = together(
                lambda: newcomer.accept(number, SECONDS),
                lambda: other.call(newcomer.name, address, number),
            )
        with ends[0], ends[1]:
            with pytest.raises(TimeoutError):
                handover.receive(ends[0])
            with pytest.raises(TimeoutError):
                handover.send(ends[1], torch.ones(10**7))


@contextlib.contextmanager
def stopped(server):
    """Keep a server from hearing and saying anything."""
    with pytest.MonkeyPatch.context() as patch:
        over = threading.Event()
        patch.setattr(server, "_read", lambda line: over.wait(SECONDS))
        yield
        over.set()


def test_a_newcomer_takes_the_state_that_it_waits_for_alone(server):
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": [1, torch.zeros(0), "text"]}
    state["c"] = state["a"].bfloat16(), torch.nn.Parameter(torch.ones(()))
    with members(server, 2) as made:
        newcomer, other = made
        number = newcomer.there().number
        address = list(newcomer.state_at.getsockname()[:2])

        def send(name, number):
            with other.call(name, address, number) as line:
                handover.send(line, state)

        def receive():
            with newcomer.accept(number, SECONDS) as line:
                return handover.receive(line)

        refused = together(
            lambda: send(newcomer.name, number - 1), lambda: newcomer.accept(number, 0.5)
        )
        assert isinstance(refused[0], ConnectionError)
        assert isinstance(refused[1], TimeoutError)
        found, error = together(receive, lambda: send(newcomer.name, number))
        assert error is None
        assert torch.equal(found["a"], state["a"])
        assert found["b"][::2] == [1, "text"]
        assert torch.equal(found["c"][0], state["c"][0])
        assert found["c"][1].requires_grad
        newcomer.hold()
        other.close()
        with pytest.raises(ConnectionError, match="view has changed"):
            newcomer.accept(number, float("inf"))


def test_ends_of_other_connections_are_not_those_of_a_group(server):
    """What other threads connect while a group is built stays open when it is shut."""
    with socket.create_server(("127.0.0.1", 0)) as listener, members(server, 2) as made:
        pairs = []
        while any(each.view is None for each in made):
            pairs.append((socket.create_connection(listener.getsockname()), listener.accept()[0]))
        groups = [each.there().group for each in made]
        assert all(len(group.lines) >= 1 for group in groups)
        for group in groups:
            group.shut()
        for here, there in pairs:
            with here, there:
                here.sendall(b"!")
                assert there.recv(1) == b"!"


def test_what_a_step_leaves_as_it_was_goes_over_the_line_once():
    frozen, other = torch.arange(1000.0), torch.zeros(3, 2)
    state = {"a": frozen, "b": [other, torch.ones(()), torch.zeros(0)]}
    first = handover.digests(state)
    own = {"a": frozen.clone(), "b": [other + 1, torch.ones(()), torch.zeros(0)]}
    known = handover.kept(first, handover.digests(own))
    state["b"][0] = other - 1
    for has, sizes in ((known, (0, 600)), (b"", (4000, 4700))):
        sent = []
        here, there = socket.socketpair()

        class Counting:
            recv, recv_into = there.recv, there.recv_into

            @staticmethod
            def sendall(data, there=there, sent=sent):
                sent.append(len(data))
                there.sendall(data)

        with here, there:
            found, error = together(
                functools.partial(handover.receive, here, own, has),
                functools.partial(handover.send, Counting, state),
            )
        assert error is None
        assert torch.equal(found["a"], frozen)
        assert torch.equal(found["b"][0], other - 1)
        assert found["a"] is not own["a"]
        assert sizes[0] <= sum(sent) <= sizes[1]


def test_a_tensor_of_another_shape_or_dtype_is_not_kept():
    a, b = torch.zeros(6), torch.zeros(2, 3)
    assert handover.digests([a]) != handover.digests([b])
    assert handover.digests([a]) != handover.digests([a.int()])
    assert not handover.kept(handover.digests([a]), handover.digests([b])).strip(b"\0")
    assert handover.kept(b"", handover.digests([a])) == bytes(16)


def test_receive_says_if_the_sender_is_gone():
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"\0" * 7)
        there.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="gone"):
            handover.receive(here)


def test_forks_let_go_of_a_ranks_sockets(server):
    with members(server, 2) as made:
        for each in made:
            each.there()
        if not (pid := os.fork()):
            time.sleep(SECONDS)  # it outlives the rank
            os._exit(0)
        try:
            made[1].close()
            end = time.monotonic() + 5
            while server.connected > 1:
                assert time.monotonic() < end, "the fork holds the rank's connection"
                time.sleep(0.01)
        finally:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def test_own_host_is_that_of_gloos_interface(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert member.own_host() == "127.0.0.1"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nothing0")
    with pytest.raises(OSError, match="nothing0"):
        member.own_host()
