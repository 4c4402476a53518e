"""Whose files stand where fastgc's should be, and what repairs them.

What an installer wrote is listed in the distribution's ``RECORD``, with a hash of each file. So a
file that another distribution has written over, or taken away with itself, is found without
importing anything.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

__all__ = ["Diagnosis", "examine", "version"]

NAME = "gradient-coding"  # of the distribution
PACKAGES = ("fastgc", "gradient_coding")
SHOWN = 3  # files that a sentence names


class Diagnosis(NamedTuple):
    """What was found; its text is for people.

    Attributes
    ----------
    facts : list of str
        What is installed, and from where Python imports it.
    problems : list of str
        What is wrong, a sentence each; none if nothing is.
    repair : list of str
        Commands that mend it, to be run one after the other.
    """

    facts: list[str]
    problems: list[str]
    repair: list[str]

    def __str__(self) -> str:
        """All of it, a paragraph each."""
        lines = [*self.facts, *(f"Problem: {problem}" for problem in self.problems)]
        if not self.problems:
            lines.append("Nothing is wrong.")
        if self.repair:
            lines += ["", "To repair it:", *(f"    {command}" for command in self.repair)]
        return "\n".join(lines)


def version() -> str:
    """Return what is installed, as a line: the distribution's name and version."""
    ours = _ours(list(_installed()))
    return f"{NAME} {ours.version}" if ours else f"{NAME} is not installed"


def examine() -> Diagnosis:
    """Compare what is installed as fastgc with what should be.

    Returns
    -------
    diagnosis : Diagnosis
    """
    everything = list(_installed())
    ours = _ours(everything)
    imported = _imported()
    if ours is None:
        return _not_installed(imported, everything)

    root = _root(ours)
    record = _record(ours)
    others = [each for each in everything if _collides(each, root, record)]
    facts = [f"{NAME} {ours.version} is installed in {root}."]
    problems = []
    if others:
        for other in others:
            facts.append(f"{_called(other)} is installed there, too: {_summary(other)}")
        named = " and ".join(_called(each) for each in others)
        problems.append(
            f"{named} and {NAME} have files of the same names: each writes over the other's when "
            "it is installed, and takes them away when it is uninstalled."
        )
    problems += _damage(record, others)
    expected = root / "fastgc"
    if (origin := _origin(ours)) and origin.editable and origin.path:
        facts.append(f"It is an editable install of {origin.path}.")
        expected = origin.path / "fastgc"
    shadow = _shadow(imported, expected)
    problems += shadow
    damaged = len(problems) > len(shadow)
    # Where nothing is damaged, another folder comes first: installing again would not help.
    return Diagnosis(facts, problems, _commands(others, _again(ours), ours) if damaged else [])


def _not_installed(imported: Path | None, everything: list[Distribution]) -> Diagnosis:
    """Diagnose an environment that the distribution is not in."""
    facts = [f"{NAME} is not installed."]
    others = [each for each in everything if _normal(each) == "fastgc"]
    for other in others:
        facts.append(f"{_called(other)} is installed: {_summary(other)}")
    problems, what = [], NAME
    if imported is None:
        problems.append("Python finds no package fastgc.")
    elif _is_checkout(imported.parent):
        facts.append(f"Python imports fastgc from the checkout {imported.parent}.")
        what = str(imported.parent)
        if others:
            problems.append(f"The command fastgc is that of {_called(others[0])}.")
    else:
        problems.append(f"The package fastgc in {imported} is not that of {NAME}.")
    return Diagnosis(facts, problems, _commands(others, [what]) if problems else [])


# ------------------------------------------------------------------------- distributions


def _installed() -> Iterator[Distribution]:
    """Distributions that Python finds; of two of a name, the first.

    What an interrupted installation leaves is none.
    """
    found = set()
    for each in distributions():
        if each.read_text("METADATA") and _normal(each) not in found:
            found.add(_normal(each))
            yield each


def _ours(everything: list[Distribution]) -> Distribution | None:
    return next((each for each in everything if _normal(each) == NAME), None)


def _normal(distribution: Distribution) -> str:
    """Return a name as installers compare it."""
    return re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()


def _called(distribution: Distribution) -> str:
    return f"{distribution.metadata['Name']} {distribution.version}"


def _summary(distribution: Distribution) -> str:
    """Return what a distribution says of itself, as a sentence."""
    said = str(distribution.metadata.json.get("summary", ""))
    return f'"{said.rstrip(".")}".' if said else "it does not say what it is."


def _root(distribution: Distribution) -> Path:
    return Path(str(distribution.locate_file("")))


def _record(distribution: Distribution) -> dict[Path, str]:
    """Files of a distribution, with their hashes; without one, they may change or be gone.

    `Distribution.files` will not do: it leaves out what is missing.
    """
    root, conda = _root(distribution), _installer(distribution) == "conda"
    found = {}
    for name, hashed, _ in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        path = Path(os.path.normpath(root / name))
        # Conda writes commands and paths, and changes compiled files, after RECORD was made.
        if conda and hashed and path.suffix != ".py":
            hashed = "changed by conda"
        # What `pip install --target` says of commands is of the folder that it built them in.
        if name.startswith("..") and not path.exists() and (root / "bin" / path.name).exists():
            path = root / "bin" / path.name
        found[path] = hashed
    return found


def _installer(distribution: Distribution) -> str:
    return (distribution.read_text("INSTALLER") or "").strip()


