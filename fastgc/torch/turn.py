"""One call of `backward`: what a rank computes of a batch, and its part of the sum."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
        self._buffers = [b for b in found if b.dtype != torch.bool and not b.is_complex()]
        self.lengths = [b.numel() for b in self._buffers]
        self.size = sum(self.lengths)

    def values(self) -> list[torch.Tensor]:
        """Return copies of them."""
        return [b.detach().clone() for b in self._buffers]

    def changed(self, before: Sequence[torch.Tensor]) -> bool:
        """Whether any differs from `before`."""
        return not all(map(torch.equal, self._buffers, before))

    @torch.no_grad()
    def changes(self, before: Sequence[torch.Tensor], weight: float) -> list[torch.Tensor]:
        """Return changes since `before`, times a weight."""
        return [(b - old) * weight for b, old in zip(self._buffers, before, strict=True)]

    @torch.no_grad()
    def restore(self, before: Sequence[torch.Tensor]) -> None:
        """Make them those of `before` again."""
        for b, old in zip(self._buffers, before, strict=True):
            b.copy_(old)

    @torch.no_grad()
    def put(self, flat: torch.Tensor, before: Sequence[torch.Tensor], weight: float) -> None:
        """Write changes since `before`, times a weight."""
        for b, old, view in zip(self._buffers, before, views(flat, self._buffers), strict=True):
            view.copy_((b - old) * weight)

    @torch.no_grad()
    def take(self, flat: torch.Tensor, before: Sequence[torch.Tensor]) -> None:
        """Add changes to `before`."""
        for b, old, view in zip(self._buffers, before, views(flat, self._buffers), strict=True):
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
        self.paces: list[float] = []  # samples a second, of the last calls
        self.kept: torch.Tensor | None = None  # the last sum, whose memory is in use
        self._memory: dict[tuple[int, int], torch.Tensor] = {}

    @property
    def pace(self) -> float:
        """Return samples a second; 0 if none was measured."""
        return float(np.median(self.paces)) if self.paces else 0.0

    def note_pace(self, pace: float) -> None:
        """Note samples a second."""
        self.paces = [*self.paces[1 - _PACES :], pace]

    def piece(self) -> int:
        """Return a fingerprint of some numbers of one parameter, of another one in each step."""
        if not self.parameters:
            return -1
        p = self.parameters[self.step % len(self.parameters)]
        return fingerprint([p.detach().reshape(-1)[:_PIECE]])

    def forget(self) -> None:
        """Use the memory of sums no longer: a collective may still write to it."""
        self._memory = {}

    def room(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return memory for a sum of gradients: not that of the last sum, which is kept."""
        for at in (0, 1):
            there = self._memory.get((at, size))
            if there is None or there.dtype != dtype:
                self._memory = {key: t for key, t in self._memory.items() if key[1] == size}
                self._memory[at, size] = there = torch.empty(size, dtype=dtype)
                return there
            if self.kept is None or there.data_ptr() != self.kept.data_ptr():
                return there
        return torch.empty(size, dtype=dtype)


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
        if self.checked:
            with restored(self._replica.device):
                seed_all(self._replica.seed, self._replica.step, self._replica.turn, part[0][0])
                self._add(part)
        else:
            self._add(part)

    def _add(self, part: shares.Intervals) -> None:
        begin = time.perf_counter()
        sums = self._computed(part)
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)] if self._sums else sums
        self._did(part, time.perf_counter() - begin)

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

    def _did(self, part: shares.Intervals, seconds: float) -> None:
        """Note what was computed, and how fast."""
        self._seconds += seconds
        self._had = shares.joined(self._had, part)
        self._replica.note_pace(shares.length(part) / max(seconds, 1e-9))

    def alone(self, ranks: int) -> Any:
        """Compute the whole batch on this rank alone, in parts as large as its share of `ranks`."""
        dealt = shares.counts(self.size, [1.0] * ranks, self._replica.least)
        for part in shares.cut(dealt, [(0, self.size)]):
            self.add(part)
        return self._give([p.grad for p in self._replica.parameters], self._sums)

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

    def payload(self, heads: Heads) -> torch.Tensor:
        """Return this rank's part of the sum: gradients, and changes of buffers."""
        replica, used = self._replica, heads.used
        parameters = [p for p, there in zip(replica.parameters, used, strict=False) if there]
        wide = any(p.dtype == torch.float64 for p in parameters)
        size = sum(p.numel() for p in parameters) + (replica.buffers.size if used[-1] else 0)
        flat = replica.room(size, torch.float64 if wide else torch.float32)
        self.fill(flat, used)
        return flat

    def fill(self, flat: torch.Tensor, used: Array) -> None:
        """Write gradients of the parameters in use, and changes of buffers."""
        replica = self._replica
        parameters = [p for p, there in zip(replica.parameters, used, strict=False) if there]
        for p, view in zip(parameters, views(flat, parameters), strict=True):
            if p.grad is None:
                view.zero_()
            else:
                view.copy_(p.grad.to_dense() if p.grad.is_sparse else p.grad)
        if used[-1] and replica.buffers.size:
            weight = shares.length(self._had) / self.size
            replica.buffers.put(flat[-replica.buffers.size :], self._restore_at, weight)

    def take(self, result: Result | None) -> Any:
        """Turn a sum into gradients and a loss."""
        assert result is not None
        replica, used = self._replica, result.heads.used
        parameters = [p for p, there in zip(replica.parameters, used, strict=False) if there]
        parts = iter(views(result.payload, parameters))
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
        if used[-1]:
            replica.buffers.take(result.payload[-replica.buffers.size :], self._restore_at)
        return self._give(grads, result.heads.sums(), scaled=True)

    @torch.no_grad()
    def _give(
        self, grads: Sequence[torch.Tensor | None], sums: list[float], scaled: bool = False
    ) -> Any:
        replica, scale = self._replica, self._scale
        there = [each for each in grads if each is not None]
        if there and scale != 1.0 and not scaled:
            torch._foreach_mul_(there, scale)
        for p, grad, before in zip(replica.parameters, grads, self._before, strict=True):
            p.grad = grad if before is None else before if grad is None else before.add_(grad)
        loss = sums[0] * scale
        return (loss, *sums[1:]) if self._tupled or len(sums) > 1 else loss


