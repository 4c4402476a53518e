"""The README's Python and commands run; its figures come from a command that it names."""

import importlib.util
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import programs
import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language, text=TEXT):
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def section(title):
    return re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", TEXT, re.M | re.S)[1]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with files made of blocks whose first line names a file."""
    for block in blocks("python"):
        if named := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("mycode", None)


def test_examples_run(folder, capsys):
    names = {}
    for block in blocks("python"):
        if not re.match(r"# \w+\.py\n", block):
            exec(block, names)  # in order; some blocks check their results
    everything = [np.random.default_rng(j).standard_normal(1000) for j in range(80)]
    np.testing.assert_allclose(names["gradient"], np.sum(everything, axis=0), atol=1e-10)
    assert capsys.readouterr().out.startswith("Trust(relative_error=")


def test_the_pytorch_script_runs(folder):
    pytest.importorskip("torch")
    script = (folder / "coded.py").read_text()
    assert "coded.step < 100" in script
    (folder / "coded.py").write_text(
        script.replace("coded.step < 100", "coded.step < 3") + "    print(coded.step)\n"
    )
    assert run("python coded.py", folder) == "3\n"


@pytest.mark.long
def test_the_table_of_times_is_what_the_command_prints(tmp_path):
    """The calls come in this order with readable times; times are not compared here."""
    text = section("How fast?")
    (command,) = blocks("sh", text)
    program, script = command.split()
    found = run(f"{program} {ROOT / script} --quick", tmp_path)
    tables = [
        [row.strip("| ").split(" | ") for row in shown.splitlines() if row.startswith("|")]
        for shown in (text, found)
    ]
    head, said, measured = tables[0][0], *(table[2:] for table in tables)
    assert head == tables[1][0]
    assert len(said) == 8
    if importlib.util.find_spec("torch") is None:
        said = [row for row in said if "torch.optim" not in row[2]]
    for ours, theirs in zip(said, measured, strict=True):
        assert re.sub(r"[\d,]+", "", ours[0]) == re.sub(r"[\d,]+", "", theirs[0])
        assert ours[2] == theirs[2]
        mine, other = (
            float(t.split()[0]) * {"µs": 1e-6, "ms": 1e-3}[t.split()[1]] for t in ours[1::2]
        )
        assert float(ours[4]) == pytest.approx(other / mine, rel=0.06)
        assert float(ours[4]) > 1


@pytest.mark.long
@pytest.mark.numba
def test_loop_that_numba_compiles():
    pytest.importorskip("numba")
    from fastgc.kernels import numba as nb

    example = nb.__doc__.partition("::\n\n")[2]
    assert "@numba.njit" in example
    exec(re.sub("^    ", "", example, flags=re.M), {})  # it checks its results


def made(target):
    """Return the commands that make would run for a target in a fresh checkout."""
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", target]
    return programs.run(command, folder=ROOT).stdout.replace("\\\n", "").splitlines()


def test_quick_start_is_two_commands(tmp_path):
    """`make demo` prints the table of the README, `make test` runs the tests."""
    text = section("Quick start")
    assert blocks("sh", text) == ["make demo\n", "make test\n"]
    *_, tests = made("test")
    assert tests == "FASTGC_TEST_INSTALLED=1 .venv-test/bin/pytest"
    *_, demo = map(shlex.split, made("demo"))
    command, table = blocks("text", text)[0].removeprefix("$ ").replace("\\\n", "").split("\n\n")
    assert shlex.split(command) == demo
    pytest.importorskip("sklearn")
    found = run(shlex.join(["fastgc", *demo[1:]]), tmp_path)
    rows = [line.split() for line in found.splitlines() if line.strip()]
    assert [line.split() for line in table.splitlines()] == rows[1:]
    assert (tmp_path / "comparison.png").exists()


def run(command, folder):
    """Return the output of a README's command, run in a folder."""
    name, *words = shlex.split(command)
    words = words if name == "python" else ["-m", name, *words]
    return programs.run([sys.executable, *words], folder=folder).stdout


@pytest.mark.few(1)
@pytest.mark.parametrize("command", blocks("sh", section("Extending"))[0].splitlines())
def test_own_code_on_the_command_line(command, folder):
    shown = run(command, folder)  # a table folds long names: compare beginnings
    assert "RandomShifts(" in shown or "mycode:" in shown


@pytest.mark.long
def test_precision_is_as_the_command_says(tmp_path):
    """Figures agree within a factor of ten, as machines round differently; times are skipped."""
    text = section("How precise?")
    (command,) = blocks("sh", text)
    said = [line for line in text.splitlines() if line.startswith("|")]
    found = [line for line in run(command, tmp_path).splitlines() if line.startswith("|")]
    assert len(found) == len(said) == 14
    heads = []
    for ours, theirs in zip(said, found, strict=True):
        (code, *ours), (other, *theirs) = (row.strip("| ").split(" | ") for row in (ours, theirs))
        assert code == other
        if code in ("code", "---"):
            assert ours == theirs
            heads = ours if code == "code" else heads
            continue
        for head, our, their in zip(heads, map(float, ours), map(float, theirs), strict=True):
            assert our > 0
            assert head.endswith("µs") or 0.1 <= our / their <= 10, (code, head)


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 300
