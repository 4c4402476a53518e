"""Coded steps of a script that keeps its DistributedDataParallel.

While the backward pass runs, DDP gives gradients to its communication hook, in buckets. A thread
sums them over ranks, part by part, and completes the hook's futures when the step is done. DDP's
own process group has one member, so it survives any death.

Parts are ranges of the parameters, the last first, and are the same on all ranks. DDP's buckets are
not: DDP rearranges them after its first step, and a rank that joins has its first step later. If a
view breaks within a step, the next view sums all parts again. Gradients stay as they were until all
parts are summed.

With reactive redundancy, the thread only sums up gradients that ranks have, in a view that they
know. If that fails, it leaves gradients as they are, and ``backward()`` does the step when DDP has
ended its own: then `recompute` may run another backward pass. DDP holds a lock before that.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

from ..codes import Code
from .all_reduce import CodedAllReduce, Recompute, _Reactive
from .audit import Audit
from .membership import BrokenGroupError, View
from .sampler import CodedSampler

_engine: Any = torch.autograd.Variable._execution_engine


class _NotYetError(Exception):
    """The step cannot be done before DDP has ended its own."""


class _Backward:
    """The gradients that a backward pass has computed so far."""

    def __init__(self) -> None:
        self.views: dict[torch.Tensor, torch.Tensor] = {}  # each parameter's gradient in its bucket
        self.error: BaseException | None = None
        self.after = False  # whether the step is still to be done when DDP has ended its own
        self._given_up = False
        self._futures: list[tuple[torch.futures.Future[torch.Tensor], torch.Tensor]] = []
        self._events: dict[torch.Tensor, Any] = {}
        self._all = False
        self._changed = threading.Condition()

    def add(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """Note a bucket's gradients, which its device may still be computing."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        buffer = bucket.buffer()
        event = None
        if buffer.device.type != "cpu":
            event = getattr(torch, buffer.device.type).Event()
            event.record()
        with self._changed:
            self._futures.append((future, buffer))
            for p, view in zip(bucket.parameters(), bucket.gradients(), strict=True):
                self.views[p], self._events[p] = _like(p, view), event
            self._all = bucket.is_last()
            self._changed.notify_all()
        return future

    def wait(self, parameters: Sequence[torch.Tensor] | None = None) -> None:
        """Wait until the gradients of `parameters`, or of all parameters, are there.

        Raise RuntimeError if DDP leaves out one of these, or the pass was given up.
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
        """Note that the pass has raised, so no further gradient comes."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    def end(self) -> None:
        """Complete the hook's futures, when all gradients are there."""
        self.wait()
        for future, buffer in self._futures:
            if buffer.device.type != "cpu":
                getattr(torch, buffer.device.type).current_stream(buffer.device).synchronize()
            future.set_result(buffer)


