"""Training by gradient descent whose gradients come from coded workers."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import data as datasets
from .codes import Code
from .delays import DelayModel
from .engines.local import LocalCluster
from .models import LeastSquares, Model, SoftmaxRegression
from .optimizers import Nesterov, Optimizer

if TYPE_CHECKING:
    from .stability import StabilityTracker

__all__ = ["History", "Record", "train", "write_json"]


@dataclass(frozen=True)
class Record:
    """One round of training.

    Attributes
    ----------
    round : int
        From 1.
    time : float
        Seconds of training so far: waiting, decoding and updating, not evaluating.
    wait, decode : float
        Seconds from handing out the parameters to the last message needed, and for decoding.
    survivors : tuple of int
        Workers heard from before the gradient could be decoded, in order of arrival.
    messages : int
        How many they sent by then.
    stale : int
        Late messages of earlier rounds that were dropped meanwhile.
    loss : float
        Mean training loss after the round.
    test_error : float
        Fraction of the test set misclassified after the round.
    rounding : float
        Estimated relative error of the decoded gradient; NaN without a tracker.
    received : tuple of int
        Numbers of the messages received, in order.
    arrivals : tuple of float
        When the master had each of them, in seconds from handing out the parameters.
    """

    round: int
    time: float
    wait: float
    decode: float
    survivors: tuple[int, ...]
    messages: int
    stale: int
    loss: float
    test_error: float
    rounding: float = math.nan
    received: tuple[int, ...] = ()
    arrivals: tuple[float, ...] = ()


@dataclass
class History:
    """What happened in a run of training.

    Attributes
    ----------
    name : str
        What to call the run in tables and plots.
    code, data, delays : str
        How each was made.
    seed : int
    rounds : list of Record
    theta : (p,) array
        The trained parameters.
    """

    name: str
    code: str
    data: str
    delays: str
    seed: int
    rounds: list[Record] = field(default_factory=list)
    theta: NDArray[Any] = field(default_factory=lambda: np.empty(0), repr=False)

    def seconds_to(self, test_error: float) -> float:
        """Seconds of training until the test error was this low; inf if it never was."""
        return next((r.time for r in self.rounds if r.test_error <= test_error), np.inf)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the parameters, in types that JSON has."""
        listed = asdict(self)
        del listed["theta"]
        return listed


def write_json(histories: list[History], path: str | os.PathLike[str]) -> None:
    """Write runs to a file, as a JSON list of `History.to_dict`."""
    with open(path, "w", encoding="utf-8") as file:
        listed = [json_ready(history.to_dict()) for history in histories]
        json.dump(listed, file, indent=1, allow_nan=False)
        file.write("\n")


