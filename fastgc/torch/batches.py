"""Which samples a step is of, and which of them each partition holds."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from .._arrays import at_least

__all__ = ["Batches", "Feed", "edges"]

Indices = NDArray[np.int64]


def edges(size: int, partitions: int) -> list[int]:
    """Where in a batch each partition begins, and the last ends; sizes differ by one at most."""
    return [size * j // partitions for j in range(partitions + 1)]


class Batches:
    """Batches of a dataset's indices: each epoch is a permutation, its incomplete end left out.

    Of `size` samples, cut into `partitions` parts. A `sampler` takes the place of the permutations,
    which are drawn by `seed`: it is gone through again and again, after
    ``sampler.set_epoch(epoch)`` if there is such a method. So many batches `ahead` are told before
    they are taken.

    Raises
    ------
    TypeError
        If the dataset has no indices or no length.
    ValueError
        If it, or a batch, is too small.
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
        self._seed = at_least("seed", seed, 0)
        self._sampler: Any = sampler
        self._ahead = ahead
        self.step = 0  # batches taken so far
        self._coming: deque[Indices] = deque()
        self._epoch = self._given = -1
        self._order: Indices = np.empty(0, np.int64)
        self._drawn: Iterator[int] | None = None

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        if self._sampler is None:
            return self._samples // self.size
        if not isinstance(self._sampler, Sized):
            raise TypeError(f"the sampler, {type(self._sampler).__name__}, has no length")
        return len(self._sampler) // self.size

    def take(self) -> Indices:
        """Indices of the next batch, and of those that come after it, a row each.

        Rows of -1 stand for what a sampler does not give, or not yet.
        """
        while len(self._coming) <= self._ahead:
            try:
                self._coming.append(self._drawn_next())
            except (TypeError, ValueError):
                if not self._coming:
                    raise
                break  # it is not needed yet
        found = np.full((1 + self._ahead, self.size), -1)
        found[: len(self._coming)] = self._coming
        self._coming.popleft()
        self.step += 1
        return found

    def _drawn_next(self) -> Indices:
        if self._sampler is not None:
            return self._sampled()
        epoch, at = divmod(self.step + len(self._coming), self._samples // self.size)
        if epoch != self._epoch:
            rng = np.random.default_rng((self._seed, epoch))
            self._order, self._epoch = rng.permutation(self._samples), epoch
        return self._order[at * self.size : (at + 1) * self.size]

    def _sampled(self) -> Indices:
        for _ in range(2):
            if self._drawn is None:
                self._given += 1
                if hasattr(self._sampler, "set_epoch"):
                    self._sampler.set_epoch(self._given)
                self._drawn = iter(self._sampler)
            taken = list(itertools.islice(self._drawn, self.size))
            if len(taken) == self.size:
                return self._checked(taken)
            self._drawn = None
        raise ValueError(f"the sampler gives fewer than batch_size = {self.size} indices")

    def _checked(self, taken: Sequence[Any]) -> Indices:
        try:
            indices = np.array([int(i) for i in taken], np.int64)
        except (TypeError, ValueError):
            raise TypeError(
                f"the sampler must give indices, one at a time, not {taken[0]!r}"
            ) from None
        if indices.min() < 0 or indices.max() >= self._samples:
            wrong = indices[(indices < 0) | (indices >= self._samples)][0]
            raise ValueError(f"the sampler gave index {wrong} of {self._samples} samples")
        return indices

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` goes on from."""
        return {"step": self.step, "seed": self._seed, "size": self.size, "samples": self._samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another, of the same arguments, was.

        A sampler is gone through anew up to there, so it has to give the same again.
        """
        own = self.state_dict()
        for name in ("seed", "size", "samples"):
            if state[name] != own[name]:
                raise ValueError(
                    f"the state is of a run with {name} = {state[name]}, not {own[name]}"
                )
        step = at_least("step", state["step"], 0)
        self._coming.clear()
        if self._sampler is not None:
            self._given, self._drawn, self.step = -1, None, 0
            while self.step < step:
                self.take()
        self.step = step


class Feed:
    """Takes the samples of partitions from a dataset, as a `torch.utils.data.DataLoader` does."""

    def __init__(self, dataset: Any, collate: Any) -> None:
        self._dataset, self._collate = dataset, collate

    def __call__(self, indices: Sequence[int]) -> Any:
        """Collated samples of these indices."""
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
