"""The page of results is what the store has; the table of calls is what its command prints."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import programs
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def report():
    spec = importlib.util.spec_from_file_location("report", ROOT / "benches" / "report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_results_is_written_from_the_store(report, tmp_path, monkeypatch):
    kept = report.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    report.main(["--write"])
    assert report.PAGE.read_text(encoding="utf-8") == kept
    assert {report.place(title) for title in report.SECTIONS} >= {*report.STORE.iterdir()}


def test_measure_keeps_rows_and_where_they_are_from(report, tmp_path, monkeypatch, capsys):
    table = 'A title\n\n| a | b |\n|---|---:|\n| `x` "y" | 1,000 |\n| ü | 2 |\n\nSeed 0.\n\n'
    table += "| c |\n| --- |\n| 3 |\n\n| d |\n| --- |\n| 4 |"
    script = tmp_path / "prints.py"
    script.write_text(f"print({table!r})")
    monkeypatch.setattr(report, "STORE", tmp_path)
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    section = report.Section(f"python {script}", "csrc")
    monkeypatch.setattr(
        report, "SECTIONS", {"One": section, "Fails": report.Section("python no", "")}
    )
    assert report.main(["prints"]) == 0
    row = report.stored("One")
    assert row["found"][1] == [["a", "b"], ["---", "---:"], ['`x` "y"', "1,000"], ["ü", "2"]]
    assert row["found"][::2] == ["A title", "Seed 0.", [["d"], ["---"], ["4"]]]
    assert row["command"] == section.command
    assert row["machine"] == report.machine()
    text = report.PAGE.read_text(encoding="utf-8")
    assert '| `x` "y" | 1,000 |' in text
    assert row["commit"] in text
    assert report.main(["Fails"]) == 1
    assert report.stored("Fails") is None
    assert "No such file" in capsys.readouterr().err
    assert json.loads(report.place("One").read_text(encoding="utf-8")) == row


@pytest.mark.long
def test_the_table_of_calls_is_what_the_command_prints():
    """The calls come in this order with readable times; times are not compared here."""
    text = (ROOT / "benches" / "RESULTS.md").read_text(encoding="utf-8")
    text = text.partition("## At a glance\n")[2].partition("\n## ")[0]
    assert "`python benches/glance.py`: " in text
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
        assert re.sub(r"[\d,.]+", "", ours[5]) == re.sub(r"[\d,.]+", "", theirs[5])
        mine, other, limit = (
            float(t.split()[0]) * {"µs": 1e-6, "ms": 1e-3}[t.split()[1]]
            for t in (ours[1], ours[3], ours[6])
        )
        assert float(ours[7]) == pytest.approx(mine / limit, rel=0.06)
        assert float(ours[4]) == pytest.approx(other / mine, rel=0.06)
        assert float(ours[4]) > 1
