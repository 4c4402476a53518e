"""If a package is missing, the error names the command that installs it."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from fastgc._base import extras

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout from which fastgc is imported without being installed."""

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    (tmp_path / "pyproject.toml").write_text('[project]\nname = "gradient-coding"\n')
    monkeypatch.setattr(metadata, "distribution", missing)
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "fastgc" / "_base" / "extras.py"))
    return tmp_path


def test_what_is_installed_is_called_by_its_name(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(metadata, "distribution", {"gradient-coding": "installed"}.__getitem__)
    assert extras.pip_install("mpi") == 'pip install "gradient-coding[mpi]"'


def test_a_checkout_is_called_by_its_folder(checkout, monkeypatch):
    assert extras.pip_install("mpi") == f'pip install "{checkout}[mpi]"'
    monkeypatch.chdir(checkout)
    assert extras.pip_install("ray") == 'pip install ".[ray]"'


@pytest.mark.parametrize("content", [None, '[project]\nname = "theirs"\n'])
def test_another_folder_is_no_checkout(checkout, content, monkeypatch):
    monkeypatch.chdir(checkout)
    (checkout / "pyproject.toml").unlink()
    if content is not None:
        (checkout / "pyproject.toml").write_text(content)
    assert extras.pip_install("mpi") == 'pip install "gradient-coding[mpi]"'


def test_messages_name_extras_that_there_are():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "fastgc").rglob("*.py")]
    called = r"pip_install\('(\w+)'\)|return _optional\(.*\"(\w+)\"\)"
    named = {a or b for text in sources for a, b in re.findall(called, text)}
    assert named == {"cli", "half", "mpi", "parquet", "plot", "planning", "ray", "torch"}
    assert named <= EXTRAS.keys()
    # No text names a distribution literally: that may be another project's.
    assert not [text for text in sources if re.search(r"pip install [\w\"'](?!\{)", text)]
    assert not [text for text in sources if "fastgc[" in text]


def test_guides_name_this_distribution():
    guides = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("*.md")}
    assert "README.md" in guides
    assert not [name for name, text in guides.items() if "fastgc[" in text]
    for text in guides.values():
        for what in re.findall(r'pip install (?:--\w+ )*"?([\w.-]+)\[', text):
            assert what in (".", "gradient-coding")


def test_extras_refer_to_this_distribution():
    refers = [each for extra in EXTRAS.values() for each in extra if re.match(r"[\w-]+\[", each)]
    assert len(refers) >= 4
    for each in refers:
        name, inner = re.fullmatch(r"([\w-]+)\[([\w,-]+)\]", each).groups()
        assert name == "gradient-coding"
        assert EXTRAS.keys() >= set(inner.split(","))
