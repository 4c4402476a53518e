"""Reading files of others: their kind and size are checked before they are read.

A file may be a pipe that nobody writes to, announce more than memory has, unpack to a thousand
times its size, or contain something else than its name says. Any exception while it is read becomes
one error, which names the file, says what is wrong, and what would be right.
"""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, BinaryIO

import numpy as np

from .arrays import Array
from .extras import parquet

Name = str | os.PathLike[str]

_MIB = 2**20
_TEXT = 256 * _MIB  # the largest text file: Python's lists of its numbers take ten times as much
# A packed file may unpack to the larger of SMALL bytes and _TIMES its size, if memory allows.
SMALL = 256 * _MIB
_TIMES = 100

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link, which is not followed"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


@contextmanager
def refusing(path: Name, what: str, error: type[ValueError] = ValueError) -> Iterator[None]:
    """Raise one error that names the file, whatever its content makes parsers raise.

    `what` says what the file should be, as in "... is no readable .npy file". Errors of the disk
    keep their type, and get the file's name.
    """
    try:
        yield
    except OSError as wrong:
        # Parsers raise OSError without a number, and seeks before the file's begin give EINVAL.
        if wrong.errno not in (None, errno.EINVAL):
            wrong.filename = wrong.filename or os.fspath(path)
            raise
        raise error(f"{path} is no {what}: {_said(wrong)}") from wrong
    except Exception as wrong:
        raise error(f"{path} is no {what}: {_said(wrong)}") from wrong


@contextmanager
def opened(
    path: Name,
    what: str,
    *,
    error: type[ValueError] = ValueError,
    limit: int | None = None,
    links: bool = True,
) -> Iterator[BinaryIO]:
    """Open a file for reading, if it is a file and not too large, and use `refusing` meanwhile.

    It may have `limit` bytes (default: half of this machine's memory), and `links` says whether to
    follow a link. Raises `error` if it is a folder, a pipe, a device or too large, OSError if it is
    not there or cannot be read, and TypeError if `path` is no path.
    """
    os.fspath(path)  # raises for a number, which would name an open file
    most = half_of_memory() if limit is None else limit
    _check_kind(path, os.stat(path, follow_symlinks=links), what, error)
    # If a pipe has replaced the file meanwhile, open it without waiting for its writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    with open(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        _check_kind(path, found, what, error)
        if found.st_size > most:
            raise error(
                f"{path} has {_size(found.st_size)}, more than the {_size(most)} that a "
                f"{what} may have here"
            )
        with refusing(path, what, error):
            yield file


def read_bytes(
    path: Name,
    what: str,
    *,
    error: type[ValueError] = ValueError,
    links: bool = True,
    packed: bool = False,
) -> bytes:
    """Return the file's bytes; if `packed` is True, unpack a gzip file."""
    with opened(path, what, error=error, links=links) as file:
        if not packed or file.read(2) != b"\x1f\x8b":
            file.seek(0)
            return file.read()
        file.seek(0)
        most = _most_unpacked(os.fstat(file.fileno()).st_size)
        with gzip.GzipFile(fileobj=file) as unpacked:
            content = unpacked.read(most + 1)
        _check_unpacked(len(content), most)
        return content


def read_text(path: Name, what: str) -> str:
    """Return the text of a UTF-8 file."""
    with opened(path, what, limit=_TEXT) as file:
        return file.read().decode("utf-8-sig")  # spreadsheets write a byte order mark first


def read_json(path: Name, what: str) -> Any:
    """Return the value that a JSON file holds."""
    text = read_text(path, what)
    with refusing(path, what):
        return json.loads(text)


def read_npy(path: Name) -> Array:
    """Return the array of an ``.npy`` file, read-only."""
    with opened(path, "readable .npy file") as file:
        return _array(file, os.fstat(file.fileno()).st_size)


def read_npz(path: Name, choose: Callable[[Sequence[str]], Sequence[str]]) -> dict[str, Array]:
    """Return some arrays of an ``.npz`` file, read-only, by their names.

    `choose` takes the list of names in the file, and returns those of the arrays to read.
    """
    what = "readable .npz file"
    with opened(path, what) as file, zipfile.ZipFile(file) as archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
    wanted = choose(list(entries))
    arrays = {}
    with opened(path, what) as file, zipfile.ZipFile(file) as archive:
        for name in wanted:
            entry = entries[name]
            _check_unpacked(entry.file_size, _most_unpacked(entry.compress_size))
            with archive.open(entry) as held:
                arrays[name] = _array(held, entry.file_size)
    return arrays


def read_parquet(path: Name) -> Any:
    """Return the table of a parquet file; raise ImportError if PyArrow is not installed."""
    reader = parquet()
    with opened(path, "readable .parquet file") as file:
        held = reader.ParquetFile(file)
        found = held.metadata
        _check_unpacked(8 * found.num_rows * found.num_columns, half_of_memory())
        return held.read()


def _array(file: IO[bytes], size: int) -> Array:
    """Return the array of a file of `size` bytes; raise unless its header announces this size."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"an array of numbers has a header of version 1 or 2, not {version[0]}")
    if dtype.hasobject:
        raise ValueError("it holds objects of Python, not numbers")
    announced, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or announced != there:
        raise ValueError(
            f"its header announces the shape {shape} of {dtype}, {_size(announced)}, but "
            f"{_size(there)} follow"
        )
    return np.ndarray(shape, dtype, file.read(there), order="F" if by_columns else "C")


def _check_kind(path: Name, found: os.stat_result, what: str, error: type[ValueError]) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for test, name in _KINDS if test(found.st_mode)), "a device")
        raise error(f"{path} is {kind}: name a file, a {what}")


def _most_unpacked(packed: int) -> int:
    return min(max(SMALL, _TIMES * packed), half_of_memory())


def _check_unpacked(size: int, most: int) -> None:
    if size > most:
        raise ValueError(
            f"it unpacks to more than {_size(most)}, the most that a file of its size may here: "
            "keep it unpacked, and below half of the memory"
        )


def half_of_memory() -> int:
    """Return half of this machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _size(count: int) -> str:
    return f"{count / _MIB:,.0f} MiB" if count >= 10 * _MIB else f"{count:,} bytes"


def _said(error: Exception) -> str:
    """Return an error's message in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it takes more memory than there is"
    named = isinstance(error, OSError) and error.strerror
    text = " ".join(str(named or error).split())
    text = text if len(text) <= 300 else f"{text[:300]}…"
    # The text of other errors, such as KeyError, may be just the key: add their names.
    plain = isinstance(error, ValueError | TypeError | OSError | zipfile.BadZipFile) and text
    return text if plain else f"{type(error).__name__} {text}".rstrip()
