"""Delay models as text, for command lines."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from .._base.registry import Registry, read_arguments
from .distributions import Distribution, Exponential, Pareto, ShiftedExponential
from .empirical import Empirical
from .interface import DelayModel, check_model
from .mixtures import Heterogeneous, Mixture, Outages

__all__ = ["parse", "register"]

MODELS = Registry("delay model")
for _name, _kind in (
    ("pareto", Pareto),
    ("shifted-exponential", ShiftedExponential),
    ("exponential", Exponential),
    ("empirical", Empirical),
):
    MODELS.register(_name, _kind)
_OWN = MODELS.names()

# The common forms that `parse` reads, for errors and the help of commands, which breaks lines at
# blanks.
COMMON = (
    'none, "pareto: scale=0.005, shape=1.1", "exponential: mean=0.01", '
    '"shifted-exponential: shift=0.01, rate=10", or "empirical: FILE" for recorded times'
)
# All forms, each with its meaning: `--delays help` prints them.
FORMS = (
    ("none", "no delays"),
    (
        "pareto:scale=0.005,shape=1.1",
        "at least 0.005 s; the smaller the shape, the heavier the tail",
    ),
    ("exponential:mean=0.01", "0.01 s on average"),
    (
        "shifted-exponential:shift=0.01,rate=10",
        "0.01 s and an exponential time of mean 1/10 s, for each partition of a worker",
    ),
    (
        "empirical:FILE",
        "recorded times: a table of rounds and workers (csv, txt, npy, npz, json, parquet)",
    ),
    ("empirical:FILE,unit=ms", "the same in another unit than seconds: ms, us or ns"),
    ("MODULE:CLASS:KEY=VALUE", "an instance of a class that can be imported"),
    ("MODEL,per=computation", "multiplies the time by the worker's load"),
    ("MODEL,per=round", "does not (the default, except for shifted-exponential)"),
    ("0.9*MODEL + 0.1*MODEL", "draws each time from one of the models at random"),
    ("95 of MODEL; 5 of MODEL", "the first 95 workers have one model, the last 5 another"),
    (
        "MODEL | outages:sizes=4/4/4,probability=0.001,seconds=60",
        "in a round, each node of 4 workers fails with this probability: they are 60 s later",
    ),
)

_MOST_WORKERS = 10**6

_CLASS = re.compile(r"[^:=]+:[^:=]+(:|$)")  # module:Class, with or without arguments
_FILE = re.compile(r"(.*?)((?:,\s*(?:per|unit)\s*=[^,=]*)*)", re.IGNORECASE | re.DOTALL)
_FAILING = re.compile(r"(.*)\|\s*outages\s*:(.*)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r",\s*(per|unit)\s*=([^,=]*)", re.IGNORECASE)  # after the name of a file
_WEIGHT = r"\s*[\d.]+(?:e[+-]?\d+)?\s*"


def written(model: Distribution) -> str:
    """Return a text that `parse` reads as this named model, up to rounding."""
    for name in ("pareto", "shifted-exponential", "exponential"):
        kind = MODELS.get(name)
        if type(model) is kind:
            parameters = inspect.signature(kind).parameters
            wanted = [key for key in parameters if key != "per"]
            values = [model.mean() if key == "mean" else getattr(model, key) for key in wanted]
            listed = ",".join(f"{k}={v:.4g}" for k, v in zip(wanted, values, strict=True))
            usual = parameters["per"].default
            return f"{name}:{listed}" + (f",per={model.per}" if model.per != usual else "")
    raise TypeError(f"there is no text for {model!r}")


def register(name: str, factory: Callable[..., DelayModel], *, replace: bool = False) -> None:
    """Give a delay model a name for `parse` and all commands.

    A class that can be imported needs no name: ``"module:Class:key=value"``.

    Parameters
    ----------
    name : str
        Small letters, digits and ``. _ -``.
    factory : callable
        A class, or a function that returns a model, which is anything with a method
        ``sample(round, workers, seed)``. A text gives the keyword parameters of its signature, as
        in ``"weibull:shape=0.7,scale=0.01"``.
    replace : bool
        Whether `factory` may replace another one of this name.

    Raises
    ------
    ValueError, TypeError
        If `name` is not such a name, another factory has it and `replace` is False, or an argument
        has a wrong type.
    """
    if name == "none":
        raise ValueError("'none' cannot name a delay model: it means no delays")
    MODELS.register(name, factory, replace=replace)


def others() -> list[str]:
    """Return the names of models that users have registered."""
    return [name for name in MODELS.names() if name not in _OWN]


def _expected() -> str:
    known = f"; also known: {', '.join(names)}" if (names := others()) else ""
    return f"{COMMON}{known} (`fastgc plan --delays help` prints all forms)"


def parse(text: str) -> DelayModel | None:
    """Read a delay model from text, as on a command line.

    Parameters
    ----------
    text : str
        One of

        - ``"none"``: no delays;
        - a model with all its parameters: ``"pareto:scale=0.01,shape=1.1"``,
          ``"shifted-exponential:shift=0.01,rate=10"`` or ``"exponential:mean=0.01"``;
        - a model of your own, with the arguments of its constructor: by name (`register`),
          ``"weibull:shape=0.7"``, or by its class, which is imported,
          ``"mypkg.delays:Weibull:shape=0.7"``;
        - recorded times, ``"empirical:FILE"`` or ``"empirical:FILE,unit=ms"``: a file that
          `Empirical.read` reads. With several rounds and workers, whole rounds are drawn;
        - a mixture, ``"0.9*pareto:... + 0.1*exponential:..."``;
        - workers that differ, ``"95 of exponential:... ; 5 of pareto:..."``, 100 in all;
        - any of these with nodes or zones that fail (`Outages`), given by their numbers of workers:
          ``"pareto:... | outages:sizes=4/4/4,probability=0.001,seconds=60"``.

        Mixtures and differing workers need models that are a `Distribution`. A model may end in
        ``",per=round"`` or ``",per=computation"``; your own model needs such a parameter for it.
        Capitals matter only in values and in the names of files, modules and classes.

    Returns
    -------
    DelayModel or None
        None for ``"none"``.

    Raises
    ------
    ValueError
        If the text is none of these, or a file holds no times; the message says what was expected.
    TypeError
        If `text` is not a string.
    OSError
        If a file cannot be read.
    ImportError
        If a module exists and cannot be loaded.
    """
    if not isinstance(text, str):
        raise TypeError(f"a delay model is a text, not {text!r}")
    if not text.strip():
        raise ValueError(f"the text of a delay model is empty: expected {_expected()}")
    if text.strip().lower() == "none":
        return None
    if failing := _FAILING.fullmatch(text):
        return _outages(text, *failing.groups())
    groups = text.split(";")
    if len(groups) == 1 and not _counted(text):
        return _mixture(text)
    models: list[Distribution] = []
    for group in groups:
        counted = _counted(group)
        if counted is None:
            raise ValueError(
                f"delay model {group.strip()!r}: workers that differ are listed as in '95 of "
                "exponential:mean=1; 5 of exponential:mean=9'"
            )
        if len(models) + float(counted[1]) > _MOST_WORKERS:  # no int: Python reads 4300 digits only
            raise ValueError(
                f"delay model {group.strip()[:80]!r}: at most {_MOST_WORKERS} workers in all"
            )
        models += [_distribution(counted[2], _mixture(counted[2]))] * int(counted[1])
    return Heterogeneous(models)


def _outages(text: str, model: str, listed: str) -> Outages:
    what = f"delay model {text.strip()!r}"

    def outages(sizes: Any, probability: float, seconds: float) -> Outages:
        each = sizes if isinstance(sizes, list | tuple) else [sizes]
        if not all(type(size) is int and size > 0 for size in each):
            raise ValueError(f"sizes must be workers of each node, as in 4/4/4, not {sizes!r}")
        if sum(each) > _MOST_WORKERS:
            raise ValueError(f"at most {_MOST_WORKERS} workers in all")
        labels = [node for node, size in enumerate(each) for _ in range(size)]
        return Outages(parse(model), labels, probability, seconds)

    arguments = read_arguments(outages, listed, what)
    try:
        return outages(**arguments)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error


def _counted(text: str) -> re.Match[str] | None:
    return re.fullmatch(r"\s*(\d+)\s+of\s+(.*)", text, re.IGNORECASE)


def _mixture(text: str) -> DelayModel:
    # Split at a plus before a weight and a star; the plus of 1e+3 is none.
    terms = re.split(rf"\+(?={_WEIGHT}\*)", text, flags=re.IGNORECASE)
    weighted = [re.fullmatch(rf"({_WEIGHT})\*(.*)", term, re.IGNORECASE) for term in terms]
    if weighted == [None]:
        return _model(text)
    models, weights = [], []
    for term, match in zip(terms, weighted, strict=True):
        if match is None:
            raise ValueError(
                f"delay model {term.strip()!r}: a mixture is written as in '0.9*exponential:mean=1 "
                "+ 0.1*exponential:mean=9'"
            )
        try:
            weights.append(float(match[1]))
        except ValueError:
            raise ValueError(f"delay model {term!r}: a weight must be a number") from None
        models.append(_distribution(match[2], _model(match[2])))
    return Mixture(models, weights)


def _distribution(text: str, model: DelayModel) -> Distribution:
    """Return the model; raise ValueError if it cannot be part of a mixture."""
    if not isinstance(model, Distribution):
        raise ValueError(
            f"delay model {text.strip()!r} can be sampled, but mixtures and workers that differ "
            "need models that are a fastgc.delays.Distribution"
        )
    return model


def _model(text: str) -> DelayModel:
    named = text.partition(":")[0]
    if named not in MODELS and not _CLASS.match(text):
        meant = MODELS.meant(named.strip())
        hint = f"did you mean {meant!r}? Else write" if meant else "expected"
        raise ValueError(f"unknown delay model {text.strip()!r}: {hint} {_expected()}")
    name, factory, listed = MODELS.resolve(text)
    if factory is Empirical:
        return _empirical(text, listed)
    what = f"delay model {text!r}"
    arguments = read_arguments(factory, listed, what)
    if isinstance(per := arguments.get("per"), str):
        arguments["per"] = per.lower()
    try:
        model: DelayModel | None = factory(**arguments)
        check_model(model)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: {error}") from error
    if model is None:
        raise ValueError(f"{what}: {name} returned None instead of a model")
    return model


def _empirical(text: str, listed: str) -> Empirical:
    file, options = _FILE.fullmatch(listed).groups()  # type: ignore[union-attr]  # always one
    given: dict[str, Any] = {}
    for name, value in _OPTION.findall(options):
        if name.lower() in given:
            raise ValueError(f"delay model {text!r}: {name.lower()} is given twice")
        given[name.lower()] = value.strip().lower()
    if not file.strip():
        raise ValueError(f"delay model {text!r}: empirical takes a file, as in empirical:times.npy")
    try:
        return Empirical.read(file.strip(), **given)
    except ValueError as error:
        raise ValueError(f"delay model {text!r}: {error}") from error
