"""Models of how long workers take: for engines with artificial stragglers, simulation, planning."""

from .models import (
    DelayModel,
    Delays,
    Distribution,
    Exponential,
    Pareto,
    ShiftedExponential,
)
from .text import parse

__all__ = [
    "DelayModel",
    "Delays",
    "Distribution",
    "Exponential",
    "Pareto",
    "ShiftedExponential",
    "parse",
]
