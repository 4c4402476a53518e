"""The figures on the page of papers are those of the results."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "papers.md"
STORE = ROOT / "benches" / "results"

pytestmark = [
    pytest.mark.skipif(not (PAGE.exists() and STORE.exists()), reason="not a checkout"),
]

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def cells(line):
    return [cell.strip() for cell in line.strip("| \n").split(" | ")]


def stated():
    """Yield paper, row and number from the columns of the page's tables that are ours."""
    head, paper = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if found := re.search(r"\*\*Its figures\.\*\* `(\w+)-", line):
            paper = found[1]
        if not line.startswith("|"):
            head = []
        elif not head:
            head = cells(line)
        elif not line.startswith("|---"):
            for title, cell in zip(head, cells(line), strict=True):
                if title.startswith("here"):
                    for number in NUMBER.findall(re.sub(r"(?<=\d)[ ,](?=\d{3}\b)", "", cell)):
                        yield paper, line, number, "%" in cell


def known(paper):
    """Return the numbers in the results' rows of a paper."""
    path = STORE / f"figures-of-{paper}-et-al.json"
    found = json.loads(path.read_text(encoding="utf-8"))["found"]
    rows = [row for table in found if isinstance(table, list) for row in table]
    rows = [row for row in rows if row[0].startswith(f"{paper}20")]
    assert rows
    return {float(number) for row in rows for number in NUMBER.findall(" | ".join(row))}


def agrees(number, value):
    """Whether a number is this value, rounded to as many digits."""
    unit = 10.0 ** -len(number.partition(".")[2])
    return abs(float(number) - value) <= 0.5001 * unit


def missing(paper, number, percent):
    scale = 100 if percent else 1
    return not any(agrees(number, each) or agrees(number, scale * each) for each in known(paper))


def test_figures_are_those_of_the_results():
    found = list(stated())
    assert {paper for paper, *_ in found} == {"halbawi", "charalambides", "li", "ozfatura", "zhu"}
    assert [row for paper, row, *number in found if missing(paper, *number)] == []
