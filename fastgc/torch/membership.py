"""Which ranks take part: views, each a set of ranks and a process group that they share.

A thread of each rank polls the store for a change. A rank announces that the view's group is
broken, or that it wants to join. Every rank that is alive answers, also while its main thread
computes. When all have answered, or the rest had its time, any rank proposes the next view by
``compare_set``, so that exactly one proposal wins. The threads make the new group, and a main
thread that wants to all-reduce finds it ready.

Sockets show that a rank died: they close. Whoever sees that drops the group, which closes its own
sockets too, so that nobody goes on waiting. The store is therefore used only when members change:
no step needs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed

from ..errors import LeftOutError

__all__ = ["BrokenGroupError", "Members", "View", "own_store"]

dist: Any = torch.distributed  # which exports less than it documents, for type checkers

_LOOK = 0.03  # seconds between looks at the store
_PATIENCE = 5.0  # seconds to answer where the code needs the rank, and to make a group
_LATE = 0.9  # share of the deadline: a rank that waited so long calls the others late


class BrokenGroupError(Exception):
    """A member is gone or late: a new view will come."""


def own_store() -> Any:
    """The store of the job: that of torchrun, or else of ``init_process_group``."""
    # The agent's store outlives every rank.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return dist.TCPStore(address, port, None, False, wait_for_workers=False)
    if dist.is_initialized():
        return dist.distributed_c10d._get_default_store()
    raise RuntimeError(
        "there is no store by which ranks find each other: start them by torchrun, or give "
        "store=torch.distributed.TCPStore(...), kept by a process that outlives them"
    )


class View:
    """Ranks that take part, ascending, and what they reduce by.

    The `number` counts views. `seconds` went by from when this rank knew of the change until the
    group was there.
    """

    def __init__(
        self, number: int, ranks: list[int], group: Any, members: Members, seconds: float
    ) -> None:
        self.number, self.ranks, self.seconds = number, ranks, seconds
        self._group, self._members = group, members

    def sum(self, tensor: torch.Tensor) -> None:
        """Sum over all ranks, in place. All get the same bits: one rank sums each number."""
        self._do(dist.AllreduceOptions(), "allreduce", tensor)

    def copy(self, tensor: torch.Tensor, rank: int) -> None:
        """Copy `rank`'s tensor to all."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = self.ranks.index(rank), 0
        self._do(options, "broadcast", tensor)

    def _do(self, options: Any, what: str, tensor: torch.Tensor) -> None:
        members = self._members
        options.timeout = timedelta(seconds=members.deadline)  # for each wait for others' data
        members.since = time.monotonic()
        try:
            getattr(self._group, what)([tensor], options).wait()
        except RuntimeError as error:  # raised by gloo
            self._group = None  # drop it: that closes this rank's sockets
            members.failed(self.number)
            raise BrokenGroupError from error
        members.since = None


