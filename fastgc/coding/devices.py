"""Rounds and plans of messages that are tensors on another device: see `fastgc.coding.tensors`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._arrays import Output, kind_of, lies_elsewhere
from .decoding import BoundDecoder, Decoder, message_format, warn_of_doubt
from .round import Round
from .scheme import Scheme
from .tensors import (
    checked,
    combine_tensors,
    output_beside,
    overlap,
    require_finite,
    scale_of,
    square_norm_of,
    to_gradient,
)

__all__ = ["DeviceDecoder", "DeviceRound", "bind_rows"]


class DeviceDecoder(BoundDecoder):
    """`BoundDecoder` of the rows of a tensor on another device."""

    __slots__ = ("_check",)

    def __init__(
        self, code: Scheme, messages: Any, out: Output | None, p: int | None, check_finite: bool
    ) -> None:
        if messages.ndim != 2 or len(messages) != code.message_count:
            raise ValueError(
                f"messages must be an array with a row for each of {code.message_count} messages, "
                f"not of shape {tuple(messages.shape)}"
            )
        self.code, self.messages, self._whole = code, messages, messages
        self.form = form = message_format(code, kind_of("a message", messages[0]), out, p)
        checked("messages", messages[0], form.message_dtype, form.message_size, messages.device)
        self.gradient = output_beside(out, form, messages.device)
        if overlap(self.gradient, [messages]):
            raise ValueError("out shares memory with messages")
        self._decoder = Decoder(code, form.unit)
        self._gated, self._check = code.gated, check_finite

    def __call__(self, survivors: ArrayLike, method: str = "auto") -> NDArray[Any]:
        """As of `BoundDecoder`."""
        f = self._decoder._compute(survivors, method)
        numbers, vector = self._decoder.survivors[:f], self._decoder.vector[:f]
        if self._gated:
            warn_of_doubt(self.code, numbers, vector, self.form)
        senders = [self.code.sender(m)[0] for m in numbers.tolist()]
        rows = [self._whole[m] for m in numbers.tolist()]
        to_gradient(self.form, senders, rows, vector, self.gradient, self._check)
        return self.gradient  # type: ignore[no-any-return]


class DeviceRound(Round):
    """`Round` of tensors on another device, which stay there: their norms alone come to the host.

    Parameters
    ----------
    device : torch.device or str
    code, p, dtype, message_dtype, tracker, check_finite
        As of `Round`, which cannot be asked to verify here.
    """

    def __init__(
        self,
        code: Scheme,
        *args: Any,
        device: Any,
        verify: bool | int = False,
        check_finite: bool = True,
        **named: Any,
    ) -> None:
        import torch

        if verify:
            raise ValueError(
                f"verify={verify} compares messages in the host's memory: not with device={device}"
            )
        self._tensors: list[Any] = []
        super().__init__(code, *args, check_finite=False, **named)
        # In its stead a message has an array on the host that nothing is written to, or read from,
        # but a scale.
        self._blank = np.empty(self.form.message_size, self.form.message_dtype)
        self._directly, self._check, self._looks = None, True, check_finite
        self._plain = False
        # With its number: so tensors have it.
        self._device = torch.empty(0, device=device).device

    def reset(self) -> None:
        """Forget all messages."""
        super().reset()
        self._tensors.clear()

    def receive(
        self,
        worker: int,
        message: Any,
        index: int | None = None,
        *,
        energy: float = math.nan,
    ) -> bool:
        """Take a worker's message, a tensor on the device; as of `Round`."""
        form, named = self.form, self._first_worker + int(worker)
        what = f"message of worker {named}"
        self._coming = checked(what, message, form.message_dtype, form.message_size, self._device)
        if form.scaled:
            self._blank[-1:] = scale_of(message)
        if self._looks:
            require_finite(named, message[: form.length])
        return super().receive(worker, self._blank, index, energy=energy)

    def _took(self, *args: Any) -> bool:
        at = self._rows.count - 1
        tensor = self._coming[: self.form.length]
        scale = self._scales[at] if self.form.scaled else 1.0
        self._arrivals.squares[at] = square_norm_of(tensor) * scale**2
        self._tensors.append(self._coming)
        return super()._took(*args)

    def _output(self, out: Output | None) -> Any:
        self._require_fresh()
        target = output_beside(out, self.form, self._device)
        if overlap(target, self._tensors):
            raise ValueError("out shares memory with a message that was received")
        return target

    def _combine(self, vector: NDArray[Any], out: Any) -> Any:
        scales = self._scales if self.form.scaled else None
        combine_tensors(self.form, vector, self._tensors, out, scales)
        return out

    def _norm(self, gradient: Any) -> float:
        return square_norm_of(gradient)


def bind_rows(code: Scheme, messages: Any, *args: Any) -> BoundDecoder:
    """What `Code.bind` returns."""
    kind = DeviceDecoder if lies_elsewhere(messages) else BoundDecoder
    return kind(code, messages, *args)
