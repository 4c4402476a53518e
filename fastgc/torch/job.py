"""What workers compute of a module: gradients of weighted losses, on parameters without a copy."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import torch

from .._base.arrays import Array, Ints
from ..codes import Code
from ..engines import Task
from ..engines.interface import Messages
from ..engines.memory import packed
from ..engines.worker import Encoded
from .batches import Drawn, Feed, Loader, edges, pickled, seed_all
from .parameters import as_tensor, trainable, views

Loss = Callable[[torch.nn.Module, Any], Any]
Device = Any  # of torch.device, or a function from a worker's number to one
Jobs = list[tuple[int, float]]  # partitions that are added up, and the weight of each

SAME = 1e-3  # largest relative difference of losses that should be equal
SAMPLES = 8  # number of samples on which a loss is tried


class Layout(NamedTuple):
    """What the vector of parameters and the messages hold besides a module's parameters.

    The vector of parameters: the module's parameters, the step, and the indices of the batch and of
    batches to come.

    A message: the gradients, the loss, further sums, and whether each parameter was used.
    """

    parameters: int
    tensors: int
    sums: int
    batch: int
    ahead: int  # batches

    @property
    def theta_size(self) -> int:
        """Length of the vector that the master sends."""
        return self.parameters + 2 * (1 + (1 + self.ahead) * self.batch)

    @property
    def message_size(self) -> int:
        """Length of a decoded message."""
        return self.parameters + self.numbers

    @property
    def numbers(self) -> int:
        """How many numbers besides gradients a message holds."""
        return 1 + self.sums + self.tensors

    def _integers(self, theta: Array) -> Ints:
        tail: Ints = theta[self.parameters :].view(np.int64)
        return tail[: 1 + (1 + self.ahead) * self.batch]

    def put(self, theta: Array, step: int, indices: Ints) -> None:
        """Write a step and indices, a row for each batch, behind the parameters."""
        integers = self._integers(theta)
        integers[0], integers[1:] = step, indices.ravel()

    def take(self, theta: Array) -> tuple[int, Ints]:
        """Return the step and the indices that `put` wrote."""
        integers = self._integers(theta)
        return int(integers[0]), integers[1:].reshape(1 + self.ahead, self.batch)


def copied(*things: Any) -> Any:
    """Return things as a worker gets them: a loss that refers to the module refers to its copy."""
    return pickle.loads(packed(things))


def losses(loss: Loss, module: torch.nn.Module, batch: Any) -> tuple[torch.Tensor, list[float]]:
    """Return a loss's tensor of one number, and its further sums; TypeError if it has neither."""
    values = loss(module, batch)
    torch.clear_autocast_cache()  # inside another autocast, backward needs these copies only once
    first, *sums = values if isinstance(values, tuple | list) else (values,)
    if not isinstance(first, torch.Tensor):
        raise TypeError(
            f"loss must return the sum of the samples' losses as a tensor, or a tuple of it and "
            f"further sums, not {type(first).__name__}"
        )
    if first.numel() != 1:
        raise TypeError(
            f"loss must return one number, the sum over the batch's samples, not a tensor of shape "
            f'{tuple(first.shape)}: reduction="sum"?'
        )
    further = [each.detach() if isinstance(each, torch.Tensor) else each for each in sums]
    return first.reshape(()), [float(each) for each in further]