class Members:
    """A rank's part in the agreement on who takes part.

    The `store` is for this object alone. Of `count` ranks, ``enough(ranks)`` says whether the
    others are dispensable. A rank that is alive but does not come is waited for `deadline` seconds;
    one that the code does without has `settle` seconds to answer.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        count: int,
        enough: Callable[[list[int]], bool],
        deadline: float,
        settle: float,
    ) -> None:
        self.deadline, self._settle = deadline, settle
        # when the main thread began to wait for others; None while it does something else
        self.since: float | None = None
        self._store, self._rank, self._count, self._enough = store, rank, count, enough
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._token = ""

    def join(self) -> None:
        """Ask to take part from the next view on."""
        self.close()
        self._token = uuid.uuid4().hex  # names this life: a rank may die and start again
        self._joining, self._broken = True, 0
        self._view: View | None = None
        self._error: Exception | None = None
        self._over.clear()
        self._thread = threading.Thread(target=self._run, name="fastgc-members", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave, and close the sockets."""
        self._over.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            with contextlib.suppress(RuntimeError):  # if the store is gone
                self._store.set(f"left/{self._token}", b"")  # nobody waits for its answer then
        self._view = self._thread = None
        self.since = None

    def failed(self, number: int) -> None:
        """Say that a view's group is broken."""
        with self._changed:
            self._broken = max(self._broken, number)
        self._wake.set()

    def view(self) -> View:
        """The view that is, or the next one, if that is broken.

        Raises
        ------
        LeftOutError
            If the others went on without this rank.
        RuntimeError
            If the store is gone.
        """
        with self._changed:
            while self._view is None or self._view.number <= self._broken:
                if self._error is not None:
                    raise self._error
                if self._thread is None:
                    raise RuntimeError("this rank has left: nothing can be reduced any more")
                self._changed.wait()
            return self._view

    # ------------------------------------------------------------------------------- the thread's

    def _run(self) -> None:
        try:
            number = self._newest() + 1
            self._members = self._record(number - 1)
            while not self._over.is_set():
                if self._joining or self._broken >= number - 1 or self._has(f"{number}/begun"):
                    self._change(number)
                    number += 1
                else:
                    self._wake.wait(_LOOK)
                    self._wake.clear()
        except LeftOutError as error:
            self._end(error)
        except Exception as error:  # raised by the store
            text = str(error).splitlines()[0]
            self._end(RuntimeError(f"the store by which ranks agree cannot be used: {text}"))

    def _end(self, error: Exception) -> None:
        with self._changed:
            self._view, self._error = None, error
            self._changed.notify_all()

    def _has(self, key: str) -> bool:
        return bool(self._store.check([key]))

    def _newest(self) -> int:
        number = int(self._store.get("newest")) if self._has("newest") else 0
        while self._has(f"{number + 1}/view"):
            number += 1
        return number

    def _record(self, number: int) -> dict[int, str]:
        """Members of a view and the tokens of their lives; before the first view, all ranks."""
        if number == 0:
            return dict.fromkeys(range(self._count), "")
        record = json.loads(self._store.get(f"{number}/view"))
        return {int(rank): token for rank, token in record.items()}

    def _change(self, number: int) -> None:
        """Go from one view to the next."""
        begin = time.monotonic()
        with self._changed:
            self._view = None  # closes this rank's sockets, unless the main thread still uses them
        waited = None if self.since is None else begin - self.since
        self._store.set(f"{number}/{self._rank}", json.dumps([self._token, waited]))
        self._store.set(f"{number}/begun", b"")
        while not self._has(f"{number}/view"):
            if self._over.is_set():
                return
            self._propose(number, time.monotonic() - begin)
        self._members = self._record(number)
        if self._members.get(self._rank) == self._token:
            self._joining = False
        elif self._joining:
            return  # the answer came too late for this view: ask for the next
        else:
            self._raise_left_out()
        ranks = sorted(self._members)
        try:
            group = dist.ProcessGroupGloo(
                dist.PrefixStore(f"{number}/group", self._store),
                ranks.index(self._rank),
                len(ranks),
                timedelta(seconds=_PATIENCE),
            )
        except RuntimeError:  # one of them died meanwhile
            self._broken = max(self._broken, number)
            return
        with self._changed:
            self._view = View(number, ranks, group, self, time.monotonic() - begin)
            self._changed.notify_all()

    def _propose(self, number: int, passed: float) -> None:
        """Propose the next view, if it is time."""
        answers: dict[int, tuple[str, float | None]] = {}
        for rank in range(self._count):
            if self._has(f"{number}/{rank}"):
                answers[rank] = tuple(json.loads(self._store.get(f"{number}/{rank}")))
        # All that answer are alive. If one waited in vain, those that do not wait are late.
        waits = [waited for _, waited in answers.values() if waited is not None]
        late = max(waits, default=0.0) >= _LATE * self.deadline
        here = {
            rank: token
            for rank, (token, waited) in answers.items()
            if waited is not None or not late
        }
        if number == 1:
            given = self.deadline  # for the ranks to start
        else:
            given = self._settle if self._enough(list(here)) else _PATIENCE
        missing = (r for r in self._members if r not in answers)
        if passed > given or all(self._has(f"left/{self._members[r]}") for r in missing):
            self._store.compare_set(f"{number}/view", "", json.dumps(here))
            self._store.set("newest", str(number))
        else:
            time.sleep(_LOOK / 3)

    def _raise_left_out(self) -> NoReturn:
        raise LeftOutError(
            f"rank {self._rank} did not answer in time, and the others went on without it: its "
            "parameters are out of date; join() gets those of the others"
        )
