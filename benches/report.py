"""Measure all results anew, for ``benches/RESULTS.md``, and draw pictures on request.

Run as ``python benches/report.py``, on an idle machine. Each table is headed by the command that
makes it alone. ``python benches/report.py WORD ...`` runs only the sections with one of the words
in their title or command, and prints them. ``--out FILE`` writes to a file in either case,
``--pictures FOLDER`` draws ``scaling.png`` and ``roofline.png`` there, ``--list`` lists sections.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastgc import __version__, kernels, plotting
from fastgc.kernels import threads
from fastgc.plotting.panels import COLOURS, Line, Panel, new_figure, percent_axis, plain_frame

HERE = Path(__file__).parent

Table = tuple[str, Sequence[Sequence[str]]]  # a title, and rows; the first row is the head


class Section(NamedTuple):
    """The output of one command, with a note."""

    title: str
    command: str
    note: str = ""


def _bench(title: str, *names: str, note: str = "") -> Section:
    files = " ".join(f"benches/test_{name}.py" for name in names)
    return Section(title, f"pytest {files} --benchmark-only", note)


SECTIONS = (
    Section(
        "At a glance",
        "python benches/glance.py",
        "The README's table. Calls take turns; the others find their matrices made.",
    ),
    Section(
        "Codes side by side",
        "fastgc codes -n 24 -s 5 --markdown",
        "An even load, at which LCC-MMC-2 exists, too.",
    ),
    Section(
        "Codes and loads, ranked for a delay model",
        "fastgc plan -n 40 --memory 10 --cost 0.0002 --markdown",
    ),
    Section(
        "Codes and loads, ranked for workers of this machine, and measured",
        "fastgc plan -n 12 --memory 4 --live 200 --markdown",
    ),
    Section(
        "Precision",
        "fastgc stability --markdown",
        "LU is the O(f³) solve.",
    ),
    Section(
        "Binary against complex, at equal load",
        "fastgc stability rs,rs-clustered,binary,fractional --sizes 256/32,256/128,1000/100 "
        "--equal load --markdown",
        "Each code tolerates as many stragglers as it can at no larger a load than rs, s is their "
        "number, and so many are silent.",
    ),
    Section(
        "Precision, stragglers chosen by an adversary",
        "fastgc stability rs@spread,rs,rs-clustered,binary "
        "--sizes 80/12,256/32,1000/100 --patterns random,adversarial --trials 100 --markdown",
        "Clusters decode from the survivors whose roots are spread best, which an adversary can "
        "prevent.",
    ),
    Section(
        "Precision of shorter messages",
        "fastgc stability rs,binary,lcc --sizes 80/12 --dtype float64,float32,float16,bfloat16 "
        "--markdown",
    ),
    _bench("Precision, and what trust() says of it", "stability"),
    _bench("Decoding vectors, against n", "scaling"),
    _bench("Decoding vectors, by method", "decoding_vector"),
    _bench(
        "Decoding vectors, by the method that is chosen",
        "auto",
        note='Where exact vectors lose more than 1e-10, "auto" also computes a near-exact one.',
    ),
    Section(
        "Decoding vectors of every code",
        "python benches/vectors_by_code.py",
        "In clusters most have more messages than they need when the last one is ready, and decode "
        "from those that are spread best. Where that vector is still too long, as of some sets at "
        "n = 4096, a near-exact one is computed beside it: times are means over sets.",
    ),
    Section(
        "Every verb of codes with many workers",
        "python benches/scale.py",
        "Codes that tolerate 5 stragglers, at a load of 6, or 4 (lcc); messages of 4 numbers. A "
        "round receives all messages; three are simulated. What solves least squares of n by n "
        "numbers for each set (linear), or interpolates at any points (lcc, O(n²)), is not "
        "for 100,000 workers. Commands are timed from the start of their process; one that was "
        "ended says how far it was after two seconds, where a terminal shows a bar that moves.",
    ),
    Section(
        "Decoding vectors of codes by graphs",
        "python benches/graphs.py",
        "Random graphs, of which random workers are lost. Dense least squares have a column for "
        "each block, not for each partition.",
    ),
    Section(
        "Partial work, on request",
        "python benches/partial_work.py",
        "Mean time of a round over that of UC-MMC, in brackets messages for each worker. Where "
        "milliseconds are named, the master's link is busy so long with each message, and asking "
        "takes a round trip of as much.",
    ),
    _bench("Decoding vectors of many rounds", "batch"),
    Section(
        "Calls as users make them, beside one of np.matmul",
        "python benches/calls.py",
        "NumPy is given the coefficients, which `decode` computes, and checks no number: the "
        "vector of 68 of 80 messages takes 0.3 µs in C.",
    ),
    _bench("Calls, and sets that come again", "overhead"),
    _bench("Streams of arrivals", "streaming"),
    _bench("Combinations, against memory", "roofline"),
    _bench("Encoding and decoding", "combine", "encode"),
    _bench("Loops at the master", "hot_loop"),
    Section(
        "Whole training loops, compiled and not",
        "python benches/jitted_loop.py",
        "A round computes all partial gradients, encodes n messages, draws survivors, decodes and "
        "takes a step, in one thread; the fastest of 21 turns.",
    ),
    _bench("Vandermonde systems", "vandermonde"),
    _bench("Lagrange kernels", "interpolation"),
    _bench("Decoding Lagrange codes, by stage", "lagrange_decoding"),
    _bench("Numba", "numba"),
    _bench("Simulated rounds", "completion"),
    _bench(
        "Simulations, draws included",
        "simulate",
        note="The lines of NumPy do not count messages and computations; for binary, whose rule "
        "takes more than a few lines, they are those of an MDS code of n and s.",
    ),
    _bench(
        "Steps of optimizers",
        "optimizers",
        note="Plain SGD is bound by memory: it moves three vectors where NumPy's expression moves "
        "five. PyTorch's fused steps use OpenMP's threads, which spin while they wait.",
    ),
    _bench("Rounds of G-CADA", "adaptive"),
    _bench("Rounds in which workers lie", "liars"),
    _bench(
        "Engines",
        "engines",
        note="Local processes share memory, so that a bare loop costs next to nothing, and what "
        "remains is Python's time in 17 processes. What lies in Ray's object store is not read by "
        "being moved: with a million elements its bare loop never looks at what came.",
    ),
    _bench("Start-up", "start", "compile"),
    Section(
        "Adaptive methods",
        "fastgc train --method gcada -n 12 --compare cada,adam,sgd --loss 0.1 --rounds 300 "
        "--delays exponential:mean=0.005",
        "Communication counts parameters sent and messages used, computation the gradients of "
        "single samples that were asked for (Zhu et al., eqs. (5) and (6)). Workers in groups have "
        "more data each here; with `--batch 20` all draw as many samples.",
    ),
    Section(
        "Codes in the groups of G-CADA",
        "fastgc train --method gcada -n 12 --groups 3 -k 12 --code repetition "
        "--compare binary,rs,uc-mmc:load=4,uncoded --loss 0.1 --engine simulated "
        "--delays shifted-exponential:shift=0.001,rate=1000",
        "Half of the time of a computation is the same for everyone here; with purely exponential "
        "times (`--delays exponential:mean=0.001,per=computation`) repetition is ahead of all but "
        "UC-MMC.",
    ),
    Section(
        "Two hundred local workers",
        "fastgc train --code rs:clusters=auto -n 200 -s 20 --rounds 50",
    ),
    Section(
        "Sixty-three workers of MPI",
        "mpiexec -n 64 fastgc train --engine mpi -n 63 -s 6 --rounds 50",
    ),
    Section(
        "Workers of unequal speed",
        "python benches/assignments.py",
        note="The unit of the simulated times is that of a partition on a worker of speed 1.",
    ),
    Section(
        "Calls as users make them, beside BLAS and PyTorch",
        "python benches/no_loss.py",
        "NumPy and PyTorch are given the rows in one array, and the coefficients: nothing is "
        "computed, looked up or checked.",
    ),
    Section(
        "PyTorch modules, beside DistributedDataParallel",
        "python benches/torch_loop.py",
        "Four processes of one thread each, a multilayer perceptron, SGD with momentum; asleep is "
        "a random one for 200 ms before each step, dead one from the third step on.",
    ),
    Section(
        "Deaths of ranks, and a step without any beside DistributedDataParallel",
        "python benches/torch_deaths.py",
        "Six ranks of one thread each; `--steps 1000 --deaths 100` takes minutes. Deaths come one "
        "at a time, two at once, and a second one while the others regroup. Errors are relative to "
        "the gradient of the whole batch. The time to the new sum begins when the process is "
        "killed: the kernel takes 20 ms of it before it closes the sockets, by which others know.",
    ),
    Section(
        "Audits of ranks, and ranks that err",
        "python benches/torch_audit.py",
        "Four ranks of one thread each, on fewer cores. With reactive redundancy an audited step "
        "computes twice as much; a fault begins at random between audits, which come every fifth "
        "step here. With proactive redundancy each step computes twice as much, and fingerprints "
        "are compared; a fault is one bit of the largest number of a layer in one step, of "
        "which lower bits of the fraction change the gradient by less than what counts, 1e-5.",
    ),
    Section(
        "Near-exact decoding vectors",
        "python benches/near_exact.py",
        note="Errors are those of decoded gradients, messages being of float64; of exact vectors "
        "they are computed from their lengths. The second column of times is lstsq's, which is "
        "given the problem and knows no bound of the error.",
    ),
    Section(
        "Orders of Vandermonde systems",
        "python benches/vandermonde_orders.py",
        note="Errors against exact fractions, of 60 nodes: the largest relative error, and in "
        "brackets the largest error over the largest number.",
    ),
    Section(
        "The experiment of Li et al., with delays that are made",
        "mpiexec -n 51 python benches/li_experiment.py",
        "Seconds of all rounds, beside those that `simulate` says and the paper's. The ranks share "
        "this machine's cores, which adds a few milliseconds to each message. "
        "`--features 8000 --points 100` is the paper's size, for a core for each rank.",
    ),
    Section("The papers' figures", "fastgc reproduce all --markdown"),
)


def machine() -> str:
    """Describe the versions and the machine that are measured."""
    simd = "no extension"
    if "c" in kernels.backends():
        from fastgc.kernels.c import simd as level

        simd = level()
    others = []
    for name in ("numba", "scipy", "torch", "mpi4py", "ray"):
        try:
            others.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return (
        f"fastgc {__version__}, {_processor()}, {os.cpu_count()} cores, "
        f"{threads.get_num_threads()} threads, SIMD {simd}, "
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


def markdown(tables: Sequence[Table]) -> str:
    """Return tables as text."""
    lines = []
    for title, (head, *body) in tables:
        lines += [f"{title}\n", f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in body] + [""]
    return "\n".join(lines)


def chosen(words: Iterable[str]) -> list[Section]:
    """Return the sections that contain any of the words; without words, all sections.

    Raises
    ------
    ValueError
        If no section contains a word.
    """
    words = [word.lower() for word in words]
    found = {
        word: [s for s in SECTIONS if word in f"{s.title} {s.command}".lower()] for word in words
    }
    if missing := [word for word, sections in found.items() if not sections]:
        raise ValueError(f"no section has {missing[0]!r} in its title or command: see --list")
    return [s for s in SECTIONS if not words or any(s in sections for sections in found.values())]


def _with_this_python(words: list[str]) -> list[str]:
    """Return a command of Python run by this interpreter, with its installed packages."""
    name, *rest = words
    python = [sys.executable, "-P"]  # does not import from the current folder
    return [*python, *rest] if name == "python" else [*python, "-m", *words]


def run(section: Section, pictures: Path | None) -> tuple[str, str]:
    """Run a section's command; return its output as Markdown, and an error or an empty text."""
    name, *words = shlex.split(section.command)
    command = _with_this_python([name, *words])
    if name == "mpiexec":
        at = next(i for i, word in enumerate(words) if word in ("fastgc", "python"))
        beside = Path(sys.executable).with_name(name)
        mpiexec = str(beside) if beside.exists() else name
        command = [mpiexec, *words[:at], *_with_this_python(words[at:])]
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "tables.md"
        if name == "pytest":
            command += ["-q", "--summary-md", str(written)]
            if pictures is not None:
                command += ["--pictures", str(pictures)]
        environment = {**os.environ, "COLUMNS": "120"}
        try:
            done = subprocess.run(
                command, cwd=HERE.parent, env=environment, capture_output=True, text=True
            )
        except OSError as error:
            return "", str(error)
        shown = done.stdout if name != "pytest" else ""
        if written.exists():
            shown = written.read_text(encoding="utf-8")
    if "| ---" not in shown and "|---" not in shown and shown.strip():
        lines = "\n".join(line.rstrip() for line in shown.splitlines()).strip("\n")
        shown = f"```text\n{lines}\n```"
    failed = f"exit status {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}"
    return shown.strip(), failed if done.returncode else "" if shown.strip() else "it shows nothing"


