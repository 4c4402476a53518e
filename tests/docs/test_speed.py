"""The table of eight calls is what its command prints."""

import importlib.util
import re
import sys
from pathlib import Path

import programs
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_table_of_calls_is_what_the_command_prints():
    """The calls come in this order with readable times; times are not compared here."""
    text = (ROOT / "benches" / "RESULTS.md").read_text(encoding="utf-8")
    text = text.partition("## At a glance\n")[2].partition("\n## ")[0]
    assert "```sh\npython benches/glance.py\n```" in text
    command = [sys.executable, ROOT / "benches" / "glance.py", "--quick"]
    tables = [
        [row.strip("| ").split(" | ") for row in shown.splitlines() if row.startswith("|")]
        for shown in (text, programs.run(command).stdout)
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
