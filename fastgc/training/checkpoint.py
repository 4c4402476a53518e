"""Checkpoints of a training run, to resume it after its process has died.

A folder holds two files. ``rounds.jsonl`` has a line of JSON for each round and only grows; the
process that uses the folder locks it. ``checkpoint`` has the parameters and the optimizer's state
after a round, and the size in bytes of the other file up to that round. Bytes after that belong to
a checkpoint that was never finished, and are cut off; without a ``checkpoint``, all of them do.
``checkpoint`` is replaced as a whole, when both files are on the disk.

A checkpoint file is::

    magic, 18 bytes | version, uint32 | length of the head, uint64 | head, JSON | arrays | digest

with little-endian integers, the arrays' bytes as the head describes them, and the BLAKE2b digest of
everything before it, 32 bytes. Unlike a pickle, it contains no code.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from .._base.arrays import Array
from .._base.files import path_of, read_bytes
from .._base.text import listing
from .._base.writing import sync_folder, write_all, write_file
from ..codes import Code
from ..coding.fingerprint import fingerprint
from ..delays.interface import described
from ..errors import CheckpointError
from .data import Dataset

__all__ = ["Checkpoint", "describe", "digest", "read", "write"]
__dir__ = listing(__all__)

MAGIC = b"fastgc checkpoint\n"
VERSION = 1
_PREFIX = struct.Struct("<IQ")
_DIGEST_BYTES = 32

_OWN: dict[str, Any] = {"error": CheckpointError, "links": False}  # how to read files of a run

_DTYPE = re.compile(r"[<>|][biufc]\d+")
_NUMBER = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SCALAR = re.compile(r"np\.(?:float|int|uint)\d+\(([^()]*)\)")  # as NumPy 2 writes its numbers


class Checkpoint:
    """The folder of a run's checkpoint, which one process at a time may use.

    Parameters
    ----------
    folder : path
        It is created if its parent folder exists.
    run : mapping of str to str
        A description of the run (`describe`). A checkpoint in the folder must have the same.

    Attributes
    ----------
    round : int
        Number of rounds in the checkpoint on the disk; 0 if there is none.
    state : dict or None
        The argument of `save` after that round.
    lines : list
        The arguments of `add` for these rounds.

    Raises
    ------
    ValueError
        If the folder cannot be created.
    CheckpointError
        If the checkpoint is damaged or belongs to another run, or another process uses the folder.
    OSError
        If the folder cannot be read or written.
    """

    def __init__(self, folder: str | os.PathLike[str], run: Mapping[str, str]) -> None:
        self._folder = path_of(folder)
        self._run = dict(run)
        self.round = 0
        self.state: dict[str, Any] | None = None
        self.lines: list[Any] = []
        self._pending: list[bytes] = []
        self._hash = _new_hash()
        make_folder(self._folder)
        path = self._folder / "rounds.jsonl"
        with contextlib.ExitStack() as stack:
            flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
            self._history = os.open(path, flags, 0o666)
            stack.callback(os.close, self._history)
            # Lock the very file that a second process would damage.
            try:
                fcntl.flock(self._history, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CheckpointError(
                    f"another process keeps a run in {self._folder}: wait until it ends, or name "
                    "another folder"
                ) from None
            self._size = self._load()
            os.ftruncate(self._history, self._size)
            self._resources = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if self.round and error is not None and not isinstance(error, CheckpointError):
            error.add_note(
                f"round {self.round} is kept in {self._folder}: repeat the run to go on from there"
            )

    def close(self) -> None:
        """Release the folder, and lose what was not saved; a second call does nothing."""
        self._pending.clear()
        self._resources.close()

    def add(self, line: Any) -> None:
        """Add the next item of `lines`, in types that JSON has, for one more round."""
        self._pending.append(json.dumps(line, default=_plain).encode() + b"\n")

    def save(self, state: Mapping[str, Any]) -> None:
        """Save the rounds added so far, and the state after them.

        Even if it fails midway, the checkpoint on the disk is either the previous one or this one.

        Parameters
        ----------
        state : mapping
            As in `write`.

        Raises
        ------
        OSError
            If it cannot be written; the previous checkpoint remains.
        """
        added = b"".join(self._pending)
        digest = self._hash.copy()
        digest.update(added)
        number = self.round + len(self._pending)
        head = {
            "run": self._run,
            "round": number,
            "history": [self._size + len(added), digest.hexdigest()],
        }
        try:
            # This overwrites the lines of a save that failed. The new lines begin with those, so
            # even if that save had replaced the checkpoint file, its lines stay whole throughout.
            os.lseek(self._history, self._size, os.SEEK_SET)
            write_all(self._history, added)
            os.fsync(self._history)
            write(self._folder / "checkpoint", head, state)
        except OSError as error:
            stands = f"that of round {self.round} stands" if self.round else "there is none before"
            raise OSError(
                error.errno,
                f"the checkpoint of round {number} could not be written to {self._folder}, "
                f"{stands}: {error.strerror or error}",
            ) from error
        self._hash, self._size, self.round = digest, self._size + len(added), number
        self._pending.clear()

    def _load(self) -> int:
        """Read the folder's files; return how many bytes of the history the checkpoint covers."""
        path, history = self._folder / "checkpoint", self._folder / "rounds.jsonl"
        known = read_bytes(history, "history of a run of training", **_OWN)
        if not os.path.lexists(path):
            return 0
        head, state = read(path)
        try:
            run, number = head["run"], head["round"]
            size, digest = head["history"]
            if not isinstance(run, dict) or type(number) is not int or type(size) is not int:
                raise TypeError
        except (KeyError, TypeError, ValueError):
            raise CheckpointError(f"{path} is no checkpoint of a run of training") from None
        self._compare(run)
        if not 0 <= size <= len(known):
            raise CheckpointError(
                f"{history} is cut off: {path} needs {size} bytes of it, but it has {len(known)}"
            )
        self._hash.update(known[:size])
        lines = known[:size].splitlines()
        if self._hash.hexdigest() != digest or len(lines) != number:
            raise CheckpointError(f"{history} is damaged: its checksum differs from that in {path}")
        self.round, self.state = number, state
        try:
            self.lines = [json.loads(line) for line in lines]
        except (ValueError, RecursionError):
            raise CheckpointError(f"{history} does not hold what a history does") from None
        return int(size)

    def _compare(self, run: dict[str, Any]) -> None:
        """Raise unless the checkpoint is of this run."""
        other = [
            f"{what}: {_excerpt(str(run.get(what)), str(self._run.get(what)))}"
            for what in dict.fromkeys([*run, *self._run])
            if run.get(what) != self._run.get(what)
        ]
        if other:
            raise CheckpointError(
                f"{self._folder} holds a checkpoint of another run. {'; '.join(other)}. Make that "
                "call again to resume that run, or name another folder for this one"
            )


