"""The comparison tables: a function makes each of them from the benchmarks that ran."""

from __future__ import annotations

from functools import wraps

import numpy as np

UNITS = (("s", 1), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def _time(value):
    """Write a time with three digits, in the largest unit that gives 1 or more after rounding."""
    counts = {unit: float(f"{value / size:.3g}") for unit, size in UNITS}
    unit = next((unit for unit, count in counts.items() if count >= 1), "ns")
    return f"{counts[unit]:.0f} {unit}" if counts[unit] >= 1000 else f"{counts[unit]:.3g} {unit}"


def _times(ratio):
    """Write a ratio with two digits, or with all digits before the point."""
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.2g}×"


def _table(benchmarks):
    """Decorate a function to make a table of the benchmarks found, or None if there are none."""

    def decorate(make):
        @wraps(make)
        def table(done):
            found = benchmarks(done)
            return make(found) if found else None

        return table

    return decorate


def _grouped(done, start):
    """Return the benchmarks of groups whose names begin with `start`."""
    return {name: bench for name, bench in done.items() if (bench.group or "").startswith(start)}


def _cells(done, noted, row, column):
    """Return the benchmarks that noted `noted`, by their notes for rows and columns."""
    cells = {}
    for bench in done.values():
        if noted in (info := bench.extra_info):
            name = tuple(info[each] for each in row) if isinstance(row, tuple) else info[row]
            cells.setdefault(name, {})[info[column]] = bench
    return cells


def _columns(cells):
    """Return all columns, in the order of their first use."""
    return list(dict.fromkeys(name for found in cells.values() for name in found))


def _row(found, columns, cell):
    """Yield the cells of a row: ``cell(time, info)``, or a dash for a missing benchmark."""
    for name in columns:
        bench = found.get(name)
        yield "–" if bench is None else cell(bench.stats.median, bench.extra_info)


@_table(lambda done: _cells(_grouped(done, "decoding vector, "), "method", ("n", "s"), "method"))
def _vectors(cells):
    """Decoding vectors: a row for each n, a column for each method."""
    titles = {
        "linalg": "numpy.linalg.solve",
        "solve": "solve, with its system",
        "vandermonde": "Björck–Pereyra O(f²)",
        "lookup": "lookup O(f²)",
        "locator": "locator O(n·s)",
        "prepared": "locator, prepared",
        "fft": "fft O(n log n)",
    }
    rows = [["n, s", *titles.values()]]
    for (n, s), found in sorted(cells.items()):
        solvers = [found[m] for m in ("linalg", "linalg, all threads") if m in found]
        if solvers:
            found["linalg"] = min(solvers, key=lambda bench: bench.stats.median)
        other = found.get("linalg")

        def cell(time, info, other=other):
            ratio = ""
            if other is not None and not info["method"].startswith("linalg"):
                ratio = f"{_times(other.stats.median / time)}, "
            return f"{_time(time)} ({ratio}{info['error']:.0e})"

        rows.append([f"{n}, {s}", *_row(found, titles, cell)])
    return (
        "Decoding vectors: time (times as fast as numpy.linalg.solve on a prepared system, with "
        "one BLAS thread or all, whichever is faster; largest relative error of an entry)",
        rows,
    )


def scaling(done):
    """Return sizes and median times of each method, in order of size, and their exponent of n."""
    found = {}
    for bench in done.values():
        if "scaling" in bench.extra_info:
            info = bench.extra_info
            found.setdefault(info["scaling"], {})[info["n"]] = bench.stats.median
    return {
        method: (*zip(*sorted(times.items()), strict=True), slope(times))
        for method, times in found.items()
    }


