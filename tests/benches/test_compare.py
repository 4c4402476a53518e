"""Stores of results, and files of pytest-benchmark, compared."""

import json
import subprocess
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "benches"

pytestmark = pytest.mark.skipif(not BENCHES.exists(), reason="not a checkout")


@pytest.fixture
def compare(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHES))
    import compare

    return compare


def section(fft, trust):
    """A section with times that have their unit, and others whose unit the head says."""
    sizes = [["method", "n = 16", "n = 64"], ["---"] * 3, ["fft", f"{fft} µs; 2e-16", "1.5 ms"]]
    verbs = [["code", "n", "trust, s", "MB"], ["---"] * 4, ["rs", "10", str(trust), "3"]]
    return json.dumps({"found": ["A title", sizes, verbs]})


@pytest.fixture
def checkout(compare, tmp_path, monkeypatch):
    """A checkout whose store has become slower since a tag."""
    monkeypatch.setattr(compare, "STORE", tmp_path)

    def git(*words):
        author = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *author, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "vectors.json").write_text(section(2.0, 0.25))
    git("add", ".")
    git("commit", "-qm", "measured")
    git("tag", "v1")
    (tmp_path / "vectors.json").write_text(section(3.0, 0.2))
    return tmp_path


def test_main_of_a_tag(compare, checkout, capsys):
    assert compare.main(["v1"]) == 1
    slower, faster, last = capsys.readouterr().out.splitlines()
    assert slower.split()[0] == "1.50"
    assert "vectors | fft | n = 16" in slower
    assert faster.split()[:3] == ["0.80", "0.25", "s"]
    assert last.startswith("3 times: 1 slower, 1 faster; 0 are")
    assert compare.main(["v1", "v1"]) == 0
    assert compare.main(["v1", "--limit", "2"]) == 0
    with pytest.raises(SystemExit):
        compare.main(["v2"])


def test_main_of_files(compare, tmp_path, capsys):
    names = []
    for name, seconds in (("old.json", 1e-3), ("new.json", 1.2e-3)):
        bench = {"fullname": "benches/test_a.py::test", "stats": {"median": seconds}}
        (tmp_path / name).write_text(json.dumps({"benchmarks": [bench]}))
        names.append(str(tmp_path / name))
    assert compare.main(names) == 1
    assert compare.main(names[::-1]) == 0
    assert "1.20  0.001 s  0.0012 s  benches/test_a.py::test" in capsys.readouterr().out


def test_store_of_this_checkout(compare):
    found = compare.store(None)
    assert len(found) > 500
    assert all(1e-10 < seconds < 1e4 for seconds in found.values())
