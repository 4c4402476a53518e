"""Gradient methods for the master."""

from .descent import SGD, Nesterov, Optimizer

__all__ = ["SGD", "Nesterov", "Optimizer"]
