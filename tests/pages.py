"""Run a page of the documentation from top to bottom, as a reader would.

``python tests/pages.py docs/frameworks.md`` runs one page, in a temporary folder where ``docs``
stands for the checkout's folder of this name:

- ``python`` and ``{code-cell}`` blocks run as in one notebook; a cell tagged ``raises-exception``
  must raise;
- a ``python`` block whose first line is ``# name.py``, and a ``c`` block whose first line is
  ``/* name.c */``, are written to that file instead;
- ``sh`` blocks run by ``bash -e``, with the commands of this Python first;
- a block after a line ``<!-- not run: reason -->`` does not run; after ``<!-- needs: torch -->`` it
  runs only if that module, or command, is installed.

Blocks of other languages (`SHOWN`) are output, or not for a reader to run.
"""

import argparse
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
RUN = {"python", "sh"}
FILES = {"python": r"# (\w+\.py)\n", "c": r"/\* (\w+\.c) \*/\n"}
SHOWN = {"text", "console", "diff", "toml", "yaml", "bibtex", "c", "cmake"}
# The commands installed with this Python come first.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
COMMENT = re.compile(r"<!--\s*(not run|needs):\s*(.*?)\s*-->", re.S)
# A directive's options, which precede its content: lines of :key: value, or YAML.
OPTIONS = re.compile(r"\A(?:---\n(?s:.*?)\n---\n|(?:[ \t]*:[\w-]+:.*\n)+)")


@dataclass(frozen=True)
class Block:
    """A block of code, and what the comments before it ask for."""

    language: str
    code: str
    line: int  # line of the page on which the code begins
    reason: str | None  # why it is not run; None: it is
    needs: tuple[str, ...]
    raises: bool

    @property
    def file(self):
        """The name of the file that the block is written to, or None."""
        named = re.match(FILES.get(self.language, r"(?!)"), self.code)
        return named[1] if named else None

    @property
    def missing(self):
        return [
            name
            for name in self.needs
            if importlib.util.find_spec(name) is None and shutil.which(name, path=PATH) is None
        ]


def markdown(text, first=1):
    """Yield the tokens of a page with their lines, also those inside directives."""
    from markdown_it import MarkdownIt  # here: tests import this module without markdown_it, too

    for token in MarkdownIt().parse(text):
        line = first + token.map[0] if token.map else None
        if token.type == "fence" and re.match(r"\{(?!code)", token.info):
            yield from markdown(token.content, line + 1)
        else:
            yield token, line


def blocks(text):
    """Yield the blocks of code of a page, in order."""
    said = {}
    for token, line in markdown(text):
        if token.type == "html_block":
            said |= dict(COMMENT.findall(token.content))
        elif token.type in ("fence", "code_block"):
            kind, _, language = token.info.strip().partition(" ")
            code, options = token.content, ""
            if kind.startswith("{"):
                language = "python" if kind == "{code-cell}" else language
                if found := OPTIONS.match(code):
                    options = found[0]
                    code = "\n" * options.count("\n") + code[found.end() :]
            else:
                language = kind
            yield Block(
                language,
                code,
                line + (token.type == "fence"),
                said.get("not run"),
                tuple(re.findall(r"[\w.-]+", said.get("needs", ""))),
                "raises-exception" in options,
            )
            said = {}
        elif token.nesting >= 0 and token.type != "inline":
            said = {}  # a comment holds only for a block that follows it at once


class BlockFailedError(Exception):
    """A block failed; the text says what went wrong, and on which line of which page."""


def run(page, folder):
    """Run a page in a folder; its Python blocks run in this process."""
    page, folder = page.resolve(), folder.resolve()
    name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
    # As in a notebook, whose functions are pickled by value for workers.
    notebook = sys.modules["__main__"] = ModuleType("__main__")
    sys.ps1 = ">>> "
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    os.environ["MPLBACKEND"] = "Agg"
    os.environ["PATH"] = PATH
    (folder / "docs").symlink_to(ROOT / "docs")
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.reason or not (block.language in RUN or block.file):
            continue
        if block.missing:
            print(f"{name}:{block.line}: left out, as there is no {' and no '.join(block.missing)}")
        elif block.file:
            Path(block.file).write_text(block.code, encoding="utf-8")
            importlib.invalidate_caches()
        elif block.language == "sh":
            done = subprocess.run(["bash", "-ex", "-c", block.code], check=False)
            if done.returncode:
                raise BlockFailedError(f"{name}:{block.line}: exit status {done.returncode}")
        else:
            _run_python(block, page, name, notebook)


def _run_python(block, page, name, notebook):
    code = "\n" * (block.line - 1) + block.code  # tracebacks then name the page's lines
    try:
        exec(compile(code, str(page), "exec", dont_inherit=True), vars(notebook))
    except Exception as error:
        if block.raises:
            return
        traceback.print_exc()
        steps = traceback.extract_tb(error.__traceback__)
        line = next((s.lineno for s in reversed(steps) if s.filename == str(page)), None)
        line = line or getattr(error, "lineno", None) or block.line  # lineno: of a SyntaxError
        raise BlockFailedError(f"{name}:{line}: {type(error).__name__}: {error}") from None
    if block.raises:
        raise BlockFailedError(f"{name}:{block.line}: nothing was raised")


def main():
    parser = argparse.ArgumentParser(description="Run all code of a page.")
    parser.add_argument("page", type=Path)
    parser.add_argument("--folder", type=Path, help="to run it in; default: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(given.page, given.folder or Path(folder))
        except BlockFailedError as error:
            sys.exit(str(error))
        finally:
            os.chdir(ROOT)


if __name__ == "__main__":
    main()
