"""The arithmetic: a few functions, each written three times.

``kernels.numpy`` says what each function does, and is the oracle and the fallback;
``kernels.numba`` is callable from a user's own ``@njit`` code, ``kernels.c`` is the compiled
extension. Their files are named alike, and as those of csrc/, some of which they hold together.
`choice` picks one backend: the fastest there is, or the one named by the environment variable
``FASTGC_BACKEND`` or by `use_backend`. Every function of ``kernels.numpy`` is a name of this
module, too, and calls that of the backend in use.

Kernels know no scheme and check no argument: who calls them does.

Of C, what takes long enough is split over threads (see `threads`); the others use one.
"""

from __future__ import annotations

import importlib
from types import FunctionType
from typing import TYPE_CHECKING

from .._shown import listing
from . import choice, threads
from . import numpy as plain
from .arrivals import Arrivals, Enough
from .choice import backend, backends, use_backend
from .cyclic import (
    LOCATOR,
    LOOKUP,
    SPREAD,
    CyclicPlan,
    CyclicStream,
    Decode,
    Status,
    StreamCalls,
    Where,
    cyclic_stream,
)
from .dispatch import kernel
from .fourier import Fourier, bind_fourier, fourier_rebuild
from .near_exact import (
    Circulant,
    locator_pairs,
    minimum_norm,
    near_exact,
    near_exact_pairs,
    weighted_minimum_norm,
)
from .numpy.completion import BLOCKS, CELLS, EDGES, SPAN, TILING, Completion, CompletionPlan
from .numpy.cover import CellsPlan, EdgesPlan, TilingPlan, tiling_plan
from .numpy.delays import DelayPlan
from .rows import EXPAND, PACKED, REAL, REAL_PART, AddRow, Combinations, Rows, address, stacked

if TYPE_CHECKING:  # to a type checker, a kernel is the NumPy function
    from .numpy import *  # noqa: F403

_KERNELS = {
    name: kernel(each) for name, each in vars(plain).items() if isinstance(each, FunctionType)
}
globals().update(_KERNELS)

__all__ = [
    "BLOCKS",
    "CELLS",
    "EDGES",
    "EXPAND",
    "LOCATOR",
    "LOOKUP",
    "PACKED",
    "REAL",
    "REAL_PART",
    "SPAN",
    "SPREAD",
    "TILING",
    "AddRow",
    "Arrivals",
    "CellsPlan",
    "Circulant",
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
    "Rows",
    "Status",
    "StreamCalls",
    "TilingPlan",
    "Where",
    "address",
    "backend",
    "backends",
    "bind_fourier",
    "cyclic_stream",
    "fourier_rebuild",
    "locator_pairs",
    "near_exact",
    "near_exact_pairs",
    "minimum_norm",
    "stacked",
    "threads",
    "tiling_plan",
    "use_backend",
    "weighted_minimum_norm",
    *_KERNELS,
]
__dir__ = listing([*__all__, *choice.NAMES])


if not TYPE_CHECKING:

    def __getattr__(name):
        """Backends load when they are first asked for."""
        if name in choice.NAMES:
            return importlib.import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
