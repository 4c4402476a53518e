"""How the documentation is built: ``.ci/docs``, or ``sphinx-build docs docs/_build/html``."""

import importlib
import importlib.util
import sys
from pathlib import Path

import fastgc

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS / "_ext")]


def importable(name: str) -> bool:
    """Whether what an engine needs is here, MPI's library, too."""
    if name == "mpi4py":
        try:
            import mpi4py.MPI  # noqa: F401
        except (ImportError, RuntimeError):
            return False
    return importlib.util.find_spec(name) is not None


importlib.import_module("notebook").write()  # for download from its page

project = "fastgc"
author = "The fastgc authors"
copyright = "2026, the fastgc authors"
version = release = fastgc.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "api",
    "commands",
    "formulas",
    "streams",
]
exclude_patterns = [
    "_build",
    "_ext",
    "_templates",
    "examples",
    "paper",
    "what_is_gradient_coding.ipynb",
]
templates_path = ["_templates"]
nitpicky = True

# Pages: Markdown, of which those with code cells are run, in a folder that is thrown away.
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True  # or lines that a command prints one by one stand in boxes of their own
smartquotes = False  # or the two hyphens of an option become a dash

# API: types are in the docstrings, and names in backticks are linked where they have a page.
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_mock_imports = [name for name in ("mpi4py", "ray", "torch") if not importable(name)]
numpydoc_show_class_members = False

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"fastgc {version}"
html_static_path = ["_static"]
html_css_files = ["fastgc.css"]
html_theme_options = {
    "source_repository": "https://github.com/gradient-coding/fastgc/",
    "source_branch": "main",
    "source_directory": "docs/",
}
