"""The kernels of the backend in use, their large calls split over threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import choice, threads
from . import numpy as plain
from .completion import Completion, CompletionPlan
from .cyclic import LOOKUP, CyclicPlan, CyclicStream, Decode, StreamCalls, Where
from .fourier import Fourier
from .rows import INTEGER, PACKED, Rows, kind_of

__all__ = [
    "amsgrad",
    "bind_combine",
    "bind_decoding_vector",
    "bind_encode",
    "bind_fourier",
    "bind_stream",
    "bind_survivor_mask",
    "combine",
    "completion",
    "decoding_vectors",
    "lagrange_basis",
    "lagrange_products",
    "leja_order",
    "nesterov",
    "replace",
    "sgd",
    "solve_vandermonde",
    "square_distance",
    "square_sum",
]


def bind_decoding_vector(
    plan: CyclicPlan,
    survivors: NDArray[np.int64],
    out: NDArray[np.complex128],
    longest: float = math.inf,
) -> tuple[Decode, Where]:
    """Prepare the decoding vector's computation on two fixed buffers.

    Returns a function ``decode(method, f) -> status`` that reads ``survivors[:f]`` and writes
    ``out[:f]``, and an object whose item 0 then says where that status applies. Pointers are taken
    once, here. Where the sum of the entries' squares is over `longest`, they are written, and the
    status is ``IMPRECISE``.
    """
    return choice.load().bind_decoding_vector(plan, survivors, out, longest)


def bind_fourier(
    plan: CyclicPlan, survivors: NDArray[np.int64], out: NDArray[np.complex128]
) -> Fourier:
    """Prepare the decoding vector's computation by transforms on two fixed buffers."""
    present, size = np.empty(plan.workers, dtype=np.bool_), np.empty(plan.workers)
    polar = choice.load().bind_polar(plan, survivors, present, size, out)
    return Fourier(plan, present, size, polar)


def bind_stream(plan: CyclicPlan, stream: CyclicStream) -> StreamCalls:
    """Prepare what can be done to a stream of this code; pointers are taken once, here."""
    return choice.load().bind_stream(plan, stream)


# Below so many factors in all, threads do not repay their cost: 8 of them take a nanosecond or so.
_THRESHOLD_FACTORS = 1 << 20


def decoding_vectors(
    plan: CyclicPlan,
    masks: NDArray[np.bool_],
    method: int,
    out: NDArray[np.complex128],
    where: NDArray[np.int64],
    longest: float = math.inf,
) -> None:
    """Decoding vectors of many rounds. Many factors are split over threads by rounds.

    Parameters
    ----------
    plan : CyclicPlan
    masks : (rounds, n) bool array
        The survivors of each round; C-contiguous, and overwritten if `method` is ``SPREAD``.
    method : int
        As of the function that `bind_decoding_vector` returns.
    out : (rounds, n) complex128 array
        C-contiguous; the coefficients of all workers, 0 for stragglers.
    where : (rounds,) int64 array
        0; or how many more survivors are needed, and the row of `out` was not written; or -1, if an
        entry is beyond a double; or -2, if the sum of their squares is over `longest`.
    longest : float
    """
    kernels = choice.active or choice.load()
    rounds, n = masks.shape
    survivors = int(np.count_nonzero(masks))
    factors = survivors if method == LOOKUP else min(survivors, masks.size - survivors)
    if factors * n < _THRESHOLD_FACTORS or choice.name == "numpy":
        kernels.decoding_vectors(plan, masks, method, out, where, longest)
    else:
        threads.run(
            lambda lo, hi: kernels.decoding_vectors(
                plan, masks[lo:hi], method, out[lo:hi], where[lo:hi], longest
            ),
            rounds,
            align=8,  # of the numbers written, a cache line
        )


