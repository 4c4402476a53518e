"""Engines: what runs a code on workers, real or simulated."""

from .interface import Cluster, RoundReport
from .local import LocalCluster
from .options import RoundOptions
from .ray import RayCluster
from .simulated import SimulatedCluster

__all__ = [
    "Cluster",
    "LocalCluster",
    "RayCluster",
    "RoundOptions",
    "RoundReport",
    "SimulatedCluster",
]
