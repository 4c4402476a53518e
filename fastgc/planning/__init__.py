"""Which code, which load: the best number of workers to wait for."""

from .optimum import (
    DecodeCost,
    Optimum,
    limit_time,
    optimal_fraction,
    optimal_threshold,
    round_time,
)

__all__ = [
    "DecodeCost",
    "Optimum",
    "limit_time",
    "optimal_fraction",
    "optimal_threshold",
    "round_time",
]
