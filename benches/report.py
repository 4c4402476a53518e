"""Measure the published figures, keep them in a store, and write the page of results from it.

::

    python benches/report.py              # measure all sections: forty minutes on an idle machine
    python benches/report.py WORD ...     # those with one of the words in their title or command
    python benches/report.py --list       # the sections, and which are older than their files
    python benches/report.py --write      # measure nothing, only write the pages again

The store has a file for each section in ``benches/results``: its command, the commit and the
machine that it was measured on, the date, and the tables as rows. ``benches/RESULTS.md`` holds
nothing else, and pages include its sections. Seeds are part of the commands, or of their programs.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastgc import __version__
from fastgc.kernels import threads
from fastgc.kernels.c import simd

HERE = Path(__file__).parent
STORE, PAGE = HERE / "results", HERE / "RESULTS.md"


class Section(NamedTuple):
    """A command, and the files and folders on which its figures depend."""

    command: str
    files: str


def _bench(*names: str) -> str:
    return f"pytest {' '.join(f'benches/test_{name}.py' for name in names)} --benchmark-only"


VECTORS = "csrc/decoding.c csrc/near_exact.c fastgc/coding fastgc/codes"
SUMS = "csrc/combine.inc csrc/combine.c csrc/pool.c fastgc/coding"
PRECISION = f"{VECTORS} fastgc/stability"
PAPERS = {  # whose figures their page shows with its own words
    "Halbawi": "halbawi-2 halbawi-3",
    "Charalambides": "charalambides-5",
    "Li": "li-2 li-tables li-5",
    "Ozfatura": "ozfatura-1 ozfatura-2",
    "Zhu": "zhu-2 zhu-5",
    "Ramamoorthy": "ramamoorthy-3",
}
FIGURES = {
    f"Figures of {name} et al": Section(
        f"python -m benches.papers {figures}",
        f"benches/papers/{name.lower()}.py fastgc/planning",
    )
    for name, figures in PAPERS.items()
}
# Titles and sections; what is measured, and how, stands at the head of each program.
SECTIONS = {
    "At a glance": Section("python benches/glance.py", f"{VECTORS} {SUMS} fastgc/engines"),
    "Decoding vectors": Section(_bench("decoding_vector"), VECTORS),
    "Near-exact decoding vectors": Section("python benches/near_exact.py", VECTORS),
    "Every verb of codes with many workers": Section("python benches/scale.py", VECTORS),
    "Precision": Section(
        "fastgc stability rs:root=1,rs@spread,rs,rs-clustered,binary -n 256/32 "
        "--patterns random,neighbouring --markdown",
        PRECISION,
    ),
    "Precision of shorter messages": Section(
        "fastgc stability rs,binary -n 80/12 --dtype float32,float16,bfloat16 --patterns random "
        "--markdown",
        PRECISION,
    ),
    "Calls as users make them, beside one of np.matmul": Section("python benches/calls.py", SUMS),
    "Sums beside BLAS": Section(
        "python benches/no_loss.py --quick --what decode,encode,gains", SUMS
    ),
    "What features cost": Section("python benches/features.py 10000 300000", "fastgc/coding csrc"),
    "Loops at the master": Section(_bench("hot_loop"), SUMS),
    "Rounds in which workers lie": Section(_bench("liars"), "fastgc/coding/verify.py"),
    "Vandermonde systems": Section(_bench("vandermonde"), "csrc/vandermonde.c fastgc/numerics"),
    "Lagrange kernels": Section(_bench("interpolation"), "csrc/lagrange.c fastgc/numerics"),
    "Numba": Section(_bench("numba"), "fastgc/kernels/numba"),
    "Simulations, draws included": Section(_bench("simulate"), "fastgc/planning csrc/delays.c"),
    "Steps of optimizers": Section(
        "python benches/no_loss.py --what steps --sizes 10000,1000000",
        "csrc/optimize.c csrc/optimize.inc",
    ),
    "Engines": Section(_bench("engines"), "fastgc/engines"),
    "Start-up": Section(_bench("start"), "fastgc/__init__.py fastgc/cli"),
    "PyTorch modules, beside DistributedDataParallel": Section(
        "python benches/torch_loop.py --runs 2", "fastgc/torch"
    ),
    "Deaths of ranks": Section("python benches/torch_deaths.py", "fastgc/torch"),
    "Ranks of unequal pace": Section("python benches/torch_pace.py", "fastgc/torch"),
    "The same bits for any number of ranks": Section(
        "python benches/torch_bits.py", "fastgc/torch"
    ),
    **FIGURES,
}
# Of some sections the page has only rows whose cells say so; the store has all.
EXTRACTS: dict[str, Callable[[Sequence[str]], bool]] = {
    "Every verb of codes with many workers": lambda row: (
        row[1] in ("100000", "grows") or row[0].startswith("`")
    ),
    "Sums beside BLAS": lambda row: row[0] == "packed, float64" or "×" in row[0],
    "Steps of optimizers": lambda row: "float32" in row[0],
    "Vandermonde systems": lambda row: row[1] != "1000",
    "Near-exact decoding vectors": lambda row: row[0] in ("neighbours", "random"),
}
# What no page cites is in the store alone.
UNCITED = {
    "What features cost",
    "Lagrange kernels",
    "Numba",
    "Start-up",
    *FIGURES,
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


def git(*words: str) -> str:
    """Return what git prints; an empty text if there is no git, or no checkout."""
    done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True)
    return done.stdout.strip()


def markdown(tables: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> str:
    """Return tables as text; each has a title, and rows of which the first is the head."""
    lines = []
    for title, (head, *body) in tables:
        lines += [f"{title}\n", f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in body] + [""]
    return "\n".join(lines)


def parts(text: str) -> list[Any]:
    """Take Markdown apart: texts, and tables as lists of rows, the head and its rule first."""
    found: list[Any] = []
    table = False  # whether the line before belongs to a table
    for line in text.splitlines():
        if line.startswith("|"):
            if not table:
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip()[1:-1].split("|")])
        elif found and isinstance(found[-1], str):
            found[-1] += f"\n{line}"
        elif line.strip():
            found.append(line)
        table = line.startswith("|")
    return [part.strip() if isinstance(part, str) else part for part in found]


def rule(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the line below a table's head: columns of numbers, but the first, are on the right."""
    number = re.compile(r"[-+−–?]?\d|n\^|[–?]?$")
    numbers = [[bool(number.match(cell)) for cell in column] for column in zip(*rows, strict=True)]
    return ["---", *("---:" if 2 * sum(each) > len(each) else "---" for each in numbers[1:])]


