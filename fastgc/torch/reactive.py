"""Gradients of whole batches on every rank, whoever dies, at any pace, without a code."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from .._base.arrays import Array, at_least, check_word
from ..errors import FinishedError, LeftOutError
from . import handover, shares
from .audit import Version, outvoted
from .finding import find
from .heads import AT, BOUNDARY, LEAVE, SUM, TOPS, WIDTH, Heads, Result, difference
from .member import BrokenViewError, Member, NewcomerError, View
from .parameters import fingerprint
from .samples import Samples
from .times import Times
from .turn import Compute, ExactTurn, Replica, Turn, taken

_LOG = logging.getLogger("fastgc")

_WATCHED, _EVERY = 3, 100  # steps after a join, and then every so many, that compare parameters
_HANG, _SHORTEST, _FACTOR, _MEASURED = 60.0, 10.0, 10.0, 20  # seconds, seconds, times, steps


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
    state : object or iterable of objects
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
        With `shares` or `check`, of the random numbers that are drawn while a share is computed.
    check : int, optional
        In every so many steps each rank also computes the share of another one, so that a machine
        that computes wrongly without an error is found: if a third rank agrees with one of two that
        differ, the other one is left out before anybody uses its gradient. This takes one pass more
        in these steps. Gradients differ if they are apart by more than 1e-3 of their norm.
    times : path, optional
        A CSV file of the seconds in which each rank would compute an equal share of the batch, from
        those that it took for its own: a row for each step, a column for each rank. ``fastgc plan
        --recorded times.csv --per computation`` reads it. Rows are added to a file that is there.
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
    rounded to integers of 64 bits in a common unit, whose sum is exact: each is off by at most
    2^-(55 - ceil(log2 K)) of the largest modulus, from which the unit follows. Ranks add in the
    unit of the last step, and once more, in the right one, if moduli have left its range (a factor
    of 256). So one rank or four, with deaths or without, have the same weights
    to the last bit, on one kind of processor and with one number of threads for each rank
    (``torch.set_num_threads``). A rank computes whole shares: take K several times as large as the
    number of ranks. It keeps the gradient of each until the sum. If an element of a share's
    gradient is not finite, all of the step's gradient is NaN.
    """

    def __init__(
        self,
        model: torch.nn.Module | Iterable[torch.nn.Module],
        state: Any = (),
        *,
        reduction: str = "mean",
        hang: float | None = None,
        replace: float | None = None,
        shares: int | None = None,
        seed: int = 0,
        check: int | None = None,
        times: str | Path | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        store: str | None = None,
    ) -> None:
        check_word("reduction", reduction, "mean", "sum")
        modules = [model] if isinstance(model, torch.nn.Module) else list(model)
        self._state = [state] if hasattr(state, "state_dict") else list(state)
        _check_state(modules, self._state)
        self._replica = Replica(
            modules,
            reduction == "mean",
            0 if shares is None else at_least("shares", shares, 1),
            at_least("seed", seed, 0),
        )
        if any(hasattr(p, "placements") for p in self._replica.parameters):
            raise TypeError(
                "parameters that several processes share (DTensor, as of fully_shard) are not for "
                "ReactiveDataParallel, of which each rank holds the whole model: see torchft"
            )
        for name, value in (("hang", hang), ("replace", replace)):
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be a number of seconds above 0, not {value!r}")
        self._hang = hang
        self._every = 0 if check is None else at_least("check", check, 1)
        self._times = None if times is None else Times(times)
        self.alone = False
        self._fresh = True
        self._inside = False  # whether a step's body runs
        self._admits = False  # whether newcomers enter before the next step
        self._watch = _WATCHED  # further steps that compare all parameters
        self._last: Heads | None = None  # what ranks told with the last sum
        self._seconds: list[float] = []  # of the last steps
        self._begun = 0.0
        self._same = b""  # of the state that this newcomer has got: what a step has not changed
        self._tried: int | None = None  # the step in which losses were tried
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
        names = ", ".join(type(each).__name__ for each in self._replica.modules)
        return f"<ReactiveDataParallel of {names}: rank {self.rank}, step {self.step}>"

    @property
    def step(self) -> int:
        """Return the step that is computed."""
        return self._replica.step

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
            If the others have gone on without this rank, because it was silent for too long, or
            computed a wrong gradient. The guard starts it again.
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
                self._replica.turn, self._inside, self._begun = 0, True, time.monotonic()
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
        turn = (ExactTurn if self._replica.units else Turn)(self._replica, compute, batch)
        try:
            if self._tried in (None, self.step):
                self._tried = self.step
                turn.check_sum()
            if self.alone:
                result = self._sum_alone(turn)
            else:
                result = self._in_view(functools.partial(self._sum, turn))
        except BaseException:
            turn.give_back()
            raise
        self._replica.turn += 1
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
        seed, share = self._replica.seed, self.likely_share
        return Samples(lambda: self.step, share, dataset, collate_fn, num_workers, batch, seed)

    def likely_share(self, batch: Any) -> Any:
        """Return what this rank will compute of a batch, if paces and ranks stay."""
        view = self._member.last
        if view is None:
            return batch[:0]
        return taken(batch, self._plan(view, len(batch))[view.slot])

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """While this rank evaluates or saves, the others wait for it, however long it takes."""
        self._member.say("busy", True)
        try:
            yield
        finally:
            self._member.say("busy", False)

    def state_dict(self) -> dict[str, Any]:
        """Return the step, shares and seed, to save with modules and optimizers."""
        replica = self._replica
        return {"step": self.step + self._inside, "shares": replica.units, "seed": replica.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at the step that `state_dict` returned: on all ranks, before `steps`."""
        if not self._fresh:
            raise RuntimeError("ranks have begun: load a checkpoint before steps()")
        self._replica.step = int(state["step"])

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
        self._replica.step += 1
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
        member.boundary = True
        self._in_view(self._pass)
        self._admits = False

    def _in_view(self, work: Callable[[View], Any]) -> Any:
        """Return what ``work(view)`` returns; again if that is None, or if the view breaks."""
        while True:
            with contextlib.suppress(BrokenViewError):
                if (found := work(self._member.there())) is not None:
                    return found

    def _pass(self, view: View) -> bool | None:
        heads = self._tell(view, BOUNDARY)[0]
        self._check_left(view, heads)
        if self._at_odds(view, heads) is not None:
            return None
        fresh = heads.of("fresh") > 0
        if fresh.all():  # all begin
            self._check(view, heads)
            self._fresh = False
            self._member.hold()
        elif fresh.any():
            self._hand_over(view, fresh)
        elif heads.of("admits").any() and (heads.of("kind") == BOUNDARY).all():
            self._member.give_up(view, "boundary", view.number)
        self._member.pass_boundary(view)
        return True

    def _hand_over(self, view: View, fresh: Array) -> None:
        """Send the state to newcomers, or receive it."""
        source = int(np.flatnonzero(~fresh)[0])
        if self._fresh:
            try:
                with self._member.accept(view.number, self._member.hang) as line:
                    self._load(handover.receive(line, self._whole_state(), self._same))
            except OSError:
                self._member.give_up(view, "broken", view.number, False)
            self._fresh = False
            self._member.hold()
        elif view.slot == source:
            for slot in np.flatnonzero(fresh):
                _, name, address = view.lives[slot]
                if not self._send_state(name, address, view.number):  # so that nobody waits for it
                    self._member.give_up(view, "broken", view.number, False)
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
            "states": [each.state_dict() for each in (*self._replica.modules, *self._state)],
            "rdp": {"step": self.step, "at": self._member.at, "last": self._last},
        }

    def _load(self, whole: dict[str, Any]) -> None:
        for each, state in zip(
            (*self._replica.modules, *self._state), whole["states"], strict=True
        ):
            each.load_state_dict(state)
        own = whole["rdp"]
        self._replica.step, self._member.at, self._last = own["step"], own["at"], own["last"]

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
        first = handover.digests(self._whole_state())
        if self.step < until:
            self.alone, self._inside, self._replica.turn = True, True, 0
            yield self.step
            self.alone = self._inside = False
        self._same = handover.kept(first, handover.digests(self._whole_state()))
        self._member.warm()

    def _leave(self) -> None:
        """Tell the others that this rank leaves; wait until all have the last sum."""

        def part(view: View) -> bool | None:
            heads = self._tell(view, LEAVE)[0]
            if self._at_odds(view, heads) is not None:
                return None
            if (heads.of("kind")[heads.of("fresh") == 0] == LEAVE).all():
                self._member.end("finish", self.step)
            else:
                self._member.say("bye", self.step, "its loop has ended")
            return True

        with contextlib.suppress(FinishedError):
            self._in_view(part)

    # -------------------------------------------------------------------------------------- sums

    def _sum(self, turn: Turn, view: View) -> Any:
        """Compute this rank's share, and sum: what nobody has is computed by those who are left."""
        if turn.unplanned:
            plan = self._plan(view, turn.units)
            turn.checked = bool(self._every) and self.step % self._every == self._every - 1
            turn.add(plan[view.slot])
            next_share = plan[(view.slot + 1) % len(plan)]
            if turn.checked and len(plan) > 1 and next_share:
                turn.audit(next_share[0])
        heads, result = self._tell(view, SUM, turn)
        if result is not None:
            return turn.take(result)
        self._check_left(view, heads)
        if (lacked := self._at_odds(view, heads)) is not None:
            return turn.take(self._kept) if lacked else None
        if (heads.of("kind") != SUM).any():
            return None
        self._check(view, heads)
        if (doubted := heads.doubted()) is not None:
            self._decide(view, turn, *doubted)
            return None
        counted, free = shares.settle(turn.units, heads.parts())
        if not counted[view.slot]:
            turn.discard()
        if free or not all(counted):
            size, paces = shares.length(free), heads.of("pace").tolist()
            more = shares.counts(size, paces, self._replica.least)
            turn.add(shares.cut(more, free)[view.slot])
            return None
        result = Result(heads, self._replica.room(*turn.layout(heads)), view)
        turn.fill(result.payload, heads)
        self._member.sum(view, result.payload, functools.partial(self._count, result))
        return turn.take(result)

    def _sum_alone(self, turn: Turn) -> Any:
        """Compute the whole batch on this rank, in parts as large as its share is likely to be."""
        ranks = 1 + (0 if self._last is None else len(self._last.rows))
        dealt = shares.counts(turn.units, [1.0] * ranks, self._replica.least)
        for part in shares.cut(dealt, [(0, turn.units)]):
            turn.add(part)
        numbers = self._numbers(SUM, None, turn)
        _tell_tops(numbers, 0, turn.tops())
        heads = Heads(numbers, 1)
        size, dtype = turn.layout(heads)
        result = Result(heads, torch.empty(size, dtype=dtype))
        turn.fill(result.payload, heads)
        return turn.take(result)

    @property
    def _kept(self) -> Result:
        assert self._replica.kept is not None
        return self._replica.kept

    def _decide(
        self, view: View, turn: Turn, share: tuple[int, int], versions: list[Version]
    ) -> None:
        """Find out who of those who computed a share differently errs: that one leaves.

        All ranks see the same versions, so all decide the same.
        """
        ranks = [view.ranks[slot] for slot, _ in versions]
        what = f"ranks {ranks} computed the same part of a batch differently in step {self.step}"
        others = [slot for slot in range(len(view.ranks)) if view.ranks[slot] not in ranks]
        if len(versions) == 2 and others:
            if view.slot == others[0]:
                turn.audit(share)
            return
        if len(versions) == 2:
            self._member.refuse(f"{what}: one of them errs, and a third one would tell which")
        wrong = outvoted(versions)
        if wrong is None:
            _LOG.warning(
                "%s, and no two of them agree: what compute() does is not reproducible, or rounds "
                "coarsely, so that check= sees nothing",
                what,
            )
            turn.settled = True
            return
        if wrong == view.slot:
            told = f"it computed a wrong gradient in step {self.step}: two others agree on another"
            self._member.say("bye", self.step, told)
            raise LeftOutError(f"rank {self.rank} has left: {told}")
        self._member.give_up(view)

    def _count(self, result: Result) -> None:
        """A sum is known to this rank; to all of a view, if it was made in it."""
        self._replica.kept, self._last = result, result.heads
        self._member.at += 1
        heads = result.heads
        self._admits |= bool(heads.of("admits").any())
        if self._times is not None:
            self._times.add(heads.ranks, heads.of("seconds").tolist(), heads.lengths())

    def _plan(self, view: View, size: int) -> list[shares.Intervals]:
        """Deal a batch out to the ranks of a view, by the paces and shares of the last sum."""
        names, paces, before = [each[1] for each in view.lives], {}, None
        if self._last is not None:
            paces = dict(zip(self._last.names, self._last.of("pace").tolist(), strict=True))
            before = self._last.lengths() if names == self._last.names else None
        known = [paces.get(name, 0.0) for name in names]
        dealt = shares.steady(size, known, before, self._replica.least)
        return shares.cut(dealt, [(0, size)])

    def _at_odds(self, view: View, heads: Heads) -> bool | None:
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
        Result.copied(self._member, view, source, result, self._count if lacks else None)
        return lacks

    def _check_left(self, view: View, heads: Heads) -> None:
        """Wait for the next view if ranks leave, while this one does not, and have all sums."""
        at = heads.of("at")
        behind = (at[heads.of("fresh") == 0] < at.max()).any()
        if (heads.of("kind") == LEAVE).any() and not behind:
            self._member.give_up(view)

    def _check(self, view: View, heads: Heads) -> None:
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
            if told := difference(view, values[values >= 0], values):
                self._member.refuse(f"ranks {what.format(step=self.step)} ({told})")
        what = f"between ranks in step {self.step}: something that changes them is not the same on "
        what += "all ranks. state= must name all that steps change (every optimizer and scheduler),"
        what += " and what is drawn or read must not depend on the rank"
        if self._fresh:
            what = "at the start: make the model after torch.manual_seed(0) on all ranks, or load "
            what += "the same checkpoint"
        for name in ("print", "piece"):
            values = heads.of(name)
            if (values >= 0).all() and (told := difference(view, values, values)):
                self._member.refuse(f"parameters differ {what} ({told})")

    def _tell(
        self, view: View, kind: float, turn: Turn | None = None
    ) -> tuple[Heads, Result | None]:
        """Tell all ranks of the view where this one is; return what all tell.

        After a sum in a view, the next one most likely is like it. Then gradients go round with
        what ranks tell, and the second thing returned is their sum.
        """
        if self._member.spoiled:
            self._member.spoiled = False
            self._replica.forget()
        numbers, kept = self._numbers(kind, view, turn), self._replica.kept
        if kept is not None and kept.view is view:
            return self._ride(view, kept, numbers, turn)
        if turn is not None:
            _tell_tops(numbers, view.slot, turn.tops())
        self._member.sum(view, torch.from_numpy(numbers))
        return Heads(numbers, len(view.ranks)), None

    def _numbers(self, kind: float, view: View | None, turn: Turn | None) -> Array:
        """Return what this rank tells: a row among those of a view, and parameters in use."""
        own, used = np.zeros(WIDTH), np.zeros(len(self._replica.parameters) + 1)
        n, slot, lives = (1, 0, []) if view is None else (len(view.ranks), view.slot, view.lives)
        told = {
            "kind": kind,
            "step": self.step,
            "turn": self._replica.turn,
            "at": self._member.at,
            "fresh": self._fresh,
            "admits": bool(self._member.waiting - {each[1] for each in lives}),
            "pace": self._replica.pace,
            "print": -1,
            "piece": -1,
            "size": sum(p.numel() for p in self._replica.parameters),
            "rank": self.rank,
            "life": int(self._member.name, 16),
            "rides": False,  # whether this rank's gradient goes round with what it tells
        }
        if self._fresh or (turn is not None and (self._watch or self.step % _EVERY == 0)):
            told["print"] = fingerprint(self._replica.parameters)
        if turn is not None:
            told["piece"] = self._replica.piece()
            turn.tell(told, own, used)
            kept = self._replica.kept
            fits = kept is not None and bool((kept.heads.used >= (used > 0)).all())
            told["rides"] = fits and not turn.checked
        for name, value in told.items():
            own[AT[name]] = value
        numbers = np.zeros(n * WIDTH + len(used))
        numbers[slot * WIDTH : (slot + 1) * WIDTH] = own
        numbers[n * WIDTH :] = used
        return numbers

    def _ride(
        self, view: View, ahead: Result, numbers: Array, turn: Turn | None
    ) -> tuple[Heads, Result | None]:
        """Sum gradients together with what ranks tell; they count if ranks turn out to be alike.

        Integers hold the bits of what is told; float32 holds pieces of 16 bits.
        """
        n, rows, used = len(view.ranks), len(view.ranks) * WIDTH, len(ahead.heads.used)
        dtype = ahead.payload.dtype
        bits = np.int64 if dtype == torch.int64 else np.uint16
        pieces = numbers[:rows].view(bits)
        flat = self._replica.room(len(ahead.payload) + len(pieces) + used, dtype)
        payload, told, uses = torch.split(flat, [len(ahead.payload), len(pieces), used])
        if turn is not None and numbers[view.slot * WIDTH + AT["rides"]]:
            _tell_tops(numbers, view.slot, turn.fill(payload, ahead.heads))
        else:
            payload.zero_()
            _tell_tops(numbers, view.slot, [] if turn is None else turn.tops())
        told.copy_(torch.from_numpy(pieces.astype(np.int64)))
        uses.copy_(torch.from_numpy(numbers[rows:]))
        found: list[Any] = []

        def then() -> None:
            all_ = told.numpy().astype(bits).view(np.float64)
            heads = Heads(np.concatenate([all_, uses.numpy().astype(np.float64)]), n)
            result = None
            if ahead.is_like(heads):
                result = Result(heads, payload, view)
                self._count(result)
            found.extend((heads, result))

        self._member.sum(view, flat, then)
        return found[0], found[1]


def _tell_tops(numbers: Array, slot: int, tops: list[float]) -> None:
    for name, top in zip(TOPS, tops, strict=False):
        numbers[slot * WIDTH + AT[name]] = top


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
