"""Kernels without checks, and the plans that they take, for fastgc's own modules.

Not public: these modules have checked their arguments. Arrays that do not fit are read and written
beyond their ends. Public kernels are in `fastgc.kernels`, with contracts
(`fastgc.kernels.contract`).
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING

from . import numpy as plain
from .cyclic import LOCATOR as LOCATOR
from .cyclic import LOOKUP as LOOKUP
from .cyclic import SPREAD as SPREAD
from .cyclic import CyclicPlan as CyclicPlan
from .cyclic import Decode as Decode
from .cyclic import Where as Where
from .dispatch import kernel
from .fourier import Fourier as Fourier
from .fourier import bind_fourier as bind_fourier
from .numpy.arrivals import Arrivals as Arrivals
from .numpy.arrivals import Enough as Enough
from .numpy.cover import CellsPlan as CellsPlan
from .numpy.cover import EdgesPlan as EdgesPlan
from .numpy.cover import TilingPlan as TilingPlan
from .numpy.cover import tiling_plan as tiling_plan
from .numpy.rounds import BLOCKS as BLOCKS
from .numpy.rounds import CELLS as CELLS
from .numpy.rounds import EDGES as EDGES
from .numpy.rounds import SPAN as SPAN
from .numpy.rounds import TILING as TILING
from .numpy.rounds import Completion as Completion
from .numpy.rounds import CompletionPlan as CompletionPlan
from .numpy.rounds import DelayPlan as DelayPlan
from .rows import AddRow as AddRow
from .rows import Combinations as Combinations
from .rows import address as address
from .rows import stacked as stacked

if TYPE_CHECKING:  # to a type checker, a kernel is the NumPy function
    from .numpy import *  # noqa: F403

KERNELS = {
    name: kernel(each) for name, each in vars(plain).items() if isinstance(each, FunctionType)
}
globals().update(KERNELS)
