"""One call of `backward`: what a rank computes of a batch, and its part of the sum."""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .._base.arrays import Array
from . import exact, shares
from .audit import sketch
from .batches import restored, seed_all
from .heads import NAMES, PARTS, SUMS, TOPS, Heads, Result
from .job import check_sum, losses
from .parameters import fingerprint, views

Compute = Callable[[Any], Any]

_PIECE = 4096  # numbers of one parameter that are compared in every step
_PACES = 9  # a rank's pace is the median of the last so many


class Buffers:
    """Buffers that forward may change: each becomes the mean over ranks, by their shares."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        found = dict.fromkeys(b for m in modules for b in m.buffers())
        self.tensors = [b for b in found if b.dtype != torch.bool and not b.is_complex()]
        self.lengths = [b.numel() for b in self.tensors]
        self.size = sum(self.lengths)

    def values(self) -> list[torch.Tensor]:
        """Return copies of them."""
        return [b.detach().clone() for b in self.tensors]

    def changed(self, before: Sequence[torch.Tensor]) -> bool:
        """Whether any differs from `before`."""
        return not all(map(torch.equal, self.tensors, before))

    @torch.no_grad()
    def changes(self, before: Sequence[torch.Tensor], weight: float) -> list[torch.Tensor]:
        """Return changes since `before`, times a weight."""
        return [(b - old) * weight for b, old in zip(self.tensors, before, strict=True)]

    @torch.no_grad()
    def restore(self, before: Sequence[torch.Tensor]) -> None:
        """Make them those of `before` again."""
        for b, old in zip(self.tensors, before, strict=True):
            b.copy_(old)

    @torch.no_grad()
    def take(self, flat: torch.Tensor, before: Sequence[torch.Tensor]) -> None:
        """Add changes to `before`."""
        for b, old, view in zip(self.tensors, before, views(flat, self.tensors), strict=True):
            change = view.to(b.device)
            b.copy_(old + (change if b.is_floating_point() else change.round()).to(b.dtype))


class Replica:
    """What is trained on a rank, as calls of `backward` see it.

    Parameters
    ----------
    modules : list of torch.nn.Module
    mean : bool
        Whether gradients and sums are divided by the number of samples.
    units : int
        Number of shares into which each batch is cut; 0: places are dealt out.
    seed : int
    """

    def __init__(self, modules: list[torch.nn.Module], mean: bool, units: int, seed: int) -> None:
        self.modules, self.mean, self.units, self.seed = modules, mean, units, seed
        self.parameters = list(dict.fromkeys(p for m in modules for p in m.parameters()))
        self.device = next((p.device for p in self.parameters), torch.device("cpu"))
        self.buffers = Buffers(modules)
        # BatchNorm needs two samples.
        norm = torch.nn.modules.batchnorm._BatchNorm
        self.least = 1 + any(isinstance(e, norm) for m in modules for e in m.modules())
        self.step = self.turn = 0  # of the call
        self.paces: deque[float] = deque(maxlen=_PACES)  # samples a second, of the last calls
        self.kept: Result | None = None  # the last sum, for ranks that lack it
        self.forget()

    @property
    def pace(self) -> float:
        """Return samples a second; 0 if none was measured."""
        return float(np.median(self.paces)) if self.paces else 0.0

    def piece(self) -> int:
        """Return a fingerprint of some numbers of one parameter, of another one in each step."""
        if not self.parameters:
            return -1
        p = self.parameters[self.step % len(self.parameters)]
        return fingerprint([p.detach().reshape(-1)[:_PIECE]])

    def forget(self) -> None:
        """Use the memory of sums no longer: a collective may still write to it."""
        self._memory = [torch.empty(0, dtype=torch.uint8) for _ in range(2)]

    def room(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return memory for a sum: not that of the last one, which is kept."""
        kept = None if self.kept is None else self.kept.payload.data_ptr()
        at, size = int(self._memory[0].data_ptr() == kept), size * dtype.itemsize
        if len(self._memory[at]) < size:
            self._memory[at] = torch.empty(size, dtype=torch.uint8)
        return self._memory[at][:size].view(dtype)

    def used(self, heads: Heads) -> list[torch.Tensor]:
        """Return the parameters of which some rank has a gradient."""
        return [p for p, there in zip(self.parameters, heads.used, strict=False) if there]


