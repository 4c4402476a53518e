"""Rounds of sums, where engines ask for them."""

from __future__ import annotations

from ..codes import Code, SumRound
from ..codes.format import Format
from .options import RoundOptions

__all__ = ["sum_round"]


def sum_round(code: Code, form: Format, options: RoundOptions) -> SumRound | None:
    """What collects sums, where workers are asked for them; None: they send every message.

    They are asked if the code says so, and if nothing else is to be known of single messages: these
    are not verified, tracked, or chosen beforehand, they are as precise as the gradient, and no
    approximation is to be made of what came.
    """
    plain = (
        options.survivors is None
        and options.tracker is None
        and not options.verify
        and options.partial == "raise"
    )
    if not (code.on_request and plain):
        return None
    if form.message_dtype != form.gradient_dtype or form.message_size != form.gradient_size:
        return None
    return SumRound(code, form.gradient_size, form.gradient_dtype)
