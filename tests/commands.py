"""Call commands in this process, as a user does."""

import json
from pathlib import Path

from typer.testing import CliRunner

from fastgc.cli import app

RECORDED = Path(__file__).with_name("recorded.csv")  # 200 rounds of 12 workers of LocalCluster
COST = 8.677933389359775e-05  # seconds of each time that one partition takes
# A small call of each command that prints tables, without sizes.
SMALL = {
    "train": ("--rounds", "2", "--engine", "simulated"),
    "codes": ("--trials", "2"),
    "plan": ("--rounds", "20"),
    "simulate": ("--rounds", "20"),
    "sequential": ("--rounds", "40"),
    "stability": ("--trials", "2", "--patterns", "random"),
}


def run(*arguments, **options):
    return CliRunner().invoke(app, list(map(str, arguments)), **options)


def done(*arguments, **options):
    """Return what a command does that ends well."""
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments, status=2):
    """Return the line of error with which a command ends before it prints a result."""
    result = run(*arguments)
    assert result.exit_code == status, result.output
    *said, line = result.stderr.splitlines()
    assert all(" … " in each for each in said)  # what it has read
    assert line.startswith("fastgc: ")
    assert not result.stdout
    return line


def figures(*arguments):
    """Return what a command prints as JSON."""
    return json.loads(done(*arguments, "--json").stdout)


def table(markdown):
    """Return the cells of a Markdown table, with its heading first."""
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]]
