import floating
import numpy as np
import pytest

import fastgc


def test_raising_is_of_lines_of_fastgc():
    small = np.array([1e-300])
    with floating.raising():
        small * small
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            small / 0
        with pytest.raises(FloatingPointError, match="underflow"):
            eval("small * small", {"__name__": fastgc.__name__, "small": small})
        names = {"__name__": fastgc.__name__, "norm": np.linalg.norm, "small": small}
        with pytest.raises(FloatingPointError, match="underflow"):
            eval("norm(small)", names)
