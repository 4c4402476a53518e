"""The lesson as a notebook, made of its page when the site is built (conf.py).

Jupyter knows nothing of MyST, by which the pages are written: links are whole here, and the
paragraph that offers the notebook is left out.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat

PAGE = Path(__file__).with_name("what_is_gradient_coding.md")
OURS = "gradient-coding/fastgc/blob/main/docs/"

HEAD = f"""
*Made of [a page of the documentation](https://github.com/{OURS}{PAGE.name}).*
"""
INSTALL = """\
# Install fastgc where it is not there yet, as on Colab
import importlib.util

if importlib.util.find_spec("fastgc") is None:
    %pip install --quiet "gradient-coding[plot] @ git+https://github.com/gradient-coding/fastgc"
"""


def plain(text: str) -> str:
    """Markdown of a page as any reader of Markdown knows it.

    Raises
    ------
    ValueError
        If there is a directive or a role that has no plain form.
    """
    text = "\n\n".join(part for part in text.split("\n\n") if "{download}`" not in part)
    text = re.sub(r"^```\{(note|tip|warning)\}\n(.*?)^```$", quoted, text, flags=re.M | re.S)
    text = re.sub(r"(?<=\]\()(?!https://|#)([^)#]*)", whole, text)
    if left := re.search(r"^(```\{|:::|<!--|\([\w-]+\)=$).*|\{[\w:-]+\}`", text, re.M):
        raise ValueError(f"no plain form of {left[0]!r}")
    return text


def quoted(found: re.Match[str]) -> str:
    """Return an admonition as a quotation that begins with its name."""
    return "\n".join(f"> {line}" for line in f"**{found[1].title()}.** {found[2]}".splitlines())


def whole(found: re.Match[str]) -> str:
    """Return the address of a file that a link names from the page's folder."""
    return "https://" + posixpath.normpath(f"github.com/{OURS}{found[1]}")


def made(text: str) -> Any:
    """Return the notebook of a page, without outputs."""
    cells = []
    for cell in jupytext.reads(text, "md:myst").cells:
        tags = cell.metadata.pop("tags", [])
        if "remove-cell" in tags:  # what the page checks of itself
            continue
        if "hide-input" in tags:
            cell.metadata |= {"jupyter": {"source_hidden": True}}
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source).rstrip()
        cells.append(cell)
    title, _, rest = cells[0].source.partition("\n")
    cells[0].source = f"{title}\n{HEAD}{rest}"
    cells.insert(1, nbformat.v4.new_code_cell(INSTALL.rstrip()))
    for number, cell in enumerate(cells):  # or each notebook would have others
        cell.id = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=metadata)


def write(page: Path = PAGE) -> None:
    """Write the notebook beside its page."""
    nbformat.write(made(page.read_text(encoding="utf-8")), page.with_suffix(".ipynb"))
