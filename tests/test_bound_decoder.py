"""Decoders bound to arrays: one call to C, if there is nothing else to do."""

import numpy as np
import pytest

import fastgc
from fastgc import NonFiniteMessageError, NotDecodableError
from fastgc.coding.plan import BoundDecoder

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.skipif("c" not in fastgc.backends(), reason="no extension"),
]

CODES = [
    fastgc.ReedSolomon(7, stragglers=2),
    fastgc.ReedSolomon(7, stragglers=2, packed=False),
    fastgc.ReedSolomon(8, stragglers=2, clusters="auto"),
    fastgc.ReedSolomon(80, stragglers=12),
    fastgc.ReedSolomon(40, stragglers=18, root=1),
    fastgc.ReedSolomon(700, stragglers=300),
]
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
EVERY_CODE = pytest.mark.parametrize("code", CODES, ids=repr)


def bound(code, dtype=np.float64, p=5, **options):
    """Return a decoder in one call, one step by step, and the messages."""
    rng = np.random.default_rng(0)
    partials = rng.standard_normal((code.k, p)).astype(dtype)
    if partials.dtype.kind == "c":
        partials = partials * (1 + 2j)
    messages = np.array([code.encode(i, partials[code.partitions(i)]) for i in range(code.n)])
    with fastgc.use_backend("c"):
        quick, steady = (
            code.bind(messages, np.empty(p, partials.dtype), **options) for _ in range(2)
        )
    if quick._at_once is None:
        pytest.skip("array objects are not known")
    steady._at_once = None
    return quick, steady, messages


@pytest.mark.filterwarnings("ignore::fastgc.InstabilityWarning")
@EVERY_CODE
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_the_same_to_the_last_bit(code, dtype):
    """One call equals step by step: for few survivors and all, neighbours gone, and transforms."""
    if code.scheme.cache is not None or (not code.scheme.packed and np.dtype(dtype).kind == "c"):
        pytest.skip("this is never done at once")
    quick, steady, _ = bound(code, dtype)
    rng, f = np.random.default_rng(1), code.threshold
    sets = [rng.permutation(code.n)[:count] for count in (f, f, f + 1, code.n)]
    for survivors in [*sets, np.arange(f), np.arange(code.n)[-f:]]:
        found = quick(survivors)
        assert found is quick.gradient
        np.testing.assert_array_equal(found, steady(survivors))


def test_whatever_stands_for_survivors():
    quick, steady, _ = bound(CODES[0])
    numbers = np.array([6, 0, 3, 2, 5])
    mask = np.zeros(7, bool)
    mask[numbers] = True
    wide = np.repeat(numbers, 2)
    unaligned = np.zeros(8 * numbers.size + 1, np.uint8)[1:].view(np.int64)
    unaligned[:] = numbers
    others = [wide[::2], numbers.astype(np.int32), numbers.astype(np.uint64), numbers[::-1]]
    others += [numbers.tolist(), tuple(numbers.tolist()), mask, numbers.astype(">i8"), numbers]
    others.append(unaligned)
    for survivors in others:
        quick.gradient[:] = np.nan
        np.testing.assert_array_equal(quick(survivors), steady(survivors))
    np.testing.assert_array_equal(quick(numbers, "locator"), steady(numbers, "locator"))
    right = CODES[0].decoding_vector(numbers)
    np.testing.assert_array_equal(CODES[0].decoding_vector(unaligned), right)


def test_what_is_wrong_is_said_as_step_by_step():
    quick, _, messages = bound(CODES[0])
    for wrong, error, says in (
        (np.array([0, 1, 2, 3]), NotDecodableError, "1 more"),
        (np.array([0, 1, 2, 3, 7]), ValueError, "7"),
        (np.array([0, 1, 2, 3, -1]), ValueError, "-1"),
        (np.array([0, 1, 2, 3, 3]), ValueError, "second time"),
        (np.arange(8), ValueError, "7"),
        (np.empty(0, np.int64), NotDecodableError, "5 more"),
        (np.zeros((5, 1), np.int64), ValueError, "shape|one"),
        (np.array(3), ValueError, "shape|one"),
    ):
        with pytest.raises(error, match=says):
            quick(wrong)
    messages[2, 1] = np.inf
    with pytest.raises(NonFiniteMessageError, match="worker 2"):
        quick(np.arange(5))
    assert np.isfinite(quick(np.array([0, 1, 3, 4, 5]))).all()


def test_a_scheme_that_fills_vectors_itself_is_asked():
    """A subclass that overrides a hook must not inherit its base's faster paths."""

    class Doubled(type(CODES[0].scheme)):
        def bind_vector(self, survivors, vector, unit=2.0**-53):
            fill = super().bind_vector(survivors, vector, unit)

            def twice(f, method):
                fill(f, method)
                vector[:f] *= 2

            return twice

    code, scheme = CODES[0], CODES[0].scheme
    doubled = object.__new__(Doubled)
    doubled.__dict__ |= scheme.__dict__
    messages = np.random.default_rng(0).standard_normal((7, 4))
    own = BoundDecoder(doubled, messages, None, None, True)
    expected = 2 * code.decode(np.arange(5), messages[:5])
    np.testing.assert_allclose(own(np.arange(5)), expected, rtol=1e-12)
    assert doubled.jit_rule() is None
