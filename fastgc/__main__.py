"""``python -m fastgc`` and the command ``fastgc``."""

import sys


def main() -> None:
    """Run the command line, or say what is missing for it."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as error:
        sys.exit(f'fastgc: the command needs {error.name}: pip install "fastgc[cli]"')
    from .cli import app

    app(prog_name="fastgc")


if __name__ == "__main__":
    main()
