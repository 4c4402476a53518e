"""What a command's own help says, in a page of Markdown: ``{command} plan``."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from helps import told
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Command(SphinxDirective):
    """The help of a command, as of now."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Show it."""
        return self.parse_text_to_nodes(told(self.arguments[0]))


def outdated(app: Sphinx, env: Any, added: set[str], changed: set[str], gone: set[str]) -> set[str]:
    """Pages of commands, at each build: no file of theirs tells that a command has changed."""
    return {"commands"} & env.found_docs


def setup(app: Sphinx) -> dict[str, Any]:
    """Add all this to a build."""
    app.add_directive("command", Command)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
