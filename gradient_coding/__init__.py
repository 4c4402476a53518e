"""Whether the library fastgc is installed as it should be: ``gradient-coding doctor``.

The library itself is `fastgc`. Another project on PyPI is called so, too: its package has the same
folder and the same command, and installing it damages ours. This package shares no name with it, so
that it can tell. It needs nothing but Python, and works where fastgc does not.
"""
