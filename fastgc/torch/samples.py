"""Samples of a dataset for `ReactiveDataParallel`: collated, and fetched ahead by processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch.utils.data import default_collate

from .._base.arrays import at_least
from .batches import Feed, Loader


class Samples:
    """A call with indices returns these samples as a batch.

    With `batch`, which tells the indices of coming steps, the processes fetch what this rank will
    most likely compute of them, its `share`. What it computes besides, as another rank died or
    paces changed, is fetched when it is asked for.
    """

    def __init__(
        self,
        step: Callable[[], int],
        share: Callable[[Any], Any],
        dataset: Any,
        collate_fn: Callable[[list[Any]], Any] | None,
        num_workers: int,
        batch: Callable[[int], Any] | None,
        seed: int,
    ) -> None:
        self._step, self._share, self._batch = step, share, batch
        self._feed = Feed(dataset, default_collate if collate_fn is None else collate_fn)
        self._ahead = at_least("num_workers", num_workers, 0)
        self._loader = Loader(self._feed, seed, self._ahead) if self._ahead else None
        self._asked = -1  # the last step that was fetched ahead

    def __call__(self, indices: Any) -> Any:
        """Return a batch of these samples."""
        own = np.asarray(indices, dtype=np.int64)
        if self._loader is None:
            return self._feed(own.tolist())
        step = self._step()
        self._loader.begin(step)
        order = int(own[0])  # tells its random numbers apart, on whatever rank
        self._loader.ask(step, order, own)
        if self._batch is not None:
            for coming in range(max(self._asked, step) + 1, step + 1 + self._ahead):
                share = np.asarray(self._share(self._batch(coming)), dtype=np.int64)
                if len(share):
                    self._loader.ask(coming, int(share[0]), share)
                self._asked = coming
        return self._loader.take(step, order, own)
