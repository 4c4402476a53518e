"""Gradient coding on Ray actors, on this machine or a cluster.

Each worker is an actor, and each of its messages is the result of one call. ``ray.wait`` returns
the calls that have ended, and arrays are read in place in the object store.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import DTypeLike

from .. import kernels
from .._base import extras as _extras
from .._base.arrays import Array
from .._base.deadline import in_time
from ..codes import Code
from .interface import (
    NONSENSE,
    Answering,
    Event,
    Gradient,
    Kind,
    Question,
    RoundKeywords,
    RoundOptions,
    Task,
)
from .master import Master
from .worker import Worker, failure

__all__ = ["RayCluster"]

_NONE = -1
_INLINE_BYTES = 100 * 1024  # largest arguments sent with a call: Ray's max_direct_call_object_size
_LOG = logging.getLogger("fastgc")
_SECONDS = 60.0  # seconds for Ray to take or to give an object, and to end
_ANSWER_SECONDS = 10.0  # seconds for an address to answer
# How clients of HTTP/2 begin, and so of gRPC; the server answers at once.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_OWN = (
    "lifetime",
    "concurrency_groups",
    "max_concurrency",
    "max_restarts",
    "max_task_retries",
    "name",
)


class RayCluster(Master):
    """One Ray actor for each worker of a code.

    `fastgc.engines.master.Master` explains what happens if a worker is slow or dies.

    Parameters
    ----------
    code, shards, gradient, size, dtype, options, **keywords
        As in `fastgc.engines.master.Master`.
    address : str, optional
        The Ray cluster to connect to, as ``ray.init`` takes it: ``"host:6379"``, or ``"auto"``.
        Default: the Ray that your program has initialised; otherwise the cluster that the
        environment variable ``RAY_ADDRESS`` names; otherwise a new one on this machine.
    actor_options : mapping, optional
        Options of the actors, as ``ray.remote`` takes them, for instance ``{"num_cpus": 1}`` or
        ``resources``. By default actors use none of Ray's CPUs, so that any number fits on any
        machine, and are spread over the machines.

    Raises
    ------
    ImportError
        Without Ray (``gradient-coding[ray]``).
    ConnectionError
        If there is no Ray at the address.
    TypeError, ValueError
        If an argument does not fit. These errors come before any worker is started.

    Notes
    -----
    The machines of a Ray cluster need fastgc, and the modules of `gradient` and shards. Each
    partition is in the object store once; workers read its arrays there, and cannot write to them.
    If a worker dies between two rounds, the master notices when it hands out the second. Ray gives
    an actor one BLAS thread, or as many as its ``num_cpus``.

    If a cluster started Ray or connected to it, Ray is shut down when the last cluster that uses it
    closes. If your program has initialised Ray, only the actors end.

    Examples
    --------
    >>> with RayCluster(code, shards, gradient, size=p) as cluster:  # doctest: +SKIP
    ...     report = cluster.step(theta, out=g)
    """

    def __init__(
        self,
        code: Code,
        shards: Sequence[Any],
        gradient: Gradient,
        size: int,
        dtype: DTypeLike = np.float64,
        *,
        address: str | None = None,
        actor_options: Mapping[str, Any] | None = None,
        options: RoundOptions | None = None,
        **keywords: Unpack[RoundKeywords],
    ) -> None:
        if address is not None and not isinstance(address, str):
            raise TypeError(f"address must be a string, not {address!r}")
        if isinstance(options, Mapping):
            raise TypeError("options of Ray's actors are given as actor_options=, not options=")
        if actor_options is not None and not isinstance(actor_options, Mapping):
            raise TypeError(f"actor_options must be a mapping, not {actor_options!r}")
        usual = {"num_cpus": 0, "scheduling_strategy": "SPREAD"}
        self._actor_options = {**usual, **(actor_options or {})}
        if taken := [name for name in _OWN if name in self._actor_options]:
            raise ValueError(f"actor_options must leave {', '.join(taken)} to the cluster")
        self._address = address
        super().__init__(code, shards, gradient, size, dtype, options=options, **keywords)

    def _open(self, task: Task) -> _Actors:
        return _Actors(task, self._address, self._actor_options)


class _Call(NamedTuple):
    """What an actor was called for: a message of a round, the start (round -1), or an answer."""

    worker: int
    round: int
    message: int
    delay: float
    question: int = _NONE


class _Actors(Answering):
    """The actors, and their calls that have not ended. An actor has one for start or messages."""

    def __init__(self, task: Task, address: str | None, options: dict[str, Any]) -> None:
        self.asks = task.asks
        self._ray = ray = _extras.ray()
        self._messages = task.code.scheme.messages.counts
        self._number = _NONE
        self._theta: Any = None
        self._calls: dict[Any, _Call] = {}
        self._further: dict[int, _Call] = {}  # by worker: the call that continues its round
        self._left: list[Event] = []
        self._actors: list[Any] = []
        self.hosts = [""] * task.code.n
        self._resources = contextlib.ExitStack()
        path = [os.path.abspath(folder) for folder in sys.path]
        this = os.path.abspath(Path(__file__).parents[1] / "__init__.py")
        if task.asks:
            options = options | {"concurrency_groups": {"messages": 1, "answers": 1}}
        remote = ray.remote(**options)(_actor_class(path, this, ray if task.asks else None))
        try:
            self._resources.enter_context(_connection(ray, address, task.code.n))
            shards = [self._put(shard) for shard in task.shards]
            self._data = replace(task, shards=shards).data
            self._common = self._put(task.without_data())
            self._new = remote.remote
            self._actors = [self._new() for _ in range(task.code.n)]
            for worker in range(task.code.n):
                self._start(worker)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._ray.is_initialized():  # the program may have shut it down
            for actor in self._actors:
                self._ray.kill(actor)
        self._resources.close()

    def _put(self, thing: Any) -> Any:
        """Put something into the object store of this machine."""
        try:
            return in_time(lambda: self._ray.put(thing), _SECONDS)
        except TimeoutError:
            raise TimeoutError(f"Ray on this machine has not answered for {_SECONDS:g} s") from None

    def _start(self, worker: int) -> None:
        # In lists, references are fetched by the actor itself, which can report what went wrong.
        call = self._actors[worker].start.remote(worker, [self._common], self._data(worker))
        self._calls[call] = _Call(worker, _NONE, _NONE, 0.0)

    def restart(self, worker: int) -> None:
        self._ray.kill(self._actors[worker])  # it may only have been out of reach
        self._calls = {ref: call for ref, call in self._calls.items() if call.worker != worker}
        self._actors[worker] = self._new()
        self._start(worker)

    def publish(self, number: int, theta: Array, in_use: set[int]) -> None:
        if not self._ray.is_initialized():
            raise RuntimeError("Ray was shut down while the cluster was open")
        self._left += [Event(Kind.LEFT, worker, self._number) for worker in self._further]
        self._further.clear()
        self._number = number
        # Through the object store small parameters would make a call half as long again.
        self._theta = theta.copy() if theta.nbytes <= _INLINE_BYTES else self._put(theta)

    def hand(self, worker: int, first: int, delay: float) -> None:
        self._call(_Call(worker, self._number, first, delay))

    def _call(self, call: _Call) -> None:
        message = self._actors[call.worker].message
        self._calls[message.remote(self._theta, call.message, call.round, call.delay)] = call

    def ask(self, worker: int, question: Question) -> None:
        call = self._actors[worker].answer.remote(question)
        self._calls[call] = _Call(worker, question.round, _NONE, 0.0, question.number)

    def listen(self, seconds: float) -> list[Event]:
        events, self._left = self._left, []
        if seconds > 0.0:  # the master waits in a round, and does not just look before the next one
            for call in self._further.values():
                self._call(call)
            self._further.clear()
        events += [self._event(*ended) for ended in self._ended(0.0 if events else seconds)]
        dead = {event.worker for event in events if event.kind == Kind.DIED}
        if dead:  # other calls of a dead worker report the same death
            self._calls = {
                ref: call for ref, call in self._calls.items() if call.worker not in dead
            }
            first = {event.worker: event for event in reversed(events) if event.kind == Kind.DIED}
            events = [e for e in events if e.kind != Kind.DIED or e is first[e.worker]]
        return events

    def _ended(self, seconds: float) -> list[tuple[_Call, Any]]:
        """Wait for a call to end; return all that have ended, and what they returned or raised."""
        if not self._calls:
            time.sleep(seconds)
            return []
        ended, others = self._ray.wait(list(self._calls), num_returns=1, timeout=seconds)
        if ended and others:
            ended += self._ray.wait(others, num_returns=len(others), timeout=0)[0]
        try:
            values = self._ray.get(ended, timeout=_SECONDS)
        except self._ray.exceptions.RayError:
            values = [self._value(call) for call in ended]
        return [(self._calls.pop(call), value) for call, value in zip(ended, values, strict=True)]

    def _value(self, call: Any) -> Any:
        try:
            return self._ray.get(call, timeout=_SECONDS)
        except self._ray.exceptions.RayError as error:
            return error

    def _event(self, call: _Call, value: Any) -> Event:
        worker, number, index, delay, _ = call
        if isinstance(value, bytes):
            return Event(Kind.FAILED, worker, number, text=value.decode(errors="replace"))
        if isinstance(value, self._ray.exceptions.RayTaskError):
            return Event(Kind.FAILED, worker, number, text=f":\n{value}")
        if isinstance(value, Exception):
            return Event(Kind.DIED, worker, text=f": {value}")
        if call.question != _NONE and value is None:
            return Event(Kind.ANSWER, worker, number, call.question)
        if index == _NONE and call.question == _NONE:
            self.hosts[worker] = "" if value == os.uname().nodename else str(value)
            return Event(Kind.JOINED, worker)
        if not _is_computed(value):
            return Event(Kind.DIED, worker, text=NONSENSE)
        message, energy = value
        if call.question != _NONE:
            return Event(Kind.ANSWER, worker, number, call.question, message, energy=energy)
        if index + 1 < self._messages[worker]:
            if number == self._number:
                self._further[worker] = _Call(worker, number, index + 1, delay)
            else:
                self._left.append(Event(Kind.LEFT, worker, number))
        return Event(Kind.MESSAGE, worker, number, index, message, energy=energy)


def _is_computed(value: Any) -> bool:
    """Whether an actor returned a message and its energy."""
    if not (isinstance(value, tuple) and len(value) == 2):
        return False
    return isinstance(value[0], np.ndarray) and isinstance(value[1], float | int)


def _actor_class(path: list[str], this: str, ray: Any) -> type:
    """The class of the actors, which imports this very package, with the path of this process.

    Ray lets an actor look in the current folder first, which may hold a checkout of fastgc that is
    not the one installed; the program's folder may, too. The class is local, so it is pickled by
    value and runs before any import. With `ray`, actors answer questions while they compute.
    """

    class _WorkerActor:
        def __init__(self) -> None:
            import importlib.util
            import os
            import sys

            sys.path[:0] = path
            if "fastgc" not in sys.modules and os.path.exists(this):  # else on another machine
                spec = importlib.util.spec_from_file_location("fastgc", this)
                assert spec is not None
                assert spec.loader is not None
                sys.modules["fastgc"] = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(sys.modules["fastgc"])
            from fastgc.engines.ray import _Side

            self._side = _Side()

        def start(self, *arguments: Any) -> Any:
            return self._side.start(*arguments)

        def message(self, *arguments: Any) -> Any:
            return self._side.message(*arguments)

        def answer(self, *arguments: Any) -> Any:
            return self._side.answer(*arguments)

    if ray is not None:
        threads = {"start": "messages", "message": "messages", "answer": "answers"}
        for name, group in threads.items():
            method = ray.method(concurrency_group=group)(getattr(_WorkerActor, name))
            setattr(_WorkerActor, name, method)
    return _WorkerActor


class _Side:
    """A worker in its process."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def start(
        self, number: int, common: list[Any], data: list[list[tuple[int, Any]]]
    ) -> bytes | str:
        """Get ready; return the name of the machine, or what went wrong."""
        ray = _extras.ray()
        try:
            task = ray.get(common[0])
            # Ray's handler of SIGTERM raises, as if the computation had failed.
            with contextlib.suppress(ValueError):  # raised outside of the main thread
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            kernels.threads.set_num_threads(1)
            shards = [[(partition, ray.get(shard)) for partition, shard in part] for part in data]
            self._worker = Worker(number, task, shards)
        except BaseException:
            return failure(None)
        return os.uname().nodename

    def message(
        self, theta: Array, index: int, round: int, delay: float
    ) -> tuple[Array, float] | bytes:
        """Compute a message, or return what went wrong."""
        assert self._worker is not None
        try:
            time.sleep(self._worker.sleep_before(index, delay))
            return self._worker.message(theta, index, round)
        except BaseException:
            return failure(self._worker)

    def answer(self, question: Question) -> tuple[Array, float] | bytes | None:
        """Answer a question, or return what went wrong."""
        assert self._worker is not None
        try:
            return self._worker.answer(question)
        except BaseException:
            return failure(self._worker)


