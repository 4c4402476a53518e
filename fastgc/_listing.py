"""What ``dir()`` of a module shows: its public names, and not what it has imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable

__all__ = ["listing"]


def listing(names: Iterable[str]) -> Callable[[], list[str]]:
    """What a module calls ``__dir__``, of the names that it offers."""
    shown = sorted(names)
    return lambda: list(shown)
