"""Reading files of others: their kind and size are checked before they are read.

A file may be a pipe that nobody writes to, announce more than memory has, unpack to a thousand
times its size, or contain something else than its name says. What is made of it has a `Budget`. Any
exception while it is read becomes one error, which names the file, says what is wrong, and what
would be right.
"""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from .arrays import Array
from .extras import parquet

Name = str | os.PathLike[str]

_MIB = 2**20
_TEXT = 256 * _MIB  # the largest text file: Python's lists of its numbers take ten times as much
# What a packed file may become: the larger of SMALL bytes and _TIMES its size, if memory allows.
SMALL = 16 * _MIB
_TIMES = 256
_NUMBER = 8  # bytes of a float64, which numbers become, though an entry of a file may take one

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a link, which is not followed"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


class Budget:
    """The bytes that a file of `size` bytes may become. What is made is counted, not announced."""

    def __init__(self, size: int) -> None:
        self.most = self._left = min(max(SMALL, _TIMES * size), half_of_memory())

    def spend(self, made: int) -> None:
        """Count what is made, or is about to be; raise ValueError if it is too much in all."""
        self._left -= made
        if self._left < 0:
            raise ValueError(
                f"it unpacks to more than {_size(self.most)}, the most that a file of its size may "
                "here: keep it unpacked, and below half of the memory"
            )


