"""Delay models as a command line names them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .distributions import Delays, Distribution, Exponential, Pareto, ShiftedExponential
from .empirical import Empirical
from .mixtures import Heterogeneous, Mixture

__all__ = ["FORMS", "parse", "written"]

_MODELS: dict[str, tuple[Callable[..., Distribution], tuple[str, ...]]] = {
    "pareto": (Pareto, ("scale", "shape")),
    "shifted-exponential": (ShiftedExponential, ("shift", "rate")),
    "exponential": (Exponential, ("mean",)),
}

# What `parse` reads, in words short enough for a column of help.
FORMS = (
    'none, "pareto: scale=0.005, shape=1.1", "shifted-exponential: shift=0.01, rate=10", '
    '"exponential: mean=0.01" or "empirical: FILE" (npy, json, csv, txt), each with per=round or '
    'per=computation (times the load) if need be; "0.9*MODEL + 0.1*MODEL" mixes, "95 of MODEL; 5 '
    'of MODEL" makes workers differ'
)

_MOST_WORKERS = 10**6

_WEIGHT = r"\s*[\d.]+(?:e[+-]?\d+)?\s*"


def written(model: Distribution) -> str:
    """What `parse` reads as this model, up to rounding: of those with a name only."""
    for name, (kind, wanted) in _MODELS.items():
        if type(model) is kind:
            values = [model.mean() if key == "mean" else getattr(model, key) for key in wanted]
            listed = ",".join(f"{k}={v:.4g}" for k, v in zip(wanted, values, strict=True))
            usual = inspect.signature(kind).parameters["per"].default
            return f"{name}:{listed}" + (f",per={model.per}" if model.per != usual else "")
    raise TypeError(f"there is no text for {model!r}")


def parse(text: str) -> Delays | None:
    """Read a delay model from a command line.

    Parameters
    ----------
    text : str
        One of

        - ``"none"``,
        - a model with all its parameters, as in ``"pareto:scale=0.01,shape=1.1"``,
          ``"shifted-exponential:shift=0.01,rate=10"`` or ``"exponential:mean=0.01"``,
        - recorded times, ``"empirical:FILE"``: a ``.npy`` file, a ``.json`` list or list of lists,
          or numbers in lines, separated by commas (``.csv``) or spaces (``.txt``); more than one
          line of more than one are rounds of so many workers (`Empirical`),
        - a mixture, ``"0.9*pareto:... + 0.1*exponential:..."``,
        - unlike workers, ``"95 of exponential:... ; 5 of pareto:..."``, 100 in all.

        A model may end in ``",per=round"`` or ``",per=computation"``. Capitals do not matter but in
        a file's name.

    Returns
    -------
    Delays or None
        None where no delay is wanted.

    Raises
    ------
    ValueError
        If the text says something else, or a file does; the error says what was expected.
    TypeError
        If it is no text.
    OSError
        If a file cannot be read.
    """
    if not isinstance(text, str):
        raise TypeError(f"a delay model is a text, not {text!r}")
    if not text.strip():
        raise ValueError(f"the text of a delay model is empty: expected {FORMS}")
    if text.strip().lower() == "none":
        return None
    groups = text.split(";")
    if len(groups) == 1 and not _counted(text):
        return _mixture(text)
    models: list[Distribution] = []
    for group in groups:
        counted = _counted(group)
        if counted is None:
            raise ValueError(
                f"delay model {group.strip()!r}: unlike workers are listed as in '95 of "
                "exponential:mean=1; 5 of exponential:mean=9'"
            )
        if len(models) + float(counted[1]) > _MOST_WORKERS:  # no int: Python reads 4300 digits only
            raise ValueError(
                f"delay model {group.strip()[:80]!r}: at most {_MOST_WORKERS} workers in all"
            )
        models += [_mixture(counted[2])] * int(counted[1])
    return Heterogeneous(models)


def _counted(text: str) -> re.Match[str] | None:
    return re.fullmatch(r"\s*(\d+)\s+of\s+(.*)", text, re.IGNORECASE)


def _mixture(text: str) -> Distribution:
    # a plus that a weight and a star follow; 1e+3 has one of another kind
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
        weights.append(_number(term, "a weight", match[1]))
        models.append(_model(match[2]))
    return Mixture(models, weights)


def _model(text: str) -> Distribution:
    name, _, listed = text.partition(":")
    name = name.strip().lower()
    if name == "empirical":
        return _empirical(text, listed)
    if name not in _MODELS:
        raise ValueError(f"unknown delay model {text.strip()!r}: expected {FORMS}")
    model, wanted = _MODELS[name]
    values: dict[str, float | str] = {}
    for item in filter(None, listed.split(",")):
        key, _, value = item.partition("=")
        key = key.strip().lower()
        if key not in (*wanted, "per") or key in values:
            raise ValueError(
                f"delay model {text!r}: {name} takes {' and '.join(wanted)}, once each, and per; "
                f"got {item.strip()!r}"
            )
        values[key] = value.strip().lower() if key == "per" else _number(text, key, value)
    if missing := [key for key in wanted if key not in values]:
        raise ValueError(f"delay model {text!r}: {' and '.join(missing)} missing")
    return model(**values)


def _number(text: str, what: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"delay model {text!r}: {what} must be a number") from None


def _empirical(text: str, listed: str) -> Empirical:
    file, *given = re.split(r",\s*per\s*=", listed, maxsplit=1, flags=re.IGNORECASE)
    if not file.strip():
        raise ValueError(f"delay model {text!r}: empirical takes a file, as in empirical:times.npy")
    path = Path(file.strip())
    try:
        if path.suffix == ".npy":
            times = np.load(path, allow_pickle=False)
        elif path.suffix == ".json":
            times = np.array(json.loads(_read(path)), dtype=np.float64)
        elif path.suffix in (".csv", ".txt"):
            separator = "," if path.suffix == ".csv" else None
            rows = [line.split(separator) for line in _read(path).splitlines() if line.strip()]
            times = np.array(rows, dtype=np.float64)
            times = times.ravel() if 1 in times.shape else times
        else:
            raise ValueError("its name must end in .npy, .json, .csv or .txt")
        per: Any = given[0].strip().lower() if given else "round"
        return Empirical(times, per)
    except (EOFError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"delay model {text!r}: {error}") from error


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")  # spreadsheets begin a file with a mark
