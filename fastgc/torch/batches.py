"""The samples of each step, their partitions, and the random numbers drawn while one is computed.

A worker's own processes fetch the samples of coming steps.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import multiprocessing
import os
import pickle
import random
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import util
from typing import Any, NamedTuple, Self

import cloudpickle
import numpy as np
import torch
import torch.multiprocessing  # processes send tensors in shared memory
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from .._base.arrays import Ints, at_least
from ..engines.processes import end_with


def edges(size: int, partitions: int) -> list[int]:
    """Where in a batch each partition begins, and the last one ends; sizes differ by at most 1."""
    return [size * j // partitions for j in range(partitions + 1)]


class Batches:
    """Batches of a dataset's indices: each epoch is a permutation; an incomplete end is left out.

    A batch has `size` samples, for `partitions` parts. `seed` draws the permutations. A `sampler`
    replaces them: each epoch takes all that it gives, after ``sampler.set_epoch(epoch)`` if it has
    this method. `take` also returns the next `ahead` batches. A TypeError says that the dataset has
    no indices or no length, a ValueError that it or a batch is too small.
    """

    def __init__(
        self,
        dataset: Any,
        size: int,
        partitions: int,
        seed: int,
        sampler: Iterable[int] | None = None,
        ahead: int = 0,
    ) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise TypeError(
                f"the dataset must be map-style, with len(dataset) and dataset[i], not "
                f"{type(dataset).__name__}: workers take their own samples by index, also those "
                "of others that died, which a stream of samples does not allow"
            )
        if not isinstance(dataset, Sized):
            raise TypeError(f"the dataset has no length: give {type(dataset).__name__} a __len__")
        self._samples = len(dataset)
        self.size = at_least("batch_size", size, 1)
        if self.size < partitions:
            raise ValueError(
                f"batch_size must be at least {partitions}, one sample for each of the code's "
                f"partitions, not {size}"
            )
        if self._samples < self.size:
            raise ValueError(
                f"the dataset has {self._samples} samples, fewer than batch_size = {size}: take "
                f"batches of {partitions} to {self._samples}"
                if self._samples >= partitions
                else f"the dataset has {self._samples} samples, too few for {partitions} partitions"
            )
        self._seed, self._sampler, self._ahead = at_least("seed", seed, 0), sampler, ahead
        self._begin(0)

    def _begin(self, step: int) -> None:
        self.step = step  # batches taken so far
        self._coming: deque[Ints] = deque()
        # Without a sampler the epochs before need not be drawn again.
        count = self._samples // self.size
        self._epoch, self._skipped = divmod(step, count) if self._sampler is None else (0, step)

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        if self._sampler is None:
            return self._samples // self.size
        if not isinstance(self._sampler, Sized):
            raise TypeError(f"the sampler, {type(self._sampler).__name__}, has no length")
        return len(self._sampler) // self.size

    def take(self) -> Ints:
        """Return the indices of the next batch and of those that come after it, a row each."""
        while len(self._coming) <= self._ahead:
            drawn = self._drawn()
            self._coming.extend(drawn[self._skipped :])
            self._skipped = max(0, self._skipped - len(drawn))
        found = np.array(list(itertools.islice(self._coming, 1 + self._ahead)))
        self._coming.popleft()
        self.step += 1
        return found

    def _drawn(self) -> Ints:
        """Return the batches of the next epoch, a row each."""
        epoch, self._epoch = self._epoch, self._epoch + 1
        if self._sampler is None:
            indices = np.random.default_rng((self._seed, epoch)).permutation(self._samples)
        else:
            if hasattr(self._sampler, "set_epoch"):
                self._sampler.set_epoch(epoch)
            taken: list[Any] = list(self._sampler)
            if len(taken) < self.size:
                raise ValueError(f"the sampler gives fewer than batch_size = {self.size} indices")
            indices = np.array(taken)
            if indices.ndim != 1 or indices.dtype.kind not in "iu":
                raise TypeError(f"the sampler must give indices, one at a time, not {taken[0]!r}")
        count = len(indices) // self.size
        return indices[: count * self.size].reshape(count, self.size)

    def state_dict(self) -> dict[str, Any]:
        """Return the position for `load_state_dict`."""
        return {"step": self.step, "seed": self._seed, "size": self.size, "samples": self._samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where another object with the same arguments was.

        A sampler is iterated again up to there, so it must give the same indices again.
        """
        for name, own in self.state_dict().items():
            if name != "step" and state[name] != own:
                raise ValueError(f"the state is of a run with {name} = {state[name]}, not {own}")
        self._begin(at_least("step", state["step"], 0))


