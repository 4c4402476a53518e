"""Training by gradient descent with gradients from coded workers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._base.arrays import Array, as_array, at_least, check_finite, store
from ..codes import Code, Grouped
from ..coding.code import check_code
from ..delays.interface import described
from ..engines import Cluster, RoundReport, find_engine
from ..engines.interface import RoundOptions, SharedKeywords, Survivors, check_names
from ..engines.worker import partial_gradient
from ..errors import CheckpointError, warn_caller
from . import data as datasets
from .checkpoint import Checkpoint, describe, digest
from .history import MISCLASSIFIED, History, Record, record_of
from .models import LeastSquares, LinearRegression, Model, SoftmaxRegression, prepared
from .optimizers import GCADA, Nesterov, Optimizer

if TYPE_CHECKING:
    from ..stability import StabilityTracker, TrackedRound

__all__ = ["train"]


class TrainingKeywords(SharedKeywords, total=False):
    """Options of `train` as keywords, for type checkers."""

    survivors: Survivors | History | Sequence[Record] | None


def train(
    code: Code,
    data: datasets.Dataset | str | os.PathLike[str] = "digits",
    *,
    model: Model | None = None,
    optimizer: Optimizer | None = None,
    rounds: int = 150,
    theta0: ArrayLike | None = None,
    evaluate_every: int = 1,
    name: str | None = None,
    progress: bool = False,
    callback: Callable[[Record], object] | None = None,
    batch: int | None = None,
    until: float | None = None,
    engine: str | Callable[..., Cluster] = "local",
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 10,
    options: RoundOptions | None = None,
    **keywords: Unpack[TrainingKeywords],
) -> History:
    """Train a model on workers that straggle, with coded gradients.

    Parameters
    ----------
    code : Code
        The gradient code. This starts ``code.n`` workers, and ends them again.
    data : Dataset, "digits" or path
        A `Dataset`, or an argument of `fastgc.data.load`. Whole numbers in a file are classes; if
        they are numbers to predict, give ``fastgc.data.load(path, task="regression")``.
    model : Model, optional
        Default: softmax regression for classes, or least squares for codes that need it
        (`LagrangeCode`); linear regression for real-valued targets. Your own model is any object
        with the methods of `fastgc.models.Model`.
    optimizer : Optimizer, optional
        It gets gradients of the mean loss. Default: Nesterov's method with the model's own learning
        rate. With `CADA` or `GCADA`, only the workers that it selects compute; the code must then
        be a `Grouped` one with the same groups.
    rounds : int
        Gradient steps.
    theta0 : array of real numbers, shape (p,), optional
        Initial parameters, in the data's dtype; they are copied. Default: the model's
        ``initial(numpy.random.default_rng(seed))``, or zero if it has no such method, with a
        warning if most of the gradient vanishes at zero.
    evaluate_every : int
        Compute loss and test error in every `evaluate_every`-th round, and after the last. This
        takes a pass over all the data in this process. Other rounds have NaN.
    name : str, optional
        Name of the run.
    progress : bool
        Show a progress bar (needs ``gradient-coding[cli]``).
    callback : callable, optional
        Called with each `Record`, evaluated or not. It may set the optimizer's ``lr`` for the
        following rounds; a checkpoint keeps the rate.
    batch : int, optional
        Samples of each partition that a gradient uses, drawn in each round
        (`fastgc.data.MiniBatches`), with equal weights. Default: all.
    until : float, optional
        Training loss at which to end the run before `rounds` are over. Only evaluated rounds
        notice it.
    engine : "local", "mpi", "ray", "simulated", "torch" or callable
        "local": processes on this machine. "mpi": the ranks of an MPI job
        (`fastgc.engines.mpi.MPICluster`); all of them call this function, and all but rank 0 get a
        history without rounds. "ray": Ray actors (`fastgc.engines.ray.RayCluster`). "torch": the
        ranks of ``torchrun`` (`fastgc.engines.torch.TorchCluster`), as with MPI. "simulated":
        `fastgc.engines.SimulatedCluster`, in simulated time. A callable makes a
        `fastgc.engines.Cluster`; it gets the arguments of `fastgc.engines.master.Master`, and those
        options that differ from their defaults.
    checkpoint : path, optional
        A folder to save the run in. If it holds a checkpoint of the same run, training resumes from
        there, exactly to the last bit. The history then has all rounds, and `callback` gets the new
        ones. You may resume with more `rounds`, on another engine, and with other `survivors`,
        `patience`, `partial`, `timeout`, `until` and `evaluate_every`.
    every : int
        Rounds between checkpoints; another one is saved after the last round.
    options : RoundOptions, optional
        How to run rounds. Set `batch` and the first round by other arguments here.
    **keywords
        Single options of `fastgc.engines.RoundOptions`, which override those of `options`:
        ``delays``, ``seed``, ``timeout``, ``message_dtype``, ``tracker``, ``patience``,
        ``partial``, ``verify`` and ``limit``. ``survivors`` may also be an earlier run, a `History`
        or its records: each gradient is then decoded from the messages that it used, in that
        order, so that parameters are the same to the last bit.

        The seed also determines the data's split, mini-batches and the model's initial parameters.
        If a tracker measures errors, this process computes all partial gradients again, in time
        that is not counted. Adaptive methods take no tracker, and no `partial` other than "raise".

    Returns
    -------
    History

    Raises
    ------
    ValueError
        If arguments do not fit each other: coded data with a model whose gradient is not quadratic
        in the data, classes with a model of targets or the reverse, an adaptive method with a code
        that lacks its groups, mini-batches larger than a partition, more rounds than an earlier run
        that `survivors` repeats, or initial parameters of another shape.
    TypeError
        If an argument has a wrong type. `checkpoint` requires an optimizer with methods ``state``
        and ``restore``.
    CheckpointError
        If the checkpoint in the folder is damaged, belongs to another run, or has more rounds than
        you ask for; or if another process uses the folder.
    NotDecodableError, UnstableRoundError, WorkerFailedError, TimeoutError
        As `fastgc.engines.local.LocalCluster.step` does. No process is left behind.
    OSError
        If a checkpoint cannot be written. The previous one remains.

    Notes
    -----
    This starts processes: in a script, call it under ``if __name__ == "__main__":``.
    """
    return Training(**locals()).run()  # its fields are the parameters


@dataclass(eq=False)
class Training:
    """A run of `train`, with its arguments as fields; `keywords` is a mapping.

    The constructor checks the arguments, and `prepare` checks them against the data. So you can
    check several runs before the first one starts. Raises as `train`.
    """

    code: Code
    data: datasets.Dataset | str | os.PathLike[str] = "digits"
    model: Model | None = None
    optimizer: Optimizer | None = None
    rounds: int = 150
    theta0: ArrayLike | None = None
    evaluate_every: int = 1
    name: str | None = None
    progress: bool = False
    callback: Callable[[Record], object] | None = None
    batch: int | None = None
    until: float | None = None
    engine: str | Callable[..., Cluster] = "local"
    checkpoint: str | os.PathLike[str] | None = None
    every: int = 10
    options: RoundOptions | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        code, optimizer = self.code, self.optimizer
        own = [each.name for each in fields(self)][2:-1]
        check_names(self.keywords, [*own, *TrainingKeywords.__annotations__], "train")
        self.rounds = at_least("rounds", self.rounds, 1)
        self.every = at_least("every", self.every, 1)
        check_code(code)
        self.evaluate_every = at_least("evaluate_every", self.evaluate_every, 1)
        check_methods("model", self.model, "partial_gradient", "loss", "error")
        check_methods("optimizer", optimizer, "step", "reset")
        if not isinstance(self.data, datasets.Dataset | str | os.PathLike):
            raise TypeError(
                "data must be a fastgc.data.Dataset(name, X_train, y_train, X_test, y_test), or "
                f"the path of a file, not {type(self.data).__name__}"
            )
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be callable, not {self.callback!r}")
        until: Any = self.until
        if not isinstance(until, Real | None):
            raise TypeError(f"until must be a training loss, not {until!r}")
        if until is not None and math.isnan(until):
            raise ValueError("until is NaN: no training loss is that low")
        self.how = _options(
            code, self.options, self.keywords, self.rounds if self.until is None else 1
        )
        if isinstance(optimizer, GCADA):
            _check_groups(code, optimizer, self.how)
        if self.checkpoint is not None and optimizer is not None:
            check_restorable(optimizer)
        if self.checkpoint is not None and self.how.tracker is not None:
            from ..stability import StabilityTracker

            if not isinstance(self.how.tracker, StabilityTracker):
                raise TypeError(
                    f"checkpoint can only save a StabilityTracker, not {self.how.tracker!r}"
                )
        self.start_cluster = find_engine(self.engine)
        # Set if all processes run the same program.
        self.serve: Callable[[], bool] | None = getattr(self.start_cluster, "serve", None)
        self.called = self.name or type(code).__name__
        self.tracker, self.seed = self.how.tracker, self.how.seed
        self.tracked: TrackedRound | None = None  # of the last round
        self.elapsed, self.deaths = 0.0, 0  # deaths: before this cluster started
        named = getattr(self.data, "name", str(self.data))
        about = described(self.how.delays), self.seed
        self.history = History(self.called, repr(code), named, *about)
        self._is_prepared = False

    def prepare(self) -> None:
        """Read the data, choose defaults, and check everything."""
        code, data = self.code, self.data
        self.dataset = (
            data if isinstance(data, datasets.Dataset) else datasets.load(data, seed=self.seed)
        )
        self.X, self.y = X, y = self.dataset.X_train, self.dataset.y_train
        self.learner = _default_model(code, self.dataset) if self.model is None else self.model
        self.measure = measure_of(self.learner, self.dataset)
        if code.scheme.data.coded and not getattr(self.learner, "quadratic", False):
            raise ValueError(
                f"{type(code).__name__} decodes only gradients that are quadratic in the data: "
                "train LeastSquares or LinearRegression with it, not "
                f"{type(self.learner).__name__}"
            )
        self.batches = None
        if self.batch is not None:
            if code.scheme.data.coded:
                raise ValueError(
                    f"{type(code).__name__} codes the data once, so there are no mini-batches: "
                    "leave out batch"
                )
            check_batch(self.batch, len(X), code.k)
            self.batches = datasets.MiniBatches(self.batch, self.seed)
        given = self.optimizer
        self.method: Any = default_optimizer(self.learner, X) if given is None else given
        self.start = start_of(self.learner, self.theta0, X.dtype, self.seed)
        self.form = code.scheme.format(self.learner.size, X.dtype, self.how.message_dtype)
        datasets.partition(X, y, code.k)  # raises if there are too few samples
        self._is_prepared = True

    def run(self) -> History:
        """Train, and end all processes that were started."""
        if self.serve is not None and self.serve():
            return self.history  # these processes need no data of their own: the master sends it
        if not self._is_prepared:
            self.prepare()
        code = self.code
        self.whole = prepared(self.learner, self.X, self.y)
        self.shards = code.encode_data(*self.whole)
        self.method.reset(self.start)
        self.gradient = np.empty(self.learner.size, dtype=self.X.dtype)
        self.history = replace(
            self.history,
            data=self.dataset.name,
            rounds=[],
            measure=self.measure,
            message_counts=tuple(code.scheme.messages.counts),
            load=float(np.mean(code.scheme.loads)) * code.n / code.k,
        )
        held = [len(shard[0]) if self.batch is None else self.batch for shard in self.shards]
        self.samples = [sum(held[j] for j in code.partitions(i)) for i in range(code.n)]
        self._train()
        self.history.theta = self.method.theta.copy()
        last = self.history.rounds[-1]
        if not last.evaluated:  # a resumed run that was to have more rounds
            self.history.rounds[-1] = evaluated(last, self.learner, self.method, self.dataset)
        return self.history

    def _train(self) -> None:
        """Train from the first round, or a checkpoint, to the last one."""
        rounds, until, history = self.rounds, self.until, self.history
        with ExitStack() as stack:
            kept = None if self.checkpoint is None else self._resumed(stack, self.checkpoint)
            done = len(history.rounds)
            over = until is not None and any(record.loss <= until for record in history.rounds)
            first = rounds + 1 if over else done + 1
            listeners: list[Callable[[Record], object]] = []
            if self.progress and first <= rounds:
                from .tables import training_bar

                bar = training_bar(self.called, rounds, self.code.n, done, self.measure)
                listeners.append(stack.enter_context(bar))
            if self.callback is not None:
                listeners.append(self.callback)
            if first > rounds and self.serve is None:
                return
            # A cluster is started even if no round is left: other processes wait for one.
            cluster = stack.enter_context(self._cluster(done))
            step = self._steps(cluster)
            if done:
                self.elapsed, self.deaths = history.rounds[-1].time, history.rounds[-1].deaths
            for number in range(first, rounds + 1):
                record = self._round(cluster, step, number)
                for listener in listeners:
                    listener(record)
                over = until is not None and record.loss <= until
                if kept is not None:
                    kept.add([asdict(record), self.tracked])
                    if over or number == rounds or number % self.every == 0:
                        kept.save(self.method.state())
                if over:
                    break

    def _cluster(self, first_round: int = 0) -> Cluster:
        how = replace(self.how, first_round=first_round, batch=self.batches)
        return self.start_cluster(
            self.code,
            self.shards,
            self.learner.partial_gradient,
            self.learner.size,
            dtype=self.X.dtype,
            **how.given(),
        )

    def _resumed(self, stack: ExitStack, folder: str | os.PathLike[str]) -> Checkpoint:
        """Return the folder of the run's checkpoints, and resume the run from what it holds."""
        what: dict[str, Any] = {
            "batch": self.batch,
            "messages": self.form.message_dtype,
            "tracked": self.tracker is not None,
        }
        if self.theta0 is not None:  # by default the model and the seed determine it
            what["start"] = f"digest {digest([self.start])}"
        how = self.how.delays, self.seed
        this = describe(self.code, self.learner, self.method, self.dataset, *how, **what)
        try:
            kept = stack.enter_context(Checkpoint(folder, this))
            self._restore(kept)
        except BaseException:
            if self.serve is not None:  # other processes wait for a cluster to start and to end
                self._cluster().close()
            raise
        return kept

    def _restore(self, kept: Checkpoint) -> None:
        """Go on from a checkpoint, or save the first one, which raises early if anything fails."""
        if kept.state is None:
            kept.save(self.method.state())
            return
        if kept.round > self.rounds:
            raise CheckpointError(
                f"the checkpoint in {self.checkpoint} already has {kept.round} rounds: ask for at "
                f"least as many, not for {self.rounds}, or name another folder"
            )
        try:
            records = [record_of(row) for row, _ in kept.lines]
            if [record.round for record in records] != list(range(1, kept.round + 1)):
                raise ValueError
            tracked = [row for _, row in kept.lines if row is not None]
            if self.tracker is not None:
                from ..stability import TrackedRound

                tracked = [TrackedRound(*row) for row in tracked]
                if not all(isinstance(number, int | float) for row in tracked for number in row):
                    raise TypeError
        except (TypeError, ValueError):
            raise CheckpointError(
                f"the checkpoint in {self.checkpoint} does not hold rounds of training"
            ) from None
        try:
            self.method.restore(kept.state)
            theta, start = self.method.theta, self.start
            if (theta.dtype, theta.shape) != (start.dtype, start.shape):
                raise ValueError(f"its theta is of {theta.dtype}, and of shape {theta.shape}")
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint in {self.checkpoint} does not hold a state of "
                f"{type(self.method).__name__}: {error}"
            ) from None
        self.history.rounds.extend(records)
        if self.tracker is not None:
            self.tracker.rounds[:] = tracked
        kept.state, kept.lines = None, []  # free memory: these may be large

    def _steps(self, cluster: Cluster) -> Callable[[], tuple[RoundReport, Sequence[int]]]:
        """Return a function that writes a gradient, and returns its report and who was asked."""
        code, method, form, gradient = self.code, self.method, self.form, self.gradient
        if not isinstance(method, GCADA):
            return lambda: (cluster.step(method.point, out=gradient), range(code.n))
        assert isinstance(code, Grouped)
        rnd = code.group_round(
            gradient.size,
            form.gradient_dtype,
            form.message_dtype,
            verify=self.how.verify,
            limit=self.how.limit,
            partial_dtype=form.partial_dtype,
        )
        same = form.gradient_dtype == gradient.dtype
        decoded = gradient if same else np.empty(gradient.size, form.gradient_dtype)

        def step() -> tuple[RoundReport, list[int]]:
            """Let the selected groups compute; write the sum of all groups' newest gradients."""
            rnd.reset(method.selected)
            report = cluster.collect(method.point, rnd, rnd.workers)
            start = cluster.clock()
            for group in rnd.groups:
                part = rnd.gradient(group, out=decoded)
                method.receive(group, part.astype(gradient.dtype, copy=False))
            method.gradient(out=gradient)
            spent = cluster.clock() - start
            left = math.nan if code.scheme.exact else rnd.residual()
            return report._replace(decode_seconds=spent, residual=left), rnd.workers

        return step

    def _round(
        self, cluster: Cluster, step: Callable[[], tuple[RoundReport, Sequence[int]]], number: int
    ) -> Record:
        """Do a round, and add it to the history."""
        tracker = self.tracker
        began = cluster.clock()
        known = 0 if tracker is None else len(tracker.rounds)
        report, workers = step()
        self.tracked = None
        # A round that made do with too few messages is not tracked.
        if tracker is not None and len(tracker.rounds) > known:
            self.tracked = tracker.rounds[-1]
        if tracker is not None and self.tracked is not None and tracker.due:
            paused = cluster.clock()
            self._measure(tracker, report.round)
            began += cluster.clock() - paused
        drawn = None if self.batch is None else self.batch * self.code.k
        take_step(self.learner, self.method, self.gradient, len(self.X), drawn)
        self.elapsed += cluster.clock() - began
        if number == 1 and self.theta0 is None and not hasattr(self.learner, "initial"):
            _warn_of_saddle(self.learner, self.gradient, self.shards[0], self.seed)
        record = self._record(number, report, workers)
        if number == self.rounds or number % self.evaluate_every == 0:
            record = evaluated(record, self.learner, self.method, self.dataset)
        self.history.rounds.append(record)
        return record

    def _measure(self, tracker: StabilityTracker, round: int) -> None:
        """Measure the gradient's error from all partial gradients, computed in this process."""
        point, k = self.method.point, self.code.k
        partials = np.empty((k, point.size), dtype=point.dtype)
        for j, shard in enumerate(datasets.partition(*self.whole, k)):
            part = shard if self.batches is None else self.batches(shard, j, round)
            gradient = self.learner.partial_gradient
            partial_gradient(gradient, point, part, partials[j], partition=j, round=round)
        tracker.measure(self.gradient, partials)
        self.tracked = tracker.rounds[-1]

    def _record(self, number: int, report: RoundReport, asked: Sequence[int]) -> Record:
        """Return the record of a round before evaluation; `asked` are the workers it asked."""
        return Record(
            number,
            self.elapsed,
            report.wait_seconds,
            report.decode_seconds,
            tuple(report.survivors.tolist()),
            report.messages,
            report.stale,
            loss=math.nan,
            test_error=math.nan,
            rounding=math.nan if self.tracked is None else self.tracked.predicted,
            received=tuple(report.received.tolist()),
            arrivals=tuple(report.arrivals.tolist()),
            downloads=len(asked),
            uploads=report.received.size,
            samples=sum(self.samples[worker] for worker in asked),
            deaths=self.deaths + report.deaths,
            residual=report.residual,
            corrupt=report.corrupt,
            verified=report.verified,
            evaluated=False,
            selected=() if len(asked) == self.code.n else tuple(asked),
            asks=report.asks,
            stood_in=report.stood_in,
            resolution=report.resolution,
        )


