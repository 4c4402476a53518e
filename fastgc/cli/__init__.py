"""The command ``fastgc``: one file for each group of commands."""

from . import codes, info, planning, reproduce, stability, train  # noqa: F401  (each adds commands)
from .common import app

__all__ = ["app"]
