"""The command ``fastgc``: one file for each group of commands."""

from . import codes, fit, info, planning, reproduce, stability, train  # noqa: F401  (add commands)
from .common import app

__all__ = ["app"]
