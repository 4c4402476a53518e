"""Compare two runs of the benchmarks in time and precision, and fail if anything got worse.

Run as ``python benches/compare.py OLD.json NEW.json``. The files are written by pytest-benchmark:
with ``--benchmark-json FILE``, or into ``.benchmarks/`` with ``--benchmark-autosave``. The exit
status is 0 if nothing got worse, 1 if something did, and 2 if the files do not tell.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console

from fastgc._base.progress import markdown_table, rich_table
from fastgc.training.history import json_ready

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Run(NamedTuple):
    """One file: its commit and machine, and each benchmark's median time and errors by name."""

    path: Path
    commit: str
    machine: str
    benchmarks: dict[str, dict[str, float]]

    def __str__(self) -> str:
        return f"{self.path}: {self.commit}, {self.machine}"


class Change(NamedTuple):
    """A figure, before and after; `new` is None if it is no longer measured."""

    figure: str
    old: float
    new: float | None
    ratio: float
    worse: bool


def read(path: Path) -> Run:
    """Read a file saved by pytest-benchmark."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON, or not all of it: {error}") from None
    try:
        return Run(
            path,
            _commit(saved["commit_info"]),
            _machine(saved["machine_info"]),
            {bench["fullname"]: _figures(bench) for bench in saved["benchmarks"]},
        )
    except (KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} was not written by pytest-benchmark") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _commit(info: dict[str, Any]) -> str:
    return f"commit {info['id'][:10]}{' with changes' if info['dirty'] else ''}"


def _machine(info: dict[str, Any]) -> str:
    cpu = info.get("cpu", {})
    model = cpu.get("brand_raw") or info["processor"] or info["machine"]
    return f"{info['node']}, {cpu.get('count', '?')} × {model}"


def _figures(bench: dict[str, Any]) -> dict[str, float]:
    found = {"time": bench["stats"]["median"]}
    for key, value in bench["extra_info"].items():
        if key == "error" or key.endswith("_error"):
            found[key] = value
    for key, value in found.items():
        if type(value) not in (int, float):
            raise ValueError(f"{bench['fullname']}: {key} is not a number but {value!r}")
    if not 0 < found["time"] < math.inf:
        raise ValueError(f"{bench['fullname']} took {found['time']} s")
    return found


def error_ratio(old: float, new: float | None, floor: float) -> float:
    """Return how many times larger an error has become; Inf if it is no longer a finite number."""
    if new is None:
        return math.inf
    if not math.isfinite(old):
        return 0.0 if math.isfinite(new) else 1.0
    if not math.isfinite(new):
        return math.inf
    return max(abs(new), floor) / max(abs(old), floor)


def changes(
    old: dict[str, float], new: dict[str, float], time: float, error: float, floor: float
) -> list[Change]:
    """Return the change of each figure of a benchmark, the time first."""
    found = []
    for figure, before in old.items():
        after = new.get(figure)
        if figure == "time":
            ratio, limit = new["time"] / before, time
        else:
            ratio, limit = error_ratio(before, after, floor), error
        found.append(Change(figure, before, after, ratio, not ratio <= limit))  # NaN is worse
    return found


def rank(found: list[Change]) -> tuple[bool, float]:
    """Return a sort key of a benchmark: larger is worse."""
    return any(c.worse for c in found), max(c.ratio for c in found)


def row(name: str, found: list[Change]) -> list[str]:
    """Return a row of the table, with the error that grew most."""
    time, *errors = found
    cells = [name, *_cells(time)]
    if not errors:
        return [*cells, "–", "–", "–"]
    return [*cells, *_cells(max(errors, key=lambda change: change.ratio))]


def sentence(name: str, change: Change) -> str:
    """Describe a change for the worse."""
    old, new, ratio = _cells(change)
    unit = " µs" if change.figure == "time" else ""
    if change.new is None:
        return f"{name}: {change.figure} no longer measured, was {old}"
    times = f" ({ratio} times)" if math.isfinite(change.ratio) else ""
    return f"{name}: {change.figure} {new}{unit}, was {old}{unit}{times}"


def _cells(change: Change) -> tuple[str, str, str]:
    old, new = (
        "–" if v is None else _microseconds(v) if change.figure == "time" else f"{v:.0e}"
        for v in (change.old, change.new)
    )
    return old, new, f"{change.ratio:.3g}"


def _microseconds(seconds: float) -> str:
    return f"{float(f'{1e6 * seconds:.3g}'):.10g}"


@app.command()
def compare(
    old_file: Annotated[Path, typer.Argument(metavar="OLD", help="The run before.")],
    new_file: Annotated[Path, typer.Argument(metavar="NEW", help="The run after.")],
    time: Annotated[float, typer.Option(help="Times as long as before is still good.")] = 1.3,
    error: Annotated[float, typer.Option(help="Times the error before is still good.")] = 3.0,
    error_floor: Annotated[float, typer.Option(help="Smaller errors count as this.")] = 1e-15,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two files of pytest-benchmark in median time and in every error; fail if worse."""
    try:
        if not error_floor > 0:
            raise ValueError(f"--error-floor must be positive, not {error_floor}")
        old, new = read(old_file), read(new_file)
        common = {
            name: changes(figures, new.benchmarks[name], time, error, error_floor)
            for name, figures in old.benchmarks.items()
            if name in new.benchmarks
        }
        if not common:
            raise ValueError(
                f"{old_file} with {len(old.benchmarks)} benchmarks and {new_file} with "
                f"{len(new.benchmarks)} have none in common"
            )
    except (ValueError, OSError) as e:
        typer.echo(f"compare: {e}", err=True)
        raise typer.Exit(2) from None
    if old.machine != new.machine:
        typer.echo("compare: warning: measured on two machines, whose times may differ", err=True)

    common = dict(sorted(common.items(), key=lambda item: rank(item[1]), reverse=True))
    worse = [(name, change) for name, found in common.items() for change in found if change.worse]
    removed = [name for name in old.benchmarks if name not in common]
    added = [name for name in new.benchmarks if name not in common]
    if as_json:
        report = {
            "runs": {
                age: {"file": str(run.path), "commit": run.commit, "machine": run.machine}
                for age, run in (("old", old), ("new", new))
            },
            "limits": {"time": time, "error": error, "error_floor": error_floor},
            "benchmarks": {name: [c._asdict() for c in found] for name, found in common.items()},
            "removed": removed,
            "added": added,
            "worse": [sentence(*item) for item in worse],
        }
        typer.echo(json.dumps(json_ready(report), allow_nan=False))
    else:
        _print(old, new, common, markdown)
        lines = [f"no longer there: {name}" for name in removed]
        lines += [f"new: {name}" for name in added]
        lines += [f"worse: {sentence(*item)}" for item in worse]
        lines.append(
            f"benchmarks compared: {len(common)}, worse: {len(dict(worse))} "
            f"(over {time:g} times as long, or {error:g} times the error)"
        )
        typer.echo("\n".join(f"- {line}" if markdown else line for line in lines))
    raise typer.Exit(int(bool(worse)))


def _print(old: Run, new: Run, common: dict[str, list[Change]], markdown: bool) -> None:
    head = ["benchmark", "µs, old", "new", "ratio", "error, old", "new", "ratio"]
    rows = [row(name, found) for name, found in common.items()]
    title = f"old: {old}\nnew: {new}"
    if markdown:
        for cells in rows:
            cells[0] = f"`{cells[0]}`".replace("|", r"\|")
        typer.echo(markdown_table(title.replace("\n", "  \n"), head, rows) + "\n")
        return
    typer.echo(title)
    table = rich_table("worst first", head, rows)
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"  # names end in parameters
    for shown, found in zip(table.rows, common.values(), strict=True):
        shown.style = "red" if rank(found)[0] else None
    Console(markup=False, emoji=False).print(table)


if __name__ == "__main__":
    app()
