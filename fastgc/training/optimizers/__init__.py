"""Gradient methods for the master, and schedules of their learning rates."""

from ..._base.text import listing
from .adaptive import CADA, GCADA
from .descent import SGD, AMSGrad, Nesterov, Optimizer
from .schedules import CosineDecay, StepDecay

__all__ = ["CADA", "GCADA", "SGD", "AMSGrad", "CosineDecay", "Nesterov", "Optimizer", "StepDecay"]
__dir__ = listing(__all__)
