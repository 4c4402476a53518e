"""Engines: what runs a code on real workers."""

from .local import LocalCluster, RoundReport

__all__ = ["LocalCluster", "RoundReport"]
