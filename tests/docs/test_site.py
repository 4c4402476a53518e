"""The built pages load nothing from elsewhere, and formulas are drawn.

``.ci/docs`` runs these tests after it has built the pages; ``FASTGC_SITE`` names their folder.
"""

import importlib.util
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

SITE = Path(os.environ.get("FASTGC_SITE") or "not built").resolve()

built = pytest.mark.skipif(not SITE.is_dir(), reason="FASTGC_SITE names no folder of built pages")
PAGES = sorted(SITE.rglob("*.html"))

# Elements whose `src` a browser loads by itself; other links load only when followed.
SRC = ("audio", "embed", "iframe", "img", "input", "script", "source", "video")
LOADED = dict.fromkeys(SRC, "src") | {"image": "href", "link": "href", "object": "data"}
KINDS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "modulepreload", "manifest"}


class Loads(HTMLParser):
    """Collects what a page loads, and its ids."""

    def __init__(self, text):
        super().__init__()
        self.found, self.ids = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids.add(given.get("id"))
        if tag != "link" or KINDS & set((given.get("rel") or "").lower().split()):
            if target := given.get(LOADED.get(tag)):
                self.found.append(target)
            self.found += [
                each.split()[0] for each in (given.get("srcset") or "").split(",") if each
            ]
        self.found += styled(given.get("style") or "")

    def handle_data(self, data):
        if self.lasttag == "style":
            self.found += styled(data)


def styled(css):
    """Return the addresses in a style sheet."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.S)
    return [
        found[1]
        for found in re.finditer(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", css)
        if not found[1].startswith("#")
    ]


def missing(path):
    """Return what a file of the site loads that is not in the site."""
    text = path.read_text(encoding="utf-8")
    for target in styled(text) if path.suffix == ".css" else Loads(text).found:
        if target.startswith("data:"):
            continue
        there = (path.parent / unquote(urldefrag(target)[0].partition("?")[0])).resolve()
        if re.match(r"\w+:|//", target) or not there.is_file():
            yield target


@built
def test_pages_load_nothing_from_elsewhere():
    assert len(PAGES) > 50
    files = [*PAGES, *SITE.rglob("*.css")]
    found = {path.relative_to(SITE).as_posix(): [*missing(path)] for path in files}
    assert {name: targets for name, targets in found.items() if targets} == {}


@built
def test_pages_show_pictures_and_not_what_python_says_of_them():
    said = re.compile("&lt;(Figure size|Axes|matplotlib)")
    assert [path.name for path in PAGES if said.search(path.read_text(encoding="utf-8"))] == []


def test_what_is_loaded_from_elsewhere_is_seen(tmp_path):
    (tmp_path / "own.css").write_text(
        "/* url(//a) */ @import 'https://b/c.css'; a { src: url(own.css); b: url('no.woff') }"
    )
    (tmp_path / "page.html").write_text(
        "<link rel=canonical href=https://a><link rel='icon' href=//b/x.ico><img src=no.png>"
        "<link rel=stylesheet href=own.css?v=1><script src='https://c/m.js' async></script>"
        "<a href=https://d>d</a><style>p { background: url(https://e) }</style>"
        "<img srcset='own.css 1x, https://f 2x' src='data:image/gif;base64,AA'>"
    )
    assert [*missing(tmp_path / "own.css")] == ["https://b/c.css", "no.woff"]
    assert [*missing(tmp_path / "page.html")] == [
        *("//b/x.ico", "no.png", "https://c/m.js", "https://e", "https://f")
    ]


def formula(text):
    for name in ("sphinx", "latex2mathml", "fontTools"):
        pytest.importorskip(name)
    path = Path(__file__).parents[2] / "docs" / "_ext" / "formulas.py"
    spec = importlib.util.spec_from_file_location("formulas", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.mathml(module.nodes.math(text, text), "inline")


def test_formulas():
    sign, bar = (
        '<mo form="prefix">&#x02212;</mo>',
        '<mo stretchy="false" lspace="0" rspace="0">|</mo>',
    )
    assert f"{bar}<mi>a</mi>{bar}" in formula("|a|")
    minus = formula("(-1, -b) = -c - d").split("<mi>c</mi>")
    assert [part.count(sign) for part in minus] == [3, 0]
    assert "<mo>&#x02212;</mo><mi>d</mi>" in minus[1]


@pytest.mark.parametrize("text", [r"a \nosuch b", "a^2^3"])
def test_what_is_no_formula_is_a_warning(text, caplog):
    pytest.importorskip("sphinx")
    assert formula(text) == ""
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"{text!r} is no formula: " in record.getMessage()
