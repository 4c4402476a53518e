"""Measure the source: lines, modules, classes, long functions, names, circles, repetition.

    python benches/house.py                      # the working tree
    python benches/house.py fe79561 HEAD .       # revisions of git, and the working tree
    python benches/house.py --show duplicates    # or functions, circles, kernel: where they are

Everything is read from the source, as text or as a syntax tree, except the names in ``dir()`` of a
code: another process imports fastgc for these. ``ROWS`` says what each row counts.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

# Files and folders of fastgc/ that, with csrc/, are the core, by all names they have had.
CORE = {
    *("kernels", "coding", "codes", "numerics", "vandermonde", "interpolation", "stability"),
    "_arrays",
}
LONG, LONG_IN_CLI = 60, 80
LEAST = 6  # equal lines that make a duplicate

ROWS = {
    "lines": "lines of all files of fastgc/ and csrc/, blank ones and comments included",
    "lines: core": "of these csrc/ and, of fastgc/, " + ", ".join(sorted(CORE)),
    "modules": "Python files of fastgc/",
    "classes": "classes defined anywhere in fastgc/, of which the next three are some",
    "protocols": "classes with Protocol among their bases",
    "named tuples": "classes with NamedTuple among their bases",
    "dataclasses": "classes decorated by dataclass",
    "functions": "functions and methods of fastgc/, nested ones included",
    "functions over 60": f"over {LONG} lines, in cli/ over {LONG_IN_CLI}, docstrings not counted",
    "names of ReedSolomon": "public names in dir(fastgc.ReedSolomon(8, stragglers=2))",
    "names in __all__": "strings in all assignments to __all__ in fastgc/",
    "kernel": "files of csrc/, kernels/ and the kernel table that name the kernel that came last",
    "circles": "groups of modules that import each other, in functions and for types, too",
    "circles, lazy": "the same, with what import_module() may load by the strings of its file",
    "duplicates": f"pairs of files (or one file twice) that share {LEAST} equal lines or more",
    "runs": "runs of equal lines, each as long as can be, that these pairs share",
}


class House:
    """One revision of the source, in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cached_property
    def files(self) -> dict[str, Path]:
        """The modules of fastgc, by their dotted names."""
        found = {}
        for path in sorted((self.root / "fastgc").rglob("*.py")):
            parts = path.relative_to(self.root).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
        return found

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """The syntax trees of the modules."""
        return {name: ast.parse(path.read_text("utf-8")) for name, path in self.files.items()}

    def of_class(self, *kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
        """Yield all nodes of these classes, each after its module."""
        for name, tree in self.trees.items():
            yield from ((name, node) for node in ast.walk(tree) if isinstance(node, kinds))

    # Lines

    def lines(self) -> tuple[int, int]:
        """Return the number of all lines, and of those of the core."""
        total = core = 0
        for folder in "fastgc", "csrc":
            for path in (self.root / folder).rglob("*"):
                if not path.is_file() or "__pycache__" in path.parts or path.suffix == ".so":
                    continue
                count = path.read_text("utf-8").count("\n")
                total += count
                top = path.relative_to(self.root / folder).parts[0]
                if folder == "csrc" or top.removesuffix(".py") in CORE:
                    core += count
        return total, core

    # Classes, functions, names

    def classes(self) -> Counter[str]:
        """Return the number of classes of each kind."""
        found: Counter[str] = Counter()
        for _, node in self.of_class(ast.ClassDef):
            words = {
                word
                for base in [*node.bases, *node.decorator_list]
                for word in re.findall(r"\w+", ast.unparse(base))
            }
            found["classes"] += 1
            found["protocols"] += "Protocol" in words
            found["named tuples"] += "NamedTuple" in words
            found["dataclasses"] += "dataclass" in words
        return found

    def functions(self) -> list[tuple[int, str]]:
        """Return every function's length without its docstring, and its place; longest first."""
        found = []
        for name, node in self.of_class(ast.FunctionDef, ast.AsyncFunctionDef):
            place = self.files[name].relative_to(self.root)
            length = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node, clean=False) is not None:
                length -= node.body[0].end_lineno - node.body[0].lineno + 1
            found.append((length, f"{place}:{node.lineno} {node.name}"))
        return sorted(found, reverse=True)

    def long_functions(self) -> list[tuple[int, str]]:
        """Return the functions that are too long."""
        return [
            (length, place)
            for length, place in self.functions()
            if length > (LONG_IN_CLI if place.startswith("fastgc/cli/") else LONG)
        ]

    def exported(self) -> int:
        """Return the number of names that are written out in all ``__all__``."""
        count = 0
        for _, node in self.of_class(ast.Assign, ast.AugAssign, ast.AnnAssign):
            targets = getattr(node, "targets", None) or [node.target]
            if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets) and node.value:
                written = (c.value for c in ast.walk(node.value) if isinstance(c, ast.Constant))
                count += sum(isinstance(value, str) for value in written)
        return count

    def shown(self) -> int | None:
        """Return the number of a code's public names; None if this tree cannot be imported."""
        asked = (
            "import fastgc, sys; code = fastgc.ReedSolomon(8, stragglers=2);"
            "assert fastgc.__file__.startswith(sys.argv[1]), fastgc.__file__;"
            "print(sum(not name.startswith('_') for name in dir(code)))"
        )
        around = os.environ | {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", asked, str(self.root)]
        said = subprocess.run(command, cwd=self.root, env=around, capture_output=True, text=True)
        return int(said.stdout) if not said.returncode else None

    # Kernels

    def kernel(self, revision: str | None) -> tuple[str, list[str]] | None:
        """Return the newest kernel, and the files that name it; None without history.

        A kernel is a public function of the files that kernels/numpy/ imports; git's history says
        which is newest. Its files are in csrc/ (by ``fgc_NAME`` or ``NAME_part``) and in kernels/,
        and the kernel table.
        """
        folder = "fastgc/kernels/numpy"
        package = folder.replace("/", ".")
        taken = set(self.imports(package)) if package in self.trees else set()
        public = {
            node.name
            for name, tree in self.trees.items()
            if name in taken
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
        }
        log = git("log", "-p", "--format=tformat:=commit=", revision or "HEAD", "--", folder)
        changes = log.split("=commit=\n")
        if not revision:
            changes.insert(0, git("diff", "HEAD", "--", folder))
        name = None
        for change in changes:
            came, went = (set(re.findall(rf"^\{sign}def (\w+)", change, re.M)) for sign in "+-")
            if new := sorted((came - went) & public):
                name = new[0]
                break
        return None if name is None else (name, self.files_of_kernel(name))

    def files_of_kernel(self, name: str) -> list[str]:
        """Return the files that name a kernel."""
        bare = name.removeprefix("bind_")
        declared = rf"(fgc_|FGC_KERNEL\(\w+, ){bare}(_(float|double|half|bfloat|##real))?"
        in_c = re.compile(rf"\b({declared}|FGC_SUM\({bare}|{bare}_part)\b")
        in_python = re.compile(rf"\b{name}\b")
        places = [*(self.root / "csrc").rglob("*"), self.root / "tests" / "kernel_table.py"]
        places += (self.root / "fastgc" / "kernels").rglob("*.py")
        return [
            str(path.relative_to(self.root))
            for path in sorted(places)
            if path.is_file()
            and (in_python if path.suffix == ".py" else in_c).search(path.read_text("utf-8"))
        ]

    # Imports

    def imports(self, name: str, *, lazy: bool = False) -> Iterator[str]:
        """Yield the modules that a module imports, also in functions and for types.

        With `lazy`, also yield those that ``importlib.import_module`` and ``__import__`` may load.
        Their argument is a string, or is made of strings in the file, such as a table of names.
        """
        package = name if self.files[name].name == "__init__.py" else name.rpartition(".")[0]
        tree = self.trees[name]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.files)
            elif isinstance(node, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) + 1 - node.level]
                source = ".".join([*(base if node.level else []), *filter(None, [node.module])])
                for alias in node.names:
                    inner = f"{source}.{alias.name}"
                    found = inner if inner in self.files else source
                    if found in self.files and found != name:
                        yield found
            elif lazy and isinstance(node, ast.Call) and node.args and loads(node):
                for text in said(node.args[0], tree):
                    dots = len(text) - len(text.lstrip("."))
                    base = package.split(".")[: len(package.split(".")) + 1 - dots]
                    found = ".".join([*(base if dots else []), *filter(None, [text[dots:]])])
                    if found in self.files and found != name:
                        yield found

    def circles(self, *, lazy: bool = False) -> list[list[str]]:
        """Return groups of files that import each other; the package fastgc itself is left out."""
        names = [name for name in self.files if name != "fastgc"]
        graph = {name: sorted(set(self.imports(name, lazy=lazy)) - {"fastgc"}) for name in names}
        return circles(graph)

    # Repetition

    def code(self) -> Iterator[tuple[str, list[tuple[int, str]]]]:
        """Yield each file's numbered lines, without blanks, comments, punctuation and imports."""
        folders = ("fastgc", "csrc", "gradient_coding", "tests", "benches", "docs")
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*")):
                python = path.suffix == ".py"
                if path.is_file() and (python or path.suffix in {".c", ".h", ".inc", ".def"}):
                    text, marks = path.read_text("utf-8"), "#" if python else ("//", "/*", "*")
                    imports = {
                        number
                        for node in (ast.walk(ast.parse(text)) if python else ())
                        if isinstance(node, ast.Import | ast.ImportFrom)
                        for number in range(node.lineno, node.end_lineno + 1)
                    }
                    kept = []
                    for number, line in enumerate(text.splitlines(), 1):
                        line = " ".join(line.split())
                        plain = re.search(r"\w", line) and not line.startswith((*marks, "#include"))
                        if plain and number not in imports:
                            kept.append((number, line))
                    yield str(path.relative_to(self.root)), kept

    def duplicates(self) -> dict[tuple[str, str], list[tuple[int, int, int, int]]]:
        """Return runs of equal lines that two files share, or that one file has twice.

        White space does not matter, and only lines of `code` count. A run is as long as possible,
        and does not overlap itself.
        """
        numbers: dict[str, list[int]] = {}
        starts: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
        for where, kept in self.code():
            numbers[where] = [number for number, _ in kept]
            lines = [line for _, line in kept]
            for i in range(len(lines) - LEAST + 1):
                starts[tuple(lines[i : i + LEAST])].append((where, i))
        shared: dict[tuple[str, str, int], set[int]] = defaultdict(set)
        for places in starts.values():
            for at, (one, i) in enumerate(places):
                for other, j in places[at + 1 :]:
                    if one != other or j - i >= LEAST:
                        shared[one, other, j - i].add(i)
        found: dict[tuple[str, str], list[tuple[int, int, int, int]]] = defaultdict(list)
        for (one, other, shift), begun in shared.items():
            for i in sorted(begun):
                if i - 1 not in begun:
                    end = i
                    while end + 1 in begun:
                        end += 1
                    a, b, last = numbers[one], numbers[other], end + LEAST - 1
                    found[one, other].append((a[i], a[last], b[i + shift], b[last + shift]))
        return {pair: sorted(runs) for pair, runs in sorted(found.items())}

    def measure(self, revision: str | None) -> dict[str, object]:
        """Return all rows."""
        total, core = self.lines()
        classes, same = self.classes(), self.duplicates()
        kernel = self.kernel(revision)
        counts = {
            "lines": total,
            "lines: core": core,
            "modules": len(self.files),
            **{kind: classes[kind] for kind in ("classes", "protocols", "named tuples")},
            "dataclasses": classes["dataclasses"],
            "functions": len(self.functions()),
            "functions over 60": len(self.long_functions()),
            "names of ReedSolomon": self.shown(),
            "names in __all__": self.exported(),
            "kernel": f"{len(kernel[1])} ({kernel[0]})" if kernel else None,
            "circles": len(self.circles()),
            "circles, lazy": len(self.circles(lazy=True)),
            "duplicates": len(same),
            "runs": sum(map(len, same.values())),
        }
        assert list(counts) == list(ROWS)
        return counts

    def places(self, what: str, revision: str | None) -> Iterator[str]:
        """Yield the places of what a row counts, one line each."""
        if what == "functions":
            yield from (f"{length:4} {place}" for length, place in self.long_functions())
        elif what == "circles":
            yield from (" ".join(circle) for circle in self.circles(lazy=True))
        elif what == "kernel":
            yield from (self.kernel(revision) or ("", []))[1]
        else:
            pairs = self.duplicates().items()
            for (one, other), runs in sorted(pairs, key=lambda pair: -longest(pair[1])):
                a, b, c, d = max(runs, key=lambda run: run[1] - run[0])
                more = f" (+{len(runs) - 1} more runs)" if len(runs) > 1 else ""
                yield f"{one}:{a}-{b} ~ {other}:{c}-{d}{more}"


