"""Schemes by name, and the parameters tried for a name that leaves some open."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from .._base.arrays import at_least
from .._base.registry import Found, Registry, keywords, read_arguments
from ..codes import catalogue
from ..coding.arguments import unasked
from ..errors import InstabilityWarning
from .bursty import MSGC, SRSGC, ladder
from .scheme import Independent, SequentialScheme

_REGISTRY = Registry("sequential scheme")
_REGISTRY.register("sr-sgc", SRSGC, "selective repetition")
_REGISTRY.register("m-sgc", MSGC, "multiplexed")


class Candidate(NamedTuple):
    """A scheme, and the arguments that made it."""

    name: str  # the text asked for, with all arguments that it gives
    found: dict[str, Any]  # arguments that the text leaves open; for a gradient code, stragglers
    scheme: SequentialScheme


def names() -> list[str]:
    """Names of schemes that code across rounds."""
    return _REGISTRY.names()


def describe(text: str) -> str:
    """Describe a scheme for tables: the name to type, and its meaning.

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
    """Make a scheme by its name.

    Parameters
    ----------
    text : str
        One of `names`, such as ``"sr-sgc"`` or ``"m-sgc"``, or ``module:Class``, with arguments of
        the class: ``"m-sgc:burst=1,window=2,stragglers=3"``; ``code=binary`` names the code of
        parts. Or a gradient code, as in `fastgc.codes.make`, which gives `Independent`.
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
    """Return every scheme that `text` may stand for, at least one.

    `text` is as in `make`, but may leave parameters open. The scheme's class says which values to
    try (`SequentialScheme.choices`); for a gradient code, the numbers of stragglers are tried.
    Schemes whose jobs may take more than `delay` rounds beyond their first are left out. `seed` is
    for random codes.

    Raises
    ------
    ValueError, ImportError, TypeError
        As in `make`; also if there is no such scheme, or if a code's gradients need not be exact.
    """
    found, n, delay = _found(text), at_least("n", n, 1), at_least("delay", delay, 0)
    listed: dict[str, Any] = {}
    if found is None:
        tried: list[dict[str, Any]] = [{"stragglers": s} for s in (0, *ladder(n - 1))]
    else:
        listed = _listed(found, text)
        choices = getattr(found.factory, "choices", None) if _missing(found, listed) else None
        tried = [{}] if choices is None else list(choices(n, delay))
        tried = [c for c in tried if all(listed.get(key, c[key]) == c[key] for key in c)]
    made: dict[str, Candidate] = {}
    why = f"of those that are tried, with jobs done {delay} rounds after they begin, none is such"
    for choice in tried:
        try:
            if found is None:
                scheme = _independent(text, n, choice["stragglers"], seed)
            else:
                scheme = _made(found, text, n, choice | listed)
        except ValueError as error:
            why = str(error)
            continue
        if found is None and scheme.parts[0].scheme.approximate:
            raise ValueError(
                f"{text!r} leaves part of the gradient out: `fastgc simulate` says how much; here "
                "gradients are exact"
            )
        if scheme.delay > delay:
            why = f"a job is done {scheme.delay} rounds after it begins, and {delay} are allowed"
            continue
        left = {key: value for key, value in choice.items() if key not in listed}
        made.setdefault(repr(scheme), Candidate(text, left, scheme))
    if not made:
        raise ValueError(f"{text!r}, of {n} workers: {why}")
    different = list(made.values())
    if found is None and len(different) == 1:  # a code that does not depend on the stragglers
        return [different[0]._replace(found={})]
    return different


def _independent(text: str, n: int, stragglers: int, seed: int) -> SequentialScheme:
    """Return a gradient code's scheme; it does not warn, because only times are compared."""
    with warnings.catch_warnings(), unasked():
        warnings.simplefilter("ignore", InstabilityWarning)
        return Independent(catalogue.make(text, n, None, stragglers, seed))


def _found(text: str) -> Found | None:
    """Return the scheme that a text names; None if it names a gradient code."""
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
    """Return the arguments that a text gives; a code's name stands for what makes the code."""
    what = f"scheme {text!r}"
    values = read_arguments(found.factory, found.listed, what, ("n",), whole=False)
    if isinstance(values.get("code"), str):
        values["code"] = catalogue.factory(values["code"])
    return values


def _missing(found: Found, given: dict[str, Any]) -> list[str]:
    """Return the names of the arguments that a scheme requires and `given` lacks."""
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
