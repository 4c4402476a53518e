"""What a round takes on average, when messages arrive in random order."""

from __future__ import annotations

from typing import NamedTuple

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
