"""Models of workers' delays, for engines with artificial stragglers and for simulation."""

from .._shown import listing
from .distributions import Delays, Distribution, Exponential, Pareto, ShiftedExponential
from .empirical import Empirical, Fit, fit
from .interface import DelayModel
from .mixtures import Heterogeneous, Mixture, Outages
from .text import parse, register

__all__ = [
    "DelayModel",
    "Delays",
    "Distribution",
    "Empirical",
    "Exponential",
    "Fit",
    "Heterogeneous",
    "Mixture",
    "Outages",
    "Pareto",
    "ShiftedExponential",
    "fit",
    "parse",
    "register",
]
__dir__ = listing(__all__)
