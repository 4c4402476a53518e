"""The lesson's notebook is made from its page, and has the outputs of running it."""

import importlib.util
import json
import re

import pytest
from pages import ROOT

pytestmark = pytest.mark.any_backend

PATH = ROOT / "docs" / "what_is_gradient_coding.ipynb"
CELLS = json.loads(PATH.read_text(encoding="utf-8"))["cells"]
MAKER = "docs/notebook.py"
FILES = "https://github.com/gradient-coding/fastgc/blob/main/"


@pytest.fixture(scope="module")
def maker():
    for name in ("jupytext", "nbformat", "nbclient"):
        pytest.importorskip(name)
    spec = importlib.util.spec_from_file_location("notebook", ROOT / MAKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source(cell):
    return "".join(cell["source"])


def outputs(cells):
    return [output for cell in cells for output in cell.get("outputs", ())]


def printed(cells):
    """Return what each cell writes."""
    return [
        "".join("".join(output["text"]) for output in outputs([cell]) if "text" in output)
        for cell in cells
    ]


def test_it_is_that_of_the_page(maker):
    page = maker.made(maker.PAGE.read_text(encoding="utf-8"))
    said = f"the page has changed: python {MAKER}"
    assert [source(cell) for cell in CELLS] == [cell.source for cell in page.cells], said
    for ours, made in zip(CELLS, page.cells, strict=True):
        assert [ours[name] for name in ("cell_type", "id", "metadata")] == [
            *(made.cell_type, made.id, made.metadata)
        ]


def test_it_has_been_run_and_is_small():
    code = [cell for cell in CELLS if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    kinds = {output["output_type"] for output in outputs(code)}
    assert kinds == {"stream", "display_data"}  # no errors
    assert {output.get("name", "stdout") for output in outputs(code)} == {"stdout"}
    assert sum("image/png" in output.get("data", ()) for output in outputs(code)) >= 5
    assert PATH.stat().st_size < 700_000
    assert "%pip install" in source(code[0])


def test_its_links_are_whole():
    said = "".join(source(cell) for cell in CELLS if cell["cell_type"] == "markdown")
    targets = re.findall(r"\]\(([^)]*)\)", said)
    assert len(targets) > 8
    for target in targets:
        assert target.startswith("https://")
        if target.startswith(FILES):
            assert (ROOT / target.removeprefix(FILES).partition("#")[0]).exists()
    assert f"`python {MAKER}`" in said
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


@pytest.mark.long
def test_it_prints_what_it_printed(maker):
    """Texts agree; pictures depend on fonts, so only their number does."""
    pytest.importorskip("ipykernel")
    again = maker.made(maker.PAGE.read_text(encoding="utf-8"))
    maker.run(again)
    assert printed(again.cells) == printed(CELLS)
    kinds = [[output["output_type"] for output in outputs([cell])] for cell in again.cells]
    assert kinds == [[output["output_type"] for output in outputs([cell])] for cell in CELLS]
