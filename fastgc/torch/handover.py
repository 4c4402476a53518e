"""The state that a newcomer gets from a running rank: over one connection, tensor by tensor.

Neither end holds a copy of the whole state: the sender reads one tensor at a time, and the receiver
fills the tensors that its objects then load.
"""

from __future__ import annotations

import io
import pickle
import socket
import struct
from typing import Any

import torch

_HEAD = struct.Struct("!Q")


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
    line.sendall(_HEAD.pack(file.tell()))
    line.sendall(file.getbuffer())
    for each in pickler.tensors:
        if each.numel():
            line.sendall(_bytes(each.cpu().contiguous()))
    if line.recv(1) != b"!":
        raise ConnectionError("the newcomer is gone")


def receive(line: socket.socket) -> Any:
    """Receive a state. Raises OSError if the other end is gone."""
    (size,) = _HEAD.unpack(_read(line, memoryview(bytearray(_HEAD.size))))
    unpickler = _Unpickler(io.BytesIO(_read(line, memoryview(bytearray(size)))))
    state = unpickler.load()
    for each in unpickler.tensors:
        if each.numel():
            _read(line, _bytes(each.detach()))
    line.sendall(b"!")
    return state


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
