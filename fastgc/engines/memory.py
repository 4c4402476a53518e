"""Objects for other processes: pickled to bytes, or in shared memory that they use in place.

Whatever cannot be sent raises an error that says why.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import io
import mmap
import os
import pickle
import struct
import sys
import tempfile
from collections.abc import Callable
from typing import Any, Literal, Self

from .interface import Task

_COUNT = struct.Struct("=q")  # number of parts: a pickle, and the buffers kept out of it
_PART = struct.Struct("=qq")  # where a part begins, its bytes
_ALIGNED = 64  # parts begin at multiples of this many bytes
_APART = 1 << 12  # buffers of at least this many bytes are parts of their own
_FUTURE_WRITE = 0x10  # F_SEAL_FUTURE_WRITE, which Python lacks: only maps made before can write


def packed(thing: Any, apart: list[memoryview] | None = None) -> bytes:
    """Pickle a thing for ``pickle.loads`` in another process.

    Functions and classes are pickled by name if that process can import them. Others are pickled by
    value if cloudpickle is installed: those of an interactive session, of a notebook, of a program
    without a file, and of the inside of a function. If nothing can pickle it, TypeError says what
    can be pickled. With a list `apart`, larger arrays are kept out of the pickle, and their memory
    is appended there.
    """
    has_cloudpickle = importlib.util.find_spec("cloudpickle") is not None
    interactive = hasattr(sys, "ps1")  # at a prompt of Python or IPython
    by_name = main_is_importable() and not interactive
    try:
        try:
            if by_name or not has_cloudpickle:
                return _pickled(pickle.Pickler, thing, apart)
        except (pickle.PicklingError, AttributeError, TypeError):
            if not has_cloudpickle:
                raise
        import cloudpickle

        return _pickled(cloudpickle.Pickler, thing, apart)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"workers cannot be sent what pickle cannot store ({error}): they find functions and "
            "classes by their names, at the top level of a module or script"
            + ("" if has_cloudpickle else "; others they are sent if cloudpickle is installed")
        ) from error


def _pickled(pickler: Callable[..., Any], thing: Any, apart: list[memoryview] | None) -> bytes:
    def keep(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= _APART:
            buffers.append(raw)
        return raw.nbytes < _APART

    file = io.BytesIO()
    buffers: list[memoryview] = []
    callback = None if apart is None else keep
    pickler(file, pickle.HIGHEST_PROTOCOL, buffer_callback=callback).dump(thing)
    if apart is not None:  # only now: what cannot be pickled leaves nothing there
        apart += buffers
    return file.getvalue()


def main_is_importable() -> bool:
    """Whether another process can import the program: as a module by its name, or from its file.

    It cannot if the program comes from a pipe, from ``-c``, from a notebook, from a folder or
    archive that is run, whose name is its own alone, or from a deleted script.
    """
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        name: str = spec.name
        return name.rpartition(".")[2] != "__main__"
    return isinstance(file, str) and os.path.isfile(file)  # Python makes it absolute


def packed_for_ranks(task: Task, ranks: int, command: str, busy: bool) -> tuple[bytes, list[bytes]]:
    """Pack what all workers start with, and the data of each worker, to be sent to their ranks.

    All is pickled before anything is sent: an error leaves the ranks as they are. Raises ValueError
    unless there is a rank for each worker and the master, RuntimeError if the ranks are busy with
    another cluster, and TypeError as `packed` does.
    """
    n = task.code.n
    if ranks != n + 1:
        raise ValueError(
            f"a code of {n} workers needs {n + 1} ranks, one of them the master "
            f"({command} {n + 1}), not {ranks}"
        )
    if busy:
        raise RuntimeError("another cluster on these ranks is open: close it first")
    common = packed(task.without_data())
    return common, [packed(task.data(worker)) for worker in range(n)]


class Memory:
    """Memory that another process also maps, once it has the open file.

    It has no name in the file system. So it ends with its processes, however they end, and the size
    of /dev/shm does not bound it. On Linux it is sealed: no process can change its size, which
    would kill others that read it.

    Parameters
    ----------
    nbytes : int
    fd : int, optional
        The open file of existing memory. Default: new memory.
    access : "write", "read" or "copy"
        With "copy", other processes do not see what is written here; only then is a page copied.
    alone : bool
        Whether only this process may ever write to new memory. Linux enforces that from 5.1 on.
    """

    def __init__(
        self,
        nbytes: int,
        fd: int | None = None,
        access: Literal["write", "read", "copy"] = "write",
        *,
        alone: bool = False,
    ) -> None:
        self.fd = _anonymous_file() if fd is None else fd
        self.nbytes = nbytes
        by_name = {"write": mmap.ACCESS_WRITE, "read": mmap.ACCESS_READ, "copy": mmap.ACCESS_COPY}
        try:
            if fd is None:
                os.ftruncate(self.fd, nbytes)
            self.map = mmap.mmap(self.fd, nbytes, access=by_name[access])
            if fd is None and hasattr(os, "memfd_create"):
                _seal(self.fd, alone)
        except BaseException:
            if fd is None:
                os.close(self.fd)
            raise

    @classmethod
    def of(cls, value: Any, pickler: Callable[..., Any] | None = None) -> Self:
        """Memory that holds an object, `packed` or pickled by `pickler`, and its larger arrays."""
        apart: list[memoryview] = []
        head = packed(value, apart) if pickler is None else _pickled(pickler, value, apart)
        contents = [memoryview(head), *apart]
        at = _COUNT.size + len(contents) * _PART.size
        places = []
        for each in contents:
            at = -(-at // _ALIGNED) * _ALIGNED
            places.append((at, each.nbytes))
            at += each.nbytes
        memory = cls(at, alone=True)
        _COUNT.pack_into(memory.map, 0, len(places))
        for i, (place, each) in enumerate(zip(places, contents, strict=True)):
            _PART.pack_into(memory.map, _COUNT.size + i * _PART.size, *place)
            memory.map[place[0] : sum(place)] = each
        return memory

    def load(self) -> Any:
        """The object in this memory. Its larger arrays lie here, and keep the memory mapped."""
        (count,) = _COUNT.unpack_from(self.map, 0)
        whole = memoryview(self.map)
        head, *buffers = (
            whole[at : at + nbytes]
            for at, nbytes in _PART.iter_unpack(whole[_COUNT.size :][: count * _PART.size])
        )
        return pickle.loads(head, buffers=buffers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file descriptor; the mapping stays as long as arrays use it."""
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self.map.close()


def _seal(fd: int, alone: bool) -> None:
    if alone:
        with contextlib.suppress(OSError):  # an older Linux refuses this seal
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _FUTURE_WRITE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fastgc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
