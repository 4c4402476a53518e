"""The exceptions fastgc raises on purpose.

Bad arguments raise Python's own ``ValueError`` and ``TypeError``; the classes here are for what a
caller may want to tell apart and handle.
"""

import sys
import warnings

__all__ = [
    "CheckpointError",
    "CorruptMessageError",
    "FinishedError",
    "InstabilityWarning",
    "LeftOutError",
    "NonFiniteMessageError",
    "NotDecodableError",
    "UnstableCodeError",
    "UnstableRoundError",
    "UnverifiedError",
    "WorkerFailedError",
]


class NotDecodableError(ValueError):
    """The messages at hand do not determine the gradient.

    Attributes
    ----------
    missing : int
        The least number of further messages after which decoding can succeed.
    """

    def __init__(self, message: str, missing: int) -> None:
        super().__init__(message, missing)  # all arguments, so that it pickles
        self.missing = missing

    def __str__(self) -> str:
        return str(self.args[0])


class UnverifiedError(NotDecodableError):
    """The messages at hand fit each other, and decode, but lies among them could not be seen.

    Attributes
    ----------
    missing : int
        The least number of further messages after which the gradient can be verified; 1 where none
        would help.
    """


class NonFiniteMessageError(ValueError):
    """A message holds NaN or Inf.

    Attributes
    ----------
    worker : int
        The worker that sent it.
    """

    def __init__(self, message: str, worker: int) -> None:
        super().__init__(message, worker)
        self.worker = worker

    def __str__(self) -> str:
        return str(self.args[0])


class CorruptMessageError(ValueError):
    """Messages contradict each other, and which one is corrupt cannot be told, or it is one's own.

    Attributes
    ----------
    suspects : tuple of int
        Workers that may be to blame, each alone, or where more than one may lie, together; none,
        if it takes more than may. A rank that audits have named: this rank alone.
    """

    def __init__(self, message: str, suspects: tuple[int, ...]) -> None:
        super().__init__(message, suspects)
        self.suspects = suspects

    def __str__(self) -> str:
        return str(self.args[0])


class WorkerFailedError(RuntimeError):
    """A worker process raised or died; its own traceback, where it left one, is in the text.

    Attributes
    ----------
    worker : int
        The worker that failed.
    """

    def __init__(self, message: str, worker: int) -> None:
        super().__init__(message, worker)
        self.worker = worker

    def __str__(self) -> str:
        return str(self.args[0])


class UnstableCodeError(ValueError):
    """A code made with ``strict=True`` would lose more than half of float64's digits."""


class UnstableRoundError(ArithmeticError):
    """A decoded gradient is less precise than the tracker's limit."""


class InstabilityWarning(UserWarning):
    """A code or a round loses more digits than it should."""


class FinishedError(RuntimeError):
    """The run has ended: there is nothing that a rank could join."""


class LeftOutError(RuntimeError):
    """The other ranks went on without this one, which was late; what it computes is out of date."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, of another run, or in use."""


def warn_caller(text: str, category: type[Warning]) -> None:
    """Warn of the line that called fastgc, from however deep inside it."""
    level, frame = 1, sys._getframe()
    ours = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == ours:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