def _default_model(code: Code, dataset: datasets.Dataset) -> Model:
    if dataset.task == "regression":
        return LinearRegression(dataset.features, dataset.outputs)
    if code.scheme.data.coded:
        return LeastSquares(dataset.features, dataset.classes)
    return SoftmaxRegression(dataset.features, dataset.classes)


def default_optimizer(model: Model, X: Array) -> Optimizer:
    learning_rate = getattr(model, "learning_rate", None)
    if learning_rate is None:
        raise ValueError(
            f"{type(model).__name__} does not say its learning rate: give optimizer=, such as "
            "fastgc.optimizers.AMSGrad(0.01)"
        )
    return Nesterov(lr=learning_rate(X))


def start_of(
    model: Model, theta0: ArrayLike | None, dtype: np.dtype[Any], seed: int
) -> NDArray[np.floating[Any]]:
    """Return the initial parameters, as an array of this dtype."""
    size = at_least(f"size of {type(model).__name__}", getattr(model, "size", None), 1)
    initial, what = getattr(model, "initial", None), "theta0"
    if theta0 is None:
        if initial is None:
            return np.zeros(size, dtype)
        what = f"what initial of {type(model).__name__} gives"
        theta0 = initial(np.random.default_rng(seed))
    given = as_array(what, theta0)
    if given.dtype.kind not in "iuf":
        raise TypeError(f"{what} must be real numbers, not {given.dtype}")
    if given.shape != (size,):
        raise ValueError(
            f"{what} must have shape ({size},), as the parameters of {model!r}, not {given.shape}"
        )
    start = np.empty(size, dtype)
    store(given, start)
    check_finite(what, start)
    return start


