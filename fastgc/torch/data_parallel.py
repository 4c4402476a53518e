"""Gradients of a PyTorch module from the workers that answer first."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Self, TypedDict, Unpack, cast

import numpy as np
import torch
from torch.utils.data import default_collate

from .._base.arrays import Ints, at_least, check_dtype, check_word, is_half
from ..codes import BinaryCode, Code
from ..engines import Cluster, RoundReport, find_engine
from ..engines.interface import RoundKeywords, check_names
from ..errors import CorruptMessageError
from .all_reduce import CodedAllReduce
from .batches import Batches, Drawn, Feed, Loader, restored, seed_all
from .job import CHANGES, Job, Layout, Loss, losses, moved, passes, plainly, weights_losses
from .parameters import Unsent, apart, trainable, unchanged_buffers, without_gradients
from .place import place_of
from .sampler import CodedSampler, check_code

_SAME = 1e-3  # largest relative difference of losses that should be equal
_SAMPLES = 8  # number of samples on which the loss is tried
_PARTS = 3  # parts of a number that is sent in halves: three bfloat16 have 24 bits


class _PeerKeywords(TypedDict, total=False):
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


class _Keywords(RoundKeywords, _PeerKeywords, total=False):
    """Options of all engines."""


class Result(NamedTuple):
    """What a step returns besides the gradients.

    Attributes
    ----------
    loss : float
        Loss of the whole batch: the mean or the sum over its samples, like the gradients.
    sums : tuple of float
        The other sums that the loss returns, over the whole batch.
    report : RoundReport
        Which workers answered, and how long it took.
    """

    loss: float
    sums: tuple[float, ...]
    report: RoundReport


class CodedDataParallel:
    """Compute a module's gradients of whole batches on coded workers, from the first to answer.

    A step takes a batch of ``batch_size`` samples, cut into as many partitions as the code has.
    Every worker computes some partitions, and several workers compute each partition. The gradient
    is decoded from the first messages that suffice. It is exactly the gradient of the whole batch,
    unless the code is approximate.

    Parameters
    ----------
    module : torch.nn.Module
        On the CPU, with all parameters float32 or all float64. With ``engine="all-reduce"`` it may
        be on any device. Parameters frozen at the start stay frozen; tied ones are sent once.
        Workers compute in the module's current mode (``train()``, ``eval()``).
    loss : callable
        ``loss(module, batch)`` returns the **sum** of the losses of a batch's samples as a tensor,
        or a tuple of it and other sums (hits, tokens), which are decoded in the same way.
    dataset : map-style dataset
        ``len(dataset)`` and ``dataset[i]``. Workers take only their own samples from it.
    code : Code, optional
        Which workers compute what. Default: a `fastgc.BinaryCode` with `workers` and `stragglers`.
        With real coefficients (binary, repetition and cyclic codes) a worker makes one backward
        pass per step; with complex ones, one for each of its partitions.
    batch_size : int
        Samples of a step, over all workers.
    workers, stragglers : int
        For the default code: how many workers there are, and how many may be missing.
    engine : "local", "mpi", "ray", "simulated", "torch", "all-reduce" or callable
        Where workers run, as in `fastgc.train`. With MPI and torchrun ("torch") all ranks run the
        same program; the constructor returns only on rank 0, and the other ranks exit when rank 0's
        program ends. With "all-reduce" there is no master: all ranks of torchrun run the same loop
        and have the same gradient after each step (`CodedAllReduce`).
    reduction : "mean" or "sum"
        Whether gradients, and ``Result.loss``, are divided by `batch_size`.
    sampler : iterable of int, optional
        The order of samples in an epoch. Default: a new permutation for each epoch.
    collate_fn : callable, optional
        Makes a batch of samples. Default: ``torch.utils.data.default_collate``.
    buffers : "error" or "mean"
        What to do about buffers that forward changes, such as BatchNorm's: raise an error, or
        average them over partitions. With "mean", partitions are computed one by one, and BatchNorm
        normalises each partition by itself.
    device : torch.device, str or callable
        Where a worker computes, or ``device(worker)`` if it is callable. Default: the CPU.
    threads : int
        Threads of torch in each worker.
    num_workers : int
        Number of processes, for each worker, that fetch samples for as many coming steps while the
        worker computes; for slow datasets. Results are the same to the last bit. A `sampler` is
        asked as many steps ahead. Simulated workers have no such processes.
    **options
        Options of `fastgc.engines.RoundOptions` (``timeout=``, ``verify=``, ``message_dtype=``,
        ...) other than `batch`. The `seed` also determines the order of samples, and the random
        numbers drawn while a partition is computed (dropout, augmentation), which are the same on
        all its workers. For "all-reduce": ``seed``; ``redundancy``, ``audit``, ``state``,
        ``group``, ``store``, ``rank``, ``deadline`` and ``settle`` as in `CodedAllReduce`; and
        ``first_step``, the number of steps done, if this resumes a run.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit. No worker has started in that case.
    RuntimeError
        If a loss is not the sum over samples, if forward changes buffers or parameters, or if two
        computations of the same gradient differ.

    Notes
    -----
    With ``engine="all-reduce", redundancy="reactive"``, each sample is computed once, as with
    DistributedDataParallel. If a rank dies, others compute its samples in the same step. A rank
    that restarts gets the parameters, and everything in `state`, from the others, and continues at
    ``coded.step``: count your steps by that.

    `loss` and `module` are pickled by value if they are not importable, so lambdas, classes of
    ``__main__`` and classes of notebooks work.

    Examples
    --------
    >>> coded = CodedDataParallel(model, loss, data, code, batch_size=512)  # doctest: +SKIP
    >>> with coded:  # doctest: +SKIP
    ...     for _ in range(1000):
    ...         optimizer.zero_grad()
    ...         result = coded.backward()
    ...         optimizer.step()
    """

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Loss,
        dataset: Any,
        code: Code | None = None,
        *,
        batch_size: int,
        workers: int = 4,
        stragglers: int = 1,
        engine: str | Callable[..., Cluster] = "local",
        reduction: str = "mean",
        sampler: Iterable[int] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        buffers: str = "error",
        device: Any = None,
        threads: int = 1,
        num_workers: int = 0,
        **options: Unpack[_Keywords],
    ) -> None:
        peers = _check_options(engine, options, device)
        start: Any = None if peers else find_engine(engine)
        # With such engines all processes run the same program: the others serve until it ends.
        if hasattr(start, "serve_all") and start.serve_all():
            raise SystemExit(0)
        self._module = module
        self._parameters = trainable(module)
        self._device = self._parameters[0].device
        if not callable(loss):
            raise TypeError(f"loss must be callable, loss(module, batch), not {loss!r}")
        if code is None:
            ranks = place_of(options.get("group"), options.get("rank"))[1] if peers else None
            code = BinaryCode(ranks or workers, stragglers=stragglers)
        check_code(code)
        _warn_of_complex(code)
        if not peers and any(p.device.type != "cpu" for p in self._parameters):
            raise TypeError(
                "the module must be on the CPU, where gradients arrive: module.cpu(); workers "
                'compute where device= says, "cuda:0", say'
            )
        check_word("reduction", reduction, "mean", "sum")
        check_word("buffers", buffers, "error", "mean")
        seed = options.setdefault("seed", 0)
        ahead = at_least("num_workers", num_workers, 0)
        self._batches = Batches(dataset, batch_size, code.k, seed, sampler, ahead)
        self._scale = 1.0 / self._batches.size if reduction == "mean" else 1.0
        self._feed = Feed(dataset, default_collate if collate_fn is None else collate_fn)
        self._loss, self._code, self._weighted = loss, code, weights_losses(code)
        self._peers: _Peers | None = None
        changed, sums = self._try(buffers)
        if peers:
            own = {**options, "buffers": buffers}
            self._peers = _Peers(self, dataset, sampler, ahead, bool(changed), own)
            return
        self._buffers = [dict(module.named_buffers())[name] for name in changed]
        self._layout = layout = Layout(
            sum(p.numel() for p in self._parameters),
            len(self._parameters),
            sum(b.numel() for b in self._buffers),
            sums,
            self._batches.size,
            ahead,
            _parts(code, options.get("message_dtype")),
        )
        dtype = self._parameters[0].detach().numpy().dtype
        self._theta = np.zeros(layout.theta_size, dtype)
        # The first vector is for gradients that become .grad, a second one for those added to it.
        self._outs = [np.empty(layout.message_size, dtype)]
        what = (module, loss, self._feed, layout, code.k, seed, self._scale, changed)
        job, shards = Job(*what, device, threads, ahead), [None] * code.scheme.data.shards
        rounds = cast(RoundKeywords, options)
        self._cluster: Cluster = start(code, shards, job, layout.message_size, dtype, **rounds)
        self._begin()

    def _begin(self) -> None:
        """Make the parameters views of the vector that is sent, and note what must not change."""
        self._last: tuple[int, Ints] | None = None
        self._requires = [p.requires_grad for p in self._module.parameters()]
        self._modes = [m.training for m in self._module.modules()]
        self._views = apart(self._theta, self._parameters)
        self._sent = apart(self._theta[self._layout.parameters :], self._buffers)
        self._grads = [apart(self._outs[0], self._parameters)]
        self._unsent = Unsent(self._module, [*self._parameters, *self._buffers])
        with torch.no_grad():
            for p, view in zip(self._parameters, self._views, strict=True):
                p.data = view.copy_(p)

    @property
    def _on(self) -> Cluster | CodedAllReduce:
        return self._cluster if self._peers is None else self._peers.all_reduce

    def __repr__(self) -> str:
        return (
            f"<CodedDataParallel of a {type(self._module).__name__} with {self._code!r} on a "
            f"{type(self._on).__name__}: {self._batches.size} samples a step, step {self.step}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._on.__exit__(kind)

    def close(self) -> None:
        """End the workers. The module is unchanged; a second call does nothing.

        For "all-reduce": wait until all ranks have the last step's result.
        """
        self._on.close()

    def join(self) -> None:
        """For "all-reduce", after a `LeftOutError`: get the others' state, and take part again.

        Raises as `CodedAllReduce.join`; RuntimeError also for engines with a master.
        """
        if self._peers is None:
            raise RuntimeError('join() is only for engine="all-reduce", which has no master')
        self._peers.all_reduce.join()

    @property
    def step(self) -> int:
        """Number of steps done, including those of a run that this one resumes."""
        return self._batches.step if self._peers is None else self._peers.sampler.step

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch. An incomplete last batch is left out."""
        return self._batches.per_epoch

    def backward(self, same_batch: bool = False) -> Result:
        """Add the next batch's gradient to every parameter's ``.grad``, as a backward pass does.

        Parameters that the loss does not depend on keep their ``.grad``, for instance None. A
        ``.grad`` that was None becomes part of a vector that the next step overwrites, unless it is
        still in use.

        Parameters
        ----------
        same_batch : bool
            Take the last batch again, with the same random numbers, for optimizers that compare
            gradients at several points, such as `torch.optim.LBFGS` and SAM.

        Returns
        -------
        Result
            The batch's loss, other sums, and who took part.

        Raises
        ------
        RuntimeError
            If ``requires_grad`` of a parameter, the module's mode, a frozen parameter or a buffer
            has changed since the start, or a parameter was replaced or has a hook.
        ValueError
            If `same_batch` is True and no batch was taken before.
        WorkerFailedError, NotDecodableError, NonFiniteMessageError, TimeoutError
            As ``fastgc.engines.LocalCluster.step`` does. The workers have ended in that case.
        NotDecodableError, LeftOutError, FinishedError
            For "all-reduce", as `CodedAllReduce` does.
        """
        if self._peers is not None:
            if same_batch:
                raise ValueError('same_batch=True is for engines with a master, not "all-reduce"')
            (total, *sums), report = self._peers.backward()
            return Result(total, tuple(sums), report)
        self._check_unchanged()
        if not same_batch:
            self._last = self._batches.step, self._batches.take()
        elif self._last is None:
            raise ValueError("same_batch=True, and no batch was taken before")
        with plainly():
            return self._backward(*self._last)

    def _backward(self, step: int, indices: Ints) -> Result:
        with torch.no_grad():
            for p, view in zip(self._parameters, self._views, strict=True):
                if p.data_ptr() != view.data_ptr():  # another tensor was put in its place
                    p.data = view.copy_(p)
            for buffer, sent in zip(self._buffers, self._sent, strict=True):
                sent.copy_(buffer)
        at = int(any(p.grad is not None for p in self._parameters))
        if at == len(self._outs):
            self._outs.append(np.empty_like(self._outs[0]))
            self._grads.append(apart(self._outs[1], self._parameters))
        out = self._outs[at]
        self._layout.put(self._theta, step, indices)
        try:
            report = self._cluster.step(self._theta, out)
        except CorruptMessageError as error:
            raise CorruptMessageError(
                f"workers computed different gradients of the same samples ({error}): a machine "
                "errs, or the loss depends on something other than parameters, samples and random "
                "numbers of torch, NumPy or random",
                error.suspects,
            ) from error
        tail = self._layout.numbers_of(out)
        with torch.no_grad():
            self._give(tail[1 + self._layout.sums :], self._grads[at])
        sums = tail[1 : 1 + self._layout.sums]
        return Result(float(tail[0]), tuple(sums.tolist()), report)

    def _give(self, tail: np.ndarray[Any, Any], grads: list[torch.Tensor]) -> None:
        """Put the decoded gradients into ``.grad``, or add them; add the changes to the buffers."""
        layout, added = self._layout, grads is not self._grads[0]
        # The number of partitions that used each parameter. If losses are weighted, a message has
        # one flag for all its partitions, and the number is exact only if all used the parameter.
        count = tail[: layout.tensors]
        used = count > 0.5
        if self._weighted:  # otherwise the number is exact, and zeros of a gradient are not
            for t in np.flatnonzero(np.abs(count - self._code.k) > 0.5).tolist():
                used[t] = used[t] or bool(grads[t].any())
        for p, grad, there in zip(self._parameters, grads, used.tolist(), strict=True):
            if there and p.grad is not None:
                p.grad.add_(grad)
            elif there:
                p.grad = grad.clone() if added else grad
        if self._buffers:
            changes = apart(tail[layout.tensors :], self._buffers)
            for buffer, change in zip(self._buffers, changes, strict=True):
                buffer.add_(
                    change if buffer.is_floating_point() else change.round().to(buffer.dtype)
                )

    def _check_unchanged(self) -> None:
        if [p.requires_grad for p in self._module.parameters()] != self._requires:
            raise RuntimeError(
                "requires_grad of a parameter has changed, which workers do not know of: freeze "
                "parameters before, or make a new CodedDataParallel"
            )
        if [m.training for m in self._module.modules()] != self._modes:
            raise RuntimeError(
                "the module's mode has changed, and workers compute in the one that it had at the "
                "start: call module.train() (or eval()) before backward()"
            )
        self._unsent.check()
        hooks = ("_backward_hooks", "_post_accumulate_grad_hooks")
        if any(getattr(p, each, None) for p in self._parameters for each in hooks):
            raise RuntimeError(
                "a parameter has a hook (register_hook), which is never called, as workers compute "
                "its gradient: change .grad after backward() instead"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the order of batches, to save with module and optimizer."""
        return {"batches": (self._peers.sampler if self._peers else self._batches).state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at the position that `state_dict` returned.

        Raises
        ------
        ValueError
            If the state belongs to another dataset, batch size or seed.
        RuntimeError
            With "all-reduce", where ranks have already begun.
        """
        if self._peers is not None:
            raise RuntimeError(
                'with engine="all-reduce" ranks have already begun, and a restarted one has the '
                "others' state: load states before you make this object, and give first_step=, "
                "the `step` of that run"
            )
        self._batches.load_state_dict(state["batches"])

    # ------------------------------------------------------------------------ trials at the start

    def _try(self, buffers: str) -> tuple[list[str], int]:
        """Try the loss on a few samples; return the buffers it changes, and its number of sums."""
        module, some = self._module, range(min(_SAMPLES, self._batches.size))
        before = {name: (b, b.clone(), b._version) for name, b in module.named_buffers()}
        written = [p._version for p in self._parameters]
        with restored(self._device), plainly(device=self._device.type):
            with unchanged_buffers(module):
                sums, grads = self._gradients(some)
                # Some kernels, such as BatchNorm's, write without counting a version.
                changed = [
                    name
                    for name, (now, old, version) in before.items()
                    if now._version != version or not torch.equal(now, old)
                ]
            if [p._version for p in self._parameters] != written:
                raise RuntimeError(
                    "forward changes parameters of the module, which workers only read: do that "
                    "after optimizer.step()"
                )
            if changed and buffers == "error":
                raise RuntimeError(CHANGES)
            with unchanged_buffers(module):
                _, again = self._gradients(some)
            if not all(_alike(a, b) for a, b in zip(grads, again, strict=True)):
                raise RuntimeError(
                    "two computations of the same gradient differ, so workers' gradients would "
                    "differ, too: the loss depends on something other than parameters, samples and "
                    "random numbers of torch, NumPy or random"
                )
            with unchanged_buffers(module):
                self._check_sum(some)
        return changed, len(sums)

    def _gradients(self, some: range) -> tuple[list[float], list[torch.Tensor | None]]:
        seed_all(0)
        loss, sums = self._losses(some)
        if not loss.requires_grad:
            raise TypeError("the loss does not depend on a parameter that requires a gradient")
        with without_gradients(self._parameters):
            # torch.autograd.grad does not work with reentrant checkpoints.
            loss.backward()  # type: ignore[no-untyped-call]
            return sums, [p.grad for p in self._parameters]

    def _losses(self, some: range) -> tuple[torch.Tensor, list[float]]:
        return losses(self._loss, self._module, moved(self._feed(some), self._device))

    @torch.no_grad()
    def _check_sum(self, some: range) -> None:
        """Raise unless the loss of some samples is the sum of their halves' losses."""
        if len(some) < 2:
            return
        modes = [(m, m.training) for m in self._module.modules()]
        half = len(some) // 2
        try:
            self._module.eval()  # no dropout, and BatchNorm does not mix samples
            found = []
            for parts in ([some], [some[:half], some[half:]]):
                seed_all(0)
                found.append(sum(float(self._losses(i)[0]) for i in parts))
        except Exception:  # some modules compute something else in this mode
            return
        finally:
            for m, mode in modes:
                m.training = mode
        whole, parts_ = found
        if not np.isfinite(found).all() or abs(whole - parts_) <= _SAME * max(map(abs, found)):
            return
        if abs(2 * whole - parts_) <= _SAME * abs(parts_):
            raise RuntimeError(
                "loss returns the mean over the batch's samples, and must return their sum "
                '(reduction="sum"); gradients are divided by batch_size here'
            )
        raise RuntimeError(
            f"loss must return the sum over the batch's samples: for {len(some)} samples it is "
            f"{whole:.6g}, but for the first {half} plus for the others it is {parts_:.6g}"
        )


def _check_options(engine: Any, options: _Keywords, device: Any) -> bool:
    """Return whether there is no master; raise TypeError for options of other engines."""
    peers = list(_PeerKeywords.__annotations__)
    if engine == "all-reduce":
        check_names(options, ["seed", *peers], 'engine="all-reduce"')
        if device is not None:
            raise TypeError(
                'engine="all-reduce" computes where the module is: module.to(device), not device='
            )
        return True
    for name in peers:
        if name in options:
            raise TypeError(f'{name}= is for engine="all-reduce", not {engine!r}')
    if "batch" in options:
        raise TypeError("batches are cut from the dataset: give batch_size, not batch")
    return False


def _parts(code: Code, message_dtype: Any) -> int:
    """Return the number of parts in which losses are sent, to be as precise as in float32."""
    rounded = message_dtype is not None and is_half(check_dtype(message_dtype, True))
    return _PARTS if rounded else 1


def _warn_of_complex(code: Code) -> None:
    load = int(code.scheme.loads.max())
    if load > 1 and np.iscomplexobj(code.coefficients(0)):
        warnings.warn(
            f"{type(code).__name__} has complex coefficients: a worker makes {load} backward "
            "passes a step, where with real ones (BinaryCode) it makes one",
            stacklevel=3,
        )


def _alike(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    a, b = (g.to_dense() if g.is_sparse else g for g in (a, b))
    return not a.numel() or bool((a - b).abs().max() <= _SAME * a.abs().max())


class _Peers:
    """Training steps without a master: all ranks train the same module, by a loss of samples.

    Each rank computes its partitions of each batch, and they sum their gradients. `coded` has the
    module and the samples, `ahead` is the number of processes that fetch samples, and of batches
    that they fetch ahead. With `one_by_one`, each partition goes through the module by itself,
    unless redundancy is reactive.
    """

    def __init__(
        self,
        coded: CodedDataParallel,
        dataset: Any,
        order: Iterable[int] | None,
        ahead: int,
        one_by_one: bool,
        options: dict[str, Any],
    ) -> None:
        self._module, self._loss, self._feed = coded._module, coded._loss, coded._feed
        self._parameters, self._device = coded._parameters, coded._device
        self._scale, self._seed = coded._scale, options.pop("seed")
        code, size = coded._code, coded._batches.size
        self._n, self._k = code.n, code.k
        self._reactive = options.get("redundancy") == "reactive"
        # Then no other rank computes this rank's partitions, so none must draw alike.
        self._one_by_one = one_by_one and not self._reactive
        rank = place_of(options.get("group"), options.get("rank"))[0]
        self.sampler = CodedSampler(
            dataset, code, size, rank, seed=self._seed, order=order, _ahead=ahead
        )
        # Fork these processes before the group's sockets and threads exist.
        self._loader = Loader(self._feed, self._seed, ahead) if ahead else None
        self._earlier = _Earlier(self._parameters)
        options["state"] = [*options.get("state", ()), self._earlier]
        self.sampler.step = options.pop("first_step", 0)
        if self._reactive:
            options["recompute"] = self._recompute
        self.all_reduce = CodedAllReduce(self._module, code, sampler=self.sampler, **options)

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

    def _compute(self, rows: Ints) -> list[float]:
        """Put the gradient of this rank's partitions into ``.grad``; return their loss and sums."""
        step, jobs = self.sampler.step - 1, self.sampler.own
        with plainly(device=self._device.type), restored(self._device):
            if self._loader is not None:
                self._loader.begin(step)
                for at, batch in enumerate(rows, step):
                    if batch[0] >= 0:
                        for partitions in passes(jobs, self._one_by_one):
                            indices = self.sampler.of(batch, partitions)
                            self._loader.ask(at, self._drawn_for(partitions, indices), indices)
            while (sums := self._by_passes(step, rows[0], jobs)) is None:
                for p in self._parameters:  # from now on, partition by partition
                    p.grad = None
        return sums

    def _by_passes(
        self, step: int, batch: Ints, jobs: list[tuple[int, float]]
    ) -> list[float] | None:
        """Compute all passes; None if a pass of several partitions drew random numbers.

        Other ranks compute these partitions in other groups, and would draw other numbers. Nothing
        was added to gradients in that case.
        """
        weights, total = dict(jobs), None
        for partitions in passes(jobs, self._one_by_one):
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

    def _drawn_for(self, partitions: list[int], indices: Ints) -> int:
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
