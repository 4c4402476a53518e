"""Gradient codes, one file per scheme: see ``scheme`` for what one says, ``base`` for the verbs."""

import importlib
from typing import Any

from .._listing import listing
from .approximation import Residuals
from .base import Code, Recovery
from .bernoulli import BernoulliCode
from .bibd import BIBDCode
from .binary import BinaryCode
from .catalogue import make, names, register
from .coupon_collector import CouponCollector
from .cyclic_repetition import CyclicRepetition
from .decoding import BoundDecoder, Decoder
from .encoding import BoundEncoder, Encoder
from .expander import ExpanderCode
from .fractional_repetition import FractionalRepetition
from .graph import GraphCode
from .grouped import Grouped, GroupedRound
from .lagrange import LagrangeCode
from .linear import LinearCode
from .partial_work import PartialWork
from .random_assignment import RandomAssignment
from .raptor import RaptorCode
from .reed_solomon import ReedSolomon
from .round import Round
from .streaming import Stream
from .sums import Request, SumRound
from .suspects import AskingRound, Costs
from .trust import Approximation, Trust
from .uncoded import Uncoded
from .ye_abbe import YeAbbe

__all__ = [
    "Approximation",
    "AskingRound",
    "BIBDCode",
    "BernoulliCode",
    "BinaryCode",
    "BoundDecoder",
    "BoundEncoder",
    "Code",
    "Costs",
    "CouponCollector",
    "CyclicRepetition",
    "Decoder",
    "Encoder",
    "ExpanderCode",
    "FractionalRepetition",
    "GraphCode",
    "Grouped",
    "GroupedRound",
    "LagrangeCode",
    "LinearCode",
    "PartialWork",
    "RandomAssignment",
    "RaptorCode",
    "Recovery",
    "ReedSolomon",
    "Request",
    "Residuals",
    "Round",
    "Stream",
    "SumRound",
    "Trust",
    "Uncoded",
    "YeAbbe",
    "make",
    "names",
    "register",
]
__dir__ = listing([*__all__, "conformance"])


def __getattr__(name: str) -> Any:
    if name == "conformance":  # which uses all the rest, and is seldom needed
        return importlib.import_module(".conformance", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