def _warn_of_saddle(model: Model, gradient: Array, shard: Any, seed: int) -> None:
    """Warn if, as with networks, most of theta cannot leave 0, where training starts."""
    idle = gradient == 0
    if 2 * np.count_nonzero(idle) <= gradient.size:
        return
    # With sparse data these elements are zero everywhere, not only at theta = 0.
    nearby = np.random.default_rng(seed).normal(0, 0.1, gradient.size).astype(gradient.dtype)
    partial = np.empty_like(gradient)
    partial_gradient(model.partial_gradient, nearby, shard, partial, partition=0, round=0)
    stuck = np.count_nonzero(idle & (partial != 0))
    if 2 * stuck > gradient.size:
        warn_caller(
            f"training starts at zero, where {stuck} of {gradient.size} elements of the gradient "
            f"are zero, and near it they are not: give theta0=, or {type(model).__name__} a "
            "method initial(rng), for networks cannot start there",
            UserWarning,
        )


def take_step(
    model: Model, optimizer: Optimizer, gradient: Array, samples: int, drawn: int | None
) -> None:
    """Turn a gradient into that of the mean loss, in place, and let the optimizer step.

    It is the sum over all samples, or over those `drawn` for mini-batches.
    """
    if drawn is not None:
        gradient *= samples / drawn
    add_regularisation = getattr(model, "add_regularisation", None)
    if add_regularisation is not None:
        add_regularisation(optimizer.point, gradient)
    gradient /= samples
    optimizer.step(gradient)


