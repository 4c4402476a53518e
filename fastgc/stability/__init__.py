"""How precise decoded gradients are: predicted, bounded, measured, tracked."""

from .._shown import listing
from .errors import (
    CircleValues,
    MeasuredError,
    amplification,
    circle_values,
    error_bound,
    measured_error,
    residual,
)
from .search import WorstCase, worst_survivors
from .survey import (
    HELD,
    PATTERNS,
    SPARED,
    SpareRow,
    StabilityRow,
    compare,
    matched,
    spare,
    write_csv,
)
from .tracker import StabilityTracker, TrackedRound, write_jsonl

__all__ = [
    "HELD",
    "PATTERNS",
    "SPARED",
    "CircleValues",
    "MeasuredError",
    "SpareRow",
    "StabilityRow",
    "StabilityTracker",
    "TrackedRound",
    "WorstCase",
    "amplification",
    "circle_values",
    "compare",
    "error_bound",
    "matched",
    "measured_error",
    "residual",
    "spare",
    "worst_survivors",
    "write_csv",
    "write_jsonl",
]
__dir__ = listing(__all__)
