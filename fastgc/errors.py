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
        How many more messages are needed at least.
    """

    def __init__(self, message: str, missing: int) -> None:
        super().__init__(message, missing)  # all arguments, so that it pickles
        self.missing = missing

    def __str__(self) -> str:
        return str(self.args[0])


class UnverifiedError(NotDecodableError):
    """The messages at hand agree and decode, but corrupt ones among them might go unnoticed.

    Attributes
    ----------
    missing : int
        How many more messages are needed at least to verify the gradient; 1 if none would help.
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
    """Messages contradict each other, and it is unknown which one is corrupt, or it is one's own.

    Attributes
    ----------
    suspects : tuple of int
        Workers that may be to blame: any one of them or, where more than one may lie, some of them
        together. Empty if more workers must have lied than `verify` allows for. On a rank that
        audits have convicted: this rank alone.
    """

    def __init__(self, message: str, suspects: tuple[int, ...]) -> None:
        super().__init__(message, suspects)
        self.suspects = suspects

    def __str__(self) -> str:
        return str(self.args[0])


class WorkerFailedError(RuntimeError):
    """A worker process raised or died; the text includes its traceback, if it left one.

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


class LeftOutError(RuntimeError):
    """The other ranks went on without this one, which was late; its results are out of date."""


class CheckpointError(ValueError):
    """A checkpoint is damaged, belongs to another run, or is in use."""


def warn_caller(text: str, category: type[Warning]) -> None:
    """Warn of the line that called fastgc, from however deep inside it."""
    level, frame = 1, sys._getframe()
    ours = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == ours:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
