"""Sizes as all commands read them: ``-n 20 -s 4``, ``-n 80/12,256/32``, ``-n 10,20 -s 0:8``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from . import options
from .common import Options

_RANGE = re.compile(r"(\d{1,9})(?::(\d{1,9})(?::([1-9]\d{0,8}))?)?")
_MOST = 10_000  # numbers in a range, at most
_FRACTION = re.compile(r"0?\.\d{1,15}")


@dataclass(frozen=True)
class Size(Options):
    """The size of codes."""

    workers: str = options.workers()
    stragglers: str | None = options.stragglers("n/5")


def size_of(what: Any, n: int | None = None, default: int | None = None) -> tuple[int, int]:
    """Return the workers and stragglers of a command.

    Parameters
    ----------
    what : object
        The options, with ``workers`` and ``stragglers``.
    n : int, optional
        Workers, if something other than the option gives them.
    default : int, optional
        Stragglers if the options do not give them. Default: a fifth of the workers.

    Raises
    ------
    ValueError
        Unless the options give one size, with s < n.
    """
    s = None
    if n is None:
        n, s = one_size(what.workers, what.stragglers)
    if s is None and what.stragglers is not None:
        s = one_count("--stragglers", what.stragglers, n)
    if s is None:
        s = n // 5 if default is None else default
    if not 0 <= s < n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {n - 1}, not {s}")
    return n, s


def one_size(text: str, stragglers: str | None = None) -> tuple[int, int | None]:
    """Return the workers of one size, and its stragglers if it gives them."""
    found = _sizes(text, stragglers)
    if len(found) != 1:
        raise ValueError(f"--workers: this command takes one size, as in 20 or 20/4, not {text!r}")
    return found[0]


def one_count(option: str, text: str, n: int | None = None) -> int:
    """Return a number, or a fraction of n workers; raise ValueError unless the text is one."""
    found = counts(option, text, n)
    if len(found) != 1:
        raise ValueError(f"{option}: this command takes one number, as in 4, not {text!r}")
    return found[0]


def pairs(workers: str, stragglers: str | None, default: str) -> list[tuple[int, int]]:
    """Return pairs of workers and stragglers.

    Parameters
    ----------
    workers, stragglers : str
        Texts of the options.
    default : str
        The stragglers if the option is not given.
    """
    given = default if stragglers is None else stragglers
    found = [
        (n, each)
        for n, s in _sizes(workers, stragglers)
        for each in ([s] if s is not None else counts("--stragglers", given, n))
    ]
    return list(dict.fromkeys(found))


def _sizes(text: str, stragglers: str | None) -> list[tuple[int, int | None]]:
    """Return numbers of workers, each with the stragglers that its size gives, or None."""
    found: list[tuple[int, int | None]] = []
    for part in _parts("--workers", text):
        numbers, slash, own = part.partition("/")
        s = one_count("--workers", own) if slash else None
        found += [(n, s) for n in counts("--workers", numbers)]
    if stragglers is not None and all(s is not None for _, s in found):
        raise ValueError(f"--workers {text} names the stragglers: leave out --stragglers")
    return found


def counts(option: str, text: str, n: int | None = None) -> list[int]:
    """Return the numbers in a list of numbers, ranges, and fractions of n workers."""
    found: list[int] = []
    for part in _parts(option, text):
        if match := _RANGE.fullmatch(part):
            first = int(match[1])
            last = first if match[2] is None else int(match[2])
            if last < first:
                raise ValueError(f"{option}: {part!r} has its larger end first")
            numbers = range(first, last + 1, int(match[3] or 1))
            if len(numbers) > _MOST:
                raise ValueError(f"{option}: {part!r} has more than {_MOST} numbers")
            found += numbers
        elif n is not None and _FRACTION.fullmatch(part):
            found.append(int(Fraction(part) * n))
        else:
            more = ", nor a fraction of n such as 0.2" * (n is not None)
            raise ValueError(
                f"{option}: {part!r} is neither a number nor a range such as 0:8 or 0:8:2{more}"
            )
    if option == "--workers" and min(found) < 1:
        raise ValueError(f"{option}: there must be at least one worker, not {text!r}")
    return found


def _parts(option: str, text: str) -> list[str]:
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise ValueError(f"{option} must name a number, as in 10,20 or 0:8")
    return found
