"""The help of commands as Markdown for MyST; without Sphinx, so that tests need none."""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer

from fastgc.cli import app as commands


def told(name: str) -> str:
    """Help of a command, its usage and its options, as Markdown for MyST."""
    command: Any = typer.main.get_command(commands).commands[name]
    context = typer.Context(command, info_name=f"fastgc {name}")
    usage = " ".join(command.get_usage(context).split()).removeprefix("Usage: ")
    lines = [markdown(inspect.cleandoc(command.help or "")), "", "```text", usage, "```", ""]
    lines += [f"```{{program}} fastgc {name}", "```"]
    panels: dict[str, list[str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None:  # it is hidden
            continue
        panel = "Arguments" if parameter.param_type_name == "argument" else "Options"
        if not record[0].startswith("--help"):  # which is of no panel
            panel = getattr(parameter, "rich_help_panel", None) or panel
        names, said = record
        panels.setdefault(panel, []).append(
            f"````{{option}} {names.replace(' / ', ', ')}\n{markdown(said)}\n````"
        )
    for panel in sorted(panels, key="Arguments".__ne__):
        lines += ["", f"**{panel}**", *panels[panel]]
    if command.epilog:
        what, _, example = inspect.cleandoc(command.epilog).partition(": ")
        lines += ["", f"{what}: `{example}`"]
    return "\n".join(lines)


def markdown(text: str) -> str:
    """Plain text in Markdown: options and commands as code, and nothing else marked up."""
    text = re.sub(r"\{other \w+\}|\f|\x08", "", text)  # what others add; Click's page breaks
    text = re.sub(r"  +\[", " [", text)
    option, command = r"(?<![\w-])--?[a-z][\w-]*(?: help\b)?", r"(?<=\()(?:mpiexec|torchrun) [^)]*"
    parts = re.split(rf"({option}|{command}|\[default: [^\]]*\])", text)
    for at, part in enumerate(parts):
        if at % 2 == 0:
            parts[at] = re.sub(r"([\\`*_{}\[\]<>#|$~])", r"\\\1", part)
        elif part.startswith("["):
            value, _, limits = part[len("[default: ") : -1].partition("; ")
            limits = re.sub(r"([<>])", r"\\\1", limits)
            parts[at] = f"(default: `{value}`{'; ' + limits if limits else ''})"
        else:
            parts[at] = f"`{part}`"
    return "".join(parts)
