"""Pictures of codes, rounds, training runs and precision; needs matplotlib.

A function that draws returns matplotlib Axes or a Figure. If it has an argument `ax`, this says
where to draw. By default this is a new figure outside pyplot, whose legend is below, with the
heading `caption`, such as the delays. If there is nothing to draw, functions raise ValueError;
without matplotlib, ImportError.
"""

from .._base.text import listing
from . import curves, panels, rounds
from .curves import *  # noqa: F403
from .panels import *  # noqa: F403
from .rounds import *  # noqa: F403

__all__: list[str] = []
__all__ += curves.__all__
__all__ += panels.__all__
__all__ += rounds.__all__
__dir__ = listing(__all__)
