"""How precise a code is expected to be, and the warnings where that is not enough."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .._arrays import unit_roundoff
from ..errors import InstabilityWarning, NotDecodableError, UnstableCodeError
from .arguments import made_before, nobody_asks
from .format import Format
from .scheme import Scheme
from .trust import expected_trust

__all__ = ["UNSTABLE", "Watch", "check_stability", "typical_error", "warn_of_precision"]

# Relative error from which on a code counts as unstable: half of float64's digits are lost.
UNSTABLE = 2.0**-26


class Watch(Protocol):
    """What follows the precision of decoded gradients: `fastgc.stability.StabilityTracker`."""

    def enough(self, predict: Callable[[], float]) -> bool:
        """Whether to decode from messages that suffice, or to wait for more.

        `predict` estimates the relative error of the gradient they decode to.
        """

    def record(
        self,
        scheme: Scheme,
        survivors: NDArray[np.int64],
        vector: NDArray[Any],
        form: Format,
        predicted: float,
    ) -> None:
        """Take down a round that was decoded with this vector, or raise."""


def typical_error(scheme: Scheme) -> float:
    """Relative error to expect in float64, as many workers straggling as may."""
    known = scheme.typical_error()
    if known is not None:
        return known
    # Errors spread over many decades; where sets take long, only a few are tried.
    sets = 25 if scheme.message_count <= 400 else 5
    errors: list[float] = []
    for error in _expected_errors(scheme, sets, np.dtype(np.float64), np.dtype(np.float64)):
        errors.append(error)
        bad = sum(not error <= UNSTABLE for error in errors)
        if 2 * max(bad, len(errors) - bad) > sets:  # the median's side is settled
            break
    return float(np.median(errors))


def _expected_errors(
    scheme: Scheme, sets: int, dtype: np.dtype[Any], message_dtype: np.dtype[Any]
) -> Iterator[float]:
    """Relative errors to expect of random sets, as many workers straggling as may."""
    rng = np.random.default_rng(0)
    for _ in range(sets):
        heard = scheme.messages_of(rng.permutation(scheme.n)[: scheme.awaited])
        try:
            yield expected_trust(scheme, heard, dtype, message_dtype).relative_error
        except (OverflowError, NotDecodableError):  # the latter: a vector worth nothing
            yield math.inf


def warn_of_precision(scheme: Scheme, form: Format) -> None:
    """Warn where gradients or messages of less than float64 lose more than half their digits.

    In float64 that is told when the code is made; and of codes that are gated, in each round.
    """
    least = max(map(unit_roundoff, (form.gradient_dtype, form.message_dtype)))
    limit = math.sqrt(least)
    if scheme.gated or least <= unit_roundoff(np.dtype(np.float64)):
        return
    key = form.gradient_dtype, form.message_dtype
    known = scheme._known_precisions
    if key not in known:
        sets = 20 if scheme.message_count <= 400 else 10
        errors = list(_expected_errors(scheme, sets, *key))
        best = _expected_errors(scheme, sets, *[np.dtype(np.float64)] * 2)
        # not of what is left out in any precision
        blamed = [e if e > 2 * left else 0.0 for e, left in zip(errors, best, strict=True)]
        known[key] = float(np.quantile(blamed, 0.9, method="lower"))
    error = known[key]
    if not error <= limit:
        wide = np.result_type(form.message_dtype, np.float64)
        remedy = "compute in float64" if scheme.codes_data else f"send message_dtype={wide}"
        warnings.warn(
            f"{scheme!r} decodes messages of {form.message_dtype} imprecisely: of rounds with "
            f"{scheme.stragglers} random stragglers, one in ten has a relative error of about "
            f"{error:.0e} or more; {remedy}, or use a code that amplifies less",
            InstabilityWarning,
            stacklevel=3,
        )


def check_stability(
    scheme: Scheme, strict: bool, remedy: str, *, when: str = "", limit: float = UNSTABLE
) -> None:
    """Warn, or raise if `strict`, when rounding would leave nothing worth having.

    The constructors of codes call this. `when` says of which rounds `typical_error` tells, if not
    of those with as many random stragglers as may be.
    """
    if made_before() or (nobody_asks() and not strict):  # and said then, or to be asked for
        return
    error = typical_error(scheme)
    if not error <= limit:
        text = (
            f"{scheme!r} is numerically unstable: "
            f"{when or f'with {scheme.stragglers} random stragglers'} the "
            f"gradient's relative error is about {error:.0e} in float64; {remedy}"
        )
        if strict:
            raise UnstableCodeError(text)
        warnings.warn(text, InstabilityWarning, stacklevel=3)
