"""Gradients of a PyTorch module from the workers that answer first."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
import torch
from torch.utils.data import default_collate

from .._base.arrays import Ints, at_least, check_word
from ..codes import Code
from ..coding.code import check_code
from ..engines import Cluster, RoundReport, find_engine
from ..engines.interface import RoundKeywords
from ..errors import CorruptMessageError
from .batches import Batches, Feed, restored, seed_all
from .job import (
    CHANGES,
    SAME,
    SAMPLES,
    Job,
    Layout,
    Loss,
    check_sum,
    copied,
    losses,
    plainly,
    weights_losses,
)
from .parameters import Unsent, apart, fingerprint, trainable


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
        On the CPU, with all parameters float32 or all float64. Parameters frozen at the start stay
        frozen; tied ones are sent once. Workers compute in the module's current mode (``train()``,
        ``eval()``).
    loss : callable
        ``loss(module, batch)`` returns the **sum** of the losses of a batch's samples as a tensor,
        or a tuple of it and other sums (hits, tokens), which are decoded in the same way.
    dataset : map-style dataset
        ``len(dataset)`` and ``dataset[i]``. Workers take only their own samples from it.
    code : Code
        Which workers compute what: ``fastgc.BinaryCode(n, stragglers=s)``, say, whose workers have
        equal loads if s + 1 divides n. With real coefficients (binary, repetition and cyclic codes)
        a worker makes one pass per step over all its partitions; with complex ones, one for each.
    batch_size : int
        Samples of a step, over all workers.
    engine : str or callable
        Where workers run, as in `fastgc.train`. With MPI and torchrun ("torch") all ranks run the
        same program; the constructor returns only on rank 0, and the other ranks exit when rank 0's
        program ends.
    reduction : "mean" or "sum"
        Whether gradients, and ``Result.loss``, are divided by `batch_size`.
    sampler : iterable of int, optional
        The order of samples in an epoch. Default: a new permutation for each epoch.
    collate_fn : callable, optional
        Makes a batch of samples. Default: ``torch.utils.data.default_collate``.
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
        all its workers.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit. No worker has started in that case.
    RuntimeError
        If a loss is not the sum over samples, if forward changes buffers or parameters, or if two
        computations of the same gradient differ.

    Notes
    -----
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
        code: Code,
        batch_size: int,
        *,
        engine: str | Callable[..., Cluster] = "local",
        reduction: str = "mean",
        sampler: Iterable[int] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        device: Any = None,
        threads: int = 1,
        num_workers: int = 0,
        **options: Unpack[RoundKeywords],
    ) -> None:
        if "batch" in options:
            raise TypeError("batches are cut from the dataset: give batch_size, not batch")
        start: Any = find_engine(engine)
        # With such engines all processes run the same program: the others serve until it ends.
        if hasattr(start, "serve_all") and start.serve_all():
            raise SystemExit(0)
        self._module = module
        self._parameters = trainable(module)
        if not callable(loss):
            raise TypeError(f"loss must be callable, loss(module, batch), not {loss!r}")
        _check_code(code)
        _warn_of_complex(code)
        if any(p.device.type != "cpu" for p in self._parameters):
            raise TypeError(
                "the module must be on the CPU, where gradients arrive: module.cpu(); workers "
                'compute where device= says, "cuda:0", say'
            )
        check_word("reduction", reduction, "mean", "sum")
        seed = options.setdefault("seed", 0)
        ahead = at_least("num_workers", num_workers, 0)
        self._batches = Batches(dataset, batch_size, code.k, seed, sampler, ahead)
        self._scale = 1.0 / self._batches.size if reduction == "mean" else 1.0
        self._feed = Feed(dataset, default_collate if collate_fn is None else collate_fn)
        self._loss, self._code, self._weighted = loss, code, weights_losses(code)
        sums = self._try()
        self._layout = layout = Layout(
            sum(p.numel() for p in self._parameters),
            len(self._parameters),
            sums,
            self._batches.size,
            ahead,
        )
        dtype = self._parameters[0].detach().numpy().dtype
        self._theta = np.zeros(layout.theta_size, dtype)
        self._out = np.empty(layout.message_size, dtype)
        what = (module, loss, self._feed, layout, code.k, seed, self._scale)
        job, shards = Job(*what, device, threads), [None] * code.scheme.data.shards
        self._cluster: Cluster = start(code, shards, job, layout.message_size, dtype, **options)
        # Parameters are views of the vector that is sent; all else must not change.
        self._last: tuple[int, Ints] | None = None
        self._views = apart(self._theta, self._parameters)
        self._grads = apart(self._out, self._parameters)
        self._unsent = Unsent(self._module, self._parameters)
        with torch.no_grad():
            for p, view in zip(self._parameters, self._views, strict=True):
                p.data = view.copy_(p)

    def __repr__(self) -> str:
        return (
            f"<CodedDataParallel of a {type(self._module).__name__} with {self._code!r} on a "
            f"{type(self._cluster).__name__}: {self._batches.size} samples a step, "
            f"step {self.step}>"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._cluster.__exit__(kind)

    def close(self) -> None:
        """End the workers. The module is unchanged; a second call does nothing."""
        self._cluster.close()

    @property
    def step(self) -> int:
        """Number of steps done, including those of a run that this one resumes."""
        return self._batches.step

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
        """
        self._unsent.check()
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
        out, grads = self._out, self._grads
        if any(p.grad is not None for p in self._parameters):  # which may lie in that vector
            out = np.empty_like(out)
            grads = apart(out, self._parameters)
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
        tail = out[self._layout.parameters :].astype(np.float64)
        with torch.no_grad():
            self._give(tail[1 + self._layout.sums :], grads)
        sums = tail[1 : 1 + self._layout.sums]
        return Result(float(tail[0]), tuple(sums.tolist()), report)

    def _give(self, tail: np.ndarray[Any, Any], grads: list[torch.Tensor]) -> None:
        """Put the decoded gradients into ``.grad``, or add them."""
        layout = self._layout
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
                p.grad = grad

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the order of batches, to save with module and optimizer."""
        return {"batches": self._batches.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at the position that `state_dict` returned.

        Raises
        ------
        ValueError
            If the state belongs to another dataset, batch size or seed.
        """
        self._batches.load_state_dict(state["batches"])

    # ------------------------------------------------------------------------ trials at the start

    def _try(self) -> int:
        """Try the loss on a few samples; return its number of further sums."""
        with restored(torch.device("cpu")), plainly():
            # By a copy, as workers have it: nothing here is changed.
            module, loss = copied(self._module, self._loss)
            before = fingerprint(module.buffers())
            written = [p._version for p in trainable(module)]

            def compute(few: range) -> tuple[torch.Tensor, list[float]]:
                return losses(loss, module, self._feed(few))

            def gradients() -> tuple[int, list[torch.Tensor | None]]:
                seed_all(0)
                found, sums = compute(range(min(SAMPLES, self._batches.size)))
                if not found.requires_grad:
                    raise TypeError(
                        "the loss does not depend on a parameter that requires a gradient"
                    )
                module.zero_grad()
                # torch.autograd.grad does not work with reentrant checkpoints.
                found.backward()  # type: ignore[no-untyped-call]
                return len(sums), [p.grad for p in trainable(module)]

            sums, first = gradients()
            if [p._version for p in trainable(module)] != written:
                raise RuntimeError(
                    "forward changes parameters of the module, which workers only read: do that "
                    "after optimizer.step()"
                )
            # Some kernels, such as BatchNorm's, write without counting a version.
            if fingerprint(module.buffers()) != before:
                raise RuntimeError(CHANGES)
            if not all(map(_alike, first, gradients()[1])):
                raise RuntimeError(
                    "two computations of the same gradient differ, so workers' gradients would "
                    "differ, too: the loss depends on something other than parameters, samples and "
                    "random numbers of torch, NumPy or random"
                )
            check_sum(lambda *few: float(compute(range(*few))[0]), self._batches.size, [module])
        return sums


def _check_code(code: Any) -> None:
    """Raise TypeError or ValueError if this is no code, or none of gradients."""
    check_code(code)
    if code.scheme.data.coded:
        raise ValueError(
            f"{type(code).__name__} codes the data, for gradients that are polynomials, which "
            f"those of a module are not: take BinaryCode({code.n}, stragglers=...)"
        )


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
    return not a.numel() or bool((a - b).abs().max() <= SAME * a.abs().max())
