"""Gradient codes, one file per scheme over the small base in ``base``."""

from .base import Code, Decoder, Encoder, Round, Trust
from .reed_solomon import ReedSolomon
from .uncoded import Uncoded

__all__ = ["Code", "Decoder", "Encoder", "ReedSolomon", "Round", "Trust", "Uncoded"]