def page(about: str, results: Iterable[tuple[Section, str]]) -> str:
    """Return the whole page of results."""
    parts = ["# Results", about]
    for section, shown in results:
        parts += [f"## {section.title}", f"```sh\n{section.command}\n```", shown, section.note]
    return "\n\n".join(filter(None, parts)) + "\n"


def draw(directory: Path, done: Mapping[str, Any]) -> None:
    """Draw times against n, and shares of memory's bandwidth, as these benchmarks measured them.

    Parameters
    ----------
    directory : Path
    done : mapping
        pytest-benchmark's results by name.
    """
    from tables import roofline, scaling

    directory.mkdir(parents=True, exist_ok=True)
    if found := scaling(done):
        _draw_scaling(found, directory / "scaling.png")
    if shares := roofline(done):
        named = {
            f"{bench.extra_info['roofline']}, {bench.extra_info['threads']} thread"
            f"{'s' * (bench.extra_info['threads'] > 1)}": share
            for bench, share in shares.items()
        }
        _draw_roofline(dict(sorted(named.items())), directory / "roofline.png")


def _draw_scaling(found: Mapping[str, tuple[Any, Any, float]], path: Path) -> None:
    lines = [
        Line(f"{method}: n^{exponent:.2f}", sizes, times)
        for method, (sizes, times, exponent) in found.items()
    ]
    title = "Decoding vector, s = n/8, best-spread stragglers"
    panel = Panel(title, "n", "time (s)", lines, log_x=True, log_y=True)
    figure = plotting.panel_figure([panel])
    figure.axes[0].legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    plotting.save(figure, path)


