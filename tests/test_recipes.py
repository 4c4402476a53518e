"""CONTRIBUTING.md's recipes, carried out in a copy of fastgc: they name all files that they need.

A recipe that names too few files fails here; one that names too many fails with --long.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import strength

import fastgc
from fastgc import kernels

pytestmark = pytest.mark.any_backend

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGE = Path(fastgc.__file__).parent


def recipe(heading):
    """Return the guide's section, or skip the test if there is none."""
    _, found, rest = GUIDE.partition(f"\n## {heading}\n")
    if not found:
        pytest.skip(f"CONTRIBUTING.md has no recipe for {heading!r}")
    return rest.partition("\n## ")[0]


def named(heading):
    """Return the files of fastgc that a recipe names, and those in folders that it names."""
    return set(re.findall(r"`(fastgc/[\w/.]*)`", recipe(heading)))


# Before PYTHONPATH counts, an editable installation would find fastgc.
FIRST = """
import sys
found = [each for each in sys.meta_path if "fastgc" in getattr(each, "known_source_files", ())]
sys.meta_path[:] = [each for each in sys.meta_path if each not in found]
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of fastgc to change, with its compiled extension, wherever that is installed.

    It keeps Python's bytecode, too: compiling all modules takes a process seconds.
    """
    shutil.copytree(PACKAGE, tmp_path / "fastgc")
    for folder in kernels.__path__:
        for compiled in Path(folder).glob("_cffi.*"):
            shutil.copy(compiled, tmp_path / "fastgc/kernels")
    (tmp_path / "sitecustomize.py").write_text(FIRST)
    return tmp_path


def run(copy, *arguments):
    """Run Python on the copy, and return what it prints."""
    around = os.environ | {"PYTHONPATH": str(copy)}
    around.pop("FASTGC_TEST_INSTALLED", None)  # the copy is not what is installed
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=around, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def edit(path, *changes):
    """Replace texts that a file must contain."""
    text = path.read_text(encoding="utf-8")
    for before, after in changes:
        text, count = re.subn(before, after, text, count=1)
        assert count, f"{path.name} has nothing like {before}"
    path.write_text(text, encoding="utf-8")


def beside(path, old, new):
    """After each line of a file that names `old`, insert the line with `new`."""
    found = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert any(re.search(rf"\b{old}\b", line) for line in found)
    twice = []
    for line in found:
        twice.append(line)
        other = line
        for text, instead in ((old, new), (old_file(old), old_file(new))):
            other = re.sub(rf"\b{text}\b", instead, other)
        if re.search(rf"\b{old}\b", line):
            twice.append(other)
    path.write_text("".join(twice), encoding="utf-8")


