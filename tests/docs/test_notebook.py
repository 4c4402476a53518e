"""The lesson's notebook is made from its page when the site is built."""

import importlib.util
import json
import re

import pytest
from pages import ROOT

FILES = "https://github.com/gradient-coding/fastgc/blob/main/"


@pytest.fixture(scope="module")
def maker():
    for name in ("jupytext", "nbformat"):
        pytest.importorskip(name)
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_written_beside_its_page(maker, tmp_path):
    """Its links are whole, and it begins with what installs fastgc."""
    page = tmp_path / "lesson.md"
    page.write_text(maker.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    maker.write(page)
    cells = json.loads((tmp_path / "lesson.ipynb").read_text(encoding="utf-8"))["cells"]
    sources = {kind: [] for kind in ("code", "markdown")}
    for cell in cells:
        sources[cell["cell_type"]].append("".join(cell["source"]))
    assert "%pip install" in sources["code"][0]
    assert len(sources["code"]) > 10
    said = "".join(sources["markdown"])
    targets = re.findall(r"\]\(([^)]*)\)", said)
    assert len(targets) > 8
    for target in targets:
        assert target.startswith("https://")
        if target.startswith(FILES):
            assert (ROOT / target.removeprefix(FILES).partition("#")[0]).exists()
    assert not re.search(r"\{[\w-]+\}[`\n]|^:::", said, re.M)


def test_pages_are_made_plain(maker):
    page = (
        "A [link](near_exact.md#when\n), [one](extending/code.md), [two](../README.md)\nand "
        "[three](https://a/b.md), [four](#here).\n\nHere:\n{download}`x.ipynb`,\nas it is.\n\n"
        "```{note}\nOne line,\nand another.\n```\n\n```python\nx = 1\n```\n"
    )
    assert maker.plain(page) == (
        f"A [link]({FILES}docs/near_exact.md#when\n), [one]({FILES}docs/extending/code.md), "
        f"[two]({FILES}README.md)\nand [three](https://a/b.md), [four](#here).\n\n"
        "> **Note.** One line,\n> and another.\n\n```python\nx = 1\n```\n"
    )
    for text in ("```{figure} x.svg\n```\n", "See {doc}`x`.", ":::{note}\na\n:::", "(label)=\n# A"):
        with pytest.raises(ValueError, match="no plain form of"):
            maker.plain(text)
