"""The arithmetic: a few functions, each written three times.

``kernels.numpy`` is the oracle and the fallback, ``kernels.numba`` is callable from a user's own
``@njit`` code, ``kernels.c`` is the compiled extension; their files are named alike, and as those
of csrc/. `choice` picks one: the fastest there is, or the one named by the environment variable
``FASTGC_BACKEND`` or by `use_backend`.

Kernels know no scheme and check no argument: the facade above them does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .._listing import listing
from . import choice, threads
from .apart import bind_add, bind_apart
from .arrivals import Arrivals, Enough
from .choice import backend, backends, use_backend
from .completion import BLOCKS, CELLS, EDGES, SPAN, TILING, Completion, CompletionPlan
from .cover import CellsPlan, TilingPlan, tiling_plan
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
from .delays import DelayPlan
from .edges import EdgesPlan
from .facade import (
    amsgrad,
    bind_cells,
    bind_combine,
    bind_decoding_vector,
    bind_edges,
    bind_encode,
    bind_fourier,
    bind_functional,
    bind_square_sum,
    bind_stream,
    bind_survivor_mask,
    bind_tiling,
    combine,
    combine_pairs,
    completion,
    decoding_vectors,
    draw,
    lagrange_basis,
    lagrange_evaluate,
    lagrange_products,
    lagrange_weights,
    leja_order,
    nesterov,
    replace,
    sgd,
    solve_vandermonde,
    square_distance,
    square_sum,
)
from .fourier import Fourier, fourier_rebuild
from .near_exact import locator_pairs, near_exact, near_exact_pairs
from .rings import Rings
from .rows import EXPAND, PACKED, REAL, REAL_PART, AddRow, Combinations, Rows, address, stacked
from .shifts import Shifts, shortest
from .whitened import whitened

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
    "Rings",
    "Rows",
    "Shifts",
    "Status",
    "StreamCalls",
    "TilingPlan",
    "Where",
    "address",
    "amsgrad",
    "backend",
    "backends",
    "bind_add",
    "bind_apart",
    "bind_cells",
    "bind_combine",
    "bind_decoding_vector",
    "bind_edges",
    "bind_encode",
    "bind_fourier",
    "bind_functional",
    "bind_square_sum",
    "bind_stream",
    "bind_survivor_mask",
    "bind_tiling",
    "combine",
    "combine_pairs",
    "completion",
    "cyclic_stream",
    "decoding_vectors",
    "draw",
    "fourier_rebuild",
    "lagrange_basis",
    "lagrange_evaluate",
    "lagrange_products",
    "lagrange_weights",
    "leja_order",
    "locator_pairs",
    "near_exact",
    "near_exact_pairs",
    "nesterov",
    "replace",
    "sgd",
    "shortest",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
    "stacked",
    "threads",
    "tiling_plan",
    "use_backend",
    "whitened",
]
__dir__ = listing([*__all__, *choice.NAMES])


if not TYPE_CHECKING:

    def __getattr__(name):
        """Backends load when they are first asked for."""
        if name in choice.NAMES:
            return importlib.import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