def make_folder(folder: Path) -> None:
    """Make a folder for checkpoints, if there is none; raise ValueError if that cannot be."""
    if folder.is_dir():
        return
    if os.path.lexists(folder):
        kind = "file" if folder.exists() else "link to nothing"
        raise ValueError(f"{folder} is a {kind}: name a folder for checkpoints")
    if not folder.resolve().parent.is_dir():
        raise ValueError(f"there is no folder {folder.parent} to make {folder.name} in")
    folder.mkdir(exist_ok=True)  # another process may have been faster
    sync_folder(folder.parent)


def describe(
    code: Code,
    model: object,
    optimizer: object,
    dataset: Dataset,
    delays: object,
    seed: int,
    **options: object,
) -> dict[str, str]:
    """Describe what a training run computes, in words and digests.

    Only the same run has the same description. It rounds numbers to nine digits, and coefficients
    to six, because computed ones may differ between processors in the last digit. Objects without a
    ``__repr__`` are distinguished by their types; delay models also by the arguments of their
    constructors, if they keep them.

    Parameters
    ----------
    code, model, optimizer, dataset, delays, seed
        As in `fastgc.train`.
    **options
        Further options that change what the run computes.

    Returns
    -------
    dict
    """
    X = dataset.X_train
    arrays = (X, dataset.y_train, dataset.X_test, dataset.y_test)
    return {
        "code": _text(code),
        "what the code computes": fingerprint(code.scheme),
        "model": _text(model),
        "optimizer": _text(optimizer),
        "data": (
            f"{len(X)} and {len(dataset.X_test)} samples of {X.shape[1]} {X.dtype} features, "
            f"digest {digest(arrays)}"
        ),
        "delays": _text(described(delays)),
        "seed": _text(seed),
        **{name: _text(value) for name, value in options.items()},
    }


