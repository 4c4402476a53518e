"""How long rounds take: Monte Carlo for any code, and the closed forms of the papers."""

from .monte_carlo import Simulation, simulate

__all__ = ["Simulation", "simulate"]
