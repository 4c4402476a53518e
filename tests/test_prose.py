"""The README and the pages are written in plain sentences.

Some habits make readers read a sentence twice. If a pattern finds a habit without false alarms, the
tests report file, line and what to write instead. They skip headings and code.
"""

import re

import pytest
from pages import ROOT, markdown

pytest.importorskip("markdown_it")

pytestmark = pytest.mark.any_backend

# Patterns, and what to write instead. Those that begin with ^ match a sentence's first words.
HABITS = {
    r"\b(?:is|are|was|were|be) had\b": "say who gets it, or how you get it",
    r"\b(?:is|are) waited for\b": "say who waits",
    r"\bby nobody\b": "begin with nobody, or with what does not happen",
    r"\bnothing but\b": "write only",
    r"\bbut for\b": "write except for",
    r"\bit is said\b|\b(?:is|are) said to be\b": "name what says it, or leave it out",
    r"\btak(?:es?|ing|en) down\b": "write records",
    r"\bsome (?:ten|hundred|thousand)s?\b": "write about ten, a few dozen, a few hundred",
    r"\bone's own\b": "address the reader: your own",
    r"\bnot yours to\b": "write you cannot",
    r"\banew\b": "write again, or new",
    r"\bwhat (?:it|they) (?:is|are) at\b": "name the work",
    r"\bwhat (?:\w+ )?becomes? of\b": "write what happens to",
    r"\bbesides(?=[.,:;)]|$)": "write also, before the verb",
    r"\bno (?:larger|smaller|longer|shorter|higher|lower) an?\b": "write at the same, or at most",
    r"^Who\b(?!.*\?$)": "write A worker that ..., A rank that ..., or If you ...",
    r"^What is not\b(?!.*\?$)": "begin with the thing itself",
    r"^Of (?!the\b|these\b|those\b|course\b)": "begin with the subject",
    r"^Where\b[^:?]*,": "write If or When",
}
LONGEST = 45  # words of a sentence

# Pages not checked, as they quote papers and old texts.
LEFT_OUT = {"docs/changelog.md", "docs/papers.md"}
# The files that are checked.
FILES = [
    name
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    if (name := path.relative_to(ROOT).as_posix()) not in LEFT_OUT
]


def passages(text):
    """Yield paragraphs, items and cells of tables, each with the line on which it begins."""
    heading = False
    for token, line in markdown(text):
        if token.type == "inline" and not heading:
            lines, begin = [], line
            for number, each in enumerate(token.content.split("\n"), line):
                if each.startswith("|"):
                    yield from ((number, cell.strip()) for cell in re.split(r"(?<!\\)\|", each))
                elif each.startswith(":"):  # a directive's fence or option
                    yield begin, "\n".join(lines)
                    lines, begin = [], number + 1
                else:
                    lines.append(each)
            yield begin, "\n".join(lines)
        heading = token.type == "heading_open"


def sentences(text):
    """Yield sentences without markup, each as one line, with the line on which it begins."""
    for line, passage in passages(text):
        plain = re.sub(r"`[^`]*`|\$[^$]*\$", lambda m: "X" + "\n" * m[0].count("\n"), passage)
        plain = re.sub(r"!?\[([^]]*)\]\([^)]*\)|\*+", r"\1", plain)
        begin = 0
        for gap in re.finditer(r"(?<=[.!?])[)\"]*\s+(?=[\"(]*[A-Z])|\Z", plain):
            yield line + plain.count("\n", 0, begin), " ".join(plain[begin : gap.start()].split())
            begin = gap.end()


def habits(text):
    """Yield the lines of habits, what stands there, and what to write instead."""
    for line, sentence in sentences(text):
        for pattern, advice in HABITS.items():
            flags = re.I if not pattern.startswith("^") else 0
            if found := re.search(pattern, sentence, flags):
                yield line, found[0], advice
        count = len(re.findall(r"\S*\w\S*", sentence))
        if count > LONGEST:
            yield line, f"{sentence[:40]} …", f"{count} words: make two sentences"


@pytest.mark.parametrize("name", FILES)
def test_sentences_are_plain(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    found = [f"{name}:{line}: {what!r}: {advice}" for line, what, advice in habits(text)]
    assert not found, "\n".join(found)


def test_habits_are_found_where_they_are():
    text = (
        "---\nname: x\n---\n# Who is who\n\nIt is plain. Who is late\nis waited for by nobody.\n\n"
        "| a | Nothing but `x` is exact. |\n| --- | --- |\n\n- Steps are had by\n  `x`. Of some "
        "ten\n  workers that is so.\n\n```{note}\nIt takes down all.\n```\n"
    )
    assert [(line, found) for line, found, _ in habits(text)] == [
        *((6, "is waited for"), (6, "by nobody"), (6, "Who")),
        (9, "Nothing but"),
        *((12, "are had"), (13, "some ten"), (13, "Of ")),
        (17, "takes down"),
    ]
    (found,) = habits("It is.\nOne " + "and one " * 23 + "are not.")
    assert found[0] == 2
    assert found[2] == "49 words: make two sentences"


def test_plain_sentences_pass():
    text = (
        "# Where it is, what is had\n\n```python\n# Who is had by it, anew\n```\n\n"
        "Who is asked? A worker that is late. It waits besides the master. `Who is` is code.\n"
        "Where fastgc loses: small gradients, in one array. It had 10 workers. Of the sets, half "
        "fail. $Who$ is math. It was said by `is had`.\n\n"
        + "It is. " * 50
        + "\n\n- One item\n- another one, "
        + "with words " * 20
        + "\n"
    )
    assert [found for _, found, _ in habits(text)] == []
