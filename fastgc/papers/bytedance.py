"""Lin et al. (OSDI 2025), stragglers in large model training: codes on their published traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._files import read_parquet
from ..delays import Empirical
from .figure import Part, Recorded, Timed, Track, coded, figure, needs_data, panel, rows_of, verdict

__all__ = ["NAME", "Trace", "makespan", "one_forward_one_backward", "read_trace", "traces"]

Array = NDArray[np.float64]

NAME = "bytedance2025"
_WHERE = "github.com/ByteDance-Seed/StragglerAnalysis"
_WHAT = "the folder data, or a trace-*.parquet in it,"
_COLUMNS = ("dp_rank", "stage", "step", "optype", "mb_id", "start_ts", "duration")
_FORWARD, _BACKWARD = _COMPUTE = ("forward-compute", "backward-compute")

_NOTE = (
    "A worker is a data-parallel rank, a pipeline of {p} stages; its time is from the step's begin "
    "to the end of its last forward or backward computation. w partitions are w times its {m} "
    "microbatches, each taking what it took: the rank is slow, and not its data. The step gets "
    "longer by what the one-forward-one-backward schedule does. Without decoding and the exchange "
    "of gradients."
)


class Trace(NamedTuple):
    """The steps of a recorded job."""

    times: Array  # seconds of each rank in each step, (steps, ranks)
    forward: Array  # seconds of each computation, (steps, ranks, stages, microbatches)
    backward: Array

    def seconds(self, loads: Sequence[int]) -> Array:
        """Return the seconds of each rank in each step at these loads; the recorded load is 1."""
        longer = {w: makespan(self.forward, self.backward, w) for w in {1, *loads}}
        times = self.times.copy()
        for rank, w in enumerate(loads):
            times[:, rank] += (longer[w] - longer[1])[:, rank]
        return times


def one_forward_one_backward(
    stage: int, stages: int, microbatches: int
) -> Iterator[tuple[str, int]]:
    """Yield what a stage of a pipeline computes, in order: forward or backward, and the microbatch.

    A stage first does one forward computation for each stage after it, and then alternates. This is
    PipeDream-Flush (Narayanan et al. 2021, arXiv:2104.04473, figure 4), the order in all traces.
    """
    ahead = min(stages - 1 - stage, microbatches)
    for at in range(microbatches + ahead):
        if at < microbatches:
            yield _FORWARD, at
        if at >= ahead:
            yield _BACKWARD, at - ahead


def makespan(forward: Array, backward: Array, copies: int = 1) -> Array:
    """Return the seconds of pipelines that compute all their microbatches `copies` times over.

    Durations have shape (..., stages, microbatches). Messages between stages take no time.
    """
    stages, recorded = forward.shape[-2:]
    orders = [
        list(one_forward_one_backward(stage, stages, copies * recorded)) for stage in range(stages)
    ]
    done: dict[tuple[str, int, int], Array] = {}  # when a kind, stage and microbatch is done
    free = np.zeros((stages, *forward.shape[:-2]))  # when each stage is free
    following = [0] * stages  # next place in each stage's order
    while any(next_ < len(order) for next_, order in zip(following, orders, strict=True)):
        for at, order in enumerate(orders):
            while following[at] < len(order):
                kind, microbatch = order[following[at]]
                if kind == _FORWARD:
                    needed, took = (kind, at - 1, microbatch), forward
                elif at < stages - 1:
                    needed, took = (kind, at + 1, microbatch), backward
                else:
                    needed, took = (_FORWARD, at, microbatch), backward
                if needed[1] >= 0:
                    if needed not in done:
                        break  # another stage must compute it first
                    free[at] = np.maximum(free[at], done[needed])
                free[at] += took[..., at, microbatch % recorded]
                done[kind, at, microbatch] = free[at].copy()
                following[at] += 1
    ends: Array = free.max(axis=0)
    return ends


def read_trace(path: Path) -> Trace:
    """Read steps of data-parallel ranks, and durations of their computations, from a parquet file.

    The time of a rank is from the first operation of the step to the end of its last computation.

    Raises
    ------
    ValueError
        If the file is not such a trace, or a rank does not compute each microbatch once in a step.
    ImportError
        If PyArrow is not installed.
    """
    wrong = f"{path} is no trace of {_WHERE}"
    held = read_parquet(path, f"trace of {_WHERE}")
    lacking = [name for name in _COLUMNS if name not in held.column_names]
    if lacking:
        raise ValueError(
            f"{wrong}: it has no column {' and '.join(lacking)}, but {', '.join(held.column_names)}"
        )
    rank, stage, step, kind, microbatch, start, duration = (
        np.asarray(held[name].to_numpy()) for name in _COLUMNS
    )
    numbers = (rank, stage, step, microbatch, start, duration)
    if any(each.dtype.kind not in "iuf" or not np.isfinite(each).all() for each in numbers):
        raise ValueError(f"{wrong}: ranks, steps and times must be numbers, none missing")
    steps, at = np.unique(step, return_inverse=True)
    ranks, of = np.unique(rank, return_inverse=True)
    if not steps.size:
        raise ValueError(f"{wrong}: it has no operations")
    begin = np.full(steps.size, np.inf)
    np.minimum.at(begin, at, start.astype(np.float64))
    kind = kind.astype(str)
    computed = np.isin(kind, _COMPUTE)
    end = np.full((steps.size, ranks.size), -np.inf)
    ends: NDArray[Any] = start.astype(np.float64) + duration
    np.maximum.at(end, (at[computed], of[computed]), ends[computed])
    times: Array = end - begin[:, None]
    if not (times > 0).all():
        i, j = np.argwhere(~(times > 0))[0].tolist()
        raise ValueError(f"{wrong}: rank {ranks[j]} computes nothing in step {steps[i]}")
    stages, stage = np.unique(stage[computed], return_inverse=True)
    microbatches, microbatch = np.unique(microbatch[computed], return_inverse=True)
    shape = (len(_COMPUTE), steps.size, ranks.size, stages.size, microbatches.size)
    backward = (kind[computed] == _BACKWARD).astype(int)
    each_one = (backward, at[computed], of[computed], stage, microbatch)
    counts = np.zeros(shape, dtype=int)
    np.add.at(counts, each_one, 1)
    if (counts != 1).any():
        b, i, j, s, m = np.argwhere(counts != 1)[0].tolist()
        raise ValueError(
            f"{wrong}: stage {stages[s]} of rank {ranks[j]} has {counts[b, i, j, s, m]} times "
            f"{_COMPUTE[b]} of microbatch {microbatches[m]} in step {steps[i]}; each stage of a "
            "pipeline must compute each microbatch once"
        )
    took = np.zeros(shape)
    took[each_one] = duration[computed]
    return Trace(times, *took)


def _files(data: str | None) -> list[Path]:
    if data is None:
        raise needs_data(NAME, _WHAT, _WHERE)
    path = Path(data)
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    found = sorted(path.glob("trace-*.parquet")) if path.is_dir() else [path]
    if not found:
        raise ValueError(f"{path} has no trace-*.parquet: {NAME} takes {_WHAT} of {_WHERE}")
    if path.is_file() and path.suffix != ".parquet":
        raise ValueError(f"{path} is no parquet file: {NAME} takes {_WHAT} of {_WHERE}")
    return found


@figure(NAME, "Lin et al. 2025: ByteDance's traces, recorded steps")
def traces(*, data: str | None = None, seed: int = 0, track: Track = iter) -> Iterator[Part]:
    """Seconds per gradient on the published traces, with codes between data-parallel ranks.

    `data` is the folder ``data`` of the authors' repository, or one trace in it. `seed` is the seed
    of random codes and of the bootstrap. Raises ImportError also if PyArrow is not installed.
    """
    for path in track(_files(data)):
        trace = read_trace(path)
        steps, ranks, stages, microbatches = trace.forward.shape
        name = f"{path.stem.removeprefix('trace-')}, {ranks} ranks, {steps} steps"
        if ranks < 2:
            raise ValueError(f"{path}: a single data-parallel rank has nobody to wait for")
        note = _NOTE.format(p=stages, m=microbatches)
        timed = []
        for each, code in coded(ranks, seed):
            loads = [len(code.partitions(worker)) for worker in range(ranks)]
            recorded = Recorded(name, Empirical(trace.seconds(loads)))
            timed.append(Timed(each, code.load, recorded.seconds(code), note=note))
        yield from rows_of(NAME, name, timed, seed)
        yield verdict(NAME, name, timed, seed)
        yield panel(name, timed)
