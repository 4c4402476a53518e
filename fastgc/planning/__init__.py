"""Choose a code and a load: ranked codes, the best threshold, loads for workers that differ."""

from .._shown import listing
from .live import Recording, measured_rounds, record
from .loads import (
    Allocation,
    Assigned,
    CoverageBounds,
    LeastTime,
    assign,
    balanced_loads,
    coverage_bounds,
    equal_time_loads,
    generalised_bcc,
    least_time_loads,
    optimal_loads,
)
from .optimum import (
    CodeParameters,
    DecodeCost,
    Optimum,
    code_parameters,
    limit_time,
    optimal_fraction,
    optimal_threshold,
    round_time,
)
from .plan import CODES, SHORTER, Choice, Plan, plan
from .sweep import Cell, Sweep, sweep

__all__ = [
    "CODES",
    "SHORTER",
    "Allocation",
    "Assigned",
    "Cell",
    "Choice",
    "CodeParameters",
    "CoverageBounds",
    "DecodeCost",
    "LeastTime",
    "Optimum",
    "Plan",
    "Recording",
    "Sweep",
    "assign",
    "balanced_loads",
    "code_parameters",
    "coverage_bounds",
    "equal_time_loads",
    "generalised_bcc",
    "least_time_loads",
    "limit_time",
    "measured_rounds",
    "optimal_fraction",
    "optimal_loads",
    "optimal_threshold",
    "plan",
    "record",
    "round_time",
    "sweep",
]
__dir__ = listing(__all__)
