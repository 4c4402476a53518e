"""What a cell prints is shown in one box, as it was printed: ``nb_merge_streams`` of MyST-NB.

A kernel sends its output in pieces, cut anywhere. MyST-NB would end each of them with a new line.
"""

from __future__ import annotations

from typing import Any

from myst_nb.core import render
from sphinx.application import Sphinx


def joined(outputs: list[Any]) -> list[Any]:
    """Put pieces of a stream together; other outputs stay where they are."""
    found: list[Any] = []
    streams: dict[str, Any] = {}
    for output in outputs:
        first = streams.setdefault(output.get("name", ""), output)
        if output["output_type"] != "stream" or first is output:
            found.append(output)
        else:
            first["text"] += output["text"]
    return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Add this to a build."""
    render.coalesce_streams = joined
    return {"parallel_read_safe": True, "parallel_write_safe": True}