@torch.no_grad()
def check_sum(
    loss: Callable[[int, int], float], size: int, modules: Iterable[torch.nn.Module]
) -> None:
    """Raise RuntimeError unless the loss of a batch's first samples is the sum of its halves'.

    ``loss(begin, end)`` computes the loss of samples `begin`, …, `end` − 1 of a batch of this size.
    """
    few = min(SAMPLES, size)
    half = few // 2
    if not half:
        return
    modes = [(m, m.training) for module in modules for m in module.modules()]
    found = []
    compiler: Any = torch.compiler
    eagerly = getattr(compiler, "set_stance", contextlib.nullcontext)  # as of version 2.6
    try:
        for m, _ in modes:
            m.training = False  # no dropout, and BatchNorm does not mix samples
        for parts in ([(0, few)], [(0, half), (half, few)]):
            seed_all(0)
            with eagerly("force_eager"):  # do not compile for so few samples
                found.append(sum(loss(*part) for part in parts))
    except Exception:  # some modules compute something else in this mode
        return
    finally:
        for m, mode in modes:
            m.training = mode
    whole, halves = found
    if not np.isfinite(found).all() or abs(whole - halves) <= SAME * max(map(abs, found)):
        return
    if abs(2 * whole - halves) <= SAME * abs(halves):
        raise RuntimeError(
            "loss returns the mean over the batch's samples, and must return their sum "
            '(reduction="sum"); gradients are divided by the size of the whole batch here'
        )
    raise RuntimeError(
        f"loss must return the sum over the batch's samples: for {few} samples it is "
        f"{whole:.6g}, but for the first {half} plus for the others it is {halves:.6g}"
    )


def weights_losses(code: Code) -> bool:
    """Whether messages are gradients of weighted losses: as long, with real coefficients."""
    rows = [
        code.coefficients(worker, index)
        for worker in range(code.n)
        for index in range(int(code.scheme.messages.counts[worker]))
    ]
    return all(row.ndim == 1 and np.isrealobj(row) for row in rows)


@dataclass(eq=False, repr=False)
class Job:
    """What all workers need. It is pickled by value if it cannot be imported.

    `scale` multiplies the loss, and so the gradients. As many processes fetch samples as batches
    are sent ahead. All else is as in `fastgc.torch.CodedDataParallel`.
    """

    modules = ("torch", __name__)  # imported in the process from which workers are forked
    of_main = False  # objects of __main__ are pickled by value

    module: torch.nn.Module
    loss: Loss
    feed: Feed
    layout: Layout
    partitions: int
    seed: int
    scale: float
    device: Device
    threads: int
    default_dtype: torch.dtype = field(default_factory=torch.get_default_dtype)
    _own: _Replica | None = None  # in the process of a worker

    @property
    def parameters(self) -> int:
        """Length of the vector that the master sends."""
        return self.layout.theta_size

    def __call__(
        self, theta: Array, shard: object, out: Array, *, partition: int, round: int
    ) -> None:
        """Write one partition's part of a message, computed by a copy of the module."""
        if self._own is None:
            self._own = _Replica(self, copy.deepcopy(self.module))
        self._own(theta, shard, out, partition=partition, round=round)

    def worker(self, number: int, task: Task, out: Sequence[Array] | None) -> Messages:
        """Return an object that computes the messages of worker `number`.

        All in a process use one module; the first one's samples are fetched ahead.
        """
        code, weighted = task.code, weights_losses(task.code)
        messages = range(int(code.scheme.messages.counts[number]))
        held = [code.partitions(number, index).tolist() for index in messages]
        weights = [
            code.coefficients(number, index).tolist() if weighted else [1.0] * len(held[index])
            for index in messages
        ]
        jobs = [list(zip(*each, strict=True)) for each in zip(held, weights, strict=True)]
        if self._own is None:
            torch.set_num_threads(self.threads)
            # The loader forks its processes before this touches a device: forks cannot use one.
            ahead = self.layout.ahead
            loader = Loader(self.feed, self.seed, ahead) if ahead else None
            device = self.device(number) if callable(self.device) else self.device
            writes = jobs if weighted else [[each] for job in jobs for each in job]
            self._own = _Replica(self, self.module, device, loader, writes)
        if weighted:
            return _Weighted(jobs, self._own, task, out)
        data = [[(j, None) for j in each] for each in held]
        return Encoded(number, replace(task, gradient=self._own), data, out)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        buffers: list[pickle.PickleBuffer] = []
        apart = buffers.append if protocol.__index__() >= 5 else None  # engines may share these
        state = self.__dict__ | {"_own": None}
        return _load, (pickled(state, apart), buffers)


def _load(state: bytes, buffers: list[Any]) -> Job:
    job = Job.__new__(Job)
    job.__dict__.update(pickle.loads(state, buffers=buffers))
    return job


