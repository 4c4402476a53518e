"""Gradients of the whole batch on every rank, even in a step in which some of them die.

Decoding is an all-reduce: each rank scales its own gradient by its coefficient, and all sum up.
When ranks die, the others scale the same gradients by the coefficients of the new survivors, and
sum up again. A view is a set of ranks that agreed to reduce together (`membership`).

Invariant: all ranks that have done the same number of steps have the same module, to the last bit.
It holds even if step t's all-reduce breaks:

- A rank returns from step t only with a result. All ranks that get a result from one all-reduce get
  the same bits, because one rank sums each number and the others copy it.
- A sum needs all members of the view. So nobody has a result of step t + 1 while a member has none
  of step t: members of a view are at most one step apart.
- A rank keeps its result of step t until it has that of step t + 1. A new view first compares
  steps. If a member has done step t, the members that have not done it take its result.
- If no member has done step t, they all-reduce the same gradients again. By rounding, the result
  may differ from one that a rank got before the view broke. That rank is not in this view. It can
  reduce with its members only after `CodedAllReduce.join`, which gives it their state.
- Every view but the first contains a rank that has the state of the previous view (`agreement`).
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import logging
import os
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, NoReturn, Self

import numpy as np
import torch
import torch.distributed

from .._base.arrays import Array, at_least, check_real, check_word
from ..codes import Code
from ..errors import CorruptMessageError, LeftOutError, NotDecodableError
from ..numerics.graphs import owners
from .audit import SAME, SAME_HALF, Audit, Fingerprint, Verdict, copies, in_half, majority
from .batches import restored
from .membership import BrokenGroupError, Members, View
from .parameters import (
    Buffers,
    fingerprint,
    require_known,
    trainable,
    unchanged_buffers,
    views,
    without_gradients,
)
from .place import own_store, place_of, warn_of_host
from .sampler import CodedSampler, Position, real_row
from .shards import Admission, gradients, local, pack, require_cut, unpack, whole

_LOG = logging.getLogger("fastgc")
dist: Any = torch.distributed  # type checkers do not see all that it exports

# PyTorch imports parts of save and load on first use. A rank that starts, or hands over its state,
# may have no file descriptor left for that.
torch.save((), _empty := io.BytesIO())
torch.load(io.BytesIO(_empty.getvalue()), weights_only=False)

_TRIED_EVERY = 1000  # steps
# A rank is late after _FACTOR times a quantile of the last steps' times, at least _SHORTEST
# seconds. Until there are _STEPS times, it is late after _DEADLINE seconds.
_DEADLINE, _SHORTEST, _FACTOR, _QUANTILE, _STEPS = 60.0, 1.0, 10.0, 0.95, 20
_POLL = 0.005  # seconds between looks at the view
_PIECE = 1 << 17  # numbers: smaller gradients are joined up to this many before they are hashed
_SUMS = 8  # further sums that fit into a message
# Advice that follows the error, for each thing in which ranks may differ.
_START = (
    " at the start: make it after torch.manual_seed(0) on all ranks, or load the same checkpoint"
)
_GRADIENTS = (
    " between ranks: each must be of the sum over its samples (not the mean, and divided by the "
    "same number on all ranks), times CodedSampler.weights where the code has some, without what "
    "ranks draw at random by themselves (dropout, augmentation), and not depend on which other "
    "samples a rank has (BatchNorm, but with FractionalRepetition, whose ranks have all or none in "
    "common)"
)
_MEANS = (
    "losses are means over a rank's samples: a rank that computes another's share would change the "
    'scale. Take the sum (reduction="sum"), divided by the same number on all ranks'
)
_HALVED = 4  # samples that can be halved: BatchNorm needs two
_SAMPLERS = (
    ": all ranks take the same batches. Their datasets, batch sizes and seeds are the same, and "
    "where each step adds up the gradients of k batches, accumulate=k says so"
)
_BUFFERS = (
    ": forward changes them by what a rank computes on, as BatchNorm does: take GroupNorm or "
    'LayerNorm, put such modules in eval(), or take the mean of them: buffers="mean"'
)
_count = itertools.count()  # numbers these objects, alike on all ranks, which run one program


_running: weakref.WeakSet[CodedAllReduce] = weakref.WeakSet()


Recompute = Callable[[list[int]], Sequence[float] | None]


class Change(NamedTuple):
    """A change of the ranks that take part.

    Attributes
    ----------
    step : int
        The step in which this rank learned of it.
    ranks : list of int
        The ranks that take part from then on.
    seconds : float
        Time from when this rank knew of it until the new group could all-reduce.
    """

    step: int
    ranks: list[int]
    seconds: float


class Fault(NamedTuple):
    """A fault that an audit found.

    Attributes
    ----------
    step : int
        The step in which it was found.
    rank : int
        The rank whose gradient or parameters differed from those of others.
    left_out : bool
        True if the rank was left out. False if only its share of this step was left out.
    """

    step: int
    rank: int
    left_out: bool


class CodedAllReduce:
    """Make every ``.grad`` that of the whole batch on all ranks, while enough of them are alive.

    Each rank computes the gradient of the summed loss over the samples that `CodedSampler` gives
    it, and calls this object between ``backward()`` and ``optimizer.step()``::

        sampler = CodedSampler(dataset, code, batch_size=512)
        loader = DataLoader(dataset, batch_sampler=sampler)
        with CodedAllReduce(model, code, sampler=sampler, state=[optimizer]) as all_reduce:
            while sampler.epoch < 10:
                for x, y in loader:
                    optimizer.zero_grad()
                    (cross_entropy(model(x), y, reduction="sum") / 512).backward()
                    all_reduce()
                    optimizer.step()

    When a rank dies or is late, the others agree on who is left, and sum the gradients that they
    already have with new coefficients. The step is still that of the whole batch, and nothing is
    computed again. A rank that starts or restarts while the others are running gets their state,
    and takes part from their step on.

    Parameters
    ----------
    module : torch.nn.Module
        Its parameters must be all float32 or all float64, with the same values on all ranks. It may
        be on any device; messages are summed on the CPU.
    code : Code
        A code with real coefficients and one worker for each rank. If the coefficients are not all
        one, multiply the losses by ``CodedSampler.weights``.
    sampler : CodedSampler, optional
        Its position says which step is the first. A rank that joins moves it to the others' next
        batch.
    accumulate : int
        Number of batches of the sampler whose gradients you add up before each call.
    state : iterable
        What a rank that joins gets from another, besides the module's parameters and buffers:
        optimizers, schedules and other objects with ``state_dict()`` and ``load_state_dict()``.
    group : torch.distributed.ProcessGroup, optional
        Ranks that take part. Default: all.
    store : torch.distributed.Store, optional
        The store through which ranks agree on who takes part. Default: that of torchrun, otherwise
        that of ``init_process_group``, in which case all ranks end with the process that holds it.
    rank : int, optional
        Default: that of torch.distributed or torchrun.
    deadline : float or "auto"
        Seconds after which the others give up a rank that is alive but hangs. If the others are too
        few, they also wait that long for dead ranks to restart. "auto" begins with 60 seconds.
        After 20 steps, and from the second step of a group on, a rank is late after ten times the
        time in which 95 of the last 100 steps ended, but not before one second. Anything that a
        single rank does now and then, such as saving a checkpoint, must not take longer.
    settle : float
        Seconds that a rank has to answer after the others have waited that long for it.
    partial : bool
        Whether to continue with the best approximation of the gradient if too few ranks are left;
        `residual` says how good it is.
    buffers : "error" or "mean"
        What to do about buffers that forward changes depending on a rank's samples, such as
        BatchNorm's: raise an error, or average them over ranks.
    redundancy : "proactive" or "reactive"
        "proactive": all ranks that hold a partition compute it, as the code says. "reactive": one
        of them computes it, and another one only in the step in which that one dies. See Notes.
    recompute : callable, optional
        For reactive redundancy: ``recompute(indices)`` adds the gradient of these samples of the
        dataset to ``.grad``, as your loop does for the sampler's samples. It returns the numbers to
        add to the call's sums, or None.
    audit : int, optional
        In the first step, and then in every `audit`-th, ranks compare gradients that should be
        equal, to find a rank that errs (`fastgc.torch.audit`). Default: never. With proactive
        redundancy, they compare gradients of ranks with equal rows, and each rank must have such a
        copy. With reactive redundancy, ranks compute each other's shares: `recompute` must then
        compute the same on all ranks, for any samples of a batch.
    replica : torch.distributed.ProcessGroup, optional
        The ranks that together hold one copy of `module`, cut by ``fully_shard`` over these ranks
        alone. A whole replica is then one worker of the code. `rank` is the replica's number, the
        same on all of its ranks, and all replicas share `store`. All ranks of a replica must make
        this object at the same time. If one of them ends, start them all again.

    Attributes
    ----------
    step : int
        Number of steps done.
    ranks : list of int
        The ranks that took part in the last step.
    changes : list of Change
        Changes of the ranks that take part, beginning with this rank's start.
    joined : bool
        Whether this rank joined others that were running, and got their state.
    residual : float
        Residual of the last step's decoding vector; 0 if it was exact.
    faults : list of Fault
        Faults that audits found while this rank took part.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit, if the code does not have as many workers as there are ranks,
        or if it has no equal rows to compare.
    RuntimeError
        If parameters differ between ranks at the start, or if there is no store.

    Warns
    -----
    UserWarning
        If torchrun started several ranks on this machine and others elsewhere, and the others could
        not continue without this machine. `fastgc.engines.placement` avoids that.

    Notes
    -----
    Reactive redundancy (Gupta, Vaidya 2019) costs nothing until it is needed. As without a code,
    the rank that owns a partition computes it, once, and the gradients are added up. When a rank
    dies, other ranks that hold its partitions compute them in the same step, which takes that much
    longer, and own them from then on. `sampler` gives each rank the samples that it owns, with
    weights of 1. Dropout, augmentation and BatchNorm need not be the same on all ranks, because
    each partition is computed once. A sum contains a count for each partition, and is used only if
    every count is exactly 1. With either redundancy, all ranks wait for slow ones, up to
    `deadline`; `CodedDataParallel` does not wait for stragglers.

    With ``audit=m``, two other ranks outvote a rank that computes wrong gradients without an error,
    and correct the step. If the rank is outvoted again in the next three steps, it raises a
    `CorruptMessageError`, and the others continue without it. Ranks whose parameters differ from
    the majority raise a `LeftOutError`, and get the others' parameters by `join`. Put a
    `torch.amp.GradScaler` into `state`; its overflows are not faults.

    With reactive redundancy, audits take a little more than 1/m of the computing time. They find
    errors that change a rank's gradient by more than 1e-3 of its norm, or by more than a tenth if
    it is computed in bfloat16 or float16. Steps whose gradients are not finite, or ten times as
    large as before, are also audited. The same steps compare parameters to the last bit.

    With proactive redundancy, ranks with equal rows (`BinaryCode` with n a multiple of s + 1,
    `FractionalRepetition`) send 64-bit fingerprints of their gradients in the sum itself, under
    random keys. While copies are equal, an audited step costs one pass over the gradient, and no
    further computing or message (``benches/torch_audit.py`` measures the pass).

    If copies are not equal, only differences larger than rounding count: 1e-5 of the norm for
    copies that had the same bits in an earlier audit; 1e-3 for others, such as those of machines of
    different kinds, and in the first step; a tenth in bfloat16 or float16. With three or more
    copies, the minority is outvoted, and the step uses the others. With two copies, nobody knows
    which one errs: all ranks raise a `CorruptMessageError` with both as suspects, and gradients
    stay as they were. You may then compute the same batch and call again, which corrects a bit that
    flipped once.

    Copies have the same bits if machines are of one kind and kernels are deterministic
    (``torch.use_deterministic_algorithms``) and not chosen by timing
    (``torch.backends.cudnn.benchmark``). The sum itself is not audited, and an error that all
    copies make is not found.

    If you train several modules in turn, such as the two of a GAN, give them as one
    `torch.nn.ModuleList`. Each turn is a step, and parameters without a gradient (after their
    ``zero_grad()``) keep none.

    The first step, and then every thousandth, checks that ranks agree on gradients of the same
    samples, on batches, and on buffers. If gradients overflow, as in a first step with a
    `torch.amp.GradScaler`, the next step is checked instead. With reactive redundancy, the first
    check calls `recompute`, to find losses that are means over a rank's samples.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        code: Code,
        *,
        sampler: CodedSampler | None = None,
        state: Iterable[Any] = (),
        group: Any = None,
        store: Any = None,
        rank: int | None = None,
        deadline: float | Literal["auto"] = 60.0,
        settle: float = 0.3,
        partial: bool = False,
        accumulate: int = 1,
        buffers: str = "error",
        redundancy: str = "proactive",
        recompute: Recompute | None = None,
        audit: int | None = None,
        replica: Any = None,
    ) -> None:
        self._module, self._code = module, code
        self._parameters = trainable(module, cut=replica is not None)
        if replica is not None:
            require_cut(self._parameters, replica)
            _check_replica(rank, store, redundancy, deadline)
        if sampler is not None and not isinstance(sampler, CodedSampler):
            raise TypeError(f"sampler must be a CodedSampler, not {type(sampler).__name__}")
        accumulate = at_least("accumulate", accumulate, 1)
        self._position = None if sampler is None else Position(sampler, accumulate)
        self._sampler, self._accumulate, self._state = sampler, accumulate, _states(state)
        check_word("buffers", buffers, "error", "mean")
        counted_as_started = rank is None
        rank = _rank_of(code, group, rank)
        self._pace = Pace() if deadline == "auto" else None
        seconds = check_real(
            "deadline", _DEADLINE if deadline == "auto" else deadline, positive=True
        )
        check_real("settle", settle, positive=True)
        self.rank, self.step, self.residual = rank, 0, 0.0
        self.ranks: list[int] = []
        self.changes: list[Change] = []
        self.faults: list[Fault] = []
        self.joined = False
        self._partial = partial
        reacting = _check_redundancy(code, redundancy, sampler, recompute, partial)
        self._reactive: _Reactive | None = None
        if reacting is not None:
            self._reactive = _Reactive(code, rank, self._parameters, accumulate, *reacting)
        self._audit = self._auditing(audit)
        self._buffers, self._averaged = Buffers(module), buffers == "mean"
        # The last step's result, and a buffer for this step's: `__call__` swaps them.
        counted = 0 if self._reactive is None else code.k
        prints = 0 if self._audit is None or self._reactive is not None else code.n
        self._kept, self._next = (
            _Message(module, averages=self._averaged, counted=counted, prints=prints)
            for _ in range(2)
        )
        self._given = _Given(self._parameters)
        enough = code.decodable if self._reactive is None else self._reactive.enough
        if counted_as_started and not partial and group is None and replica is None:
            warn_of_host(code, enough)
        number = next(_count)
        place = _store(store, group, replica, number), rank, code.n
        self._members = Members(*place, bool if partial else enough, seconds, settle)
        self._admission = self._admitting(replica, store, number, 2 * seconds)
        self._leave = weakref.finalize(self, self._members.close)
        self._require_no_other()
        self.join()

    def _auditing(self, every: int | None) -> Audit | None:
        if every is None:
            return None
        every = at_least("audit", every, 1)
        scaled = any(isinstance(each, torch.amp.GradScaler) for each in self._state)
        groups = copies(self._code) if self._reactive is None else []
        return Audit(self.rank, self._code.n, every, scaled, groups)

    def _admitting(self, replica: Any, store: Any, number: int, seconds: float) -> Admission | None:
        if replica is None:
            return None
        device = local(self._parameters[0]).device
        tickets = dist.PrefixStore(f"fastgc/replicas/{number}", store)
        return Admission(replica, self.rank, tickets, device, seconds)

    def _require_no_other(self) -> None:
        if any(other.joined and other._leave.alive for other in _running):
            self._leave()
            raise RuntimeError(
                "this rank has joined running ranks through another CodedAllReduce: they wait for "
                "its gradient there, and it would wait for them here. Use one CodedAllReduce for "
                "all modules, CodedAllReduce(torch.nn.ModuleList([a, b]), ...), and call it after "
                "each backward()"
            )
        _running.add(self)

    def __repr__(self) -> str:
        there = ", ".join(map(str, self.ranks)) or "none"
        return (
            f"<{type(self).__name__.lstrip('_')} of a {type(self._module).__name__} with "
            f"{self._code!r}: rank {self.rank}, step {self.step}, ranks {there}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._leave()

    def join(self) -> None:
        """Take part from now on, or again after a LeftOutError.

        If the others are running, this rank gets their module, `state` and `sampler`.

        Raises
        ------
        FinishedError
            If the run has ended.
        RuntimeError
            If all ranks begin and their parameters differ; if all ranks that held the state are
            gone; if no group forms within twice the deadline; or if this rank belongs to a replica,
            which must start again as a whole.
        ValueError
            If the others' module or state is of another kind.
        """
        if self._admission is not None and self.changes:
            raise RuntimeError(
                "a rank of a replica cannot join again by itself: end this process, and start all "
                "ranks of the replica again"
            )
        at = None if self._admission is None else self._admission.ask()
        self._fresh, self._aligned, self._compared, self._tried = True, 0, 0, False
        # The view in which ranks last told each other `_of_sampler`, and what they told.
        self._told_before: tuple[int, list[list[int]]] = -1, []
        if self._sampler is not None and self._position is not None:
            self.step = self._sampler.step // self._accumulate
            self._position.begin(self._sampler.step)
        self._given.forget()
        self._members.join()
        try:
            self._in_some_view(lambda view: None)
            if self._admission is not None:
                self._admission.require_one_step(self.step, at)
        except BaseException:
            self._members.close()
            raise

    def close(self) -> None:
        """End the run: wait until all ranks have the last step's result, and leave.

        A second call does nothing.

        Raises
        ------
        LeftOutError
            If the others ended without this rank, whose parameters are out of date.
        """
        if not self._leave.alive:
            return
        try:
            self._in_some_view(lambda view: view.sum(torch.zeros(1)))
            if self._admission is not None:
                self._admission.end()
            self._members.finish(self.step)
        except LeftOutError:
            raise
        except RuntimeError:
            pass  # the others have ended, or the store is gone
        finally:
            self._leave()

    def __call__(self, *sums: float) -> tuple[float, ...]:
        """Make every ``.grad`` that of the whole batch.

        Parameters that no sample of the batch uses keep None.

        Parameters
        ----------
        *sums : float
            Up to eight further numbers to sum over the whole batch, such as the loss or the hits.
            If the code has weights, multiply them by the weights, too.

        Returns
        -------
        tuple of float
            The `sums` over the whole batch.

        Raises
        ------
        NotDecodableError
            If too few ranks are left. The gradients are as they were.
        LeftOutError
            If the others went on without this rank, which was late. `join` gets their state.
        FinishedError
            If the others ended the run.
        RuntimeError
            If the store is gone; if no group forms within twice the deadline; if ``.grad`` holds
            the last step's gradient; if a parameter requires a gradient that did not at the start,
            or was replaced; if there is no gradient at all in the first step; if the number of
            batches differs from `accumulate`, or they are not the batches of the other ranks; in
            steps that check it, if gradients of the same samples or buffers differ.
        CorruptMessageError
            If an audit has shown that this rank errs; on all ranks, if one of the `suspects` errs
            and no majority tells which. With proactive redundancy the gradients are then as they
            were.
        """
        if len(sums) > _SUMS:
            raise ValueError(f"at most {_SUMS} sums may be given, not {len(sums)}")
        self._require_gradients()
        if self._position is not None:
            self._position.check()
            if self._reactive is not None:
                self._reactive.begin(self._position.at, sums)
        if self._admission is not None:
            self._let_in(self._admission)
        found = self._step(sums)
        self._given.note()
        if self._admission is not None:
            self._admission.note()
        return found

    def _require_gradients(self) -> None:
        """Raise RuntimeError unless ``.grad`` is this step's, for all that requires a gradient."""
        if self._admission is None:  # fully_shard puts others in the place of parameters
            require_known(self._module, self._parameters)
        self._given.require_none()

    def _let_in(self, admission: Admission) -> None:
        """Before the sum, wait for replicas that join at this step."""
        before, until = self._members.view().number, time.monotonic() + self._members.deadline / 4
        for newcomer in admission.newcomers(self.step):
            # Others may not have seen yet that the newcomer's last life ended.
            while time.monotonic() < until:
                view = self._members.view()
                if view.number > before and newcomer in view.ranks:
                    break
                time.sleep(_POLL)

    # ------------------------------------------------------------------------------------ the step

    def _step(self, sums: Sequence[float]) -> tuple[float, ...]:
        """Do the step with the gradients in ``.grad``."""
        done = self._in_some_view(lambda view: self._all_reduce(view, sums))
        if not (self._tried or bool(self._next.used.any())):
            raise RuntimeError(
                "no parameter of the module has a gradient on any rank: call this after "
                "backward(), and give the module whose parameters the loss uses"
            )
        self._kept, self._next = self._next, self._kept
        self.step += 1
        if self._pace is not None:
            self._pace.note(None if done is None else done.number)
        if (not self._tried or self.step % _TRIED_EVERY == 0) and bool(
            torch.isfinite(self._kept.gradient).all()
        ):
            if done is not None:
                self._try(done, sums)
            self._tried = True
        self._give()
        self._buffers.keep()
        if self._position is not None and self._sampler is not None:
            self._position.advance()
            self._sampler.forget(self._position.at)
        return tuple(self._kept.sums[: len(sums)].tolist())

    def _give(self) -> None:
        self._kept.give()

    def _in_some_view(self, work: Callable[[View], None]) -> View | None:
        """Do `work` in a view, and again in the next one if the view breaks.

        Return the view, or None if this rank took the step's result from another member.
        """
        while True:
            view = self._members.view()
            try:
                if view.number != self._aligned and self._align(view):
                    return None
                work(view)
                return view
            except BrokenGroupError:
                continue

    def _all_reduce(self, view: View, sums: Sequence[float]) -> None:
        audit = self._audit if self._audit is not None and self._audit.due(self.step) else None
        if self._reactive is not None:
            self._sum_once(view, self._reactive, audit)
            return
        if self._sampler is not None and view.number != self._compared:
            self._compare_samplers(view)
            self._compared = view.number
        self._sum_of(view, view.ranks, sums, audit)
        if audit is not None:
            self._look_at_copies(view, audit, sums)

    def _sum_of(
        self, view: View, ranks: list[int], sums: Sequence[float], audit: Audit | None = None
    ) -> None:
        """Sum the gradients of `ranks`. For an `audit`, all ranks also send their fingerprints."""
        coefficients, self.residual = self._coefficients(ranks)
        own = dict(zip(ranks, coefficients.tolist(), strict=True)).get(self.rank, 0.0)
        if audit is None:
            self._sum(view, own, sums)
            return
        hashed = audit.fingerprint(self.step)
        self._next.hash_gradients(own, hashed)
        self._next.take_rest(own, 1 / len(view.ranks), sums)
        self._next.tell(self.rank, hashed.value())
        view.sum(self._next.flat, self._patience(view))

    def _sum(self, view: View, own: float, sums: Sequence[float]) -> None:
        """Sum the messages of all ranks; this rank's gradient and sums are multiplied by `own`."""
        self._next.take(own, 1 / len(view.ranks), sums)
        view.sum(self._next.flat, self._patience(view))

    def _look_at_copies(self, view: View, audit: Audit, sums: Sequence[float]) -> None:
        """Compare the copies' fingerprints, and correct the step if some copies are outvoted.

        If ranks are named, raise BrokenGroupError: the others go on without them.
        """
        prints = self._next.prints
        if audit.agree(view.ranks, prints, self._next.gradient):
            return
        drawn = int.from_bytes(os.urandom(4), "little")
        parameters, secrets = self._told(view, fingerprint(self._parameters), drawn)
        self._require_same_parameters(view, parameters)
        found = gradients(self._parameters)
        own = _flat(self._parameters, found), in_half(found)
        verdict = audit.compare(view, sum(secrets), prints, own, self._next.gradient)
        self._follow(view, verdict)
        if verdict.outvoted:
            self._sum_of(view, [r for r in view.ranks if r not in verdict.outvoted], sums)

    def _patience(self, view: View) -> float | None:
        """Seconds to wait for others in a step; None means the deadline."""
        return None if self._pace is None else self._pace.patience(view.number)

    def _sum_once(self, view: View, reactive: _Reactive, audit: Audit | None) -> None:
        """Sum the gradients that ranks have, or compute for others, each partition once.

        All members see the same sums, so all do the same. In a new view, members tell which
        partitions they have. They also do so after a sum that does not count each partition once:
        a loader may have taken batches ahead, before partitions changed owners.
        """
        if view.number == self._compared and audit is None:
            self._take_once(view, reactive)
            view.sum(self._next.flat, self._patience(view))
            if self._next.complete:
                if self._audit is None or not self._audit.rises(self._next.norms):
                    return
                audit = self._audit
        drawn = int.from_bytes(os.urandom(4), "little")
        more = () if audit is None else (fingerprint(self._parameters), drawn)
        had, more_of_all = self._compare_samplers(view, more)
        shares = reactive.take_over(view.ranks, had)
        self._compared = view.number
        self._take_once(view, reactive)
        if audit is not None:
            self._look(view, audit, reactive, shares, *more_of_all)
        view.sum(self._next.flat)
        if audit is not None and self._errs_in_sum(view, audit):
            self._take_once(view, reactive)
            view.sum(self._next.flat)
            if self._errs_in_sum(view, audit):
                what = (
                    "the sum of gradients is not that of what ranks have sent, twice: one of their "
                    "machines errs where it adds up or sends"
                )
                self._fail(view, CorruptMessageError(what, tuple(view.ranks)))
        if not self._next.complete:
            raise RuntimeError(
                "ranks do not agree on who computes what: their codes differ, or a sampler was "
                "used by another loop"
            )
        if audit is not None:
            audit.rises(self._next.norms)

    def _take_once(self, view: View, reactive: _Reactive) -> None:
        self._next.take(1.0, 1 / len(view.ranks), reactive.sums, reactive.done)
        if self._audit is not None:
            self._next.tell_norm()

    def _look(
        self,
        view: View,
        audit: Audit,
        reactive: _Reactive,
        shares: dict[int, list[int]],
        prints: list[int],
        secrets: list[int],
    ) -> None:
        """Audit all ranks, and correct the step if shares are wrong.

        `prints` are the fingerprints of all ranks' parameters, `secrets` the random numbers that
        they drew. If ranks are named, raise BrokenGroupError: the others go on without them.
        """
        self._require_same_parameters(view, prints)

        def compute(partitions: list[int]) -> tuple[torch.Tensor, bool]:
            with self._without_trace():
                found = reactive.apart(partitions)
            return _flat(self._parameters, found), in_half(found)

        own = self._next.gradient, in_half(gradients(self._parameters))
        verdict = audit.look(view, sum(secrets), shares, own, compute)
        self._follow(view, verdict)
        if verdict.instead:
            reactive.replace(verdict.instead, shares)
            self._take_once(view, reactive)

    def _require_same_parameters(self, view: View, prints: list[int]) -> None:
        """Leave out ranks whose parameters' fingerprint differs from the majority's."""
        right = majority({r: prints[r] for r in view.ranks})
        if right is None:
            what = "parameters differ between ranks, and no majority has the same"
            self._fail(view, RuntimeError(what))
        self._leave_out(
            view,
            [r for r in view.ranks if prints[r] != right],
            f"parameters of rank {self.rank} differ from those of most other ranks: its optimizer, "
            "or its memory, has erred",
            forgives=True,
        )

    def _errs_in_sum(self, view: View, audit: Audit) -> bool:
        """Return whether most ranks find the sum wrong; if fewer do, leave these out."""
        (wrong,) = self._told(view, not audit.adds_up(self._next.gradient))
        at_odds = [r for r in view.ranks if wrong[r]]
        if 2 * len(at_odds) > len(view.ranks):
            return True
        self._leave_out(
            view,
            at_odds,
            f"the sum of gradients that rank {self.rank} has is wrong, and that of most other "
            "ranks is right: its memory, or what brings it messages, has erred",
            forgives=True,
        )
        return False

    def _follow(self, view: View, verdict: Verdict) -> None:
        """Raise the error of a verdict, or leave out the ranks that it names."""
        if verdict.unlike or verdict.undecided:
            *others, last = at_odds = verdict.unlike or verdict.undecided
            who = f"ranks {', '.join(map(str, others))} and {last}"
            what = f"gradients of the same samples differ between {who}"
            if verdict.unlike:
                what += (
                    ", and between others: audit= needs gradients that are the same whoever "
                    "computes them, without what ranks draw at random (dropout, augmentation)"
                )
                self._fail(view, RuntimeError(what))
            why = "one of them errs, and there is no third rank to tell which"
            if len(at_odds) > 2:
                why = "some of them err, and no majority of them agrees"
            self._fail(view, CorruptMessageError(f"{what}: {why}", at_odds))
        self.faults += [
            Fault(self.step, r, False) for r in verdict.outvoted if r not in verdict.named
        ]
        self._leave_out(
            view,
            verdict.named,
            f"rank {self.rank} computes wrong gradients: two others agreed on another one, twice",
        )

    def _leave_out(
        self, view: View, ranks: Sequence[int], why: str, forgives: bool = False
    ) -> None:
        """Leave out `ranks`: they raise an error, and the others go on in another view.

        If `forgives`, the others' state can mend these ranks: each may join again, once.
        """
        if not ranks:
            return
        again = any(each.rank == self.rank and each.left_out for each in self.faults)
        self.faults += [Fault(self.step, r, True) for r in ranks]
        self._until_all_know(view)
        if self.rank not in ranks:
            self._members.failed(view.number)
            raise BrokenGroupError
        self._members.close()
        if forgives and not again:
            raise LeftOutError(f"{why}; join() gets what the others have")
        raise CorruptMessageError(f"{why}; the others go on without it", (self.rank,))

    def _compare_samplers(
        self, view: View, more: Sequence[int] = ()
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Raise RuntimeError if ranks have taken different batches.

        Return a row for each partition, which is 1 for each rank that has it (`done`), and a row
        for each number of `more`, with all ranks' values.
        """
        number, told = self._told_before
        self._told_before = -1, []
        if more or number != view.number:
            told = self._told(view, *self._of_sampler(), *more)
        (steps, samplers, *had), rest = told[: len(told) - len(more)], told[len(told) - len(more) :]
        self._compare(view, steps, "batches of the sampler, {} and {}, differ", _SAMPLERS)
        self._compare(view, samplers, "samplers differ", _SAMPLERS)
        return had, rest

    def _of_sampler(self) -> list[int]:
        """Return the numbers that tell this rank's sampler, and which partitions it has."""
        if self._sampler is None:
            return []
        state = repr(sorted(self._sampler.state_dict().items()))
        own = [self._sampler.step, zlib.crc32(state.encode())]
        if self._reactive is not None:
            own += [int(j in self._reactive.done) for j in range(self._code.k)]
        return own

    def _coefficients(self, ranks: list[int]) -> tuple[Array, float]:
        """Return the ranks' coefficients and their residual."""
        try:
            vector = self._code.decoding_vector(ranks)
            left = self._code.residual(ranks, vector) if self._code.scheme.approximate else 0.0
            return vector, left
        except NotDecodableError as error:
            if self._partial:
                return self._code.best_vector(ranks)
            gone = ", ".join(str(r) for r in range(self._code.n) if r not in ranks)
            raise NotDecodableError(
                f"too many ranks are gone ({gone}) for {self._code!r}: {error}", error.missing
            ) from None

    def _try(self, view: View, sums: Sequence[float]) -> None:
        """Compare the ranks' buffers, and the step's result with that of fewer ranks.

        The two results differ if copies of a partition have different gradients.
        """
        ranks, once = list(view.ranks), self._reactive is not None
        coefficients = np.zeros(0) if once else self._coefficients(ranks)[0]
        for at in np.argsort(-np.abs(coefficients)).tolist():
            rest = [r for r in ranks if r != view.ranks[at]]
            if self._code.decodable(rest):
                ranks = rest
        own = 0 if self._averaged else fingerprint(self._module.buffers())
        try:
            half = in_half(gradients(self._parameters))
            buffers, halves, means = self._told(view, own, half, self._takes_means(half))
            self._compare(view, buffers, "buffers of the module differ", _BUFFERS)
            if any(means):
                self._fail(view, RuntimeError(_MEANS))
            if self.residual or len(ranks) == len(view.ranks):
                return
            others = dict(zip(ranks, self._coefficients(ranks)[0].tolist(), strict=True))
            self._next.take(others.get(self.rank, 0.0), 0.0, sums)
            view.sum(self._next.flat)
        except BrokenGroupError:
            return  # all members that got here have the step's result
        mine, theirs = self._kept.gradient, self._next.gradient
        same = SAME_HALF if any(halves) else SAME
        # A rank's part of a replica may be empty.
        if mine.numel() and bool((mine - theirs).abs().max() > same * mine.abs().max()):
            self._fail(view, RuntimeError(f"gradients of the same samples differ{_GRADIENTS}"))

    def _takes_means(self, half: bool) -> bool:
        """Whether, in the first step, this rank's gradient is of a mean over its samples."""
        if self._reactive is None or self._tried:
            return False
        with self._without_trace():
            return self._reactive.is_mean(SAME_HALF if half else SAME)

    @contextlib.contextmanager
    def _without_trace(self) -> Iterator[None]:
        """Restore what `recompute` changes besides gradients: random numbers' state and buffers."""
        with restored(self._parameters[0].device), unchanged_buffers(self._module):
            yield

    # ------------------------------------------------------------------------------- after changes

    def _align(self, view: View) -> bool:
        """Bring a new view to one step; return whether this rank took its result from another."""
        own = fingerprint(self._parameters) if self._fresh else 0
        size = self._next.gradient.numel()
        drawn = int.from_bytes(os.urandom(4), "little")
        told = self._told(view, self.step, self._fresh, size, own, drawn, *self._of_sampler())
        steps, fresh, sizes, prints, secrets, *samplers = told
        running = [r for r in view.ranks if not fresh[r]]
        if not running:
            for what, values in (("sizes", sizes), ("parameters", prints), ("steps", steps)):
                self._compare(view, values, f"{what} of the module differ", _START)
        elif sizes[self.rank] != sizes[running[0]]:
            raise ValueError(
                f"this rank's module has {size} trainable parameters, and that of those who are "
                f"running {sizes[running[0]]}"
            )
        behind = False
        if running:
            newest = max(steps[r] for r in running)
            source = next(r for r in running if steps[r] == newest)
            behind = not self._fresh and self.step < newest
            if any(steps[r] < newest for r in running):
                # A rank that joins keeps the result too: it may be the next view's source.
                mine = self.rank == source or self._fresh
                view.copy((self._kept if mine else self._next).flat, source)
            if any(fresh):
                self._hand_over(view, source)
        self._members.hold(view)
        # Ranks that go on with the step in which a rank died need not tell their samplers again.
        again = not any(fresh) and len({steps[r] for r in view.ranks}) == 1
        self._told_before = (view.number, samplers) if again else (-1, [])
        gone = [rank for rank in self.ranks if rank not in view.ranks]
        if gone and self.rank == view.ranks[0]:
            _LOG.warning("step %d: ranks %s are gone, and %s go on", self.step, gone, view.ranks)
        self._fresh, self._aligned, self.ranks = False, view.number, view.ranks
        if self._reactive is not None:
            self._reactive.own(view.ranks)
        if self._audit is not None:
            self._audit.forget(sum(secrets))
        self.changes.append(Change(self.step, view.ranks, view.seconds))
        return behind

    def _told(self, view: View, *own: int) -> list[list[int]]:
        """Return all ranks' values of each number in `own`: rows of n, 0 for ranks not in view."""
        rows = torch.zeros(len(own), self._code.n, dtype=torch.int64)
        rows[:, self.rank] = torch.tensor(own)
        view.sum(rows)
        found: list[list[int]] = rows.tolist()
        return found

    def _compare(self, view: View, values: list[int], what: str, why: str) -> None:
        """Raise RuntimeError on all members if `values` differ between them."""
        first = view.ranks[0]
        other = next((r for r in view.ranks if values[r] != values[first]), None)
        if other is not None:
            what = what.format(values[first], values[other])
            self._fail(view, RuntimeError(f"{what} between ranks {first} and {other}{why}"))

    def _until_all_know(self, view: View) -> None:
        """Wait until all members see the same error: a rank that left first would break the sum."""
        with contextlib.suppress(BrokenGroupError):
            view.sum(torch.zeros(1))

    def _fail(self, view: View, error: Exception) -> NoReturn:
        self._until_all_know(view)
        raise error

    def _hand_over(self, view: View, source: int) -> None:
        """Copy the state of `source` to the ranks that join."""
        given = io.BytesIO()
        if self.rank == source:
            states = [pack(each.state_dict()) for each in (self._module, *self._state)]
            at = None if self._position is None else (self._position.at, self._position.lead)
            torch.save((self.step, at, self._tried, states, self._buffers.kept), given)
        size = torch.tensor([given.tell()])
        view.copy(size, source)
        if self.rank == source:
            payload = torch.frombuffer(given.getbuffer(), dtype=torch.uint8)
        else:
            payload = torch.empty(int(size), dtype=torch.uint8)
        view.copy(payload, source)
        if not self._fresh:
            return
        step, at, tried, states, buffers = torch.load(
            io.BytesIO(payload.numpy().data), weights_only=False
        )
        if len(states) != 1 + len(self._state):
            raise ValueError(
                f"other ranks hand over the state of {len(states) - 1} objects, and this one has "
                f"{len(self._state)}: give state= the same on all"
            )
        for each, found in zip((self._module, *self._state), states, strict=True):
            each.load_state_dict(unpack(found, like=self._parameters[0]))
        self._buffers.restore(buffers)
        self.step, self._tried, self.joined = step, tried, True
        if self._position is not None and at is not None:
            self._position.begin(*at)


class Pace:
    """The times of steps, each measured between two steps of the same view."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=100)
        self._ended, self._view = 0.0, -1  # when the last step ended, and in which view

    def note(self, view: int | None) -> None:
        """Note that a step ended in `view`; None if this rank took its result from another."""
        now = time.monotonic()
        if view is not None and view == self._view:
            self._seconds.append(now - self._ended)
        self._ended, self._view = now, -1 if view is None else view

    def patience(self, view: int) -> float | None:
        """Seconds to wait in a step of `view`; None in its first step, or with too few times."""
        if view != self._view or len(self._seconds) < _STEPS:
            return None
        return max(_SHORTEST, _FACTOR * float(np.quantile(self._seconds, _QUANTILE)))


def _multiply(x: torch.Tensor, coefficient: float, out: torch.Tensor) -> None:
    if coefficient == 0.0:  # 0 times NaN would be NaN
        out.zero_()
    elif coefficient != 1.0 or x is not out:
        torch.mul(x, coefficient, out=out)


class _Message:
    """The vector that is summed.

    It holds the gradients, a flag for each parameter that was used, buffers that are averaged,
    counts of partitions, further sums, the gradients' norm, and four numbers for each fingerprint.
    Only floating-point buffers are averaged: each rank adds its share of them.
    """

    def __init__(
        self, module: torch.nn.Module, *, averages: bool, counted: int, prints: int
    ) -> None:
        self._module, self._parameters = module, trainable(module, cut=True)
        named = dict(module.named_buffers()) if averages else {}
        floating = {name: each for name, each in named.items() if each.is_floating_point()}
        parts_here = [local(p) for p in self._parameters]
        size = sum(part.numel() for part in parts_here)
        means = sum(b.numel() for b in floating.values())
        parts = [size, len(self._parameters), means, counted, _SUMS, 1, 4 * prints]
        self.flat = torch.zeros(sum(parts), dtype=self._parameters[0].dtype)
        split = torch.split(self.flat, parts)
        self.gradient, self.used, averaged, self._counts, self.sums, self._norms, told = split
        self._prints = told.view(prints, 4)
        self._tensors = views(self.gradient, parts_here)
        self._ends = list(accumulate((part.numel() for part in parts_here), initial=0))
        self._averages = dict(zip(floating, views(averaged, floating.values()), strict=True))

    @torch.no_grad()
    def take(
        self, coefficient: float, share: float, sums: Sequence[float], done: Iterable[int] = ()
    ) -> None:
        """Take the gradients times `coefficient`; `done` are the partitions in them.

        With a coefficient of 0, even NaN becomes 0.
        """
        self.take_gradients(coefficient)
        self.take_rest(coefficient, share, sums, done)

    @torch.no_grad()
    def take_rest(
        self, coefficient: float, share: float, sums: Sequence[float], done: Iterable[int] = ()
    ) -> None:
        """Take all but the gradients, and clear the fingerprints."""
        self._prints.zero_()
        self.used[:] = torch.tensor([p.grad is not None for p in self._parameters])
        for mine, buffer in self._averaged():
            mine.copy_(buffer).mul_(share)
        self._counts.zero_()
        self._counts[list(done)] = 1.0
        self.sums.zero_()
        if coefficient != 0.0:
            self.sums[: len(sums)] = coefficient * torch.tensor([float(x) for x in sums])

    @torch.no_grad()
    def take_gradients(self, coefficient: float, of: slice = slice(None)) -> None:
        """Take the gradients of some parameters times `coefficient`."""
        for grad, mine in zip(gradients(self._parameters[of]), self._tensors[of], strict=True):
            if grad is None:
                mine.zero_()
            elif grad.device.type == "cpu" and not grad.is_sparse:
                _multiply(grad, coefficient, mine)
            else:
                mine.copy_(grad.to_dense() if grad.is_sparse else grad)
                _multiply(mine, coefficient, mine)

    @torch.no_grad()
    def hash_gradients(self, coefficient: float, hashed: Fingerprint) -> None:
        """Take all gradients times `coefficient`, and hash the gradients themselves.

        Small ones are joined in the message first, because each call of PyTorch takes microseconds.
        """
        ends, end = self._ends, 0
        while end < len(self._parameters):
            begin, limit = end, ends[end] + _PIECE
            end += 1
            while end < len(self._parameters) and ends[end + 1] <= limit:
                end += 1
            some, mine = slice(begin, end), self.gradient[ends[begin] : ends[end]]
            found = zip(gradients(self._parameters[some]), self._tensors[some], strict=True)
            flat = [_vector(grad, like.numel(), like.dtype) for grad, like in found]
            read = flat[0] if len(flat) == 1 else torch.cat(flat, out=mine)
            hashed.add_multiplied(read, coefficient, mine)

    @torch.no_grad()
    def give(self, into: Mapping[torch.Tensor, torch.Tensor] = MappingProxyType({})) -> None:
        """Set ``.grad`` of each parameter that any rank used to the sum, and buffers to the mean.

        For a parameter in `into`, copy the sum to that tensor instead.
        """
        copies: dict[torch.Tensor, torch.Tensor] = {}
        for p, used, mine in zip(self._parameters, self.used.tolist(), self._tensors, strict=True):
            if not used:
                continue
            if p in into:
                copies[into[p]] = mine
            elif p.grad is None or p.grad.is_sparse:
                p.grad = whole(mine.to(p.device, copy=True), like=p)
            else:
                copies[local(p.grad)] = mine
        if copies:
            torch._foreach_copy_(list(copies), list(copies.values()))
        for mine, buffer in self._averaged():
            buffer.copy_(mine)

    def tell_norm(self) -> None:
        """Put the norm of the gradient that was taken into the message."""
        self._norms.fill_(torch.linalg.vector_norm(self.gradient))

    def tell(self, rank: int, fingerprint: int) -> None:
        """Put a rank's fingerprint into the message, in pieces whose sum with zeros is exact."""
        pieces = [fingerprint >> shift & 0xFFFF for shift in (0, 16, 32, 48)]
        self._prints[rank] = torch.tensor(pieces)

    @property
    def prints(self) -> list[int]:
        """The ranks' fingerprints."""
        return [
            sum(int(piece) << 16 * at for at, piece in enumerate(row))
            for row in self._prints.tolist()
        ]

    @property
    def norms(self) -> float:
        """The sum of the ranks' norms."""
        return float(self._norms)

    @property
    def complete(self) -> bool:
        """Whether the sum counts each partition once."""
        return bool((self._counts == 1).all())

    def _averaged(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        if not self._averages:
            return []
        now = dict(self._module.named_buffers())
        return [(mine, now[name]) for name, mine in self._averages.items()]


def _check_redundancy(
    code: Code, redundancy: str, sampler: CodedSampler | None, recompute: Any, partial: bool
) -> tuple[CodedSampler, Recompute] | None:
    """Return the sampler and `recompute` if redundancy is reactive; raise if they do not fit."""
    check_word("redundancy", redundancy, "proactive", "reactive")
    if redundancy == "proactive":
        if recompute is not None:
            raise ValueError('recompute= is for redundancy="reactive"')
        return None
    if code.k < code.n:
        raise ValueError(
            f"{code!r} has {code.k} partitions, fewer than ranks: some would own none. Take "
            f"k={code.n} or more"
        )
    if sampler is None or recompute is None or not callable(recompute):
        raise TypeError(
            'redundancy="reactive" takes sampler=, which gives each rank the samples that it owns, '
            "and recompute=, which computes those of ranks that died"
        )
    if partial:
        raise ValueError('partial=True is for redundancy="proactive"')
    return sampler, recompute


def _rank_of(code: Code, group: Any, rank: int | None) -> int:
    """Return the rank of this process; raise ValueError unless there is a rank for each worker."""
    rank, world = place_of(group, rank)
    if isinstance(code, Code) and world not in (None, code.n):
        raise ValueError(
            f"a code of {code.n} workers needs {code.n} ranks "
            f"(torchrun --nproc-per-node {code.n}), not {world}"
        )
    real_row(code, rank)
    return rank


def _check_replica(rank: Any, store: Any, redundancy: str, deadline: float | str) -> None:
    """Raise TypeError or ValueError if a replica cannot be one worker."""
    if rank is None or store is None:
        raise TypeError(
            "replica= takes rank=, the number of this replica, and store=, by which all replicas "
            "find each other, such as torch.distributed.TCPStore(host, port)"
        )
    if redundancy == "reactive":
        raise ValueError(
            'replica= takes redundancy="proactive": ranks of one replica cannot agree in time on '
            "what they compute again, since each hears of deaths by itself"
        )
    if deadline == "auto":
        raise ValueError(
            "replica= takes a deadline in seconds: a step in which another replica joins is longer"
        )


class _Reactive:
    """The owners of partitions, and the gradients that are in this rank's ``.grad`` in this step.

    `done` are the partitions whose gradients are in ``.grad``, and `sums` the call's further sums
    over the samples of these.
    """

    def __init__(
        self,
        code: Code,
        rank: int,
        parameters: Sequence[torch.nn.Parameter],
        accumulate: int,
        sampler: CodedSampler,
        recompute: Recompute,
    ) -> None:
        self._rank, self._parameters, self.sampler = rank, parameters, sampler
        self._accumulate, self._recompute = accumulate, recompute
        self._holders: list[list[int]] = [[] for _ in range(code.k)]
        for r in range(code.n):
            for j in code.partitions(r).tolist():
                self._holders[j].append(r)
        self.done: set[int] = set()
        self.sums: list[float] = []
        self._batches: list[int] = []

    def enough(self, ranks: Iterable[int]) -> bool:
        """Return whether `ranks` hold all partitions."""
        there = set(ranks)
        return all(not there.isdisjoint(each) for each in self._holders)

    def own(self, ranks: list[int]) -> None:
        """Let the sampler give this rank the partitions that it owns if `ranks` take part."""
        if self.enough(ranks):
            of = owners(self._holders, ranks)
            own = [j for j, r in enumerate(of) if r == self._rank]
            # No batch may be empty: a rank that owns nothing computes a partition of another, and
            # leaves it out of the sum.
            held = (j for j, each in enumerate(self._holders) if self._rank in each)
            self.sampler.give(own or list(itertools.islice(held, 1)))

    def begin(self, at: int, sums: Sequence[float]) -> None:
        """Begin a step with the gradients and `sums` of the batches from number `at` on."""
        self._batches = list(range(at, at + self._accumulate))
        self.done = self.whole(at)
        self.sums = [float(x) for x in sums]
        if not self.done:
            self._drop()

    def whole(self, at: int) -> set[int]:
        """Return the partitions whose gradients are in ``.grad`` after the batches from `at` on.

        ``.grad`` is a sum over these batches, from which nothing can be taken out. If the batches'
        partitions differ, it is no gradient of whole partitions.
        """
        given = [set(self.sampler.given(at + batch)) for batch in range(self._accumulate)]
        return given[0] if all(each == given[0] for each in given) else set()

    def take_over(self, ranks: list[int], had: list[list[int]]) -> dict[int, list[int]]:
        """Compute this rank's part of the partitions that no rank has; return each rank's shares.

        `had` has a row for each partition, with 1 for each rank that has it. The first rank keeps
        its partitions. A rank that has one of them too drops all of its own, since they are one
        sum.
        """
        kept: dict[int, int] = {}
        for r in ranks:
            mine = [j for j, row in enumerate(had) if row[r]]
            if not any(j in kept for j in mine):
                kept |= dict.fromkeys(mine, r)
        lost = [j for j in range(len(had)) if j not in kept]
        of = owners([self._holders[j] for j in lost], ranks)
        if self._rank not in kept.values():
            self._drop()
        self._add([j for j, r in zip(lost, of, strict=True) if r == self._rank])
        kept |= dict(zip(lost, of, strict=True))
        return {r: [j for j in range(len(had)) if kept[j] == r] for r in ranks}

    def replace(self, instead: dict[int, int], shares: dict[int, list[int]]) -> None:
        """Drop a wrong share of this rank, and compute those that it replaces (`instead`)."""
        if self._rank in instead:
            self._drop()
        self._add([j for r, other in instead.items() if other == self._rank for j in shares[r]])

    def apart(self, partitions: list[int]) -> list[torch.Tensor | None]:
        """Return the gradients of `partitions` alone, and leave ``.grad`` as it is."""
        return self._of(self._samples(partitions))

    def is_mean(self, same: float) -> bool:
        """Return whether ``.grad`` is that of the mean over samples, and not of their sum.

        The gradients of two halves of the samples tell, up to `same`. What forward draws at random
        looks like neither.
        """
        samples = self._samples(sorted(self.done))
        size = min(map(len, samples), default=0)
        if size < _HALVED:
            return False
        whole = _flat(self._parameters, gradients(self._parameters))
        first = [each[: len(each) // 2] for each in samples]
        rest = [each[len(each) // 2 :] for each in samples]
        halves = [_flat(self._parameters, self._of(part)) for part in (first, rest)]
        if not whole.numel():  # this rank's part of a replica
            return False
        weight = sum(map(len, first)) / sum(map(len, samples))
        mean = weight * halves[0] + (1 - weight) * halves[1]
        off = [float((whole - other).abs().max()) for other in (mean, halves[0] + halves[1])]
        limit = same * float(whole.abs().max())
        return off[0] <= limit < off[1]

    def _samples(self, partitions: list[int]) -> list[list[int]]:
        """Return the samples of these partitions in each batch of the step."""
        return [self.sampler.samples(batch, partitions) for batch in self._batches if partitions]

    def _of(self, samples: list[list[int]]) -> list[torch.Tensor | None]:
        """Return the gradients of these samples, and leave ``.grad`` as it is."""
        with without_gradients(self._parameters):
            for each in samples:
                self._recompute(each)
            return [p.grad for p in self._parameters]

    def _add(self, more: list[int]) -> None:
        for each in self._samples(more):
            found = self._recompute(each) or [0.0] * len(self.sums)
            if len(found) != len(self.sums):
                raise ValueError(
                    f"recompute returned {len(found)} sums, and the call was given "
                    f"{len(self.sums)}: it must return the same sums for its samples"
                )
            self.sums = [x + float(y) for x, y in zip(self.sums, found, strict=True)]
        self.done |= set(more)

    def _drop(self) -> None:
        for p in self._parameters:
            p.grad = None
        self.done, self.sums = set(), [0.0] * len(self.sums)


@torch.no_grad()
def _flat(
    parameters: Sequence[torch.nn.Parameter], given: Sequence[torch.Tensor | None]
) -> torch.Tensor:
    """Return gradients as one vector on the CPU."""
    parts = [local(p) for p in parameters]
    pairs = zip(given, parts, strict=True)
    return torch.cat([_vector(grad, part.numel(), parts[0].dtype) for grad, part in pairs])


def _vector(grad: torch.Tensor | None, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a gradient as a vector of this type on the CPU."""
    if grad is None:
        return torch.zeros(size, dtype=dtype)
    return (grad.to_dense() if grad.is_sparse else grad).to("cpu", dtype).reshape(-1)


class _Given:
    """The gradients that the last step gave, to find out whether the user has set them to zero.

    If not, only `backward` has changed a gradient: its version grew by one for each addition.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._parameters, self._added = parameters, [0] * len(parameters)
        self.forget()
        own = weakref.ref(self)  # the hooks live as long as the parameters

        def count(at: int, _: torch.Tensor) -> None:
            if (given := own()) is not None:
                given._added[at] += 1

        for at, p in enumerate(parameters):
            hooked: Any = p  # the hook is not in the declared types
            hooked.register_post_accumulate_grad_hook(functools.partial(count, at))

    def forget(self) -> None:
        self._noted: list[tuple[weakref.ref[torch.Tensor], int] | None] = []

    def note(self) -> None:
        """Note that all present gradients were given."""
        self._noted = [
            None if grad is None else (weakref.ref(grad), grad._version)
            for grad in gradients(self._parameters)
        ]
        self._added[:] = [0] * len(self._added)

    def require_none(self) -> None:
        """Raise RuntimeError if all gradients are still those given, and one is not zero."""
        now = gradients(self._parameters)
        still = [
            grad
            for grad, noted, added in zip(now, self._noted, self._added, strict=False)
            if noted is not None
            and noted[0]() is grad is not None
            and grad._version == noted[1] + added
        ]
        if len(still) == sum(noted is not None for noted in self._noted) and any(
            bool(grad.to_dense().any() if grad.is_sparse else grad.any()) for grad in still
        ):
            raise RuntimeError(
                ".grad still holds the gradient of the last step, to which backward() has added: "
                "call zero_grad() after each step. If a step adds up the gradients of several "
                "batches, call this only after the last of them"
            )


def _states(given: Iterable[Any]) -> list[Any]:
    states = list(given)
    for each in states:
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise TypeError(
                f"state must be of what has state_dict() and load_state_dict(), as optimizers "
                f"have, not {type(each).__name__}"
            )
    return states


def _store(store: Any, group: Any, replica: Any, number: int) -> Any:
    """Return the store in which the ranks of one `CodedAllReduce` meet.

    With replicas, ranks that hold the same part of the module meet.
    """
    store = own_store() if store is None else store
    # A clone has its own connection: its waits do not block other users of the store.
    store = store.clone() if hasattr(store, "clone") else store
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    who = "world" if group is None else str(group.group_name)
    if replica is not None:  # torchrun may have restarted this replica alone
        restarts, who = "replicas", f"part{dist.get_rank(replica)}"
    return dist.PrefixStore(f"fastgc/all_reduce/{restarts}/{who}/{number}", store)


_made: dict[torch.nn.Module, CodedAllReduce] = {}


def all_reduce_gradients(
    module: torch.nn.Module,
    code: Code,
    group: Any = None,
    *,
    sums: Sequence[float] = (),
    **options: Any,
) -> tuple[float, ...]:
    """Make every ``.grad`` that of the whole batch: `CodedAllReduce` as one call.

    Call it on all ranks after each ``backward()``. The first call makes a `CodedAllReduce` of the
    module, which is kept until the program ends; each call calls it. A restarted rank cannot join
    this way, because its first gradient belongs to parameters that are out of date.

    Parameters
    ----------
    module, code, group
        As in `CodedAllReduce`; the same in each call.
    sums : sequence of float
        Other numbers to sum over the whole batch.
    **options
        ``store``, ``rank``, ``deadline``, ``settle``, ``partial``, ``buffers``, ``audit``, as in
        `CodedAllReduce`.

    Returns
    -------
    tuple of float
        The `sums` over the whole batch.

    Raises
    ------
    NotDecodableError, LeftOutError, RuntimeError, TypeError, ValueError
        As `CodedAllReduce` does.
    """
    found = _made.get(module)
    if found is None:
        found = CodedAllReduce(module, code, group=group, **options)
        if found.joined:
            found._leave()
            raise LeftOutError(
                "the other ranks are running, and this one's gradient is of parameters that are "
                "out of date: make a CodedAllReduce before the loop, which gets what they have"
            )
        _made[module] = found
    return found(*sums)
