"""Models of how long workers take: for engines with artificial stragglers, simulation, planning."""

from .empirical import Empirical
from .mixtures import Heterogeneous, Mixture
from .models import DelayModel, Delays, Distribution, Exponential, Pareto, ShiftedExponential
from .text import parse

__all__ = [
    "DelayModel",
    "Delays",
    "Distribution",
    "Empirical",
    "Exponential",
    "Heterogeneous",
    "Mixture",
    "Pareto",
    "ShiftedExponential",
    "parse",
]
