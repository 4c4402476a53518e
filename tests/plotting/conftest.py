"""Pictures have the style of those that commands draw."""

import pytest

from fastgc import plotting


@pytest.fixture(autouse=True)
def styled():
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context(plotting.style()):
        yield
