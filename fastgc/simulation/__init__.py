"""How long rounds take: Monte Carlo for any code, and the closed forms of the papers."""

from .closed_forms import (
    AdaptiveLoads,
    adaptive_loads,
    completions_pmf,
    coupon_mean,
    coupon_threshold,
    fastest_of_groups_mean,
    least_threshold,
    mds_threshold,
    random_communication_load,
    random_threshold,
    received_cdf,
    received_mean,
    selected_mean,
    threshold_cdf,
    threshold_mean,
    total_cdf,
    total_mean,
)
from .monte_carlo import Simulation, simulate

__all__ = [
    "AdaptiveLoads",
    "Simulation",
    "adaptive_loads",
    "completions_pmf",
    "coupon_mean",
    "coupon_threshold",
    "fastest_of_groups_mean",
    "least_threshold",
    "mds_threshold",
    "random_communication_load",
    "random_threshold",
    "received_cdf",
    "received_mean",
    "selected_mean",
    "simulate",
    "threshold_cdf",
    "threshold_mean",
    "total_cdf",
    "total_mean",
]