def old_file(name):
    """Return a class's file, by its name."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


# ------------------------------------------------------------------------------------------ a code

SHIFTS = '''
"""Circular shifts of one row."""

from __future__ import annotations

import numpy as np

from ..coding.code import Code

__all__ = ["EvenShifts"]


class EvenShifts(Code):
    """Each worker has the next load partitions, with random coefficients."""

    def __init__(self, n, k=None, *, stragglers, seed=0):
        if k not in (None, n):
            raise ValueError(f"as many partitions as workers are needed, not {k}")
        self.n = self.k = n
        self.load = stragglers + 1
        self.stragglers, self.seed = stragglers, seed
        rng = np.random.default_rng(seed)
        columns = rng.standard_normal((stragglers, n))
        columns[:, -1] = -columns[:, :-1].sum(axis=1)
        self._rows = []
        for i in range(n):
            held = np.arange(i, i + self.load) % n
            rest = np.linalg.solve(columns[:, held[1:]], -columns[:, i]) if stragglers else []
            self._rows.append((held, np.array([1.0, *rest])))

    def row(self, worker):
        """Partitions and coefficients."""
        return self._rows[worker]
'''


def make_code(copy, *, without=None):
    """Add a code, changing only files that the recipe names."""
    files = {
        "fastgc/codes/": lambda: (copy / "fastgc/codes/even_shifts.py").write_text(SHIFTS),
        "fastgc/codes/__init__.py": lambda: beside(
            copy / "fastgc/codes/__init__.py", "Uncoded", "EvenShifts"
        ),
        "fastgc/__init__.py": lambda: beside(copy / "fastgc/__init__.py", "Uncoded", "EvenShifts"),
        "fastgc/codes/catalogue.py": lambda: edit(
            copy / "fastgc/codes/catalogue.py",
            (
                r"(?m)^from \.uncoded import Uncoded\n",
                "from .even_shifts import EvenShifts\n\\g<0>",
            ),
            (
                r"(?m)^(_BUILT_IN[^=]*= \[\n)",
                '\\1    ("even", EvenShifts, "even shifts", lambda s, **_: {"stragglers": s}),\n',
            ),
        ),
    }
    assert set(files) <= named("Adding a code")
    for name, change in files.items():
        if name != without:
            change()


def code_is_known(copy):
    """Whether the code is found by name and class, conforms, and is in plans."""
    asked = (
        "import fastgc; print(fastgc.EvenShifts, fastgc.codes.EvenShifts);"
        "print(fastgc.codes.make('even', 6, stragglers=2));"
        "assert 'EvenShifts' in dir(fastgc) and 'even' in fastgc.codes.names();"
        "import sys; from fastgc.__main__ import main;"
        "sys.argv[1:] = 'plan even,rs -n 6 --rounds 50 --json'.split(); main()"
    )
    [command] = re.findall(r"```sh\n(.*)\n```", recipe("Adding a code"))
    conforms = command.replace("FractionalRepetition", "EvenShifts").split()[1:]
    for arguments in (("-c", asked), conforms):
        status, said = run(copy, *arguments)
        if status or (arguments is not conforms and '"even"' not in said):
            return said
    return True


def test_a_code_is_added_by_the_files_that_the_guide_names(copy):
    pytest.importorskip("typer")
    make_code(copy)
    assert code_is_known(copy) is True


def test_codes_stand_in_the_files_that_the_guide_names():
    """The guide names all files of fastgc and API pages that name a code, except figures of it."""
    found = {
        str(path.relative_to(ROOT))
        for folder, kind in (("fastgc", "*.py"), ("docs/api", "*.rst"))
        for path in (ROOT / folder).rglob(kind)
        if re.search(r"\bGraphCode\b", path.read_text("utf-8"))
        and path.parent.name not in ("papers", "generated")
    }
    places = re.findall(r"`((?:fastgc|docs)/[\w/.]*)`", recipe("Adding a code"))
    assert found - {"fastgc/codes/graph.py"} <= set(places)


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["fastgc/codes/__init__.py", "fastgc/__init__.py", "fastgc/codes/catalogue.py"]
)
def test_no_file_is_named_for_nothing(copy, name):
    make_code(copy, without=name)
    assert code_is_known(copy) is not True


# --------------------------------------------------------------------------------------- an engine


def test_an_engine_is_added_by_the_files_that_the_guide_names(copy):
    pytest.importorskip("typer")
    assert "fastgc/engines/__init__.py" in named("Adding an engine")
    (copy / "fastgc/engines/again.py").write_text(
        "from .local import LocalCluster\n"
        "class AgainCluster(LocalCluster): '''Processes of this machine.'''\n"
    )
    edit(
        copy / "fastgc/engines/__init__.py",
        (r"(?m)^ENGINES[^=]*= \{\n", '\\g<0>    "again": "AgainCluster",\n'),
    )
    train = "train --engine again -n 4 -s 1 --rounds 2"
    found = (
        "import sys; from fastgc import engines; from fastgc.__main__ import main;"
        f"print(engines.find_engine('again'), flush=True); sys.argv[1:] = {train.split()}; main()"
    )
    status, said = run(copy, "-c", found)
    assert (status, "AgainCluster" in said) == (0, True), said
    [command] = re.findall(r"```sh\n(.*)\n```", recipe("Adding an engine"))
    conforms = command.replace("fastgc.engines:LocalCluster", "fastgc.engines.again:AgainCluster")
    conforms = conforms.split()[1:]
    if not strength.LONG:  # only some checks: other tests make all of them for this engine
        assert conforms[:-1] == ["-m", "fastgc.testing.engines"]
        some = "from fastgc.testing import engines; del engines.CHECKS[3:]; engines._main"
        conforms = ["-c", f"{some}({conforms[-1]!r})"]
    status, said = run(copy, *conforms)
    assert status == 0, said


# ---------------------------------------------------------------------------------------- a kernel

IN_NUMPY = """

@takes(x=reads(REALS, "p"), out=writes("x", "p"))
def add_multiple(x: NDArray[Any], factor: float, out: NDArray[Any]) -> None:
    \'\'\'``out += factor * x``.\'\'\'
    out += factor * x
"""

IN_NUMBA = """

@njit
def add_multiple(x, factor, out):
    for i in range(x.size):
        out[i] += factor * x[i]
"""

ROW = """

