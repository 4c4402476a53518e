"""Random numbers of dropout and augmentation: the same for all that compute a partition."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import torch

__all__ = ["Drawn", "restored", "seed_all"]


def seed_all(*numbers: int) -> None:
    """Seed torch, NumPy and random from `numbers`, such as a run's seed, a step and a partition."""
    seed = np.random.SeedSequence(numbers).generate_state(2, np.uint32).tolist()
    torch.manual_seed(seed[0] | (seed[1] & 0x7FFFFFFF) << 32)
    np.random.seed(seed[0])  # noqa: NPY002
    random.seed(seed[0])


class Drawn(NamedTuple):
    """The states of the random generators: they differ if any number was drawn in between."""

    cpu: bytes  # of torch's generator
    numpy: tuple[Any, ...]
    python: tuple[Any, ...]
    device: bytes = b""  # of torch's generator of a device, if it has its own

    @classmethod
    def now(cls, device: torch.device | None = None) -> Self:
        """Return the present states, with that of a device."""
        name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
        own = b""
        if device is not None and device.type != "cpu":
            own = _bytes(torch.get_device_module(device).get_rng_state(device))
        return cls(
            _bytes(torch.get_rng_state()),
            (name, np.asarray(keys).tobytes(), *rest),
            random.getstate(),
            own,
        )

    def restore(self) -> None:
        """Set the generators to these states, except the device's."""
        torch.set_rng_state(torch.frombuffer(bytearray(self.cpu), dtype=torch.uint8))
        name, keys, *rest = self.numpy
        np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))  # noqa: NPY002
        random.setstate(self.python)


@contextlib.contextmanager
def restored(device: torch.device | None = None) -> Iterator[None]:
    """Restore the generators' states, with that of a device, at the end of this context."""
    drawn, own = Drawn.now(), device is not None and device.type != "cpu"
    of_device = {"device_type": device.type} if own and device is not None else {}
    try:
        with torch.random.fork_rng([device] if own else [], **of_device):
            yield
    finally:
        drawn.restore()


def _bytes(state: torch.Tensor) -> bytes:
    return state.numpy().tobytes()