def evaluated(
    record: Record, model: Model, optimizer: Optimizer, dataset: datasets.Dataset
) -> Record:
    """Return a record with the loss and test error of the optimizer's iterate."""
    theta = optimizer.theta
    loss = model.loss(theta, dataset.X_train, dataset.y_train)
    test_error = model.error(theta, dataset.X_test, dataset.y_test)
    return replace(record, loss=loss, test_error=test_error, evaluated=True)


def measure_of(model: Model, dataset: datasets.Dataset) -> str:
    """Return the name of the model's error; raise ValueError if the data do not fit the model."""
    measure: str = getattr(model, "measure", MISCLASSIFIED)
    if not isinstance(measure, str):
        raise TypeError(f"measure of {type(model).__name__} must be a name, not {measure!r}")
    if isinstance(model, LinearRegression) and dataset.task == "classification":
        raise ValueError(
            f"{dataset.name} has classes and {type(model).__name__} needs targets: "
            'load(…, task="regression") keeps numbers as they are'
        )
    if isinstance(model, LeastSquares | SoftmaxRegression) and dataset.task == "regression":
        raise ValueError(
            f"{dataset.name} has real-valued targets and {type(model).__name__} needs classes: "
            "train LinearRegression"
        )
    return measure


def check_batch(batch: int, samples: int, k: int) -> int:
    """Return `batch`; raise unless each of the k partitions has enough samples for it."""
    batch = at_least("batch", batch, 1)
    least = samples // k  # `fastgc.data.partition` cuts them so
    if batch > least:
        raise ValueError(
            f"batch is {batch}, but the smallest of the {k} partitions has {least} samples"
        )
    return batch