def json_ready(value: Any) -> Any:
    """The same with None for numbers that are not finite, which JSON lacks."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def train(
    code: Code,
    data: datasets.Dataset | str | os.PathLike[str] = "digits",
    *,
    model: Model | None = None,
    optimizer: Optimizer | None = None,
    rounds: int = 150,
    delays: DelayModel | None = None,
    seed: int = 0,
    timeout: float | None = None,
    name: str | None = None,
    progress: bool = False,
    callback: Callable[[Record], object] | None = None,
    message_dtype: DTypeLike | None = None,
    tracker: StabilityTracker | None = None,
) -> History:
    """Train a model on the worker processes of this machine, with coded gradients.

    Parameters
    ----------
    code : Code
        The scheme; ``code.n`` worker processes are started, and ended again.
    data : Dataset, "digits" or path
        What `fastgc.data.load` takes.
    model : Model, optional
        Default: softmax regression, or least squares for codes that need it (`LagrangeCode`).
        Training starts from zero.
    optimizer : Optimizer, optional
        Gets gradients of the mean loss. Default: Nesterov's method with the model's own learning
        rate.
    rounds : int
        Gradient steps.
    delays : DelayModel, optional
        Artificial delays, a function of `seed` and the round only, so that schemes can be compared
        on the same ones; times of single computations are taken times a worker's load
        (`fastgc.delays.Delays`). Default: none but nature's.
    seed : int
        For the split of the data and for the delays.
    timeout : float, optional
        Seconds after which a round is given up.
    name : str, optional
        What to call the run.
    progress : bool
        Show a progress bar (needs ``fastgc[cli]``).
    callback : callable, optional
        Called with each `Record`.
    message_dtype : numpy dtype, optional
        Of the workers' messages: ``"float16"``, say, or ``"bfloat16"``, for a quarter of the
        traffic. Default: the data's.
    tracker : StabilityTracker, optional
        Takes down how precise each gradient is; warns, raises or waits for more messages where one
        is not. Where it measures, all partial gradients are computed once more, in this process;
        the time does not count.

    Returns
    -------
    History

    Raises
    ------
    ValueError
        If the code's data are coded, and the model's gradient is not quadratic in them.
    NotDecodableError, UnstableRoundError, WorkerFailedError, TimeoutError
        As `fastgc.engines.local.LocalCluster.step` does. No process is left behind.

    Notes
    -----
    As in any program that starts processes, call it under ``if __name__ == "__main__":`` in a
    script.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    dataset = data if isinstance(data, datasets.Dataset) else datasets.load(data, seed=seed)
    X, y = dataset.X_train, dataset.y_train
    if model is None:
        kind: type[LeastSquares | SoftmaxRegression] = (
            LeastSquares if code.codes_data else SoftmaxRegression
        )
        model = kind(dataset.features, dataset.classes)
    if code.codes_data and not model.quadratic:
        raise ValueError(
            f"{type(code).__name__} decodes only gradients that are quadratic in the data: train "
            f"LeastSquares with it, not {type(model).__name__}"
        )
    optimizer = Nesterov(lr=model.learning_rate(X)) if optimizer is None else optimizer
    optimizer.reset(np.zeros(model.size, dtype=X.dtype))
    gradient = np.empty(model.size, dtype=X.dtype)
    history = History(name or type(code).__name__, repr(code), dataset.name, repr(delays), seed)
    shown: AbstractContextManager[Callable[[Record], object]] = nullcontext(lambda record: None)
    if progress:
        from .progress import training_bar

        shown = training_bar(history.name, rounds, code.n)

    prepared = model.prepare(X, y)
    shards = code.encode_data(*prepared)
    with (
        shown as show,
        LocalCluster(
            code,
            shards,
            model.partial_gradient,
            model.size,
            dtype=X.dtype,
            delays=delays,
            seed=seed,
            timeout=timeout,
            message_dtype=message_dtype,
            tracker=tracker,
        ) as cluster,
    ):
        elapsed = 0.0
        for number in range(1, rounds + 1):
            start = time.perf_counter()
            report = cluster.step(optimizer.point, out=gradient)
            if tracker is not None and tracker.due:
                paused = time.perf_counter()
                tracker.measure(gradient, _partials(model, optimizer.point, prepared, code.k))
                start += time.perf_counter() - paused
            model.add_regularisation(optimizer.point, gradient)
            gradient /= len(X)
            optimizer.step(gradient)
            elapsed += time.perf_counter() - start
            record = Record(
                number,
                elapsed,
                report.wait_seconds,
                report.decode_seconds,
                tuple(report.survivors.tolist()),
                report.messages,
                report.stale,
                model.loss(optimizer.theta, X, y),
                model.error(optimizer.theta, dataset.X_test, dataset.y_test),
                math.nan if tracker is None else tracker.rounds[-1].predicted,
                tuple(report.received.tolist()),
                tuple(report.arrivals.tolist()),
            )
            history.rounds.append(record)
            show(record)
            if callback is not None:
                callback(record)
    history.theta = optimizer.theta.copy()
    return history


def _partials(model: Model, theta: NDArray[Any], prepared: Any, k: int) -> NDArray[Any]:
    """Every partial gradient, computed here."""
    X, y = prepared
    partials = np.empty((k, theta.size), dtype=theta.dtype)
    for shard, partial in zip(datasets.partition(X, y, k), partials, strict=True):
        model.partial_gradient(theta, shard, partial)
    return partials