def _add_multiple():
    def run(arguments):
        out = arguments["x"].copy()
        kernels.add_multiple(arguments["x"], 2.5, out)
        return out

    return Kernel(
        "add a multiple",
        lambda rng, size, count, dtype: {"x": _vectors(rng, size, 1, dtype)[0]},
        run,
        lambda arguments: 3.5 * _wide(arguments["x"]),
        (np.float32, np.float64),
        bound=lambda arguments: 4 * np.finfo(arguments["x"].dtype).eps * np.abs(arguments["x"]),
    )


KERNELS.append(_add_multiple())
"""


def test_a_kernel_is_added_by_the_files_that_the_guide_names(copy):
    """This covers files in Python; nothing is compiled here, so NumPy's function stands for C's."""
    pytest.importorskip("numba")
    shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    listed = (r"(?m)^__all__ = \[", '\\g<0>\n    "add_multiple",')
    texts = {
        "fastgc/kernels/numpy/combine.py": IN_NUMPY,
        "fastgc/kernels/numba/combine.py": IN_NUMBA,
    }
    assert set(texts) <= named("Adding a kernel")
    for name, text in texts.items():
        edit(copy / name, listed, (r"\Z", text))
    edit(copy / "tests/kernel_table.py", (r"\Z", ROW))
    tests = ("tests/test_kernels.py", "-k", "multiple and not oracle", "-v", "-n", "0")
    for name in kernels.backends():
        under = ("--backend", name, "-p", "no:cacheprovider")
        status, said = run(copy, "-m", "pytest", *tests, *under)
        assert status == 0, said
        assert re.search(rf"\[{name}-.* PASSED", said), said
    names = ["numpy", "numba"]  # NumPy's function stands for C's
    places = "".join(f", kernels.{name}.add_multiple.__module__" for name in names)
    asked = f"from fastgc import kernels; print({places[2:]})"
    modules = " ".join(f"fastgc.kernels.{name}.combine" for name in names)
    assert run(copy, "-c", asked) == (0, f"{modules}\n")


def house():
    """Return what benches/house.py finds in this checkout."""
    spec = importlib.util.spec_from_file_location("house", ROOT / "benches" / "house.py")
    sys.modules["house"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.House(ROOT)


def test_the_kernel_that_the_guide_shows_is_in_the_five_files_that_it_names():
    places = re.findall(r"(?m)^\d\. `(\S+)`", recipe("Adding a kernel"))
    [name] = re.findall(r"`(\w+)` is an example", recipe("Adding a kernel"))
    assert sorted(house().files_of_kernel(name)) == sorted(places)


@pytest.mark.long
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="history says which kernel came last")
def test_the_last_kernel_stands_where_the_guide_says():
    """Every file that names the kernel lies in a place that the recipe names."""
    _, files = house().kernel(None)
    places = re.findall(r"`((?:fastgc|csrc|tests)/[\w/.]*)`", recipe("Adding a kernel"))
    folders = {Path(place).parent for place in places}
    for file in files:
        assert Path(file).parent in folders, file


# -------------------------------------------------------------------------------------- an option


ABOVE = re.search(r"`(above: .*?)`", GUIDE, re.DOTALL)


def test_an_option_is_added_by_the_file_that_the_guide_names(copy):
    """It takes the line that the guide shows, and one that does what the help says."""
    pytest.importorskip("typer")
    assert named("Adding an option") == {
        f"fastgc/cli/{name}.py" for name in ("stability", "options", "output")
    }
    edit(
        copy / "fastgc/cli/stability.py",
        ("    steps: int \\| None = option", f"    {ABOVE[1]}\n\\g<0>"),
        (
            r"    if not output\.write\(rows, rows\):",
            r"    rows = [row for row in rows if row['error'] > what.above]\n\g<0>",
        ),
    )
    command = "worst rs -n 8/2 --steps 1 --json"
    told = ("", " --above 1", " --above -1", " --help")
    in_turn = f"""
import os, sys
from fastgc.__main__ import main
os.dup2(1, 2)  # errors in their place
for more in {told}:
    sys.argv[1:] = ({command!r} + more).split()
    try:
        main()
    except SystemExit as end:
        print("status", end.code, flush=True)
"""
    said = run(copy, "-c", in_turn)[1]
    all_rows, above, refused, page, rest = re.split(r"(?m)^status (?=\d+$)", said)
    assert '"n": 8' in all_rows
    assert above == "0\n[]\n"
    assert refused.startswith("0\n")
    assert "--above" in refused
    assert page.startswith("2\n")
    assert "Show errors above this alone." in page
    assert rest == "0\n"
