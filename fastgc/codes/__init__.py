"""Gradient codes, one file per scheme: see `fastgc.coding` for what serves them all."""

from .._base.text import listing
from ..coding.code import Code, Recovery
from ..coding.plan import BoundDecoder, BoundEncoder, Encoder
from ..coding.precision import Precision, Residuals
from ..coding.reactive import ReactiveRound
from ..coding.round import Round, Share
from ..coding.scheme import Decoder, Scheme
from ..coding.trust import Approximation, Trust
from ..coding.verified import VerifiedRound
from .binary import BinaryCode
from .catalogue import make, names, register
from .coupon_collector import CouponCollector
from .cyclic_repetition import CyclicRepetition
from .fractional_repetition import FractionalRepetition
from .graph import GraphCode
from .grouped import Grouped, GroupedRound
from .lagrange import LagrangeCode
from .linear import LinearCode
from .partial_work import PartialWork
from .random_assignment import RandomAssignment
from .reactive import Reactive
from .reed_solomon import ReedSolomon
from .uncoded import Uncoded

__all__ = [
    "Approximation",
    "BinaryCode",
    "BoundDecoder",
    "BoundEncoder",
    "Code",
    "CouponCollector",
    "CyclicRepetition",
    "Decoder",
    "Encoder",
    "FractionalRepetition",
    "GraphCode",
    "Grouped",
    "GroupedRound",
    "LagrangeCode",
    "LinearCode",
    "PartialWork",
    "Precision",
    "RandomAssignment",
    "Reactive",
    "ReactiveRound",
    "Recovery",
    "ReedSolomon",
    "Residuals",
    "Round",
    "Scheme",
    "Share",
    "Trust",
    "Uncoded",
    "VerifiedRound",
    "make",
    "names",
    "register",
]
__dir__ = listing(__all__)
