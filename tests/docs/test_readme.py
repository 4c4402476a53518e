"""The README's Python and commands run unchanged, and print what it shows."""

import os
import re
import shlex
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import programs
import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language, title):
    part = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", TEXT, re.M | re.S)[1]
    return re.findall(rf"^```{language}\n(.*?)^```", part, re.M | re.S)


def run(command, folder):
    """Return the output of a README's command, run in a folder."""
    return programs.run([sys.executable, "-m", *shlex.split(command, True)], folder=folder).stdout


def made(target):
    """Return the commands that make would run for a target in a fresh checkout."""
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    command = ["make", "--no-print-directory", "--dry-run", "--always-make", target]
    return programs.run(command, folder=ROOT).stdout.replace("\\\n", "").splitlines()


def test_quick_start_is_two_commands(tmp_path):
    """`make demo` prints the table of the README, `make test` runs the tests."""
    assert blocks("sh", "Quick start") == ["make demo\n", "make test\n"]
    *_, tests = made("test")
    assert tests == "FASTGC_TEST_INSTALLED=1 .venv-test/bin/pytest"
    *_, demo = made("demo")
    (text,) = blocks("text", "Quick start")
    command, table = text.removeprefix("$ ").replace("\\\n", "").split("\n\n")
    assert shlex.split(command) == shlex.split(demo)
    found = run(demo.replace(".venv/bin/fastgc", "fastgc"), tmp_path)
    rows = [line.split() for line in found.splitlines() if line.strip()]
    assert [line.split() for line in table.splitlines()] == rows[1:]
    assert (tmp_path / "comparison.png").exists()


@pytest.mark.long
def test_its_picture_is_what_the_script_draws(tmp_path):
    image = pytest.importorskip("PIL.Image")
    script = ROOT / "docs" / "pictures.py"
    programs.run(programs.python(script, "--out", tmp_path))
    drawn, kept = (
        np.asarray(image.open(folder / "accuracy.png").convert("RGB"), dtype=float)
        for folder in (tmp_path, script.parent)
    )
    assert (script.parent / "accuracy.png").stat().st_size < 50_000
    assert np.abs(drawn - kept).mean() < 8  # letters differ where fonts do


def test_a_round(capsys):
    names = {}
    exec(*blocks("python", "A round"), names)
    np.testing.assert_allclose(names["gradient"], names["parts"].sum(axis=0), atol=1e-12)
    assert re.match(r"after worker \d: Trust\(relative_error=", capsys.readouterr().out)


@pytest.fixture
def ranks(tmp_path):
    """The script of the section on PyTorch, which says which steps it has taken, and its bits."""
    (script,) = blocks("python", "PyTorch")
    name, script = script.split("\n", 1)
    assert name == "# ranks.py"
    path = tmp_path / "ranks.py"
    told = "        os.write(1, f'{os.getpid()} {step} {model.weight.sum()}\\n'.encode())\n"
    path.write_text(f"import os, torch\ntorch.manual_seed(0)\n{script}{told}", encoding="utf-8")
    return path


def test_the_pytorch_script_runs_alone(ranks):
    pytest.importorskip("torch")
    lines = programs.run(programs.python(ranks), folder=ranks.parent).stdout.splitlines()
    assert [int(line.split()[1]) for line in lines] == [*range(100)]


@pytest.mark.long
def test_a_rank_of_the_pytorch_script_may_die(ranks):
    pytest.importorskip("torch")
    # Steps take a second until the new rank is there, however long it takes to import torch.
    joined = ranks.with_name("joined")
    script = ranks.read_text().replace("import os", "import os, time")
    ranks.write_text(f"{script}        time.sleep(not os.path.exists({str(joined)!r}))\n")
    command = programs.torchrun(4, "-m", "fastgc.guard", ranks)
    assert "`torchrun --nproc-per-node 4 -m fastgc.guard ranks.py`" in TEXT
    with programs.start(command, folder=ranks.parent) as running:
        lines = [running.stdout.readline().split() for _ in range(8)]
        assert all(lines), running.stderr.read()
        dead = lines[-1][0]
        os.kill(int(dead), signal.SIGKILL)
        for line in running.stdout:
            lines.append(line.split())
            if len({pid for pid, *_ in lines}) == 5:
                joined.touch()
    assert running.returncode == 0, lines
    last = {pid: (step, weight) for pid, step, weight in lines}
    ends = [end for pid, end in last.items() if pid != dead]
    assert len(ends) == 4, "the dead rank was started again"
    assert len(set(ends)) == 1
    assert ends[0][0] == "99"


@pytest.mark.long
@pytest.mark.parametrize(
    "command", blocks("sh", "Which code, how precise, how fast?")[0].splitlines()
)
def test_which_code(command, tmp_path):
    assert "binary" in run(command, tmp_path)


def test_it_is_short():
    assert len(TEXT.splitlines()) <= 120
