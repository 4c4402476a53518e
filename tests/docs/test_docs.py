"""Pages of the documentation: their code runs, their links hold, their figures are right."""

import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from urllib.parse import unquote

import numpy as np
import pytest
from pages import ROOT, RUN, SHOWN, blocks, markdown

import fastgc

pytest.importorskip("markdown_it")

DOCS = ROOT / "docs"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
    if not {"_build", "generated"} & set(path.relative_to(DOCS).parts)
}
PROJECT = "https://github.com/gradient-coding/fastgc"


def run(page, folder):
    """Run a page; return the exit status, and everything that was written."""
    command = [sys.executable, "-P", ROOT / "tests" / "pages.py", page, "--folder", folder]
    into = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=folder, timeout=600, check=False, **into)
    return done.returncode, done.stdout


def texts(picture):
    """Return the texts of a Matplotlib picture, except numbers on axes, which rounding may move."""
    return Counter(re.findall("<!-- (.*) -->", picture.read_text(encoding="utf-8")))


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs(page, tmp_path):
    status, shown = run(ROOT / page, tmp_path)
    assert status == 0, shown
    for picture in tmp_path.glob("*.svg"):
        if (ROOT / page).with_name(picture.name).exists():  # the page shows this picture
            assert texts(picture) == texts((ROOT / page).with_name(picture.name))
    missing = {name for block in blocks(PAGES[page]) for name in block.missing}
    if missing:
        pytest.skip(f"all has run that does not need {', '.join(sorted(missing))}")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why(page):
    for block in blocks(PAGES[page]):
        assert block.language in RUN | SHOWN or block.reason, (block.line, block.language)


