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

from . import choice, threads
from .choice import backend, backends, use_backend
from .completion import BLOCKS, CELLS, TILING, Completion, CompletionPlan
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
from .facade import (
    amsgrad,
    bind_combine,
    bind_decoding_vector,
    bind_encode,
    bind_fourier,
    bind_stream,
    bind_survivor_mask,
    combine,
    completion,
    decoding_vectors,
    lagrange_basis,
    lagrange_products,
    leja_order,
    nesterov,
    replace,
    sgd,
    solve_vandermonde,
    square_distance,
    square_sum,
)
from .fourier import Fourier, fourier_rebuild
from .near_exact import near_exact
from .rows import EXPAND, PACKED, REAL, REAL_PART, Rows, address, stacked
from .whitened import whitened

__all__ = [
    "BLOCKS",
    "CELLS",
    "EXPAND",
    "LOCATOR",
    "LOOKUP",
    "PACKED",
    "REAL",
    "REAL_PART",
    "SPREAD",
    "TILING",
    "Completion",
    "CompletionPlan",
    "CyclicPlan",
    "CyclicStream",
    "Decode",
    "Fourier",
    "Rows",
    "Status",
    "StreamCalls",
    "Where",
    "address",
    "amsgrad",
    "backend",
    "backends",
    "bind_combine",
    "bind_decoding_vector",
    "bind_encode",
    "bind_fourier",
    "bind_stream",
    "bind_survivor_mask",
    "combine",
    "completion",
    "cyclic_stream",
    "decoding_vectors",
    "fourier_rebuild",
    "lagrange_basis",
    "lagrange_products",
    "leja_order",
    "near_exact",
    "nesterov",
    "replace",
    "sgd",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
    "stacked",
    "threads",
    "use_backend",
    "whitened",
]


if not TYPE_CHECKING:

    def __getattr__(name):
        """Backends load when they are first asked for."""
        if name in choice.NAMES:
            return importlib.import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
