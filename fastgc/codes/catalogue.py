"""Codes by name, with sensible parameters: for command lines, planning and tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .._base.arrays import at_least, check_integer
from .._base.files import read_npy
from .._base.registry import Registry, keywords, read_arguments
from ..coding.arguments import arguments_of, check_stragglers
from ..coding.code import Code
from ..numerics.graphs import max_degree
from .binary import BinaryCode
from .coupon_collector import CouponCollector
from .cyclic_repetition import CyclicRepetition
from .fractional_repetition import FractionalRepetition
from .graph import GraphCode
from .lagrange import LagrangeCode
from .linear import LinearCode
from .partial_work import PartialWork
from .random_assignment import RandomAssignment, UncoveredError
from .reactive import Reactive
from .reed_solomon import ReedSolomon
from .uncoded import Uncoded

# Returns a factory's arguments, given n, k, s, load and seed as keywords.
Defaults = Callable[..., dict[str, Any]]

_REGISTRY = Registry("code")
_DEFAULTS: dict[str, Defaults] = {}


def register(
    name: str,
    factory: Callable[..., Code],
    title: str | None = None,
    *,
    defaults: Defaults | None = None,
    replace: bool = False,
) -> None:
    """Give a code a name for `make`, planning, simulations, tables and the command line.

    ``module:Class`` names any class that can be imported.

    Parameters
    ----------
    name : str
        Small letters, digits and ``. _ -``.
    factory : callable
        A class, or a function that returns a code. It is called with ``n`` and those of ``k``,
        ``stragglers``, ``load`` and ``seed`` that are in its signature: ``k`` if it is given or
        required, ``load`` if it is required or there is no ``stragglers``.
    title : str, optional
        For tables and plots. Default: the name.
    defaults : callable, optional
        Called with the keywords ``n, k, s, load, seed``; returns the arguments other than ``n`` and
        ``k``.
    replace : bool
        Whether it may replace another factory of this name.

    Raises
    ------
    ValueError
        If another factory has the name and `replace` is False, or if it is not a name.
    TypeError
        If an argument has a wrong type.

    Examples
    --------
    >>> import fastgc
    >>> fastgc.codes.register("rs-paper", lambda n, stragglers: fastgc.ReedSolomon(
    ...     n, stragglers=stragglers, root=1), "Reed-Solomon, the paper's root")
    >>> fastgc.codes.make("rs-paper", 8, stragglers=2)
    ReedSolomon(n=8, stragglers=2, root=1)
    """
    _REGISTRY.register(name, factory, title, replace)
    _DEFAULTS.pop(name, None)
    if defaults is not None:
        _DEFAULTS[name] = defaults


def _taking(*names: str, **fixed: Any) -> Defaults:
    """The arguments of these names, and fixed ones."""

    def defaults(s: int, load: int, seed: int, **_: int) -> dict[str, Any]:
        known = {"stragglers": s, "load": load, "seed": seed}
        return {name: known[name] for name in names} | fixed

    return defaults


_BUILT_IN: list[tuple[str, type[Code], str, Defaults]] = [
    ("rs", ReedSolomon, "Reed-Solomon", _taking("stragglers")),
    (
        "rs-clustered",
        ReedSolomon,
        "Reed-Solomon in clusters",
        _taking("stragglers", clusters="auto"),
    ),
    ("binary", BinaryCode, "binary", _taking("stragglers")),
    ("fractional", FractionalRepetition, "fractional repetition", _taking("stragglers")),
    ("cyclic", CyclicRepetition, "cyclic repetition", _taking("stragglers", "seed")),
    ("bcc", CouponCollector, "batched coupon collector", _taking("load", "seed")),
    ("random", RandomAssignment, "random assignment", _taking("load", "seed")),
    ("uncoded", Uncoded, "waits for all", _taking()),
    (
        "ignore",
        Uncoded,
        "uncoded, ignores stragglers",
        # the part of the data that the s largest shares hold
        lambda s, n, k, **_: {"tolerance": (s * (k // n) + min(s, k % n)) / k},
    ),
    ("uc-mmc", Uncoded, "uncoded, a message for each partition", _taking("load")),
    ("partial-work", PartialWork, "UC-MMC, any assignment", _taking("load")),
    (
        "reactive",
        Reactive,
        "computed again where workers fail",
        lambda s, **_: {"holders": max(s, 1) + 1},
    ),
    ("uc-mmc-pg", Uncoded, "UC-MMC, 5% may be missing", _taking("load", tolerance=0.05)),
    ("lcc", LagrangeCode, "Lagrange", _taking("load")),
    (
        "lcc-mmc",
        LagrangeCode,
        "Lagrange, several messages",
        lambda load, **_: {"load": load, "messages": load},
    ),
    (
        "lcc-mmc-2",
        LagrangeCode,
        "Lagrange, half as many messages",
        lambda load, **_: {"load": load + load % 2, "messages": (load + 1) // 2},
    ),
    (
        "graph",
        GraphCode,
        "edges of a random graph",
        lambda n, s, load, seed, **_: {
            "degree": min(max(load, 2), max_degree(n)),
            "wait": n - s,
            "seed": seed,
        },
    ),
    ("linear", LinearCode, "any matrix", _taking()),
]
for _name, _kind, _title, _given in _BUILT_IN:
    register(_name, _kind, _title, defaults=_given)

# Titles of methods for decoding vectors, for tables and plots.
_METHODS = {
    "spread": "exact vectors",
    "near-exact": "near-exact vectors",
    "vandermonde": "by Björck–Pereyra",
    "leja": "by Björck–Pereyra, Leja order",
    "natural": "by Björck–Pereyra, natural order",
    "solve": "by LU",
}

# Names that fastgc itself registers.
BUILT_IN = tuple(entry[0] for entry in _BUILT_IN)


def names() -> list[str]:
    """The names of codes that need no argument but n."""
    return [name for name in _REGISTRY.names() if name != "linear"]


def split(text: str) -> list[str]:
    """Split a list of codes such as ``"rs:clusters=auto,root=1,bcc"``.

    A comma begins the next code unless ``key=value`` follows it.
    """
    return [item.strip() for item in re.split(r",(?![^,:]*=)", text) if item.strip()]


def describe(text: str) -> str:
    """The text that people read for a code: the name to type, and what it stands for.

    The name may have arguments, and a method for decoding vectors.

    Examples
    --------
    >>> describe("rs:root=1"), describe("rs@solve"), describe("binary")
    ('rs:root=1 (Reed-Solomon)', 'rs@solve (Reed-Solomon, by LU)', 'binary')
    """
    code, _, method = text.partition("@")
    name = _REGISTRY.resolve(code).name
    title = _REGISTRY.title(name) if name in _REGISTRY else name
    said = [title] if title != name else []
    said += [_METHODS.get(method, f"by {method}")] if method else []
    return f"{text} ({', '.join(said)})" if said else text


def remark(text: str, code: Code) -> str | None:
    """A remark for readers of a table with a code made by this name, or None."""
    if not isinstance(code, ReedSolomon) or arguments_of(code).get("clusters") != "auto":
        return None
    if code.scheme.clusters > 1:
        return None
    return (
        f"{text}, n={code.n}, s={code.stragglers}: one cluster, the same code as without clusters; "
        f"two that tolerate {code.stragglers} stragglers each need more workers or a larger load"
    )


def factory(text: str) -> Callable[..., Code]:
    """The factory of the code that a text names; ValueError if there is none."""
    return _REGISTRY.resolve(text).factory


def methods(text: str) -> tuple[str, ...] | None:
    """Methods for decoding vectors of the code that a text names; None if a function makes it."""
    made_by = factory(text)
    if isinstance(made_by, type) and issubclass(made_by, Code):
        return made_by._known_methods
    return None


def check_name(text: str) -> None:
    """Raise ValueError unless the text names a code; arguments are not checked."""
    _REGISTRY.resolve(text)


def make(text: str, n: int, k: int | None = None, stragglers: int = 0, seed: int = 0) -> Code:
    """Make a code by its name.

    Parameters
    ----------
    text : str
        A name (one of `names`, or ``linear``) or ``module:Class``, alone or with arguments of its
        class: ``"bcc:load=5,seed=3"``. Words and numbers stand for themselves; ``speeds=2/1/1`` is
        a list; ``linear:B=matrix.npy`` reads the matrix from a file.
    n : int
        Workers.
    k : int, optional
        Partitions, n by default.
    stragglers : int
        Stragglers to tolerate. Codes whose parameter is the load get the load that a code needs to
        tolerate them, ceil((stragglers + 1) k / n).
    seed : int
        Seed of random codes. They take the next seed with which every partition is picked.

    Raises
    ------
    ValueError
        If there is no such code, or none with these parameters.
    ImportError
        If the module cannot be imported.
    """
    found = _REGISTRY.resolve(text)
    n, seed = at_least("n", n, 1), check_integer("seed", seed)
    wanted_k = k
    k = n if k is None else at_least("k", k, 1)
    stragglers = check_stragglers(stragglers, n)
    load = min(-(-(stragglers + 1) * k // n), k)
    known = {"n": n, "k": k, "s": stragglers, "load": load, "seed": seed}
    what = f"code {text!r}"
    given = read_arguments(found.factory, found.listed, what, ("n", "k"), whole=False)
    if found.factory is LinearCode:
        return _linear(n, given)
    defaults = _DEFAULTS.get(found.name)
    if defaults is not None:
        arguments = {"n": n} | ({} if wanted_k is None else {"k": k}) | defaults(**known)
    else:
        arguments = _fitting(found.factory, known, wanted_k)
    if "loads" in given:
        arguments.pop("load", None)
    if "load" in given and not _needs(found.factory, "stragglers"):  # it says what is tolerated
        arguments.pop("stragglers", None)
    try:
        code = found.factory(**arguments | given)
    except UncoveredError as error:
        if "seed" in given or error.seed is None:
            raise
        code = found.factory(**arguments | given | {"seed": error.seed})
    if not isinstance(code, Code):
        raise TypeError(f"{text!r} makes {code!r}, which is not a fastgc.Code")
    return code


def _needs(factory: Callable[..., Code], name: str) -> bool:
    parameter = keywords(factory)[0].get(name)
    return parameter is not None and parameter.default is parameter.empty


def _fitting(factory: Callable[..., Code], known: dict[str, int], k: int | None) -> dict[str, Any]:
    """The arguments for a factory out of what is known, by the names of its parameters."""
    parameters, _ = keywords(factory)
    if "n" not in parameters:
        raise ValueError(f"{factory!r} has no parameter n, the number of workers")
    arguments: dict[str, Any] = {"n": known["n"]}
    if "k" in parameters and (k is not None or _needs(factory, "k")):
        arguments["k"] = known["k"]
    elif k is not None and k != known["n"] and "k" not in parameters:
        raise ValueError(
            f"it has as many partitions as workers, {known['n']}, so k={k} is impossible"
        )
    if "stragglers" in parameters:
        arguments["stragglers"] = known["s"]
    if "load" in parameters and (_needs(factory, "load") or "stragglers" not in parameters):
        arguments["load"] = known["load"]
    if "seed" in parameters:
        arguments["seed"] = known["seed"]
    return arguments


def _linear(n: int, given: dict[str, Any]) -> LinearCode:
    if "B" not in given:
        raise ValueError("the code linear needs a matrix: linear:B=matrix.npy")
    given["B"] = read_npy(str(given["B"]))
    code = LinearCode(**given)
    if code.n != n:
        raise ValueError(f"the matrix has {code.n} rows, but there are {n} workers")
    return code
