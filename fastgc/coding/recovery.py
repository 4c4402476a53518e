"""What a round takes on average, when messages arrive in random order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .._arrays import at_least
from .scheme import Scheme

__all__ = ["Recoverable", "Recovery"]


class Recovery(NamedTuple):
    """What a round takes on average, when messages arrive in random order.

    Attributes
    ----------
    workers : float
        Workers heard from before the gradient could be decoded.
    messages : float
        Messages received by then, with all that came together with the last one.
    communication_load : float
        Their size in gradients.
    """

    workers: float
    messages: float
    communication_load: float


class Recoverable(Scheme):
    """A scheme that says how many messages a round takes."""

    @property
    def communication_load(self) -> float | None:
        """Size of the messages that the master receives in the worst case, in gradients.

        Li et al., definition 3, for real gradients; `recovery` estimates the mean. None where the
        threshold is unknown.
        """
        return None if self.threshold is None else self.threshold * self.message_weight

    def recovery(self, trials: int = 1000, seed: int = 0) -> Recovery:
        """What a round takes on average when messages arrive in random order.

        Every order in which each worker's own messages keep theirs is equally likely.

        Parameters
        ----------
        trials : int
            Rounds to average over.
        seed : int
        """
        trials, seed = at_least("trials", trials, 1), at_least("seed", seed, 0)
        workers = messages = 0
        for heard in self.random_arrivals(trials, seed):
            messages += len(heard)
            workers += len({self.sender(m)[0] for m in heard})
        load = messages * self.message_weight / trials
        return Recovery(workers / trials, messages / trials, load)

    def random_arrivals(self, trials: int, seed: int) -> Iterator[list[int]]:
        """Messages that came in random order until a round was ready, so many times.

        Every order in which each worker's own messages keep theirs is equally likely. Those of a
        worker that `sends_together` come one after the other, to the last of them.
        """
        rng = np.random.default_rng(seed)
        together, counts = self.sends_together, self.message_counts
        senders = np.repeat(np.arange(self.n), np.where(together, 1, counts))
        at_once = np.where(together, counts, 1).tolist()
        tally = self.rule.tally()
        for _ in range(trials):
            tally.reset()
            due = self.first_messages[:-1].copy()
            heard: list[int] = []
            for worker in rng.permutation(senders).tolist():
                first = due[worker]
                due[worker] = end = first + at_once[worker]
                ready = False
                for number in range(first, end):
                    heard.append(number)
                    ready = tally.add(number)
                if ready and not self.awaits_more(np.array(heard)):
                    break
            yield heard
