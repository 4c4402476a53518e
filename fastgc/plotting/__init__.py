"""Pictures of codes, rounds, training runs, precision and papers' figures; needs matplotlib."""

from .._shown import listing
from .choosing import (
    cost_curves,
    fit_curves,
    load_curves,
    sequential_curves,
    spare_curves,
    sweep_curves,
    time_curves,
    worst_curves,
)
from .curves import (
    approximation_panels,
    circle_curves,
    error_curves,
    spending_panels,
    stability_curves,
    stability_figure,
    tracking_curves,
)
from .panels import Line, Panel, check_path, panel_figure, save, style
from .rounds import assignment, timeline, timeline_figure

__all__ = [
    "Line",
    "Panel",
    "approximation_panels",
    "assignment",
    "check_path",
    "circle_curves",
    "cost_curves",
    "error_curves",
    "fit_curves",
    "load_curves",
    "panel_figure",
    "save",
    "sequential_curves",
    "spare_curves",
    "spending_panels",
    "stability_curves",
    "stability_figure",
    "style",
    "sweep_curves",
    "time_curves",
    "timeline",
    "timeline_figure",
    "tracking_curves",
    "worst_curves",
]
__dir__ = listing(__all__)
