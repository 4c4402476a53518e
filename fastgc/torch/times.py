"""How long each rank would compute an equal share, as ``fastgc plan --recorded`` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .._base.files import path_of
from ..errors import warn_caller


class Times:
    """Writes a row for each step, and a column for each rank; empty where a rank took no part."""

    def __init__(self, path: str | Path) -> None:
        self._path: Path | None = path_of(path)
        self._found: dict[int, float] = {}

    def add(self, ranks: Sequence[int], seconds: Sequence[float], sizes: Sequence[int]) -> None:
        """Add the seconds of a sum, in which shares had these sizes."""
        equal = sum(sizes) / len(sizes)
        for rank, each, size in zip(ranks, seconds, sizes, strict=True):
            if size:
                self._found[rank] = self._found.get(rank, 0.0) + each * equal / size

    def end_step(self, writes: bool) -> None:
        """End a step; the first rank writes it. Training goes on if it cannot, with a warning."""
        found, self._found = self._found, {}
        if self._path is None or not (writes and found):
            return
        row = [f"{found[r]:.6g}" if r in found else "" for r in range(max(found) + 1)]
        try:
            with self._path.open("a") as file:
                file.write(",".join(row) + "\n")
        except OSError as error:
            warn_caller(f"times of steps are no longer written: {error}", UserWarning)
            self._path = None
