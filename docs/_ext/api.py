"""Pages of the API: a table of names, then each; and links by any name that a thing has.

``.. names::`` takes names of the current module, one a line, and after it files of the module whose
names are shown first: ``.. names:: optimize`` in ``fastgc.kernels``.
"""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module
from operator import attrgetter
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock
from sphinx.util.docutils import SphinxDirective

# Bases whose members are shown with them alone, and not with each class that inherits them.
APART = ("Code", "Delays", "Distribution", "GCADA", "LinearCode", "Master")
APART += ("BaseException", "IntEnum", "Protocol", "Sampler", "dict", "int", "tuple")


class Names(SphinxDirective):
    """What a module offers, in the order that is given."""

    has_content = True
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Show a table of several names, with first sentences, then all that is said of each."""
        module = self.env.ref_context["py:module"]
        files = [import_module(f"{module}.{file}") for file in " ".join(self.arguments).split()]
        names = [name for file in files for name in file.__all__ if name in found(module).__all__]
        names += [name for line in self.content for name in line.split()]
        lines = []
        if len(names) > 1:
            lines = [".. autosummary::", "   :nosignatures:", "", *(f"   {n}" for n in names)]
        for name in names:
            with mock(self.config.autodoc_mock_imports):
                thing = found(f"{module}.{name}")
            lines += ["", *self._directive(name, thing)]
        return self.parse_text_to_nodes("\n".join(lines))

    def _directive(self, name: str, thing: Any) -> list[str]:
        if inspect.isclass(thing):
            kind = "autoexception" if issubclass(thing, BaseException) else "autoclass"
            lines = [f".. {kind}:: {name}", "   :members:"]
            lines.append(f"   :inherited-members: {', '.join(APART)}")
            return [*lines, "   :show-inheritance:"] if any(_bases(thing)) else lines
        return [f".. {'autofunction' if callable(thing) else 'autodata'}:: {name}"]


def _bases(kind: type) -> list[type]:
    return [
        base
        for base in kind.__mro__[1:]
        if base.__name__ in APART and base.__module__.startswith("fastgc")
    ]


def show_bases(app: Sphinx, name: str, kind: Any, options: Any, bases: list[Any]) -> None:
    """Show the nearest base that has a page, not what is private in between."""
    bases[:] = _bases(kind)[:1]


def found(name: str) -> Any:
    """What a dotted name stands for; an ImportError or AttributeError if nothing."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            module = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        return attrgetter(".".join(parts[end:]))(module) if parts[end:] else module
    raise ModuleNotFoundError(name)


def link(app: Sphinx, env: Any, node: pending_xref, text: nodes.Element) -> nodes.Node | None:
    """Link ``fastgc.ReedSolomon`` to ``fastgc.codes.ReedSolomon``, for they are the same thing.

    What is in backticks in a docstring and is no name of a page, as an argument, is shown as code.
    """
    if node.get("refdomain") != "py":
        return None
    domain = env.domains.python_domain
    try:
        name = _documented(domain)[id(found(node["reftarget"]))]
    except (ImportError, AttributeError, KeyError, ValueError):
        return text if node["reftype"] == "obj" else None
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, text)


@cache
def _documented(domain: Any) -> dict[int, str]:
    """Names of what is documented, by what it is."""
    names = {}
    for name in domain.objects:
        try:
            thing = found(name)
        except (ImportError, AttributeError):  # what only instances have
            continue
        if callable(thing) or isinstance(thing, property):
            names[id(thing)] = name
    return names


def skip(app: Sphinx, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what named tuples say of their fields: their docstrings say it."""
    return True if type(thing).__name__ == "_tuplegetter" else None


def describe(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Say nothing of a constant but its value, in place of what its type says of itself."""
    if what == "data" and lines and lines[0] in (inspect.getdoc(type(thing)) or ""):
        lines.clear()


def setup(app: Sphinx) -> dict[str, Any]:
    """Add all this to a build."""
    app.add_directive("names", Names)
    app.connect("missing-reference", link)
    app.connect("autodoc-process-bases", show_bases)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", describe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
