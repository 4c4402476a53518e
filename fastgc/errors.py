"""The exceptions fastgc raises on purpose.

Bad arguments raise Python's own ``ValueError`` and ``TypeError``. The classes here are for errors
that a caller may want to tell apart and handle.
"""

import sys
import warnings

__all__ = [
    "CheckpointError",
    "CorruptMessageError",
    "FinishedError",
    "InstabilityWarning",
    "LeftOutError",
    "LostError",
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
        Least number of further messages that are needed.
    """

    def __init__(self, message: str, missing: int) -> None:
        super().__init__(message, missing)  # exceptions are unpickled from these arguments
        self.missing = missing

    def __str__(self) -> str:
        return str(self.args[0])


class UnverifiedError(NotDecodableError):
    """The messages at hand agree and decode, but corrupt ones among them might go unnoticed.

    Attributes
    ----------
    missing : int
        Least number of further messages that verify the gradient; 1 if no number does.
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
    """Messages contradict each other, and it is unknown which is corrupt.

    Attributes
    ----------
    suspects : tuple of int
        Workers that may be to blame: one of them or, if `verify` looks for several liars, some of
        them together. Empty if more workers must have lied than `verify` looks for.
    """

    def __init__(self, message: str, suspects: tuple[int, ...]) -> None:
        super().__init__(message, suspects)
        self.suspects = suspects

    def __str__(self) -> str:
        return str(self.args[0])


class WorkerFailedError(RuntimeError):
    """A worker process raised an error or died; the text includes its traceback, if there is one.

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
    """The run has ended, so a rank cannot join it any more."""


class LostError(RuntimeError):
    """Nobody who held the state of the run is left: it starts again, from a checkpoint."""


class LeftOutError(RuntimeError):
    """The other ranks went on without this one, as it was late: its results are out of date."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, belongs to another run, or is in use."""


def warn_caller(text: str, category: type[Warning]) -> None:
    """Attribute a warning to the line outside fastgc that called it, however deep the call is."""
    level, frame = 1, sys._getframe()
    ours = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == ours:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
