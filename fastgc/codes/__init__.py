"""Gradient codes, one file per scheme over the small base in ``base``."""

from .base import Code, Recovery
from .binary import BinaryCode
from .coupon_collector import CouponCollector
from .cyclic_repetition import CyclicRepetition
from .fractional_repetition import FractionalRepetition
from .grouped import Grouped, GroupedRound
from .lagrange import LagrangeCode
from .linear import LinearCode
from .plans import BoundDecoder, Decoder, Encoder, Round
from .random_assignment import RandomAssignment
from .reed_solomon import ReedSolomon
from .streaming import Stream
from .trust import Approximation, Trust
from .uncoded import Uncoded

__all__ = [
    "Approximation",
    "BinaryCode",
    "BoundDecoder",
    "Code",
    "CouponCollector",
    "CyclicRepetition",
    "Decoder",
    "Encoder",
    "FractionalRepetition",
    "Grouped",
    "GroupedRound",
    "LagrangeCode",
    "LinearCode",
    "RandomAssignment",
    "Recovery",
    "ReedSolomon",
    "Round",
    "Stream",
    "Trust",
    "Uncoded",
]
