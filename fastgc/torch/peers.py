"""Training steps without a master: all ranks train the same module, by a loss of samples."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Any, Literal, TypedDict

import numpy as np
import torch

from ..codes import Code
from ..engines import RoundReport
from .all_reduce import CodedAllReduce
from .batches import Feed, Indices, Loader
from .job import Loss, losses, moved, plainly
from .parameters import trainable
from .place import place_of
from .randomness import Drawn, restored, seed_all
from .sampler import CodedSampler

__all__ = ["PeerKeywords", "Peers", "world_size"]


class PeerKeywords(TypedDict, total=False):
    """Options of ``engine="all-reduce"``: those of `CodedAllReduce`, and the step to begin at."""

    redundancy: str
    state: Iterable[Any]
    group: Any
    store: Any
    rank: int | None
    deadline: float | Literal["auto"]
    settle: float
    audit: int | None
    first_step: int


def world_size(options: PeerKeywords, default: int) -> int:
    """Return the number of ranks if it is known, or else `default`."""
    return place_of(options.get("group"), options.get("rank"))[1] or default


class Peers:
    """Compute this rank's partitions of each batch, and sum the gradients of all ranks.

    `scale` is a factor of the losses. `ahead` is the number of processes that fetch samples, and of
    batches that they fetch ahead. With `one_by_one`, each partition goes through the module by
    itself. All else is as in `CodedDataParallel`.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Loss,
        dataset: Any,
        code: Code,
        batch_size: int,
        *,
        feed: Feed,
        scale: float,
        seed: int,
        sampler: Iterable[int] | None,
        ahead: int,
        buffers: str,
        one_by_one: bool,
        options: PeerKeywords,
    ) -> None:
        self._module, self._loss, self._feed = module, loss, feed
        self._n, self._k = code.n, code.k
        self._scale, self._seed, self._one_by_one = scale, seed, one_by_one
        self._parameters = trainable(module)
        self._device = self._parameters[0].device
        self._reactive = options.get("redundancy") == "reactive"
        rank = place_of(options.get("group"), options.get("rank"))[0]
        self.sampler = CodedSampler(
            dataset, code, batch_size, rank, seed=seed, order=sampler, _ahead=ahead
        )
        # Fork these processes before the group's sockets and threads exist.
        self._loader = Loader(feed, seed, ahead) if ahead else None
        self._earlier = _Earlier(self._parameters)
        given: dict[str, Any] = {**options, "buffers": buffers}
        given["state"] = [*options.get("state", ()), self._earlier]
        self.sampler.step = given.pop("first_step", 0)
        if self._reactive:
            given["recompute"] = self._recompute
        self.all_reduce = CodedAllReduce(module, code, sampler=self.sampler, **given)

    def backward(self) -> tuple[tuple[float, ...], RoundReport]:
        """Add the next batch's gradient to every ``.grad``; return its sums and a report."""
        with self._earlier:
            rows = self.sampler.take()
            own = self._compute(rows)
            begin = time.perf_counter()
            sums = self.all_reduce(*own)
            seconds = time.perf_counter() - begin
        return sums, self._report(seconds)

    def _report(self, seconds: float) -> RoundReport:
        ranks = np.array(self.all_reduce.ranks, dtype=np.int64)
        lost = tuple(sorted(set(range(self._n)) - set(self.all_reduce.ranks)))
        views = [set(change.ranks) for change in self.all_reduce.changes]
        deaths = sum(len(a - b) for a, b in itertools.pairwise(views))
        return RoundReport(
            self.all_reduce.step - 1,
            ranks,
            len(ranks),
            seconds,
            0.0,
            0,
            lost,
            ranks.copy(),
            np.full(len(ranks), seconds),
            deaths=deaths,
            residual=self.all_reduce.residual,
        )

    # ------------------------------------------------------------------------- what a rank computes

    def _compute(self, rows: Indices) -> list[float]:
        """Put the gradient of this rank's partitions into ``.grad``; return their loss and sums."""
        step, jobs = self.sampler.step - 1, self.sampler.own
        with plainly(device=self._device.type), restored(self._device):
            if self._loader is not None:
                self._loader.begin(step)
                for at, batch in enumerate(rows, step):
                    if batch[0] >= 0:
                        for partitions in self._passes(jobs):
                            indices = self.sampler.of(batch, partitions)
                            self._loader.ask(at, self._drawn_for(partitions, indices), indices)
            sums = self._by_passes(step, rows[0], jobs)
            if sums is None:  # random numbers were drawn: from now on, partition by partition
                for p in self._parameters:
                    p.grad = None
                sums = self._by_passes(step, rows[0], jobs)
                assert sums is not None
        return sums

    def _passes(self, jobs: list[tuple[int, float]]) -> list[list[int]]:
        """Return groups of partitions that go through the module together.

        With reactive redundancy, all do: no other rank computes them, so none must draw alike.
        """
        partitions = [j for j, _ in jobs]
        alike = len({weight for _, weight in jobs}) == 1
        together = self._reactive or (alike and not self._one_by_one)
        return [partitions] if together else [[j] for j in partitions]

    def _by_passes(
        self, step: int, batch: Indices, jobs: list[tuple[int, float]]
    ) -> list[float] | None:
        """Compute all passes; None if a pass of several partitions drew random numbers.

        Other ranks compute these partitions in other groups, and would draw other numbers. Nothing
        was added to gradients in that case.
        """
        weights, passes, total = dict(jobs), self._passes(jobs), None
        for partitions in passes:
            indices = self.sampler.of(batch, partitions)
            number = self._drawn_for(partitions, indices)
            seed_all(self._seed, step, number)
            before = Drawn.now(self._device)
            if self._loader is None:
                samples = self._feed(indices.tolist())
            else:
                samples = self._loader.take(step, number, indices)
            loss, sums = losses(self._loss, self._module, moved(samples, self._device))
            shared = len(partitions) > 1 and not self._reactive
            if shared and Drawn.now(self._device) != before:
                self._one_by_one = True
                return None
            weight = weights[partitions[0]]
            found = self._add(loss, sums, weight)
            total = found if total is None else [a + b for a, b in zip(total, found, strict=True)]
        assert total is not None
        return total

    def _drawn_for(self, partitions: list[int], indices: Indices) -> int:
        """Return the seed of a pass, besides the step: equal for ranks that compute the same."""
        return self._k + int(indices[0]) if self._reactive else partitions[0]

    def _add(self, loss: torch.Tensor, sums: list[float], weight: float = 1.0) -> list[float]:
        weighted = loss * (weight * self._scale)
        if weighted.requires_grad:
            torch.autograd.backward(weighted)
        return [weighted.detach().item(), *(weight * x for x in sums)]

    def _recompute(self, indices: list[int]) -> list[float]:
        """Add the gradient of samples that another rank owned; return their loss and sums."""
        with plainly(device=self._device.type), restored(self._device):
            seed_all(self._seed, self.all_reduce.step, self._k + indices[0])
            samples = moved(self._feed(indices), self._device)
            return self._add(*losses(self._loss, self._module, samples))


