"""The state that a newcomer gets from a running rank: over one connection, tensor by tensor.

Neither end holds a copy of the whole state: the sender reads one tensor at a time, and the receiver
fills the tensors that its objects then load. A newcomer gets the state twice, and tells what it has
of those tensors that its step alone left as they were: frozen layers go over the line once.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import socket
import struct
from typing import Any

import torch

_HEAD = struct.Struct("!Q")
_DIGEST = 16  # bytes


class _Pickler(pickle.Pickler):
    """Pickles all but tensors, which it collects."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, torch.Tensor) or obj.layout is not torch.strided:
            return None
        self.tensors.append(obj.detach())
        return len(self.tensors) - 1, obj.dtype, tuple(obj.shape), obj.requires_grad


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[torch.Tensor] = []

    def persistent_load(self, pid: Any) -> torch.Tensor:
        number, dtype, shape, requires_grad = pid
        while len(self.tensors) <= number:
            self.tensors.append(torch.empty(0))
        if self.tensors[number].shape != shape or self.tensors[number].dtype != dtype:
            self.tensors[number] = torch.empty(shape, dtype=dtype).requires_grad_(requires_grad)
        return self.tensors[number]


def send(line: socket.socket, state: Any) -> None:
    """Send a state; wait until it was received. Raises OSError if the other end is gone."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(state)
    known = bytes(_read_sized(line))
    line.sendall(_HEAD.pack(file.tell()))
    line.sendall(file.getbuffer())
    for at, each in enumerate(pickler.tensors):
        has = known[at * _DIGEST : (at + 1) * _DIGEST]
        same = has.strip(b"\0") != b"" and has == _digest(each)
        line.sendall(b"=" if same else b"!")
        if not same and each.numel():
            line.sendall(_bytes(each.cpu().contiguous()))
    if line.recv(1) != b"!":
        raise ConnectionError("the newcomer is gone")


def receive(line: socket.socket, before: Any = None, known: bytes = b"") -> Any:
    """Receive a state. Raises OSError if the other end is gone.

    `before` is the state that this end has, and `known` what `kept` returned of it.
    """
    line.sendall(_HEAD.pack(len(known)) + known)
    old = _tensors(before)
    unpickler = _Unpickler(io.BytesIO(_read_sized(line)))
    state = unpickler.load()
    for at, each in enumerate(unpickler.tensors):
        if bytes(_read(line, memoryview(bytearray(1)))) == b"=":
            each.data.copy_(old[at])
        elif each.numel():
            _read(line, _bytes(each.detach()))
    line.sendall(b"!")
    return state


def digests(state: Any) -> bytes:
    """Return what most likely differs if any bit of a state's tensors differs."""
    return b"".join(map(_digest, _tensors(state)))


def kept(first: bytes, second: bytes) -> bytes:
    """Return those of the second digests that are also the first ones, and zeros."""
    parts = [second[at : at + _DIGEST] for at in range(0, len(second), _DIGEST)]
    same = [
        each if first[at * _DIGEST :].startswith(each) else bytes(_DIGEST)
        for at, each in enumerate(parts)
    ]
    return b"".join(same)


def _tensors(state: Any) -> list[torch.Tensor]:
    pickler = _Pickler(io.BytesIO())
    pickler.dump(state)
    return pickler.tensors


def _digest(tensor: torch.Tensor) -> bytes:
    """Return what most likely no other tensor has."""
    kind = repr((tensor.dtype, tuple(tensor.shape))).encode()
    data = _bytes(tensor.cpu().contiguous()) if tensor.numel() else b""
    return hashlib.blake2b(data, digest_size=_DIGEST, key=kind[:64]).digest()


def _read_sized(line: socket.socket) -> memoryview:
    (size,) = _HEAD.unpack(_read(line, memoryview(bytearray(_HEAD.size))))
    return _read(line, memoryview(bytearray(size)))


def _bytes(tensor: torch.Tensor) -> memoryview:
    array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _read(line: socket.socket, memory: memoryview) -> memoryview:
    left = memory
    while left:
        got = line.recv_into(left)
        if not got:
            raise ConnectionError("the rank that sends the state is gone")
        left = left[got:]
    return memory
