"""Figures of commands."""

import pytest

from fastgc import plotting


@pytest.fixture
def drawn(monkeypatch):
    """Figures that commands draw, by the file's name; none is written."""
    figures = {}
    monkeypatch.setattr(plotting, "save", lambda figure, path: figures.update({path.name: figure}))
    return figures