class Feed:
    """Return the samples of indices of a dataset, as a `torch.utils.data.DataLoader` does."""

    def __init__(self, dataset: Any, collate: Any) -> None:
        self._dataset, self._collate = dataset, collate

    def __call__(self, indices: Sequence[int]) -> Any:
        """Return the collated samples of these indices."""
        if hasattr(self._dataset, "__getitems__"):
            samples = self._dataset.__getitems__(list(indices))
        else:
            samples = [self._sample(i) for i in indices]
        return self._collate(samples)

    def _sample(self, i: int) -> Any:
        try:
            return self._dataset[i]
        except Exception as error:
            error.add_note(f"of dataset[{i}]")
            raise


_OFTEN = 3  # raise when so many processes have ended while they fetched the same samples


class _Order(NamedTuple):
    """Samples to fetch together, with generators seeded for a partition of a step."""

    step: int
    partition: int
    indices: bytes  # of int64

    @property
    def samples(self) -> list[int]:
        """Their indices in the dataset."""
        found: list[int] = np.frombuffer(self.indices, np.int64).tolist()
        return found


class Loader:
    """Fetch samples ahead, in `count` processes that are forked from this one, and end with it.

    A batch is the same as if this process had fetched it, and leaves the same states of random
    generators. If a process ends earlier, all are replaced.
    """

    def __init__(self, feed: Feed, seed: int, count: int) -> None:
        self._feed, self._seed, self._count = feed, seed, count
        self._life = os.pipe()
        self._asked: dict[_Order, Future[Any]] = {}
        self._ended: Counter[_Order] = Counter()  # processes that ended before an order was done
        # At the end of this process, before its pools wait for theirs, which may be stopped: atexit
        # would come after that. In processes of multiprocessing, its own finalizers come first.
        end = util.Finalize(self, _end, self._life, exitpriority=100)
        threading._register_atexit(end)  # type: ignore[attr-defined]
        self._start()

    def _start(self) -> None:
        """Start processes, now: once this process has used a device, forks could not."""
        begin = self._life, self._feed, self._seed
        fork = multiprocessing.get_context("fork")
        self._pool = ProcessPoolExecutor(self._count, fork, _begin, begin)
        self._pool.submit(os.getpid)
        for order in self._asked:
            self._asked[order] = self._pool.submit(_fetched, order)

    def begin(self, step: int) -> None:
        """Forget the samples of earlier steps."""
        for order in [order for order in self._asked if order.step < step]:
            self._asked.pop(order).cancel()

    def ask(self, step: int, partition: int, indices: Ints) -> _Order:
        """Ask a process for samples that will be taken, unless one was asked; return the order."""
        order = _Order(step, partition, indices.tobytes())
        if order not in self._asked:
            self._asked[order] = Future()
            try:
                self._asked[order] = self._pool.submit(_fetched, order)
            except BrokenProcessPool:
                self._start()
        return order

    def take(self, step: int, partition: int, indices: Ints) -> Any:
        """Wait for a batch of samples, set the generators to their states after it, return it.

        It waits as long as the processes live: a dataset may take long, and whoever waits for this
        worker takes it for a straggler meanwhile.
        If the dataset raised, raise RuntimeError with its traceback.
        """
        order = self.ask(step, partition, indices)
        while True:
            try:
                batch, drawn, error = self._asked[order].result()
                break
            except BrokenProcessPool:
                self._ended[order] += 1
                if self._ended[order] == _OFTEN:
                    raise RuntimeError(
                        f"{_OFTEN} processes that were to fetch samples {order.samples} have "
                        "ended, by a signal or by exiting"
                    ) from None
                self._start()
            except Exception as failed:  # the batch cannot be sent
                error = f"{type(failed).__name__}: {failed}"
                break
        del self._asked[order]
        if error:
            raise RuntimeError(f"in a process that fetches samples:\n{error}")
        seed_all(self._seed, step, partition)
        if drawn is not None:
            drawn.restore()
        return batch


def _end(*files: int) -> None:
    for file in files:
        os.close(file)


_feed: Feed  # in a process that fetches samples
_seed: int


