"""The kernels in NumPy: what each does, the oracle of the other two backends, and the fallback."""

from .arrivals import *  # noqa: F403
from .combine import *  # noqa: F403
from .cover import *  # noqa: F403
from .decoding import *  # noqa: F403
from .lagrange import *  # noqa: F403
from .near_exact import *  # noqa: F403
from .optimize import *  # noqa: F403
from .rounds import *  # noqa: F403
from .vandermonde import *  # noqa: F403