BROKEN = {
    "```python\n# own.py\nx = 1\n```\n\n```python\nimport own\nassert own.x == 2\n```\n": (
        "page.md:8: AssertionError"
    ),
    "```c\n/* own.c */\nint x;\n```\n```sh\ngrep -q x own.c\ngrep -q y own.c\n```\n": (
        "page.md:6: exit status 1"
    ),
    "```python\nx = 1\n```\n~~~{code-cell} ipython3\n:tags: [hide-input]\nassert x == 2\n~~~\n": (
        "page.md:6: AssertionError"
    ),
    "```{code-cell}\n---\ntags: [raises-exception]\n---\n1 + 1\n```\n": "nothing was raised",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_fault_is_found_where_it_is(text, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    status, shown = run(page, tmp_path)
    assert status == 1
    assert BROKEN[text] in shown


def test_what_is_said_before_a_block_holds_for_it_alone(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run: it would fail -->\n```python\n1 / 0\n```\n"
        "<!-- needs: a_module_that_is_not_there -->\n```sh\nfalse\n```\n"
        "```{code-cell}\n:tags: [raises-exception]\n1 / 0\n```\n"
        "```sh\npython -c 'import fastgc; print(2 * 21)'\n```\n"
        "```python\nprint(6 * 111)\n```\n",
        encoding="utf-8",
    )
    status, shown = run(page, tmp_path)
    assert status == 0, shown
    assert "page.md:7: left out, as there is no a_module_that_is_not_there" in shown
    assert "\n42\n" in shown
    assert "666\n" in shown
    assert [block.reason for block in blocks(page.read_text())][:2] == ["it would fail", None]


# --------------------------------------------------------------------------------------- links


def links(text):
    for token, line in markdown(text):
        for part in token.children or ():
            if target := part.attrs.get("href") or part.attrs.get("src"):
                yield line, unquote(target)


def anchors(text):
    """Return the anchors of headings, as GitHub and MyST make them, and of labels ``(label)=``."""
    tokens = [token for token, _ in markdown(text)]
    for heading, inline in pairwise(tokens):
        if heading.type == "heading_open":
            title = "".join(part.content for part in inline.children)
            yield re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
    yield from re.findall(r"^\(([\w-]+)\)=$", text, re.M)


def broken_links(page, text):
    for line, target in links(text):
        file, _, anchor = target.partition("#")
        if inside := re.match(rf"{PROJECT}/(?:blob|tree)/main/(.*)", file):
            there = (ROOT / inside[1]).exists()
        elif re.match(r"[a-z]+:", file):
            continue  # .ci/docs --links checks links to other sites
        else:
            path = (ROOT / page).parent / file
            there = path.exists()
            if there and anchor and (not file or path.suffix == ".md"):
                there = anchor in set(anchors(path.read_text(encoding="utf-8") if file else text))
        if not there:
            yield line, target


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_links_hold(page):
    assert list(broken_links(page, (ROOT / page).read_text(encoding="utf-8"))) == []


# ----------------------------------------------------------------------- API and the command

# Modules besides fastgc and its public ones. Those of engines and torch may lack packages.
MODULES = ("coding.scheme", "testing.codes", "kernels.numba", "kernels.threads", "errors")
MODULES += ("torch", "training.train", "engines.interface", "engines.master", "testing.engines")
MODULES += tuple(f"engines.{name}" for name in fastgc.engines.ENGINES)
# Constants for kernels, which a sentence of their page explains.
EXPLAINED = {"EXPAND", "PACKED", "REAL", "REAL_PART", "LOCATOR", "LOOKUP", "SPREAD"}
# Names that the pages leave out: lists of checks, and their sizes.
APART = {"testing.codes": {"CHECKS", "ENGINES"}, "testing.engines": {"CHECKS", "WORKERS"}}
APART |= {"engines.interface": {"Gradient"}}


def shown():
    """Yield the modules and names in the pages of the API, in order."""
    for path in sorted((DOCS / "api").glob("*.rst")):
        module, names = None, False
        for line in path.read_text(encoding="utf-8").splitlines():
            if found := re.match(r"\.\. (?:currentmodule|automodule):: ([\w.]+)", line):
                module = found[1]
            if line.startswith(".. names:: "):
                for file in line.split()[2:]:
                    inner = importlib.import_module(f"{module}.{file}")
                    yield from (
                        (module, name)
                        for name in inner.__all__
                        if name in public(module.removeprefix("fastgc.")).__all__
                    )
            listed = line.startswith((".. names::", ".. autosummary::"))
            names = listed or (names and (not line or line.startswith(" ")))
            if names and re.fullmatch(r"   [\w.]+", line):
                yield module, line.strip()


def public(name):
    """Return a module, or None if it cannot be imported."""
    try:
        module = pkgutil.resolve_name(f"fastgc.{name}")
        getattr(module, next(iter(getattr(module, "__all__", ["__name__"]))))  # of torch: loads it
        return module
    except (ImportError, AttributeError):  # the latter of a submodule that cannot be imported
        assert name.removeprefix("engines.") in {"torch", *fastgc.engines.ENGINES}
        return None


def test_every_public_name_is_in_the_api_reference():
    things = []
    for path, name in shown():
        if module := public(path.removeprefix("fastgc.")) if path != "fastgc" else fastgc:
            things.append(getattr(module, name))  # fails if there is no such name
    assert len({*shown()}) == len([*shown()]), "a name is shown twice"
    lacking = []
    for path in ("", *fastgc._MODULES, *MODULES):
        module = public(path) if path else fastgc
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if name in APART.get(path, ()) or inspect.ismodule(thing):
                continue
            if name not in EXPLAINED and not any(thing is each for each in things):
                lacking.append(f"{path}.{name}")
    assert lacking == []


def test_constants_are_explained():
    text = "".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("kernels*.rst"))
    assert {name for name in EXPLAINED if f"``{name}``" not in text} == set()


def test_the_page_of_commands_has_all_of_them():
    typer = pytest.importorskip("typer")
    from fastgc.cli import app

    page = PAGES["docs/commands.md"]
    commands = typer.main.get_command(app).commands
    assert re.findall(r"^```\{command\} (\w+)$", page, re.M) == re.findall(
        r"^## fastgc (\w+)$", page, re.M
    )
    assert {*re.findall(r"^## fastgc (\w+)$", page, re.M)} == commands.keys()
    for name in commands:  # each has an example, which runs
        assert re.search(rf"^(.* )?fastgc {name}\b", page, re.M)


def test_the_help_of_a_command_is_all_in_its_page():
    typer = pytest.importorskip("typer")
    from fastgc.cli import app

    spec = importlib.util.spec_from_file_location("helps", DOCS / "_ext" / "helps.py")
    helps = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(helps)
    for name, command in typer.main.get_command(app).commands.items():
        text = helps.told(name)
        panels = re.findall(r"^\*\*.*\*\*$", text, re.M)
        assert len({*panels}) == len(panels)  # each stands once, with all of its options
        for parameter in command.params:
            shown = [*parameter.opts, *parameter.secondary_opts]
            if parameter.param_type_name == "argument":
                shown = [parameter.metavar or parameter.name]
            assert all(each in text for each in shown)
    assert helps.markdown("as in a*b_c, --sizes 16 [default: 1<2; x>=1]") == (
        "as in a\\*b\\_c, `--sizes` 16 (default: `1<2`; x\\>=1)"
    )
    assert helps.markdown("--delays help has all (mpiexec -n 5 fastgc)") == (
        "`--delays help` has all (`mpiexec -n 5 fastgc`)"
    )


def test_the_paper_cites_what_its_list_has():
    cited = re.findall(r"@(\w+)", PAGES["docs/paper/paper.md"])
    listed = re.findall(r"^@\w+\{(\w+),", (DOCS / "paper" / "paper.bib").read_text("utf-8"), re.M)
    assert sorted({*cited}) == sorted(listed)


# ------------------------------------------------------------------------------------- figures


def test_figures_of_the_page_on_near_exact_decoding():
    """Each figure holds within a factor of three, for actual rows of B and sets of neighbours."""
    text = PAGES["docs/near_exact.md"]
    rows = [row.strip("| ").split(" | ") for row in text.splitlines() if row.startswith("|")]
    assert len(rows) == 2 + 7
    for size, share, *said in rows[2:]:
        n, s = map(int, size.split(", "))
        assert float(share) == pytest.approx(s / n, abs=2e-3)
        if n > 1000:
            continue  # it takes long
        code = fastgc.ReedSolomon(n, stragglers=s)
        survivors = np.setdiff1d(np.arange(n), code.scheme.rings()[0][:s])
        found = [
            fastgc.stability.measured_error(code, survivors, method=method).relative
            for method in ("locator", "auto")
        ]
        found.append(2.0 ** (-53 * (1 - s / n)))
        assert np.abs(np.log(np.divide(found, [*map(float, said)]))).max() < np.log(3)


def test_results_that_pages_include_are_there():
    """A page includes a section of the results by its heading, up to the next if there is one."""
    results = (ROOT / "benches" / "RESULTS.md").read_text(encoding="utf-8").splitlines()
    headings = [line for line in results if line.startswith("## ")]
    option = r'^:start-after: "(.*)\\n"\n(:end-before: "\\n## "\n)?'
    found = [each for text in PAGES.values() for each in re.findall(option, text, re.M)]
    assert found
    for heading, ends in found:
        assert heading in headings
        assert bool(ends) == (heading != headings[-1]), heading