_clusters = 0  # clusters that use a Ray that was started or connected to for them
_ours = contextlib.ExitStack()  # ends that Ray


@contextlib.contextmanager
def _connection(ray: Any, address: str | None, workers: int) -> Iterator[None]:
    """Connect to Ray if the program is not; disconnect when no other cluster needs it."""
    global _clusters
    if not ray.is_initialized():
        _clusters = 0  # the program has shut down the one there was
        _ours.close()
        _connect(ray, address, workers)
    elif address not in (None, "auto", here := ray.get_runtime_context().gcs_address):
        raise ValueError(f"Ray is initialised already, at {here}: leave out address={address!r}")
    elif not _clusters:
        yield
        return
    _clusters += 1
    try:
        yield
    finally:
        _clusters -= 1
        if not _clusters:
            _ours.close()


def _connect(ray: Any, address: str | None, workers: int) -> None:
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    quiet: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
    if address == "local":
        # A temporary folder of its own; paths of sockets in it must be short.
        root = os.environ.get("RAY_TMPDIR", "/tmp")
        folder = tempfile.TemporaryDirectory(prefix="fastgc-", dir=root, ignore_cleanup_errors=True)
        quiet |= {"include_dashboard": False, "_temp_dir": _ours.enter_context(folder)}
    _ours.callback(_shut_down, ray)
    try:
        _check_answers(address)
        with _start_environment(workers):
            ray.init(address, **quiet)
    except BaseException as error:
        _ours.close()
        if isinstance(error, TypeError | ValueError) or not isinstance(error, Exception):
            raise
        raise ConnectionError(f"no Ray to use at the address {address!r}: {error}") from error


