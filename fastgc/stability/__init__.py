"""How precise decoded gradients are: predicted, bounded, measured, tracked."""

from .._base.text import listing
from . import precision, search, survey, tracker
from .precision import *  # noqa: F403
from .search import *  # noqa: F403
from .survey import *  # noqa: F403
from .tracker import *  # noqa: F403

__all__: list[str] = []
__all__ += precision.__all__
__all__ += search.__all__
__all__ += survey.__all__
__all__ += tracker.__all__
__dir__ = listing(__all__)
