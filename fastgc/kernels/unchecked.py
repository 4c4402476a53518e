"""Kernels without checks, and the plans that they take, for fastgc's own modules.

Not public: these modules have checked their arguments. Arrays that do not fit are read and written
beyond their ends. Public kernels are in `fastgc.kernels`, with contracts
(`fastgc.kernels.contract`).
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING

from . import numpy as plain
from .cyclic import (
    LOCATOR,
    LOOKUP,
    SPREAD,
    CyclicPlan,
    CyclicStream,
    Decode,
    StreamCalls,
    Where,
    cyclic_stream,
)
from .dispatch import kernel
from .fourier import Fourier, bind_fourier, fourier_rebuild
from .numpy.arrivals import Arrivals, Enough
from .numpy.cover import CellsPlan, EdgesPlan, TilingPlan, tiling_plan
from .numpy.rounds import (
    BLOCKS,
    CELLS,
    EDGES,
    SPAN,
    TILING,
    Completion,
    CompletionPlan,
    DelayPlan,
)
from .rows import AddRow, Combinations, address, stacked

if TYPE_CHECKING:  # to a type checker, a kernel is the NumPy function
    from .numpy import *  # noqa: F403

KERNELS = {
    name: kernel(each) for name, each in vars(plain).items() if isinstance(each, FunctionType)
}
globals().update(KERNELS)

__all__ = [
    "BLOCKS",
    "CELLS",
    "EDGES",
    "LOCATOR",
    "LOOKUP",
    "SPAN",
    "SPREAD",
    "TILING",
    "AddRow",
    "Arrivals",
    "CellsPlan",
    "Combinations",
    "Completion",
    "CompletionPlan",
    "CyclicPlan",
    "CyclicStream",
    "Decode",
    "DelayPlan",
    "EdgesPlan",
    "Enough",
    "Fourier",
    "StreamCalls",
    "TilingPlan",
    "Where",
    "address",
    "bind_fourier",
    "cyclic_stream",
    "fourier_rebuild",
    "stacked",
    "tiling_plan",
    *KERNELS,
]
