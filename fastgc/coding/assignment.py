"""Who computes what: workers, partitions, the messages between them, and the rows of B."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import data
from .._arrays import as_array, check_index, check_workers
from .arguments import Recorded

__all__ = ["Assignment", "Row"]

# Entries of B that a fingerprint takes in at a time.
_DIGESTED = 1 << 16

# Rows of B remembered: a worker needs its own one only, a test or a simulation many.
ROWS_KEPT = 256

Row = tuple[NDArray[np.int64], NDArray[Any]]


class _Required:
    """An attribute that every scheme sets; a clear error where one does not."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, scheme: object, kind: type) -> Any:
        if scheme is None:
            return self
        raise AttributeError(
            f"{kind.__name__} must set self.{self._name}, the number of {self._what}, in its "
            "__init__"
        )


class Assignment(Recorded, ABC):
    """Rows of a matrix B, one for each message, by what the scheme says of each worker.

    Messages are numbered: worker by worker, and each worker's in the order it sends them. Where
    every worker sends one, a message has its worker's number, and `survivors` are workers;
    otherwise they are numbers of messages, see `message_number`.
    """

    n: int = _Required("workers")  # type: ignore[assignment]
    k: int = _Required("partitions")  # type: ignore[assignment]
    pieces: int = 1
    codes_data: bool = False

    # ---------------------------------------------------------------- what a scheme says

    @abstractmethod
    def row(self, worker: int) -> tuple[ArrayLike, ArrayLike]:
        """What a worker computes and sends.

        Parameters
        ----------
        worker : int
            In 0 .. n-1.

        Returns
        -------
        partitions : (w,) integers
            Distinct, in the order of computation, in 0 .. k-1.
        coefficients : (w,) or (w, pieces) numbers
            Of B, real or complex; with `pieces`, one for each piece of a partition's gradient.
            Workers that send several messages send equal shares of the partitions, in order.
        """

    def pair_row(self, worker: int) -> NDArray[np.complex128]:
        """Coefficients of `row` in twice the precision, for messages of float64x2.

        Returns
        -------
        (w, 2) complex128 array
            Of each the nearest complex128, and what that lacks.

        Raises
        ------
        TypeError
            If the code sends no such messages.
        """
        raise TypeError(
            f"{self!r} sends no messages of float64x2: ReedSolomon with packed=True does"
        )

    @cached_property
    def load(self) -> int:
        """Partitions per worker, w: the largest, where workers differ."""
        return int(self.loads.max())

    @cached_property
    def message_counts(self) -> Sequence[int]:
        """Messages of each worker, equal shares of its partitions. Default: one."""
        return [1] * self.n

    # Whether workers keep their messages, tell when they have each, and are asked for one sum of
    # them (`fastgc.codes.SumRound`), by engines that can ask. Others let them send each message.
    on_request: bool = False

    @property
    def sends_together(self) -> NDArray[np.bool_]:
        """Whether each worker sends its messages only when all of its work is done, (n,) array.

        Default: none does; each message is sent as soon as it is computed.
        """
        return np.zeros(self.n, dtype=np.bool_)

    @cached_property
    def is_complex(self) -> bool:
        """Whether coefficients are complex. Default: whether those of any row are."""
        return any(np.iscomplexobj(self._whole_row(worker)[1]) for worker in range(self.n))

    @property
    def shard_count(self) -> int:
        """Length of what `encode_data` returns: the numbers `partitions` gives lie below it."""
        return self.k

    def encode_data(
        self, X: NDArray[Any], y: NDArray[Any]
    ) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """What the workers compute on: samples and labels of each partition.

        Parameters
        ----------
        X : (N, features) array
        y : (N,) or (N, outputs) array

        Returns
        -------
        list of `shard_count` pairs (X_j, y_j)
        """
        return data.partition(X, y, self.k)

    # --------------------------------------------------------------- what follows: messages

    @cached_property
    def messages_per_worker(self) -> int:
        """Messages of a worker in a round (the most, where workers differ)."""
        return max(self.message_counts)

    @cached_property
    def message_count(self) -> int:
        """Messages in a round, all workers together."""
        return sum(self.message_counts)

    @property
    def loads(self) -> NDArray[np.int64]:
        """Partitions of each worker, (n,) int64 array."""
        return self._known_loads.copy()

    @cached_property
    def _known_loads(self) -> NDArray[np.int64]:
        return np.array([self._whole_row(i)[0].size for i in range(self.n)], dtype=np.int64)

    @cached_property
    def first_messages(self) -> list[int]:
        """Number of each worker's first message, and the number of all messages."""
        return [0, *accumulate(self.message_counts)]

    @cached_property
    def message_shares(self) -> NDArray[np.float64]:
        """Part of its worker's computation after which each message is sent.

        Equal parts, or all of it where a worker `sends_together`.
        """
        counts = np.array(self.message_counts, dtype=np.int64)
        sent = np.arange(1, counts.sum() + 1) - np.repeat(np.cumsum(counts) - counts, counts)
        shares: NDArray[np.float64] = sent / np.repeat(counts, counts)
        shares[np.repeat(self.sends_together, counts)] = 1.0
        return shares

    def message_number(self, worker: int, index: int = 0) -> int:
        """Number of a worker's message: what `survivors` consist of."""
        worker = check_index("worker", worker, self.n)
        return self.first_messages[worker] + check_index(
            f"message of worker {worker}, which sends {self.message_counts[worker]}: index",
            index,
            self.message_counts[worker],
        )

    def sender(self, number: int) -> tuple[int, int]:
        """Worker and index of a message."""
        number = check_index("message", number, self.message_count)
        worker = bisect_right(self.first_messages, number) - 1
        return worker, number - self.first_messages[worker]

    def messages_of(self, workers: Iterable[int]) -> NDArray[np.int64]:
        """Numbers of all messages of these workers, ascending."""
        heard = np.zeros(self.n, dtype=bool)
        heard[[check_index("worker", worker, self.n) for worker in workers]] = True
        return np.flatnonzero(np.repeat(heard, self.message_counts))

    # ------------------------------------------------------------------- what follows: rows

    def _whole_row(self, worker: int) -> Row:
        """A worker's `row`, checked: partitions and coefficients, read-only.

        Returns
        -------
        (w,) int64 array
        (w,) or (w, pieces) float64 or complex128 array

        Raises
        ------
        TypeError, ValueError
            If there is no such worker, or the scheme's row is none.
        """
        row = self._checked_rows.get(worker)
        if row is None:
            worker = check_index("worker", worker, self.n)
            row = self._checked_row(worker)
            if len(self._checked_rows) >= ROWS_KEPT:
                self._checked_rows.clear()
            self._checked_rows[worker] = row
        return row

    @cached_property
    def _checked_rows(self) -> dict[int, Row]:
        return {}

    def _checked_row(self, worker: int) -> Row:
        held, values = self.row(worker)
        what = f"row({worker}) of {type(self).__name__}"
        held, values = as_array(f"partitions of {what}", held), as_array(what, values)
        shape = (held.size,) if self.pieces == 1 else (held.size, self.pieces)
        if held.ndim != 1 or held.dtype.kind not in "iu":
            raise TypeError(
                f"{what} must begin with a vector of integers, the partitions, not with "
                f"{held.dtype} of shape {held.shape}"
            )
        if values.shape != shape or values.dtype.kind not in "biufc":
            raise ValueError(
                f"{what} must have numbers of shape {shape} for its {held.size} partitions, not "
                f"{values.dtype} of shape {values.shape}"
            )
        ascending = held.size > 0 and bool((held[1:] > held[:-1]).all())
        if held.size and not (ascending and held[0] >= 0 and held[-1] < self.shard_count):
            if not 0 <= held.min() <= held.max() < self.shard_count:
                raise ValueError(
                    f"{what} names partition {held.max() if held.min() >= 0 else held.min()}: they "
                    f"are numbered 0 to {self.shard_count - 1}"
                )
            if held.size > 1 and not (np.diff(np.sort(held)) > 0).all():
                raise ValueError(f"{what} names a partition twice: {held.tolist()}")
        kind = np.complex128 if values.dtype.kind == "c" else np.float64
        row = held.astype(np.int64, copy=False).view(), values.astype(kind, copy=False).view()
        row[0].flags.writeable = row[1].flags.writeable = False
        return row

    def partitions(self, worker: int, index: int | None = None) -> NDArray[np.int64]:
        """Partitions of a worker, in the order of computation.

        Parameters
        ----------
        worker : int
        index : int, optional
            Only those of this message, where the worker sends several.

        Returns
        -------
        (w,) int64 array
        """
        return self._whole_row(worker)[0][self._part_of(worker, index)]

    def coefficients(self, worker: int, index: int | None = None) -> NDArray[Any]:
        """Coefficients of ``partitions(worker, index)`` in the worker's messages.

        Returns
        -------
        (w,) or (w, pieces) float64 or complex128 array
        """
        return self._whole_row(worker)[1][self._part_of(worker, index)]

    def _part_of(self, worker: int, index: int | None) -> slice:
        """Which of a worker's partitions go into a message; None: all."""
        held = self._whole_row(worker)[0].size
        if index is None:
            return slice(None)
        self.message_number(worker, index)
        count = self.message_counts[worker]
        if count == 1:
            return slice(None)
        return slice(index * (held // count), (index + 1) * (held // count))

    def message_rows(self) -> Iterator[Row]:
        """Partitions and coefficients of every message, in order."""
        for worker, count in enumerate(self.message_counts):
            held, values = self._whole_row(worker)
            share = held.size // count if count > 1 else held.size
            for index in range(count):
                part = slice(index * share, (index + 1) * share)
                yield held[part], values[part]

    def _message_row(self, number: int) -> Row:
        worker, index = self.sender(number)
        held, values = self._whole_row(worker)
        part = self._part_of(worker, index)
        return held[part], values[part]

    def matrix(self) -> NDArray[Any]:
        """B as a dense array, a row for each message: for small n, and for tests.

        For codes of the data it says which coded blocks a message sums. With `pieces` it has three
        dimensions: messages, partitions, pieces.
        """
        return self._dense_rows(np.arange(self.message_count))

    def _dense_rows(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        rows = [self._message_row(int(number)) for number in numbers]
        dtype = np.complex128 if self.is_complex else np.float64
        pieces = () if self.pieces == 1 else (self.pieces,)
        dense = np.zeros((len(numbers), self.shard_count, *pieces), dtype=dtype)
        for line, (held, values) in zip(dense, rows, strict=True):
            line[held] = values
        return dense

    @cached_property
    def _all_entries(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]:
        """Where each message begins in what follows, its partitions and its coefficients."""
        held, values = zip(*self.message_rows(), strict=True)
        first = np.cumsum([0, *(each.size for each in held)])
        return first, np.concatenate(held), np.concatenate(values)

    def fingerprint(self) -> str:
        """A text that tells codes apart by what their workers send: a digest of all rows.

        Coefficients count to six digits of the largest of their message, so that it is the same
        wherever it is computed.
        """
        hashed = hashlib.blake2b(digest_size=8)
        rows: list[Row] = []
        size = 0
        for row in self.message_rows():
            if size > _DIGESTED or (rows and row[1].dtype != rows[0][1].dtype):
                hashed.update(_digested(rows))
                rows, size = [], 0
            rows.append(row)
            size += row[0].size
        hashed.update(_digested(rows))
        if self.codes_data:
            for X, _ in self.encode_data(np.eye(self.k), np.zeros(self.k)):
                X = np.ascontiguousarray(_rounded(X, [0, len(X)]))
                hashed.update(f"{X.dtype.str}{X.shape}".encode())
                hashed.update(X.data)
        return hashed.hexdigest()

    # ----------------------------------------------------------------------------- checks

    def check_survivors(self, survivors: ArrayLike) -> NDArray[np.int64]:
        """`survivors`, numbers or booleans, as distinct numbers of messages.

        ValueError names the wrong one.
        """
        count = self.message_count
        checked = check_workers("survivors", survivors, count)
        # Of more than there are messages, these hold one that does not exist or is named twice.
        checked = checked[: count + 1]
        # One comparison for both ends of the range: negative numbers wrap to huge ones.
        if checked.size and checked.view(np.uint64).max() >= count:
            outside = checked.view(np.uint64) >= count
            self._raise_outside(checked, int(np.argmax(outside)))
        present = np.zeros(count, dtype=np.bool_)
        present[checked] = True
        if np.count_nonzero(present) < checked.size:
            first = np.unique(checked, return_index=True)[1]
            self._raise_duplicate(checked, int(np.setdiff1d(np.arange(checked.size), first)[0]))
        return checked

    def _raise_outside(self, survivors: NDArray[np.int64], at: int) -> NoReturn:
        """Raise ValueError: there is no such message."""
        what = "workers" if self.messages_per_worker == 1 else "messages"
        raise ValueError(
            f"survivors[{at}] is {survivors[at]}, but {what} are numbered 0 to "
            f"{self.message_count - 1}"
        )

    def _raise_duplicate(self, survivors: NDArray[np.int64], at: int) -> NoReturn:
        """Raise ValueError: this message was named before."""
        what = "worker" if self.messages_per_worker == 1 else "message"
        raise ValueError(f"survivors[{at}] names {what} {survivors[at]} a second time")


def _digested(rows: Sequence[Row]) -> bytes:
    """What a fingerprint is made of, of these messages."""
    if not rows:
        return b""
    first = list(accumulate((held.size for held, _ in rows), initial=0))
    values = _rounded(np.concatenate([values for _, values in rows]), first)
    parts: list[bytes] = []
    for (held, _), start, end in zip(rows, first, first[1:], strict=False):
        for array in held, values[start:end]:
            parts += f"{array.dtype.str}{array.shape}".encode(), array.tobytes()
    return b"".join(parts)


def _rounded(values: NDArray[Any], first: Sequence[int]) -> NDArray[Any]:
    """Numbers to six digits of the largest of each part, which begin and end at `first`."""
    sizes = np.abs(values).reshape(len(values), -1).max(axis=1, initial=0)
    counts = np.diff(first)
    largest = np.maximum.reduceat(sizes, np.array(first[:-1])[counts > 0]) if sizes.size else sizes
    largest[largest == 0] = 1.0
    coarse = np.array([float(f"{size:.6g}") for size in largest.tolist()])
    shape = (-1,) + (1,) * (values.ndim - 1)
    largest, coarse = (np.repeat(x, counts[counts > 0]).reshape(shape) for x in (largest, coarse))
    with np.errstate(invalid="ignore"):  # of those beyond float64
        relative = np.round(values / largest, 6) + 0.0  # -0.0 is 0.0, too
        rounded: NDArray[Any] = relative * coarse
    return rounded