def check_methods(what: str, given: object, *methods: str) -> None:
    """Raise TypeError unless `given` is None, or an object with these methods."""
    for method in methods:
        if given is not None and (isinstance(given, type) or not hasattr(given, method)):
            raise TypeError(f"{what} must be an object with a method {method}, not {given!r}")


def check_partial(method: str, partial: str) -> None:
    """Raise unless `partial` refuses approximate gradients, as adaptive methods require."""
    if partial != "raise":
        raise ValueError(
            f'{method} keeps gradients for later rounds and needs them exact: use partial="raise"'
        )


def _options(
    code: Code, options: RoundOptions | None, keywords: Mapping[str, Any], rounds: int
) -> RoundOptions:
    """Return the options of rounds; a run in ``survivors`` must have this many `rounds`."""
    given: dict[str, Any] = {**keywords}
    survivors = given.get("survivors")
    if survivors is not None and not callable(survivors):
        given["survivors"] = _Replay(code, survivors, rounds)
    run = RoundOptions.of(options, given, "train")
    if run.batch is not None or run.first_round:
        raise ValueError(
            "options for train must not set batch and first_round: give train batch=, the size of "
            "mini-batches, and checkpoint=, to resume a run"
        )
    return run


class _Replay:
    """The messages that an earlier run used, by round from 0; it has `rounds` or more."""

    def __init__(self, code: Code, run: History | Sequence[Record], rounds: int) -> None:
        records = run.rounds if isinstance(run, History) else run
        if not isinstance(records, Sequence) or not all(isinstance(r, Record) for r in records):
            raise TypeError(f"survivors must be a History, its records or callable, not {run!r}")
        self._received = {record.round - 1: record.received for record in records}
        for number, received in self._received.items():
            try:
                code.scheme.check_survivors(received)
            except ValueError as error:
                raise ValueError(f"round {number + 1} of the run in survivors: {error}") from None
        for number in range(rounds):
            self(number)

    def __call__(self, number: int) -> ArrayLike:
        if number not in self._received:
            raise ValueError(
                f"the run in survivors has no round {number + 1}: it has {len(self._received)}"
            )
        return self._received[number]


def check_restorable(optimizer: Optimizer) -> None:
    """Raise TypeError unless a checkpoint can keep an optimizer."""
    for method in ("state", "restore"):
        if not callable(getattr(optimizer, method, None)):
            raise TypeError(
                "checkpoint needs an optimizer with methods state and restore, as those of "
                f"fastgc.optimizers have; {optimizer!r} has no {method}"
            )


def _check_groups(code: Code, method: GCADA, how: RoundOptions) -> None:
    """Raise unless an adaptive method can select among the groups of a code."""
    name = type(method).__name__
    if not isinstance(code, Grouped) or code.groups != method.groups:
        has = f"has {code.groups}" if isinstance(code, Grouped) else "is none"
        raise ValueError(
            f"{name} selects among {method.groups} groups and needs a Grouped code of as many, "
            f"such as fastgc.Grouped.repetition(n, {method.groups}); {type(code).__name__} {has}"
        )
    if how.tracker is not None:
        raise ValueError(f"{name} decodes groups, which a tracker cannot follow: leave it out")
    if code.scheme.approximate:
        raise ValueError(
            f"{name} keeps gradients for later rounds and needs them exact, which those of "
            f"{code!r} need not be"
        )
    check_partial(name, how.partial)
