"""Measure results again: ``python benches/report.py > benches/RESULTS.md``, on an idle machine.

It takes hours. ``python benches/report.py WORD ...`` runs only the sections with one of the words
in their title or command; ``--list`` lists sections. Each table is headed by the command that makes
it alone.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fastgc import __version__
from fastgc.kernels import threads
from fastgc.kernels.c import simd

HERE = Path(__file__).parent


def _bench(*names: str) -> str:
    return f"pytest {' '.join(f'benches/test_{name}.py' for name in names)} --benchmark-only"


# Titles and commands; what is measured, and how, stands at the head of each file.
SECTIONS = {
    "At a glance": "python benches/glance.py",
    "Codes side by side": "fastgc codes -n 24 -s 5 --markdown",
    "Codes and loads, ranked for a delay model": (
        "fastgc plan -n 40 --memory 10 --cost 0.0002 --markdown"
    ),
    "Precision": "fastgc stability --markdown",
    "Binary against complex, at equal load": (
        "fastgc stability rs,rs-clustered,binary,fractional -n 256/32,256/128,1000/100 "
        "--equal load --markdown"
    ),
    "Precision of shorter messages": (
        "fastgc stability rs,binary,lcc -n 80/12 --dtype float64,float32,float16,bfloat16 "
        "--markdown"
    ),
    "Precision, and what trust() says of it": _bench("stability"),
    "Decoding vectors, against n": _bench("scaling"),
    "Decoding vectors, by method": _bench("decoding_vector"),
    "Near-exact decoding vectors": "python benches/near_exact.py",
    "Decoding vectors of every code": "python benches/vectors_by_code.py",
    "Decoding vectors of codes by graphs": "python benches/graphs.py",
    "Every verb of codes with many workers": "python benches/scale.py",
    "Calls as users make them, beside one of np.matmul": "python benches/calls.py",
    "Calls as users make them, beside BLAS and PyTorch": (
        "python benches/no_loss.py --rows 4,68 --sizes 1000,100000,1000000"
    ),
    "Loops at the master": _bench("hot_loop"),
    "Whole training loops, compiled and not": "python benches/jitted_loop.py",
    "Vandermonde systems": _bench("vandermonde"),
    "Orders of Vandermonde systems": "python benches/vandermonde_orders.py",
    "Lagrange kernels": _bench("interpolation"),
    "Decoding Lagrange codes, by stage": _bench("lagrange_decoding"),
    "Numba": _bench("numba"),
    "Simulations, draws included": _bench("simulate"),
    "Steps of optimizers": _bench("optimizers"),
    "Rounds of G-CADA": _bench("adaptive"),
    "Rounds in which workers lie": _bench("liars"),
    "Engines": _bench("engines"),
    "Start-up": _bench("start", "compile"),
    "Adaptive methods": (
        "fastgc train --method gcada -n 12 --compare cada,adam,sgd --loss 0.1 --rounds 300 "
        "--delays exponential:mean=0.005"
    ),
    "Two hundred local workers": "fastgc train rs:clusters=auto -n 200 -s 20 --rounds 50",
    "Sixty-three workers of MPI": (
        "mpiexec -n 64 fastgc train --engine mpi -n 63 -s 6 --rounds 50"
    ),
    "Workers of unequal speed": "python benches/assignments.py",
    "PyTorch modules, beside DistributedDataParallel": "python benches/torch_loop.py",
    "Deaths of ranks": "python benches/torch_deaths.py",
    "Ranks of unequal pace": "python benches/torch_pace.py",
    "The same bits for any number of ranks": "python benches/torch_bits.py",
    "The papers' figures": "python -m benches.papers",
}


def machine() -> str:
    """Describe the versions and the machine that are measured."""
    others = []
    for name in ("numba", "scipy", "torch", "mpi4py", "ray"):
        try:
            others.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return (
        f"fastgc {__version__}, {_processor()}, {os.cpu_count()} cores, "
        f"{threads.get_num_threads()} threads, SIMD {simd()}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, {', '.join(others)}"
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def markdown(tables: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> str:
    """Return tables as text; each has a title, and rows of which the first is the head."""
    lines = []
    for title, (head, *body) in tables:
        lines += [f"{title}\n", f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in body] + [""]
    return "\n".join(lines)


def run(line: str) -> tuple[str, str]:
    """Run a section's command; return its output as Markdown, and an error or an empty text."""
    words = shlex.split(line)
    at = next(i for i, word in enumerate(words) if word in ("fastgc", "python", "pytest"))
    # -P: the installed fastgc, not that of this folder, where `-m benches.papers` is found
    safe = [] if words[at + 1 : at + 2] == ["-m"] else ["-P"]
    python = [sys.executable, *safe, *(["-m", words[at]] if words[at] != "python" else [])]
    beside = [str(Path(sys.executable).with_name(word)) for word in words[: min(at, 1)]]
    command = [*beside, *words[1:at], *python, *words[at + 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "tables.md"
        if words[at] == "pytest":
            command += ["-q", "--summary-md", str(written)]
        environment = {**os.environ, "COLUMNS": "120"}
        done = subprocess.run(
            command, cwd=HERE.parent, env=environment, capture_output=True, text=True
        )
        shown = written.read_text(encoding="utf-8") if written.exists() else done.stdout
    if "|---" not in shown.replace("| ---", "|---") and shown.strip():
        shown = "```text\n" + "\n".join(line.rstrip() for line in shown.splitlines()) + "\n```"
    wrong = f"exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
    return shown.strip(), wrong if done.returncode else ""


def main(words: Sequence[str]) -> int:
    """Run the sections asked for; return the exit status, 1 if any failed."""
    wanted = [word.lower() for word in words if word != "--list"]
    sections = [
        pair
        for pair in SECTIONS.items()
        if not wanted or any(word in " ".join(pair).lower() for word in wanted)
    ]
    if not sections:
        print("no section has these words in its title or command: see --list", file=sys.stderr)
        return 2
    if "--list" in words:
        print("\n".join(": ".join(pair) for pair in sections))
        return 0
    date, failed = time.strftime("%Y-%m-%d", time.gmtime()), 0
    parts = [
        "# Results",
        f"Written by `{shlex.join(['python', 'benches/report.py', *words])}` on {date}. Measured "
        f"on: {machine()}.\n\nEach table is headed by the command that makes just that one, in a "
        'checkout where `pip install ".[test,bench]"` was run; times compare only on one idle '
        "machine.",
    ]
    for number, (title, line) in enumerate(sections, 1):
        print(f"{number}/{len(sections)} {line}", file=sys.stderr, flush=True)
        shown, wrong = run(line)
        if wrong:
            failed += 1
            print(f"    failed: {wrong}", file=sys.stderr, flush=True)
        parts += [f"## {title}", f"```sh\n{line}\n```", shown]
    print("\n\n".join(parts))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
