"""Training several models in turn on the same workers, by a scheme that codes across rounds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._base.arrays import Array, at_least, check_real
from ..delays.interface import described
from ..engines import Cluster, find_engine
from ..engines.worker import asked_of
from ..training import data as datasets
from ..training.history import History, Record
from ..training.models import Model, prepared
from ..training.optimizers import GCADA, Optimizer
from ..training.train import (
    check_batch,
    check_callback,
    check_data,
    check_methods,
    default_optimizer,
    evaluated,
    measure_of,
    start_of,
    take_step,
)
from .cluster import Done, SequentialCluster
from .scheme import SequentialScheme, check_scheme


def train_models(
    scheme: SequentialScheme,
    data: datasets.Dataset | str | os.PathLike[str] = "digits",
    *,
    models: Sequence[Model],
    optimizers: Sequence[Optimizer] | None = None,
    steps: int = 150,
    batch: int | None = None,
    evaluate_every: int = 1,
    callback: Callable[[int, Record], object] | None = None,
    mu: float = 1.0,
    engine: str | Callable[..., Cluster] = "local",
    seed: int = 0,
    **keywords: Any,
) -> list[History]:
    """Train several models in turn; each step is a job of a scheme that codes across rounds.

    Every round begins a step of the next model. So there must be at least as many models as a job
    may take rounds, including its first.

    Parameters
    ----------
    scheme : SequentialScheme
        The scheme. This function starts its workers, and ends them.
    data : Dataset, "digits" or path
        As in `fastgc.train`; the same for all models.
    models : sequence of Model
        At least ``scheme.delay + 1`` models, of any sizes.
    optimizers : sequence of Optimizer, optional
        One for each model. They get gradients of the mean loss. Default: as in `fastgc.train`.
    steps : int
        Gradient steps of each model.
    batch : int, optional
        Samples of each partition in a gradient, drawn anew for each model's step. Default: all.
    evaluate_every : int
        Steps of a model between computations of its loss and test error. They are also computed
        after the last step.
    callback : callable, optional
        Called with the number of a model, from 0, and each of its records.
    mu : float
        As in `SequentialCluster`.
    engine : str or callable
        As in `fastgc.train`. In an MPI or torchrun job, all ranks call this function, and all but
        rank 0 get histories without rounds.
    seed : int
        Seed of delays, the data's split, mini-batches and the models' initial parameters.
    **keywords
        ``delays``, ``timeout`` and ``patience``, as in `fastgc.engines.RoundOptions`.

    Returns
    -------
    list of History
        One for each model, named by its type and number. In a `Record`, `time` counts the seconds
        of all models together. `wait` is the time that the master waited in all rounds of the step,
        and `decode` is the rest of the last of these rounds. `received` and `arrivals` are empty.

    Raises
    ------
    TypeError, ValueError
        If an argument does not fit, for instance if there are fewer models than the scheme needs.
    NotDecodableError, NonFiniteMessageError, WorkerFailedError, TimeoutError
        As `SequentialCluster.step` does. No process is left behind.

    Examples
    --------
    >>> from fastgc.training.models import SoftmaxRegression
    >>> from fastgc.sequential import MSGC, train_models
    >>> scheme = MSGC(6, burst=1, window=2, stragglers=1)
    >>> models = [SoftmaxRegression(64, 10, l2=l2) for l2 in (0.0, 0.01)]
    >>> runs = train_models(scheme, models=models, steps=3, engine="simulated")
    >>> [len(run.rounds) for run in runs]
    [3, 3]
    """
    check_scheme(scheme)
    steps = at_least("steps", steps, 1)
    evaluate_every, seed = at_least("evaluate_every", evaluate_every, 1), at_least("seed", seed, 0)
    mu, models = check_real("mu", mu), _checked_models(models, scheme)
    if optimizers is not None:
        optimizers = _checked_optimizers(optimizers, len(models))
    names = [f"{type(model).__name__} {number}" for number, model in enumerate(models)]
    check_callback(callback)
    check_data(data)
    delays = keywords.get("delays")
    serve = getattr(find_engine(engine), "serve", None)
    about = (repr(scheme), getattr(data, "name", str(data)), described(delays), seed)
    if serve is not None and serve():
        return [History(name, *about) for name in names]
    dataset = data if isinstance(data, datasets.Dataset) else datasets.load(data, seed=seed)
    X = dataset.X_train
    batch = None if batch is None else check_batch(batch, len(X), scheme.k)
    histories = [
        History(name, repr(scheme), dataset.name, *about[2:], measure=measure_of(model, dataset))
        for name, model in zip(names, models, strict=True)
    ]
    run = _Run(scheme, models, optimizers, dataset, histories, steps, evaluate_every, batch, seed)
    gradient, shards = _in_turn(models, X, dataset.y_train, scheme.k, batch, seed)
    cluster = SequentialCluster(
        scheme,
        shards,
        gradient,
        gradient.size,
        X.dtype,
        engine=engine,
        mu=mu,
        seed=seed,
        **keywords,
    )
    with cluster:
        while not run.over:
            for number, record in run.round(cluster):
                if callback is not None:
                    callback(number, record)
    return run.histories


def _checked_models(given: Sequence[Any], scheme: SequentialScheme) -> list[Any]:
    """Raise unless there are enough models for the scheme, and each has the methods called."""
    models = _several("models", given)
    if len(models) <= scheme.delay:
        raise ValueError(
            f"{scheme!r} needs {scheme.delay + 1} models in turn at least, for a job may take "
            f"{scheme.delay} rounds beside its first, not {len(models)}: give more, or take a "
            "scheme of a smaller delay"
        )
    for model in models:
        check_methods("a model", model, "partial_gradient", "loss", "error")
    return models


def _checked_optimizers(given: Sequence[Any], count: int) -> list[Any]:
    """Raise unless each model has its own optimizer."""
    optimizers = _several("optimizers", given, count)
    if len(set(map(id, optimizers))) < len(optimizers):
        raise ValueError("optimizers must be an object for each model: one is there twice")
    for each in optimizers:
        check_methods("an optimizer", each, "step", "reset")
        if isinstance(each, GCADA):
            raise TypeError(
                f"{each!r} selects who computes in a round, and here the scheme does: take "
                "another optimizer"
            )
    return optimizers


def _several(what: str, given: Sequence[Any], count: int | None = None) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise TypeError(f"{what} must be a sequence, one for each model, not {given!r}")
    if count is not None and len(given) != count:
        raise ValueError(f"{what} must be one for each of {count} models, not {len(given)}")
    return list(given)


class _InTurn:
    """The partial gradient of all models: job j is of model j modulo their number.

    Parameters and gradients of smaller models are padded with zeros.
    """

    def __init__(
        self, models: Sequence[Model], data: Sequence[int], batches: datasets.MiniBatches | None
    ) -> None:
        self._models, self._data, self._batches = models, data, batches
        self._sizes = [model.size for model in models]
        self.size = max(self._sizes)
        self._asked = [asked_of(model.partial_gradient) for model in models]

    def __call__(
        self, theta: Array, shard: Sequence[Any], out: Array, *, partition: int, round: int
    ) -> None:
        turn = round % len(self._models)
        p, part = self._sizes[turn], shard[self._data[turn]]
        if self._batches is not None:
            part = self._batches(part, partition, round)
        told = {"partition": partition, "round": round}
        told = {name: told[name] for name in self._asked[turn]}
        self._models[turn].partial_gradient(theta[:p], part, out[:p], **told)
        out[p:] = 0


def _in_turn(
    models: Sequence[Model], X: Any, y: Any, k: int, batch: int | None, seed: int
) -> tuple[_InTurn, list[list[Any]]]:
    """Return the gradient of all models, and the shards.

    A shard lists a partition's data in the different forms that models prepare.
    """
    different: list[tuple[Any, Any]] = []
    of: list[int] = []  # for each model, the index of its data in `different`
    for model in models:
        whole = prepared(model, X, y)
        same = [at for at, other in enumerate(different) if all(map(_alike, whole, other))]
        if not same:
            different.append(whole)
        of.append(same[0] if same else len(different) - 1)
    cut = [datasets.partition(*whole, k) for whole in different]
    shards = [[parts[j] for parts in cut] for j in range(k)]
    batches = None if batch is None else datasets.MiniBatches(batch, seed)
    return _InTurn(models, of, batches), shards


def _alike(one: Any, other: Any) -> bool:
    """Whether two arrays are equal; for other objects, whether they are identical."""
    if one is other or not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other)


@dataclass
class _Spent:
    """What a current job has taken so far."""

    wait: float = 0.0
    survivors: list[int] = field(default_factory=list)
    messages: int = 0
    downloads: int = 0
    samples: int = 0


class _Run:
    """Models, their optimizers and histories, and the current jobs."""

    def __init__(
        self,
        scheme: SequentialScheme,
        models: Sequence[Any],
        optimizers: Sequence[Any] | None,
        dataset: datasets.Dataset,
        histories: list[History],
        steps: int,
        evaluate_every: int,
        batch: int | None,
        seed: int,
    ) -> None:
        X = dataset.X_train
        self._optimizers = optimizers or [default_optimizer(model, X) for model in models]
        for model, optimizer in zip(models, self._optimizers, strict=True):
            optimizer.reset(start_of(model, None, X.dtype, seed))
        parts = datasets.partition(dataset.X_train, dataset.y_train, scheme.k)
        sizes = [len(part) for part, _ in parts]
        self._models, self._dataset = models, dataset
        self.histories, self._evaluate_every, self._batch = histories, evaluate_every, batch
        self._scheme, self._steps, self._size = scheme, steps, max(model.size for model in models)
        self.jobs, self.done, self._elapsed = steps * len(models), 0, 0.0
        self._spent: dict[int, _Spent] = {}
        computed = np.full(scheme.k, batch) if batch is not None else np.array(sizes)
        # [part, worker]: samples that the worker computes for the part
        self._samples = np.array(
            [
                [
                    computed[scheme.partitions(part).start + code.partitions(worker)].sum()
                    for worker in range(scheme.n)
                ]
                for part, code in enumerate(scheme.parts)
            ]
        )

    @property
    def over(self) -> bool:
        """Whether all steps of all models are done."""
        return self.done == self.jobs

    def round(self, cluster: SequentialCluster) -> list[tuple[int, Record]]:
        """Run a round; return model and record of each step that it completes."""
        number = cluster.schedule.round
        theta = None
        if number < self.jobs:
            self._spent[number] = _Spent()
            point = self._optimizers[number % len(self._models)].point
            theta = np.zeros(self._size, dtype=point.dtype)
            theta[: point.size] = point
        began = cluster.clock()
        done = cluster.step(theta)
        waited = self._note(cluster, number)
        drawn = None if self._batch is None else self._batch * self._scheme.k
        for each in done:
            turn, N = each.job % len(self._models), len(self._dataset.X_train)
            model, optimizer = self._models[turn], self._optimizers[turn]
            take_step(model, optimizer, each.gradient[: model.size], N, drawn)
        ended = cluster.clock()
        self._elapsed += ended - began
        rest = max(ended - began - waited, 0.0)
        records = [self._record(each, rest, cluster) for each in done]
        self.done += len(done)
        return records

    def _note(self, cluster: SequentialCluster, number: int) -> float:
        """Record what a round took for the current jobs; return the seconds that it waited."""
        tasks, report = cluster.tasks, cluster.report
        assert tasks is not None
        asked = tasks.age >= 0
        if not asked.any() or report is None:  # a round without tasks, which the engine skips
            return 0.0
        for job, spent in self._spent.items():
            spent.wait += report.wait_seconds
            mine = tasks.age == number - job
            workers, slots = np.nonzero(mine)
            spent.samples += int(self._samples[tasks.part[workers, slots], workers].sum())
            spent.downloads += int(np.count_nonzero(mine.any(axis=1)))
            for worker in report.survivors.tolist():
                sent = int(np.count_nonzero(mine[worker]))
                spent.messages += sent
                if sent and worker not in spent.survivors:
                    spent.survivors.append(worker)
        return report.wait_seconds

    def _record(self, done: Done, rest: float, cluster: SequentialCluster) -> tuple[int, Record]:
        turn, step = done.job % len(self._models), done.job // len(self._models) + 1
        spent, report = self._spent.pop(done.job), cluster.report
        record = Record(
            step,
            self._elapsed,
            spent.wait,
            rest,
            tuple(spent.survivors),
            spent.messages,
            0,
            math.nan,
            math.nan,
            downloads=spent.downloads,
            uploads=spent.messages,
            samples=spent.samples,
            deaths=report.deaths if report is not None else 0,
            residual=done.residual,
            evaluated=False,
        )
        history = self.histories[turn]
        if step == self._steps or step % self._evaluate_every == 0:
            record = evaluated(record, self._models[turn], self._optimizers[turn], self._dataset)
        history.rounds.append(record)
        history.theta = self._optimizers[turn].theta.copy()
        return turn, record