class _Earlier:
    """Gradients of earlier steps, to which a step is added. Ranks that join get them, too.

    Used as a context: it sets them aside, so that ``.grad`` is None. At the end it adds them to the
    new ``.grad``, or after an exception puts them back.
    """

    def __init__(self, parameters: list[torch.nn.Parameter]) -> None:
        self._parameters = parameters
        self._aside: list[torch.Tensor | None] | None = None

    def __enter__(self) -> None:
        self._aside = [p.grad for p in self._parameters]
        self._put([None] * len(self._parameters))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        earlier, self._aside = self._aside, None
        assert earlier is not None
        if kind is None:
            new = [p.grad for p in self._parameters]
            with torch.no_grad():
                for at, (old, grad) in enumerate(zip(earlier, new, strict=True)):
                    if old is None or grad is None:
                        earlier[at] = grad if old is None else old
                    else:
                        old.add_(grad)
        self._put(earlier)

    def _put(self, grads: list[torch.Tensor | None]) -> None:
        for p, grad in zip(self._parameters, grads, strict=True):
            p.grad = grad

    def state_dict(self) -> dict[str, Any]:
        held = self._aside
        return {"grads": [p.grad for p in self._parameters] if held is None else held}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        found = [
            None if grad is None else grad.to(p.device)
            for p, grad in zip(self._parameters, state["grads"], strict=True)
        ]
        if self._aside is None:
            self._put(found)
        else:
            self._aside = found
