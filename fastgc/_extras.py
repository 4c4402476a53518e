"""Optional dependencies, loaded on use, or an error that says how to get them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["one_thread_of_blas", "parquet", "pip_install", "ray", "scipy"]

DISTRIBUTION = "gradient-coding"


def pip_install(extra: str) -> str:
    """Return the command that installs an extra, as it works here.

    By name, for pip takes what is installed already. A checkout that is not installed, but is
    imported from where it lies, is named by its folder.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    what = DISTRIBUTION
    try:
        distribution(DISTRIBUTION)
    except PackageNotFoundError:
        checkout = Path(__file__).parents[1]
        if _is_checkout(checkout):
            what = "." if checkout.samefile(".") else str(checkout)
    return f'pip install "{what}[{extra}]"'


def _is_checkout(folder: Path) -> bool:
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return False
    return f'name = "{DISTRIBUTION}"' in text


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """BLAS on one thread, where threadpoolctl is there to see to it, as scikit-learn brings it.

    For small matrices: on these its threads wait for each other, long where other processes run.
    """
    try:
        limits = importlib.import_module("threadpoolctl").threadpool_limits
    except ImportError:
        yield
        return
    with limits(1, "blas"):
        yield


def parquet() -> Any:
    """``pyarrow.parquet``; ImportError that names the extra if PyArrow is not installed."""
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError(f"parquet files need PyArrow: {pip_install('parquet')}") from error


def ray() -> Any:
    """``ray``; ImportError that names the extra if Ray is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError(f"the Ray engine needs Ray: {pip_install('ray')}") from error


def scipy(module: str) -> Any:
    """``scipy.<module>``; ImportError that names the extra if SciPy is not installed."""
    try:
        return importlib.import_module(f"scipy.{module}")
    except ImportError as error:
        raise ImportError(f"closed forms need SciPy: {pip_install('planning')}") from error
