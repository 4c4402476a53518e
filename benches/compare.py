"""What became slower: ``python -m benches.compare v0.3.0``, or of two files of pytest-benchmark.

Each release's times are those of the store at its tag. With one name, the store of this checkout is
compared with the one at that commit; with two, the second with the first. Names that end in .json
are files that ``pytest --benchmark-json`` wrote. Times that differ by more than ``--limit`` are
printed, the worst first. Both must be of one machine, idle.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

STORE = Path(__file__).parent / "results"
SCALES = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
FIGURE = re.compile(r"\d[.e]|\d [nµm]?s\b")  # what is measured, and no label
TIME = re.compile(r"(?<![\w.+-])(\d[\d.]*(?:e-?\d+)?) (ns|µs|ms|s)\b")


def times(section: str, found: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield name and seconds of each time, whose unit is in the cell, or ends its column's head."""
    for head, _, *rows in (part for part in found if not isinstance(part, str)):
        units = [re.search(r"(?:^|[ ,])(ns|µs|ms|(?<=, )s)$", title) for title in head]
        for row in rows:
            labels = takewhile(lambda cell: not FIGURE.search(cell), row)
            name = " | ".join((section, *labels))
            for at, (title, cell, unit) in enumerate(zip(head, row, units, strict=False)):
                note = re.search("[a-z]{3}", cell)
                read = [] if note else TIME.findall(f"{cell} {unit[1]}" if unit else cell)
                for part, (number, each) in enumerate(read):
                    yield f"{name} | {title} ({at}.{part})", float(number) * SCALES[each]


def store(name: str | None) -> dict[str, float]:
    """Return all times of a store, or of a file, by name."""
    if name is not None and name.endswith(".json"):
        benches = json.loads(Path(name).read_text(encoding="utf-8"))["benchmarks"]
        return {bench["fullname"]: bench["stats"]["median"] for bench in benches}
    if name is None:
        texts = {path.name: path.read_text(encoding="utf-8") for path in STORE.glob("*.json")}
    else:
        git = partial(subprocess.check_output, cwd=STORE, text=True)
        files = git(["git", "ls-tree", "--name-only", name, "./"]).split()
        texts = {file: git(["git", "show", f"{name}:./{file}"]) for file in files}
    found = {file.removesuffix(".json"): json.loads(text)["found"] for file, text in texts.items()}
    return dict(each for section, tables in found.items() for each in times(section, tables))


def main(words: Sequence[str] | None = None) -> int:
    """Print what is slower, and faster; return 1 if anything is slower."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", help="a tag, a commit or a file")
    parser.add_argument("new", nargs="?", help="the same (default: the store of this checkout)")
    parser.add_argument("--limit", type=float, default=1.1, help="ratio that counts (1.1)")
    given = parser.parse_args(words)
    try:
        old, new = store(given.old), store(given.new)
    except (OSError, subprocess.CalledProcessError) as error:
        parser.error(str(error))
    ratios = sorted((new[name] / old[name], name) for name in old.keys() & new.keys())[::-1]
    slower = [each for each in ratios if each[0] > given.limit]
    faster = [each for each in ratios if each[0] < 1 / given.limit]
    for ratio, name in slower + faster:
        print(f"{ratio:6.2f}  {old[name]:.3g} s  {new[name]:.3g} s  {name}")
    alone = f"{len(old.keys() ^ new.keys())} are only in one of them"
    print(f"{len(ratios)} times: {len(slower)} slower, {len(faster)} faster; {alone}")
    return bool(slower)


if __name__ == "__main__":
    sys.exit(main())
