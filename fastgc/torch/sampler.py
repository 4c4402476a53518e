"""Which samples each rank takes if every rank computes its own partitions of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from .._base.arrays import Floats, Ints, at_least, check_index
from ..codes import Code
from .batches import Batches, edges
from .place import own_rank


def check_code(code: Any) -> None:
    """Raise TypeError or ValueError if this is no code, or none of gradients."""
    if not isinstance(code, Code):
        raise TypeError(f"code must be a code of fastgc, not {code!r}")
    if code.scheme.data.coded:
        raise ValueError(
            f"{type(code).__name__} codes the data, for gradients that are polynomials, which "
            f"those of a module are not: take BinaryCode({code.n}, stragglers=...)"
        )


def real_row(code: Code, rank: int) -> tuple[Ints, Floats]:
    """Return a rank's partitions, and the factors of their samples' gradients.

    Raise TypeError or ValueError if the code's messages are not gradients of a weighted loss.
    """
    check_code(code)
    name, instead = type(code).__name__, f"take BinaryCode({code.n}, stragglers=...)"
    if code.scheme.messages.per_worker > 1:
        raise ValueError(
            f"{name} has {code.scheme.messages.per_worker} messages of each worker, and a rank has "
            f"one gradient: {instead}"
        )
    rank = check_index("rank", rank, code.n)
    row = code.coefficients(rank)
    if np.iscomplexobj(row) or row.ndim != 1:
        raise ValueError(
            f"{name} has complex coefficients, by which a loss cannot be weighted: {instead}"
        )
    return code.partitions(rank), row.astype(np.float64)


class CodedSampler(Sampler[list[int]]):
    """Batches of indices for one rank: the samples of its partitions of each global batch.

    Use it as the ``batch_sampler`` of a `torch.utils.data.DataLoader`. All ranks go through the
    samples in the same order. Each epoch is a new permutation, cut into batches of `batch_size`
    samples; an incomplete last batch is left out. Each batch is cut into the code's partitions, and
    a rank takes those that the code gives it. So several ranks take the same sample.

    Parameters
    ----------
    dataset : map-style dataset
        Only its length is used.
    code : Code
        A code with real coefficients and one worker for each rank.
    batch_size : int
        Number of samples of a step, over all ranks.
    rank : int, optional
        Default: that of torch.distributed or torchrun.
    seed : int
        Seed of the permutations; the same on all ranks.
    order : iterable of int, optional
        The order of samples in an epoch instead of permutations, like the ``sampler`` of
        `fastgc.torch.CodedDataParallel`.

    Attributes
    ----------
    weights : (b,) Tensor
        Multiply each sample's loss by its weight: ``(losses * sampler.weights).sum()``. The weights
        are all one for codes of zeros and ones (`fastgc.BinaryCode`,
        `fastgc.FractionalRepetition`), whose ranks simply sum their losses.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit, or the code is complex or codes the data.

    Examples
    --------
    >>> import fastgc
    >>> from fastgc.torch import CodedSampler
    >>> code = fastgc.BinaryCode(4, stragglers=1)
    >>> found = [CodedSampler(range(8), code, 8, rank, order=range(8)) for rank in range(4)]
    >>> [next(iter(sampler)) for sampler in found]
    [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5, 6, 7]]
    """

    def __init__(
        self,
        dataset: Any,
        code: Code,
        batch_size: int,
        rank: int | None = None,
        *,
        seed: int = 0,
        order: Iterable[int] | None = None,
        _ahead: int = 0,
    ) -> None:
        partitions, row = real_row(code, own_rank() if rank is None else rank)
        self._batches = Batches(dataset, batch_size, code.k, seed, order, _ahead)
        self._bounds = edges(self._batches.size, code.k)
        self._partitions: list[int] = partitions.tolist()
        self._row: list[float] = row.tolist()
        self._own = self._places(self._partitions)
        counts = np.diff(self._bounds)[partitions]
        self.weights = torch.from_numpy(np.repeat(row, counts)).to(torch.get_default_dtype())
        # Of each batch taken since the first `give`: the partitions given, and all indices.
        self._taken: dict[int, tuple[list[int], Ints]] = {}
        self._remembers = False

    @property
    def step(self) -> int:
        """Number of global batches taken, over all epochs. Set it to continue from there.

        A DataLoader with workers takes batches ahead of those that it returns.
        """
        return self._batches.step

    @step.setter
    def step(self, step: int) -> None:
        self._batches.load_state_dict(self._batches.state_dict() | {"step": step})

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self.step // len(self)

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch, or continue if it has already begun.

        You need not call it: epochs follow each other in any case.
        """
        if at_least("epoch", epoch, 0) != self.epoch:
            self.step = epoch * len(self)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return self._batches.per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        """Yield batches until the end of the epoch."""
        epoch = self.epoch
        while self.epoch == epoch:
            yield self.take()[0][self._own].tolist()

    def take(self) -> Ints:
        """Return the next batch's indices and those of batches that come after it, a row each."""
        rows = self._batches.take()
        if self._remembers:
            self._taken[self.step - 1] = self._partitions, rows[0]
        return rows

    @property
    def own(self) -> list[tuple[int, float]]:
        """The rank's partitions in coming batches, and the factors of their losses."""
        return list(zip(self._partitions, self._row, strict=True))

    def of(self, batch: Ints, partitions: list[int]) -> Ints:
        """Return the samples of these partitions of a batch."""
        return batch[self._places(partitions)]

    def _places(self, partitions: list[int]) -> Ints:
        """Return where in a batch the samples of these partitions are."""
        bounds = self._bounds
        return np.array([i for j in partitions for i in range(bounds[j], bounds[j + 1])], np.int64)

    def give(self, partitions: list[int]) -> None:
        """From now on, give the samples of these partitions, with weights of 1."""
        self._partitions, self._own = partitions, self._places(partitions)
        self._row = [1.0] * len(partitions)
        self.weights = torch.ones(())
        self._remembers = True

    def given(self, at: int) -> list[int]:
        """Return the partitions of which this sampler gave samples in batch number `at`."""
        return self._taken[at][0] if at in self._taken else []

    def samples(self, at: int, partitions: list[int]) -> list[int]:
        """Return the samples of these partitions in batch number `at`."""
        found: list[int] = self.of(self._taken[at][1], partitions).tolist()
        return found

    def forget(self, before: int) -> None:
        """Forget the batches before this one."""
        self._taken = {at: taken for at, taken in self._taken.items() if at >= before}

    def state_dict(self) -> dict[str, Any]:
        """Return the position for `load_state_dict`, which also fits other ranks and codes."""
        return self._batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position that `state_dict` returned.

        Raises
        ------
        ValueError
            If the state belongs to another dataset, batch size or seed.
        """
        self._batches.load_state_dict(state)


class Position:
    """Where in a sampler's order the next step begins, even if a loader took batches ahead.

    When an epoch begins, a loader with workers takes its `lead` of batches ahead, and then one for
    each that it returns. So the sampler's position does not tell where a step begins: each step
    begins `accumulate` batches after the last one, counted from the epoch's first batch.

    `at` is the number of batches before the next step, and `lead` how many a loader takes ahead;
    None if that is unknown.
    """

    def __init__(self, sampler: CodedSampler, accumulate: int) -> None:
        self._sampler, self._accumulate = sampler, accumulate
        self.begin(sampler.step)

    def begin(self, at: int, lead: int | None = None) -> None:
        """Let the next step begin at batch `at`; other ranks' loaders take `lead` batches ahead."""
        if self._sampler.step != at:
            self._sampler.step = at
        self.at = self._taken = self._first = at
        self._steps = 0  # steps since batch `_first`, in this epoch
        self._ahead = False  # whether a loader takes batches ahead
        self.lead = lead

    def check(self) -> None:
        """Find out where this step began, if an epoch has ended since the last one.

        Raise RuntimeError if a step had another number of batches than `accumulate`, as far as that
        shows; or if an epoch ended with fewer batches than a step, and it cannot be told whether
        they belong to this step, because a loader takes batches ahead.
        """
        taken, first, steps = self._sampler.step, *self._epoch()
        size, moved = len(self._sampler), taken - self._taken
        within = taken % size and self._taken % size and taken // size == self._taken // size
        wrong = not steps and taken == first
        if self._ahead and steps and within:
            wrong = moved != self._accumulate
        if wrong:
            raise RuntimeError(
                f"the sampler gave {moved} batches for this step, not {self._accumulate}: "
                "accumulate= says of how many batches a step adds up the gradients, and a loader "
                "takes them from the sampler"
            )
        left = first - self.at  # batches at the end of the epoch that no step took
        if not steps and left > 0:
            lead = self.lead
            if lead is None and self._taken == self.at and moved == self._accumulate:
                lead = 0
            if lead is None or (lead and taken % size == 0):
                raise RuntimeError(
                    f"an epoch has {size} batches, and a step {self._accumulate}: whether the last "
                    f"{left} were left out cannot be told, for a loader takes all batches of an "
                    "epoch ahead. Take a batch_size of which an epoch has a multiple of "
                    "accumulate, or a loader with fewer workers"
                )
            new = taken - first - lead  # batches of the new epoch in this step
            if new == self._accumulate:
                self.at = first
            elif new + left != self._accumulate:
                raise RuntimeError(
                    f"a step has {new} batches of an epoch after {left} that were left of the last "
                    f"one, and not {self._accumulate}, as accumulate= says"
                )

    def advance(self) -> None:
        """End a step, with the batches that were taken."""
        taken, (self._first, self._steps) = self._sampler.step, self._epoch()
        if not self._steps:  # the first step of an epoch, when a loader has taken its lead
            of_before = max(self._first - self.at, 0)
            lead = taken - self._first - (self._accumulate - of_before)
            if taken % len(self._sampler):
                self.lead = lead
            elif lead > 0 and not self.lead:  # the epoch ended: the lead may be larger
                self.lead = None
            self._ahead |= lead > 0
            self._first = self.at
        self._taken, self._steps = taken, self._steps + 1
        self.at = self._first + self._accumulate * self._steps if self._ahead else taken

    def _epoch(self) -> tuple[int, int]:
        """Return where the epoch of the last batch began, and the number of steps since then."""
        taken, before, size = self._sampler.step, self._taken, len(self._sampler)
        if before and (taken - 1) // size != (before - 1) // size:
            return (taken - 1) // size * size, 0
        return self._first, self._steps
