"""Engines, which run a code on real or simulated workers.

Those that need a package of their own have a module each: `mpi.MPICluster`, `ray.RayCluster` and
`torch.TorchCluster`.
"""

import importlib
from collections.abc import Callable

from .._base import extras as _extras
from .._base.arrays import check_word
from .._base.text import listing
from .interface import Cluster, RoundOptions, RoundReport, Task
from .local import LocalCluster
from .machines import placement
from .simulated import SimulatedCluster

__all__ = [
    "ENGINES",
    "Cluster",
    "LocalCluster",
    "RoundOptions",
    "RoundReport",
    "SimulatedCluster",
    "Task",
    "find_engine",
    "placement",
]
__dir__ = listing(__all__)

# Module: class.
ENGINES = {
    "local": "LocalCluster",
    "mpi": "MPICluster",
    "ray": "RayCluster",
    "simulated": "SimulatedCluster",
    "torch": "TorchCluster",
}


def find_engine(engine: str | Callable[..., Cluster]) -> Callable[..., Cluster]:
    """Find an engine by its name.

    Parameters
    ----------
    engine : str or callable
        A name of `ENGINES`. A callable is an engine itself.

    Raises
    ------
    ValueError
        If there is no engine with this name.
    TypeError
        If it is neither a name nor a callable.
    ImportError
        If a package that the engine needs is not installed; the error says how to install it.
    """
    if isinstance(engine, str):
        check_word("engine", engine, *ENGINES)
        if engine == "ray":
            _extras.ray()
        module = importlib.import_module(f".{engine}", __package__)
        found: Callable[..., Cluster] = getattr(module, ENGINES[engine])
        return found
    if not callable(engine):
        raise TypeError(f"engine must be a name or callable, not {type(engine).__name__}")
    return engine
