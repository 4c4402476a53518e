"""What is installed beside Python's files: optional packages, and the library in C.

Optional packages are loaded on use. If one is missing, the error says how to install it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DISTRIBUTION = "gradient-coding"


def pip_install(extra: str) -> str:
    """Return the command that installs an extra in this environment.

    It names the distribution: pip then keeps the version that is installed. A checkout that is not
    installed, but imported from its folder, is named by this folder.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    what = DISTRIBUTION
    try:
        distribution(DISTRIBUTION)
    except PackageNotFoundError:
        checkout = Path(__file__).parents[2]
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
    """Limit BLAS to one thread if threadpoolctl is installed, as it is with ``[train]``.

    With small matrices, threads of BLAS mostly wait for each other, long if other processes run.
    """
    try:
        limits = importlib.import_module("threadpoolctl").threadpool_limits
    except ImportError:
        yield
        return
    with limits(1, "blas"):
        yield


def parquet() -> Any:
    """Return ``pyarrow.parquet``."""
    return _optional("pyarrow.parquet", "parquet files need PyArrow", "parquet")


def ray() -> Any:
    """Return ``ray``."""
    return _optional("ray", "the Ray engine needs Ray", "ray")


def scipy(module: str) -> Any:
    """Return ``scipy.<module>``."""
    return _optional(f"scipy.{module}", "closed forms need SciPy", "planning")


def _optional(module: str, what: str, extra: str) -> Any:
    """Return a module; if it is missing, raise an ImportError that names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{what}: {pip_install(extra)}") from error


def get_include() -> str:
    """Return the folder of ``fastgc.h``, for a C compiler's option ``-I``.

    Raises FileNotFoundError if fastgc was installed without the extension.

    Examples
    --------
    >>> import os
    >>> import fastgc
    >>> os.listdir(fastgc.get_include())  # doctest: +SKIP
    ['fastgc.h', 'kernels.def']
    """
    return str(_installed("include/fastgc.h").parent)


def get_library() -> str:
    """Return the path of the static library ``libfastgc.a``, which needs no Python.

    Link programs with ``-lm -pthread`` as well. For ``pkg-config``, the folder ``pkgconfig`` beside
    the library holds ``fastgc.pc``. Raises FileNotFoundError if fastgc was installed without the
    extension.
    """
    return str(_installed("lib/libfastgc.a", "lib/fastgc.lib"))  # fastgc.lib: on Windows


def _installed(*names: str) -> Path:
    """Return the first of these files that exists.

    An editable installation has two folders, of sources and of build results.
    """
    folders = [Path(folder) for folder in sys.modules["fastgc"].__path__]
    for file in (folder / name for folder in folders for name in names):
        if file.is_file():
            return file
    raise FileNotFoundError(
        f"this installation of fastgc has no {names[0]}, which is built with the extension in C: "
        f"looked in {', '.join(map(str, folders))}; install fastgc again, or if these are sources, "
        "start Python in another folder"
    )
