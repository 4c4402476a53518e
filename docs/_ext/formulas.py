"""Formulas as MathML, made when the pages are built: a browser shows them without a script.

Their font, STIX Two Math, comes from the package ziamath, and is copied beside the pages.
"""

from __future__ import annotations

import logging
import re
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from docutils import nodes
from fontTools import subset
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger
from sphinx.util.math import get_node_equation_number

# Letters, Greek, punctuation, arrows and operators, and the letters of formulas: half of the font.
CHARACTERS = [
    *range(0x20, 0x180),
    *range(0x370, 0x400),
    *range(0x2000, 0x2300),
    *range(0x1D400, 0x1D800),
]
# What the converter does not tell from MathML's defaults.
REFINED = {
    # All bars in the pages are delimiters: no space around them, as there is around operators
    r"<mo([^>]*)>&#x0007C;</mo>": r'<mo\1 lspace="0" rspace="0">|</mo>',
    # A minus after an opening bracket, a comma or a relation is a sign
    r"(<mo[^>]*>&#x(?:00028|0002C|0003C|0003D|02248|02264|02265);</mo>)<mo>&#x02212;": (
        r'\1<mo form="prefix">&#x02212;'
    ),
}


def mathml(node: nodes.Element, display: str) -> str:
    """Return a formula as MathML; warn, which ends the build, where that fails."""
    text = node.astext()
    try:
        made = convert(text, display=display)
        if unknown := re.findall(r"\\[a-zA-Z]+", made):
            raise ValueError(f"unknown: {', '.join(unknown)}")
    except Exception as error:  # the converter has a dozen of its own, without a common base
        message = f"{text!r} is no formula: {type(error).__name__} {error}"
        getLogger(__name__).warning(message, location=node)
        return ""
    for pattern, better in REFINED.items():
        made = re.sub(pattern, better, made)
    return made


def inline(self: Any, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own, and its number if it has one."""
    self.body.append(self.starttag(node, "div", CLASS="math"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})</span>')
    self.body.append(mathml(node, "block") + "</div>\n")
    raise nodes.SkipNode


def copy_font(app: Sphinx, error: Exception | None) -> None:
    """Write the part of the font that formulas need beside the pages."""
    if error or app.builder.format != "html":
        return
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells each table
    options = subset.Options(flavor="woff")
    with as_file(files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf") as path:
        font = subset.load_font(path, options)
        subsetter = subset.Subsetter(options)
        subsetter.populate(unicodes=CHARACTERS)
        subsetter.subset(font)
        subset.save_font(font, Path(app.outdir, "_static", "stix-two-math.woff"), options)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add all this to a build."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("build-finished", copy_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
