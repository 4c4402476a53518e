"""Which code, which load: the best threshold, and loads for workers that differ."""

from .loads import (
    Allocation,
    CoverageBounds,
    balanced_loads,
    coverage_bounds,
    equal_time_loads,
    generalised_bcc,
    optimal_loads,
)
from .optimum import (
    DecodeCost,
    Optimum,
    limit_time,
    optimal_fraction,
    optimal_threshold,
    round_time,
)

__all__ = [
    "Allocation",
    "CoverageBounds",
    "DecodeCost",
    "Optimum",
    "balanced_loads",
    "coverage_bounds",
    "equal_time_loads",
    "generalised_bcc",
    "limit_time",
    "optimal_fraction",
    "optimal_loads",
    "optimal_threshold",
    "round_time",
]
