"""The house in order: imports point one way, and private members stay at home.

Read from the source, so that what is imported for type checkers only counts, too.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

import fastgc

pytestmark = pytest.mark.any_backend

ROOMS = {"codes": "coding"}  # schemes, and what serves them all

PACKAGE = Path(__file__).resolve().parent.parent / "fastgc"

FILES = {
    ".".join(("fastgc", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    ): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def imports(name):
    """Files that a file imports, at any depth and for whatever purpose."""
    package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) + 1 - node.level]
            source = ".".join([*(base if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                found = inner if inner in FILES else source
                if found in FILES and found != name:
                    yield found


def circles(graph):
    """Strongly connected components of more than one file, by Tarjan's algorithm."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in number:
            visit(node)
    return found


def test_circles_are_seen():
    assert circles({"a": ["b"], "b": ["c"], "c": ["b", "d"], "d": []}) == [["b", "c"]]
    assert "fastgc.coding.round" in set(imports("fastgc.coding.code"))
    # imported for type checkers only
    typed = ast.parse(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import errors"
    )
    TREES["fastgc.typed"], FILES["fastgc.typed"] = typed, PACKAGE / "typed.py"
    try:
        assert list(imports("fastgc.typed")) == ["fastgc.errors"]
    finally:
        del TREES["fastgc.typed"], FILES["fastgc.typed"]


def test_no_file_imports_what_imports_it():
    # a package's own names, which load on first use, are no file's business
    graph = {name: sorted(set(imports(name)) - {"fastgc"}) for name in FILES if name != "fastgc"}
    assert circles(graph) == []


def home(name):
    """The package that a file belongs to: a folder, or the file itself."""
    parts = name.split(".")
    return ROOMS.get(parts[1], parts[1]) if len(parts) > 1 else name


def definitions():
    """Packages in which each private name of a class is defined or set."""
    found = {}
    for name, tree in TREES.items():
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


# What a code, or a round of one, is called outside its package.
OF_CODES = re.compile(r"(^|\.|_)(code|scheme|rnd|own|round|inner|decoder|encoder)$")

# What named tuples call so for want of other names.
PUBLIC = {"_replace", "_asdict", "_fields", "_make"}


def private_uses():
    """Uses of private members that only another package defines, and all that are a code's."""
    where = definitions()
    for name, tree in TREES.items():
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


def test_a_private_use_is_seen():
    TREES["fastgc.nosy"] = ast.parse("code._known_solutions")
    try:
        assert list(private_uses()) == ["fastgc.nosy:1: code._known_solutions"]
    finally:
        del TREES["fastgc.nosy"]


def test_what_looks_after_the_installation_needs_only_python():
    """It has to work where fastgc is damaged, or another package of that name is there."""
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
    """Where design and README say that things are, they are."""
    for path in ("coding/scheme.py", "coding/code.py", "codes/reed_solomon.py"):
        assert (PACKAGE / path).is_file()
    assert fastgc.Code.row.__isabstractmethod__