def shown(found: Sequence[Any], keeps: Callable[[Sequence[str]], bool] | None = None) -> str:
    """Put `parts` together again; of tables, only heads and the rows that `keeps` says, if any."""
    texts = []
    for part in found:
        if isinstance(part, str):
            texts.append(part)
        elif rows := [row for row in part[2:] if keeps is None or keeps(row)]:
            lines = part[0], rule(part[2:]), *rows
            texts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(texts)


def run(line: str) -> tuple[str, str]:
    """Run a section's command; return its output as Markdown, and an error or an empty text."""
    words = shlex.split(line)
    at = next(i for i, word in enumerate(words) if word in ("fastgc", "python", "pytest"))
    # -P: the installed fastgc, not that of this folder. Scripts find `measure`, -m benches.papers.
    safe = [] if words[at] == "python" else ["-P"]
    python = [sys.executable, *safe, *(["-m", words[at]] if words[at] != "python" else [])]
    command = [*python, *words[at + 1 :]]
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "tables.md"
        if words[at] == "pytest":
            command += ["-q", "--summary-md", str(written)]
        environment = {**os.environ, "COLUMNS": "120"}
        done = subprocess.run(
            command, cwd=HERE.parent, env=environment, capture_output=True, text=True
        )
        text = written.read_text(encoding="utf-8") if written.exists() else done.stdout
    if "|---" not in text.replace("| ---", "|---") and text.strip():
        text = "```text\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```"
    wrong = f"exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
    return text.strip(), wrong if done.returncode else ""


def place(title: str) -> Path:
    """Return the path of a section in the store."""
    return STORE / f"{re.sub('[^a-z0-9]+', '-', title.lower())}.json"