def _draw_roofline(shares: Mapping[str, float], path: Path) -> None:
    figure = new_figure(7, 1 + 0.25 * len(shares))
    ax = figure.add_subplot()
    kinds = list(dict.fromkeys(name.rsplit(", ", 1)[1] for name in shares))
    colour = dict(zip(kinds, cycle(COLOURS), strict=False))
    bars = ax.barh(
        list(shares),
        list(shares.values()),
        color=[colour[name.rsplit(", ", 1)[1]] for name in shares],
    )
    ax.bar_label(bars, [f"{share:.0%}" for share in shares.values()], padding=3, fontsize="small")
    ax.axvline(1, color="black", linewidth=0.8)
    ax.margins(y=0.01)
    ax.invert_yaxis()
    ax.set_xlim(right=1.1 * max(1, *shares.values()))
    ax.set_xlabel("of the measured read bandwidth")
    percent_axis(ax.xaxis)
    plain_frame(ax)
    plotting.save(figure, path)


def main(words: Sequence[str] | None = None) -> int:
    """Run the sections asked for; return the exit status, 1 if any failed."""
    parser = argparse.ArgumentParser(prog="python benches/report.py", description=__doc__)
    parser.add_argument("word", nargs="*", help="run sections that have any of these in them only")
    parser.add_argument("--out", type=Path, help="write to this file")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw pictures there")
    parser.add_argument("--list", action="store_true", help="print titles and commands, run none")
    given = parser.parse_args(words)
    try:
        sections = chosen(given.word)
        if given.pictures is not None:
            given.pictures.mkdir(parents=True, exist_ok=True)
            plotting.check_path(given.pictures / "scaling.png")
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    if given.list:
        print("\n".join(f"{section.title}: {section.command}" for section in sections))
        return 0
    out = given.out or (None if given.word else HERE / "RESULTS.md")
    started, failed, results = time.time(), 0, []
    for number, section in enumerate(sections, 1):
        print(f"{number}/{len(sections)} {section.command}", file=sys.stderr, flush=True)
        began = time.monotonic()
        shown, wrong = run(section, given.pictures and given.pictures.resolve())
        print(f"    {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        if wrong:
            failed += 1
            print(f"    failed: {wrong}", file=sys.stderr, flush=True)
            shown = shown or "Failed."
        results.append((section, shown))
    date = time.strftime("%Y-%m-%d", time.gmtime(started))
    about = (
        f"Written by `{shlex.join(['python', 'benches/report.py', *given.word])}` on {date}. "
        f"Measured on: {machine()}.\n\n"
        "Each table is headed by the command that makes just that one, in a checkout where "
        '`pip install ".[test,bench]"` was run; times compare only on one idle machine. A form of '
        "other libraries is timed where the library is installed."
    )
    text = page(about, results)
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, encoding="utf-8")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
