"""Random delays of workers, with their works."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._cffi import ffi, lib
from ..numpy.delays import DelayPlan

__all__ = ["draw"]

_ARRAYS = ("shift", "scale", "power", "load", "work")


def _as_struct(delays: DelayPlan) -> Any:
    """A struct of which the arrays are kept alive by `delays`."""
    given = delays.given
    struct = {
        "workers": given.shape[1],
        "repeats": delays.repeats,
        "key": int(delays.key),
        "given": ffi.from_buffer("double[]", given) if len(given) else ffi.NULL,
        "onset": delays.onset,
        "powers": bool(delays.power.any()),
        **{name: ffi.from_buffer("double[]", getattr(delays, name)) for name in _ARRAYS},
    }
    return ffi.new("fgc_delays *", struct)


def draw(
    delays: DelayPlan, first: int, wait: NDArray[np.float64], whole: NDArray[np.float64]
) -> None:
    """See `fastgc.kernels.draw`."""
    lib.fgc_draw(
        _as_struct(delays),
        first,
        len(wait),
        ffi.from_buffer("double[]", wait),
        ffi.from_buffer("double[]", whole),
    )
