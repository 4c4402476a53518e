"""Lin et al. (OSDI 2025), stragglers in large model training: the traces that they published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._files import read_parquet
from ..delays import Empirical
from .figure import Part, Recorded, Timed, Track, coded, figure, needs_data, panel, rows_of, verdict

__all__ = ["NAME", "read_trace", "traces"]

Array = NDArray[np.float64]

NAME = "bytedance2025"
_WHERE = "github.com/ByteDance-Seed/StragglerAnalysis"
_WHAT = "the folder data, or a trace-*.parquet in it,"
_COLUMNS = ("dp_rank", "step", "optype", "start_ts", "duration")
_COMPUTE = ("forward-compute", "backward-compute")

_NOTE = (
    "A worker is a data-parallel rank, all its pipeline stages together; its time is from the "
    "step's begin to the end of its last forward or backward computation, and w partitions take "
    "w times as long. Without decoding and the exchange of gradients."
)


def read_trace(path: Path) -> Array:
    """Seconds of each data-parallel rank in each step, (steps, ranks), of one parquet file.

    From the first operation of the step to the end of the rank's last computation.

    Raises
    ------
    ValueError
        If the file is no such trace, or a rank has no computation in a step.
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
    rank, step, kind, start, duration = (np.asarray(held[name].to_numpy()) for name in _COLUMNS)
    numbers = (rank, step, start, duration)
    if any(each.dtype.kind not in "iuf" or not np.isfinite(each).all() for each in numbers):
        raise ValueError(f"{wrong}: ranks, steps and times must be numbers, none missing")
    steps, at = np.unique(step, return_inverse=True)
    ranks, of = np.unique(rank, return_inverse=True)
    if not steps.size:
        raise ValueError(f"{wrong}: it has no operations")
    begin = np.full(steps.size, np.inf)
    np.minimum.at(begin, at, start.astype(np.float64))
    computed = np.isin(kind.astype(str), _COMPUTE)
    end = np.full((steps.size, ranks.size), -np.inf)
    ends: NDArray[Any] = start.astype(np.float64) + duration
    np.maximum.at(end, (at[computed], of[computed]), ends[computed])
    times: Array = end - begin[:, None]
    if not (times > 0).all():
        i, j = np.argwhere(~(times > 0))[0].tolist()
        raise ValueError(f"{wrong}: rank {ranks[j]} computes nothing in step {steps[i]}")
    return times


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

    `data` is the folder ``data`` of the authors' repository, or one trace in it. `seed` is that of
    random codes, and of the bootstrap. Raises also ImportError, if PyArrow is not installed.
    """
    for path in track(_files(data)):
        times = read_trace(path)
        name = f"{path.stem.removeprefix('trace-')}, {times.shape[1]} ranks, {len(times)} steps"
        if times.shape[1] < 2:
            raise ValueError(f"{path}: a single data-parallel rank has nobody to wait for")
        recorded = Recorded(name, Empirical(times, "computation"))
        timed = [
            Timed(each, code.load, recorded.seconds(code), note=_NOTE)
            for each, code in coded(recorded.workers, seed)
        ]
        yield from rows_of(NAME, name, timed, seed)
        yield verdict(NAME, name, timed, seed)
        yield panel(name, timed)
