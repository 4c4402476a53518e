"""A row of the table of kernels: how to call one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """How to call the kernel of this name.

    ``make(rng, size, dtype)`` returns its arguments. Results and written arrays are within
    ``rtol`` times the largest number of the oracle's.
    """

    name: str
    make: Callable[..., tuple[Any, ...]]
    dtypes: tuple[Any, ...] = (np.float64,)
    rtol: float = 0.0
