"""The command ``fastgc``: one file for each group of commands."""

from . import codes, info, reproduce, stability, train  # noqa: F401  (each adds its commands)
from .common import app

__all__ = ["app"]
