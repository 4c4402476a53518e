"""``python -m gradient_coding`` and the command ``gradient-coding``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .doctor import examine, version


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        In place of those that the program was started with.

    Returns
    -------
    status : int
        0 if nothing is wrong, else 1.
    """
    parser = argparse.ArgumentParser(
        "gradient-coding",
        description="Check the installation of the library fastgc, whose own command is 'fastgc'.",
    )
    parser.add_argument("--version", action="version", version=version())
    commands = parser.add_subparsers(dest="command", title="commands")
    commands.add_parser(
        "doctor",
        help="say whether fastgc is installed as it should be, and how to repair it",
        description="Say whether fastgc is installed as it should be, and how to repair it. "
        "The exit status is 1 if it is not.",
    )
    if parser.parse_args(arguments).command is None:
        parser.print_help()
        return 0
    diagnosis = examine()
    print(diagnosis)
    return 1 if diagnosis.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
