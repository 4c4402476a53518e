"""Numbers on pages that look measured are those of the store of results, or of the page's own code.

A number looks measured if a unit of time follows it, "times" or %, or if it is like 2e-15. It must
be in the store, in a section that this part of the page includes or whose program it names, or in
the page's code or output, which tests run. Others are listed below, each with its reason.
"""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORE = ROOT / "benches" / "results"
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]

pytestmark = pytest.mark.skipif(not STORE.exists(), reason="not a checkout")

VALUE = r"\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
SCALES = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "%": 0.01}  # all others count as they stand
# One number, or several with one unit: "2 to 3 µs", "55, 100 and 140 ms".
MEASURED = re.compile(
    rf"(?<![\w.,^+−-])(?<!\+ )((?:{VALUE}(?:, | and | to | … ))*{VALUE})"
    rf"(?:\s(ns|µs|ms|s|seconds?|times)\b|\s?(%))|(?<![\w.])(\d(?:\.\d+)?e[-+]\d+)(?!\w)"
)
# (page, what the line has, why no command prints the number)
STATED = [
    (r".*", r"\b1e-16\b|\b1e-10\b", "the unit roundoff u, and its power 5/8"),
    (
        r"near_exact",
        r"^\| \d+, \d+ \|",
        "test_figures_of_the_page_on_near_exact_decoding computes them",
    ),
    (r"papers", r"gradients agree to 1e-11", "a test says so"),
    (
        r"pytorch|surviving|trust",
        r"1e-6|1\.5e-8|8,000 times|6e-8|1e-38",
        "formats, limits of tests",
    ),
    (r"surviving", r"^\|", "deadlines: constants"),
    (
        r"spot|protocol|clusters",
        r"60 seconds|1e-3 of|\b30 s\b|within 300 s",
        "defaults of options",
    ),
    (r"spot|clusters", r"92 % of them", "what the source says that is named there"),
    (r"faq", r"5 or 10 seconds|takes 5 s", "how long a resolver of names waits"),
]


def prose(text):
    """Return a page with its code, formulas and directives blanked, and the code."""
    blank = lambda found: re.sub(r"[^\n]", " ", found[0])  # noqa: E731
    code = "\n".join(found[0] for found in re.finditer(r"^(`{3,}|:{3,}).*?^\1", text, re.M | re.S))
    text = re.sub(r"^(`{3,}|:{3,}).*?^\1", blank, text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`|\$[^$]*\$|\(http[^)]*\)", blank, text), code


def values(text):
    """Return the numbers in a text: in seconds, percentages as fractions, others as they stand."""
    found = set()
    for number, unit in re.findall(rf"({VALUE})(?:\s?(%|(?:ns|µs|ms|s)\b))?", text):
        plain = float(number.replace(",", ""))
        found |= {plain * SCALES.get(unit, 1.0), *([plain] if unit != "%" else [])}
    return found


def stored(part):
    """Return the numbers in the sections of the store that a part of a page includes or names."""
    found = set()
    for path in STORE.glob("*.json"):
        row = json.loads(path.read_text(encoding="utf-8"))
        title = re.sub(r"[^a-z0-9]+", "-", "".join(re.findall(r'"## (.*)\\n"\n', part)).lower())
        names = [*re.findall(r"benches[/.]\w+(?:\.py)?", row["command"]), f"speed.md#{path.stem}"]
        papers = "benches.papers" in row["command"] and re.search(r"`[a-z]+-[\w]+`", part)
        if papers or path.stem == title or any(name in part for name in names):
            found |= values(json.dumps(row["found"], ensure_ascii=False))
    return found


def unknown(name, text):
    """Yield line and number of those that nothing prints."""
    shown, code = prose(text)
    parts = re.split(r"^(?=#+ )", text, flags=re.M)
    at, printed = 0, values(code)
    for part in parts:
        known = printed | stored(part)
        for line in shown.split("\n")[at : at + part.count("\n")]:
            at += 1
            if any(re.search(page, name) and re.search(has, line) for page, has, _ in STATED):
                continue
            for several, time, percent, alone in MEASURED.findall(line):
                unit = time or percent
                for number in re.findall(VALUE, several or alone):
                    digits, scale = number.replace(",", ""), SCALES.get(unit, 1.0)
                    mantissa, _, power = digits.partition("e")
                    last = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
                    near = 0.5001 * last * scale
                    if not any(abs(float(digits) * scale - each) <= near for each in known):
                        yield f"{name}:{at}: {number} {unit}".strip()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_numbers_have_rows(path):
    name = str(path.relative_to(ROOT))
    assert list(unknown(name, path.read_text(encoding="utf-8"))) == []


def test_a_number_without_a_row_is_found():
    row = json.loads((STORE / "at-a-glance.json").read_text(encoding="utf-8"))["found"][0][2]
    source = "by `python benches/glance.py`"
    right = f"# A page\n\nA call takes {row[1]}, {row[4]} times as long, {source}.\n"
    assert list(unknown("docs/a.md", right)) == []
    wrong = (
        f"# A page\n\nIt takes 1,234 µs, 7.89 to {row[4]} times as long,\nwith 3.2e-09, {source}.\n"
    )
    found = ["docs/a.md:3: 1,234 µs", "docs/a.md:3: 7.89 times", "docs/a.md:4: 3.2e-09"]
    assert list(unknown("docs/a.md", wrong)) == found
    assert list(unknown("docs/a.md", right.replace(source, "")))  # a page must name the section
    shown = f"```text\n1.234 ms, 3.2e-09\n```\n{wrong}"
    assert list(unknown("docs/a.md", shown)) == ["docs/a.md:6: 7.89 times"]
    percent = "```text\n12, 7.1%, 0.082\n```\nOf it 7.1 % and 8.2% are here, 12 % not.\n"
    assert list(unknown("docs/a.md", percent)) == ["docs/a.md:4: 12 %"]
