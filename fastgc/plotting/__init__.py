"""Pictures: codes, rounds, training runs, precision, and the papers' figures. Needs matplotlib."""

from .._shown import listing
from .curves import (
    approximation_panels,
    circle_curves,
    error_curves,
    save_circle_curves,
    save_error_curves,
    save_stability_curves,
    save_tracking_curves,
    spending_panels,
    stability_curves,
    stability_figure,
    tracking_curves,
)
from .panels import Line, Panel, check_path, panel_figure, save, save_panels
from .rounds import assignment, timeline, timeline_figure

__all__ = [
    "Line",
    "Panel",
    "approximation_panels",
    "assignment",
    "check_path",
    "circle_curves",
    "error_curves",
    "panel_figure",
    "save",
    "save_circle_curves",
    "save_error_curves",
    "save_panels",
    "save_stability_curves",
    "save_tracking_curves",
    "spending_panels",
    "stability_curves",
    "stability_figure",
    "timeline",
    "timeline_figure",
    "tracking_curves",
]
__dir__ = listing(__all__)