class Turn:
    """One call of `backward`: what this rank has computed of the batch."""

    def __init__(self, replica: Replica, compute: Compute, batch: Any) -> None:
        self._replica, self._compute, self._batch = replica, compute, batch
        order = np.asarray(batch)
        if order.ndim != 1 or not len(order):
            raise ValueError(f"a batch must be a list of indices, not of shape {order.shape}")
        self.size = len(order)
        self._scale = 1 / self.size if replica.mean else 1.0
        self.units = self.size  # what is dealt out: places, or shares of them
        self._order = zlib.crc32(np.ascontiguousarray(order).view(np.uint8).data)
        self._before = [p.grad for p in replica.parameters]
        self._restore_at = replica.buffers.values()
        for p in replica.parameters:
            p.grad = None
        self._had: shares.Intervals = []
        self._sums: list[float] = []
        self._tupled = False
        self._seconds = 0.0
        self.unplanned = True
        self.checked = False  # whether another rank computes the same, from the same random numbers
        self.settled = False  # whether a difference of two ranks was found to accuse nobody
        self._audit: list[float] = []  # whose share was computed again, and sketches of gradients

    def check_sum(self) -> None:
        """Raise RuntimeError if the loss of some samples depends on the others of the batch."""
        replica = self._replica

        def loss(begin: int, end: int) -> float:
            values = self._compute(taken(self._batch, [(begin, end)]))
            return float(losses(lambda *_: values, torch.nn.Module(), None)[0])

        with restored(replica.device):
            check_sum(loss, self.size, replica.modules)
        replica.buffers.restore(self._restore_at)

    def add(self, part: shares.Intervals) -> None:
        """Compute some places of the batch, and add their gradient to what this rank has."""
        self.unplanned = False
        if not part:
            return
        begin = time.perf_counter()
        if self.checked or self._replica.units:
            with restored(self._replica.device):
                self._add(part)
        else:
            self._add(part)
        seconds = time.perf_counter() - begin
        self._seconds += seconds
        self._had = shares.joined(self._had, part)
        self._replica.paces.append(shares.length(part) / max(seconds, 1e-9))

    def _add(self, part: shares.Intervals) -> None:
        if self.checked:
            seed_all(self._replica.seed, self._replica.step, self._replica.turn, part[0][0])
        sums = self._computed(part)
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)] if self._sums else sums

    def gradients(self) -> Sequence[torch.Tensor | None]:
        """Return the gradient of what this rank has computed."""
        return [p.grad for p in self._replica.parameters]

    def audit(self, share: tuple[int, int]) -> None:
        """Compute another rank's share, to tell what its gradient is."""
        replica = self._replica
        other = type(self)(replica, self._compute, self._batch)
        seed = replica.seed, replica.step
        try:
            other.checked = True
            other.add([share])
            theirs = sketch(other.gradients(), seed)
        finally:
            other.give_back()
            replica.buffers.restore(other._restore_at)
        self._audit = [*share, *sketch(self.gradients(), seed), *theirs]

    def _computed(self, places: shares.Intervals) -> list[float]:
        """Compute places of the batch, and add to gradients; return the loss and further sums."""
        values = self._compute(taken(self._batch, places))
        loss, further = losses(lambda *_: values, torch.nn.Module(), None)
        if len(further) > SUMS:
            raise ValueError(f"compute returns {len(further)} further sums, and {SUMS} can be told")
        if loss.requires_grad:
            backward: Any = loss.backward
            backward()
        self._tupled = isinstance(values, tuple | list)
        return [float(loss.detach()), *further]

    def discard(self) -> None:
        """Forget what this rank has computed: another one's sum counts."""
        self._had, self._sums = [], []
        for p in self._replica.parameters:
            p.grad = None
        self._replica.buffers.restore(self._restore_at)

    def give_back(self) -> None:
        """Restore gradients, after an error."""
        for p, grad in zip(self._replica.parameters, self._before, strict=True):
            p.grad = grad

    def tell(self, told: dict[str, Any], own: Array, used: Array) -> None:
        """Write what this rank tells before the sum."""
        told |= {
            "seconds": self._seconds,
            "batch": self.size,
            "order": self._order,
            "sums": len(self._sums) - 1 if self._sums else -1,
            "units": self._replica.units,
            "seed": self._replica.seed,
        }
        begin = len(NAMES)
        own[begin : begin + len(self._sums)] = self._sums
        if len(self._had) > PARTS:  # too many pieces to tell
            self.discard()
        flat = [end for each in self._had for end in each]
        begin += 1 + SUMS
        own[begin : begin + len(flat)] = flat
        if self._audit:
            told["audit from"], told["audit to"], *sketches = self._audit
            own[-len(sketches) :] = sketches
        told["settled"] = self.settled
        used[:-1] = [p.grad is not None for p in self._replica.parameters]
        used[-1] = self._replica.buffers.changed(self._restore_at)

    def layout(self, heads: Heads) -> tuple[int, torch.dtype]:
        """Return the size of a sum, and its dtype."""
        parameters = self._replica.used(heads)
        wide = any(p.dtype == torch.float64 for p in parameters)
        size = sum(p.numel() for p in parameters) + self._replica.buffers.size * bool(
            heads.used[-1]
        )
        return size, torch.float64 if wide else torch.float32

    def tops(self) -> list[float]:
        """Return the largest moduli, from which the units of exact sums follow."""
        return [0.0] * len(TOPS)

    def fill(self, flat: torch.Tensor, heads: Heads) -> list[float]:
        """Write this rank's part of a sum: gradients, and changes of buffers; return `tops`."""
        replica = self._replica
        parameters = replica.used(heads)
        for p, view in zip(parameters, views(flat, parameters), strict=True):
            if p.grad is None:
                view.zero_()
            else:
                view.copy_(p.grad.to_dense() if p.grad.is_sparse else p.grad)
        if heads.used[-1] and replica.buffers.size:
            changes = replica.buffers.changes(
                self._restore_at, shares.length(self._had) / self.size
            )
            parts = views(flat[-replica.buffers.size :], changes)
            for view, change in zip(parts, changes, strict=True):
                view.copy_(change)
        return self.tops()

    def _floats(self, result: Result) -> tuple[torch.Tensor, list[float]]:
        """Return a result as floats: gradients and changes of buffers, and further sums."""
        return result.payload, result.heads.sums()

    @torch.no_grad()
    def take(self, result: Result) -> Any:
        """Turn a sum into gradients and a loss."""
        replica, used = self._replica, result.heads.used
        payload, sums = self._floats(result)
        parts = iter(views(payload, replica.used(result.heads)))
        grads: list[torch.Tensor | None] = []
        for p, there in zip(replica.parameters, used, strict=False):
            if not there:
                grads.append(None)
                continue
            view = next(parts)
            if p.grad is None or p.grad.is_sparse:
                p.grad = torch.empty_like(p)
            if view.dtype == p.dtype and view.device == p.device:
                grads.append(torch.mul(view, self._scale, out=p.grad))
            else:
                grads.append(p.grad.copy_(view).mul_(self._scale))
        if used[-1] and replica.buffers.size:
            replica.buffers.take(payload[-replica.buffers.size :], self._restore_at)
        for p, grad, before in zip(replica.parameters, grads, self._before, strict=True):
            p.grad = grad if before is None else before if grad is None else before.add_(grad)
        loss = sums[0] * self._scale
        return (loss, *sums[1:]) if self._tupled or len(sums) > 1 else loss


