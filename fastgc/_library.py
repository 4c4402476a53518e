"""Where programs in C find the kernels: a header, and a library to link against."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["get_include", "get_library"]


def get_include() -> str:
    """Folder of ``fastgc.h``, for a C compiler's option ``-I``.

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
    """Path of the static library ``libfastgc.a``, which needs no Python.

    Programs also need the mathematical library and threads: ``-lm -pthread``. For ``pkg-config``,
    the folder ``pkgconfig`` beside the library has ``fastgc.pc``.

    Returns
    -------
    str

    Raises
    ------
    FileNotFoundError
        If fastgc was installed without the extension.
    """
    return str(_installed("lib/libfastgc.a", "lib/fastgc.lib"))  # the latter is Windows'


def _installed(*names: str) -> Path:
    """The first of these files that there is.

    An editable installation has two folders: the sources, and what was built of them.
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