def write(path: str | os.PathLike[str], head: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Replace a checkpoint file. The old one stays complete until then.

    Parameters
    ----------
    path : path
        The file. While it is written, there is another beside it, whose name ends in ``.part``.
    head : mapping
        In types that JSON has.
    state : mapping of str
        Arrays of numbers by name, and values of types that JSON has: numbers, lists, text.

    Raises
    ------
    TypeError
        If `state` holds anything else.
    OSError
        If it cannot be written; the file is unchanged.
    """
    arrays = {
        name: np.asarray(value, order="C")
        for name, value in state.items()
        if isinstance(value, np.ndarray)
    }
    for name, array in arrays.items():
        if array.dtype.kind not in "biufc":
            raise TypeError(f"{name} of the state must be numbers, not of dtype {array.dtype}")
    values = {name: value for name, value in state.items() if name not in arrays}
    layout = [[name, array.dtype.str, array.shape] for name, array in arrays.items()]
    text = json.dumps({**head, "values": values, "arrays": layout}, default=_plain).encode()
    pieces: list[Any] = [MAGIC + _PREFIX.pack(VERSION, len(text)), text]
    pieces += [array.reshape(-1).view(np.uint8) for array in arrays.values()]
    hashed = _new_hash()
    for piece in pieces:
        hashed.update(piece)
    write_file(path, *pieces, hashed.digest(), own=True)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the head and state of a checkpoint file.

    Raises
    ------
    CheckpointError
        If it is not a checkpoint, has another version, is cut off, or was changed, or if it is a
        link.
    OSError
        If it cannot be read.
    """
    content = memoryview(read_bytes(path, "checkpoint of fastgc", **_OWN))
    begin = len(MAGIC) + _PREFIX.size
    if content[: len(MAGIC)] != MAGIC:
        raise CheckpointError(f"{path} is no checkpoint of fastgc")
    if len(content) < begin + _DIGEST_BYTES:
        raise CheckpointError(f"{path} is cut off: it has {len(content)} bytes only")
    version, length = _PREFIX.unpack_from(content, len(MAGIC))
    if version != VERSION:
        raise CheckpointError(
            f"{path} is a checkpoint of format {version}, but this fastgc knows {VERSION}"
        )
    hashed = _new_hash()
    hashed.update(content[:-_DIGEST_BYTES])
    if hashed.digest() != content[-_DIGEST_BYTES:]:
        raise CheckpointError(f"{path} is cut off or damaged: its checksum does not match")
    try:
        head = json.loads(bytes(content[begin : begin + length]))
        state = dict(head.pop("values"))
        at = begin + length
        for name, dtype, shape in head.pop("arrays"):
            if not _DTYPE.fullmatch(dtype) or any(type(n) is not int or n < 0 for n in shape):
                raise ValueError
            count = math.prod(shape)
            flat = np.frombuffer(content[:-_DIGEST_BYTES], np.dtype(dtype), count, at)
            state[name] = flat.reshape(shape).copy()
            at += flat.nbytes
        if at != len(content) - _DIGEST_BYTES:
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise CheckpointError(f"{path} does not hold what a checkpoint does") from None
    return head, state


def _new_hash() -> Any:
    return hashlib.blake2b(digest_size=_DIGEST_BYTES)


def _plain(value: Any) -> Any:
    """Return a NumPy number as Python's own; raise TypeError for anything else."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a checkpoint holds arrays, numbers, lists and text, not {value!r}")


def _text(value: object) -> str:
    text = _ADDRESS.sub("", value if isinstance(value, str) else repr(value))
    text = _SCALAR.sub(r"\1", text)
    return _NUMBER.sub(lambda number: f"{float(number[0]):.9g}", text)


def _excerpt(old: str, new: str) -> str:
    """Show two texts, if they are long from a little before their first difference on."""
    pairs = enumerate(zip(old, new, strict=False))
    first = next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))
    start = first - 20 if first > 60 else 0
    cut = [
        ("…" if start else "") + text[start : first + 60] + ("…" if text[first + 60 :] else "")
        for text in (old, new)
    ]
    return " -> ".join(cut)


def digest(arrays: Iterable[Array]) -> str:
    """Return a short digest of arrays."""
    hashed = hashlib.blake2b(digest_size=8)
    for array in arrays:
        hashed.update(f"{array.dtype.str}{array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.hexdigest()