Terms = tuple[list[torch.Tensor | None], list[torch.Tensor], list[torch.Tensor]]


class ExactTurn(Turn):
    """One call of `backward` with ``shares=``: shares are dealt out whole, and summed exactly.

    Gradients, changes of buffers, and sums have a unit each: see `Heads.exponents`.
    """

    def __init__(self, replica: Replica, compute: Compute, batch: Any) -> None:
        super().__init__(replica, compute, batch)
        self.units = replica.units
        self._found: list[Terms] = []  # of each share: terms of each kind

    def _places(self, share: int) -> shares.Intervals:
        return [(share * self.size // self.units, (share + 1) * self.size // self.units)]

    def _add(self, part: shares.Intervals) -> None:
        """Compute some shares, each from the buffers of the step's start; keep what each gives."""
        replica = self._replica
        for share in (each for pair in part for each in range(*pair)):
            places = self._places(share)
            if not shares.length(places):
                continue
            seed_all(replica.seed, replica.step, replica.turn, share)
            self._sums = self._computed(places)
            grads = [None if p.grad is None else p.grad.to_dense() for p in replica.parameters]
            weight = shares.length(places) / self.size
            changes = replica.buffers.changes(self._restore_at, weight)
            sums = torch.zeros(1 + SUMS, dtype=torch.float64)
            sums[: len(self._sums)] = torch.tensor(self._sums)
            self._found.append((grads, changes, [sums]))
            replica.buffers.restore(self._restore_at)
            for p in replica.parameters:
                p.grad = None

    def gradients(self) -> Sequence[torch.Tensor | None]:
        """Return the gradient of the shares that this rank has computed, rounded."""
        found: list[torch.Tensor | None] = [None] * len(self._replica.parameters)
        for grads, _, _ in self._found:
            for at, term in enumerate(grads):
                if term is not None:
                    there = found[at]
                    found[at] = term if there is None else there + term
        return found

    def discard(self) -> None:
        """Forget what this rank has computed."""
        self._found = []
        super().discard()

    def tell(self, told: dict[str, Any], own: Array, used: Array) -> None:
        """Write what this rank tells."""
        super().tell(told, own, used)
        for grads, changes, _ in self._found:
            used[:-1] += [term is not None for term in grads]
            used[-1] += any(bool(term.any()) for term in changes)

    def tops(self) -> list[float]:
        """Return the largest moduli, from which the units of exact sums follow."""
        return [self._top(kind) for kind in range(len(TOPS))]

    def _top(self, kind: int) -> float:
        terms = [t for share in self._found for t in share[kind] if t is not None]
        return max(map(exact.largest, terms), default=0.0)

    def layout(self, heads: Heads) -> tuple[int, torch.dtype]:
        """Return the size of a sum, and its dtype."""
        return super().layout(heads)[0] + 1 + SUMS, torch.int64

    def fill(self, flat: torch.Tensor, heads: Heads) -> list[float]:
        """Write this rank's part of a sum, in integers; return `tops`, or what has their units."""
        kinds = zip(self._split(flat, heads), self._likes(heads), heads.exponents(), strict=True)
        used, tops = np.flatnonzero(heads.used[:-1]).tolist(), []
        for kind, (total, like, exponent) in enumerate(kinds):
            reached = 0.0
            for at, part in zip(
                used if kind == 0 else range(len(like)), views(total, like), strict=True
            ):
                terms = [t for share in self._found if (t := share[kind][at]) is not None]
                if exponent is None or not terms:
                    part.zero_()
                    continue
                for i, term in enumerate(terms):
                    reached += exact.add(part, term, exponent, self.units, keep=i > 0)
            top = 0.0 if exponent is None else exact.top_of(exponent, self.units)
            tops.append(top if top and 0 < reached < np.inf else self._top(kind))
        return tops

    def _likes(self, heads: Heads) -> tuple[list[torch.Tensor], ...]:
        """Return tensors of the shapes that a sum consists of, of each kind."""
        buffers = self._replica.buffers.tensors if heads.used[-1] else []
        return self._replica.used(heads), buffers, [torch.empty(1 + SUMS)]

    def _split(self, flat: torch.Tensor, heads: Heads) -> list[torch.Tensor]:
        sizes = [sum(each.numel() for each in like) for like in self._likes(heads)]
        return list(torch.split(flat, sizes))

    def _floats(self, result: Result) -> tuple[torch.Tensor, list[float]]:
        """Return a result as floats, each rounded once; all NaN if a term is not finite."""
        self._found = []  # memory for gradients
        heads = result.heads
        flat = self._replica.room(*super().layout(heads))
        sums = torch.empty(1 + SUMS, dtype=torch.float64)
        totals = self._split(result.payload, heads)
        floats = flat[: len(totals[0])], flat[len(totals[0]) :], sums
        for total, exponent, out in zip(totals, heads.exponents(), floats, strict=True):
            if exponent is None:
                out.fill_(torch.nan)
            else:
                exact.put_back(total, exponent, out)
        return flat, sums[: 1 + int(heads.of("sums").max())].tolist()


def taken(batch: Any, part: shares.Intervals) -> Any:
    """Return these places of a batch, as the type that it has."""
    pieces = [batch[begin:end] for begin, end in part]
    if not pieces:
        return batch[:0]
    if len(pieces) == 1:
        return pieces[0]
    if isinstance(batch, torch.Tensor):
        return torch.cat(pieces)
    if isinstance(batch, np.ndarray):
        return np.concatenate(pieces)
    return [index for piece in pieces for index in piece]
