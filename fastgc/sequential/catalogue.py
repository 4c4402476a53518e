"""Schemes by name, and the parameters that are tried if a name gives none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from .._arrays import at_least
from .._registry import Found, Registry, keywords, read_value, split_arguments
from ..codes import catalogue
from ..coding.arguments import unasked
from ..errors import InstabilityWarning
from .multiplexed import MSGC
from .repetition import SRSGC
from .scheme import Independent, SequentialScheme, ladder

__all__ = ["Candidate", "candidates", "describe", "make", "names", "register"]

_REGISTRY = Registry("sequential scheme", "fastgc.sequential")


class Candidate(NamedTuple):
    """A scheme, and what it was made with."""

    name: str  # as it was asked for, with all arguments that the text said
    found: dict[str, Any]  # those that it left open; of a gradient code, its stragglers
    scheme: SequentialScheme


def register(
    name: str,
    factory: Callable[..., SequentialScheme],
    title: str | None = None,
    *,
    replace: bool = False,
) -> None:
    """Give a scheme a name for `make`, `compare` and the command ``fastgc sequential``.

    Installed packages may instead offer their schemes as entry points of the group
    ``fastgc.sequential``. ``module:Class`` names any class that can be imported.

    Parameters and errors are as in `fastgc.codes.register`; the factory makes a scheme.
    """
    _REGISTRY.register(name, factory, title, replace)


register("sr-sgc", SRSGC, "selective repetition")
register("m-sgc", MSGC, "multiplexed")


def names() -> list[str]:
    """Names of schemes that code across rounds, including those of installed packages."""
    return _REGISTRY.names()


def describe(text: str) -> str:
    """A scheme as tables show it: the name to type, and its meaning.

    Raises
    ------
    ValueError, ImportError, TypeError
        If the text names no scheme, as in `make`.
    """
    found = _found(text)
    if found is None:
        return catalogue.describe(text)
    title = _REGISTRY.title(found.name) if found.name in _REGISTRY else found.name
    return text if title in (text, found.name) else f"{text} ({title})"


def make(text: str, n: int, *, stragglers: int = 0, seed: int = 0) -> SequentialScheme:
    """A scheme by its name.

    Parameters
    ----------
    text : str
        ``"sr-sgc"``, ``"m-sgc"``, or another of `names`, or ``module:Class``, with arguments of the
        class: ``"m-sgc:burst=1,window=2,stragglers=3"``; ``code=binary`` names the code of parts.
        Or a gradient code, as `fastgc.codes.make` takes it, which gives `Independent`.
    n : int
        Workers.
    stragglers, seed : int
        For gradient codes, as in `fastgc.codes.make`.

    Raises
    ------
    ValueError
        If there is no such scheme, or none with such parameters, or if one is missing.
    ImportError
        If the module cannot be imported.
    TypeError
        If an argument has a wrong type, or the class does not make a scheme.

    Examples
    --------
    >>> from fastgc.sequential import make
    >>> make("m-sgc:burst=1,window=2,stragglers=3", 8).delay
    1
    >>> make("binary", 8, stragglers=1)
    Independent(BinaryCode(n=8, stragglers=1))
    """
    found, n = _found(text), at_least("n", n, 1)
    if found is None:
        return Independent(catalogue.make(text, n, None, stragglers, seed))
    return _made(found, text, n, _listed(found, text))


def candidates(text: str, n: int, delay: int, seed: int = 0) -> list[Candidate]:
    """All schemes that a text may stand for: those with all parameters that it leaves open.

    Which are tried is for a scheme's class to say (`SequentialScheme.choices`). Of gradient codes
    that tolerate stragglers, it is how many.

    One at least, of those whose jobs are done `delay` rounds after they begin at the latest. `text`
    is as in `make`, but parameters may be missing. `seed` is that of random codes.

    Raises
    ------
    ValueError, ImportError, TypeError
        As in `make`; also if there is none, or if a code's gradients need not be exact.
    """
    found, n, delay = _found(text), at_least("n", n, 1), at_least("delay", delay, 0)
    if found is None:
        return _codes(text, n, seed)
    listed = _listed(found, text)
    choices = getattr(found.factory, "choices", None)
    tried = [{}] if choices is None else list(choices(n, delay))
    tried = [each for each in tried if all(listed.get(key, each[key]) == each[key] for key in each)]
    if not _missing(found, listed):
        tried = [{}]
    made: list[Candidate] = []
    why = f"of those that are tried, with jobs done {delay} rounds after they begin, none is such"
    for choice in tried:
        try:
            scheme = _made(found, text, n, choice | listed)
        except ValueError as error:
            why = str(error)
            continue
        if scheme.delay <= delay:
            left = {key: value for key, value in choice.items() if key not in listed}
            made.append(Candidate(text, left, scheme))
        else:
            why = f"a job is done {scheme.delay} rounds after it begins, and {delay} are allowed"
    if not made:
        raise ValueError(f"{text!r}, of {n} workers: {why}")
    return made


def _codes(text: str, n: int, seed: int) -> list[Candidate]:
    """A gradient code, round by round, for as many stragglers as it may tolerate."""
    made: dict[str, Candidate] = {}
    why = ""
    for s in [0, *ladder(n - 1)]:
        try:
            with warnings.catch_warnings(), unasked():
                warnings.simplefilter("ignore", InstabilityWarning)  # only time is asked for
                scheme = Independent(catalogue.make(text, n, None, s, seed))
        except ValueError as error:
            why = str(error)
            continue
        [code] = scheme.parts
        if code.scheme.approximate:
            raise ValueError(
                f"{text!r} leaves part of the gradient out: `fastgc simulate` says how much; here "
                "gradients are exact"
            )
        made.setdefault(repr(code), Candidate(text, {"stragglers": s}, scheme))
    if not made:
        raise ValueError(f"{text!r}, of {n} workers: {why}")
    only = list(made.values())
    return only if len(only) > 1 else [only[0]._replace(found={})]


def _found(text: str) -> Found | None:
    """What a text names; None of a gradient code."""
    if isinstance(text, str) and text.partition(":")[0] in _REGISTRY:
        return _REGISTRY.resolve(text)
    try:
        factory = catalogue.factory(text)
    except ValueError as error:
        raise ValueError(f"{error}; across rounds code {', '.join(names())}") from None
    if isinstance(factory, type) and issubclass(factory, SequentialScheme):
        return _REGISTRY.resolve(text)
    return None


def _listed(found: Found, text: str) -> dict[str, Any]:
    """Arguments that a text lists, of those that the scheme has."""
    takes, anything = keywords(found.factory, frozenset(["n"]))
    try:
        listed = split_arguments(found.listed)
        strange = next((key for key in listed if not (anything or key in takes)), None)
        if strange is not None:
            raise ValueError(f"not {strange}={listed[strange]}")
    except ValueError as error:
        raise ValueError(
            f"scheme {text!r}: {found.name} takes {', '.join(takes) or 'no arguments'}, once each; "
            f"{error}"
        ) from None
    values = {key: read_value(value) for key, value in listed.items()}
    if isinstance(values.get("code"), str):
        values["code"] = catalogue.factory(values["code"])
    return values


def _missing(found: Found, given: dict[str, Any]) -> list[str]:
    """Arguments that a scheme needs, and has not been given."""
    takes, _ = keywords(found.factory, frozenset(["n"]))
    return [
        name for name, each in takes.items() if each.default is each.empty and name not in given
    ]


def _made(found: Found, text: str, n: int, given: dict[str, Any]) -> SequentialScheme:
    if missing := _missing(found, given):
        raise ValueError(
            f"scheme {text!r}: {' and '.join(missing)} missing, as in "
            f"{found.name}:{','.join(f'{name}=1' for name in missing)}"
        )
    scheme = found.factory(n, **given)
    if not isinstance(scheme, SequentialScheme):
        raise TypeError(f"{text!r} makes {scheme!r}, which is no scheme of fastgc.sequential")
    return scheme
