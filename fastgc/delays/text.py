"""Delay models as a command line names them."""

from __future__ import annotations

from collections.abc import Callable

from .models import DelayModel, Pareto

__all__ = ["parse"]

_MODELS: dict[str, tuple[Callable[..., DelayModel], tuple[str, ...]]] = {
    "pareto": (Pareto, ("scale", "shape")),
}


def parse(text: str) -> DelayModel | None:
    """Read a delay model from a command line.

    Parameters
    ----------
    text : str
        ``"none"``, or a model with all its parameters, as in ``"pareto:scale=0.01,shape=1.1"``.

    Returns
    -------
    DelayModel or None
        None where no delay is wanted.

    Raises
    ------
    ValueError
        If the text says something else; the error says what was expected.
    """
    name, _, listed = text.partition(":")
    name = name.strip().lower()
    if name == "none" and not listed:
        return None
    if name not in _MODELS:
        raise ValueError(
            f"unknown delay model {text!r}: expected 'none' or, for example, "
            "'pareto:scale=0.01,shape=1.1'"
        )
    model, wanted = _MODELS[name]
    values: dict[str, float] = {}
    for item in filter(None, listed.split(",")):
        key, _, number = item.partition("=")
        key = key.strip()
        if key not in wanted or key in values:
            raise ValueError(
                f"delay model {text!r}: {name} takes {' and '.join(wanted)}, once each; "
                f"got {item.strip()!r}"
            )
        try:
            values[key] = float(number)
        except ValueError:
            raise ValueError(f"delay model {text!r}: {key} must be a number") from None
    if missing := [key for key in wanted if key not in values]:
        raise ValueError(f"delay model {text!r}: {' and '.join(missing)} missing")
    return model(**values)
