# own_engine.py
"""An engine of one's own: workers are threads of this process, and nothing is copied or pickled.

They work side by side where gradients release Python's lock, as NumPy's matrix products do.
"""

import contextlib
import math
import queue
import threading

import numpy as np

from fastgc.engines.interface import Event, Kind
from fastgc.engines.master import Master
from fastgc.engines.worker import Worker, failure


class ThreadCluster(Master):
    """A thread for each worker; takes what `fastgc.engines.master.Master` takes."""

    def _open(self, task):
        return Threads(task)


class Threads:
    """Carries parameters and messages between the master and its workers, and decides nothing."""

    asks = True  # whether workers answer questions

    def __init__(self, task):
        self._task = task
        self._orders = [queue.SimpleQueue() for _ in range(task.code.n)]
        self._events = queue.SimpleQueue()
        self._newest = -1
        self._workers = {}
        self._closed = threading.Event()
        for worker in range(task.code.n):
            self.restart(worker)

    def publish(self, number, theta, in_use):
        """Copy the parameters of a round: to bytes, which no gradient can write to."""
        self._theta = np.frombuffer(theta.tobytes(), theta.dtype)
        self._newest = number

    def hand(self, worker, first, delay):
        """Hand the newest round to a worker, from its message number `first` on."""
        self._orders[worker].put((self._newest, self._theta, first, delay))

    def listen(self, seconds):
        """What has happened, oldest first; if nothing has, wait so long."""
        events = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(timeout=min(seconds, threading.TIMEOUT_MAX)))
            while True:
                events.append(self._events.get_nowait())
        return events

    def ask(self, worker, question):
        """Let a worker answer a question while it computes."""
        threading.Thread(target=self._answer, args=(worker, question), daemon=True).start()

    def _answer(self, number, question):
        answer, energy = self._workers[number].answer(question) or (None, math.nan)
        told = number, question.round, question.number, answer
        self._events.put(Event(Kind.ANSWER, *told, energy=energy))

    def restart(self, worker):
        """Start a worker; a thread does not die, so that this happens once."""
        name = f"worker {worker}"
        threading.Thread(target=self._work, args=(worker,), name=name, daemon=True).start()

    def close(self):
        """End all workers, those that compute after their message."""
        self._closed.set()
        for orders in self._orders:
            orders.put(None)

    def _work(self, number):
        tell, worker, round = self._events.put, None, -1
        try:
            worker = Worker(number, self._task, self._task.data(number))
            self._workers[number] = worker
            tell(Event(Kind.JOINED, number))
            while (order := self._orders[number].get()) is not None:
                round, theta, first, delay = order
                for index in range(first, worker.message_count):
                    if round < self._newest:  # the others have gone on: so does this one
                        tell(Event(Kind.LEFT, number, round))
                        break
                    if self._closed.wait(worker.sleep_before(index, delay)):
                        return
                    message, energy = worker.message(theta, index, round)
                    tell(Event(Kind.MESSAGE, number, round, index, message, energy=energy))
        except BaseException:
            tell(Event(Kind.FAILED, number, round, text=failure(worker).decode(errors="replace")))