def longest(runs: Iterable[tuple[int, int, int, int]]) -> int:
    """Return the length of the longest run."""
    return max(run[1] - run[0] for run in runs)


def loads(call: ast.Call) -> bool:
    """Whether a call imports a module by a name that is computed at run time."""
    return ast.unparse(call.func).endswith(("import_module", "__import__"))


def said(argument: ast.expr, tree: ast.Module) -> Iterator[str]:
    """Yield the names that a computed name may be, by the strings of its file."""
    if isinstance(argument, ast.Constant):
        yield str(argument.value)
        return
    begins = ""
    if isinstance(argument, ast.JoinedStr) and isinstance(argument.values[0], ast.Constant):
        begins = str(argument.values[0].value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            yield begins + node.value


def circles(graph: dict[str, list[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one file, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
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


def git(*arguments: str, text: bool = True) -> Any:
    """Return the output of git in this repository."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=text).stdout


def at(revision: str, folder: Path) -> House:
    """Unpack a revision into a folder."""
    archive = git("archive", "--format=tar", revision, text=False)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return House(folder)


def main(arguments: list[str] | None = None) -> None:
    """Print the table, or places."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", nargs="*", default=["."], help="of git; . is the working tree")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--rows", action="store_true", help="say what each row counts")
    parser.add_argument("--show", choices=["functions", "circles", "kernel", "duplicates"])
    options = parser.parse_args(arguments)
    if options.rows:
        print("\n".join(f"{row:22}{ROWS[row]}" for row in ROWS))
        return
    table: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for i, revision in enumerate(options.revision):
            known = None if revision == "." else revision
            house = at(known, Path(scratch) / str(i)) if known else House(ROOT)
            if options.show:
                print("\n".join(house.places(options.show, known)))
            else:
                table[revision] = house.measure(known)
    if options.json and table:
        print(json.dumps(table, indent=1))
    elif table:
        print(f"{'':22}" + "".join(f"{revision[:14]:>16}" for revision in table))
        for row in ROWS:
            cells = ["?" if (c := counts[row]) is None else f"{c}" for counts in table.values()]
            print(f"{row:22}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