def keep(title: str, row: dict[str, Any]) -> None:
    """Put a section into the store; a row of a table is one line of its file."""
    text = json.dumps({**row, "found": []}, ensure_ascii=False, indent=1)
    found = []
    for part in row["found"]:
        if isinstance(part, str):
            found.append(json.dumps(part, ensure_ascii=False))
        else:
            head, rule, *rows = (json.dumps(each, ensure_ascii=False) for each in part)
            found.append(f"[{head}, {rule},\n   " + ",\n   ".join(rows) + "]")
    text = text.replace('"found": []', '"found": [\n  ' + ",\n  ".join(found) + "\n ]")
    place(title).write_text(text + "\n", encoding="utf-8")


def measure(title: str) -> str:
    """Measure a section into the store; return what went wrong, or an empty text."""
    begin, section = time.monotonic(), SECTIONS[title]
    text, wrong = run(section.command)
    if not wrong:
        sources = "--", "..", ":!results", f":!{PAGE.name}"
        changed = "+" if git("status", "--porcelain", "--untracked-files=no", *sources) else ""
        row = {
            "command": section.command,
            "commit": git("rev-parse", "--short", "HEAD") + changed,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine(),
            "seconds": round(time.monotonic() - begin),
            "found": parts(text),
        }
        keep(title, row)
    return wrong


def stored(title: str) -> dict[str, Any] | None:
    """Return what the store has of a section."""
    path = place(title)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def newer(section: Section, row: dict[str, Any]) -> bool:
    """Whether a file that the section depends on has changed since it was measured."""
    since = f"{row['commit'].rstrip('+')}..HEAD"
    return bool(
        git("log", "-1", "--format=%h", since, "--", *(f"../{f}" for f in section.files.split()))
    )


def write() -> None:
    """Write the page of results."""
    rows = {title: stored(title) for title in SECTIONS}
    machines = list(dict.fromkeys(row["machine"] for row in rows.values() if row))
    page = [
        "# Results",
        "Written by `python benches/report.py --write` from the rows in `benches/results`. Each "
        "section says with which command, at which commit, when, in how long and on which machine "
        "it was measured. Times compare within a section.",
        "\n".join(f"{chr(65 + i)}. {name}" for i, name in enumerate(machines)),
    ]
    for title, row in rows.items():
        if row is None or title in UNCITED:
            continue
        which = chr(65 + machines.index(row["machine"]))
        page += [
            f"## {title}",
            f"`{row['command']}`: {row['date']}, commit {row['commit']}, machine {which}.",
            shown(row["found"], EXTRACTS.get(title)),
        ]
    alone = [
        f"- [{title}](results/{place(title).name}), `{row['command']}`: {row['date']}"
        for title, row in rows.items()
        if row and title in UNCITED
    ]
    page += ["## In the store alone", "\n".join(alone)]
    PAGE.write_text("\n\n".join(page) + "\n", encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    """Run the sections asked for; return the exit status, 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("word", nargs="*", help="in titles or commands of sections (default: all)")
    parser.add_argument("--list", action="store_true", help="list sections, and what is old")
    parser.add_argument("--write", action="store_true", help="only write the page of results")
    given = parser.parse_args(words)
    chosen = {
        title: section
        for title, section in SECTIONS.items()
        if not given.word
        or any(word.lower() in f"{title} {section.command}".lower() for word in given.word)
    }
    if not chosen:
        parser.error("no section has these words in its title or command: see --list")
    failed = 0
    for number, (title, section) in enumerate(chosen.items(), 1):
        row = stored(title)
        if given.list:
            state = "not measured" if row is None else f"{row['date']}, {row['seconds']} s"
            old = ", older than its files" if row and newer(section, row) else ""
            print(f"{title}: {section.command} ({state}{old})")
        elif not given.write:
            print(f"{number}/{len(chosen)} {section.command}", file=sys.stderr, flush=True)
            if wrong := measure(title):
                failed += 1
                print(f"    failed: {wrong}", file=sys.stderr, flush=True)
    if not given.list:
        write()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
