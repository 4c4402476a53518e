"""Paths of the C header and of the library, for programs in C that call the kernels."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["get_include", "get_library"]


def get_include() -> str:
    """Return the folder of ``fastgc.h``, for a C compiler's option ``-I``.

    Returns
    -------
    str

    Raises
    ------
    FileNotFoundError
        If fastgc was installed without the extension.

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
    the library holds ``fastgc.pc``.

    Returns
    -------
    str

    Raises
    ------
    FileNotFoundError
        If fastgc was installed without the extension.
    """
    return str(_installed("lib/libfastgc.a", "lib/fastgc.lib"))  # fastgc.lib: on Windows


def _installed(*names: str) -> Path:
    """Return the first of these files that exists.

    An editable installation has two folders, of sources and of build results.
    """
    folders = [Path(folder) for folder in sys.modules["fastgc"].__path__]
    for folder in folders:
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise FileNotFoundError(
        f"this installation of fastgc has no {names[0]}, which is built with the extension in C: "
        f"looked in {', '.join(map(str, folders))}; install fastgc again"
    )
