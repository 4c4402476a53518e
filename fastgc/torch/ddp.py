"""Coded steps of a script that stays with DistributedDataParallel.

Its communication hook is given gradients in buckets while the backward pass runs. A thread sums
them up among ranks, part by part, and the hook's futures are done when the step is. DDP's own group
has one member: whoever dies, it stays.

Parts are ranges of the parameters, the last first, which are the same on all ranks. DDP's buckets
are not: it arranges them anew after its first step, which a rank that joins has later than others.
When a view breaks within a step, all parts of it are summed up once more in the next one: gradients
stay as they were until the sum of all parts is there.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from ..codes import Code
from .all_reduce import CodedAllReduce
from .membership import View
from .sampler import CodedSampler

__all__ = ["coded_ddp"]

_engine: Any = torch.autograd.Variable._execution_engine


class _Backward:
    """What a backward pass has brought so far."""

    def __init__(self) -> None:
        self.views: dict[torch.Tensor, torch.Tensor] = {}  # of parameters, in the buckets
        self.error: BaseException | None = None
        self._given_up = False
        self._futures: list[tuple[torch.futures.Future[torch.Tensor], torch.Tensor]] = []
        self._events: dict[torch.Tensor, Any] = {}
        self._all = False
        self._changed = threading.Condition()

    def add(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Take note of a bucket's gradients, which this device may still compute."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        buffer = bucket.buffer()
        event = None
        if buffer.device.type != "cpu":
            event = getattr(torch, buffer.device.type).Event()
            event.record()
        with self._changed:
            self._futures.append((future, buffer))
            for p, view in zip(bucket.parameters(), bucket.gradients(), strict=True):
                self.views[p], self._events[p] = view, event
            self._all = bucket.is_last()
            self._changed.notify_all()
        return future

    def wait(self, parameters: Sequence[torch.Tensor] | None = None) -> None:
        """Wait until these parameters' gradients are there, or all.

        Raises
        ------
        RuntimeError
            If DDP does not sum up one of these parameters, or nobody goes on with this pass.
        """

        def there() -> bool:
            return parameters is not None and all(p in self.views for p in parameters)

        with self._changed:
            self._changed.wait_for(lambda: self._all or there() or self._given_up)
            if self._given_up:
                raise RuntimeError("backward() ended before all gradients were there")
            if parameters is not None and not there():
                raise RuntimeError(
                    "DistributedDataParallel leaves out parameters of its module that require "
                    "gradients: here all are summed up"
                )
            events = set(map(self._events.get, parameters or self.views))
        for event in events:
            if event is not None:
                event.synchronize()

    def give_up(self) -> None:
        """Nothing more will be added: the pass has raised."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def end(self) -> None:
        """Hand the buckets back."""
        self.wait()
        for future, buffer in self._futures:
            if buffer.device.type != "cpu":
                getattr(torch, buffer.device.type).current_stream(buffer.device).synchronize()
            future.set_result(buffer)


