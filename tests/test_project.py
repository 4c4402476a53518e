"""Statements about the project in the files beside the packages are true."""

import re
import shlex
import tomllib
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


def test_the_version_is_the_same_everywhere():
    """The package holds it, and the build reads it from there, as pyproject.toml says."""
    assert "version" in PROJECT["dynamic"]
    newest, day = re.search(r"^## \[(.*)\] - (.*)$", read("CHANGELOG.md"), re.M).groups()
    assert newest == fastgc.__version__
    assert f"\nversion: {newest}\n" in read("CITATION.cff")
    assert f"\ndate-released: {day}\n" in read("CITATION.cff")


def test_the_conda_recipe_says_what_the_project_says():
    if not (ROOT / ".ci").exists():
        pytest.skip("a source distribution has no recipe")
    recipe = read(".ci/conda/recipe.yaml")
    assert f'version: "{fastgc.__version__}"' in recipe
    assert f"license: {PROJECT['license']}\n" in recipe
    python, needs = PROJECT["requires-python"], PROJECT["dependencies"]
    lines = re.search(r"  run:\n((?:    - .*\n)+)", recipe)[1].splitlines()
    assert lines == [f"    - {each.replace('>=', ' >=')}" for each in [f"python{python}", *needs]]


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


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_guide_exist(command):
    """Their files, modules, extras and options exist; other tests cover what commands do."""
    words = [word for word in shlex.split(command) if not re.match(r"[A-Z_]+=", word)]
    program, *rest = words
    files = [word for word in words if "/" in word and not word.startswith(".venv/")]
    if program.endswith("/pip"):
        (wanted,) = re.findall(r"\.\[(.*)\]$", rest[-1])
        assert EXTRAS.keys() >= set(wanted.split(","))
        return
    if program.endswith("/python") and rest[0] == "-m" and rest[1] != "venv":
        files.append(f"{rest[1].replace('.', '/')}.py")
    if program.endswith("/pytest"):
        files.append("tests/conftest.py")
    assert all(map(there_is, files))
    text = "--benchmark-only" + "".join(map(read, filter(lambda f: (ROOT / f).is_file(), files)))
    options = [word.strip("-").replace("-", "_") for word in rest if word.startswith("--")]
    assert not files or all(option in text.replace("-", "_") for option in options)
    programs_ = ("python", "pytest", "fastgc", "ruff", "mypy", "lint-imports")
    ours = (*files, "python3", *(f".venv/bin/{each}" for each in programs_))
    assert program in ours


def test_a_code_of_the_guide_is_checked_as_it_says():
    (command,) = (each for each in BLOCKS if "fastgc.testing.codes" in each)
    done = programs.run(programs.python(*shlex.split(command)[1:]))
    assert "engines run it: simulated" in done.stdout


# ------------------------------------------------------------------------------ security


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
        if re.search(r"\b(pickle\.loads?|pickle\.Unpickler|torch\.load)\b", text)
    }
    assert reading == {
        "engines/memory",
        "engines/mpi",
        "engines/torch",
        "testing/codes",
        "torch/handover",
        "torch/job",
    }
    for text in sources.values():
        for call in re.findall(r"np\.load\((.*)\)", text):
            assert "allow_pickle=False" in call
