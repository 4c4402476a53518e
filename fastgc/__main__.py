"""``python -m fastgc`` and the command ``fastgc``."""

import codecs
import contextlib
import io
import os
import signal
import sys

# How characters that an encoding lacks are printed in letters of ASCII.
_ASCII = {"µ": "u", "±": "+-", "–": "-", "…": "...", "≥": ">=", "≤": "<=", "×": "x"}


def main() -> None:
    """Run the command line, or say what is missing for it."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:  # while it imports, Ctrl-C ends it without a word of which import that met
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        from ._base.extras import pip_install

        sys.exit(f"fastgc: the command needs {error.name}: {pip_install('cli')}")
    try:
        from .cli import app
    except ValueError as error:  # kernels say what is wrong with their environment variables
        print(f"fastgc: {error}", file=sys.stderr)
        sys.exit(2)
    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    codecs.register_error("fastgc", _printable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="fastgc")

    # so that module:Class finds files of the current folder, as `python -m` does
    with contextlib.suppress(FileNotFoundError):  # the folder was removed
        here = os.getcwd()
        if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)
    app(prog_name="fastgc")


def _printable(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding lacks."""
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    return "".join(_ASCII.get(each, "?") for each in lacking), error.end


if __name__ == "__main__":
    main()
