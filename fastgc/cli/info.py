"""``fastgc info``."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from .. import __version__, kernels
from .common import app


@app.command()
def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print version, backends found, SIMD level chosen and threads."""
    facts: dict[str, Any] = {
        "version": __version__,
        "backend": kernels.backend(),
        "backends": list(kernels.backends()),
        "simd": _simd(),
        "threads": kernels.threads.get_num_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "package": str(Path(__file__).parents[1]),
    }
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        typer.echo(f"{name:<9} {shown}")


def _simd() -> str:
    try:
        from ..kernels import c_backend
    except ImportError:
        return "none (the compiled extension is missing)"
    return c_backend.simd()
