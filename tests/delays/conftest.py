"""What tests of several kinds of delay models need."""

import numpy as np
import pytest

from fastgc.delays import Distribution


class Bare(Distribution):
    """The methods that a user must define, taken from another distribution."""

    per = "round"

    def __init__(self, of):
        self.cdf, self.survival, self.quantile = of.cdf, of.survival, of.quantile
        self.tail_indices = of.tail_indices

    cdf = survival = quantile = None


@pytest.fixture
def bare():
    return Bare


@pytest.fixture
def refuse_other_numbers():
    """Require that a model of three workers refuses to draw for two or four."""

    def check(model, says):
        for wrong in (
            lambda: model.sample(0, 2, 0),
            lambda: model.draw(np.random.default_rng(0), 1, 4),
            lambda: model.order_statistic_mean(1, 2),
            lambda: model.tail_indices(4),
        ):
            with pytest.raises(ValueError, match=says):
                wrong()

    return check