def bind_survivor_mask(
    n: int, survivors: NDArray[np.int64], bits: NDArray[np.uint8]
) -> Callable[[int], int]:
    """Prepare the bit mask of a set of survivors on two fixed buffers.

    Returns a function ``mask(f)`` that reads ``survivors[:f]``, in whatever order, and writes
    `bits`: that of number i is bit ``i % 8`` of byte ``i // 8``. It returns 0 if they are distinct
    and in 0 .. n-1; otherwise 1, and the bits mean nothing.

    Parameters
    ----------
    n : int
    survivors : (n,) int64 array
    bits : (ceil(n / 8),) uint8 array
    """
    return choice.load().bind_survivor_mask(n, survivors, bits)


def combine(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    out: NDArray[Any],
    accumulate: bool = False,
    check: bool = False,
) -> bool:
    """``out = sum_r coef[r] * rows[r]``, or ``out +=`` that.

    Sums are taken in float64 and rounded once, to `out`'s precision (of halves in float32; a single
    row of float32 is added in that precision). Large combinations are split over threads by
    elements.

    Parameters
    ----------
    mode : int
        ``REAL``, ``PACKED``, ``REAL_PART`` or ``EXPAND``: how rows and `out` relate.
    rows : Rows
        Real rows of one length and of `out`'s precision; complex ones for ``REAL_PART``. For
        ``REAL`` and ``PACKED`` also rows of float16 or bfloat16, with `out` of float32. For
        ``REAL`` also rows of integers, with `out` of their dtype and coefficients that are
        integers: sums are taken in it, and wrap around.
    coef : (f,) float64 or complex128 array
        float64 for ``REAL``, complex128 otherwise.
    out : (p,) array
        float32 or float64; complex of that precision for ``EXPAND``.
    accumulate : bool
        Add to `out`.
    check : bool
        Look for NaN and Inf in what is written.

    Returns
    -------
    bool
        False if `check` is set and a written value is NaN or Inf, else True.
    """
    if rows.kind == INTEGER:
        return plain.combine(mode, rows, coef, out, 0, rows.length, accumulate, check)
    kernels = choice.active or choice.load()
    extent = _extent(mode, rows, out)
    moved = (len(rows.arrays) + 1) * rows.nbytes
    if moved < threads.THRESHOLD_BYTES or choice.name == "numpy":
        return kernels.combine(mode, rows, coef, out, 0, extent, accumulate, check)
    return all(
        threads.run(
            lambda lo, hi: kernels.combine(mode, rows, coef, out, lo, hi, accumulate, check), extent
        )
    )


def _extent(mode: int, rows: Rows, out: NDArray[Any]) -> int:
    """Elements of the rows that a combination goes over: whole pairs."""
    if mode != PACKED:
        return rows.length
    extent = max(rows.length, out.size)
    return extent + (extent & 1)


def bind_combine(
    mode: int,
    rows: Rows,
    numbers: NDArray[np.int64],
    coef: NDArray[Any],
    out: NDArray[Any],
    accumulate: bool = False,
    check: bool = False,
) -> Callable[[int], int]:
    """Prepare ``out = sum_r coef[r] * rows[numbers[r]]``, or ``out +=``, on fixed buffers.

    Returns a function ``combine(count) -> status`` that reads ``numbers[:count]`` and
    ``coef[:count]``; rows whose coefficient is 0 are not read. Its status is `Status.NOT_FINITE`
    where `combine` would return False. Pointers are taken once, here; the function keeps alive what
    they point to.

    Parameters
    ----------
    mode, rows, coef, out, accumulate, check
        As in `combine`.
    numbers : (capacity,) int64 array
        Of rows; as long as `coef`.
    """
    backend = plain if rows.kind == INTEGER else choice.load()
    part = backend.bind_combine(mode, rows, numbers, coef, out, accumulate, check)
    extent = _extent(mode, rows, out)
    together = backend is plain or choice.name == "numpy"

    def combine(count: int) -> int:  # refers to `rows`, and so keeps them
        if (count + 1) * rows.nbytes < threads.THRESHOLD_BYTES or together:
            return part(count, 0, extent)
        return max(threads.run(lambda lo, hi: part(count, lo, hi), extent))

    return combine


