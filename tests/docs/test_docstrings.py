"""Examples in docstrings print what they say."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import fastgc

FOLDER = Path(fastgc.__file__).parent
# Modules whose examples run: those of engines need processes, and packages that may be missing.
MODULES = sorted(
    ".".join(("fastgc", *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__")
    for path in FOLDER.rglob("*.py")
    if re.search(r"^ +>>> (?!.*\+SKIP)", path.read_text(encoding="utf-8"), re.MULTILINE)
)


def test_there_are_examples():
    assert len(MODULES) > 10


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    if name.startswith("fastgc.torch"):
        pytest.importorskip("torch")
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed


def test_sections_of_errors_hold_nothing_else():
    """A sentence below them would be shown as one more error."""
    found, wrong = 0, []
    for path in FOLDER.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for part in re.finditer(
            r"^( *)Raises\n\1------\n((?:\1.*\n|\n)*?)(?=\1\w.*\n\1---|\1\"{3})", text, re.M
        ):
            entries = re.findall(rf"^{part[1]}(\S.*)$", part[2], re.M)
            found += len(entries)
            wrong += [each for each in entries if not re.fullmatch(r"\w+(, \w+)*", each)]
    assert found > 100
    assert not wrong
