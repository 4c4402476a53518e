"""Which code, which load: all of them ranked, the best threshold, loads for workers that differ."""

from .live import Recording, measured_rounds, record
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
from .plan import CODES, Choice, Plan, plan

__all__ = [
    "CODES",
    "Allocation",
    "Choice",
    "CoverageBounds",
    "DecodeCost",
    "Optimum",
    "Plan",
    "Recording",
    "balanced_loads",
    "coverage_bounds",
    "equal_time_loads",
    "generalised_bcc",
    "limit_time",
    "measured_rounds",
    "optimal_fraction",
    "optimal_loads",
    "optimal_threshold",
    "plan",
    "record",
    "round_time",
]
