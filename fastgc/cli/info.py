"""``fastgc info``."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, kernels
from ..kernels import fourier
from . import options
from .common import MORE, command, echo
from .output import Output


class Facts(Output):
    """Output as JSON only, because facts are no table."""

    json_file: Path | None = options.figures("json", "Write all facts to this file as JSON")


@command(MORE, "fastgc info --json")
def info(output: Facts) -> None:
    """Print the version, backends, SIMD level, threads, and where Fourier transforms take over."""
    output.check()
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
        "transforms": {
            "kind": fourier.crossover_kind(),
            "factors": dict(fourier.crossover_table()),
        },
    }
    if output.write(facts):
        return
    found = facts["transforms"]
    some = [f"s={s} at n={m}" for m, s in found["factors"].items() if 2 * s <= m][::3]
    facts["transforms"] = f"from {', '.join(some)} on (for {found['kind']})"
    for name, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        echo(f"{name:<10} {shown}")


def _simd() -> str:
    try:
        from ..kernels.c import simd
    except ImportError:
        return "none (the compiled extension is missing)"
    return simd()