class _Weighted:
    """Compute messages as gradients of weighted sums of losses."""

    def __init__(
        self, jobs: list[Jobs], replica: _Replica, task: Task, out: Sequence[Array] | None
    ) -> None:
        self._jobs, self._replica = jobs, replica
        self._form = form = task.code.scheme.format(task.size, task.dtype, task.message_dtype)
        if out is None:
            out = [np.empty(task.message_size, task.message_dtype) for _ in jobs]
        # Where several passes would be rounded, or overflow has to be seen, the sums lie apart.
        wide = form.sum_dtype != form.message_dtype
        self._slots, self._sums = out, np.empty(form.message_size, form.sum_dtype) if wide else None

    @property
    def partition(self) -> int:
        """The partition that is being computed; -1 if none."""
        return self._replica.partition

    def __call__(self, theta: Array, index: int, round: int) -> tuple[Array, float]:
        """Compute a message (`Messages`)."""
        self._replica.load(theta)
        slot, sums = self._slots[index], self._sums
        self._replica.write(slot if sums is None else sums, self._jobs[index])
        if sums is not None:
            self._form.finish(sums, slot)
        return slot, math.nan


class _Replica:
    """A copy of the module, whose parameters are views of the vector that the master sends.

    It computes gradients of weighted sums of losses: by one forward pass if the weights are equal
    and nothing is drawn at random, otherwise partition by partition. (One pass instead of two makes
    a step of a multilayer perceptron with 1M parameters 2 to 3 times as fast.) `writes` says what
    each step computes.
    """

    def __init__(
        self,
        job: Job,
        module: torch.nn.Module,
        device: Device = None,
        loader: Loader | None = None,
        writes: Sequence[Jobs] = (),
    ) -> None:
        self._job, self._module, self._loader, self._writes = job, module, loader, writes
        self._layout = job.layout
        self._parameters = trainable(module)
        self._device = torch.device("cpu" if device is None else device)
        # Whether partitions are computed one by one; None: it is not known yet.
        self._alone: bool | None = None
        self._edges = edges(job.layout.batch, job.partitions)
        self._target: list[torch.Tensor] = []
        self._views: dict[tuple[int, str], tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self._used = [False] * len(self._parameters)
        self.partition = self.step = -1
        # On another device than the CPU: its parameters and gradients.
        self._flat: torch.Tensor | None = None
        if self._device.type != "cpu":
            module.to(self._device)
            size, dtype = (2, job.layout.parameters), self._parameters[0].dtype
            self._flat = torch.empty(size, dtype=dtype, device=self._device)
            here, self._there = (views(each, self._parameters) for each in self._flat)
            self._point_to(here)
        for t, p in enumerate(self._parameters):
            p.grad = None
            hook: Any = p.register_post_accumulate_grad_hook
            hook(lambda p, t=t: self._take(p, t))

    def __call__(
        self, theta: Array, shard: object, out: Array, *, partition: int, round: int
    ) -> None:
        """Write one partition's part of a message."""
        self.load(theta)
        self.write(out, [(partition, 1.0)])

    def _tensors(self, array: Array) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return an array's tensor and its views, made once: the same arrays come in each step.

        With 82 parameters of 64 x 64, a step takes 1.2 times as long without.
        """
        key = array.__array_interface__["data"][0], array.dtype.name
        if key not in self._views:
            flat = as_tensor(array)
            self._views[key] = flat, views(flat, self._parameters)
        return self._views[key]

    def _point_to(self, parts: Sequence[torch.Tensor]) -> None:
        for p, part in zip(self._parameters, parts, strict=True):
            p.data = part

    def _take(self, p: torch.Tensor, t: int) -> None:
        """Move a gradient to its target as soon as it is computed: it is still in the cache."""
        grad, p.grad = p.grad, None
        assert grad is not None
        if grad.is_sparse:
            grad = grad.to_dense()
        if self._used[t]:
            self._target[t].add_(grad)
        else:
            self._target[t].copy_(grad)
            self._used[t] = True

    def load(self, theta: Array) -> None:
        """Take the parameters of a step; ask for the samples of a new one, and of coming ones."""
        (flat, parts), before = self._tensors(theta), self.step
        if self._flat is None:
            self._point_to(parts)  # no copy
        else:
            self._flat[0].copy_(flat[: self._layout.parameters])
        self._theta = flat
        self.step, self._batches = self._layout.take(theta)
        if self._loader is None or self.step == before:
            return
        self._loader.begin(self.step)
        for step, batch in enumerate(self._batches, self.step):
            if step > self.step and self._alone is None:
                break
            for jobs in self._writes:
                for group in self._passes(jobs):
                    self._loader.ask(step, group[0][0], self._samples(batch, group))

    def _passes(self, jobs: Jobs) -> list[Jobs]:
        """Return groups of partitions that go through the module together: of equal weights."""
        together = not self._alone and len({weight for _, weight in jobs}) == 1
        return [jobs] if together else [[each] for each in jobs]

    def _samples(self, batch: Ints, group: Jobs) -> Ints:
        return np.concatenate([batch[self._edges[j] : self._edges[j + 1]] for j, _ in group])

    def write(self, out: Array, jobs: Jobs) -> None:
        """Write the sum of the partitions' gradients and numbers, each times its weight."""
        layout, tail = self._layout, np.zeros(self._layout.numbers)
        flat, parts = self._tensors(out)
        self._target = parts if self._flat is None else self._there
        with plainly(self._job.default_dtype):
            while not self._backward(jobs, tail):
                tail[:] = 0.0
        for used, view in zip(self._used, self._target, strict=True):
            if not used:
                view.zero_()
        if self._flat is not None:
            flat[: layout.parameters].copy_(self._flat[1])
        weights = sum(weight for _, weight in jobs)
        tail[1 + layout.sums :][: layout.tensors] = np.multiply(self._used, weights)
        with np.errstate(over="ignore", invalid="ignore"):  # others find what is not finite
            out[layout.parameters :] = tail
        self.partition = -1

    def _backward(self, jobs: Jobs, tail: Array) -> bool:
        """Compute gradients and numbers; False: together, where random numbers were drawn."""
        self._used = [False] * len(self._parameters)
        for group in self._passes(jobs):
            self.partition, weight = group[0]
            seed_all(self._job.seed, self.step, self.partition)
            before = Drawn.now(self._device) if len(group) > 1 else None
            loss, sums = self._losses(group)
            if before is not None and Drawn.now(self._device) != before:
                self._alone = True  # from now on
                return False
            weighted = loss * (weight * self._job.scale)
            tail[0] += weighted.detach().item()
            tail[1 : 1 + len(sums)] += np.multiply(sums, weight)
            if weighted.requires_grad:
                torch.autograd.backward(weighted)
        self._alone = bool(self._alone)
        return True

    def _losses(self, group: Jobs) -> tuple[torch.Tensor, list[float]]:
        job, indices = self._job, self._samples(self._batches[0], group)
        if self._loader is None:
            batch = job.feed(indices.tolist())
        else:
            batch = self._loader.take(self.step, group[0][0], indices)
        versions = [b._version for b in self._module.buffers()]
        found = losses(job.loss, self._module, moved(batch, self._device))
        if [b._version for b in self._module.buffers()] != versions:
            raise RuntimeError(CHANGES)
        if len(found[1]) != job.layout.sums:
            raise ValueError(
                f"loss returned {len(found[1])} further sums, and {job.layout.sums} before"
            )
        return found


CHANGES = (
    "forward changes buffers of the module, those of BatchNorm, say, which each worker would "
    "change by its own samples: use GroupNorm or LayerNorm, or freeze them by eval()"
)


@contextlib.contextmanager
def plainly(dtype: torch.dtype | None = None) -> Iterator[None]:
    """Compute as in a process that has just started: with gradients, and without any mode.

    `dtype` is the default dtype meanwhile. A loss may still choose modes of its own.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or before)
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)


def moved(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on a device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: moved(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(moved(value, device) for value in batch)
    return batch
