"""Gradient methods for the master."""

from ..._base.text import listing
from .adaptive import CADA, GCADA
from .descent import SGD, AMSGrad, Nesterov, Optimizer

__all__ = ["CADA", "GCADA", "SGD", "AMSGrad", "Nesterov", "Optimizer"]
__dir__ = listing(__all__)
