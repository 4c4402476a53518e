"""The kernels of the backend in use.

Of C, what takes long enough is split over threads (see `threads`); the others use one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import choice
from . import numpy as plain
from .completion import Completion, CompletionPlan
from .cover import CellsPlan, TilingPlan
from .cyclic import CyclicPlan, CyclicStream, Decode, StreamCalls, Where
from .delays import DelayPlan
from .edges import EdgesPlan
from .fourier import Fourier
from .rows import INTEGER, Rows, extent_of, kind_of

__all__ = [
    "amsgrad",
    "bind_cells",
    "bind_combine",
    "bind_decoding_vector",
    "bind_edges",
    "bind_encode",
    "bind_fourier",
    "bind_functional",
    "bind_stream",
    "bind_survivor_mask",
    "bind_tiling",
    "combine",
    "combine_pairs",
    "completion",
    "decoding_vectors",
    "draw",
    "lagrange_basis",
    "lagrange_evaluate",
    "lagrange_products",
    "lagrange_weights",
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


def decoding_vectors(
    plan: CyclicPlan,
    masks: NDArray[np.bool_],
    method: int,
    out: NDArray[np.complex128],
    where: NDArray[np.int64],
    longest: float = math.inf,
) -> None:
    """Decoding vectors of many rounds.

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
    (choice.active or choice.load()).decoding_vectors(plan, masks, method, out, where, longest)


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


