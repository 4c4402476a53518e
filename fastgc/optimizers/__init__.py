"""Gradient methods for the master."""

from .descent import SGD, AMSGrad, Nesterov, Optimizer

__all__ = ["SGD", "AMSGrad", "Nesterov", "Optimizer"]
