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
