"""Gradients of whole batches on every rank, whoever dies, at any pace, without a code."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from .._base.arrays import Array, at_least, check_word
from ..errors import FinishedError
from . import exact, handover, shares
from .batches import restored, seed_all
from .finding import find
from .job import check_sum, losses
from .member import BrokenViewError, Member, NewcomerError, View
from .parameters import fingerprint, views
from .samples import Samples
from .times import Times

_LOG = logging.getLogger("fastgc")

_SUM, _BOUNDARY, _LEAVE = 1.0, 2.0, 3.0  # what a rank wants: a sum, the next step, to leave
_SUMS, _PARTS = 16, 16  # most further sums, and most intervals that a rank's share consists of
_NAMES: tuple[str, ...] = ("kind", "step", "turn", "at", "fresh", "admits", "pace", "seconds")
_NAMES += ("print", "piece", "size", "batch", "order", "sums", "rank", "life", "units", "seed")
_NAMES += ("rides",)
_ALIKE = ("at", "step", "turn", "print", "piece", "size", "batch", "order", "sums", "units", "seed")
_TOPS = ("top of gradients", "top of buffers", "top of sums")  # the largest moduli, for exact sums
_NAMES += _TOPS
_AT = {name: at for at, name in enumerate(_NAMES)}
_WIDTH = len(_NAMES) + 1 + _SUMS + 2 * _PARTS
_WATCHED, _EVERY = 3, 100  # steps after a join, and then every so many, that compare parameters
_PIECE = 4096  # numbers of one parameter that are compared in every step
_PACES = 9  # a rank's pace is the median of the last so many
_HANG, _SHORTEST, _FACTOR, _MEASURED = 60.0, 10.0, 10.0, 20  # seconds, seconds, times, steps

_DTYPES = (torch.float32, torch.float64, torch.int64)  # of sums

Compute = Callable[[Any], Any]


class ReactiveDataParallel:
    """Make every ``.grad`` that of the whole batch on all ranks, while one of them lives.

    All ranks run the same loop, as with DistributedDataParallel::

        with ReactiveDataParallel(model, state=[optimizer, scheduler]) as rdp:
            for step in rdp.steps(STEPS):
                optimizer.zero_grad()
                loss = rdp.backward(compute, batch(step))
                optimizer.step()
                scheduler.step()

    ``batch(step)`` are the indices of all samples of a step, the same on all ranks, and
    ``compute(indices)`` returns the sum of the losses of some of them. Each rank computes a share
    of the batch that follows its measured pace. When a rank dies, the others compute what it owed
    in the same step, so each step is that of the whole batch. A rank that starts later gets the
    others' state, tries a step alone, and takes part from the next step on.

    Parameters
    ----------
    model : torch.nn.Module or iterable of torch.nn.Module
        What is trained, with the same parameters on all ranks at the start. Several modules, such
        as the two of a GAN, are given as a list. Each rank holds all of them (as with
        DistributedDataParallel), on any device. Gradients are summed on the CPU.
    state : iterable
        What a rank that joins gets from another, besides the modules' states: optimizers,
        schedulers, samplers and all else with ``state_dict()`` and ``load_state_dict()`` that
        steps change. Ranks compare their parameters, so that what is left out is an error.
    reduction : "mean" or "sum"
        Whether gradients and losses are divided by the number of indices of the batch.
    hang : float, optional
        Seconds that a silent rank is waited for. Default: 60, and after 20 steps ten times the
        longest of the last 20, at least 10.
    replace : float, optional
        Seconds to wait if nobody who holds the state can be reached. Default: `hang`. While one
        rank holds the state, training goes on.
    shares : int, optional
        Make steps the same to the last bit for any number of ranks, deaths and paces: the batch is
        cut into so many shares, each computed by itself, and summed exactly. Default: shares follow
        paces to the sample, and sums are rounded. See Notes.
    seed : int
        With `shares`, of the random numbers that are drawn while a share is computed.
    times : path, optional
        A CSV file of the seconds that each rank computed in each step: a row for each step, a
        column for each rank. ``fastgc plan --recorded`` reads it.
    rank : int, optional
        Default: that of torchrun; without torchrun the coordinator gives a number.
    ranks : int, optional
        How many ranks begin together. Default: torchrun's ``WORLD_SIZE``, or 1. More may join.
    store : str, optional
        ``host:port`` of ``python -m fastgc.store``. Default: the environment's ``FASTGC_STORE``,
        or else what the guard of rank 0 keeps.

    Attributes
    ----------
    step : int
        The step that is computed, counted from 0; after the loop, the number of steps.
    rank : int
        This rank's number.
    alone : bool
        Whether this rank, which joins, tries a step alone: it computes the whole batch, and what
        the loop makes of it is then replaced by the others' state.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit.
    RuntimeError
        If the coordinator cannot be reached.

    Notes
    -----
    `backward` may be called any number of times in a step: gradients add up, as with plain PyTorch.
    Buffers that forward changes, such as BatchNorm's, become the mean over ranks, weighted by their
    shares. Dropout and augmentation draw on each rank by itself.

    With ``shares=K`` a step depends on the seed and the batch alone. Places ``j * size // K`` up to
    ``(j + 1) * size // K`` of a batch are share j. It is computed in one call of `compute`, from
    the buffers of the step's start, with random numbers of torch, NumPy and random that follow from
    (seed, step, number of the call of `backward`, j). Gradients, buffers and losses of shares are
    rounded to integers of 64 bits in a common unit, at most 2^-(62 - ceil(log2 K)) of the largest
    modulus, whose sum is exact. So one rank or four, with deaths or without, have the same weights
    to the last bit, on one kind of processor and with one number of threads for each rank
    (``torch.set_num_threads``). A rank computes whole shares: take K several times as large as the
    number of ranks. It keeps the gradient of each until the sum. If an element of a share's
    gradient is not finite, all of the step's gradient is NaN.
    """

    def __init__(
        self,
        model: torch.nn.Module | Iterable[torch.nn.Module],
        state: Iterable[Any] = (),
        *,
        reduction: str = "mean",
        hang: float | None = None,
        replace: float | None = None,
        shares: int | None = None,
        seed: int = 0,
        times: str | Path | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        store: str | None = None,
    ) -> None:
        check_word("reduction", reduction, "mean", "sum")
        self._modules = [model] if isinstance(model, torch.nn.Module) else list(model)
        self._state = list(state)
        _check_state(self._modules, self._state)
        self._parameters = list(dict.fromkeys(p for m in self._modules for p in m.parameters()))
        if any(hasattr(p, "placements") for p in self._parameters):
            raise TypeError(
                "parameters that several processes share (DTensor, as of fully_shard) are not for "
                "ReactiveDataParallel, of which each rank holds the whole model: see torchft"
            )
        self._device = next((p.device for p in self._parameters), torch.device("cpu"))
        self._buffers = _Buffers(self._modules)
        # BatchNorm needs two samples.
        norm = torch.nn.modules.batchnorm._BatchNorm
        self._least = 1 + any(isinstance(e, norm) for m in self._modules for e in m.modules())
        self._mean = reduction == "mean"
        for name, value in (("hang", hang), ("replace", replace)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
        self._hang = hang
        self._units = 0 if shares is None else at_least("shares", shares, 1)
        self._seed = at_least("seed", seed, 0)
        self._times = None if times is None else Times(times)
        self.step = 0
        self.alone = False
        self._turn = 0
        self._fresh = True
        self._inside = False  # whether a step's body runs
        self._admits = False  # whether newcomers enter before the next step
        self._watch = _WATCHED  # further steps that compare all parameters
        self._paces: list[float] = []  # samples a second, of this rank in the last steps
        self._known = _Known([], [], [])
        self._seconds: list[float] = []  # of the last steps
        self._own_seconds = 0.0
        self._begun = 0.0
        self._tried: int | None = None  # the step in which losses were tried
        self._kept: _Result | None = None  # of the last sum, for ranks that lack it
        self._ahead: _Layout | None = None  # of the last sum in a view: the next is like it
        self._memory: dict[tuple[int, int], torch.Tensor] = {}
        place = find(store, rank, ranks)
        self._server = place.server
        self._member = Member(place.address, place.run, place.rank, place.ranks, hang, replace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._end()

    def __repr__(self) -> str:
        names = ", ".join(type(each).__name__ for each in self._modules)
        return f"<ReactiveDataParallel of {names}: rank {self.rank}, step {self.step}>"

    @property
    def rank(self) -> int:
        """Return this rank's number."""
        return self._member.rank

    @property
    def ranks(self) -> list[int]:
        """Return the ranks that take part now."""
        return list(self._view().ranks)

    @property
    def first(self) -> bool:
        """Whether this is the first of the ranks that take part: the one that saves and prints.

        Right after a death, too: while ranks agree on who is left, this waits for it.
        """
        return not self.alone and self._view().slot == 0

    def _view(self) -> View:
        last = self._member.last
        if self.alone or self._fresh or self._member.closed:
            if last is None:
                raise RuntimeError("ranks find each other when steps() begins")
            return last
        return self._member.there()

    # ------------------------------------------------------------------------------------- the loop

    def steps(self, until: int) -> Iterator[int]:
        """Yield the numbers of the steps up to `until`, from the first, or from the others' on.

        Raises
        ------
        LeftOutError
            If the others have gone on without this rank, because it was silent for too long. The
            guard starts it again.
        FinishedError
            If the run ended before this rank could join.
        RuntimeError
            If ranks differ in their parameters or their loops, or if nobody who held the state is
            left.
        """
        self._member.say("busy", False)
        try:
            if self._fresh:
                try:
                    self._cross()
                except NewcomerError:
                    yield from self._rehearse(until)
                    self._cross()
            while self.step < until:
                self._turn, self._inside, self._begun = 0, True, time.monotonic()
                yield self.step
                self._inside = False
                self._end_step()
                self._cross()
        finally:
            self._inside = False
            self._member.say("busy", True)  # what follows the loop may take long

    def backward(self, compute: Compute, batch: Any) -> Any:
        """Add the gradient of a batch to every ``.grad``; return its loss.

        Parameters
        ----------
        compute : callable
            ``compute(indices)`` returns the sum of these samples' losses, a tensor, or a tuple of
            it and further sums. It is not called if this rank has no samples, and again for what a
            rank owed that died.
        batch : sequence of int
            The indices of all samples of the batch, the same on all ranks: a list, an array, or a
            tensor. `compute` gets parts of it, of the same type.

        Returns
        -------
        float, or tuple of float
            The batch's loss, its mean or sum as `reduction` says; a tuple of it and of the further
            sums, if `compute` returns some.
        """
        if not self._inside:
            raise RuntimeError("backward() belongs into a loop `for step in rdp.steps(STEPS):`")
        turn = (_ExactTurn if self._units else _Turn)(self, compute, batch)
        try:
            if self._tried in (None, self.step):
                self._tried = self.step
                turn.check_sum()
            result = turn.alone() if self.alone else self._summed(turn)
        except BaseException:
            turn.give_back()
            raise
        self._turn += 1
        return result

    def loader(
        self,
        dataset: Any,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        batch: Callable[[int], Any] | None = None,
    ) -> Samples:
        """Return a function of indices, for `compute`, that returns these samples as a batch.

        Parameters
        ----------
        dataset : map-style dataset
            ``dataset[i]`` for any index of a batch.
        collate_fn : callable, optional
            Makes a batch of samples. Default: ``torch.utils.data.default_collate``.
        num_workers : int
            Number of processes that fetch samples for as many coming steps. They are forked; one
            that is killed is replaced.
        batch : callable, optional
            ``batch(step)`` are the indices of a step, as `backward` gets them. Without it nothing
            is fetched ahead.
        """
        return Samples(self, dataset, collate_fn, num_workers, batch, self._seed)

    def likely_share(self, batch: Any) -> Any:
        """Return what this rank will compute of a batch, if paces and ranks stay."""
        view = self._member.last
        if view is None:
            return batch[:0]
        return _taken(batch, self._plan(view, len(batch))[view.slot])

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """While this rank evaluates or saves, the others wait for it, however long it takes."""
        self._member.say("busy", True)
        try:
            yield
        finally:
            self._member.say("busy", False)

    def state_dict(self) -> dict[str, Any]:
        """Return the step and the shares, to save with modules and optimizers."""
        return {"step": self.step + self._inside, "known": tuple(self._known)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at the step that `state_dict` returned: on all ranks, before `steps`."""
        if not self._fresh:
            raise RuntimeError("ranks have begun: load a checkpoint before steps()")
        self.step = int(state["step"])

    def close(self) -> None:
        """Leave. If all ranks do, the run has ended; otherwise the others go on without this one.

        It waits until all ranks have the last step's sum. A second call does nothing.
        """
        if self._member.closed:
            return
        try:
            if not self._fresh:
                self._leave()
        finally:
            self._end()

    def _end(self) -> None:
        self._member.close()
        if self._server is not None:
            self._server.drain(10.0)
            self._server.close()

    # ------------------------------------------------------------------------------ between steps

    def _end_step(self) -> None:
        self.step += 1
        self._watch = max(0, self._watch - 1)
        if self._times is not None:
            self._times.end_step(self.first)
        self._seconds = [*self._seconds[1 - _MEASURED :], time.monotonic() - self._begun]
        if self._hang is None and len(self._seconds) == _MEASURED:
            hang = max(_SHORTEST, _FACTOR * max(self._seconds))
            if not 0.5 < hang / self._member.hang < 2:
                self._member.hang = hang
                self._member.say("hang", hang)

    def _cross(self) -> None:
        """Pass the boundary between two steps, where newcomers enter."""
        member = self._member
        self._serve_states()
        if not (self._fresh or self._admits):
            return
        member.boundary, after = True, 0
        while True:
            try:
                view = member.there(after)
                heads = self._exchange(view, _BOUNDARY)
                if self._has_left(view, heads):
                    after = view.number
                    continue
                if self._at_odds(view, heads) is not None:
                    continue
                fresh = heads.of("fresh") > 0
                if fresh.all():
                    self._begin(view, heads)
                elif fresh.any():
                    self._hand_over(view, fresh)
                elif heads.of("admits").any() and (heads.of("kind") == _BOUNDARY).all():
                    member.say("boundary", view.number)
                    after = view.number
                    continue
                member.pass_boundary(view)
                self._admits = False
                return
            except BrokenViewError:
                continue

    def _begin(self, view: View, heads: _Heads) -> None:
        """All ranks begin: compare what they begin with."""
        _compare(view, heads.of("size"), "modules have different numbers of parameters")
        _compare(view, heads.of("step"), "ranks begin at different steps")
        _compare(
            view,
            heads.of("print"),
            "parameters differ at the start: make the model after torch.manual_seed(0) on all "
            "ranks, or load the same checkpoint",
        )
        self._fresh = False
        self._member.hold()

    def _hand_over(self, view: View, fresh: Array) -> None:
        """Send the state to newcomers, or receive it."""
        source = int(np.flatnonzero(~fresh)[0])
        if self._fresh:
            try:
                with self._member.accept(view.number, self._member.hang) as line:
                    self._load(handover.receive(line))
            except OSError:
                self._member.say("broken", view.number, False)
                raise BrokenViewError from None
            self._fresh = False
            self._member.hold()
        elif view.slot == source:
            for slot in np.flatnonzero(fresh):
                _, name, address = view.lives[slot]
                self._send_state(name, address, view.number)
        self._watch = _WATCHED

    def _serve_states(self) -> None:
        """Send the state to newcomers that ask this rank for it."""
        while self._member.fetches:
            name, address = self._member.fetches.pop(0)
            if not self._send_state(name, address, 0):
                self._member.say("unsent", name)

    def _send_state(self, name: str, address: Any, number: int) -> bool:
        try:
            with self._member.call(name, address, number) as line:
                handover.send(line, self._whole_state())
            return True
        except OSError as error:
            _LOG.info("a rank that was to join did not take the state: %s", error)
            return False

    def _whole_state(self) -> dict[str, Any]:
        return {
            "states": [each.state_dict() for each in (*self._modules, *self._state)],
            "rdp": {"step": self.step, "at": self._member.at, "known": tuple(self._known)},
        }

    def _load(self, whole: dict[str, Any]) -> None:
        for each, state in zip((*self._modules, *self._state), whole["states"], strict=True):
            each.load_state_dict(state)
        own = whole["rdp"]
        self.step, self._member.at = own["step"], own["at"]
        self._known = _Known(*own["known"])

    def _rehearse(self, until: int) -> Iterator[int]:
        """Get the state, and try a step alone: what is compiled or loaded first takes long."""
        while True:
            try:
                with self._member.accept(0, float("inf")) as line:
                    self._load(handover.receive(line))
                self._member.say("got")
                break
            except OSError:  # its source died: there will be another
                continue
        if self.step < until:
            self.alone, self._inside, self._turn = True, True, 0
            yield self.step
            self.alone = self._inside = False
        self._member.warm()

    def _leave(self) -> None:
        """Tell the others that this rank leaves; wait until all have the last sum."""
        while True:
            try:
                view = self._member.there()
                heads = self._exchange(view, _LEAVE)
                if self._at_odds(view, heads) is not None:
                    continue
                if (heads.of("kind") == _LEAVE).all():
                    self._member.finish(self.step)
                else:
                    self._member.say("bye", self.step)
                return
            except BrokenViewError:
                continue
            except FinishedError:
                return

    # -------------------------------------------------------------------------------------- sums

    def _summed(self, turn: _Turn) -> Any:
        """Compute this rank's share, and sum: what nobody has is computed by those who are left."""
        member, after = self._member, 0
        while True:
            try:
                view = member.there(after)
                if turn.unplanned:
                    turn.add(self._plan(view, turn.units)[view.slot])
                heads, result = self._tell(view, _SUM, turn)
                if result is not None:
                    return turn.take(result)
                if self._has_left(view, heads):
                    after = view.number
                    continue
                if (taken := self._at_odds(view, heads, turn)) is not None:
                    if taken:
                        return turn.take(self._kept)
                    continue
                if (heads.of("kind") != _SUM).any():
                    continue
                self._check(view, heads)
                had = heads.parts()
                counted, free = shares.settle(turn.units, had)
                if not counted[view.slot]:
                    turn.discard()
                if free or not all(counted):
                    size, paces = shares.length(free), heads.of("pace").tolist()
                    more = shares.counts(size, paces, self._least)
                    turn.add(shares.cut(more, free)[view.slot])
                    continue
                result = _Result(heads, turn.payload(heads))
                member.sum(view, result.payload, functools.partial(self._count, result, view))
                return turn.take(result)
            except BrokenViewError:
                continue

    def _count(self, result: _Result, view: View | None = None) -> None:
        """A sum is known to this rank; to all of a view, if it was made in it."""
        if view is not None and not self._units:
            self._ahead = _Layout(view, result.heads.used, result.payload)
        self._kept = result
        self._member.at += 1
        heads = result.heads
        self._admits |= bool(heads.of("admits").any())
        had = [shares.length(each) for each in heads.parts()]
        self._known = _Known(heads.names, heads.of("pace").tolist(), had)
        if self._times is not None:
            self._times.add(heads.ranks, heads.of("seconds").tolist())

    def _plan(self, view: View, size: int) -> list[shares.Intervals]:
        """Deal a batch out to the ranks of a view."""
        names = [each[1] for each in view.lives]
        dealt = shares.steady(size, *self._known.of(names), self._least)
        return shares.cut(dealt, [(0, size)])

    def _at_odds(self, view: View, heads: _Heads, turn: _Turn | None = None) -> bool | None:
        """If some ranks lack the last sum, send it; return whether this rank has got it.

        Return None if all have done the same number of sums.
        """
        fresh, at = heads.of("fresh") > 0, heads.of("at")
        if fresh.all():
            return None
        newest = at[~fresh].max()
        behind = ~fresh & (at < newest)
        if not behind.any():
            return None
        source = int(np.flatnonzero(~fresh & (at == newest))[0])
        result = self._kept if view.slot == source else None
        lacks = bool(behind[view.slot])
        _Result.copied(self._member, view, source, result, self._count if lacks else None)
        return lacks

    def _has_left(self, view: View, heads: _Heads) -> bool:
        """Whether ranks leave, while this one does not."""
        leaving = heads.of("kind") == _LEAVE
        at = heads.of("at")
        behind = (at[heads.of("fresh") == 0] < at.max()).any()
        return bool(leaving.any()) and not behind

    def _check(self, view: View, heads: _Heads) -> None:
        """Raise RuntimeError on all ranks if their loops or parameters differ."""
        for name, what in (
            ("step", "are in different steps"),
            ("turn", "have called backward() a different number of times in step {step}"),
            ("size", "have modules of different numbers of parameters"),
            ("batch", "have batches of different sizes in step {step}"),
            ("order", "have different batches in step {step}: all ranks give all its indices"),
            ("sums", "return a different number of sums"),
            ("units", "have different shares="),
            ("seed", "have different seed="),
        ):
            values = heads.of(name)
            _compare(view, values[values >= 0], f"ranks {what.format(step=self.step)}", values)
        for name in ("print", "piece"):
            values = heads.of(name)
            if (values >= 0).all():
                _compare(
                    view,
                    values,
                    f"parameters differ between ranks in step {self.step}: something that changes "
                    "them is not the same on all ranks. state= must name all that steps change "
                    "(every optimizer and scheduler), and what is drawn or read must not depend "
                    "on the rank",
                )

    def _exchange(self, view: View, kind: float) -> _Heads:
        """Tell all ranks of the view where this one is; return what all tell."""
        return self._tell(view, kind)[0]

    def _tell(
        self, view: View, kind: float, turn: _Turn | None = None
    ) -> tuple[_Heads, _Result | None]:
        """Tell all ranks of the view where this one is; return what all tell.

        After a sum in a view, the next one most likely is like it. Then gradients go round with
        what ranks tell, and the second thing returned is their sum.
        """
        ahead = self._ahead if self._ahead is not None and self._ahead.view is view else None
        own = np.zeros(_WIDTH)
        told = {
            "kind": kind,
            "step": self.step,
            "turn": self._turn,
            "at": self._member.at,
            "fresh": self._fresh,
            "admits": bool(self._member.waiting - {each[1] for each in view.lives}),
            "pace": float(np.median(self._paces)) if self._paces else 0.0,
            "print": -1,
            "piece": -1,
            "size": sum(p.numel() for p in self._parameters),
            "rank": self.rank,
            "life": int(self._member.name, 16),
            "rides": False,  # whether this rank's gradient goes round with what it tells
        }
        used = np.zeros(len(self._parameters) + 1)
        if self._fresh or (turn is not None and (self._watch or self.step % _EVERY == 0)):
            told["print"] = fingerprint(self._parameters)
        if turn is not None:
            told["piece"] = self._piece()
            turn.tell(told, own, used)
            told["rides"] = ahead is not None and bool((ahead.used >= (used > 0)).all())
        for name, value in told.items():
            own[_AT[name]] = value
        n = len(view.ranks)
        numbers = np.zeros(n * _WIDTH + len(used))
        numbers[view.slot * _WIDTH : (view.slot + 1) * _WIDTH] = own
        numbers[n * _WIDTH :] = used
        if ahead is None:
            self._member.sum(view, torch.from_numpy(numbers))
            return _Heads(numbers, n), None
        return self._ride(view, ahead, numbers, turn if told["rides"] else None)

    def _ride(
        self, view: View, ahead: _Layout, numbers: Array, turn: _Turn | None
    ) -> tuple[_Heads, _Result | None]:
        """Sum gradients together with what ranks tell; they count if ranks turn out to be alike.

        Numbers are told in pieces of 16 bits, which float32 holds exactly.
        """
        n, rows = len(view.ranks), len(view.ranks) * _WIDTH
        flat = self._room(ahead.size + 4 * rows + len(ahead.used), ahead.dtype)
        payload, told, used = torch.split(flat, [ahead.size, 4 * rows, len(ahead.used)])
        told.copy_(torch.from_numpy(numbers[:rows].view(np.uint16).astype(np.float32)))
        used.copy_(torch.from_numpy(numbers[rows:]))
        if turn is None:
            payload.zero_()
        else:
            turn.fill(payload, ahead.used)
        found: list[Any] = []

        def then() -> None:
            pieces = told.numpy().astype(np.uint16).view(np.float64)
            heads = _Heads(np.concatenate([pieces, used.numpy().astype(np.float64)]), n)
            result = None
            if ahead.suits(heads):
                result = _Result(heads, payload)
                self._count(result, view)
            found.extend((heads, result))

        self._member.sum(view, flat, then)
        return found[0], found[1]

    def _note_pace(self, pace: float) -> None:
        self._paces = [*self._paces[1 - _PACES :], pace]

    def _piece(self) -> int:
        if not self._parameters:
            return -1
        p = self._parameters[self.step % len(self._parameters)]
        return fingerprint([p.detach().reshape(-1)[:_PIECE]])

    def _room(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        """Return memory for a sum of gradients: not that of the last sum, which is kept."""
        if self._member.spoiled:
            self._member.spoiled, self._memory = False, {}
        kept = None if self._kept is None else self._kept.payload
        for at in (0, 1):
            there = self._memory.get((at, size))
            free = there is not None and (kept is None or there.data_ptr() != kept.data_ptr())
            if there is not None and there.dtype == dtype and free:
                return there
            if there is None or there.dtype != dtype:
                self._memory = {key: t for key, t in self._memory.items() if key[1] == size}
                self._memory[at, size] = made = torch.empty(size, dtype=dtype)
                return made
        return torch.empty(size, dtype=dtype)


class _Known(tuple[list[str], list[float], list[int]]):
    """What all ranks know of the last sum: its lives, their paces, and their shares' sizes."""

    def __new__(cls, names: list[str], paces: list[float], had: list[int]) -> Self:
        return super().__new__(cls, (names, paces, had))

    def of(self, names: list[str]) -> tuple[list[float], list[int] | None]:
        """Return paces of these lives, and their shares if these were the lives."""
        known, paces, had = self
        pace = dict(zip(known, paces, strict=True))
        return [pace.get(name, 0.0) for name in names], had if known == names else None


class _Heads:
    """What the ranks of a view have told: a row for each, and how many used each parameter."""

    def __init__(self, numbers: Array, count: int) -> None:
        self.numbers = numbers
        self.rows = numbers[: count * _WIDTH].reshape(count, _WIDTH)
        self.used = numbers[self.rows.size :] > 0

    def of(self, name: str) -> Array:
        """Return what ranks tell by this name."""
        return self.rows[:, _AT[name]]

    @property
    def ranks(self) -> list[int]:
        """The ranks."""
        return self.of("rank").astype(int).tolist()

    @property
    def names(self) -> list[str]:
        """The names of their lives."""
        return [f"{int(each):012x}" for each in self.of("life")]

    def sums(self) -> list[float]:
        """Return the loss and further sums of the whole batch."""
        begin, count = len(_NAMES), 1 + int(self.of("sums").max())
        found: list[float] = self.rows[:, begin : begin + count].sum(axis=0).tolist()
        return found

    def parts(self) -> list[shares.Intervals]:
        """Return which places of the batch each rank has computed."""
        begin = len(_NAMES) + 1 + _SUMS
        pairs = self.rows[:, begin:].astype(np.int64).reshape(len(self.rows), -1, 2)
        return [[(a, b) for a, b in row if b > a] for row in pairs.tolist()]


class _Layout:
    """What the last sum of a view consisted of."""

    def __init__(self, view: View, used: Array, payload: torch.Tensor) -> None:
        self.view, self.used = view, used
        self.size, self.dtype = len(payload), payload.dtype

    def suits(self, heads: _Heads) -> bool:
        """Whether a sum that went round with `heads` is that of a whole batch."""
        if not ((heads.of("kind") == _SUM) & (heads.of("rides") > 0)).all():
            return False
        for name in _ALIKE:
            told = heads.of(name)[heads.of(name) >= 0]
            if (told[1:] != told[:-1]).any():
                return False
        counted, free = shares.settle(int(heads.of("batch")[0]), heads.parts())
        return all(counted) and not free and bool((heads.used == self.used).all())


class _Result:
    """A sum, and what ranks told before it: with it, a rank that lacks it can go on."""

    def __init__(self, heads: _Heads, payload: torch.Tensor) -> None:
        self.heads, self.payload = heads, payload

    @classmethod
    def copied(
        cls,
        member: Member,
        view: View,
        source: int,
        own: _Result | None,
        then: Callable[[_Result], None] | None,
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
        found = cls(_Heads(numbers.numpy(), count), payload)
        member.copy(view, payload, source, None if then is None else lambda: then(found))


class _Turn:
    """One call of `backward`: what this rank has computed of the batch."""

    def __init__(self, rdp: ReactiveDataParallel, compute: Compute, batch: Any) -> None:
        self._rdp, self._compute, self._batch = rdp, compute, batch
        order = np.asarray(batch)
        if order.ndim != 1 or not len(order):
            raise ValueError(f"a batch must be a list of indices, not of shape {order.shape}")
        self.size = len(order)
        self._scale = 1 / self.size if rdp._mean else 1.0
        self.units = self.size  # what is dealt out: places, or shares of them
        self._order = zlib.crc32(np.ascontiguousarray(order).view(np.uint8).data)
        self._before = [p.grad for p in rdp._parameters]
        self._restore_at = rdp._buffers.values()
        for p in rdp._parameters:
            p.grad = None
        self._had: shares.Intervals = []
        self._sums: list[float] = []
        self._tupled = False
        self._seconds = 0.0
        self.unplanned = True

    def check_sum(self) -> None:
        """Raise RuntimeError if the loss of some samples depends on the others of the batch."""
        rdp = self._rdp

        def loss(begin: int, end: int) -> float:
            values = self._compute(_taken(self._batch, [(begin, end)]))
            return float(losses(lambda *_: values, torch.nn.Module(), None)[0])

        with restored(rdp._device):
            check_sum(loss, self.size, rdp._modules)
        rdp._buffers.restore(self._restore_at)

    def add(self, part: shares.Intervals) -> None:
        """Compute some places of the batch, and add their gradient to what this rank has."""
        self.unplanned = False
        if not part:
            return
        begin = time.perf_counter()
        sums = self._computed(part)
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)] if self._sums else sums
        self._did(part, time.perf_counter() - begin)

    def _computed(self, places: shares.Intervals) -> list[float]:
        """Compute places of the batch, and add to gradients; return the loss and further sums."""
        values = self._compute(_taken(self._batch, places))
        loss, further = losses(lambda *_: values, torch.nn.Module(), None)
        if len(further) > _SUMS:
            raise ValueError(
                f"compute returns {len(further)} further sums, and {_SUMS} can be told"
            )
        if loss.requires_grad:
            backward: Any = loss.backward
            backward()
        self._tupled = isinstance(values, tuple | list)
        return [float(loss.detach()), *further]

    def _did(self, part: shares.Intervals, seconds: float) -> None:
        """Note what was computed, and how fast."""
        self._seconds += seconds
        self._had = shares.joined(self._had, part)
        self._rdp._note_pace(shares.length(part) / max(seconds, 1e-9))

    def alone(self) -> Any:
        """Compute the whole batch on this rank alone, in parts of the size of its likely share."""
        n = max(1, len(self._rdp._known[0]) + 1)
        dealt = shares.counts(self.size, [1.0] * n, self._rdp._least)
        for part in shares.cut(dealt, [(0, self.size)]):
            self.add(part)
        return self._give([p.grad for p in self._rdp._parameters], self._sums)

    def discard(self) -> None:
        """Forget what this rank has computed: another one's sum counts."""
        self._had, self._sums = [], []
        for p in self._rdp._parameters:
            p.grad = None
        self._rdp._buffers.restore(self._restore_at)

    def give_back(self) -> None:
        """Restore gradients, after an error."""
        for p, grad in zip(self._rdp._parameters, self._before, strict=True):
            p.grad = grad

    def tell(self, told: dict[str, Any], own: Array, used: Array) -> None:
        """Write what this rank tells before the sum."""
        told |= {
            "seconds": self._seconds,
            "batch": self.size,
            "order": self._order,
            "sums": len(self._sums) - 1 if self._sums else -1,
            "units": self._rdp._units,
            "seed": self._rdp._seed,
        }
        begin = len(_NAMES)
        own[begin : begin + len(self._sums)] = self._sums
        if len(self._had) > _PARTS:  # too many pieces to tell
            self.discard()
        flat = [end for each in self._had for end in each]
        begin += 1 + _SUMS
        own[begin : begin + len(flat)] = flat
        used[:-1] = [p.grad is not None for p in self._rdp._parameters]
        used[-1] = self._rdp._buffers.changed(self._restore_at)

    def payload(self, heads: _Heads) -> torch.Tensor:
        """Return this rank's part of the sum: gradients, and changes of buffers."""
        rdp, used = self._rdp, heads.used
        parameters = [p for p, there in zip(rdp._parameters, used, strict=False) if there]
        wide = any(p.dtype == torch.float64 for p in parameters)
        size = sum(p.numel() for p in parameters) + (rdp._buffers.size if used[-1] else 0)
        flat = rdp._room(size, torch.float64 if wide else torch.float32)
        self.fill(flat, used)
        return flat

    def fill(self, flat: torch.Tensor, used: Array) -> None:
        """Write gradients of the parameters in use, and changes of buffers."""
        rdp = self._rdp
        parameters = [p for p, there in zip(rdp._parameters, used, strict=False) if there]
        for p, view in zip(parameters, views(flat, parameters), strict=True):
            if p.grad is None:
                view.zero_()
            else:
                view.copy_(p.grad.to_dense() if p.grad.is_sparse else p.grad)
        if used[-1] and rdp._buffers.size:
            weight = shares.length(self._had) / self.size
            rdp._buffers.put(flat[-rdp._buffers.size :], self._restore_at, weight)

    def take(self, result: _Result | None) -> Any:
        """Turn a sum into gradients and a loss."""
        assert result is not None
        rdp, used = self._rdp, result.heads.used
        parameters = [p for p, there in zip(rdp._parameters, used, strict=False) if there]
        parts = iter(views(result.payload, parameters))
        grads: list[torch.Tensor | None] = []
        for p, there in zip(rdp._parameters, used, strict=False):
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
            rdp._buffers.take(result.payload[-rdp._buffers.size :], self._restore_at)
        return self._give(grads, result.heads.sums(), scaled=True)

    @torch.no_grad()
    def _give(
        self, grads: Sequence[torch.Tensor | None], sums: list[float], scaled: bool = False
    ) -> Any:
        rdp, scale = self._rdp, self._scale
        there = [each for each in grads if each is not None]
        if there and scale != 1.0 and not scaled:
            torch._foreach_mul_(there, scale)
        for p, grad, before in zip(rdp._parameters, grads, self._before, strict=True):
            p.grad = grad if before is None else before if grad is None else before.add_(grad)
        loss = sums[0] * scale
        return (loss, *sums[1:]) if self._tupled or len(sums) > 1 else loss


_Terms = Sequence[torch.Tensor | None]


class _Share(NamedTuple):
    """What one share gives: a list of terms of each kind, None for what it does not use."""

    gradients: _Terms
    buffers: _Terms
    sums: _Terms


class _ExactTurn(_Turn):
    """One call of `backward` with ``shares=``: shares are dealt out whole, and summed exactly."""

    def __init__(self, rdp: ReactiveDataParallel, compute: Compute, batch: Any) -> None:
        super().__init__(rdp, compute, batch)
        self.units = rdp._units
        self._found: list[_Share] = []

    def _places(self, share: int) -> shares.Intervals:
        return [(share * self.size // self.units, (share + 1) * self.size // self.units)]

    def add(self, part: shares.Intervals) -> None:
        """Compute some shares, and keep what each gives."""
        self.unplanned = False
        if not part:
            return
        rdp, begin = self._rdp, time.perf_counter()
        with restored(rdp._device):
            for share in (each for pair in part for each in range(*pair)):
                places = self._places(share)
                if shares.length(places):
                    seed_all(rdp._seed, rdp.step, rdp._turn, share)
                    self._sums = self._computed(places)
                    self._keep(shares.length(places) / self.size)
        self._did(part, time.perf_counter() - begin)

    def _keep(self, weight: float) -> None:
        """Keep what a share gives, and begin the next from the buffers of the step's start."""
        rdp = self._rdp
        self._found.append(
            _Share(
                [p.grad.to_dense() if p.grad is not None else None for p in rdp._parameters],
                rdp._buffers.changes(self._restore_at, weight),
                [torch.tensor(self._sums, dtype=torch.float64)],
            )
        )
        rdp._buffers.restore(self._restore_at)
        for p in rdp._parameters:
            p.grad = None

    def alone(self) -> Any:
        """Compute the whole batch on this rank alone, share by share; nobody needs exact sums."""
        for share in range(self.units):
            super().add(self._places(share))
        self._rdp._paces = [pace * self.units / self.size for pace in self._rdp._paces]  # shares
        return self._give([p.grad for p in self._rdp._parameters], self._sums)

    def discard(self) -> None:
        self._found = []
        super().discard()

    def tell(self, told: dict[str, Any], own: Array, used: Array) -> None:
        super().tell(told, own, used)
        for share in self._found:
            used[:-1] += [term is not None for term in share.gradients]
            used[-1] += any(term is not None and bool(term.any()) for term in share.buffers)
        for at, name in enumerate(_TOPS):
            told[name] = max(
                (exact.largest(t) for share in self._found for t in share[at] if t is not None),
                default=0.0,
            )

    def payload(self, heads: _Heads) -> torch.Tensor:
        """Return this rank's part of the sum, in integers."""
        whole = self._rdp._room(sum(map(sum, self._lengths(heads))), torch.int64).zero_()
        kinds = self._kinds(whole, heads)
        for share in self._found:
            for at, (totals, exponent) in enumerate(kinds):
                terms: Sequence[torch.Tensor | None] = share[at]
                for term, total in zip(terms, totals, strict=True):
                    if exponent is not None and term is not None and total.numel():
                        exact.add(total, term, exponent)
        return whole

    def take(self, result: _Result | None) -> Any:
        """Turn a sum into gradients and a loss."""
        assert result is not None
        rdp, used = self._rdp, result.heads.used
        gradients, buffers, sums = self._kinds(result.payload, result.heads)
        memory = self._found[0].gradients if self._found else []
        grads: list[torch.Tensor | None] = []
        for at, (p, total) in enumerate(zip(rdp._parameters, gradients[0], strict=True)):
            grads.append(None)
            if used[at]:
                there = memory[at] if memory else None
                grads[-1] = out = torch.empty_like(p) if there is None else there
                _put_back([total], gradients[1], out)
        if used[-1]:
            changes = torch.empty(rdp._buffers.size, dtype=torch.float64)
            _put_back(buffers[0], buffers[1], changes)
            rdp._buffers.take(changes, self._restore_at)
        found = torch.empty(len(sums[0][0]), dtype=torch.float64)
        _put_back(sums[0], sums[1], found)
        return self._give(grads, found.tolist())

    def _lengths(self, heads: _Heads) -> list[list[int]]:
        """Return the lengths of the totals of each kind, 0 for what no share uses."""
        rdp, used = self._rdp, heads.used
        return [
            [p.numel() * bool(u) for p, u in zip(rdp._parameters, used, strict=False)],
            [length * bool(used[-1]) for length in rdp._buffers.lengths],
            [1 + int(heads.of("sums").max())],
        ]

    def _kinds(
        self, whole: torch.Tensor, heads: _Heads
    ) -> list[tuple[list[torch.Tensor], int | None]]:
        """Return the totals of each kind, and their exponent; None: a term is not finite."""
        lengths = self._lengths(heads)
        totals = iter(torch.split(whole, [each for kind in lengths for each in kind]))
        found: list[tuple[list[torch.Tensor], int | None]] = []
        for name, kind in zip(_TOPS, lengths, strict=True):
            most = float(heads.of(name).max())
            exponent = exact.exponent_of(most, self.units) if np.isfinite(most) else None
            found.append(([next(totals) for _ in kind], exponent))
        return found


def _put_back(totals: list[torch.Tensor], exponent: int | None, out: torch.Tensor) -> None:
    if exponent is None:
        out.fill_(torch.nan)
    else:
        exact.put_back(totals[0] if len(totals) == 1 else torch.cat(totals), exponent, out)


class _Buffers:
    """Buffers that forward may change: each becomes the mean over ranks, by their shares."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        found = dict.fromkeys(b for m in modules for b in m.buffers())
        self._buffers = [b for b in found if b.dtype != torch.bool and not b.is_complex()]
        self.lengths = [b.numel() for b in self._buffers]
        self.size = sum(self.lengths)

    def values(self) -> list[torch.Tensor]:
        return [b.detach().clone() for b in self._buffers]

    def changed(self, before: Sequence[torch.Tensor]) -> bool:
        return not all(map(torch.equal, self._buffers, before))

    @torch.no_grad()
    def changes(self, before: Sequence[torch.Tensor], weight: float) -> list[torch.Tensor]:
        return [(b - old) * weight for b, old in zip(self._buffers, before, strict=True)]

    @torch.no_grad()
    def restore(self, before: Sequence[torch.Tensor]) -> None:
        for b, old in zip(self._buffers, before, strict=True):
            b.copy_(old)

    @torch.no_grad()
    def put(self, flat: torch.Tensor, before: Sequence[torch.Tensor], weight: float) -> None:
        for b, old, view in zip(self._buffers, before, views(flat, self._buffers), strict=True):
            view.copy_((b - old) * weight)

    @torch.no_grad()
    def take(self, flat: torch.Tensor, before: Sequence[torch.Tensor]) -> None:
        for b, old, view in zip(self._buffers, before, views(flat, self._buffers), strict=True):
            change = view.to(b.device)
            b.copy_(old + (change if b.is_floating_point() else change.round()).to(b.dtype))


def _taken(batch: Any, part: shares.Intervals) -> Any:
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


def _compare(view: View, values: Array, what: str, of_all: Array | None = None) -> None:
    """Raise RuntimeError if ranks tell different values: all of them do."""
    if len(values) and (values != values[0]).any():
        of_all = values if of_all is None else of_all
        told = {rank: int(value) for rank, value in zip(view.ranks, of_all, strict=True)}
        groups: dict[int, list[int]] = {}
        for rank, value in told.items():
            groups.setdefault(value, []).append(rank)
        each = "; ".join(f"ranks {ranks}: {value}" for value, ranks in groups.items())
        raise RuntimeError(f"{what} ({each})")


def _check_state(modules: Sequence[Any], state: Sequence[Any]) -> None:
    for each in modules:
        if not isinstance(each, torch.nn.Module):
            raise TypeError(f"model must be a module or several, not {type(each).__name__}")
    for each in state:
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise TypeError(
                f"state= takes what has state_dict() and load_state_dict(), as optimizers do, not "
                f"{type(each).__name__}"
            )
