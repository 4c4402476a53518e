"""Gradient coding: the exact gradient from whichever workers answered first.

Public names load on first use, so ``import fastgc`` imports nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import *  # noqa: F403

if TYPE_CHECKING:
    from ._base.extras import get_include, get_library
    from .codes import (
        BinaryCode,
        Code,
        CouponCollector,
        CyclicRepetition,
        FractionalRepetition,
        GraphCode,
        Grouped,
        LagrangeCode,
        LinearCode,
        PartialWork,
        RandomAssignment,
        Reactive,
        ReedSolomon,
        Round,
        Trust,
        Uncoded,
    )
    from .engines import LocalCluster, SimulatedCluster
    from .kernels import backend
    from .stability import StabilityTracker
    from .training.data import Dataset
    from .training.history import History, Record
    from .training.train import train

__version__ = "0.3.0"

# Where the public names lie that are not of `codes`.
_ELSEWHERE = {
    "Dataset": "training.data",
    "History": "training.history",
    "LocalCluster": "engines",
    "Record": "training.history",
    "SimulatedCluster": "engines",
    "StabilityTracker": "stability",
    "backend": "kernels",
    "get_include": "_base.extras",
    "get_library": "_base.extras",
    "train": "training.train",
}

# Public modules, and where they lie.
_MODULES = {
    "checkpoint": "training.checkpoint",
    "codes": "codes",
    "data": "training.data",
    "delays": "delays",
    "engines": "engines",
    "history": "training.history",
    "interpolation": "numerics.interpolation",
    "kernels": "kernels",
    "models": "training.models",
    "optimizers": "training.optimizers",
    "planning": "planning",
    "plotting": "plotting",
    "sequential": "sequential",
    "simulation": "planning.simulation",
    "stability": "stability",
    "testing": "testing",
    "vandermonde": "numerics.vandermonde",
}

__all__ = [
    "BinaryCode",
    "Code",
    "CouponCollector",
    "CyclicRepetition",
    "Dataset",
    "FractionalRepetition",
    "GraphCode",
    "Grouped",
    "History",
    "LagrangeCode",
    "LinearCode",
    "LocalCluster",
    "PartialWork",
    "RandomAssignment",
    "Reactive",
    "Record",
    "ReedSolomon",
    "Round",
    "SimulatedCluster",
    "StabilityTracker",
    "Trust",
    "Uncoded",
    "backend",
    "get_include",
    "get_library",
    "train",
]
__all__ += errors.__all__


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = importlib.import_module(f".{_MODULES[name]}", __name__)
    elif name in __all__:
        module = importlib.import_module(f".{_ELSEWHERE.get(name, 'codes')}", __name__)
        value = getattr(module, name)
    else:
        raise AttributeError(f"module 'fastgc' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_MODULES, "__version__"])
