"""Faults of one line, and whether the tests find them.

``python -m tests.mutants`` puts one fault after another into a copy of the checkout, runs the tests
on it, and prints which faults they found. For each fault those test files run first that should
find it, and only if they do not, the whole suite. ``python -m tests.mutants c1-c9 opt3`` tries
some, ``--list`` says which there are and where they are now, and whatever follows ``--`` goes to
pytest: ``-- --long`` for all tests there are.

A fault is found by its text, wherever that stands, so that code may move; where the same text
stands in several files, by a part of the file's path. If a fault's text is no longer there, write
down one that is as bad.

The checkout itself is not written to. Needs a C compiler, ninja, and cmake from 3.26 on: ``pip
install cmake ninja``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("fastgc", "gradient_coding", "csrc")
SOURCES = {".py", ".c", ".h", ".inc", ".def", ".cdef"}
TIMEOUT = 1200.0  # seconds, for a fault that makes tests wait for ever


@dataclass(frozen=True)
class Mutant:
    """A fault: one text in place of another.

    ``tests`` are the test files to run first, without ``test_`` and ``.py``; ``where`` is a part of
    the path, if the text stands in several files.
    """

    name: str
    tests: str
    before: str
    after: str
    where: str = ""


M = Mutant

MUTANTS = [
    # ------------------------------------------------------------------ C: combinations
    M("c1", "half", "kept = (half & 0x7fff) << 13;", "kept = (half & 0x3fff) << 13;"),
    M(
        "c2",
        "half",
        "((0 - ((kept + (UINT32_C(1) << 23)) >> 28)) & (UINT32_C(112) << 23));",
        "((0 - ((kept + (UINT32_C(1) << 23)) >> 28)) & (UINT32_C(111) << 23));",
    ),
    M(
        "c3",
        "kernels",
        "found |= (unsigned)((bits & exponent) == exponent);",
        "found = (unsigned)((bits & exponent) == exponent);",
    ),
    M(
        "c4",
        "kernels half",
        "sum += (double)value_##row(x[j]) * (double)value_##row(x[j]);",
        "sum += (double)value_##row(x[j]) + (double)value_##row(x[j]);",
    ),
    M(
        "c5",
        "kernels",
        "for (; r + FOLD < rows; r += FOLD) {",
        "for (; r + FOLD + 1 < rows; r += FOLD) {",
    ),
    M("c6", "kernels", "even[t] = t % 2 == 0;", "even[t] = t % 2 == 1;"),
    M(
        "c7",
        "kernels",
        "two = whole || mode == FGC_PACKED;",
        "two = whole;",
    ),
    M("c8", "kernels", "u[0] -= w[1];", "u[0] += w[1];"),
    M(
        "c9",
        "kernels",
        "const int written = mode == FGC_PACKED ? some + some % 2 : some;",
        "const int written = some;",
    ),
    M(
        "c10",
        "kernels",
        "if (beyond % (2 * sizeof(ROW)) == 0 && beyond && len > 2 * NAME(lanes)) {",
        "if (beyond && len > 2 * NAME(lanes)) {",
    ),
    M(
        "c11",
        "kernels",
        "LOAD_SUMS(ends->sum_from + HALF + at, written)",
        "LOAD_SUMS(ends->sum_from + at, written)",
    ),
    M(
        "c12",
        "kernels",
        "left.y += stride * most;",
        "left.y += most;",
    ),
    M("c13", "kernels", "u[0] = fresh ? 0 : to[written - 1];", "u[0] = 0;"),
    M(
        "c14",
        "kernels",
        "(u[2 * t] - u[2 * t + 1]));",
        "(u[2 * t] + u[2 * t + 1]));",
    ),
    M(
        "c15",
        "kernels round_and_encoder",
        "bad |= NAME(add_all_rows)(&all, FGC_REAL,",
        "bad = NAME(add_all_rows)(&all, FGC_REAL,",
    ),
    M(
        "c16",
        "kernels",
        "if (mode == FGC_PACKED && rows != 1)",
        "if (mode == FGC_PACKED && rows > 2)",
    ),
    # ------------------------------------------------------------------ C: completion times
    M("c17", "completion", "if (need > whole)", "if (need >= whole)"),
    M(
        "c18",
        "completion",
        "} else if (need <= whole - above) {",
        "} else if (need < whole - above) {",
    ),
    M(
        "c19",
        "completion",
        "need -= whole - above;",
        "need -= below;",
    ),
    M(
        "c20",
        "completion",
        "if (came < plan->need[b])",
        "if (came < plan->need[b] && b < 1)",
    ),
    M(
        "c21",
        "completion",
        "*earliest = x < *earliest ? x : *earliest;",
        "*earliest = x;",
    ),
    M(
        "c22",
        "completion",
        "if (arrival <= next_arrival(r, child))",
        "if (arrival >= next_arrival(r, child))",
    ),
    M(
        "c23",
        "completion simulation",
        "const double done = load * part + 1e-9,",
        "const double done = load * part,",
    ),
    M("c24", "completion", "end += overhead;", "end += 0 * overhead;", "csrc"),
    M(
        "c25",
        "completion",
        "late[i] = free_at > end ? free_at - end : 0;",
        "late[i] = free_at > end ? free_at : 0;",
    ),
    M("c26", "completion", "*senders += came > 0;", "*senders += came;"),
    M(
        "c27",
        "completion simulation",
        "part = part > sent ? part : sent;",
        "part = part > 0 ? part : sent;",
    ),
    M(
        "draw1",
        "completion",
        "if (before < need && need <= before + inside) {",
        "if (before <= need && need <= before + inside) {",
    ),
    M("draw2", "completion", "*before += key[j] < w->low;", "*before += key[j] <= w->low;"),
    M(
        "draw3",
        "completion",
        "(upto >= spread((double)need), x,",
        "(upto > spread((double)need), x,",
    ),
    M(
        "draw4",
        "completion",
        "return connected(r) ? -1 : connect(r, near, inside);",
        "return connect(r, near, inside);",
    ),
    M("draw6", "completion", "(x < y) == s.serial ? y : x", "x < y ? x : y"),
    M("draw7", "completion", "which[next] ^= other ^ e;", "which[next] ^= other;"),
    M("draw8", "completion", "if (ready > r->limit) {", "if (ready > 2 * r->limit) {"),
    M(
        "draw5",
        "completion",
        "(plan->total + most - 1) / most",
        "plan->total / most",
    ),
    # ------------------------------------------------------------------ C: random delays
    M("draw11", "draws", "z = (z ^ z >> 27) *", "z = (z ^ z >> 28) *", "csrc"),
    M("draw12", "draws", "(uint64_t)first * n + at) * STEP", "(uint64_t)first * n) * STEP"),
    M(
        "draw13",
        "draws",
        "- from_bits(random >> 12 | ONE) - 0x1p-53",
        "- from_bits(random >> 12 | ONE)",
    ),
    M("draw14", "draws", "begin[i] = power[i] > 0 ? e : x;", "begin[i] = e;"),
    M("draw15", "draws", "1 + (from_bits((random << 32)", "1 + (from_bits((random << 31)"),
    M(
        "draw16",
        "draws simulation",
        "some.given = it->delays->given ? it->delays->given + at * r->plan->workers : NULL;",
        "some.given = it->delays->given;",
    ),
    # sieved rounds: bounds, what is outside of them, ranks, and whose loads are whose
    M("sieve1", "draws", "low * (1 - 0x1p-36)", "low * (1 + 0x1p-30)", "csrc"),
    M("sieve2", "draws", "high * (1 + 0x1p-36)", "high * (1 - 0x1p-30)", "csrc"),
    M("sieve3", "draws", "if (ready[t] < usual[0] || ", "if (", "csrc"),
    M("sieve4", "draws", " || ready[t] > usual[1])", ")", "csrc"),
    M("sieve5", "draws", "came & r->plan->loads[worker[j]]", "came & r->plan->loads[j]", "csrc"),
    M("sieve6", "draws", "largest ? most : least, largest,", "largest ? most : least, 0,", "csrc"),
    M("sieve7", "draws", "ALL_BITS(b < at) & ALL_BITS(b + w > at)", "ALL_BITS(b < at)", "csrc"),
    # ------------------------------------------------------------------ C: decoding vectors
    M("c28", "kernels", "exponent[i] += e;", "exponent[i] = e;"),
    M(
        "c29",
        "kernels decoding_methods",
        "if (done + FGC_RUN < count)",
        "if (done + FGC_RUN <= count)",
    ),
    M(
        "c30",
        "kernels",
        "size[i] = product[i] * power_of_two(e / 2) * power_of_two(e - e / 2);",
        "size[i] = product[i] * power_of_two(e / 2) * power_of_two(e / 2);",
    ),
    M(
        "c31",
        "kernels",
        "const double by = quarter == 0 ? y : quarter == 1 ? x : quarter == 2 ? -y : -x;",
        "const double by = quarter == 0 ? y : quarter == 1 ? -x : quarter == 2 ? -y : x;",
    ),
    M("c32", "kernels", "t -= t >= circle ? circle : 0;", "t -= t > circle ? circle : 0;"),
    M(
        "c33",
        "kernels",
        ".stride = modulo(sign * code->q[b] * count, circle),",
        ".stride = modulo(code->q[b] * count, circle),",
    ),
    M(
        "c34",
        "kernels",
        ".scale = method == FGC_LOOKUP ? 1.0 : 1.0 / (double)m};",
        ".scale = method == FGC_LOOKUP ? 1.0 : 1.0 / (double)code->workers};",
    ),
    M(
        "c35",
        "kernels errors reed_solomon",
        "return *where ? FGC_TOO_FEW : FGC_OK;",
        "return FGC_OK;",
    ),
    M(
        "c36",
        "kernels decoding_methods",
        "best = first_at_least(score, largest * (1 - 1e-9));",
        "best = first_at_least(score, largest);",
        "csrc",
    ),
    M("cover1", "cover", "weight += first ? of->weight[cell] : 0;", "weight += of->weight[cell];"),
    M(
        "cover2",
        "cover",
        "out[place[of->message[e]] - 1] = from < point ? 1 : -1;",
        "out[place[of->message[e]] - 1] = 1;",
    ),
    M("cover3", "cover", "if (of->whole > 0 && of->whole != (double)weight)", "if (0)"),
    M("edges1", "edges", "if (g->via[g->order[begin]] >= 0)", "if (0)"),
    M("edges2", "edges", "p[i] = g->scale[i] * r[i] + next / square * p[i];", "p[i] = r[i];"),
    M("edges3", "edges", "sum *= 0.5 * (double)g->side[g->u[odd]];", "sum *= 0.5;"),
    M(
        "edges4",
        "edges",
        "(double)(g->side[i] * more) / (g->weight[i] * inverse);",
        "(double)(g->side[i] * more) / inverse;",
    ),
    M(
        "c37",
        "kernels decoding_methods",
        "norm += value[2 * i] * value[2 * i] + value[2 * i + 1] * value[2 * i + 1];",
        "norm += value[2 * i] * value[2 * i];",
    ),
    M(
        "c38",
        "kernels decoding_methods errors",
        "if ((method == FGC_LOOKUP ? f : n - f) > FGC_RUN || chosen) {",
        "if (f > FGC_RUN || chosen) {",
    ),
    M(
        "c39",
        "kernels stream",
        "stream->lost_sum[b] += leaves ? j : -j;",
        "stream->lost_sum[b] += leaves ? worker : -worker;",
    ),
    M(
        "c40",
        "kernels stream",
        "const int64_t odd = (m - 1) * (q + 1) / 2;",
        "const int64_t odd = (m - 1) * (q - 1) / 2;",
    ),
    M("c41", "kernels", "sum += x;", "sum += i;", "csrc"),
    M(
        "c42",
        "cache",
        "if (i >= (uint64_t)n)",
        "if (i > (uint64_t)n)",
    ),
    M(
        "c43",
        "decoding_methods",
        "if (last_beyond(value, n) >= 0)",
        "if (last_beyond(value, n) > n)",
    ),
    M(
        "c44",
        "kernels",
        "factors += away[i] != others;",
        "factors += away[i];",
    ),
    # ------------------------------------------------------------------ C: Lagrange, Vandermonde
    M("c45", "kernels", "hit = is_node ? j : hit;", "hit = is_node ? first : hit;"),
    M(
        "c46",
        "kernels",
        "im = complex ? before * di + im * dr : 0;",
        "im = complex ? re * di + im * dr : 0;",
    ),
    M(
        "c47",
        "interpolation",
        "qi = (pi * dr - pr * di) * inverse;",
        "qi = (pi * dr + pr * di) * inverse;",
    ),
    M(
        "c48",
        "interpolation",
        "const int alike = most - least < 400;",
        "const int alike = 1;",
    ),
    M(
        "c49",
        "interpolation",
        "memset(l.re, 0, (size_t)(2 * l.padded) * sizeof(double));",
        "memset(l.re, 0, (size_t)(1 * l.padded) * sizeof(double));",
    ),
    M(
        "c49a",
        "interpolation",
        "if (!(nearest < limit) ||",
        "if (",
    ),
    M(
        "c49b",
        "interpolation",
        "const int plain = most - least < 400;",
        "const int plain = most - least < 4000;",
    ),
    M(
        "c49c",
        "interpolation",
        "const int64_t shift = size > 0 ? exponent_of(size) : 0,",
        "const int64_t shift = 0,",
    ),
    M(
        "c49d",
        "vandermonde kernels",
        "if (!all_finite(work, m * size))",
        "if (0)",
    ),
    M(
        "c50",
        "vandermonde kernels",
        "(number){b->re * over_b, -b->im * over_b}",
        "(number){b->re * over_b, b->im * over_b}",
    ),
    M(
        "c51",
        "vandermonde",
        "for (int careful = of->largest > LARGE; careful < 2 && !good; careful++) {",
        "for (int careful = of->largest > LARGE; careful < 1 && !good; careful++) {",
    ),
    M(
        "c52",
        "vandermonde",
        "power_of_two(complex ? -(e >> 1) : -e);",
        "power_of_two(-e);",
    ),
    M(
        "c53",
        "vandermonde",
        "(i < m ? transpose ? i : order[i] : 0)",
        "(i < m ? transpose ? order[i] : i : 0)",
    ),
    M(
        "c54",
        "vandermonde",
        "(a.im * d.re - a.re * d.im) / n / scale};",
        "(a.im * d.re + a.re * d.im) / n / scale};",
    ),
    M(
        "c55",
        "vandermonde",
        "store(product + i, larger(magnitude(load(product + i)), spread(0x1p-500)));",
        "store(product + i, magnitude(load(product + i)));",
    ),
    # ------------------------------------------------------------------ C: optimizers
    M(
        "c56",
        "kernels",
        "theta[i] - by->lr * mean / ROOT(by->epsilon + most)",
        "theta[i] - by->lr * mean / (by->epsilon + ROOT(most))",
    ),
    M(
        "c57",
        "kernels optimizers",
        "const REAL most = v[i] > now ? v[i] : now;",
        "const REAL most = now > v[i] ? now : v[i];",
    ),
    M(
        "c58",
        "kernels",
        "const REAL ahead = next + momentum * (next - theta[i]);",
        "const REAL ahead = next + momentum * (theta[i] - next);",
    ),
    M("c59", "kernels", "total[i] += new[i] - old[i];", "total[i] += new[i];", "csrc"),
    M(
        "steps1",
        "kernels",
        "if (any_at_least(wide, least) && !any_at_least(wide, FLT_MAX)) {",
        "if (any_at_least(wide, least)) {",
    ),
    M(
        "steps2",
        "kernels",
        "if (any_at_least(wide, least) && !any_at_least(wide, FLT_MAX)) {",
        "if (!any_at_least(wide, FLT_MAX)) {",
    ),
    M("steps3", "kernels", "squares += low * low + high * high;", "squares += low * low;"),
    M("cells1", "simulation", "return other < least ? other : least;", "return least;"),
    M(
        "cells2",
        "simulation",
        "b = earlier(b, load(r->arrival + j + LANES));",
        "b = earlier(b, load(r->arrival + j));",
    ),
    M(
        "c60",
        "memory",
        "free(work);  ",
        "(void)work;  ",
        "split",
    ),
    M(
        "c61",
        "memory",
        "rows(nodes, weights, weight_exponent, m, points, p, out, sum, l, 0);\n    free(work);",
        "rows(nodes, weights, weight_exponent, m, points, p, out, sum, l, 0);",
    ),
    # ------------------------------------------------------------------ kernels in Numba
    M(
        "numba1",
        "cache",
        "twice |= (bits[i >> 3] & bit) != 0",
        "twice = (bits[i >> 3] & bit) != 0",
    ),
    M(
        "numba2",
        "kernels stream",
        "product[i] *= -m if (odd + q * i) & 1 else m",
        "product[i] *= -m if odd & 1 else m",
    ),
    M(
        "numba3",
        "kernels stream",
        "at = tables.offset[b] + m - j",
        "at = tables.offset[b] + j",
    ),
    M(
        "numba4",
        "stream kernels",
        "missing += max(0, tables.need[b] - there)",
        "missing = max(0, tables.need[b] - there)",
    ),
    M(
        "numba5",
        "kernels",
        "sums[_BLOCK + t] = to[2 * t + 1]",
        "sums[_BLOCK + t] = to[2 * t]",
    ),
    M(
        "numba6",
        "kernels decoding_methods",
        "wrapped ^= lost % 2 == 1",
        "wrapped ^= True",
    ),
    M(
        "numba7",
        "kernels decoding_methods",
        "sign * q * count % circle\n    turn = -sign * q * (total % circle) % circle",
        "sign * q * count % circle\n    turn = sign * q * (total % circle) % circle",
    ),
    M(
        "numba8",
        "kernels",
        "x[j] = old - lr_ * mean_ / np.sqrt(epsilon_ + most_)",
        "x[j] = old - lr_ * mean_ / (epsilon_ + np.sqrt(most_))",
    ),
    M(
        "numba9",
        "kernels",
        "to[size - 1] = sums[size - 1] - sums[_BLOCK + size]",
        "to[size - 1] = sums[size - 1]",
    ),
    M(
        "numba10",
        "kernels round_and_encoder",
        "finite &= np.isfinite(to[t])",
        "finite = np.isfinite(to[t])",
    ),
    M(
        "numba11",
        "decoding_methods kernels",
        "norm += value[i].real ** 2 + value[i].imag ** 2",
        "norm += value[i].real ** 2",
    ),
    # ------------------------------------------------------------------ kernels in NumPy
    M(
        "numpy1",
        "kernels",
        "scaled[whole:] = a * wide[2 * whole] if row.size % 2 else 0",
        "scaled[whole:] = 0",
    ),
    M(
        "numpy2",
        "kernels",
        "quarter = (1, 1j, -1, -1j)[-sign * factors % 4]",
        "quarter = (1, 1j, -1, -1j)[sign * factors % 4]",
    ),
    M(
        "numpy3",
        "kernels",
        "if r % LARGEST_GROUP == 0 or r == coef.size:",
        "if r % LARGEST_GROUP == 0:",
    ),
    M(
        "numpy4",
        "kernels errors decoding_methods",
        "(Status.OVERFLOW, int(beyond[-1]))",
        "(Status.OVERFLOW, int(beyond[0]))",
    ),
    M(
        "numpy5",
        "kernels optimizers",
        "np.maximum(v, real(beta2) * v + real(1 - beta2) * (gradient * gradient), out=v)",
        "np.fmax(v, real(beta2) * v + real(1 - beta2) * (gradient * gradient), out=v)",
    ),
    M(
        "numpy6",
        "kernels stream",
        "odd = (m - 1) * (q + 1) // 2 + q * np.arange(m)",
        "odd = (m - 1) * (q + 1) // 2 + np.arange(m)",
    ),
    M(
        "numpy7",
        "stream kernels",
        "missing = tables.need - (np.diff(tables.start) - stream.lost)",
        "missing = tables.need - np.diff(tables.start) - stream.lost",
    ),
    M(
        "numpy8",
        "kernels completion",
        "present[survivors[inside]] = True\n    if np.count_nonzero(present) < survivors.size:",
        "present[survivors[inside]] = True\n    if np.count_nonzero(inside) < survivors.size:",
    ),
    # ------------------------------------------------------------------ optimizers
    M(
        "opt1",
        "optimizers",
        "(1 + math.sqrt(1 + 4 * self._t**2)) / 2",
        "(1 + math.sqrt(1 + 2 * self._t**2)) / 2",
    ),
    M("opt2", "optimizers", "return (t - 1) / self._t", "return t / self._t"),
    M("opt3", "adaptive", "anchor.since += math.sqrt(moved)", "anchor.since += moved"),
    M("opt4", "adaptive", "self._ages[fresh] = 1", "self._ages[fresh] = 0"),
    M(
        "opt5",
        "adaptive",
        "if ages[group] >= self.max_age or",
        "if ages[group] > self.max_age or",
    ),
    M(
        "opt6",
        "adaptive",
        "right = self.c * sum(self._steps)",
        "right = self.c * max(self._steps, default=0.0)",
    ),
    M(
        "opt7",
        "adaptive",
        "least = distance * (1 - _ROOM) - since * (1 + _ROOM)",
        "least = distance * (1 - _ROOM) + since * (1 + _ROOM)",
    ),
    M(
        "opt8",
        "adaptive",
        "if self._anew or self._rounded > 4 * size:",
        "if self._anew:",
    ),
    M(
        "opt9",
        "checkpoint",
        'own["squared"][at], own["since"][at])',
        'own["squared"][at], 0.0)',
    ),
    M("opt10", "adaptive", "if not anchor.users:", "if anchor.users <= 1:"),
    M(
        "opt11",
        "checkpoint",
        "vectors = {name: getattr(self, name).copy() for name in",
        "vectors = {name: getattr(self, name) for name in",
    ),
    M("opt12", "adaptive", "mean = sum(known) / len(known)", "mean = sum(known) / len(squares)"),
    M(
        "opt13",
        "adaptive",
        "self._anew = 3 * len(chosen) > self.groups",
        "self._anew = bool(self._anew and chosen)",
    ),
    M(
        "opt14",
        "adaptive optimizers",
        "if not isinstance(returned, Real) or returned < 0:",
        "if not isinstance(returned, Real):",
    ),
    M(
        "opt15",
        "optimizers",
        "self._velocity = np.zeros_like(self._theta) if self.momentum else None",
        'self._velocity = getattr(self, "_velocity", None) if self.momentum else None\n'
        "        if self.momentum and self._velocity is None:\n"
        "            self._velocity = np.zeros_like(self._theta)",
    ),
    # ------------------------------------------------------------------ stability
    M("stab1", "tracker", "if lacking > 10 * predicted:", "if lacking > 1e10 * predicted:"),
    M(
        "stab2",
        "tracker",
        "(count - 1) % self.measure_every == 0",
        "count % self.measure_every == 0",
    ),
    M(
        "stab3",
        "stability",
        "math.sqrt(parts) * ((1 + encode + work) * (1 + combine) - 1)",
        "math.sqrt(parts) * ((1 + encode) * (1 + combine) - 1)",
    ),
    M(
        "stab4",
        "stability",
        "bound = float(np.linalg.norm(rounding + lacking)) / math.sqrt(code.k)",
        "bound = float(np.linalg.norm(rounding + lacking)) / code.k",
    ),
    M(
        "stab5",
        "stability",
        "for value, _, lost in known if s else []:",
        "for value, _, lost in []:",
    ),
    M(
        "stab6",
        "stability vandermonde",
        "return _norm((wide - exact[0]) - exact[1])",
        "return _norm(wide - exact[0])",
    ),
    M(
        "stab7",
        "tracker",
        "return predict() <= self.limit",
        "return predict() <= 10 * self.limit",
    ),
    M(
        "stab8",
        "stability",
        "yield (start + np.arange(s)) % n",
        "yield np.minimum(start + np.arange(s), n - 1)",
    ),
    M(
        "worst1",
        "stability",
        "return i + i * parts // size * (m - size) // parts",
        "return i + i * parts // size * m // parts",
    ),
    M(
        "worst2",
        "stability",
        "at = np.maximum.accumulate(at - rank) + rank",
        "at = np.maximum.accumulate(at)",
    ),
    M(
        "worst3",
        "stability",
        "return self.code.decoding_vector(survivors, self.method, message_dtype=self.dtype)",
        "return self.code.decoding_vector(survivors, message_dtype=self.dtype)",
    ),
    M("worst4", "stability", "if value > best[0]:", "if value < best[0]:"),
    M(
        "worst5",
        "stability",
        "silent.size + (not lost[at]) <= self.s",
        "silent.size + (not lost[at]) <= self.s + 1",
    ),
    M(
        "worst6",
        "stability",
        "return _BEYOND + self.amplification(survivors)\n        return math.log",
        "return _BEYOND\n        return math.log",
    ),
    M(
        "spare1",
        "stability",
        '("wait", s, s - number)):',
        '("wait", s, s)):',
    ),
    M(
        "spare2",
        "cli",
        'row["way"] == way and row["worst"] <= error',
        'row["way"] == way',
    ),
    # ------------------------------------------------------------------ simulation
    M("sim1", "simulation", "needed = spared + 1", "needed = max(spared, 1)"),
    M("sim2", "simulation", "if index[:needed].sum() <= 1:", "if index[:needed].sum() < 1:"),
    M(
        "sim3",
        "simulation",
        "if not interrupted and index[needed - 1] <= 1:",
        "if not interrupted and index[0] <= 1:",
    ),
    M(
        "sim4",
        "simulation",
        "done = np.floor(self._loads * np.maximum(np.clip(part, 0, 1), sent) + 1e-9)",
        "done = np.floor(self._loads * np.clip(part, 0, 1))",
    ),
    M(
        "sim5",
        "simulation",
        "receive * np.arange(queue.size, 0, -1)",
        "receive * np.arange(queue.size)",
    ),
    M("sim6", "simulation", "late[worker] -= end", "late[worker] = 0.0"),
    M(
        "sim7",
        "simulation",
        "for r in range(at, at + count)]",
        "for r in range(count)]",
    ),
    M("sim8", "draws", "if type(model) is Pareto:", "if isinstance(model, Pareto):"),
    M(
        "sim9",
        "closed_forms",
        "threshold, n - threshold + 1, work.cdf(",
        "threshold, n - threshold + 2, work.cdf(",
    ),
    M(
        "sim10",
        "closed_forms",
        "late = np.convolve(late, square)[:threshold]",
        "late = np.convolve(late, square)[1 : threshold + 1]",
    ),
    M("sim11", "closed_forms", "lost = sum(counts) - needed + 1", "lost = sum(counts) - needed"),
    M(
        "sim12",
        "closed_forms",
        "return t / done - self.cost",
        "return (t - self.cost) / done",
    ),
    M(
        "sim13",
        "closed_forms",
        "more = (1 - late) * held[: max(needed - work.load, 0)]\n            held *= late",
        "held *= late\n            more = (1 - late) * held[: max(needed - work.load, 0)]",
    ),
    M(
        "sim14",
        "closed_forms",
        "if most <= 1:",
        "if most < 1:",
    ),
    M(
        "sim15",
        "closed_forms",
        "return t - self.cost * done",
        "return (t - self.cost * done) * self.load / done",
    ),
    M(
        "sim16",
        "coverage",
        "ends = np.arange(1, self.n + 1) * self.block - 1",
        "ends = np.arange(1, self.n + 1) * self.block",
    ),
    M(
        "sim17",
        "coverage",
        "(self.lost + self.farthest - 1) // self.block",
        "(self.lost + self.farthest) // self.block",
    ),
    # ------------------------------------------------------------------ delays
    M(
        "delay1",
        "delays",
        "np.random.SeedSequence(seed, spawn_key=(round,))",
        "np.random.SeedSequence(seed + round)",
    ),
    M("delay2", "delays", "math.log1p((n - low) / low)", "math.log1p((n - low) / n)"),
    M("delay3", "delays", "_excess(x, c) - _excess(y, c)", "_excess(x, c) + _excess(y, c)"),
    M(
        "delay4",
        "delays",
        "return self.shift + hazard / self.rate",
        "return self.shift + hazard * self.rate",
    ),
    M("delay5", "delays", "if not most > 1:", "if not most >= 1:"),
    M("delay6", "delays", "needed = n - f + 1", "needed = n - f", "delays"),
    M(
        "delay7",
        "delays",
        "np.searchsorted(np.cumsum(self.weights[:-1]), picks",
        "np.searchsorted(np.cumsum(self.weights[1:]), picks",
    ),
    M(
        "delay8",
        "delays",
        'np.searchsorted(self._sorted, times, side="right")',
        'np.searchsorted(self._sorted, times, side="left")',
    ),
    M(
        "delay9",
        "delays",
        "np.partition(self.samples, f - 1, axis=1)[:, f - 1]",
        "self.samples[:, f - 1]",
    ),
    M(
        "delay10",
        "fit",
        "(math.log(shape / scale) - 1 - 1 / shape)",
        "(math.log(shape / scale) - 1 + 1 / shape)",
    ),
    M(
        "delay11",
        "fit",
        "p_value = (1 + as_far) / (1 + draws)",
        "p_value = as_far / draws",
    ),
    M(
        "delay12",
        "fit",
        "2 * parameters - 2 * log_likelihood",
        "parameters - 2 * log_likelihood",
    ),
    M(
        "delay13",
        "fit",
        "float(max((steps[1:] - cdf).max(), (cdf - steps[:-1]).max()))",
        "float((steps[1:] - cdf).max())",
    ),
    M("delay14", "delays closed_forms", "g = min(tail - 1, 1.0)", "g = 1.0"),
    M(
        "delay15",
        "delays closed_forms",
        "bad = np.abs(halves - whole) + in_lower + in_upper > _TOLERANCE * scale",
        "bad = np.abs(halves - whole) > _TOLERANCE * scale",
    ),
    # ------------------------------------------------------------------ checkpoints, training
    M(
        "keep1",
        "checkpoint",
        '"history": [self._size + len(added), digest.hexdigest()]',
        '"history": [self._size, digest.hexdigest()]',
    ),
    M(
        "keep2",
        "checkpoint",
        "left, at = left[written:], at + written",
        "left, at = left[written:], at",
    ),
    M(
        "keep3",
        "checkpoint",
        "if hashed.digest() != content[-_DIGEST_BYTES:]:",
        "if not hashed.digest():",
    ),
    M(
        "keep4",
        "checkpoint",
        "for what in dict.fromkeys([*run, *self._run])",
        "for what in run",
    ),
    M(
        "keep5",
        "checkpoint",
        "if self._hash.hexdigest() != digest or len(lines) != number:",
        "if len(lines) != number:",
    ),
    M(
        "keep6",
        "checkpoint",
        "fcntl.LOCK_EX | fcntl.LOCK_NB",
        "fcntl.LOCK_SH | fcntl.LOCK_NB",
    ),
    M(
        "keep7",
        "checkpoint",
        "part.unlink()  # to leave the room that it takes",
        "pass",
    ),
    M(
        "keep8",
        "linear checkpoint",
        "relative = np.round(values / largest, 6) + 0.0",
        "relative = np.round(values / largest, 6)",
    ),
    M(
        "keep9",
        "checkpoint",
        "os.replace(part, path)",
        "path.write_bytes(part.read_bytes())",
    ),
    M(
        "train1",
        "checkpoint training",
        "if over or number == rounds or number % every == 0:",
        "if number == rounds or number % every == 0:",
    ),
    M(
        "train2",
        "checkpoint training",
        "first = rounds + 1 if over else done + 1",
        "first = done + 1",
    ),
    M(
        "train3",
        "training",
        "gradient *= len(X) / (batch * code.k)",
        "gradient *= len(X) / batch",
    ),
    M(
        "train4",
        "training",
        "is not None:\n                add_regularisation(optimizer.point, gradient)",
        "is not None:\n                add_regularisation(optimizer.theta, gradient)",
    ),
    M(
        "train5",
        "training adaptive",
        "sum(samples[worker] for worker in asked)",
        "sum(samples)",
    ),
    M("train6", "checkpoint faults", "deaths + report.deaths,", "report.deaths,"),
    M(
        "train7",
        "training tracker",
        "tracked = tracker is not None and len(tracker.rounds) > known",
        "tracked = tracker is not None",
    ),
    M(
        "train8",
        "training",
        "{record.round - 1: record.received",
        "{record.round: record.received",
    ),
    M(
        "train9",
        "training",
        "communication += r.downloads + r.uploads",
        "communication += r.uploads",
    ),
    M(
        "train10",
        "training tracker",
        "drawn = None if batches is None else bind(batches, round=report.round)",
        "drawn = None if batches is None else bind(batches, round=number)",
    ),
    M("train19", "networks", "rate.set(number - 1)", "rate.set(number)"),
    M("train12", "networks", "stack.callback(rate.reset)", "pass"),
    M(
        "train13",
        "networks",
        "if number == rounds or number % evaluate_every == 0:",
        "if number % evaluate_every == 0:",
    ),
    M("train14", "networks", "partials[j], partition=j, round=round", "partials[j], partition=j"),
    M(
        "train15",
        "networks",
        'what["start"] = f"digest {digest([start_at])}"',
        'what["start"] = "given"',
    ),
    M("train16", "networks", "y != loss or r.evaluated", "True"),
    M(
        "train17",
        "networks",
        "(round - self.warmup) / (self.rounds - self.warmup)",
        "round / self.rounds",
    ),
    M("train18", "networks", "if not history.rounds[-1].evaluated:", "if False:"),
    # ------------------------------------------------------------------ data, models
    M("mlp1", "networks", "slope *= h > 0 if", "slope *= h >= 0 if"),
    M("mlp2", "networks", "else inputs + outputs))", "else inputs))"),
    M("mlp3", "networks", "if len(outputs) < len(layers):", "if len(outputs) <= len(layers):"),
    M(
        "data1",
        "data training",
        "spawn_key=(partition, round))",
        "spawn_key=(round,))",
    ),
    M("data2", "data", 'np.frombuffer(content, ">u4", axes', 'np.frombuffer(content, "<u4", axes'),
    M(
        "data3",
        "data",
        "if present[0] != 0 or present[-1] != len(present) - 1:",
        "if present[-1] != len(present) - 1:",
    ),
    M(
        "data4",
        "data",
        "place = np.concatenate([(np.arange(size) + 0.5) / size for size in sizes])",
        "place = np.concatenate([(np.arange(size) + 0.5) / sizes.max() for size in sizes])",
    ),
    M("data5", "data", "if self.size > held:", "if self.size > held + 1:"),
    M(
        "model1",
        "models",
        "weights = slice(0, self.features * self._columns)",
        "weights = slice(0, self.size)",
    ),
    M(
        "model2",
        "models",
        "scores -= scores.max(axis=1, keepdims=True)",
        "scores -= scores.max()",
        "fastgc/models.py",
    ),
    M(
        "model3",
        "models",
        "return super().smoothness(X) / 2",
        "return super().smoothness(X) / 4",
    ),
    M(
        "model4",
        "models",
        "if len(y) and not 0 <= y.min() <= y.max() < self.classes:",
        "if len(y) and not y.max() < self.classes:",
    ),
    M(
        "model5",
        "models",
        "math.sqrt(2 * self.loss(theta, X, y) / self.outputs)",
        "math.sqrt(2 * self.loss(theta, X, y))",
    ),
    M(
        "model6",
        "models",
        "A = np.ones((len(X), X.shape[1] + bias))",
        "A = np.ones((len(X), X.shape[1] + 1))",
    ),
    M(
        "model7",
        "models",
        "        if self.bias:\n            residual.sum",
        "        if True:\n            residual.sum",
    ),
    M(
        "data6",
        "data",
        'real = task == "regression" or (task == "auto" and any(map(_has_fractions, labels)))',
        'real = task == "regression" or (task == "auto" and all(map(_has_fractions, labels)))',
    ),
    M(
        "data7",
        "data",
        "alike = np.zeros(len(y), np.intp) if real else y",
        "alike = np.zeros(len(y), np.intp)",
    ),
    M(
        "data8",
        "data",
        'if y.dtype.kind != "f":\n        return False',
        'if y.dtype.kind == "U":\n        return False',
    ),
    M(
        "train11",
        "training",
        "measure=measure,\n        message_counts",
        "message_counts",
    ),
    M("zhu1", "reproduce", "level * (self.start - self.lowest)", "level * self.start"),
    M(
        "zhu2",
        "reproduce",
        "c = stated / groups**2 if scaled else stated",
        "c = stated / groups if scaled else stated",
    ),
    M("zhu3", "reproduce", 'if options.keys() == {"age"}:', "if options:"),
    M("zhu4", "reproduce", "return chosen[MAX_AGE:], float", "return chosen[:-MAX_AGE], float"),
    M("zhu5", "reproduce", "chosen[at, method.selected] = True", "chosen[at] = True"),
    M("zhu6", "reproduce", "vectors / (size + 1)", "vectors / size"),
    M(
        "zhu7",
        "reproduce",
        "MAX_AGE, BATCH, STEPS, LEVEL = 10, 20, 300, 0.05",
        "MAX_AGE, BATCH, STEPS, LEVEL = 10, 20, 300, 0.04",
    ),
    M(
        "plot1",
        "plotting",
        "plain_decades(ax.yaxis, percent=percent)",
        "plain_decades(ax.yaxis, percent=True)",
    ),
    M(
        "plot2",
        "plotting",
        "tested.test_error is not None and math.isfinite(tested.test_error)",
        "tested.test_error is not None and not math.isnan(tested.test_error)",
    ),
    M(
        "cli1",
        "cli",
        "reached = equal_error(histories) if target is None else target",
        "reached = 0.05 if target is None else target",
    ),
    M(
        "cli2",
        "cli",
        "LinearRegression(dataset.features, dataset.outputs, bias=bias)",
        "LinearRegression(dataset.features, dataset.outputs)",
    ),
    # ------------------------------------------------------------------ codes: Reed-Solomon
    M(
        "rs1",
        "reed_solomon",
        "[(2 * np.arange(d) - (d - 1)) % 4]",
        "[((d - 1) - 2 * np.arange(d)) % 4]",
    ),
    M("rs2", "reed_solomon", "return self.m * self.w // self.k - 1", "return self.w - 1"),
    M(
        "rs3",
        "reed_solomon",
        "sizes = -(partial + partial[:, ::-1]).min(axis=1)",
        "sizes = -(partial + partial[:, ::-1]).max(axis=1)",
    ),
    M("rs4", "reed_solomon", "if math.gcd(root, m) != 1:", "if root >= m:"),
    M(
        "rs5",
        "reed_solomon",
        "capacity = [m * load // (stragglers + 1) for m in sizes]",
        "capacity = [m * load // (stragglers + 1) + 1 for m in sizes]",
    ),
    M("rs6", "parity", "moments = np.arange(1, min(at.size", "moments = np.arange(0, min(at.size"),
    M(
        "rs7",
        "stream decoding_methods",
        "((count > need) & ~(norm <= 1 + 1e-9)).any()",
        "((count > need) & ~(norm <= 1 + 1e-9)).all()",
    ),
    M(
        "rs8",
        "decoding_methods stability",
        "np.where(angle == -np.pi, np.pi, angle)",
        "angle",
    ),
    M(
        "rs9",
        "reed_solomon",
        "held + np.where(beyond < 0, 0, heavy) + self.first_partition",
        "held + np.where(beyond < 0, 0, heavy)",
    ),
    M(
        "rs10",
        "near_exact",
        "log_square = min(log_square, 0)",
        "pass",
    ),
    M(
        "rs11",
        "vandermonde",
        "chosen = (chosen % n).astype(np.int64)",
        "chosen = chosen.astype(np.int64)",
    ),
    M(
        "rs12",
        "vandermonde",
        "terms = np.concatenate([part[k : k + 1], -high, -low])",
        "terms = np.concatenate([part[k : k + 1], -high])",
    ),
    M(
        "rs13",
        "vandermonde",
        "bool(order.view(np.uint64).max() < shape[0])",
        "bool(order.max() < shape[0])",
    ),
    # ------------------------------------------------------------------ codes: Lagrange, parity
    M("lcc1", "lagrange", "blocks = padded.reshape(P, K, -1)", "blocks = padded.reshape(K, P, -1)"),
    M(
        "lcc2",
        "lagrange",
        "chosen = vandermonde.leja_order(self._beta[survivors])[: self.threshold]",
        "chosen = np.arange(self.threshold)",
    ),
    M(
        "lcc3",
        "parity lagrange",
        "H[:, chosen] = -interpolation.basis(",
        "H[:, chosen] = interpolation.basis(",
    ),
    M(
        "lcc4",
        "codes lagrange",
        "np.where(first == second, 1, np.sqrt(2))",
        "np.where(first == second, 1, 2)",
    ),
    M("lcc5", "lagrange", "n - -(-needed // sent)", "n - needed // sent"),
    M(
        "lcc6",
        "lagrange",
        "% n * sent + layer[t]",
        "% n * sent + t",
    ),
    M(
        "lcc7",
        "interpolation",
        "const int64_t e = exponent[i] + exponent_of(size);",
        "const int64_t e = exponent[i] + exponent_of(size) + 1;",
    ),
    M(
        "lcc8",
        "interpolation",
        "if largest and farthest / _FARTHEST > largest:",
        "if False and farthest:",
    ),
    M(
        "parity1",
        "parity",
        "np.abs(self.coefficient) ** 2 * squares[self.position]",
        "np.abs(self.coefficient) * squares[self.position]",
    ),
    M("parity2", "parity", "part.first + end - part.position.size", "part.first + end"),
    M(
        "parity3",
        "parity",
        "largest = max(largest, self._largest / top)",
        "largest = max(largest, 0.0)",
    ),
    M(
        "parity4",
        "parity",
        "if np.linalg.norm(wrong - mine @ change) <= math.sqrt(wrong.size):",
        "if np.linalg.norm(wrong - mine @ change) <= 1000 * wrong.size:",
    ),
    M(
        "parity5",
        "parity",
        "if self._coverable is None or self._coverable[0] != corrupt:",
        "if self._coverable is None:",
    ),
    M(
        "parity6",
        "parity",
        "small = np.ldexp(message.view(self._real), -600)",
        "small = np.ldexp(message.view(self._real), -60)",
    ),
    M(
        "trust1",
        "round_and_encoder stability codes",
        "squared += gradient**2 * growth_squared * partial_steps",
        "squared += gradient**2 * growth_squared",
    ),
    M(
        "trust2",
        "codes uncoded",
        "error = float(np.hypot(np.sqrt(squared), wrong))",
        "error = float(np.sqrt(squared))",
    ),
    M("trust3", "stability half codes", "if message > sums:", "if message > gradient:"),
    # ------------------------------------------------------------------ codes: the rest
    M(
        "cache1",
        "cache",
        'key = mask.key(f) if method == "auto" and cache.nbytes else None',
        "key = mask.key(f) if cache.nbytes else None",
    ),
    M(
        "cache2",
        "cache",
        "while self._held > self.nbytes or len(self._found) > most:",
        "while len(self._found) > most:",
    ),
    M("cache3", "cache", "self._held -= nbytes", "self._held -= 0 * nbytes"),
    M(
        "rule1",
        "grouped codes repetition",
        "heaviest = np.sort(self.weight[~came])[::-1]",
        "heaviest = np.sort(self.weight[~came])",
    ),
    M(
        "rule2",
        "parity binary",
        "end, other, way = other, end, -way",
        "end, other, way = other, end, way",
    ),
    M(
        "rule3",
        "codes round_and_encoder",
        "self._open -= self._lacking[b] == 0",
        "self._open -= self._lacking[b] <= 0",
    ),
    M(
        "rule4",
        "grouped codes",
        "rule.need == int(rule.weight.sum())",
        "rule.need <= int(rule.weight.sum())",
    ),
    M(
        "rule5",
        "binary codes",
        "edges.setdefault(stop, []).append((start, at, -1))",
        "edges.setdefault(stop, []).append((start, at, 1))",
    ),
    M(
        "rule6",
        "codes binary",
        "return self._root(0) == self._root(self._k)",
        "return self._root(self._start[message]) == self._root(self._k)",
    ),
    M(
        "binary1",
        "binary",
        "for (int back = 0; back < 2; back++) {",
        "for (int back = 1; back < 2; back++) {",
    ),
    M(
        "binary2",
        "binary",
        'size[np.argsort(size - ideal, kind="stable")[:-excess]] += 1',
        'size[np.argsort(ideal - size, kind="stable")[:-excess]] += 1',
    ),
    M(
        "group1",
        "grouped codes",
        "return math.sqrt(squares / self.k)",
        "return math.sqrt(squares / self.groups)",
    ),
    M(
        "group2",
        "grouped codes",
        "self.message_count - min(spare)",
        "self.message_count - max(spare)",
    ),
    M("group3", "grouped", "if form.scaled else row[:-1]", "if form.scaled else row"),
    M("group4", "grouped half", "np.delete(row, inner.form.length)", "row[:-1]"),
    M(
        "uncoded1",
        "uncoded codes",
        "return math.sqrt((self.k - came) / (came if self.rescale else self.k))",
        "return math.sqrt((self.k - came) / self.k)",
    ),
    M(
        "uncoded2",
        "uncoded codes",
        'np.searchsorted(heaviest_lost, k - self._need, side="right")',
        'np.searchsorted(heaviest_lost, k - self._need, side="left")',
    ),
    M(
        "uncoded3",
        "uncoded codes",
        "self._fewest_lost(self.k - self._need + 1) + 1",
        "self._fewest_lost(self.k - self._need + 1)",
    ),
    M(
        "cyclic1",
        "codes linear",
        "H[:, -1] = -H[:, :-1].sum(axis=1)",
        "H[:, -1] = H[:, :-1].sum(axis=1)",
    ),
    M(
        "ridge1",
        "ridge",
        "if bias > DOUBLE / unit * rounding:",
        "if False:",
    ),
    M(
        "ridge2",
        "ridge",
        "if bias > _BIASED * rounding or not math.hypot(bias, rounding) <= unit ** (5 / 8):",
        "if False:",
    ),
    M(
        "ridge3",
        "ridge",
        "np.fill_diagonal(system[unknowns:], 2 * unit)",
        "np.fill_diagonal(system[unknowns:], 2000 * unit)",
    ),
    M(
        "ridge4",
        "ridge",
        "self._sizes = row_sizes(B)",
        "self._sizes = np.ones(len(B))",
    ),
    M(
        "ridge5",
        "ridge",
        "if remains + grown < math.hypot(bias, rounding):",
        "if math.hypot(remains, grown) < math.hypot(bias, rounding):",
    ),
    M(
        "random1",
        "repetition codes",
        "return _mixed(key + (workers.astype(np.uint64) + np.uint64(1)) * _STEP)",
        "return key + (workers.astype(np.uint64) + np.uint64(1)) * _STEP",
    ),
    M(
        "random2",
        "codes repetition",
        "np.put_along_axis(new, order[:, 1:], ordered[:, 1:] != ordered[:, :-1], axis=1)",
        "np.put_along_axis(new, order[:, 1:], ordered[:, 1:] >= ordered[:, :-1], axis=1)",
    ),
    M(
        "together1",
        "simulation codes",
        "shares[np.repeat(self.sends_together, counts)] = 1.0",
        "shares[np.repeat(self.sends_together, counts)] *= 1.0",
    ),
    M(
        "together2",
        "repetition",
        "at_once = np.where(together, counts, 1).tolist()",
        "at_once = [1] * self.n",
    ),
    M(
        "together3",
        "engine_simulated conformance",
        "if worker == self._sender and self._together[worker]:",
        "if False:",
    ),
    M(
        "shares1",
        "simulation codes",
        "sent = np.arange(1, counts.sum() + 1) - np.repeat(np.cumsum(counts) - counts, counts)",
        "sent = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)",
    ),
    M(
        "cluster1",
        "reed_solomon codes",
        "first_worker=0, first_partition=0)\n        if alike in known:\n            continue",
        "first_worker=0, first_partition=0, k=0)\n        if alike in known:\n            continue",
    ),
    M(
        "tiling1",
        "binary codes",
        "return self._root(0) == self._root(self._k)",
        "return start == stop",
    ),
    M(
        "assign1",
        "assign",
        "names = sorted(found, key=lambda name: found[name].mean)",
        "names = sorted(found)",
    ),
    M(
        "assign2",
        "binary",
        'slowest = np.argsort(total, kind="stable")[: dealt.size]',
        "slowest = np.arange(dealt.size)",
    ),
    M(
        "assign3",
        "binary",
        "np.maximum.at(fastest, block, speed[fast])",
        "np.add.at(fastest, block, speed[fast])",
    ),
    M(
        "assign4",
        "binary",
        "ends[2 * pair], ends[2 * pair + 2]",
        "ends[2 * pair], ends[2 * pair + 1]",
    ),
    M(
        "assign5",
        "reed_solomon",
        "waited = np.array([np.sort(each)[stragglers] for each in members])",
        "waited = np.array([np.sort(each)[0] for each in members])",
    ),
    M(
        "assign6",
        "plan cli",
        '"binary": [f",assignment={each}" for each in ASSIGNMENTS if each != "uniform"],',
        '"binary": [""],',
    ),
    M(
        "fair1",
        "stability",
        "s = next((s for s in every if nearest(s) == s and figure(s) <= most), -1)",
        "s = next((s for s in every if nearest(s) == s and figure(s) < most), -1)",
    ),
    M(
        "fair2",
        "stability",
        "s = nearest(bisect.bisect_right(every, most, key=figure) - 1)",
        "s = nearest(bisect.bisect_left(every, most, key=figure) - 1)",
    ),
    M(
        "fair3",
        "stability",
        "return max(first, nearest(min(max(reference.stragglers, first), s)))",
        "return nearest(s)",
    ),
    M(
        "fair4",
        "stability",
        "first = bisect.bisect_left(every, figure(s), key=figure)",
        "first = 0",
    ),
    M(
        "fair5",
        "cli stability",
        'if equal != "stragglers" and text != chosen[0]:',
        "if False:",
    ),
    M(
        "integer1",
        "integers",
        "if is_integer(out.dtype) and (vector != np.rint(vector)).any():",
        "if False:",
    ),
    M(
        "rec1",
        "codes errors",
        "return np.flatnonzero(array)",
        "return np.flatnonzero(~array)",
    ),
    # ------------------------------------------------------------------ engines
    M(
        "engine1",
        "faults engine_local",
        "        self._idle_deaths[worker] = 0\n        # It is",
        "        self._idle_deaths[worker] += 0\n        # It is",
    ),
    M("engine2", "engine_local faults", "over = number + (sent == end - 1)", "over = number"),
    M(
        "engine3",
        "faults engine_local",
        "elif sent in self._heard:",
        "elif sent < 0:",
    ),
    M(
        "engine4",
        "faults",
        "pause = min(_FIRST_PAUSE * 2.0 ** (idle - 1), _LONGEST_PAUSE) if idle else 0.0",
        "pause = 0.0 * idle",
    ),
    M(
        "engine5",
        "faults",
        "self._left = max(0.0, before - self._now())",
        "self._left = self._options.patience",
    ),
    M(
        "engine6",
        "faults engine_simulated",
        'return rnd.decodable or (self._options.partial != "raise" and rnd.survivors.size > 0)',
        'return rnd.decodable or self._options.partial != "raise"',
    ),
    M(
        "engine7",
        "faults",
        "and (message.dtype is dtype or message.dtype == dtype)",
        "and (message.dtype is dtype or message.dtype is not None)",
    ),
    M("engine8", "faults", "if first + sent == end:", "if first + sent > end:"),
    M(
        "engine9",
        "conformance",
        "for m in self._chosen.tolist():",
        "for m in sorted(self._held):",
    ),
    M(
        "engine10",
        "engine_simulated",
        "after = end + self._overhead",
        "after = end + 0 * self._overhead",
    ),
    M(
        "engine11",
        "engine_simulated",
        "at = max(self._elapsed, self._arrival[number])",
        "at = self._arrival[number]",
    ),
    M(
        "engine12",
        "engine_local training",
        "else batch(shard, partition, self._round)",
        "else batch(shard, partition, self._round + 1)",
    ),
    M(
        "engine13",
        "faults engine_local conformance",
        "return delay / self._parts if index < self._parts else 0.0",
        "return delay / self._parts",
    ),
    M(
        "engine14",
        "engine_local",
        "stride = self._stride(length, dtype)\n            strides",
        "stride = length * dtype.itemsize // 64 * 64 or 64\n            strides",
    ),
    M(
        "engine15",
        "engine_local conformance",
        "Kind.MESSAGE, worker, number, index, slots[first[worker] + index]",
        "Kind.MESSAGE, worker, number, 0, slots[first[worker] + index]",
    ),
    M(
        "local1",
        "engine_local conformance",
        "held = np.frombuffer(memory.map, np.uint8)",
        "held = memory.map",
    ),
    M("local2", "conformance", 'memories[0], "read")', "memories[0])"),
    M("memory1", "engine_memory", "_ALIGNED = 64", "_ALIGNED = 1"),
    M("memory2", "engine_memory", "return raw.nbytes < _APART", "return True"),
    M("local3", "fork_server", "    fork_server.end_with(life)\n", ""),
    M("local4", "fork_server", "functools.partial(os.close, inbox)", "lambda: None"),
    M(
        "local5",
        "fork_server",
        "if self._hurry and insist != signal.SIGKILL:",
        "if False:",
    ),
    M("local6", "conformance", "self._bits.fill(self._unwritten)", "pass"),
    M(
        "local7",
        "conformance",
        "        if last is not None:\n            last.lapse(",
        "        if False:\n            last.lapse(",
    ),
    M(
        "local8",
        "fork_server",
        "            again = list(self._asked.values())",
        "            again = []",
    ),
    M(
        "local9",
        "fork_server",
        "self.lost = self.lost or time.monotonic() > self.deadline",
        "pass",
    ),
    M("alias1", "round_and_encoder", "target is None or rows.overlap(target)", "target is None"),
    M(
        "alias2",
        "round_and_encoder",
        "extent = array.nbytes + self.nbytes - 1",
        "extent = array.nbytes",
    ),
    M(
        "alias3",
        "checkpoint",
        "_write_all(self._history, added, self._size)",
        "os.write(self._history, added)",
    ),
    M("alias4", "checkpoint", "flags | os.O_NOFOLLOW", "flags"),
    M("alias5", "vandermonde", "keep = (limit <= 0.5 * size)", "keep = (limit <= 1e9 * size)"),
    M(
        "order1",
        "vandermonde",
        "settled &= accurate[col] = is_accurate(&first, col, m, complex);",
        "settled &= accurate[col] = 1;",
    ),
    M(
        "order2",
        "vandermonde",
        "return most_relative < least_relative && (most",
        "return 1 || (most",
    ),
    M(
        "order3",
        "vandermonde",
        "known = e * size[t] + IN_QUOTIENT * about(before, complex);",
        "known = e * size[t];",
    ),
    M(
        "order4",
        "vandermonde",
        "limit = np.fmin(limit, 1.01 * np.exp(found))",
        "limit = np.fmin(limit, 1e-6 * np.exp(found))",
    ),
    M(
        "order5",
        "vandermonde",
        "limit = _UNIT * (np.abs(residual) + 32 * m * _UNIT * sums)",
        "limit = _UNIT * np.abs(residual)",
    ),
    M(
        "alias6",
        "threads",
        "before=_lock.acquire, after",
        "before=lambda: _lock.acquire(False), after",
    ),
    M(
        "engine16",
        "engine_mpi",
        "self._newest[0] = self._told = number",
        "self._newest[0] = number",
    ),
    M(
        "engine17",
        "engine_mpi",
        "if index + 1 < len(self._slots):",
        "if index < len(self._slots) - 2:",
    ),
    M(
        "engine18",
        "engine_simulated simulation",
        "if self._late[worker] <= after < arrival:",
        "if after < arrival:",
    ),
    M(
        "engine19",
        "engine_local errors",
        "if rnd.code is not own.code or rnd.form != own.form:",
        "if rnd.form != own.form:",
    ),
    M(
        "engine20",
        "faults engine_local",
        "if not self._options.verify or not rnd.replaceable:",
        "if not rnd.replaceable:",
    ),
    M(
        "engine21",
        "engine_local engine_simulated",
        "if not (times >= 0).all():",
        "if (times < 0).any():",
    ),
    M(
        "engine22",
        "faults",
        "self._stale += event.kind == Kind.MESSAGE",
        "self._stale = int(event.kind == Kind.MESSAGE)",
    ),
    M("ring1", "rings", "given % 2);\n        order[0]", "given % 1);\n        order[0]"),
    M(
        "ring2",
        "rings",
        "if (read_shared(orders + 1) != birth)",
        "if (read_shared(orders + 1) < 0)",
    ),
    M("ring3", "rings", "atomic_exchange(wanted, 0) > 0", "0"),
    M("ring4", "rings", "atomic_fetch_sub(wanted, 1) == 1", "atomic_fetch_sub(wanted, 1) == 2"),
    M("ring5", "rings", "return (x > y) - (x < y);", "return 0 * (x > y);"),
    M("ring6", "rings", "count > FEW ? ~0u : bits", "count > FEW ? 1u : bits"),
    M("ring7", "rings", "n.index == 0 && n.round == handed(r, n.worker)", "n.index == 0"),
    M("ring8", "rings", "else if (n.round >= newest)", "else if (0)"),
    M("ring9", "rings", "(into->once || state[1] <= 0)", "state[1] <= 0"),
    M("ring10", "rings", "return others ? -1 :", "return 0 * others ? -1 :"),
    M(
        "ring11",
        "arrivals round_and_encoder",
        "a->state[1] -= a->weight[block];",
        "a->state[1] -= 1;",
    ),
    M(
        "ring12",
        "faults fork_server",
        "rings.look is not None and time.monotonic() < self._server.deadline",
        "rings.look is not None",
    ),
    M(
        "ring13",
        "round_and_encoder",
        "self._decodable = self._arrivals.enough\n        self._decide()",
        "self._decodable = self._ready = self._arrivals.enough",
    ),
    # ------------------------------------------------------------------ planning, command line
    M(
        "plan1",
        "plan",
        "float(np.median(longer - times)) / (more - 1)",
        "float(np.median(longer - times)) / more",
    ),
    M("plan2", "loads", "rate = mu / (1 + y)", "rate = mu / y"),
    M("plan3", "loads", "harmonic / rates.min()", "harmonic / rates.max()"),
    M(
        "plan4",
        "loads",
        "return CoverageBounds(_least_mean(k, shifts, rates), upper + 1)",
        "return CoverageBounds(_least_mean(k, shifts, rates), upper)",
    ),
    M("plan5", "optimum", "return -(-k * (n - f + 1) // n)", "return k * (n - f + 1) // n"),
    M(
        "plan6",
        "optimum",
        "f = n - int(np.nanargmin(times[::-1]))",
        "f = 1 + int(np.nanargmin(times))",
    ),
    M(
        "plan7",
        "plan",
        "receive=8 * p * code.message_weight / bandwidth,",
        "receive=p / bandwidth,",
    ),
    M("plan8", "plan", "best.setdefault(choice.name, choice)", "best[choice.name] = choice"),
    M(
        "plan9",
        "optimum",
        "alpha = float(found.x) if found.fun < times[-1] else room",
        "alpha = float(found.x)",
    ),
    M(
        "plan10",
        "loads",
        'loads[np.argsort(loads - ideal, kind="stable")[: total - loads.sum()]] += 1',
        'loads[np.argsort(ideal - loads, kind="stable")[: total - loads.sum()]] += 1',
    ),
    M("fraction1", "optimum", "room = math.floor(held * (1 + _SHORT))", "room = math.floor(held)"),
    M(
        "fraction2",
        "optimum",
        "return min(max_load / k, 1.0)",
        "return min(max_load / max(n, 1), 1.0)",
    ),
    M("boolean1", "codes", "return np.flatnonzero(array)", "return np.flatnonzero(~array)"),
    M("boolean2", "codes", "if array.size != count:", "if array.size > count:"),
    M("halbawi1", "reproduce", "sums *= scale", "pass", "clocked"),
    M("halbawi2", "reproduce", "    lowest += [min(errors)", "    [min(errors)", "halbawi"),
    M(
        "halbawi3",
        "reproduce",
        "np.flatnonzero(errors <= target)",
        "np.flatnonzero(errors < target)",
    ),
    # -------------------------------------- scales, energies, gates, liars: what nobody sees
    M("scale1", "half", "_MOST, _ZERO = 255, 0x7E00 + 256", "_MOST, _ZERO = 100, 0x7E00 + 256"),
    M("scale2", "half", "_TOP = 15", "_TOP = 17"),
    M("scale3", "half", "wide = np.float64 if abs(exponent) > 100 else None", "wide = None"),
    M(
        "scale4",
        "half",
        "    if unit != 1.0:\n        factors /= unit",
        "    if unit != unit:\n        factors /= unit",
    ),
    M("scale6", "half", "_SCALES.get(end) if read else 0.0", "_SCALES.get(end)"),
    M("scale7", "half", "max(float(sums.max()), -float(sums.min()))", "float(sums.max())"),
    M("scale8", "half", "scale = _SCALES.get(bits)\n", "scale = _SCALES.get(bits, 1.0)\n"),
    M(
        "scale9",
        "half",
        "return (vector.T * factors).T, unit",
        "return (vector.T * factors).T, 1.0",
    ),
    M("energy1", "kernels", "sum += it->weight[r] *", "sum +="),
    M(
        "energy2",
        "kernels",
        "const int64_t len = (to < it->in_len ? to : it->in_len) - lo;",
        "const int64_t len = it->in_len - lo;",
    ),
    M(
        "energy3",
        "round_and_encoder",
        "= self._coef[at], self._squares[at]",
        "= self._coef[at], 1.0",
    ),
    M(
        "energy4",
        "round_and_encoder codes",
        "        self._added.clear()\n        self._energy[0] = 0.0",
        "        self._added.clear()",
    ),
    M("past1", "kernels", "return len - len % 2;", "return len;"),
    M("past2", "kernels", "found = _mm_or_pd(found, _mm_sub_pd(v, v));", ""),
    M(
        "past3",
        "kernels",
        "found = _mm_or_ps(found, _mm_sub_ps(v, v));",
        "found = _mm_sub_ps(v, v);",
    ),
    M("past4", "kernels", " && (uintptr_t)to % 16 == 0)", ")"),
    M("apart7", "direct", "weight + at, 1, plan->extent", "weight, 1, plan->extent"),
    M("simd1", "kernels", "best = levels[i].table;", "best = levels[0].table;", "dispatch.c"),
    M("simd2", "kernels", "f.extended = b;", "f.extended = c;", "dispatch.c"),
    M("simd3", "kernels", "ZMM = 0xe6", "ZMM = 0x1e6", "dispatch.c"),
    M("apart1", "direct", "(row - it->lowest < it->extent) |", "", "apart.c"),
    M("apart2", "direct", " | (row % it->size != 0)", "", "apart.c"),
    M("apart8", "direct", "a->type == first->type && ", "", "apart.c"),
    M("apart9", "direct", "a->dtype == first->dtype && ", "", "apart.c"),
    M("apart10", "direct", " && a->shape[0] == first->shape[0]", "", "apart.c"),
    M("apart11", "direct", "(a->flags & CONTIGUOUS)", "1", "apart.c"),
    M("apart3", "direct", "{out - row + 1, row + made - 1,", "{out - row, row + made - 1,"),
    M("apart4", "direct", "{out - row + 1, row + made - 1,", "{out - row + 1, row + made - 2,"),
    M("apart5", "direct", "if (count > FEW) {", "if (count > FEW + 9) {"),
    M(
        "apart6",
        "direct",
        "        used += x != 0 || y != 0;",
        "        used += x != 0;",
        "apart.c",
    ),
    M(
        "direct1",
        "direct",
        "active = kernels.choice.active or kernels.choice.load()\n    if",
        "active = kernels.choice.active\n    if",
    ),
    M("direct2", "direct", "[*map(_dtype_of, arrays)].count(first.dtype) == count", "True"),
    M("direct3", "direct", "[*map(_shape_of, arrays)].count((first.size,)) == count", "True"),
    M("direct4", "direct", "pieces > 1 or not coef.all():", "pieces > 1:"),
    M("direct5", "direct", "and out.flags.carray:", "and out.flags.c_contiguous:"),
    M("direct7", "direct", "shared = not self._direct and", "shared = False and"),
    M("direct8", "direct", "if type(worker) is not int or type(index) is not int:", "if False:"),
    M("direct6", "direct", "None if code.gated else combinations(", "combinations("),
    M("energy5", "kernels", "all += sum[piece];", "all = sum[piece];"),
    M("pool1", "pool", "job(data, piece);", "job(data, 0);", "csrc"),
    M("pool2", "pool", "    pool.started = 0;\n", "", "csrc"),
    M("pool3", "pool", "return it->extent - lo < it->part ? it->extent", "return 0 ? it->extent"),
    M("pool4", "pool", "pthread_sigmask(SIG_SETMASK, &all, &before);", "(void)before;", "csrc"),
    M("pool5", "pool", "if (!CPU_COUNT(&others))", "if (0)", "csrc"),
    M("pool6", "pool", "    place(helpers);\n", "", "csrc"),
    M("pool7", "pool", "if (work < least || now()", "if (now()", "csrc"),
    M("pool8", "pool", 'if quota not in ("max", "-1")', 'if quota != "max"'),
    M("pool9", "pool", "least = min(least, _share(folder))", "least = _share(folder)"),
    M("pool10", "pool", "_tell(_threads, -1)", "_tell(_threads, 0)"),
    M("finite1", "kernels", "*found |= (bits_float)(v - v);", ";"),
    M("fold1", "kernels", "enum { FOLD = 8, MOST", "enum { FOLD = 32, MOST"),
    M("fold2", "kernels", "sum[t] = PLUS(sum[t], WIDEN(u[t]));", "sum[t] = WIDEN(u[t]);"),
    M("fold3", "kernels", "(__mmask8)(FIRST(some) >> LANES), v.high", "(__mmask8)-1, v.high"),
    M("finite2", "kernels", "        bad |= found[t] != 0;", "        bad = found[t] != 0;"),
    M("finite3", "errors kernels", "bad |= FGC_JOIN(nonfinite, OUT)(to + written - 1, 1);", ";"),
    M(
        "pool11",
        "kernels",
        "it->flags, it->out))                  \\\n            atomic_store_explicit(&it->bad, 1",
        "it->flags, it->out))                  \\\n            atomic_store_explicit(&it->bad, 0",
    ),
    M("pool12", "kernels", 'vars(call)["rows"] = rows  # the', "pass  # the"),
    M("energy6", "round_and_encoder", "growth_squared = max(growth_squared, inside)", "pass"),
    M(
        "energy7",
        "round_and_encoder",
        "zero = spread == 0 and not inside > 0 and",
        "zero = spread == 0 and",
    ),
    M(
        "energy8",
        "round_and_encoder",
        "a->energies[count] = energy >= 0 ? energy : NAN;",
        "a->energies[count] = energy;",
    ),
    M(
        "energy9",
        "engine_local conformance",
        "message, energy = self._held[m]",
        "message, energy = self._held[m][0], math.nan",
    ),
    M("heed1", "parity", "vector[~used & (brought > rounding)] = 0", "vector[used & False] = 0"),
    M("heed2", "parity", "vector[~used & (brought > rounding)] = 0", "vector[~used] = 0"),
    M(
        "gate1",
        "lagrange",
        "return int(whole.sum()) < (self.n if self.awaited is None else self.awaited)",
        "return int(whole.sum()) < self.n",
    ),
    M(
        "gate2",
        "lagrange",
        "if self.code.waits and self.code.awaits_more(",
        "if False and self.code.awaits_more(",
    ),
    M(
        "gate3",
        "lagrange simulation",
        "if ready and not self.awaits_more(np.array(heard)):",
        "if ready:",
    ),
    M(
        "gate4",
        "lagrange half",
        "limit = max(self._limit, math.sqrt(unit_roundoff(form.message_dtype)))",
        "limit = self._limit",
    ),
    M(
        "gate5",
        "lagrange",
        "errors[used] = 4 * used.size * ROUNDING",
        "errors[used] = 0 * used.size * ROUNDING",
    ),
    M("gate6", "lagrange", "return errors[-1 - trials // 1000]", "return errors[len(errors) // 2]"),
    M(
        "gate7",
        "lagrange simulation",
        'elif method == "auto" and code.waits:',
        "elif code.waits and False:",
    ),
    M(
        "gate8",
        "lagrange",
        "if survivors.size < self.threshold + self._margin:",
        "if False:",
    ),
    M(
        "gate9",
        "lagrange",
        "math.ceil(part * needed * (1 - 1e-12))",
        "int(part * needed)",
    ),
    M(
        "liar1",
        "parity",
        "            self._projection.renew()\n            self._fresh = True",
        "            self._fresh = True",
    ),
    M(
        "liar2",
        "parity",
        "np.random.default_rng(secrets.randbits(128)) if rng is None else rng",
        "np.random.default_rng(0) if rng is None else rng",
    ),
    M(
        "circle1",
        "stability",
        "lost = np.isin(code.rings()[0], silent)",
        "lost = np.isin(np.arange(code.n), silent)",
    ),
    M(
        "circle2",
        "stability",
        "yield from (circle[window] for window in contiguous(code.n, s, sets, rng))",
        "yield from contiguous(code.n, s, sets, rng)",
    ),
    M(
        "circle3",
        "stability",
        "return code.decoding_vector(survivors, method, message_dtype=kind)",
        "return code.decoding_vector(survivors, method)",
    ),
    M(
        "circle4",
        "stability",
        "predicted.append(experiment.trust(survivors, vector))",
        "predicted.append(experiment.trust(survivors))",
    ),
    M(
        "liar3",
        "parity",
        "surely = set(found[0]).intersection(*found[1:]) if found else set()",
        "surely = set(found[0]) if found else set()",
    ),
    M(
        "liar4",
        "parity",
        "if np.linalg.norm(wrong - mine @ change) <= math.sqrt(wrong.size):",
        "if np.linalg.norm(wrong - mine @ change) <= 1e-9 * math.sqrt(wrong.size):",
    ),
    M("liar6", "parity", "if self.liars > 1 and covered.any():", "if False:"),
    M(
        "liar7",
        "parity half",
        "self._values.append(self._projection(message) * scale)",
        "self._values.append(self._projection(message))",
    ),
    M(
        "liar8",
        "parity lagrange",
        "self._largest = max(self._largest, largest * top)",
        "self._largest = 0.0",
    ),
    M(
        "liar9",
        "parity",
        "for size in range(1, min(most, len(workers)) + 1):",
        "for size in range(1, min(1, len(workers)) + 1):",
    ),
    M(
        "bound1",
        "stability",
        "bound += coarse * (math.sqrt(code.k) + bound)",
        "bound += coarse * bound",
    ),
    M(
        "bound2",
        "stability",
        "work = _gamma(code.computation_roundings(terms), max(result, coarse))",
        "work = _gamma(code.computation_roundings(terms), result)",
    ),
    M(
        "precise1",
        "half codes",
        'self._known_precisions[key] = float(np.quantile(blamed, 0.9, method="lower"))',
        'self._known_precisions[key] = float(np.quantile(blamed, 0.1, method="lower"))',
    ),
    M(
        "leja3",
        "vandermonde",
        "for (i = m; i < padded; i++) /* where no node is */",
        "for (i = m; i < m; i++)",
    ),
    M(
        "lapse1",
        "conformance engine_local round_and_encoder",
        "        if last is not None:\n            last.lapse(",
        "        if False:\n            last.lapse(",
    ),
    M(
        "unwritten1",
        "engine_local conformance",
        "self._bits.fill(self._unwritten)  # what",
        "pass  # what",
    ),
    M("unwritten2", "engine_local conformance", "if math.isnan(encoder.energy):", "if False:"),
    M(
        "returned1",
        "engine_local conformance",
        "_check_returned(self._gradient(theta, part, partial), partial)",
        "self._gradient(theta, part, partial)",
    ),
    M("server1", "fork_server", "self._server.ready or self._server.killed", "self._server.ready"),
    M("plan11", "loads", "-s * k\n        mean = 0.0", "-s * (k + 1)\n        mean = 0.0"),
    M(
        "plan12",
        "loads",
        "return float(sum(1 - enough(t) for t in times.tolist())) * end / _STEPS",
        "return float(sum(1 - enough(t - end / _STEPS) for t in times.tolist())) * end / _STEPS",
    ),
    M(
        "cada1",
        "closed_forms adaptive",
        "oldest = max_age if oldest is None else",
        "oldest = max_age + 1 if oldest is None else",
    ),
    # ------------------------------------------------------------------ near-exact vectors
    M("near1", "near_exact_kernels", "w[j] += mu * mu;", "w[j] += mu;", "near_exact.c"),
    M(
        "near2",
        "near_exact_kernels",
        "row[k] = k > j ? 0 : k == j ? v : row[k];",
        "row[k] = k >= j ? v : row[k];",
    ),
    M(
        "near3",
        "near_exact_kernels",
        "sum -= spread(overlap[i * STRIP + j])",
        "sum += spread(overlap[i * STRIP + j])",
    ),
    M(
        "near4",
        "near_exact_kernels",
        "end = i + CHAINS * CHUNK < j + s ? i + CHAINS * CHUNK : j + s;",
        "end = i + CHAINS * CHUNK < j + s ? i + CHAINS * CHUNK : j + s - 1;",
    ),
    M(
        "near5",
        "near_exact_kernels",
        "const int64_t below = (p + 1) * STRIP < c ? (p + 1) * STRIP : c;",
        "const int64_t below = p * STRIP < c ? p * STRIP : c;",
    ),
    M(
        "near6",
        "near_exact_kernels",
        "const double mu = unit * sqrt(2 * (double)n);",
        "const double mu = unit * sqrt(4 * (double)n);",
    ),
    M(
        "near7",
        "near_exact_kernels",
        "_fill(circle, turns, c, unit * math.sqrt(2.0 * n), columns)",
        "_fill(circle, turns, c, unit * math.sqrt(4.0 * n), columns)",
    ),
    M(
        "near8",
        "near_exact_kernels",
        "2 * unit * math.sqrt(n)",
        "unit * math.sqrt(n)",
        "numpy/near_exact.py",
    ),
    M("near9", "near_exact_kernels", "small[np.diag_indices_from(small)] += 1", "pass"),
    M("near10", "near_exact_kernels", "* -under", "* under"),
    M("near11", "near_exact_kernels", "if error <= _ENOUGH * unit or", "if error >= 0 or"),
    M("near12", "near_exact_kernels", "z[others] = w.T @ z[columns]", "z[others] = 0"),
    M("near13", "near_exact", "ROUNDED = 4.0", "ROUNDED = 1.0"),
    M(
        "near14",
        "near_exact",
        "self._longest(unit), self._longest(unit, True)",
        "self._longest(unit), self._longest(unit)",
    ),
    M(
        "near15",
        "near_exact",
        "self._longest(unit, factors <= self.n - int(self.rule.need.sum()))",
        "self._longest(unit)",
    ),
    M(
        "near16",
        "near_exact",
        "longest / self.clusters if self.clusters > 1 else 0.0",
        "longest / self.clusters",
    ),
    M(
        "near17",
        "near_exact",
        'kind = b"" if unit == DOUBLE else str(unit).encode()',
        'kind = b""',
    ),
    M("near18", "near_exact", "return bool(status == Status.IMPRECISE)", "return False"),
    M("near19", "near_exact", "spectrum[1:d] = 0  # but for rounding", "pass"),
    M(
        "near20",
        "near_exact",
        'rising = np.argsort(weights, kind="stable")',
        "rising = np.arange(n)",
    ),
    M("near21", "near_exact", "h[0] += 1 / n", "pass"),
    M("near22", "near_exact", "projector[np.arange(step), np.arange(step), 0] += 1", "pass"),
    M("near23", "near_exact", "m // step > m - weights[0]", "m // step > m"),
    M("near24", "near_exact", "choices[-1], unit) <= kept_error(unit):", "choices[-1], unit) < 1:"),
    # ------------------------------------------------------------------ pairs
    M("pairs1", "pairs", "sum->low += lost;", "(void)lost;"),
    M("pairs2", "pairs", "low = fused(a.high, v.low, low);", "low = fused(a.high, v.high, low);"),
    M("pairs3", "pairs", "low = fused(a.low, v.high, low);", "low = fused(a.low, v.low, low);"),
    M(
        "pairs4",
        "pairs",
        "to[t].x = quick_two_sum(sum[t].x.high, sum[t].x.low);",
        "to[t].x = sum[t].x;",
    ),
    M("pairs5", "pairs", "sum.low += both.low + before.low;", "sum.low += both.low;"),
    M("pairs6", "pairs", "sign[i] = i % 2 ? 1 : -1;", "sign[i] = i % 2 ? -1 : 1;"),
    M("pairs7", "pairs", "FUSED(a, b, -product)", "FUSED(a, b, product)"),
    M("pairs8", "pairs", "0x1p-106 * sqrt(2 * (double)n)", "0x1p-104 * sqrt(2 * (double)n)"),
    M("pairs9", "pairs", "phase.sine = negative(phase.sine);", ";"),
    M("pairs10", "pairs", "if (j % FGC_RUN == FGC_RUN - 1)", "if (j < 0)", "near_exact_pairs.c"),
    M("pairs11", "pairs", "n * (turn[t] & 1)", "0 * (turn[t] & 1)"),
    M(
        "pairs12",
        "pairs",
        "sum.low += x.low + sign * swapped.low;",
        "sum.low += x.low;",
    ),
    M("pairs13", "pairs", "known = total_of(known);", ";"),
    M(
        "pairs14",
        "pairs",
        "rest += x_rest[j] + (lost + (x * low + x_low * high))",
        "rest += x_rest[j] + (lost + x * low)",
    ),
    M("pairs15", "pairs", "waves[:, :, -1] = np.array(_HALF_ROOT)[:, None]", "waves[:, :, -1] = 1"),
    M("pairs16", "pairs", "at = (at - 2 * i) % (2 * n)", "at = (at + 2 * i) % (2 * n)"),
    M(
        "pairs17",
        "pairs",
        "quick_two_sum(high, rest + low)",
        "(high + rest, low)",
    ),
    # ------------------------------------------------------------------ installation
    M("install1", "doctor", "if hashed and not path.exists()]", "if not hashed]"),
    M("install2", "doctor", "[*uninstall, *names]] if names else []", "[*uninstall, NAME]]"),
    M("install3", "doctor", 'install += ["--force-reinstall", "--no-deps"]', "pass"),
    M(
        "install4",
        "doctor",
        "ours), ours) if damaged else [])",
        "ours), ours))",
    ),
    M(
        "install5",
        "extras",
        'what = "." if checkout.samefile(".") else str(checkout)',
        'what = "."',
    ),
    # ------------------------------------------------------------------ approximate codes
    M(
        "wait1",
        "waiting",
        "rest = int(np.sort(due)[whole : self.wait].sum())",
        "rest = self.wait - whole + 1",
    ),
    M("wait2", "waiting", "self._lacking -= self._due[worker] == 0", "self._lacking -= 1"),
    M(
        "wait3",
        "waiting",
        "f < least and self.rule.missing(survivors[:f])",
        "f < least - 1 and self.rule.missing(survivors[:f])",
    ),
    M(
        "wait4",
        "waiting",
        "if self._exact(order[:end]):",
        "if self._exact(order[: end - 1]):",
    ),
    M("wait5", "waiting", "self._lacking &= row == 0", "self._lacking &= row != 0"),
    M("wait6", "waiting", "spared = code.n - code.awaited", "spared = code.stragglers"),
    M(
        "unbiased1",
        "unbiased",
        "vector = vector / (means if code.pieces > 1 else means[0])",
        "vector = vector / means.mean()",
    ),
    M(
        "unbiased2",
        "unbiased",
        'scaled = approximation == "unbiased" and isinstance(code, Code) and code.approximate',
        "scaled = False",
    ),
    M(
        "unbiased3",
        "unbiased",
        "(self.n - f) // copies",
        "(self.n - f + copies - 1) // copies",
    ),
    M(
        "plan_left1",
        "waiting",
        "Plan(_ranked(within) + _ranked(beyond), refused)",
        "Plan(_ranked(choices), refused)",
    ),
]


def sources(tree):
    """Every file that a fault may be in, by its path below the tree."""
    return {
        str(path.relative_to(tree)): path.read_text()
        for place in PLACES
        for path in sorted((tree / place).rglob("*"))
        if path.suffix in SOURCES
    }


def find(mutant, texts):
    """The path of the only file with a mutant's text; a ValueError says what is wrong."""
    found = [path for path, text in texts.items() if mutant.before in text]
    if len(found) > 1 and mutant.where:
        found = [path for path in found if mutant.where in path]
    if not found:
        raise ValueError("its text is nowhere")
    if len(found) > 1 or texts[found[0]].count(mutant.before) > 1:
        raise ValueError(f"its text is more than once in {', '.join(found)}")
    return found[0]


