"""Imports point in one direction, and private members stay in their package.

Tests read the source, so that imports for type checkers alone count, too.
"""

import ast
import functools
import importlib.util
import re
import sys
from pathlib import Path

import pytest

import fastgc

pytestmark = pytest.mark.any_backend

ROOMS = {"codes": "coding"}  # schemes, and the package that serves them all

PACKAGE = Path(__file__).resolve().parent.parent / "fastgc"

SCRIPT = PACKAGE.parent / "benches" / "house.py"
spec = importlib.util.spec_from_file_location("house", SCRIPT)
sys.modules["house"] = house = importlib.util.module_from_spec(spec)
spec.loader.exec_module(house)

HOUSE = house.House(PACKAGE.parent)


def put(monkeypatch, name, text):
    """Add a module while a test runs."""
    monkeypatch.setitem(HOUSE.trees, name, ast.parse(text))
    monkeypatch.setitem(HOUSE.files, name, PACKAGE / "somewhere.py")


def test_circles_are_seen(monkeypatch):
    graph = {"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}
    assert house.circles(graph) == [["b", "c"]]
    assert "fastgc.coding.round" in set(HOUSE.imports("fastgc.coding.code"))
    # An import for type checkers alone.
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import errors"
    put(monkeypatch, "fastgc.typed", text)
    assert list(HOUSE.imports("fastgc.typed")) == ["fastgc.errors"]


@pytest.mark.parametrize(
    "text",
    [
        "importlib.import_module('fastgc.errors')",
        "importlib.import_module('.errors', __package__)",
        "import_module('.errors', 'fastgc')",
        "__import__('fastgc.errors')",
        "TABLE = {'LeftOutError': 'errors'}\n"
        "def __getattr__(name):\n"
        "    return getattr(importlib.import_module(f'.{TABLE[name]}', __name__), name)",
        "NAMES = ('fastgc.errors',)\nfor name in NAMES:\n    importlib.import_module(name)",
    ],
)
def test_modules_that_load_by_name_are_seen(monkeypatch, text):
    put(monkeypatch, "fastgc.late", text)
    assert list(HOUSE.imports("fastgc.late")) == []
    assert list(HOUSE.imports("fastgc.late", lazy=True)) == ["fastgc.errors"]


@pytest.mark.parametrize("lazy", [False, True], ids=["by statement", "by name"])
def test_no_file_imports_what_imports_it(lazy):
    assert HOUSE.circles(lazy=lazy) == []


def home(name):
    """Return the package that a file belongs to: a folder, or the file itself."""
    parts = name.split(".")
    return ROOMS.get(parts[1], parts[1]) if len(parts) > 1 else name


@functools.cache  # modules that tests put there define nothing private
def definitions():
    """Map each private name of a class to the packages that define or set it."""
    found = {}
    for name, tree in HOUSE.trees.items():
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ClassDef):
                for item in node.body:
                    if isinstance(item, ast.FunctionDef):
                        names.append(item.name)
                    elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                        names.append(item.target.id)
                    elif isinstance(item, ast.Assign):
                        names += [t.id for t in item.targets if isinstance(t, ast.Name)]
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.append(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.Assign) and node in tree.body:
                targets = getattr(node, "targets", [])
                names += [t.id for t in targets if isinstance(t, ast.Name)]
                names += [node.name] if isinstance(node, ast.FunctionDef) else []
            for each in names:
                if each.startswith("_") and not each.endswith("__"):
                    found.setdefault(each, set()).add(home(name))
    return found


# Names of variables that hold codes, rounds or their parts outside their package.
OF_CODES = re.compile(r"(^|\.|_)(code|scheme|rnd|own|round|inner|decoder|encoder)$")

# Public methods of named tuples.
PUBLIC = {"_replace", "_asdict", "_fields", "_make"}


def private_uses(*names):
    """Return uses of private members that only another package defines, and of codes' members.

    Search these modules, or all.
    """
    where = definitions()
    for name in names or HOUSE.trees:
        tree = HOUSE.trees[name]
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_"):
                continue
            if node.attr.endswith("__") or node.attr in PUBLIC or isinstance(node.ctx, ast.Store):
                continue
            of_code = OF_CODES.search(ast.unparse(node.value)) and home(name) != "coding"
            if of_code or home(name) not in where.get(node.attr, {home(name)}):
                yield f"{name}:{node.lineno}: {ast.unparse(node)}"


def test_private_members_stay_in_their_package():
    assert list(private_uses()) == []


def test_a_private_use_is_seen(monkeypatch):
    put(monkeypatch, "fastgc.nosy", "code._known_solutions")
    assert list(private_uses("fastgc.nosy")) == ["fastgc.nosy:1: code._known_solutions"]


def test_what_looks_after_the_installation_needs_only_python():
    """It must work if fastgc is damaged, or if another package has this name."""
    used = set()
    for path in (PACKAGE.parent / "gradient_coding").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                used.add(node.module.partition(".")[0])
    assert "importlib" in used
    assert used <= sys.stdlib_module_names


def test_a_newcomer_finds_the_decoder():
    """Things are where the design and the README say."""
    for path in ("coding/scheme.py", "coding/code.py", "codes/reed_solomon.py"):
        assert (PACKAGE / path).is_file()
    assert fastgc.codes.Scheme.row.__isabstractmethod__
