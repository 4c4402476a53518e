"""A browser without a network shows the built pages completely.

``.ci/docs`` runs these tests after it has built the pages; ``FASTGC_SITE`` names their folder.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

SITE = Path(os.environ.get("FASTGC_SITE") or "not built").resolve()
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

built = pytest.mark.skipif(not SITE.is_dir(), reason="FASTGC_SITE names no folder of built pages")
browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
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
    assert '<msqrt><mspace height="0.8em" /><mi>n</mi></msqrt>' in formula(r"\sqrt n")


@pytest.mark.parametrize("text", [r"a \nosuch b", "a^2^3"])
def test_what_is_no_formula_is_a_warning(text, caplog):
    pytest.importorskip("sphinx")
    assert formula(text) == ""
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"{text!r} is no formula: " in record.getMessage()


# A page that opens others at the widths of a screen and a phone, and reports what it finds.
LOOK = r"""<!doctype html><meta charset="utf-8"><body><script>
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 800px; border: 0`;
  const loaded = new Promise((resolve) => frame.addEventListener("load", resolve));
  frame.src = page;
  document.body.append(frame);
  await loaded;
  // A page may go on to another at once
  if (page.includes("#")) await new Promise((resolve) => setTimeout(resolve, 3000));
  const inner = frame.contentDocument;
  const resources = frame.contentWindow.performance.getEntriesByType("resource");
  const pictures = [...inner.images].filter((each) => each.complete && !each.naturalWidth);
  const found = {
    page, width,
    needs: inner.documentElement.scrollWidth,
    raw: inner.body.innerText.match(/\\[(\[]|\\(frac|sum|text|alpha)\b|\$\$/g) ?? [],
    elsewhere: resources.map((each) => each.name).filter((name) => !/^(file|data):/.test(name)),
    broken: pictures.map((each) => each.src),
    at: frame.contentWindow.location.href,
  };
  frame.remove();
  return found;
}
(async () => {
  const found = [];
  for (const page of PAGES) for (const width of [1280, 390]) found.push(await look(page, width));
  const shown = document.createElement("pre");
  shown.id = "found";
  shown.textContent = encodeURIComponent(JSON.stringify(found));
  document.body.append(shown);
})();
</script>
"""


def looked(addresses, folder):
    """Return what a browser finds in pages, and what they write to its console."""
    page = folder / "look.html"
    page.write_text(LOOK.replace("PAGES", json.dumps(addresses), 1), encoding="utf-8")
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--allow-file-access-from-files"),
            *(f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr"),
            *("--virtual-time-budget=3000000", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout)
    assert found, done.stderr
    return json.loads(unquote(found[1])), re.findall(r"CONSOLE[^]]*\] (.*)", done.stderr)


def faults(found):
    """Return pages and what is wrong with them."""
    for each in found:
        wrong = {name: each[name] for name in ("raw", "elsewhere", "broken") if each[name]}
        if each["needs"] > each["width"]:
            wrong["needs"] = each["needs"]
        if wrong:
            yield each["page"].rpartition("/")[2], each["width"], wrong


@built
@browser
def test_pages_are_whole_without_a_network(tmp_path):
    found, console = looked([path.as_uri() for path in PAGES], tmp_path)
    assert len(found) == 2 * len(PAGES)
    assert [*faults(found)] == []
    assert console == []


@built
@browser
def test_old_addresses_of_codes_lead_to_their_pages(tmp_path):
    for old in ("BinaryCode", "Round.receive"):
        page = SITE / "api" / "generated" / f"fastgc.codes.{old.partition('.')[0]}.html"
        anchor = f"fastgc.codes.{old}"
        assert anchor in Loads(page.read_text(encoding="utf-8")).ids
        (found, _), console = looked([f"{(SITE / 'api/codes.html').as_uri()}#{anchor}"], tmp_path)
        assert found["at"] == f"{page.as_uri()}#{anchor}"
        assert console == []


@browser
def test_faults_of_a_page_are_seen(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        r"<!doctype html><script src='https://a/b.js'></script><img src=no.png><p>\(a + b\)</p>"
        "<div style='width: 400px'>wide</div><script>console.log('said'); nothing()</script>"
        r"<script>'\\('</script>"
    )
    found, console = looked([page.as_uri()], tmp_path)
    rest = {
        "raw": ["\\("],
        "elsewhere": ["https://a/b.js"],
        "broken": [f"{tmp_path.as_uri()}/no.png"],
    }
    (wide, narrow) = (wrong for _, _, wrong in faults(found))
    assert wide == rest
    assert narrow == {**rest, "needs": 408}
    assert len(console) == 4  # two from each page
    assert "said" in console[0]
    assert "nothing is not defined" in console[1]
