"""Choose a code and a load: ranked codes, the best threshold, loads for workers that differ."""

from .._base.text import listing
from . import loads, optimum
from . import plan as _plan
from .loads import *  # noqa: F403
from .optimum import *  # noqa: F403
from .plan import *  # noqa: F403

__all__: list[str] = []
__all__ += loads.__all__
__all__ += optimum.__all__
__all__ += _plan.__all__
__dir__ = listing(__all__)