def bind_cells(
    plan: CellsPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    """Prepare the decoding vector of messages that are sums over cells, on two fixed buffers.

    Returns a function ``fill(f) -> status`` that reads ``survivors[:f]`` and writes ``out[:f]``: 1,
    or what the plan multiplies by, for the first message of each cell, and 0 for others. Its status
    may be `Status.OUT_OF_RANGE`, `Status.DUPLICATE` or `Status.TOO_FEW`, and `out` means nothing
    then. Pointers are taken once, here.

    Parameters
    ----------
    plan : CellsPlan
    survivors : (M,) int64 array
    out : (M,) float64 array
    """
    return choice.load().bind_cells(plan, survivors, out)


def bind_tiling(
    plan: TilingPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    """Prepare the decoding vector of messages that are sums over intervals, on two fixed buffers.

    Returns a function ``fill(f) -> status`` as of `bind_cells`. It writes 1 for the fewest
    messages that add up to the whole; where none do, 1 and -1 for the fewest that do if some are
    subtracted; and 0 for others. Of equally few it takes those found first, in breadth, by number.

    Parameters
    ----------
    plan : TilingPlan
    survivors : (M,) int64 array
    out : (M,) float64 array
    """
    return choice.load().bind_tiling(plan, survivors, out)


def bind_edges(
    plan: EdgesPlan, survivors: NDArray[np.int64], out: NDArray[np.float64]
) -> Callable[[int], int]:
    """Prepare the decoding vector of messages that are sums of two blocks, on two fixed buffers.

    Returns a function ``fill(f) -> status`` as of `bind_cells`. What it writes combines the
    messages so that each block counts as nearly once as can be: with x_v what block v counts, the
    sum over v of ``weight_v (x_v - 1)^2`` is the least. In time linear in blocks and messages: of a
    component of the graph that is not bipartite, all x are 1; of one that is, with sides L and R,
    ``x_v = 1 -+ (|L| - |R|) / (weight_v sum over u of 1 / weight_u)``, - in L and + in R. Fewer
    messages than the plan needs are `Status.TOO_FEW` unless all x are 1.

    Of all vectors with these x it writes a short one: conjugate gradients go towards the least sum
    over messages of the weight of both blocks times the square of the coefficient, for a hundred
    steps at most, and what x then lacks is made up for along a spanning tree.

    Parameters
    ----------
    plan : EdgesPlan
    survivors : (M,) int64 array
    out : (M,) float64 array
    """
    return choice.load().bind_edges(plan, survivors, out)


def combine(
    mode: int,
    rows: Rows,
    coef: NDArray[Any],
    out: NDArray[Any],
    accumulate: bool = False,
    check: bool = False,
) -> bool:
    """``out = sum_r coef[r] * rows[r]``, or ``out +=`` that.

    Rows of float32 are added up in float32, as coefficients are rounded to it, by at most 8; what
    these add up to, in float64, and that is rounded once. The error is at most, to first order,
    ``u |out| + (min(f, 8) + parts + 1) u sum_r |coef[r]| |rows[r]|`` with ``u = 2^-24``, and of
    parts 1 for real coefficients, 2 for complex ones. (NumPy and Numba take all sums in float64.)

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
        return plain.combine(mode, rows, coef, out, rows.length, accumulate, check)
    kernels = choice.active or choice.load()
    extent = extent_of(mode, rows.length, out.size)
    return kernels.combine(mode, rows, coef, out, extent, accumulate, check)


def combine_pairs(
    rows: Rows,
    coef: NDArray[np.complex128],
    out: NDArray[np.float64],
    *,
    paired: bool,
    rounded: bool = False,
    accumulate: bool = False,
    check: bool = False,
) -> bool:
    """``out = sum_r coef[r] * rows[r]``, or ``out +=`` that, in twice float64's precision.

    Complex coefficients, and reals that stand for complex pairs, as in `combine` for ``PACKED``. A
    number of twice float64's precision is a pair of float64, `high` and `low`, that stands for
    ``high + low``, with ``|low| <= ulp(high) / 2``; vectors of them have both side by side.

    High parts are added up without error, what they lack in float64 (Ogita, Rump and Oishi,
    "Accurate sum and dot product", 2005). Errors are at most ``(f + 2)^2 2^-106 sum_r |coef[r]|
    |rows[r]|``, and the final rounding; with elements of size 1 they are usually about
    ``0.3 sqrt(f) 2^-106 ||coef||``. Coefficients and elements over 2^995 may give NaN, and products
    below 2^-968 errors of 2^-1072 each. What is not finite gives NaN or Inf.

    Parameters
    ----------
    rows : Rows
        Of float64: q reals each; or with `paired` q pairs, 2 q float64.
    coef : (f, 2) complex128 array
        High parts of the real and the imaginary part, then low ones.
    out : (2 p,) float64 array
        p pairs, normalised; p is q, or if this is odd, q + 1, or one less than q if this is even.
        With `rounded` (p,): numbers rounded to float64.
    paired : bool
        Rows consist of pairs.
    rounded : bool
        Write float64; for rows of pairs.
    accumulate : bool
        Add to `out`.
    check : bool
        Look for NaN and Inf in what is written.

    Returns
    -------
    bool
        False if `check` is set and a written value is NaN or Inf, else True.
    """
    kernels = choice.active or choice.load()
    extent = max(rows.length // (2 if paired else 1), out.size // (1 if rounded else 2))
    extent += extent & 1
    return kernels.combine_pairs(rows, coef, out, extent, paired, rounded, accumulate, check)


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
    extent = extent_of(mode, rows.length, out.size)
    return backend.bind_combine(mode, rows, numbers, coef, out, extent, accumulate, check)


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
    extent = extent_of(mode, rows.length, out.size)
    return backend.bind_encode(mode, rows, coef, weights, out, extent, accumulate)


def square_sum(x: NDArray[Any]) -> float:
    """Sum of squares of a real vector, in double precision; not finite if `x` is not.

    Of float32, float64, float16, bfloat16 or integers.
    """
    if kind_of(x.dtype) == INTEGER:
        return plain.square_sum(x)
    return (choice.active or choice.load()).square_sum(x)


def bind_square_sum(x: NDArray[Any]) -> Callable[[], float]:
    """Prepare `square_sum` of a contiguous vector of float32 or float64, as it is when called."""
    bind = getattr(choice.load(), "bind_square_sum", None)
    return partial(square_sum, x) if bind is None else bind(x)


def sgd(
    theta: NDArray[Any],
    velocity: NDArray[Any] | None,
    gradient: NDArray[Any],
    lr: float,
    momentum: float,
) -> float:
    """``velocity = momentum * velocity - lr * gradient; theta += velocity``, in one pass.

    As all steps here: in the vectors' own precision and in place. The gradient may be one of the
    vectors that are written; apart from that, none overlap.

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
        and before, added up in float64. Not finite if a difference is not. Its relative error is
        below p 2^-53, and in float32, where exact differences would cost half of the step's time,
        2^-20 more.
    """
    return (choice.active or choice.load()).sgd(theta, velocity, gradient, lr, momentum)


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
    return (choice.active or choice.load()).nesterov(theta, point, gradient, lr, momentum)


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
    return (choice.active or choice.load()).amsgrad(
        theta, h, v, gradient, lr, beta1, beta2, epsilon
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
    return (choice.active or choice.load()).replace(old, new, total)


def square_distance(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Sum of the squares of ``x - y``, in float64; not finite if a difference is not; see `sgd`.

    Parameters
    ----------
    x, y : (p,) float32 or float64 array
    """
    return (choice.active or choice.load()).square_distance(x, y)


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


def lagrange_weights(
    nodes: NDArray[Any],
    scaled: NDArray[Any],
    weights: NDArray[Any],
    exponent: NDArray[np.int64] | None,
) -> int | None:
    """Barycentric weights ``1 / prod_(i != j) (x_j - x_i)`` of the nodes over a power of two.

    Parameters
    ----------
    nodes : (m,) float64 or complex128 array
    scaled : (m,) array
        ``nodes * 2.0**shift``, whose largest part lies in [1/2, 1): x.
    weights : (m,) array
        Of the nodes' dtype, as `scaled`.
    exponent : (m,) int64 array or None
        Weight j is ``weights[j] * 2.0**exponent[j]``. None: all weights are instead multiplied by
        one power of two, with which the largest modulus lies in [1, 2).

    Returns
    -------
    int or None
        The shift; None if a node is not finite or two coincide, and what is written is no weight.
    """
    return (choice.active or choice.load()).lagrange_weights(nodes, scaled, weights, exponent)


def lagrange_evaluate(
    nodes: NDArray[Any],
    weights: NDArray[Any],
    weight_exponent: NDArray[np.int64],
    values: NDArray[Any],
    points: NDArray[Any],
    scale: float,
    out: NDArray[Any],
) -> bool:
    """``out[i] = sum_j values[j] l_j(scale * points[i])``; exactly a value where a point is a node.

    Parameters
    ----------
    nodes, weights, weight_exponent
        As of `lagrange_basis`.
    values : (m,) array
    points, out : (p,) array
        All of one dtype.
    scale : float
        A power of two.

    Returns
    -------
    bool
        False, and nothing is written, if a point or a value is not finite, or a point is beyond
        2^239.
    """
    return (choice.active or choice.load()).lagrange_evaluate(
        nodes, weights, weight_exponent, values, points, scale, out
    )


def bind_functional(
    nodes: NDArray[Any], points: NDArray[Any], chosen: NDArray[np.int64], out: NDArray[Any]
) -> Callable[[int], int]:
    """Prepare the column sums of Lagrange bases of some of the nodes on two fixed buffers.

    Returns a function ``functional(f) -> status`` that reads ``chosen[:f]``, numbers of nodes, and
    writes ``out[:f]``: ``sum_i l_j(points[i])`` for each of them. f is 1 at least. Its status is
    `Status.OUT_OF_RANGE` where a number is, `Status.DUPLICATE` where two nodes coincide, and
    `Status.OVERFLOW` where a sum is beyond a double.

    Parameters
    ----------
    nodes : (n,) float64 or complex128 array
        Of modulus 1 or so at most.
    points : (p,) array
    chosen : int64 array
    out : array
        All but the numbers of one dtype.
    """
    return choice.load().bind_functional(nodes, points, chosen, out)


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
    round r began.

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
    out = Completion.empty(len(work)) if out is None else out
    kernels = choice.active or choice.load()
    kernels.completion(plan, delay, work, late, receive, overhead, interrupted, out)
    return out


def draw(delays: DelayPlan, first: int, rounds: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Random delays of rounds ``first``, ``first + 1``, ..., with the works.

    They depend on the plan, the round and the number of workers only.

    Parameters
    ----------
    delays : DelayPlan
    first, rounds : int

    Returns
    -------
    wait, whole : (rounds, n) float64 array
        Seconds until each worker begins, once it is free, and seconds that all its work takes: as
        `completion` takes them.
    """
    wait, whole = np.empty((2, rounds, delays.given.shape[1]))
    (choice.active or choice.load()).draw(delays, first, wait, whole)
    return wait, whole
