"""``fastgc info``."""

from __future__ import annotations

import platform
from base64 import urlsafe_b64encode
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, kernels
from ..kernels.c import simd
from . import options
from .common import MORE, command, echo
from .output import Output


class Facts(Output):
    """Output as JSON only, because facts are no table."""

    json_file: Path | None = options.figures("json", "Write all facts to this file as JSON")


@command(MORE, "fastgc info --json")
def info(output: Facts) -> None:
    """Print the version, where it is imported from, backend, SIMD level, threads."""
    output.check()
    facts: dict[str, Any] = {
        "version": __version__,
        "backend": kernels.backend(),
        "simd": simd(),
        "threads": kernels.threads.get_num_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "package": str(Path(__file__).parents[1]),
        "files": files(Path(__file__).parents[1]),
    }

    def show() -> None:
        for name, value in facts.items():
            shown = ", ".join(value) if isinstance(value, list) else value
            echo(f"{name:<10} {shown}")

    output.deliver(facts, (), show)


def files(package: Path) -> str:
    """Say whether the files of a folder are those that were installed as gradient-coding.

    PyPI's `fastgc` is another project with the same folder: what is installed last writes over the
    files of the other.
    """
    try:
        ours = distribution("gradient-coding")
    except PackageNotFoundError:
        return "of a checkout: gradient-coding is not installed"
    installed = Path(str(ours.locate_file(package.name)))
    if not installed.exists():  # an editable installation
        return "as in the checkout"
    if not installed.samefile(package):
        return f"not those of {installed}, which comes later on Python's path"
    wrong = changed(ours)
    if not wrong:
        return "as installed"
    return (
        f"{len(wrong)} not as installed, such as {wrong[0]}: uninstall fastgc, then reinstall "
        f"gradient-coding {ours.version} (pip: --force-reinstall --no-deps)"
    )


def changed(installed: Distribution) -> list[str]:
    """Return the Python files of a distribution that differ from what was installed."""
    found = []
    for each in installed.files or ():
        path = Path(str(each.locate()))
        if each.suffix == ".py" and each.hash is not None and path.exists():
            digest = urlsafe_b64encode(sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
            found += [str(each)] * (digest != each.hash.value)
    return found
