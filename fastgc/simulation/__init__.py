"""How long rounds take: Monte Carlo for any code, and the closed forms of the papers."""

from .._listing import listing
from .closed_forms import (
    AdaptiveLoads,
    adaptive_loads,
    completions_pmf,
    coupon_mean,
    coupon_tail_bound,
    coupon_threshold,
    coverage_probability,
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
from .coverage import covered_cdf, covered_mean, covered_messages
from .monte_carlo import Followed, FollowedRound, Simulation, follow, simulate

__all__ = [
    "AdaptiveLoads",
    "Followed",
    "FollowedRound",
    "Simulation",
    "adaptive_loads",
    "completions_pmf",
    "coupon_mean",
    "coupon_tail_bound",
    "coupon_threshold",
    "coverage_probability",
    "covered_cdf",
    "covered_mean",
    "covered_messages",
    "fastest_of_groups_mean",
    "follow",
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
__dir__ = listing(__all__)