class Copy:
    """A copy of the checkout, with a Python that imports it and the extension built in it."""

    def __init__(self, folder):
        self.tree, self._build = folder / "tree", folder / "build"
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        # A Python with the packages of this one, but for an editable install's: of paths in a .pth
        # file the .pth files are not read.
        environment = folder / "venv"
        command = [sys.executable, "-m", "venv", "--without-pip", environment]
        if not environment.exists():
            subprocess.run(command, check=True)
        packages = next((environment / "lib").glob("python*/site-packages"))
        ours = [path for path in sys.path if path.endswith("-packages")]
        (packages / "tree.pth").write_text("\n".join([str(self.tree), *ours]) + "\n")
        for program in Path(sys.executable).parent.glob("*"):  # MPI's
            with contextlib.suppress(FileExistsError):
                (environment / "bin" / program.name).symlink_to(program)
        self._python = environment / "bin" / "python"
        self._running, self._changed = None, False
        lists = self.tree / "csrc" / "CMakeLists.txt"  # an eighth of the time
        lists.write_text(lists.read_text().replace("set(optimise -O3)", "set(optimise -O1)"))
        configure = ["cmake", "-G", "Ninja", "-S", self.tree / "csrc", "-B", self._build]
        configure += ["-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={self._python}"]
        configure += [f"-DPython_ROOT_DIR={environment}", "-DPython_FIND_VIRTUALENV=ONLY"]
        self._must(configure)
        self.build()
        if self.test(["test_vandermonde"], [], None)[0]:
            raise SystemExit(f"the tests fail in {self.tree} without any fault")

    def _must(self, command):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        found = shutil.which(command[0], path=path) or command[0]
        run = subprocess.run([found, *command[1:]], capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(f"{run.stdout}{run.stderr}")

    def build(self):
        """Build what has changed of the extension."""
        self._must(["cmake", "--build", self._build])
        [built] = self._build.glob("_cffi*.so")
        shutil.copy2(built, self.tree / "fastgc" / "kernels")

    def test(self, files, options, cache):
        """Run tests, all if no file is named; exit status, what failed first, the output."""
        chosen = [f"tests/{name}.py" for name in files]
        chosen = [name for name in chosen if (self.tree / name).is_file()]
        if files and not chosen:
            return 0, "", ""
        command = [self._python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        environment = os.environ | {"FASTGC_SHRINK": "0"}
        if cache is not None:
            environment["NUMBA_CACHE_DIR"] = cache
        environment.pop("FASTGC_TEST_INSTALLED", None)
        environment.pop("PYTHONPATH", None)
        with tempfile.TemporaryFile("w+") as output:
            process = self._running = subprocess.Popen(
                [*command, *options, *chosen],
                cwd=self.tree,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                status = "time out"
            finally:
                self.stop()
                process.wait()
            output.seek(0)
            text = output.read()
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
        return status, failed[1] if failed else str(status), text

    def stop(self):
        """End the tests that run."""
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._running.pid, signal.SIGKILL)

    def judge(self, mutant, options, whole):
        """(verdict, what found it)."""
        try:
            path = find(mutant, sources(self.tree))
        except ValueError as error:
            return "not found", str(error)
        file, compiled = self.tree / path, path.startswith("csrc")
        before, times = file.read_text(), file.stat()
        with tempfile.TemporaryDirectory() as empty:
            # Numba does not see where a function that it has compiled into another was changed.
            cache = empty if "numba" in path else None
            try:
                file.write_text(before.replace(mutant.before, mutant.after))
                if compiled or self._changed:
                    self.build()
                    self._changed = compiled
                first = [f"test_{name}" for name in mutant.tests.split()]
                of_kernel = re.match(r"fastgc/kernels/(c|numba|numpy)\b|(csrc)", path)
                name = (of_kernel[1] or "c") if of_kernel else None
                under = ["--backend", name] if name else []
                for files in [first, []] if whole else [first]:
                    more = under if files else []
                    status, failed, text = self.test(files, [*more, *options], cache)
                    if status == 5:
                        raise SystemExit(f"{mutant.name}: no test was chosen\n{text}")
                    if status:
                        return "killed", failed
                return "survived", "" if whole else "of these files"
            except RuntimeError as error:
                return "not built", str(error)[-500:]
            finally:
                file.write_text(before)
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
                if compiled:  # and is built anew with the next fault
                    os.utime(file)


def chosen(wanted):
    """Mutants by names and ranges such as c3-c9; all if none is named."""
    names = [mutant.name for mutant in MUTANTS]
    if len(set(names)) < len(names):
        raise SystemExit("two mutants have one name")
    picked = set()
    for part in wanted:
        first, _, last = part.partition("-")
        try:
            picked.update(names[names.index(first) : names.index(last or first) + 1])
        except ValueError:
            raise SystemExit(f"there is no mutant {part}") from None
    return [mutant for mutant in MUTANTS if not wanted or mutant.name in picked]


def main(arguments=None):
    own = sys.argv[1:] if arguments is None else arguments
    cut = own.index("--") if "--" in own else len(own)
    parser = argparse.ArgumentParser(description=__doc__, usage="%(prog)s [options] [names] -- ...")
    parser.add_argument("names", nargs="*", help="of mutants, or ranges such as c1-c9; all if none")
    parser.add_argument("--list", action="store_true", help="where they are, and no more")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--first", action="store_true", help="the first files only")
    parser.add_argument("--folder", type=Path, help="where copies are left for the next time")
    parser.add_argument("--table", type=Path, help="a file to write the table to, too")
    given, options = parser.parse_args(own[:cut]), own[cut + 1 :]
    mutants = chosen(given.names)
    if given.list:
        texts = sources(ROOT)
        for mutant in mutants:
            try:
                where = find(mutant, texts)
            except ValueError as error:
                where = f"NOT FOUND: {error}"
            print(f"{mutant.name:10} {where}: {mutant.before!r} -> {mutant.after!r}")
        return

    def ask(mutant):
        with lock:
            copy = free.pop()
        begin = time.monotonic()
        try:
            verdict, by = copy.judge(mutant, options, not given.first)
        finally:
            with lock:
                free.append(copy)
        line = f"| {mutant.name} | {verdict} | {by} | {time.monotonic() - begin:.0f} |"
        print(line, flush=True)
        if given.table:
            with lock, given.table.open("a") as file:
                file.write(line + "\n")
        return verdict

    lock = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        folder = given.folder or folder
        copies = [Copy(Path(folder) / str(job)) for job in range(given.jobs)]
        free = copies.copy()
        print("| fault | verdict | by | s |\n|---|---|---|---|", flush=True)
        pool = ThreadPoolExecutor(given.jobs)
        try:
            verdicts = list(pool.map(ask, mutants))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.stop()
            raise
        finally:
            pool.shutdown()
    print(", ".join(f"{verdicts.count(each)} {each}" for each in sorted(set(verdicts))))
    sys.exit(verdicts.count("killed") < len(verdicts))


if __name__ == "__main__":
    main()
