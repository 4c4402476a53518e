"""``python -m fastgc`` and the command ``fastgc``."""

import os
import sys


def main() -> None:
    """Run the command line, or say what is missing for it."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        from ._extras import pip_install

        sys.exit(f"fastgc: the command needs {error.name}: {pip_install('cli')}")
    from .cli import app

    # so that module:Class finds files of the current folder, as `python -m` does
    here = os.getcwd()
    if not sys.flags.safe_path and here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    app(prog_name="fastgc")


if __name__ == "__main__":
    main()
