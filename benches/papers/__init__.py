"""Figures and tables of papers, computed anew: ``python -m benches.papers halbawi-3``."""

import sys
from pathlib import Path

# `python -m` puts the checkout before everything else, and fastgc there may not be compiled. What
# is installed comes first.
_CHECKOUT = str(Path(__file__).parents[2])
if sys.path[0] == _CHECKOUT:
    sys.path.append(sys.path.pop(0))