def slope(times):
    """Return the exponent of n of times, by least squares on logarithms; NaN for a single size.

    It is fitted to the larger half of the sizes, and to two at least.
    """
    if len(times) < 2:
        return float("nan")
    larger = sorted(times.items())[-max(2, (len(times) + 1) // 2) :]
    n, seconds = np.log(larger).T
    n -= n.mean()
    return float(n @ seconds / (n @ n))


@_table(scaling)
def _scaling(found):
    sizes = sorted({n for of, _, _ in found.values() for n in of})
    sizes = [n for i, n in enumerate(sizes) if i % 4 == len(sizes) % 4 - 1 or n == sizes[-1]]
    rows = [["method", "growth", "largest n", *(f"n = {n:,}" for n in sizes)]]
    for method, (of, seconds, exponent) in found.items():
        times = dict(zip(of, seconds, strict=True))
        cells = (_time(times[n]) if n in times else "–" for n in sizes)
        rows.append([method, f"n^{exponent:.2f}", f"{of[-1]:,}", *cells])
    return (
        "Scaling of the decoding vector, s = n/8 if not said, of the stragglers that are spread "
        "best: workers 0 to s - 1, with a root near 0.382 n; one thread (growth: fitted to the "
        "larger half of the sizes; solvers' systems are prepared)",
        rows,
    )


@_table(lambda done: _cells(done, "set", ("n", "s"), "set"))
def _by_set(cells):
    columns = _columns(cells)
    rows = [["n, s", *columns]]

    def cell(time, info):
        return f"{_time(time)}, {_time(info['p99'])}, {_time(info['worst'])} ({info['pairs']:.0f})"

    for (n, s), found in sorted(cells.items()):
        rows.append([f"{n:,}, {s:,}", *_row(found, columns, cell)])
    return (
        "Decoding vectors by which workers straggle, default root, one thread: median, 99th of a "
        "hundred and worst time over sets (the second in pairs of transforms of length n by NumPy)",
        rows,
    )


def roofline(done):
    """Return the benchmarks that were measured against reading, with their share of the limit."""
    return {
        bench: bench.extra_info["bytes"] * bench.extra_info["read_per_byte"] / bench.stats.median
        for bench in done.values()
        if "roofline" in bench.extra_info
    }


@_table(roofline)
def _roofline(found):
    rows = [["what", "threads", "bytes", "time", "GB/s", "of the limit", "best other", "ratio"]]
    for bench, share in sorted(found.items(), key=lambda item: item[0].extra_info["roofline"]):
        info, time = bench.extra_info, bench.stats.median
        rows.append(
            [
                info["roofline"],
                str(info["threads"]),
                f"{info['bytes'] / 1e9:.2f}·10⁹",
                _time(time),
                f"{info['bytes'] / time / 1e9:.1f}",
                f"{share:.0%}",
                info["other"],
                f"{info['other_seconds'] / time:.1f}×",
            ]
        )
    return (
        "Roofline: combinations in memory (limit: reading the same rows on as many threads, in "
        "turns; bytes: of the rows and the result; ratio: time of NumPy's or PyTorch's best form)",
        rows,
    )


@_table(lambda done: [bench for bench in done.values() if "from_buffers" in bench.extra_info])
def _rounds(found):
    forms = list(dict.fromkeys(form for bench in found for form in bench.extra_info["forms"]))
    rows = [["packed messages in buffers", "threads", "time", *forms]]
    for bench in found:
        info, time = bench.extra_info, bench.stats.median
        ratios = (f"{info['forms'][form] / time:.1f}×" for form in forms)
        rows.append([info["from_buffers"], str(info["threads"]), _time(time), *ratios])
    return (
        "From 68 messages to a gradient of 10⁶ float64 (others: complex messages of 10⁶ elements; "
        "how many times as long)",
        rows,
    )


@_table(lambda done: [b for b in done.values() if (b.group or "").startswith("locator by backend")])
def _calls(found):
    """One decoding vector by each backend, and the time that it takes beyond the C function."""
    raw = {b.extra_info["n"]: b.stats.median for b in found if b.extra_info["call"] == "C function"}
    rows = [["locator", "n", "time", "over the C function", "error"]]
    for bench in sorted(found, key=lambda b: (b.extra_info["n"], b.stats.median)):
        info, time = bench.extra_info, bench.stats.median
        over = _time(time - raw[info["n"]]) if time > raw.get(info["n"], time) else "–"
        rows.append([info["call"], str(info["n"]), _time(time), over, f"{info['error']:.0e}"])
    return "One call for a decoding vector", rows


@_table(lambda done: [b for b in done.values() if "layer" in b.extra_info])
def _overhead(found):
    """Layers between Python and the kernels: the time of each beyond its kernels."""
    kernel = {}
    for bench in found:
        info = bench.extra_info
        if info["layer"] in ("kernel", "kernels"):
            kernel[info["verb"], info["p"]] = bench.stats.median
    rows = [["verb", "p", "layer", "time", "over the kernel"]]
    for bench in found:
        info, time = bench.extra_info, bench.stats.median
        over = time - kernel.get((info["verb"], info["p"]), time)
        rows.append(
            [
                info["verb"],
                str(info["p"]),
                info["layer"],
                _time(time),
                _time(over) if over > 0 else "–",
            ]
        )
    rows[1:] = sorted(rows[1:], key=lambda row: (row[0], int(row[1])))
    return "What a call costs over its kernels (C, n = 80, f = 68)", rows


@_table(lambda done: _cells(done, "cached", ("n", "s"), "cached"))
def _cache(cells):
    """Vectors of repeated survivor sets: a row for each size."""
    ways = ["computed", "a hit", "a new set"]
    rows = [["n, s", *ways]]
    for (n, s), found in sorted(cells.items()):
        computed = found.get("computed")

        def cell(time, info, computed=computed):
            ratio = ""
            if computed is not None and info["cached"] != "computed":
                ratio = f" ({_times(computed.stats.median / time)})"
            return _time(time) + ratio

        rows.append([f"{n}, {s}", *_row(found, ways, cell)])
    return "Decoding vectors of sets that come again (times as fast as computing them)", rows


@_table(lambda done: _cells(_grouped(done, "vandermonde, "), "solver", ("kind", "f"), "solver"))
def _vandermonde(cells):
    """Vandermonde solves: a row for each size, a column for each solver."""
    solvers = {
        "from the nodes": "with its matrix",
        "Björck–Pereyra": "Björck–Pereyra",
        "Björck–Pereyra, order given": "order given",
    }
    rows = [["nodes, f", "numpy.linalg.solve", *solvers.values()]]
    for (kind, f), found in sorted(cells.items(), reverse=False):
        lapack = [bench for solver, bench in found.items() if solver.startswith("linalg")]
        best = min(lapack, key=lambda bench: bench.stats.median, default=None)
        if best is None:
            continue
        least = best.stats.median

        def cell(time, info, least=least):
            return f"{_time(time)} ({least / time:.1f}×, {info['error']:.0e})"

        head = [f"{kind}, {f}", f"{_time(least)} ({best.extra_info['error']:.0e})"]
        rows.append([*head, *_row(found, solvers, cell)])
    return (
        "Vandermonde solves: time, the order of the nodes included (times as fast as "
        "numpy.linalg.solve on a prepared matrix, with one BLAS thread or all, whichever is "
        "faster; largest error over the largest entry)",
        rows,
    )


@_table(lambda done: _cells(done, "lagrange", "lagrange", "m"))
def _lagrange(cells):
    """Lagrange kernels: a row for each, a column for each number of nodes."""
    sizes = sorted({m for found in cells.values() for m in found})
    rows = [["kernel", *(f"{m} nodes" for m in sizes)]]

    def cell(time, info):
        return f"{_time(time)} ({info['numpy_seconds'] / time:.1f}×, {info['error']:.0e})"

    for kernel, found in cells.items():
        rows.append([kernel, *_row(found, sizes, cell)])
    return (
        "Lagrange kernels, for bases with as many points (times as fast as NumPy's best form; "
        "largest relative error of a value)",
        rows,
    )


def _streaming(done):
    """Times after the last arrival: a row for each n, columns for each backend."""
    cells = {}
    for bench in done.values():
        info = bench.extra_info
        for what in ("streamed", "followed"):
            if what in info:
                cells.setdefault(info[what], {})[what, info["backend"]] = bench
    if not cells:
        return None
    backends = list(dict.fromkeys(name for found in cells.values() for _, name in found))
    titles = {"streamed": "vector", "followed": "round"}
    columns = [(what, name) for name in backends for what in titles]
    rows = [["n", *(f"{titles[what]}, {name}" for what, name in columns)]]

    def cell(time, info):
        notes = [f"{info['direct_seconds'] / time:.1f}×"]
        if "event_seconds" in info:
            notes += [f"event {_time(info['event_seconds'])}", f"{info['error']:.0e}"]
        return f"{_time(time)} ({', '.join(notes)})"

    for n, found in sorted(cells.items()):
        rows.append([str(n), *_row(found, columns, cell)])
    return (
        "From the last arrival to the decoding vector of a stream, and to the gradient of a round "
        "that follows its vector where that pays, n/8 stragglers (times as fast as computing the "
        "vector then; time of an event; largest difference of an entry from the direct result)",
        rows,
    )


@_table(lambda done: _cells(done, "followed_seconds", "rule", "backend"))
def _completion(cells):
    backends = _columns(cells)

    def cell(time, info):
        time /= info["rounds"]
        return f"{_time(time)} ({info['followed_seconds'] / time:.0f}×)"

    rows = [["rule", *backends]]
    for rule, found in cells.items():
        rows.append([rule.removeprefix("completion "), *_row(found, backends, cell)])
    return "A simulated round (times as fast as following its messages in Python)", rows


@_table(lambda done: _cells(done, "lines_seconds", ("n", "simulated"), "law"))
def _simulate(cells):
    laws = _columns(cells)

    def cell(time, info):
        return f"{_time(time / info['drawn'])} ({_times(info['lines_seconds'] / time)})"

    rows = [["n", "code", *laws]]
    for (n, name), found in sorted(cells.items()):
        rows.append([str(n), name, *_row(found, laws, cell)])
    return (
        "simulate, for each delay drawn (times as fast as lines of NumPy that draw the delays and "
        "find when rounds are ready)",
        rows,
    )


def _numba(done):
    """Numba over C: a row for each kernel, a column for each dtype, near and far."""
    cells = {}
    for bench in done.values():
        if "numba" in bench.extra_info:
            info = bench.extra_info
            times = info["times"]
            text = f"{_time(times['numba'])} ({times['numba'] / times['c']:.2f})"
            cells.setdefault(info["numba"], {}).setdefault(info["dtype"], []).append(text)
    if not cells:
        return None
    dtypes = ["float64", "float32", "float16", "bfloat16"]
    rows = [["kernel", *dtypes]]
    for kernel, found in cells.items():
        rows.append([kernel, *("; ".join(found.get(dtype, ["–"])) for dtype in dtypes)])
    return (
        "Kernels in Numba: time (over C's), where arrays fit the nearest caches, and larger ones",
        rows,
    )


@_table(lambda done: [b for b in done.values() if "worst_error" in b.extra_info])
def _stability(found):
    rows = [["code", "messages", "median error", "worst error", "trust() said", "decode"]]
    for bench in found:
        info = bench.extra_info
        errors = [info[key] for key in ("median_error", "worst_error", "median_trust")]
        rows.append(
            [
                info["code"],
                info["dtype"],
                *(f"{error:.0e}" for error in errors),
                _time(bench.stats.median),
            ]
        )
    return (
        "Relative error of the decoded gradient, 200 random survivor sets; time for 64 elements",
        rows,
    )


@_table(lambda done: [b for b in done.values() if "against" in b.extra_info])
def _combinations(found):
    rows = [["what", "time", "GB/s", "of read bandwidth", "NumPy's best", "ratio", "error"]]
    for bench in found:
        info = bench.extra_info
        rows.append(
            [
                info["what"],
                _time(bench.stats.median),
                f"{info['bytes'] / bench.stats.median / 1e9:.1f}",
                f"{info['read_seconds'] / bench.stats.median:.0%}",
                info["against"],
                f"{info['against_seconds'] / bench.stats.median:.2f}×",
                f"{info['error']:.0e}",
            ]
        )
    return "Encoding and decoding (ratio: how many times the other form's time)", rows


@_table(lambda done: [b for b in done.values() if "step" in b.extra_info])
def _steps(found):
    forms = dict.fromkeys(form for bench in found for form in bench.extra_info["forms"])
    rows = [["step", "time", "GB/s", "of read bandwidth", *forms]]
    for bench in found:
        info, time = bench.extra_info, bench.stats.median
        row = [
            info["step"],
            _time(time),
            f"{info['bytes'] / time / 1e9:.1f}",
            f"{info['read_seconds'] / time:.0%}",
        ]
        row += [f"{info['forms'][form] / time:.1f}×" for form in forms]
        rows.append(row)
    return (
        "Steps of optimizers (bytes: read and written; ratios: how many times the time other forms "
        "take, NumPy's with temporaries and without, and PyTorch's)",
        rows,
    )


@_table(lambda done: _cells(done, "loop", ("loop", "piece"), "code"))
def _hot_loops(cells):
    """The cost of a round besides the gradients: a row for each loop and piece."""
    codes = _columns(cells)
    rows = [["loop", "what", *codes]]

    def cell(time, info):
        return _time(time / info["of_a_round"])

    for names, found in cells.items():
        rows.append([*names, *_row(found, codes, cell)])
    return "A round's overhead at the master, n=80 f=68 p=640 float64, gradients apart", rows


@_table(lambda done: [b for b in done.values() if "adaptive" in b.extra_info])
def _adaptive(found):
    rows = [["round of G-CADA", "time", "gradients", "AMSGrad alone", "of that", "NumPy", "ratio"]]
    for bench in found:
        info = bench.extra_info
        time = bench.stats.median / info["rounds"]
        rows.append(
            [
                info["adaptive"],
                _time(time),
                f"{info['asked']:.1f}",
                _time(info["step_seconds"]),
                f"{time / info['step_seconds']:.1f}×",
                _time(info["numpy_seconds"]),
                f"{info['numpy_seconds'] / time:.0f}×",
            ]
        )
    return (
        "Rounds of G-CADA at the master in float32: gradients received, the step and the next "
        "selection (times the optimizer's step alone; NumPy: both sides of eq. (9) and the sum "
        "from what is kept)",
        rows,
    )


@_table(lambda done: [bench for bench in done.values() if bench.group == "engines"])
def _engines(found):
    """Rounds of each engine beside its bare loops."""
    rows = [["engine", "workers", "p", "its round", "bare loops (its round over theirs)"]]
    for bench in found:
        for row in bench.extra_info["rows"]:
            whole = row["engine"]
            bare = [
                f"{name.removeprefix('bare, ')} {_time(time)} ({whole / time:.2f}×)"
                for name, time in row.items()
                if name.startswith("bare")
            ]
            cells = str(row.get("workers", 16)), f"{row['p']:,}", _time(whole), "; ".join(bare)
            rows.append([bench.extra_info["engine"], *cells])
    return "A round, for which the first 13 of 16 workers suffice, without the gradients", rows


def _compilation(done):
    found = [b for b in done.values() if b.group == "start"]
    rows = [["start", "time"]]
    rows += [[b.extra_info["what"], _time(b.stats.median)] for b in found]
    for bench in done.values():
        if (bench.group or "").startswith("compile: "):
            info = bench.extra_info
            state = "compiling" if info["state"] == "cold" else "compiled before"
            title = f"first call of numba's {info['kernel']} ({state})"
            rows.append([title, _time(info["first_call"])])
    if len(rows) == 1:
        return None
    return "Start-up (whole processes) and compilation (first calls)", rows


@_table(
    lambda done: sorted(
        (b.extra_info for b in done.values() if "auto" in b.extra_info), key=_workers
    )
)
def _auto(found):
    rows = [["n", "transforms from s =", 'slowest "auto"', "at s = (fastest there)", "all s tried"]]
    for info in found:
        s, fastest, _, worst = max(info["picks"], key=lambda pick: pick[-1])
        tried = ", ".join(f"{s}: {_time(time)} ({r:.2f}×)" for s, _, time, r in info["picks"])
        rows.append(
            [str(info["auto"]), str(info["cross"]), f"{worst:.2f}×", f"{s} ({fastest})", tried]
        )
    return 'The method "auto" takes: its time over that of the fastest fixed one', rows


def _workers(info):
    return info["auto"]


@_table(lambda done: [b for b in done.values() if "polynomials" in b.extra_info])
def _lagrange_decoding(found):
    """A row for each number of polynomials: the stages of a decoding vector, and of a gradient."""
    sizes = [name for name in found[0].extra_info["stages"] if name.startswith("p=")]
    rows = [
        [
            "polynomials",
            "messages",
            "vector",
            "weights",
            "basis",
            "Python",
            *(f"gradient, {size}" for size in sizes),
            "choice, if all came",
        ]
    ]
    for bench in found:
        info, time = bench.extra_info, bench.stats.median
        stages = info["stages"]
        rest = max(time - stages["weights"] - stages["basis"], 0)
        cells = [time, stages["weights"], stages["basis"], rest, *(stages[size] for size in sizes)]
        rows.append(
            [
                info["polynomials"],
                str(info["messages"]),
                *map(_time, cells),
                _time(stages["choice"]),
            ]
        )
    return (
        "Decoding Lagrange codes of 40 workers with ten computations each, by how many polynomials "
        "a message sums: the decoding vector and what it consists of, and with it the gradient of "
        "p elements",
        rows,
    )


@_table(lambda done: [b for b in done.values() if "batch" in b.extra_info])
def _batch(found):
    rows = [["code", "a round, in one call", "by a decoder, one by one", "ratio"]]
    for bench in found:
        info = bench.extra_info
        time, loop = bench.stats.median / info["rounds"], info["loop_seconds"] / info["rounds"]
        rows.append([info["batch"], _time(time), _time(loop), f"{loop / time:.1f}×"])
    return "Decoding vectors of many rounds, from masks of survivors", rows


@_table(lambda done: _grouped(done, "round of 1000 workers, 10 liars"))
def _liars(done):
    rows = [["code", "a round that compares nothing", "verify=10", "looks", "one look at all"]]
    for name, bench in done.items():
        info = bench.extra_info
        if "liars" in info:
            plain = done.get(name.replace("-10]", "-0]"))
            rows.append(
                [
                    info["liars"],
                    _time(plain.stats.median) if plain else "–",
                    _time(bench.stats.median),
                    f"{info['looks']:.0f}",
                    _time(info["look_seconds"]),
                ]
            )
    return "Rounds of 1000 workers, and until 10 liars are named", rows


TABLES = (
    _scaling,
    _by_set,
    _vectors,
    _calls,
    _auto,
    _batch,
    _overhead,
    _cache,
    _vandermonde,
    _lagrange,
    _lagrange_decoding,
    _streaming,
    _completion,
    _simulate,
    _numba,
    _stability,
    _roofline,
    _rounds,
    _liars,
    _combinations,
    _steps,
    _adaptive,
    _hot_loops,
    _engines,
    _compilation,
)