class _Hooked(CodedAllReduce):
    """A `CodedAllReduce` that DDP calls in the course of ``backward()``."""

    def __init__(self, ddp: DistributedDataParallel, code: Code, **options: Any) -> None:
        self._backward: _Backward | None = None  # the pass under way
        if callable(recompute := options["recompute"]):

            def unsynced(indices: list[int]) -> Sequence[float] | None:
                # Without no_sync, a recompute that calls ddp would begin another step.
                with ddp.no_sync(), torch.enable_grad():
                    found: Sequence[float] | None = recompute(indices)
                    return found

            options["recompute"] = unsynced
        super().__init__(ddp.module, code, **options)
        self._ranges = ranges(self._parameters, ddp.bucket_bytes_cap)
        try:
            # A lambda, because DDP checks the annotations of the hook that it gets.
            ddp.register_comm_hook(None, lambda state, bucket: self._hook(bucket))
        except BaseException:
            self._leave()
            raise

    def __call__(self, *sums: float) -> tuple[float, ...]:
        """Raise, because DDP makes the call."""
        raise RuntimeError(
            "DistributedDataParallel sums up gradients in backward() itself: there is nothing to "
            "call"
        )

    def __exit__(self, kind: object, *rest: object) -> None:
        self._give_up()
        super().__exit__(kind, *rest)

    def close(self) -> None:
        """Close as `CodedAllReduce` does; leave the others if a ``backward()`` raised midway."""
        self._give_up()
        super().close()

    def _give_up(self) -> None:
        """Leave if a ``backward()`` has raised midway: DDP cannot start another one after that."""
        if self._backward is not None:
            self._backward.give_up()
            self._leave()

    def _hook(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        if self._backward is None:
            self._backward = _Backward()
            try:
                self._require_gradients()
            except RuntimeError as error:
                self._backward.error = error
            threading.Thread(
                target=self._run, args=(self._backward,), name="fastgc-ddp", daemon=True
            ).start()
        backward = self._backward
        future = backward.add(bucket)
        if bucket.is_last():
            # Queued twice, to run after DDP's own callback, which waits for the futures.
            _engine.queue_callback(lambda: _engine.queue_callback(lambda: self._end(backward)))
        return future

    def _run(self, backward: _Backward) -> None:
        try:
            if backward.error is None:
                if self._position is not None:
                    self._position.check()
                    if self._reactive is not None:
                        if not self._reactive.whole(self._position.at):
                            raise _NotYetError
                        self._reactive.begin(self._position.at, ())
                self._step(())
        except _NotYetError:
            self._members.since = None  # do not wait for others: the backward pass goes on
            backward.after = True
        except BaseException as error:
            backward.error = error
        with contextlib.suppress(RuntimeError):  # the pass was given up
            backward.end()

    def _end(self, backward: _Backward) -> None:
        """End a step: DDP has set every ``.grad``, and ``backward()`` is about to return."""
        self._backward = None
        if backward.error is not None:
            raise backward.error
        if backward.after:
            super().__call__()
        else:
            self._given.note()

    def _in_some_view(self, work: Callable[[View], None]) -> View | None:
        if self._backward is None or self._reactive is None:
            return super()._in_some_view(work)
        view = self._members.view()
        if view.number != self._compared:
            raise _NotYetError
        try:
            work(view)
        except BrokenGroupError:
            raise _NotYetError from None
        return view

    def _sum_once(self, view: View, reactive: _Reactive, audit: Audit | None) -> None:
        if self._backward is None:
            super()._sum_once(view, reactive, audit)
            return
        self._sum(view, 1.0, ())
        if not self._next.complete:
            raise _NotYetError

    def _sum(self, view: View, own: float, sums: Sequence[float]) -> None:
        backward, message = self._backward, self._next
        assert backward is not None
        done = () if self._reactive is None else self._reactive.done
        message.take_rest(own, 1 / len(view.ranks), sums, done)
        message.used.fill_(1.0)  # DDP refuses parameters without a gradient
        end = len(message.flat)
        for begin, of in self._ranges:
            self._members.since = None  # do not wait for others before this rank has its gradients
            backward.wait(self._parameters[of])
            message.take_gradients(own, of)
            view.sum(message.flat[begin:end], self._patience(view))
            end = begin

    def _takes_means(self, half: bool) -> bool:
        return self._backward is None and super()._takes_means(half)

    def _give(self) -> None:
        if self._backward is None:
            super()._give()
            return
        self._backward.wait()
        self._kept.give(self._backward.views)


def _like(parameter: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
    """Return a part of a bucket as the gradient of `parameter`.

    DDP lays out gradients in a bucket as their parameters are in memory, if those have no gaps. The
    bucket's own views do not tell.
    """
    if torch.empty_like(parameter, device="meta").stride() != parameter.stride():
        return view
    return view.as_strided(parameter.size(), parameter.stride())


def ranges(parameters: Sequence[torch.Tensor], size: int) -> list[tuple[int, slice]]:
    """Return ranges of parameters of at least `size` bytes, the last first.

    Of each range: where it begins in the vector of all parameters, and its slice of `parameters`.
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
    redundancy: str = "proactive",
    recompute: Recompute | None = None,
) -> CodedAllReduce:
    """Let the ``backward()`` of a DistributedDataParallel survive the death of ranks.

    DDP's own process group has one member, this process. While the backward pass runs, DDP's
    communication hook sums the coded gradients of all ranks, as `CodedAllReduce` does. The loop
    stays that of DDP::

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
        Its process group has one member. Its ``bucket_cap_mb`` is the size of the parts in which
        messages are summed, and must be the same on all ranks.
    code, sampler, accumulate, state, deadline, settle, partial, buffers, redundancy
        As in `CodedAllReduce`. The gradients of batches within ``ddp.no_sync()``, and of the one
        after, are added up.
    store : torch.distributed.Store, optional
        The store through which ranks agree on who takes part. Default: that of torchrun.
    rank : int, optional
        Default: that of torchrun.
    recompute : callable, optional
        For reactive redundancy, as in `CodedAllReduce`. It may call `ddp` or its module. It is
        called within ``backward()``, outside of the loop's ``torch.autocast``.

    Returns
    -------
    CodedAllReduce
        ``backward()`` calls it, and raises its errors. After a `fastgc.LeftOutError`, call its
        ``join()``, and the loop may go on.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit, if DDP's group has other members, if DDP has
        ``find_unused_parameters``, ``static_graph`` or ``mixed_precision``, or if its module has
        sparse gradients.
    RuntimeError
        As `CodedAllReduce` does; also if DDP has a communication hook already.

    Notes
    -----
    Losses are sums over the rank's own samples, times ``sampler.weights`` if the code has weights,
    divided by the number of samples of all ranks. `CodedAllReduce` checks that in the first step.
    DDP's own broadcasts of parameters and buffers have no effect: ranks begin with equal ones, and
    `buffers` says what happens to buffers that forward changes.

    With reactive redundancy, the first step of a group, and a step in which a rank dies, are summed
    when the backward pass is over.
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
        redundancy=redundancy,
        recompute=recompute,
    )


def _check_options(ddp: DistributedDataParallel) -> None:
    size = ddp.process_group.size()
    if size > 1:
        raise ValueError(
            f"the process group of ddp has {size} members, of which none may die: give each "
            'process one of its own, init_process_group("gloo", store=HashStore(), rank=0, '
            "world_size=1)"
        )
    for name, each in ddp.module.named_modules():
        if isinstance(each, torch.nn.Embedding | torch.nn.EmbeddingBag) and each.sparse:
            raise ValueError(
                f"module {name} has sparse gradients, which coded_ddp cannot sum up: make it "
                "without sparse=True, or call a CodedAllReduce of the plain module after backward()"
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
