"""Messages that are sums of two blocks, as the kernels that decode them read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SHORT", "STEPS", "EdgesPlan"]

# Conjugate gradients end when what they lack is this small, relative and squared, or after so many
# steps: the vector is then as short as can be to a part in a thousand or so. (As in csrc/edges.c.)
SHORT = 1e-6
STEPS = 100


class EdgesPlan(NamedTuple):
    """Messages that are each the sum of two blocks: edges of a graph whose vertices are the blocks.

    A named tuple, so that Numba takes it as an argument.

    Attributes
    ----------
    ends : (M, 2) int64 array
        The two vertices of each edge, which differ. C-contiguous.
    weight : (vertices,) float64 array
        Positive: the partitions of each block.
    need : int
        Messages that are combined in any case, as well as they can be.
    """

    ends: NDArray[np.int64]
    weight: NDArray[np.float64]
    need: int