_Terms = Sequence[torch.Tensor | None]


class _Share(NamedTuple):
    """What one share gives: a list of terms of each kind, None for what it does not use."""

    gradients: _Terms
    buffers: _Terms
    sums: _Terms


class ExactTurn(Turn):
    """One call of `backward` with ``shares=``: shares are dealt out whole, and summed exactly."""

    def __init__(self, replica: Replica, compute: Compute, batch: Any) -> None:
        super().__init__(replica, compute, batch)
        self.units = replica.units
        self._found: list[_Share] = []

    def _places(self, share: int) -> shares.Intervals:
        return [(share * self.size // self.units, (share + 1) * self.size // self.units)]

    def add(self, part: shares.Intervals) -> None:
        """Compute some shares, and keep what each gives."""
        self.unplanned = False
        if not part:
            return
        replica, begin = self._replica, time.perf_counter()
        with restored(replica.device):
            for share in (each for pair in part for each in range(*pair)):
                places = self._places(share)
                if shares.length(places):
                    seed_all(replica.seed, replica.step, replica.turn, share)
                    self._sums = self._computed(places)
                    self._keep(shares.length(places) / self.size)
        self._did(part, time.perf_counter() - begin)

    def _keep(self, weight: float) -> None:
        """Keep what a share gives, and begin the next from the buffers of the step's start."""
        replica = self._replica
        self._found.append(
            _Share(
                [p.grad.to_dense() if p.grad is not None else None for p in replica.parameters],
                replica.buffers.changes(self._restore_at, weight),
                [torch.tensor(self._sums, dtype=torch.float64)],
            )
        )
        replica.buffers.restore(self._restore_at)
        for p in replica.parameters:
            p.grad = None

    def gradients(self) -> Sequence[torch.Tensor | None]:
        """Return the gradient of the shares that this rank has computed, rounded."""
        found: list[torch.Tensor | None] = [None] * len(self._replica.parameters)
        for share in self._found:
            for at, term in enumerate(share.gradients):
                if term is not None:
                    there = found[at]
                    found[at] = term if there is None else there + term
        return found

    def alone(self, ranks: int) -> Any:
        """Compute the whole batch on this rank alone, share by share; nobody needs exact sums."""
        for share in range(self.units):
            super().add(self._places(share))
        replica = self._replica
        replica.paces = [pace * self.units / self.size for pace in replica.paces]  # in shares
        return self._give([p.grad for p in self._replica.parameters], self._sums)

    def discard(self) -> None:
        """Forget what this rank has computed."""
        self._found = []
        super().discard()

    def tell(self, told: dict[str, Any], own: Array, used: Array) -> None:
        """Write what this rank tells: also the largest moduli, which fix the common unit."""
        super().tell(told, own, used)
        for share in self._found:
            used[:-1] += [term is not None for term in share.gradients]
            used[-1] += any(term is not None and bool(term.any()) for term in share.buffers)
        for at, name in enumerate(TOPS):
            told[name] = max(
                (exact.largest(t) for share in self._found for t in share[at] if t is not None),
                default=0.0,
            )

    def payload(self, heads: Heads) -> torch.Tensor:
        """Return this rank's part of the sum, in integers."""
        whole = self._replica.room(sum(map(sum, self._lengths(heads))), torch.int64).zero_()
        kinds = self._kinds(whole, heads)
        for share in self._found:
            for at, (totals, exponent) in enumerate(kinds):
                terms: Sequence[torch.Tensor | None] = share[at]
                for term, total in zip(terms, totals, strict=True):
                    if exponent is not None and term is not None and total.numel():
                        exact.add(total, term, exponent)
        return whole

    def take(self, result: Result | None) -> Any:
        """Turn a sum into gradients and a loss."""
        assert result is not None
        replica, used = self._replica, result.heads.used
        gradients, buffers, sums = self._kinds(result.payload, result.heads)
        memory = self._found[0].gradients if self._found else []
        grads: list[torch.Tensor | None] = []
        for at, (p, total) in enumerate(zip(replica.parameters, gradients[0], strict=True)):
            grads.append(None)
            if used[at]:
                there = memory[at] if memory else None
                grads[-1] = out = torch.empty_like(p) if there is None else there
                _put_back([total], gradients[1], out)
        if used[-1]:
            changes = torch.empty(replica.buffers.size, dtype=torch.float64)
            _put_back(buffers[0], buffers[1], changes)
            replica.buffers.take(changes, self._restore_at)
        found = torch.empty(len(sums[0][0]), dtype=torch.float64)
        _put_back(sums[0], sums[1], found)
        return self._give(grads, found.tolist())

    def _lengths(self, heads: Heads) -> list[list[int]]:
        """Return the lengths of the totals of each kind, 0 for what no share uses."""
        replica, used = self._replica, heads.used
        return [
            [p.numel() * bool(u) for p, u in zip(replica.parameters, used, strict=False)],
            [length * bool(used[-1]) for length in replica.buffers.lengths],
            [1 + int(heads.of("sums").max())],
        ]

    def _kinds(
        self, whole: torch.Tensor, heads: Heads
    ) -> list[tuple[list[torch.Tensor], int | None]]:
        """Return the totals of each kind, and their exponent; None: a term is not finite."""
        lengths = self._lengths(heads)
        totals = iter(torch.split(whole, [each for kind in lengths for each in kind]))
        found: list[tuple[list[torch.Tensor], int | None]] = []
        for name, kind in zip(TOPS, lengths, strict=True):
            most = float(heads.of(name).max())
            exponent = exact.exponent_of(most, self.units) if np.isfinite(most) else None
            found.append(([next(totals) for _ in kind], exponent))
        return found


def _put_back(totals: list[torch.Tensor], exponent: int | None, out: torch.Tensor) -> None:
    if exponent is None:
        out.fill_(torch.nan)
    else:
        exact.put_back(totals[0] if len(totals) == 1 else torch.cat(totals), exponent, out)


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
