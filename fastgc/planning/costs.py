"""What codes cost and promise, measured: the table that helps to choose one."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..codes import Code
from ..stability.measured import Experiment

__all__ = ["Figures", "measure"]

P = 32  # elements of a gradient


class Figures(NamedTuple):
    """A code's figures.

    Attributes
    ----------
    load : int
        Partitions per worker, of the worker that has most.
    mean_load : float
        Partitions per worker, on average.
    stragglers : int or None
        Workers that may be wholly silent; None if that is not known.
    messages : int
        Messages in a round, all workers together.
    threshold : int or None
        Messages that always suffice, each worker's in order; None if that is not known.
    mean_workers, mean_messages : float
        Workers and messages heard when the gradient could be decoded, on average.
    message_size : float
        Size of a message, in gradients.
    communication_load : float
        ``mean_messages`` times that.
    decode_seconds : float
        Median time of a decoding vector, prepared (`Code.decoder`), for a set not seen lately.
    error : float
        Median relative error of the decoded gradient.
    worst_error : float
        The largest.
    residual : float
        Part of the gradient that is left out, as `fastgc.codes.Approximation.residual`: root mean
        square. 0 of codes that decode only what is exact.
    worst_residual : float
        The largest there can be, or what is known of it.
    worst_is_known : bool
        Whether it is the largest there can be. Otherwise it is that of random sets of survivors.
    """

    load: int
    mean_load: float
    stragglers: int | None
    messages: int
    threshold: int | None
    mean_workers: float
    mean_messages: float
    message_size: float
    communication_load: float
    decode_seconds: float
    error: float
    worst_error: float
    residual: float
    worst_residual: float
    worst_is_known: bool


def measure(code: Code, trials: int = 200, seed: int = 0) -> Figures:
    """Run a code on random partial gradients, or data, messages arriving in random order.

    Parameters
    ----------
    code : Code
    trials : int
        Rounds, each with an order of its own.
    seed : int
        Of the data and the orders.
    """
    if trials < 1:
        raise ValueError(f"trials must be at least 1, not {trials}")
    experiment = Experiment(code, p=P, seed=seed)
    messages = experiment.messages
    received, decoder = code.round(experiment.p), code.decoder()
    decoder(np.arange(code.scheme.message_count))  # what is made once is made now
    errors: list[float] = []
    times: list[float] = []
    sets: list[NDArray[np.int64]] = []
    for heard in code.scheme.random_arrivals(trials, seed):
        received.reset()
        for number in heard:
            received.receive(code.scheme.sender(number)[0], messages[number])
        sets.append(received.survivors)
        start = time.perf_counter()
        decoder(sets[-1])
        times.append(time.perf_counter() - start)
        errors.append(experiment.compare(received.gradient()).relative)
    workers = [len({code.scheme.sender(m)[0] for m in F.tolist()}) for F in sets]
    mean_messages = float(np.mean([F.size for F in sets]))
    form = code.message_size(P) * received.form.message_dtype.itemsize / (P * 8)
    return Figures(
        code.load,
        float(code.scheme.loads.mean()),
        code.stragglers,
        code.scheme.message_count,
        code.threshold,
        float(np.mean(workers)),
        mean_messages,
        form,
        mean_messages * form,
        float(np.median(times)),
        float(np.median(errors)),
        float(np.max(errors)),
        *_left_out(code, sets, seed),
    )


def _left_out(code: Code, sets: list[NDArray[np.int64]], seed: int) -> tuple[float, float, bool]:
    """What these sets leave out on average; at worst they or others; whether that is the worst."""
    if not code.scheme.approximate:
        return 0.0, 0.0, True
    left = np.array([code.residual(heard) for heard in sets])
    waiting = code.residuals(seed=seed)
    # of codes that wait for some workers nothing is worse than any so many; nor by a formula
    known = waiting.exhaustive and (code.scheme.wait is not None or waiting.sets == 0)
    mean = float(np.sqrt(np.mean(left**2)))
    return mean, max(waiting.worst, float(left.max())), known
