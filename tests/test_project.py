"""Statements about the project in the files beside the packages are true."""

import ast
import importlib
import re
import shlex
import sys
import tomllib
from datetime import date
from importlib import metadata
from pathlib import Path

import programs
import pytest

import fastgc

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------ versions


def test_the_version_is_written_once():
    """The package holds it, and the build reads it from there, as pyproject.toml says."""
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
    assert re.findall('^__version__ = "(.*)"$', read("fastgc/__init__.py"), re.M) == [
        fastgc.__version__
    ]


def test_the_readme_on_pypi_names_links_in_full():
    """No other file lies beside it there."""
    try:
        text = metadata.metadata("gradient-coding").get_payload()
    except metadata.PackageNotFoundError:
        pytest.skip("imported from where it lies, without being installed")
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert len(targets) == len(re.findall(r"\]\(([^)]*)\)", read("README.md")))
    assert not [target for target in targets if not target.startswith(("https://", "#"))]
    raw = "https://raw.githubusercontent.com/gradient-coding/fastgc/main/docs/"
    assert sum(target.startswith(raw) for target in targets) == 3  # pictures


def test_versions_in_the_changelog():
    found = re.findall(r"^## \[(.*)\] - (.*)$", read("CHANGELOG.md"), re.M)
    versions = [tuple(map(int, version.split("."))) for version, _ in found]
    days = [date.fromisoformat(day) for _, day in found]
    assert found[0][0] == fastgc.__version__
    assert sorted(versions, reverse=True) == versions
    assert sorted(days, reverse=True) == days
    kinds = set(re.findall(r"^### (.*)$", read("CHANGELOG.md"), re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_what_is_installed_is_what_the_project_says():
    try:
        ours = metadata.distribution("gradient-coding")
    except metadata.PackageNotFoundError:
        pytest.skip("fastgc is imported from a checkout that is not installed")
    assert ours.version == fastgc.__version__
    commands = {each.name: each.value for each in ours.entry_points.select(group="console_scripts")}
    assert commands == PROJECT["scripts"]
    assert set(ours.metadata.get_all("Provides-Extra")) == EXTRAS.keys()
    assert (Path(fastgc.__file__).parent / "py.typed").exists()


def test_versions_that_are_supported():
    """They are those that the page of questions names."""
    said = re.sub(r"\s+", " ", read("docs/faq.md"))
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    least = dict(each.split(">=") for each in PROJECT["dependencies"])
    assert f"CPython {pythons[0]} to {pythons[-1]}, NumPy from {least['numpy']} on" in said
    assert f"Numba from {least['numba']} on" in said


def test_the_conda_recipe_is_of_this_project():
    yaml = pytest.importorskip("yaml")
    path = ROOT / ".ci" / "conda" / "recipe.yaml"
    if not path.exists():
        pytest.skip("a source distribution has no recipe")
    recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == fastgc.__version__
    assert recipe["about"]["summary"] == PROJECT["description"]
    entry_points = dict(each.split(" = ") for each in recipe["build"]["python"]["entry_points"])
    assert entry_points == PROJECT["scripts"]
    needed = {each.replace(" ", "") for each in recipe["requirements"]["run"]}
    assert needed == {"python" + PROJECT["requires-python"], *PROJECT["dependencies"]}
    built = tomllib.loads(read("pyproject.toml"))["build-system"]["requires"]
    assert {each.replace(" ", "") for each in recipe["requirements"]["host"]} >= {*built}


# ------------------------------------------------------------------------------ citation


def test_citation():
    text = read("CITATION.cff")
    assert re.findall("^version: (.*)$", text, re.M) == [fastgc.__version__]
    released = re.search(rf"^## \[{fastgc.__version__}\] - (.*)$", read("CHANGELOG.md"), re.M)[1]
    assert re.findall("^date-released: (.*)$", text, re.M) == [released]
    assert f"license: {PROJECT['license']}" in text
    # Papers whose figures are reproduced.
    for name in ("Halbawi", "Charalambides", "Mousavi Kalan", "Ozfatura", "Zhu"):
        assert text.count(f"family-names: {name}\n") == 1
    for name in re.findall(r"(?<=notes: )[\w, ]+$", text, re.M):
        for each in re.findall(r"\b[A-Z]\w+", name):
            assert hasattr(fastgc, each) or hasattr(fastgc.optimizers, each)


# -------------------------------------------------------------------------------- guides

GUIDE = read("CONTRIBUTING.md")
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", GUIDE, flags=re.M | re.S))
BLOCKS = "".join(re.findall(r"^```sh\n(.*?)^```", GUIDE, re.M | re.S)).splitlines()
COMMANDS = [
    *BLOCKS,
    *(each for each in INLINE if re.match(r"(\w+=\S+ )*(\.venv/bin/\w+|\.ci/\w+)( |$)", each)),
]


def there_is(path):
    # Not missed: what a source distribution leaves out, and what only Numba's tests make.
    return (
        (ROOT / path).exists()
        or path == ".numba_cache/"
        or (path.startswith(".ci/") and not (ROOT / ".ci").exists())
    )


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_files_that_are_named_exist(name):
    text = read(name)
    named = re.findall(r"`([\w.]+/[\w./]*|[A-Z]+\.(?:md|cff))`", text)
    named += re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert [path for path in named if not there_is(path)] == []


def test_tests_that_ci_names_exist():
    for path in (ROOT / ".ci").glob("*"):
        if path.is_file():
            named = re.findall(r"tests/\w[\w/]*(?:\.py)?", path.read_text("utf-8"))
            assert [name for name in named if not (ROOT / name).exists()] == [], path


def test_folders_of_the_guide_are_all_there_are():
    table = GUIDE.partition("## Where things are")[2].partition("\n## ")[0]
    packages = {path.parent.name for path in (ROOT / "fastgc").glob("*/__init__.py")}
    assert [name for name in sorted(packages) if f"`fastgc/{name}/`" not in table] == []


def test_long_modules_have_a_test_file_of_their_name():
    package = ROOT / "fastgc"
    for path in sorted(package.rglob("*.py")):
        if path.name != "__init__.py" and path.read_text("utf-8").count("\n") > 150:
            mirrored = Path("tests", path.relative_to(package)).with_name(f"test_{path.name}")
            assert (ROOT / mirrored).exists(), mirrored


def shown(*words):
    """Return the help of a command of Python."""
    command = [sys.executable, *words, "--help"]
    return programs.run(command, folder=ROOT, env={"COLUMNS": "100"}).stdout


@pytest.mark.few(12)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_guide_exist(command):
    """Their files, modules, extras and options exist; other tests cover what commands do."""
    words = [word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word)]
    program, *rest = words
    options = [word for word in rest if word.startswith("--")]
    if program.startswith(".ci/"):
        assert there_is(program)
        if (ROOT / program).exists():
            text = read(program)
            # A case of bash or a comparison in it; an option in Python; a part of .ci/run.
            forms = ("{})", " = {} ]", '"{}"', "\n{}() {{")
            said = [word for word in rest if not word.isdigit()]
            assert all(any(f.format(word) in text for f in forms) for word in said)
    elif program.endswith("/pip"):
        (wanted,) = re.findall(r"\.\[(.*)\]$", rest[-1])
        assert EXTRAS.keys() >= set(wanted.split(","))
    elif program.endswith("/pytest"):
        assert all((ROOT / word).exists() for word in rest if "/" in word)
        known = {*re.findall('"(--[a-z]+)"', read("tests/conftest.py")), "--benchmark-only"}
        assert known >= set(options)
    elif program.endswith("/python") and rest[0] == "-m" and rest[1] != "venv":
        assert all(re.search(rf"{option}\b", shown("-m", rest[1])) for option in options)
    elif program.endswith("/python"):
        assert all(re.search(rf"{option}\b", shown(rest[0])) for option in options)
    else:
        ours = ("fastgc", "ruff", "mypy", "lint-imports")
        assert program in ("python3", *(f".venv/bin/{each}" for each in ours))


def test_a_code_of_the_guide_is_checked_as_it_says():
    (command,) = (each for each in BLOCKS if "fastgc.testing.codes" in each)
    done = programs.run(programs.python(*shlex.split(command)[1:]))
    assert "engines run it: simulated" in done.stdout


# ------------------------------------------------------------------------------ security


def imported(path):
    """Yield the names that a file imports from fastgc."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fastgc"):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("folder", ["benches", "docs"])
def test_what_is_imported_is_there(folder):
    """Benchmarks seldom run, and some import inside functions."""
    names = {name for path in (ROOT / folder).rglob("*.py") for name in imported(path)}
    missing = []
    for module, name in sorted(names):
        try:
            found = importlib.import_module(module)
            hasattr(found, name) or importlib.import_module(f"{module}.{name}")
        except ImportError as error:
            if (error.name or "").startswith("fastgc"):  # other packages may be missing
                missing.append((module, name))
    assert not missing


def test_where_pickles_are_read():
    """SECURITY.md says what is unpickled: what the master sends, and what ranks exchange."""
    folder = Path(fastgc.__file__).parent
    sources = {
        str(path.relative_to(folder).with_suffix("")): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.py")
    }
    reading = {
        name
        for name, text in sources.items()
        if re.search(r"\b(pickle\.loads?|torch\.load)\(", text)
    }
    assert reading == {
        "engines/memory",
        "engines/mpi",
        "engines/torch",
        "testing/codes",
        "torch/all_reduce",
        "torch/job",
    }
    for text in sources.values():
        for call in re.findall(r"np\.load\((.*)\)", text):
            assert "allow_pickle=False" in call