def path_of(name: Name) -> Path:
    """Return a path, with the user's home in place of ``~``; raise TypeError if it is none."""
    return Path(os.path.expanduser(os.fspath(name)))


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
    path = path_of(path)  # raises for a number, which would name an open file
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
        budget = Budget(_size_of(file))
        with gzip.GzipFile(fileobj=file) as unpacked:
            content = unpacked.read(budget.most // _NUMBER + 1)
        budget.spend(_NUMBER * len(content))
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
        return _array(file, _size_of(file))


def read_npz(path: Name, choose: Callable[[Sequence[str]], Sequence[str]]) -> dict[str, Array]:
    """Return some arrays of an ``.npz`` file, read-only, by their names.

    `choose` takes the list of names in the file, and returns those of the arrays to read.
    """
    arrays = {}
    with opened(path, "readable .npz file") as file, zipfile.ZipFile(file) as archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        budget = Budget(_size_of(file))
        for name in choose(list(entries)):
            entry = entries[name]
            # Others are unpacked without a limit, whatever the entry's size.
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{name} is packed otherwise than NumPy packs arrays")
            with archive.open(entry) as held:
                arrays[name] = _array(held, entry.file_size, budget)
    return arrays


def read_parquet(path: Name) -> tuple[dict[str, Array | str], dict[bytes, bytes]]:
    """Return a parquet file's columns by name, and its metadata.

    Columns of numbers are float64 arrays, with NaN for what is missing. Of others their types are
    returned, and nothing is decoded. Raises ImportError if PyArrow is not installed.
    """
    reader = parquet()
    with opened(path, "readable .parquet file") as file:
        size = _size_of(file)
        budget = Budget(size)
        # Lists and texts of its metadata have no more items and letters than it has bytes.
        limits = {"thrift_container_size_limit": size, "thrift_string_size_limit": size}
        held = reader.ParquetFile(file, pre_buffer=False, **limits)
        schema = held.schema_arrow
        kinds = {each.name: str(each.type) for each in schema}
        numbers = [name for name, kind in kinds.items() if _PARQUET_NUMBERS.fullmatch(kind)]
        dots = ((name, at.start()) for name in kinds for at in re.finditer("[.]", name))
        if len(kinds) < len(schema) or any(name[:dot] in kinds for name, dot in dots):
            raise ValueError("two of its columns go by the same name")
        _check_pages(file, size, set(numbers), budget)
        parts: list[list[Array]] = [[] for _ in numbers]
        rows = max(1, _BATCH // max(1, len(numbers)))
        for batch in held.iter_batches(rows, columns=numbers, use_threads=False):
            budget.spend(_NUMBER * batch.num_rows * len(numbers))
            for part, column in zip(parts, batch.columns, strict=True):
                part.append(column.to_numpy(zero_copy_only=False).astype(np.float64))
        whole = (np.concatenate(part) if part else np.empty(0) for part in parts)
        columns: dict[str, Array | str] = {**kinds, **dict(zip(numbers, whole, strict=True))}
        return columns, schema.metadata or {}


_PARQUET_NUMBERS = re.compile(r"u?int\d+|halffloat|float|double")
_BATCH = 2**17  # numbers of all columns that are decoded at a time
_HEADER = 4096  # bytes of the longest header of a page, which has a few numbers
_EMPTY = 512  # bytes that a page of nothing counts as, for the time it takes


def _check_pages(file: BinaryIO, size: int, names: set[str], budget: Budget) -> None:
    """Spend what pages of these columns unpack to, by their own headers.

    PyArrow unpacks a page to the size in its header, whatever the file's metadata say. And it ends
    the process if one asks it for some metadata that are damaged.
    """
    file.seek(size - 8)
    length = int.from_bytes(file.read(4), "little")
    file.seek(size - 8 - length)
    groups = _Thrift(file.read(length)).structure()[4]
    for chunk in (chunk[3] for group in groups for chunk in group[1]):
        if b".".join(chunk[3]).decode() not in names:
            continue
        left, at, dictionary = chunk[5], chunk[9], chunk.get(11, 0)
        at = dictionary if 0 < dictionary < at else at
        while left > 0:
            file.seek(at)
            header = _Thrift(file.read(_HEADER))
            page = header.structure()
            unpacked, packed = page[2], page[3]
            values = page.get(5, page.get(8, {1: 0}))[1]  # of version 1 or 2
            entries = page.get(7, {1: 0})[1]  # of a dictionary
            if min(unpacked, packed, values, entries) < 0:
                raise ValueError("a page has a negative size")
            budget.spend(unpacked + _NUMBER * entries + _EMPTY)
            left -= values
            at += header.at + packed


class _Thrift:
    """Reads structures in Thrift's compact protocol, as parquet files have them."""

    def __init__(self, held: bytes) -> None:
        self.held, self.at = held, 0

    def structure(self) -> dict[int, Any]:
        """Return the fields by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            if number in fields:  # readers would differ
                raise ValueError("it has a field twice")
            kind = head & 15
            fields[number] = kind == 1 if kind < 3 else self._value(kind)  # 1: true, 2: false
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 12:
            return self.structure()
        if kind == 9:
            head = self._byte()
            count = self._length() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15) for _ in range(count)]
        length = self._length() if kind == 8 else {1: 1, 2: 1, 3: 1, 7: 8}[kind]
        self.at += length
        if self.at > len(self.held):
            raise ValueError("it is cut off")
        return self.held[self.at - length : self.at]

    def _byte(self) -> int:
        self.at += 1
        return self.held[self.at - 1]

    def _length(self) -> int:
        found = shift = 0
        while (byte := self._byte()) > 127:
            found, shift = found | (byte & 127) << shift, shift + 7
        return found | byte << shift

    def _integer(self) -> int:
        coded = self._length()
        return coded >> 1 ^ -(coded & 1)


def _array(file: IO[bytes], size: int, budget: Budget | None = None) -> Array:
    """Return the array of a file of `size` bytes; raise unless its header announces this size."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, by_columns, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"an array of numbers has a header of version 1 or 2, not {version[0]}")
    if dtype.hasobject or not dtype.itemsize:  # what takes no bytes may have any shape
        raise ValueError("it holds objects of Python, or nothing, not numbers")
    announced, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or announced != there:
        raise ValueError(
            f"its header announces the shape {shape} of {dtype}, {_size(announced)}, but "
            f"{_size(there)} follow"
        )
    if budget is not None:
        budget.spend(max(announced, _NUMBER * math.prod(shape)))
    return np.ndarray(shape, dtype, file.read(there), order="F" if by_columns else "C")


def _check_kind(path: Name, found: os.stat_result, what: str, error: type[ValueError]) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for test, name in _KINDS if test(found.st_mode)), "a device")
        raise error(f"{path} is {kind}: name a file, a {what}")


def _size_of(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


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
