"""Codes by name, with sensible parameters: for command lines and tables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .base import Code
from .binary import BinaryCode
from .coupon_collector import CouponCollector
from .cyclic_repetition import CyclicRepetition
from .fractional_repetition import FractionalRepetition
from .lagrange import LagrangeCode
from .linear import LinearCode
from .random_assignment import RandomAssignment, UncoveredError
from .reed_solomon import ReedSolomon
from .uncoded import Uncoded

__all__ = ["NAMES", "describe", "make", "split"]


class _Entry(NamedTuple):
    kind: type[Code]
    title: str
    # n, k, s, load and seed, of which it takes what it needs
    defaults: Callable[..., dict[str, Any]]


def _seeded(load: int, seed: int, **_: int) -> dict[str, Any]:
    return {"load": load, "seed": seed}


NAMES: dict[str, _Entry] = {
    "rs": _Entry(ReedSolomon, "Reed-Solomon", lambda s, **_: {"stragglers": s}),
    "rs-clustered": _Entry(
        ReedSolomon,
        "Reed-Solomon in clusters",
        lambda s, **_: {"stragglers": s, "clusters": "auto"},
    ),
    "binary": _Entry(BinaryCode, "binary", lambda s, **_: {"stragglers": s}),
    "fractional": _Entry(
        FractionalRepetition, "fractional repetition", lambda s, **_: {"stragglers": s}
    ),
    "cyclic": _Entry(
        CyclicRepetition, "cyclic repetition", lambda s, seed, **_: {"stragglers": s, "seed": seed}
    ),
    "bcc": _Entry(CouponCollector, "batched coupon collector", _seeded),
    "random": _Entry(RandomAssignment, "random assignment", _seeded),
    "uncoded": _Entry(Uncoded, "uncoded, wait for all", lambda **_: {}),
    "ignore": _Entry(
        Uncoded,
        "uncoded, ignore stragglers",
        # the s largest of the shares
        lambda s, n, k, **_: {"tolerance": (s * (k // n) + min(s, k % n)) / k},
    ),
    "uc-mmc": _Entry(Uncoded, "UC-MMC", lambda load, **_: {"load": load}),
    "uc-mmc-pg": _Entry(
        Uncoded, "UC-MMC-PG, 5%", lambda load, **_: {"load": load, "tolerance": 0.05}
    ),
    "lcc": _Entry(LagrangeCode, "Lagrange (LCC)", lambda load, **_: {"load": load}),
    "lcc-mmc": _Entry(
        LagrangeCode, "Lagrange (LCC-MMC)", lambda load, **_: {"load": load, "messages": load}
    ),
    "lcc-mmc-2": _Entry(
        LagrangeCode,
        "Lagrange (LCC-MMC-2)",
        lambda load, **_: {"load": load + load % 2, "messages": (load + 1) // 2},
    ),
    "linear": _Entry(LinearCode, "any matrix", lambda **_: {}),
}


def split(text: str) -> list[str]:
    """The codes in a list such as ``"rs:clusters=auto,root=1,bcc"``.

    A comma begins the next code unless ``key=value`` follows it.
    """
    return [item.strip() for item in re.split(r",(?![^,:]*=)", text) if item.strip()]


def describe(text: str) -> str:
    """A title for tables."""
    name, _, listed = text.partition(":")
    return NAMES[name].title + (f" ({listed})" if listed else "")


def check_name(text: str) -> None:
    """Raise ValueError unless the text names a code, whatever its arguments."""
    if not isinstance(text, str):
        raise TypeError(f"a code's name must be text, not {text!r}")
    name = text.partition(":")[0]
    if name not in NAMES:
        raise ValueError(f"unknown code {name!r}: choose among {', '.join(NAMES)}")


def make(text: str, n: int, k: int | None = None, stragglers: int = 0, seed: int = 0) -> Code:
    """A code by its name.

    Parameters
    ----------
    text : str
        A name of `NAMES`, alone or with arguments of its class: ``"bcc:load=5,seed=3"``. Words and
        numbers stand for themselves, ``speeds=2/1/1`` for a list; ``linear:B=matrix.npy`` reads
        the matrix from a file.
    n : int
        Workers.
    k : int, optional
        Partitions, n by default.
    stragglers : int
        Stragglers to tolerate; codes whose parameter is the load get
        ceil((stragglers + 1) k / n) of it, what a code that tolerates them needs.
    seed : int
        For random codes; they take the next one with which every partition is picked.

    Raises
    ------
    ValueError
        If there is no such code, or none with such parameters.
    """
    check_name(text)
    name, _, listed = text.partition(":")
    entry = NAMES[name]
    k = n if k is None else k
    if n < 1 or k < 1:
        raise ValueError(f"n and k must be at least 1, not n={n}, k={k}")
    if not 0 <= stragglers < n:
        raise ValueError(f"stragglers must be in 0 .. n-1 = {n - 1}, not {stragglers}")
    load = min(-(-(stragglers + 1) * k // n), k)
    known = {"n": n, "k": k, "s": stragglers, "load": load, "seed": seed}
    arguments: dict[str, Any] = {} if entry.kind is LinearCode else {"n": n, "k": k}
    arguments |= entry.defaults(**known)
    takes = [p for p in inspect.signature(entry.kind).parameters if p not in ("n", "k")]
    given = {}
    for item in filter(None, listed.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if key not in takes or not equals or key in given:
            raise ValueError(
                f"code {text!r}: {name} takes {', '.join(takes)}, once each; not {item}"
            )
        given[key] = _value(value)
    if "loads" in given:
        arguments.pop("load", None)
    if "load" in given:  # it says what is tolerated
        arguments.pop("stragglers", None)
    arguments |= given
    if entry.kind is not LinearCode:
        try:
            return entry.kind(**arguments)
        except UncoveredError as error:
            if "seed" in given or error.seed is None:
                raise
            return entry.kind(**{**arguments, "seed": error.seed})
    if "B" not in arguments:
        raise ValueError("the code linear needs a matrix: linear:B=matrix.npy")
    try:
        arguments["B"] = np.load(str(arguments["B"]), allow_pickle=False)
    except EOFError:
        raise ValueError(f"{arguments['B']} is no .npy file: it is empty") from None
    code = LinearCode(**arguments)
    if code.n != n:
        raise ValueError(f"the matrix has {code.n} rows, but there are {n} workers")
    return code


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    parts = [_value(part) for part in text.split("/")] if "/" in text else []
    if parts and not any(isinstance(part, str) for part in parts):
        return parts
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    return words.get(text.lower(), text)
