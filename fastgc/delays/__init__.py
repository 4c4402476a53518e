"""Models of workers' delays, for engines with artificial stragglers and for simulation."""

from .._base.text import listing
from . import distributions, empirical, interface, mixtures, text
from .distributions import *  # noqa: F403
from .empirical import *  # noqa: F403
from .interface import *  # noqa: F403
from .mixtures import *  # noqa: F403
from .text import *  # noqa: F403

__all__: list[str] = []
__all__ += distributions.__all__
__all__ += empirical.__all__
__all__ += interface.__all__
__all__ += mixtures.__all__
__all__ += text.__all__
__dir__ = listing(__all__)
