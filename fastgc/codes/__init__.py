"""Gradient codes, one file per scheme: see `fastgc.coding` for what serves them all."""

from .._base.text import listing
from ..coding.code import Code, Placed, Recovery
from ..coding.plan import BoundDecoder, BoundEncoder, Decoder, Encoder, jit
from ..coding.reactive import ReactiveRound, Share
from ..coding.round import Costs, Round
from ..coding.scheme import Residuals, Scheme
from ..coding.sums import Request, SumRound
from ..coding.suspects import AskingRound
from ..coding.trust import Approximation, Trust
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
from .reed_solomon import ReedSolomon, Stream
from .uncoded import Uncoded

__all__ = [
    "Approximation",
    "AskingRound",
    "BinaryCode",
    "BoundDecoder",
    "BoundEncoder",
    "Code",
    "Costs",
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
    "Placed",
    "RandomAssignment",
    "Reactive",
    "ReactiveRound",
    "Recovery",
    "ReedSolomon",
    "Request",
    "Residuals",
    "Round",
    "Scheme",
    "Share",
    "Stream",
    "SumRound",
    "Trust",
    "Uncoded",
    "jit",
    "make",
    "names",
    "register",
]
__dir__ = listing(__all__)
