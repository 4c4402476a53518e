"""Kernels get arguments that do not fit: some calls of kernels_fuzz.py."""

import kernels_fuzz
import ml_dtypes
import numpy as np
import programs
import pytest
from strength import much

from fastgc import kernels

X = np.arange(1.0, 4.0)
ROWS = np.arange(6.0).reshape(2, 3)


def rows(arrays=ROWS, length=3, dtype=float):
    return kernels.Rows.of(arrays, length, np.dtype(dtype))


def vectors(count, **others):
    """Return `count` vectors of three numbers; `others` replace some by their place."""
    return [others.get(f"at{at}", np.arange(1.0, 4.0)) for at in range(count)]


def stale():
    listed = rows()
    listed.length = 300
    return listed


def replaced(**others):
    return kernels.replace(*vectors(3, **others))


def stepped(**others):
    return kernels.sgd(*vectors(3, **others), 0.1, 0.9)


def solved(b=X, order=None, bound=None, nodes=X, out=None):
    out = np.empty_like(b) if out is None else out
    return kernels.solve_vandermonde(nodes, b, order, False, out, bound)


def combined(listed, coef=None, out=None, mode=kernels.REAL):
    coef = np.ones(2) if coef is None else coef
    return kernels.combine(mode, listed, coef, np.zeros(3) if out is None else out)


def shifted(size=3):
    """Return two overlapping vectors; one begins an element later."""
    memory = np.zeros(size + 1)
    return memory[:-1], memory[1:]


FROZEN = np.arange(1.0, 4.0)
FROZEN.flags.writeable = False
MISALIGNED = np.zeros(25, np.uint8)[1:].view(float)
ONE, OTHER = shifted()
HELD = np.zeros((2, 3))
SWAPPED = np.ones(3, ml_dtypes.bfloat16).astype(np.dtype(ml_dtypes.bfloat16).newbyteorder())
FAR = np.array([0, 2**63 - 1, 0])

# Calls that once read or wrote beyond an end, or differed from NumPy's function.
REFUSED = {
    "a number, of 24 bytes": (lambda: stepped(at2=np.float64(1)), "gradient must be a NumPy array"),
    "one fewer": (lambda: stepped(at2=np.zeros(2)), r"gradient must have shape \(3,\), not \(2,\)"),
    "a list": (lambda: kernels.square_sum([1.0]), "x must be a NumPy array, not list"),
    "float32": (lambda: stepped(at2=np.zeros(3, "f4")), "gradient must have dtype float64, not"),
    "bfloat16 of other byte order": (lambda: kernels.square_sum(SWAPPED), "bfloat16, not >V2"),
    "other byte order": (lambda: kernels.square_sum(X.astype(">f8")), "not >f8"),
    "misaligned": (lambda: kernels.square_sum(MISALIGNED), "x must be aligned"),
    "masked": (lambda: kernels.square_sum(np.ma.masked_array(X)), "masked"),
    "read-only": (lambda: stepped(at0=FROZEN), "theta is read-only"),
    "overlap": (lambda: stepped(at0=ONE, at2=OTHER), "theta and gradient overlap"),
    "the total replaces": (lambda: replaced(at1=ONE, at2=ONE), "total and new overlap"),
    "no number": (lambda: kernels.sgd(*vectors(3), "0.1", 0.9), "lr must be a real number"),
    "beyond float64": (lambda: kernels.sgd(*vectors(3), 10**400, 0.9), "lr is beyond float64"),
    "no nodes": (lambda: solved(X[:0], nodes=X[:0]), "nodes must not be empty"),
    "no permutation": (lambda: solved(order=np.array([0, 1, 3])), "order must be numbers 0 to 2"),
    "short bound": (lambda: solved(bound=np.zeros(2)), r"bound must have shape \(3,\)"),
    "basis of another shape": (
        lambda: kernels.lagrange_basis(X, X, np.zeros(3, int), X, np.empty((3, 2))),
        r"out must have shape \(3, 3\) or \(3,\)",
    ),
    "exponents beyond all": (
        lambda: kernels.lagrange_basis(X, X, FAR, X[:0], X.copy()),
        r"exponents in weight_exponent must be between -2\^40 and 2\^40",
    ),
    "scale": (
        lambda: kernels.lagrange_evaluate(*vectors(2), np.zeros(3, int), X, X, 0.0, X.copy()),
        "scale must be a power of two",
    ),
    "no rows": (lambda: combined(ROWS), "rows must be Rows"),
    "rows too short": (lambda: combined(rows([*ROWS], 4)), "rows must have shape"),
    "stale rows": (lambda: combined(stale()), r"rows must have shape \(300,\)"),
    "rows of another dtype": (lambda: combined(rows(dtype="f")), "said to be of float32, but 0"),
    "rows of lists": (lambda: combined(rows([b"x" * 24])), "rows must be NumPy arrays"),
    "real coefficients": (
        lambda: combined(rows(), mode=kernels.EXPAND, out=np.zeros(3, complex)),
        "coef must have dtype complex128",
    ),
    "no such mode": (lambda: combined(rows(), mode=7), "mode must be"),
    "beyond 64 bits": (lambda: combined(rows(), mode=2**70), "mode is beyond 64 bits"),
    "short out": (lambda: combined(rows(), out=np.zeros(2)), "out must be as long as rows of 3"),
    "out is a row": (lambda: combined(rows(HELD), out=HELD[0]), "out and rows overlap"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_written(what):
    call, words = REFUSED[what]
    held = [np.array(each) for each in (X, ROWS, ONE, HELD, FROZEN)]
    with pytest.raises((TypeError, ValueError), match=words):
        call()
    for before, now in zip(held, (X, ROWS, ONE, HELD, FROZEN), strict=True):
        np.testing.assert_array_equal(before, now)


@pytest.mark.every_backend
def test_what_fits_in_other_ways_is_taken():
    """Views, arrays of subclasses, and NumPy's numbers."""
    whole, own = np.arange(8.0), np.arange(3.0).view(type("Own", (np.ndarray,), {}))
    moved = kernels.sgd(whole[1:4], whole[4:7], own, np.float32(0.5), 1)
    np.testing.assert_array_equal(whole, [0, 5, 6.5, 8, 4, 4.5, 5, 7])
    assert moved == 16 + 4.5**2 + 25
    theta = np.arange(3.0)
    assert kernels.sgd(theta, None, theta, 1.0, 0.0) == 5  # the gradient is also the output
    assert not theta.any()
    b = X.copy()
    assert kernels.solve_vandermonde(X, b, np.array([2, 0, 1]), np.True_, b)


def test_calls_that_do_not_fit():
    for number in range(much(20000, 1500)):
        assert kernels_fuzz.found_in(0, number) is None, f"--call {number}"


def test_a_kernel_without_checks_is_found(monkeypatch):
    """The kernel only reads, so it does no harm here; the oracle checks arguments."""
    of = kernels.unchecked
    monkeypatch.setattr(kernels, "square_distance", lambda x, y: of.square_distance(x, y))
    found = (kernels_fuzz.found_in(0, number, ["square_distance"]) for number in range(200))
    assert any(found)


def test_every_public_kernel_is_called():
    assert kernels_fuzz.functions().keys() == kernels_fuzz.examples().keys()
    assert all(kernels_fuzz.examples().values())


@pytest.mark.long
def test_calls_for_a_minute():
    programs.run(programs.python(kernels_fuzz.__file__, "--seconds", 60, "--seed", 1))
