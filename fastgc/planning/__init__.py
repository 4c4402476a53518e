"""Choose a code and a load: ranked codes, the best threshold, loads for workers that differ."""

from .._base.text import listing
from . import live, loads, optimum
from . import plan as _plan
from . import sweep as _sweep
from .live import *  # noqa: F403
from .loads import *  # noqa: F403
from .optimum import *  # noqa: F403
from .plan import *  # noqa: F403
from .sweep import *  # noqa: F403

__all__: list[str] = []
__all__ += live.__all__
__all__ += loads.__all__
__all__ += optimum.__all__
__all__ += _plan.__all__
__all__ += _sweep.__all__
__dir__ = listing(__all__)
