"""``fastgc info``."""

import base64
import hashlib
import json
import platform
import sys
from pathlib import Path

import commands
import numpy as np
import programs

import fastgc
from fastgc.cli import info
from fastgc.kernels import threads
from fastgc.kernels.c import simd


def test_info_is_said_as_text_and_as_json(tmp_path):
    package = Path(fastgc.__file__).parent
    facts = {
        "version": fastgc.__version__,
        "backend": fastgc.backend(),
        "simd": simd(),
        "threads": threads.get_num_threads(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "package": str(package),
        "files": info.files(package),
    }
    path = tmp_path / "out.json"
    result = commands.done("info", "--json", path)
    assert f"figures written to {path}" in result.stderr
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    assert dict(lines) == {name: str(value) for name, value in facts.items()}
    assert commands.figures("info") == facts == json.loads(path.read_text())
    assert "out.txt: a file's name must end in .json" in commands.refused(
        "info", "--json", "out.txt"
    )


def test_files_of_whose_package_are_imported(tmp_path, monkeypatch):
    """As installed, or overwritten by another distribution; another folder; none installed."""
    package, about = tmp_path / "fastgc", tmp_path / "gradient_coding-1.0.dist-info"
    for folder in package, about:
        folder.mkdir()
    text = b"points = 'of a gradient'\n"
    (package / "__init__.py").write_bytes(text)
    digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gradient-coding\nVersion: 1.0\n")
    (about / "RECORD").write_text(
        f"fastgc/__init__.py,sha256={digest},{len(text)}\nfastgc/notes.txt,sha256=no,1\n"
        f"fastgc/gone.py,sha256={digest},{len(text)}\ngradient_coding-1.0.dist-info/RECORD,,\n"
    )
    (package / "notes.txt").write_text("may change")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert info.files(package) == "as installed"
    (package / "__init__.py").write_text("points = 'of a cloud'\n")
    said = "1 not as installed, such as fastgc/__init__.py: uninstall fastgc, then reinstall "
    assert info.files(package).startswith(said)
    (tmp_path / "earlier" / "fastgc").mkdir(parents=True)
    said = info.files(tmp_path / "earlier" / "fastgc")
    assert said.startswith(f"not those of {package}, which comes later")
    (package / "__init__.py").rename(tmp_path / "__init__.py")
    (package / "notes.txt").unlink()
    package.rmdir()
    assert info.files(tmp_path / "earlier" / "fastgc") == "as in the checkout"
    monkeypatch.setattr(sys, "path", [])
    assert info.files(package) == "of a checkout: gradient-coding is not installed"


def test_info_with_a_number_of_threads_that_is_none():
    """The error is one line, not a traceback, and comes before any thread starts."""
    words = programs.python("-m", "fastgc", "info")
    done = programs.run(words, status=2, env={"FASTGC_NUM_THREADS": "5000"})
    assert "Traceback" not in done.stderr
    assert "threads" in done.stderr.lower()
