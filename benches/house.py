"""Measure the house: lines, rooms, arrows between them, names, entrances, commands, compile time.

    python benches/house.py              # the working tree
    python benches/house.py --compile    # and processor seconds to compile the C library

Everything is read from the files that git tracks, except names and commands: the fastgc that this
interpreter imports is asked for these. That no arrow runs up is the contract of ``lint-imports``.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Functions that form a sum of rows with weights: declared in C, and their calls in Python.
SUMS = r"(?:\bfgc_|^def )((?:bind_)?(?:combine|encode|accumulate|add)(?:_\w+?)?)_?(?:##|\()"


def tracked(*folders: str) -> list[Path]:
    """Return the files of these folders that git tracks."""
    listed = subprocess.check_output(["git", "ls-files", *folders], cwd=ROOT, text=True)
    return [path for name in listed.splitlines() if (path := ROOT / name).is_file()]


def lines(*folders: str) -> int:
    """Return the number of lines of text files in these folders, blank ones included."""
    texts = (path.read_bytes() for path in tracked(*folders))
    return sum(text.count(b"\n") for text in texts if b"\0" not in text)


def room(name: str) -> str:
    """Return the folder of fastgc in which a module lies, or a module that lies in none."""
    return ".".join(name.split(".")[:2])


def arrows() -> set[tuple[str, str]]:
    """Return the pairs of rooms of which the first imports the second, for types and late, too."""
    found = set()
    for path in tracked("fastgc/*.py"):
        here = path.relative_to(ROOT).with_suffix("").parts
        own = ".".join(here).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            origin = ".".join([*here[: len(here) - node.level], *filter(None, [node.module])])
            for alias in node.names:
                base = ROOT / f"{origin}.{alias.name}".replace(".", "/")
                module = base.is_dir() or base.with_suffix(".py").is_file()
                found.add((room(own), room(f"{origin}.{alias.name}" if module else origin)))
    return {(a, b) for a, b in found if a != b}


def entrances() -> set[tuple[bool, str]]:
    """Return the names of functions that form sums, and whether they are Python's."""
    files = tracked("fastgc/kernels", "csrc/kernels.def", "csrc/fastgc.h")
    files = [path for path in files if path.name != "pairs.py"]  # which adds two numbers
    texts = [(path.suffix == ".py", path.read_text("utf-8")) for path in files]
    return {(python, name) for python, text in texts for name in re.findall(SUMS, text, re.M)}


def compiled() -> float:
    """Return the processor seconds that the C library takes to compile, without a cache."""
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        make = ["cmake", "-S", str(ROOT / "csrc"), "-B", folder, "-DCMAKE_BUILD_TYPE=Release"]
        subprocess.run([*make, f"-DPython_EXECUTABLE={sys.executable}"], check=True, stdout=-3)
        before = os.times()
        subprocess.run(["cmake", "--build", folder], check=True, stdout=-3, env=environment)
        after = os.times()
    return after.children_user + after.children_system - sum(before[2:4])


def rows(compile_too: bool) -> Iterator[tuple[str, object]]:
    """Yield what is measured, and the number."""
    import typer

    import fastgc
    from fastgc.cli import app
    from fastgc.coding.scheme import Scheme

    yield "lines of fastgc and csrc", lines("fastgc", "csrc")
    yield "lines of tests; docs; benches", [lines(each) for each in ("tests", "docs", "benches")]
    yield "folders and loose modules; arrows", (len({*sum(pairs := arrows(), ())}), len(pairs))
    yield "names in dir(Scheme)", sum(not name.startswith("__") for name in dir(Scheme))
    code = fastgc.ReedSolomon(8, stragglers=2)
    yield "public names of ReedSolomon", sum(name[0] != "_" for name in dir(code))
    yield "entrances of sums", len(entrances())
    yield "commands of fastgc", len(typer.main.get_command(app).commands)
    if compile_too:
        yield "processor seconds to compile C", round(compiled())


if __name__ == "__main__":
    for what, number in rows("--compile" in sys.argv[1:]):
        print(f"{what:36} {number}")