def _collides(other: Distribution, root: Path, record: dict[Path, str]) -> bool:
    """Whether a distribution has files where ours are, or of its own in our folders."""
    if _normal(other) == NAME:
        return False
    if _normal(other) == "fastgc" and _root(other) == root:
        return True
    if not any(name in (other.read_text("RECORD") or "") for name in PACKAGES):
        return False  # quickly, of most
    folders = [root / name for name in PACKAGES]
    return any(
        path in record or any(path.is_relative_to(folder) for folder in folders)
        for path in _record(other)
    )


# --------------------------------------------------------------------------------- files


def _damage(record: dict[Path, str], others: list[Distribution]) -> Iterator[str]:
    """Sentences about files that are gone, or are not what was installed."""
    if not record:
        yield "There is no list of installed files to compare with."
    gone = [path for path, hashed in record.items() if hashed and not path.exists()]
    changed = [path for path, hashed in record.items() if path.exists() and not _is(path, hashed)]
    if gone:
        yield f"{_counted(gone)} missing: {_listed(gone)}."
    by_others: dict[Path, Distribution] = {}
    for other in others:
        theirs = _record(other)
        by_others |= {path: other for path in changed if path in theirs and _is(path, theirs[path])}
    for other in others:
        if written := [path for path in changed if by_others.get(path) is other]:
            yield f"{_counted(written)} of {_called(other)}: {_listed(written)}."
    if unknown := [path for path in changed if path not in by_others]:
        yield f"{_counted(unknown)} not as installed: {_listed(unknown)}."


def _is(path: Path, hashed: str) -> bool:
    """Whether a file's contents are those of a hash, if there is one."""
    kind, _, value = hashed.partition("=")
    if kind not in hashlib.algorithms_guaranteed:
        return True
    digest = hashlib.new(kind, path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == value


def _counted(paths: list[Path]) -> str:
    return "1 file is" if len(paths) == 1 else f"{len(paths)} files are"


def _listed(paths: list[Path]) -> str:
    shown = ", ".join(map(str, paths[:SHOWN]))
    return shown if len(paths) <= SHOWN else f"{shown} and {len(paths) - SHOWN} more"


# ------------------------------------------------------------------------------- imports


def _imported() -> Path | None:
    """Return the folder or file that `import fastgc` takes; None if there is none.

    It is not imported.
    """
    spec = importlib.util.find_spec("fastgc")
    if spec is None:
        return None
    if spec.origin is not None:
        origin = Path(spec.origin)
        return origin.parent if origin.name == "__init__.py" else origin
    return next(map(Path, spec.submodule_search_locations or ()), None)


def _shadow(imported: Path | None, expected: Path) -> list[str]:
    """Sentences about an import that takes something else than it should."""
    if imported is None:
        return ["Python finds no package fastgc."]
    if imported.exists() and expected.exists() and imported.samefile(expected):
        return []
    first = imported.parent
    if imported.is_file():
        advice = "Give that file another name."
    elif first.samefile("."):
        advice = "Run Python in another folder, or with -P."
    else:
        advice = f"Take {first} out of PYTHONPATH."
    where = f"Python imports fastgc from {imported}, which comes before {expected} on its path."
    return [f"{where} {advice}"]


def _is_checkout(folder: Path) -> bool:
    # As fastgc._base.extras has it, which may be among what is broken.
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    except OSError:
        return False
    return f'name = "{NAME}"' in text


# -------------------------------------------------------------------------------- repair


class _Origin(NamedTuple):
    """Where a distribution came from, if not from an index (PEP 610)."""

    requirement: str  # what to call it to an installer
    path: Path | None  # of a folder or file of this machine
    editable: bool


def _origin(distribution: Distribution) -> _Origin | None:
    said: dict[str, Any] = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not said or _installer(distribution) == "conda":  # of conda, where the package was built
        return None
    if version := said.get("vcs_info"):
        return _Origin(f"{version['vcs']}+{said['url']}@{version['commit_id']}", None, False)
    url = urlsplit(said["url"])
    path = Path(url2pathname(url.path)) if url.scheme == "file" else None
    editable = bool(said.get("dir_info", {}).get("editable"))
    return _Origin(said["url"] if path is None else str(path), path, editable)


def _again(ours: Distribution) -> list[str]:
    """Arguments to install the same again: from where it came, if that is still there."""
    origin = _origin(ours)
    if origin is None or (origin.path is not None and not origin.path.exists()):
        return [f"{NAME}=={ours.version}"]
    return ["--editable"] * origin.editable + [origin.requirement]


def _commands(
    others: list[Distribution], what: list[str], ours: Distribution | None = None
) -> list[str]:
    """Return commands for this very Python: others are uninstalled, ours is installed."""
    names = [each.metadata["Name"] for each in others]
    installer = "" if ours is None else _installer(ours)
    if installer == "uv":
        uninstall = ["uv", "pip", "uninstall", "--python", sys.executable]
        install = ["uv", "pip", "install", "--python", sys.executable]
    else:
        uninstall = [sys.executable, "-m", "pip", "uninstall", "--yes"]
        install = [sys.executable, "-m", "pip", "install"]
    if installer == "conda":
        install = ["conda", "install", "--prefix", sys.prefix]
    if ours is not None:
        install += ["--force-reinstall", "--no-deps"]
    commands = [[*uninstall, *names]] if names else []
    return [shlex.join(command) for command in [*commands, [*install, *what]]]