def bind_encode(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    weights: NDArray[np.float64],
    out: NDArray[Any],
    accumulate: bool = False,
) -> Callable[[], float]:
    """Prepare ``out = sum_r coef[r] * rows[r]``, or ``out +=``, and the rows' norms, in one pass.

    Returns a function that combines what `rows` lists by then and returns ``sum_r weights[r] *
    ||rows[r]||^2``, in double precision: not finite if a row is not. Pointers are taken once, here;
    the function keeps alive what they point to.

    Parameters
    ----------
    mode, rows, coef, out, accumulate
        As in `combine`, but for ``REAL_PART``, which is for decoding.
    weights : (f,) float64 array
        For each of the f rows that will be listed, as `coef`.
    """
    backend = plain if rows.kind == INTEGER else choice.load()
    part = backend.bind_encode(mode, rows, coef, weights, out, accumulate)
    extent = _extent(mode, rows, out)
    together = (coef.size + 1) * rows.nbytes < threads.THRESHOLD_BYTES
    together = together or backend is plain or choice.name == "numpy"

    def encode() -> float:  # refers to `rows`, and so keeps them
        return part(0, extent) if together else sum(threads.run(part, extent))

    return encode


def square_sum(x: NDArray[Any]) -> float:
    """Sum of squares of a real vector, in double precision; not finite if `x` is not.

    Of float32, float64, float16, bfloat16 or integers. Split over threads as `sgd`.
    """
    if kind_of(x.dtype) == INTEGER:
        return plain.square_sum(x)
    kernel = (choice.active or choice.load()).square_sum
    if x.nbytes < threads.THRESHOLD_BYTES:
        return kernel(x)
    return sum(threads.run(lambda lo, hi: kernel(x[lo:hi]), x.size))