def _begin(life: tuple[int, int], feed: Feed, seed: int) -> None:
    """Begin as a process that fetches samples."""
    global _feed, _seed
    os.close(life[1])
    end_with(life[0])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with the worker
    torch.set_num_threads(1)
    _feed, _seed = feed, seed


def _fetched(order: _Order) -> tuple[Any, Drawn | None, str]:
    """Return a batch, the generators' states after it if it used them, and a traceback."""
    try:
        seed_all(_seed, order.step, order.partition)
        before = Drawn.now()
        batch = _feed(order.samples)
        after = Drawn.now()
        return batch, (after if after != before else None), ""
    except Exception:  # as a text: some exceptions cannot be sent
        return None, None, traceback.format_exc()


@cache
def _has_devices() -> bool:
    kinds = (getattr(torch, name, None) for name in ("cuda", "mps", "xpu"))
    return any(kind is not None and kind.is_available() for kind in kinds)


def seed_all(*numbers: int) -> None:
    """Seed torch, NumPy and random from `numbers`, such as a run's seed, a step and a partition."""
    seed = np.random.SeedSequence(numbers).generate_state(2, np.uint32).tolist()
    whole = seed[0] | (seed[1] & 0x7FFFFFFF) << 32
    if _has_devices():
        torch.manual_seed(whole)
    else:  # without a device, torch.manual_seed notes where it was called, which takes 1 ms
        torch.default_generator.manual_seed(whole)
    np.random.seed(seed[0])  # noqa: NPY002
    random.seed(seed[0])


class Drawn(NamedTuple):
    """The states of the random generators: they differ if any number was drawn in between."""

    cpu: bytes  # of torch's generator
    numpy: tuple[Any, ...]
    python: tuple[Any, ...]
    device: bytes = b""  # of torch's generator of a device, if it has its own

    @classmethod
    def now(cls, device: torch.device | None = None) -> Self:
        """Return the present states, with that of a device."""
        name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
        own = b""
        if device is not None and device.type != "cpu":
            own = torch.get_device_module(device).get_rng_state(device).numpy().tobytes()
        cpu = torch.get_rng_state().numpy().tobytes()
        return cls(cpu, (name, np.asarray(keys).tobytes(), *rest), random.getstate(), own)

    def restore(self, device: torch.device | None = None) -> None:
        """Set the generators to these states, with that of the `device` that they were taken of."""
        torch.set_rng_state(torch.frombuffer(bytearray(self.cpu), dtype=torch.uint8))
        name, keys, *rest = self.numpy
        np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))  # noqa: NPY002
        random.setstate(self.python)
        if self.device and device is not None:
            state = torch.frombuffer(bytearray(self.device), dtype=torch.uint8)
            torch.get_device_module(device).set_rng_state(state, device)


@contextlib.contextmanager
def restored(device: torch.device) -> Iterator[None]:
    """Restore the generators' states, with that of a device, at the end of this context."""
    drawn = Drawn.now(device)
    try:
        yield
    finally:
        drawn.restore(device)


def pickled(thing: Any, keep: Callable[[pickle.PickleBuffer], object] | None = None) -> bytes:
    """Pickle a thing; `keep` may take the memory of tensors and arrays out of the pickle."""
    file = io.BytesIO()
    Pickler(file, 5, buffer_callback=keep).dump(thing)
    return file.getvalue()


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickle by value what cannot be imported, and the memory of tensors as buffers (PEP 574).

    PyTorch itself writes a tensor into the pickle, with the whole storage of which it is a view.
    """

    def reducer_override(self, obj: Any) -> Any:
        """Return how to pickle an object; NotImplemented means as usual."""
        if type(obj) is torch.Tensor and obj.device.type == "cpu" and obj.numel() > 0:
            odd = obj.requires_grad or obj.is_quantized or obj.is_conj() or obj.is_neg()
            odd = odd or obj.layout is not torch.strided or bool(vars(obj))
            if not odd and obj.is_contiguous():  # no more than its elements, in order
                # As bytes, because NumPy lacks some of the dtypes.
                bits = obj.reshape(-1).view(torch.uint8).numpy()
                return _tensor, (bits, obj.dtype, obj.shape)
        return super().reducer_override(obj)


def _tensor(bits: NDArray[np.uint8], dtype: torch.dtype, shape: torch.Size) -> torch.Tensor:
    if not bits.flags.writeable:  # PyTorch has no read-only tensors
        bits = bits.copy()
    return torch.from_numpy(bits).view(dtype).view(shape)
