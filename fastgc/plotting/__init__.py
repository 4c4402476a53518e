"""Pictures of codes, rounds, training runs, precision and papers' figures; needs matplotlib.

A function that draws returns matplotlib Axes, the first if there are several, or a Figure. Its
argument `ax` says where to draw: the axes, or a sequence of them if there are several diagrams. By
default this is a new figure outside pyplot, ``ax.figure``, whose legend is below, with the heading
`caption`, such as the delays. If there is nothing to draw, functions raise ValueError; without
matplotlib, ImportError.
"""

from .._shown import listing
from .curves import (
    approximation_panels,
    circle_curves,
    cost_curves,
    error_curves,
    fit_curves,
    load_curves,
    sequential_curves,
    spare_curves,
    spending_panels,
    stability_curves,
    stability_figure,
    sweep_curves,
    time_curves,
    tracking_curves,
    worst_curves,
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
