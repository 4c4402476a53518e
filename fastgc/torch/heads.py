"""What ranks tell each other before a sum: a row of numbers for each, which all see alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from .._base.arrays import Array
from . import exact, shares
from .audit import SKETCH, Version, differ
from .member import Member, View

SUM, BOUNDARY, LEAVE = 1.0, 2.0, 3.0  # what a rank wants: a sum, the next step, to leave
SUMS, PARTS = 16, 16  # most further sums, and most intervals that a rank's share consists of
NAMES: tuple[str, ...] = ("kind", "step", "turn", "at", "fresh", "admits", "pace", "seconds")
NAMES += ("print", "piece", "size", "batch", "order", "sums", "rank", "life", "units", "seed")
NAMES += ("rides", "audit from", "audit to", "settled")
_ALIKE = ("at", "step", "turn", "print", "piece", "size", "batch", "order", "sums", "units", "seed")
TOPS = ("top of gradients", "top of buffers", "top of sums")  # the largest moduli, for exact sums
NAMES += TOPS
AT = {name: at for at, name in enumerate(NAMES)}
WIDTH = len(NAMES) + 1 + SUMS + 2 * PARTS + 2 * SKETCH
_DTYPES = (torch.float32, torch.float64, torch.int64)  # of sums


class Heads:
    """What the ranks of a view have told: a row for each, and how many used each parameter."""

    def __init__(self, numbers: Array, count: int) -> None:
        self.numbers = numbers
        self.rows = numbers[: count * WIDTH].reshape(count, WIDTH)
        self.used = numbers[self.rows.size :] > 0

    def of(self, name: str) -> Array:
        """Return what ranks tell by this name."""
        return self.rows[:, AT[name]]

    @property
    def ranks(self) -> list[int]:
        """The ranks."""
        return self.of("rank").astype(int).tolist()

    @property
    def names(self) -> list[str]:
        """The names of their lives."""
        return [f"{int(each):012x}" for each in self.of("life")]

    def exponents(self) -> list[int | None]:
        """Return the units of exact sums, as `exact.exponent_of` has them; None: not finite."""
        terms = max(1, int(self.of("units").max()))
        tops = [float(self.of(name).max()) for name in TOPS]
        return [exact.exponent_of(top, terms) if np.isfinite(top) else None for top in tops]

    @property
    def places(self) -> int:
        """How many places were dealt out: those of the batch, or shares of it."""
        return int(self.of("units").max() or self.of("batch").max())

    def sums(self) -> list[float]:
        """Return the loss and further sums of the whole batch."""
        begin, count = len(NAMES), 1 + int(self.of("sums").max())
        found: list[float] = self.rows[:, begin : begin + count].sum(axis=0).tolist()
        return found

    def parts(self) -> list[shares.Intervals]:
        """Return which places of the batch each rank has computed."""
        begin = len(NAMES) + 1 + SUMS
        told = self.rows[:, begin : begin + 2 * PARTS].astype(np.int64)
        pairs = told.reshape(len(self.rows), -1, 2).tolist()
        return [[(a, b) for a, b in row if b > a] for row in pairs]

    def lengths(self) -> list[int]:
        """Return how many places of the batch each rank has computed."""
        return [shares.length(each) for each in self.parts()]

    def doubted(self) -> tuple[tuple[int, int], list[Version]] | None:
        """Return the first share of which ranks have different gradients, and who has which."""
        if self.of("settled").any():
            return None
        own, others = self.rows[:, -2 * SKETCH : -SKETCH], self.rows[:, -SKETCH:]
        audited = list(zip(self.of("audit from"), self.of("audit to"), strict=True))
        for slot, part in enumerate(self.parts()):
            versions = [(slot, own[slot])]
            versions += [(b, others[b]) for b, each in enumerate(audited) if [each] == part]
            if differ(versions):
                return part[0], versions
        return None


class Result:
    """A sum, and what ranks told with it: with it, a rank that lacks it can go on.

    `view` is the view in which this rank took part in it, None if it got it from another one.
    """

    def __init__(self, heads: Heads, payload: torch.Tensor, view: View | None = None) -> None:
        self.heads, self.payload, self.view = heads, payload, view

    def is_like(self, heads: Heads) -> bool:
        """Whether a sum of this layout and in these units, of what `heads` tell, is whole."""
        if not ((heads.of("kind") == SUM) & (heads.of("rides") > 0)).all():
            return False
        for name in _ALIKE:
            told = heads.of(name)[heads.of(name) >= 0]
            if (told[1:] != told[:-1]).any():
                return False
        counted, free = shares.settle(heads.places, heads.parts())
        same = bool((heads.used == self.heads.used).all())
        return all(counted) and not free and same and heads.exponents() == self.heads.exponents()

    @classmethod
    def copied(
        cls,
        member: Member,
        view: View,
        source: int,
        own: Result | None,
        then: Callable[[Result], None] | None,
    ) -> None:
        """Copy a result from one rank to all of a view; `then` takes it on those who lack it."""
        size = torch.zeros(4, dtype=torch.int64)
        if own is not None:
            numbers, payload = torch.from_numpy(own.heads.numbers), own.payload
            kind = _DTYPES.index(payload.dtype)
            size = torch.tensor([len(own.heads.rows), len(numbers), len(payload), kind])
        member.copy(view, size, source)
        count, length, total, kind = size.tolist()
        if own is None:
            numbers = torch.zeros(length, dtype=torch.float64)
            payload = torch.empty(total, dtype=_DTYPES[kind])
        member.copy(view, numbers, source)
        found = cls(Heads(numbers.numpy(), count), payload)
        member.copy(view, payload, source, None if then is None else lambda: then(found))


def difference(view: View, values: Array, told: Array) -> str:
    """Return what each rank has told, if some of the values differ; otherwise ""."""
    if not len(values) or (values == values[0]).all():
        return ""
    groups: dict[int, list[int]] = {}
    for rank, value in zip(view.ranks, told.tolist(), strict=True):
        groups.setdefault(int(value), []).append(rank)
    return "; ".join(f"ranks {ranks}: {value}" for value, ranks in groups.items())
