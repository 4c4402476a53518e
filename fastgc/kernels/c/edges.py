"""Decoding vectors of messages that are each the sum of two blocks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from .._cffi import lib
from ..edges import EdgesPlan
from .cover import bound, struct_of

__all__ = ["bind_edges"]


def bind_edges(
    plan: EdgesPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    """See `fastgc.kernels.bind_edges`."""
    messages, vertices = len(plan.ends), plan.weight.size
    struct = struct_of("fgc_edges", **plan._asdict(), messages=messages, vertices=vertices)
    work = np.empty(8 * messages + 11 * vertices + 3, dtype=np.int64)
    return bound(lib.fgc_edges_vector, struct, survivors, out, work)
