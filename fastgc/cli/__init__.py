"""The command ``fastgc``: one file for each group of commands."""

from . import (  # noqa: F401  (add commands)
    codes,
    fit,
    info,
    plan,
    reproduce,
    sequential,
    simulate,
    stability,
    sweep,
    train,
    worst,
)
from .common import app

__all__ = ["app"]
