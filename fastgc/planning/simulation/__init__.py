"""How long rounds take: Monte Carlo for any code, and the closed forms of the papers."""

from ..._base.text import listing
from . import closed_forms, monte_carlo
from .closed_forms import *  # noqa: F403
from .monte_carlo import *  # noqa: F403

__all__: list[str] = []
__all__ += closed_forms.__all__
__all__ += monte_carlo.__all__
__dir__ = listing(__all__)