def sgd(
    theta: NDArray[Any],
    velocity: NDArray[Any] | None,
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """``velocity = momentum * velocity - lr * gradient; theta += velocity``, in one pass.

    As all steps here: in the vectors' own precision and in place. The gradient may be one of the
    vectors that are written; apart from that, none overlap. Large vectors are split over threads by
    elements, which changes nothing but the rounding of what is returned.

    Parameters
    ----------
    theta, gradient : (p,) float32 or float64 array
        Contiguous, as all vectors of steps, and of one dtype.
    velocity : (p,) array or None
        None: there is no momentum, and ``theta -= lr * gradient``.
    lr, momentum : float

    Returns
    -------
    float
        Squared distance that theta moved: the squares of the differences between what is stored now
        and before, added up in float64. Not finite if a difference is not.
    """
    kernel = (choice.active or choice.load()).sgd
    if (2 if velocity is None else 3) * theta.nbytes < threads.THRESHOLD_BYTES:
        return kernel(theta, velocity, gradient, lr, momentum)
    return sum(
        threads.run(
            lambda lo, hi: kernel(
                theta[lo:hi],
                None if velocity is None else velocity[lo:hi],
                gradient[lo:hi],
                lr,
                momentum,
            ),
            theta.size,
        )
    )


def nesterov(
    theta: NDArray[Any],
    point: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """One step of Nesterov's accelerated gradient; see `sgd`.

    ``next = point - lr * gradient; point = next + momentum * (next - theta); theta = next``.

    Parameters
    ----------
    theta, point, gradient : (p,) float32 or float64 array
    lr, momentum : float

    Returns
    -------
    float
        Squared distance that the point moved.
    """
    kernel = (choice.active or choice.load()).nesterov
    if 3 * theta.nbytes < threads.THRESHOLD_BYTES:
        return kernel(theta, point, gradient, lr, momentum)
    return sum(
        threads.run(
            lambda lo, hi: kernel(theta[lo:hi], point[lo:hi], gradient[lo:hi], lr, momentum),
            theta.size,
        )
    )


def amsgrad(
    theta: NDArray[Any],
    h: NDArray[Any],
    v: NDArray[Any],
    gradient: NDArray[Any],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> float:
    """One step of AMSGrad (Zhu et al. 2022, equations 8a to 8c); see `sgd`.

    ``h = beta1 * h + (1 - beta1) * gradient; v = max(v, beta2 * v + (1 - beta2) * gradient ** 2);
    theta -= lr * h / sqrt(epsilon + v)``, all of them element by element. The maximum is NaN where
    a gradient is.

    Parameters
    ----------
    theta, h, v, gradient : (p,) float32 or float64 array
    lr, beta1, beta2, epsilon : float

    Returns
    -------
    float
        Squared distance that theta moved.
    """
    kernel = (choice.active or choice.load()).amsgrad
    if 4 * theta.nbytes < threads.THRESHOLD_BYTES:
        return kernel(theta, h, v, gradient, lr, beta1, beta2, epsilon)
    return sum(
        threads.run(
            lambda lo, hi: kernel(
                theta[lo:hi], h[lo:hi], v[lo:hi], gradient[lo:hi], lr, beta1, beta2, epsilon
            ),
            theta.size,
        )
    )


def replace(old: NDArray[Any], new: NDArray[Any], total: NDArray[Any] | None = None) -> float:
    """``total += new - old; old = new``, in one pass; see `sgd`.

    With `total` the sum of several vectors, one of them `old`: one is replaced, and the sum kept.

    Parameters
    ----------
    old, new : (p,) float32 or float64 array
    total : (p,) array, optional

    Returns
    -------
    float
        Squared distance from the old vector to the new one.
    """
    kernel = (choice.active or choice.load()).replace
    if (2 if total is None else 3) * old.nbytes < threads.THRESHOLD_BYTES:
        return kernel(old, new, total)
    return sum(
        threads.run(
            lambda lo, hi: kernel(old[lo:hi], new[lo:hi], None if total is None else total[lo:hi]),
            old.size,
        )
    )


def square_distance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Sum of the squares of ``x - y``, in float64; not finite if a difference is not; see `sgd`.

    Parameters
    ----------
    x, y : (p,) float32 or float64 array
    """
    kernel = (choice.active or choice.load()).square_distance
    if 2 * x.nbytes < threads.THRESHOLD_BYTES:
        return kernel(x, y)
    return sum(threads.run(lambda lo, hi: kernel(x[lo:hi], y[lo:hi]), x.size))


def leja_order(nodes: NDArray[Any], order: NDArray[np.int64]) -> None:
    """Write to `order` a permutation that puts the nodes in Leja order.

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
        If they are not all finite, `order` is filled with some numbers in 0 .. m-1.
    order : (m,) int64 array
    """
    (choice.active or choice.load()).leja_order(nodes, order)


def solve_vandermonde(
    nodes: NDArray[Any],
    b: NDArray[Any],
    order: NDArray[np.int64] | None,
    transpose: bool,
    out: NDArray[Any],
    forced: bool = False,
    bound: NDArray[np.float64] | None = None,
    choose: bool = False,
) -> bool:
    """Solve ``V x = b`` or ``V^T x = b``, V = np.vander(nodes, increasing=True).

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
    b, out : (m,) or (m, r) array
        Of the nodes' dtype. `out` may be `b`, but overlap it in no other way.
    order : (m,) int64 array or None
        In which order to take the nodes, a permutation; None: `leja_order`.
    transpose : bool
    forced : bool
        Write numbers that are not finite, too.
    bound : array of b's shape or None
        Bounds of the moduli of b's errors, and then of those of `out`, roundings included (but for
        what underflows); Inf where there is none. Contiguous.
    choose : bool
        Instead of Leja's order take each column in that of the two that is shown to be better:
        for nodes on one ray from 0 first that of the moduli, from the smallest on, and Leja's if
        the bounds do not say that the result is accurate. Leja's is then left for the other where
        the bounds prove that the largest error relative to a number becomes smaller, and that the
        largest error does too, or is at most 2^-32 of the largest number.

    Returns
    -------
    bool
        Whether all results, and nodes, are finite; they never are if nodes coincide or if `b` is
        not. If not, unless `forced`, the column at fault is not written, and none at all if it is
        the nodes' fault or there is one column.
    """
    return (choice.active or choice.load()).solve_vandermonde(
        nodes, b, order, transpose, out, forced, bound, choose
    )


def lagrange_products(
    nodes: NDArray[Any],
    points: NDArray[Any],
    mantissa: NDArray[Any],
    exponent: NDArray[np.int64],
    hit: NDArray[np.int64],
) -> None:
    """``mantissa[i] 2^exponent[i] = prod_j (points[i] - nodes[j])``.

    A node nearer than 2^-250 is left out of the product: ``hit[i]`` is the last such one, -1 if
    there is none.

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
        Of modulus 1 or so at most, as the points.
    points, mantissa : (p,) array
        Of the nodes' dtype. Mantissas, or the larger of their parts, lie in [1, 2).
    exponent, hit : (p,) int64 array
    """
    (choice.active or choice.load()).lagrange_products(nodes, points, mantissa, exponent, hit)


def lagrange_basis(
    nodes: NDArray[Any],
    weights: NDArray[Any],
    weight_exponent: NDArray[np.int64],
    points: NDArray[Any],
    out: NDArray[Any],
) -> None:
    """``out[i, j] = l_j(points[i])``, the Lagrange basis on distinct nodes, or its column sums.

    Parameters
    ----------
    nodes, weights : (m,) float64 or complex128 array
    weight_exponent : (m,) int64 array
        With the weights: 1 over the products of each node's differences to the others.
    points : (p,) array
    out : (p, m) or (m,) array
        Contiguous; all of one dtype. If it is a vector, the sum over all points.
    """
    (choice.active or choice.load()).lagrange_basis(nodes, weights, weight_exponent, points, out)


# A round takes 1 to 3 ns for each message, more where they are put in order: below so many in all,
# threads do not repay their cost.
_THRESHOLD_ARRIVALS = 200_000


def completion(
    plan: CompletionPlan,
    delay: NDArray[np.float64],
    work: NDArray[np.float64],
    late: NDArray[np.float64],
    receive: float = 0.0,
    overhead: float = 0.0,
    interrupted: bool = True,
    out: Completion | None = None,
) -> Completion:
    """Simulate rounds: when messages suffice, and what had been done by then.

    Message m of worker i arrives ``late[i] + delay[r, i] + work[r, i] * share[m]`` seconds after
    round r began. Many rounds that do not depend on each other are split over threads.

    Parameters
    ----------
    plan : CompletionPlan
    delay, work : (rounds, n) float64 array
        Seconds until each worker begins, once it is free, and seconds that all its work takes;
        C-contiguous, finite, not negative.
    late : (n,) float64 array
        Seconds after a round's beginning until each worker is free. Of every round if
        `interrupted`; else of the first round, and overwritten with those of the next one.
    receive : float
        Seconds that the master takes for each message that it hears, one after the other in order
        of arrival.
    overhead : float
        Seconds between the end of a round and the beginning of the next one.
    interrupted : bool
        Whether workers drop what they are at when a round ends. If not, they finish the message
        that they are at when the next round begins, unheard, and then join the newest round.
    out : Completion, optional
        Where to write; arrays of shape (rounds,).

    Returns
    -------
    Completion
        `out`, if given.
    """
    rounds = len(work)
    out = Completion.empty(rounds) if out is None else out
    kernels = choice.active or choice.load()
    few = rounds * plan.share.size < _THRESHOLD_ARRIVALS
    if few or not interrupted or choice.name == "numpy":
        kernels.completion(plan, delay, work, late, receive, overhead, interrupted, out)
    else:
        threads.run(
            lambda lo, hi: kernels.completion(
                plan,
                delay[lo:hi],
                work[lo:hi],
                late,
                receive,
                overhead,
                True,
                out.part(lo, hi),
            ),
            rounds,
            align=8,  # of the numbers written, a cache line
        )
    return out
