"""Writing files: a path is probed before the work, and a file is replaced as a whole.

Whoever reads a file finds its old content or its new one, also if the disk was full or the process
was killed meanwhile: the new content is written to a file beside it, which then takes its name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .files import Name, path_of

_LOCK = fcntl.LOCK_EX | fcntl.LOCK_NB
_BLOCK = 4096  # bytes that a probe writes: with an empty file, a full disk would not be noticed


def probe(path: Name) -> None:
    """Raise unless a file can be written to this path; whatever is there stays as it is.

    Raises ValueError for a folder or a socket, or if there is no folder to write it to, and OSError
    with the path if it must not be written to, or the disk is full.
    """
    path = path_of(path)
    target, found = _target(path)
    if found is not None and not stat.S_ISREG(found.st_mode):
        return  # a device or a pipe, which keeps what it gets
    with _naming(path, "; name a file in another folder"), _part(target) as (file, part):
        write_all(file, bytes(_BLOCK))
        part.unlink()


def write_file(path: Name, *pieces: Any, own: bool = False) -> None:
    """Replace a file by these bytes. It keeps its mode and owner, and a link stays a link.

    An `own` file is in a folder that one process uses at a time. A link in its place is replaced.
    When `write_file` returns, it survives a loss of power.

    Raises as `probe` does; the file is then unchanged, unless it is a device.
    """
    path = path_of(path)
    target, found = (path, None) if own else _target(path)
    with _naming(path):
        if found is not None and not stat.S_ISREG(found.st_mode):
            with open(path, "wb", buffering=0) as through:
                for piece in pieces:
                    write_all(through.fileno(), piece)
            return
        with _part(target) as (file, part):
            if found is not None:
                with contextlib.suppress(OSError):  # another's file, which only root can give back
                    os.fchown(file, found.st_uid, found.st_gid)
                os.fchmod(file, stat.S_IMODE(found.st_mode))
            for piece in pieces:
                write_all(file, piece)
            os.fsync(file)
            os.replace(part, target)
        if own:
            sync_folder(target.parent)


def write_all(file: int, content: Any) -> None:
    """Write all of `content` to an open file."""
    left = memoryview(content).cast("B")
    while left:
        left = left[os.write(file, left) :]


def sync_folder(folder: Path) -> None:
    """Make sure that files made or renamed in a folder survive a loss of power."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _target(path: Path) -> tuple[Path, os.stat_result | None]:
    """Return the file that a path leads to, and what is there; raise as `probe` does."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        found = None
    target = Path(os.path.realpath(path))
    if found is None and not target.parent.is_dir():
        if path.is_symlink():
            raise ValueError(f"{path} is a link to {target}, whose folder is not there")
        raise ValueError(f"there is no folder {path.parent} to write {path.name} to")
    if found is not None:
        for test, kind in ((stat.S_ISDIR, "folder"), (stat.S_ISSOCK, "socket")):
            if test(found.st_mode):
                raise ValueError(f"{path} is a {kind}: name a file")
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
    return target, found


@contextlib.contextmanager
def _part(target: Path) -> Iterator[tuple[int, Path]]:
    """Yield a new file beside `target`, open for writing, and its path; an error removes it.

    It is locked. Those that nobody has locked are left of killed processes, and are removed.
    """
    for left in target.parent.glob(".fastgc-*.part"):
        with contextlib.suppress(OSError), open(left, "rb", opener=_opener) as other:
            fcntl.flock(other, _LOCK)
            left.unlink()
    while True:
        part = target.with_name(f".fastgc-{secrets.token_hex(8)}.part")
        with open(part, "xb", buffering=0, opener=_opener) as file:
            if _taken(file.fileno()):
                continue
            try:
                yield file.fileno(), part
            except BaseException:
                with contextlib.suppress(OSError):
                    part.unlink()
                raise
            return


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def _taken(file: int) -> bool:
    """Lock a new file; return whether another process removes it, which found it before that."""
    try:
        fcntl.flock(file, _LOCK)
    except BlockingIOError:
        return True
    except OSError:  # this disk knows no locks, so nobody removes anything
        return False
    return os.fstat(file).st_nlink == 0


@contextlib.contextmanager
def _naming(path: Name, advice: str = "") -> Iterator[None]:
    """Let errors of the disk name this path, not that of a part."""
    try:
        yield
    except OSError as error:
        said = f"{error.strerror or error}{advice}"
        raise OSError(error.errno, said, os.fspath(path)) from error