def _check_answers(address: str) -> None:
    """Raise OSError if nothing answers at "host:port"; Ray would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS) as line:
            line.sendall(_GREETING)
            with contextlib.suppress(ConnectionResetError):  # it wants TLS
                line.recv(1)


@contextlib.contextmanager
def _start_environment(workers: int) -> Iterator[None]:
    """Set the environment that Ray reads at its start, and let Ray log errors only."""
    changes = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the coming default: Ray warns of the old one
        # Ray warns if there are four times as many processes as this.
        "RAY_worker_maximum_startup_concurrency": str(max(os.cpu_count() or 1, workers // 3 + 1)),
    }
    before = {name: os.environ[name] for name in changes if name in os.environ}
    logger = logging.getLogger("ray")
    level = logger.level
    os.environ.update(changes)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name in changes:
            os.environ.pop(name, None)
        os.environ.update(before)


def _shut_down(ray: Any) -> None:
    waits = "wait_for_processes" in inspect.signature(ray.shutdown).parameters
    options = {"wait_for_processes": True} if waits else {}
    node = getattr(ray._private.worker, "_global_node", None)
    try:
        in_time(lambda: ray.shutdown(**options), _SECONDS)
    except TimeoutError:  # one of its processes is stopped, or its machine is gone
        _LOG.warning("Ray has not ended within %g s: it is killed when the program ends", _SECONDS)
        if node is not None:  # not now: programs whose Ray is killed are ended by it
            atexit.register(node.kill_all_processes, check_alive=False, allow_graceful=False)