class _Hooked(CodedAllReduce):
    """A `CodedAllReduce` that is called by DDP, in the course of ``backward()``."""

    def __init__(self, ddp: DistributedDataParallel, code: Code, **options: Any) -> None:
        self._backward: _Backward | None = None  # that is under way
        super().__init__(ddp.module, code, **options)
        self._ranges = _ranges(self._parameters, ddp.bucket_bytes_cap)
        try:
            # DDP reads the annotations of what it is given.
            ddp.register_comm_hook(None, lambda state, bucket: self._hook(bucket))
        except BaseException:
            self._leave()
            raise

    def __call__(self, *sums: float) -> tuple[float, ...]:
        """Refuse: DDP calls it."""
        raise RuntimeError(
            "DistributedDataParallel sums up gradients in backward() itself: there is nothing to "
            "call"
        )

    def __exit__(self, kind: object, *rest: object) -> None:
        self._give_up()
        super().__exit__(kind, *rest)

    def close(self) -> None:
        """As of `CodedAllReduce`; after a ``backward()`` that raised midway leave the others."""
        self._give_up()
        super().close()

    def _give_up(self) -> None:
        """Leave, if a ``backward()`` has raised midway: DDP starts no other after that."""
        if self._backward is not None:
            self._backward.give_up()
            self._leave()

    def _hook(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        if self._backward is None:
            self._backward = _Backward()
            try:
                self._given.require_none()
            except RuntimeError as error:
                self._backward.error = error
            threading.Thread(
                target=self._run, args=(self._backward,), name="fastgc-ddp", daemon=True
            ).start()
        backward = self._backward
        future = backward.add(bucket)
        if bucket.is_last():
            # Twice: DDP's own call, which waits for the futures, comes between the two.
            _engine.queue_callback(lambda: _engine.queue_callback(lambda: self._end(backward)))
        return future

    def _run(self, backward: _Backward) -> None:
        try:
            if backward.error is None:
                if self._position is not None:
                    self._position.check()
                self._step(())
        except BaseException as error:
            backward.error = error
        with contextlib.suppress(RuntimeError):  # it was given up
            backward.end()

    def _end(self, backward: _Backward) -> None:
        """At the end of ``backward()``, when DDP has set every ``.grad``."""
        self._backward = None
        if backward.error is not None:
            raise backward.error
        self._given.note()

    def _sum(self, view: View, own: float, sums: Sequence[float]) -> None:
        backward, message = self._backward, self._next
        assert backward is not None
        message.take_rest(own, 1 / len(view.ranks), sums)
        message.used.fill_(1.0)  # DDP refuses parameters without a gradient
        end = len(message.flat)
        for begin, of in self._ranges:
            self._members.since = None  # others are not waited for before this rank has its own
            backward.wait(self._parameters[of])
            message.take_gradients(own, of)
            view.sum(message.flat[begin:end], self._patience(view))
            end = begin

    def _give(self) -> None:
        assert self._backward is not None
        self._backward.wait()
        self._kept.give(self._backward.views)


def _ranges(parameters: Sequence[torch.Tensor], size: int) -> list[tuple[int, slice]]:
    """Ranges of parameters of so many bytes or more, the last first.

    Of each, where it begins in the vector of all parameters, and which ones it has.
    """
    found, begin, end, taken = [], sum(p.numel() for p in parameters), len(parameters), 0
    for at in reversed(range(len(parameters))):
        begin -= parameters[at].numel()
        taken += parameters[at].numel() * parameters[at].element_size()
        if taken >= size or at == 0:
            found.append((begin, slice(at, end)))
            end, taken = at, 0
    return found


def coded_ddp(
    ddp: DistributedDataParallel,
    code: Code,
    *,
    sampler: CodedSampler | None = None,
    accumulate: int = 1,
    state: Iterable[Any] = (),
    store: Any = None,
    rank: int | None = None,
    deadline: float | Literal["auto"] = 60.0,
    settle: float = 0.3,
    partial: bool = False,
    buffers: str = "error",
) -> CodedAllReduce:
    """Let the ``backward()`` of a DistributedDataParallel survive the death of ranks.

    DDP's own process group has one member, this process; its communication hook sums up coded
    gradients of all ranks, as `CodedAllReduce` does with proactive redundancy, while the backward
    pass runs. The loop stays that of DDP::

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        ddp = DistributedDataParallel(model)
        sampler = CodedSampler(dataset, code, batch_size=512)
        loader = DataLoader(dataset, batch_sampler=sampler)
        with coded_ddp(ddp, code, sampler=sampler, state=[optimizer]) as coded:
            while sampler.epoch < 10:
                for x, y in loader:
                    optimizer.zero_grad()
                    (cross_entropy(ddp(x), y, reduction="sum") / 512).backward()
                    optimizer.step()

    Parameters
    ----------
    ddp : torch.nn.parallel.DistributedDataParallel
        Whose process group has one member. Messages are summed up in parts of its
        ``bucket_cap_mb``, which is the same on all ranks.
    code, sampler, accumulate, state, deadline, settle, partial, buffers
        As of `CodedAllReduce`. Batches whose gradients are added up are those within
        ``ddp.no_sync()``, and the one after.
    store : torch.distributed.Store, optional
        By which ranks agree who takes part. Default: that of torchrun.
    rank : int, optional
        Default: that of torchrun.

    Returns
    -------
    CodedAllReduce
        With its attributes, ``join()`` and ``close()``. ``backward()`` calls it, and raises what
        it raises; after a `fastgc.LeftOutError` and ``join()`` the loop may go on.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit, or DDP has another group, ``find_unused_parameters``,
        ``static_graph`` or ``mixed_precision``.
    RuntimeError
        As of `CodedAllReduce`; or if DDP has a communication hook already.

    Notes
    -----
    Losses are sums over the rank's own samples, times ``sampler.weights`` where the code has some,
    and divided by the number of samples that all ranks have: `CodedAllReduce` checks that in the
    first step. DDP's own broadcasts of parameters and buffers reach nobody: ranks begin with the
    same ones, and `buffers` says what becomes of those that forward changes.
    """
    if not isinstance(ddp, DistributedDataParallel):
        raise TypeError(f"ddp must be a DistributedDataParallel, not {type(ddp).__name__}")
    _check_options(ddp)
    return _Hooked(
        ddp,
        code,
        sampler=sampler,
        accumulate=accumulate,
        state=state,
        store=store,
        rank=rank,
        deadline=deadline,
        settle=settle,
        partial=partial,
        buffers=buffers,
    )


def _check_options(ddp: DistributedDataParallel) -> None:
    size = ddp.process_group.size()
    if size > 1:
        raise ValueError(
            f"the process group of ddp has {size} members, of which none may die: give each "
            'process one of its own, init_process_group("gloo", store=HashStore(), rank=0, '
            "world_size=1)"
        )
    for name, why in (
        ("find_unused_parameters", "a step ends when every parameter has its gradient"),
        ("static_graph", "its first step sums up when the backward pass is over"),
        ("mixed_precision", "gradients are summed up in the precision of parameters"),
    ):
        if getattr(ddp, name, None):
            raise ValueError(
                f"DistributedDataParallel({name}=...) does not fit coded_ddp, for {why}: leave it "
                "out, or call a CodedAllReduce of the plain module after backward()"
            )
