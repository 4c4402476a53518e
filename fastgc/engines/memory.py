"""Memory that processes share, and objects in it, whose arrays are used where they lie."""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import struct
import tempfile
from collections.abc import Callable
from typing import Any, Literal, Self

from .packing import Keep, packed

__all__ = ["Memory"]

_COUNT = struct.Struct("=q")  # of parts: a pickle, and the buffers that it leaves out
_PART = struct.Struct("=qq")  # where it begins, its bytes
_ALIGNED = 64  # parts begin at multiples of it
_APART = 1 << 12  # bytes from which on a buffer is a part of its own


class Memory:
    """Memory that another process maps too, once it has been given the open file.

    It has no name in the file system, so that however the processes end, it ends with them, and
    the size of /dev/shm does not bound it.

    Parameters
    ----------
    nbytes : int
    fd : int, optional
        The open file of one that there is. Default: a new one.
    access : "write", "read" or "copy"
        "copy": what is written here is seen by nobody else, and only then is a page copied.

    Attributes
    ----------
    fd : int
    nbytes : int
    map : mmap
    """

    def __init__(
        self, nbytes: int, fd: int | None = None, access: Literal["write", "read", "copy"] = "write"
    ) -> None:
        self.fd = _anonymous_file() if fd is None else fd
        self.nbytes = nbytes
        by_name = {"write": mmap.ACCESS_WRITE, "read": mmap.ACCESS_READ, "copy": mmap.ACCESS_COPY}
        try:
            if fd is None:
                os.ftruncate(self.fd, nbytes)
            self.map = mmap.mmap(self.fd, nbytes, access=by_name[access])
        except BaseException:
            if fd is None:
                os.close(self.fd)
            raise

    @classmethod
    def of(cls, value: Any, pack: Callable[[Any, Keep], bytes] = packed) -> Self:
        """Memory that holds a pickled object, and arrays of it as they are."""
        buffers: list[memoryview] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes >= _APART:
                buffers.append(raw)
            return raw.nbytes < _APART

        contents = [memoryview(pack(value, keep)), *buffers]
        at = _COUNT.size + len(contents) * _PART.size
        places = []
        for each in contents:
            at = -(-at // _ALIGNED) * _ALIGNED
            places.append((at, each.nbytes))
            at += each.nbytes
        memory = cls(at)
        _COUNT.pack_into(memory.map, 0, len(places))
        for i, (place, each) in enumerate(zip(places, contents, strict=True)):
            _PART.pack_into(memory.map, _COUNT.size + i * _PART.size, *place)
            memory.map[place[0] : sum(place)] = each
        return memory

    def load(self) -> Any:
        """The object that it holds; arrays of it lie here, and keep the memory."""
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
        """Close the file descriptor; the mapping stays as long as it has arrays."""
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self.map.close()


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fastgc")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
