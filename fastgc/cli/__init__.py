"""The command ``fastgc``: one file for each group of commands."""

from . import (  # noqa: F401  (add commands)
    codes,
    info,
    plan,
    simulate,
    stability,
    train,
)
from .common import app

__all__ = ["app"]
