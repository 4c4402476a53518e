"""Call kernels with arguments that do not fit: each must say so, or do what its oracle does.

``python tests/kernels_fuzz.py --seconds 60`` starts from calls that succeed, of every public
function of `fastgc.kernels` (among them the calls of the oracles' table). It changes up to two
arguments: by one element, by dtype, by layout, by value, or to something else altogether. Then the
call must raise TypeError or ValueError and write nothing; or it must return what its oracle
returns for the same arguments. Memory around its arrays must stay unchanged.

The script prints each fault, how often it was found, and the number of a call that shows it;
``--call 123`` makes this call alone. The exit status is 1 if there is a fault. A call that ends the
process has its number in the file `PLACE`. Under `.ci/sanitize`, reads are checked, too.
"""

from __future__ import annotations

import argparse
import collections
import copy
import faulthandler
import functools
import inspect
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import oracles
from hostile import Changes
from oracles import KERNELS, SPLIT, named

from fastgc import kernels

GUARD, MARK = 64, 0xA5  # number and value of the bytes before and after an array
HANGS = 60.0
PLACE = Path(tempfile.gettempdir()) / "kernels_fuzz.call"
REFUSED = (TypeError, ValueError)
TAKES_NOTHING = {"backend"}
NUMBERS = [0, 1, -1, 2, 7, 2**45, 2**62, -(2**63), 2**63, 2**64, 2**1100]

# ----------------------------------------------------------------------------- calls that succeed


def functions():
    """Return the public functions of `fastgc.kernels` that take arguments, by name."""
    found = {name: getattr(kernels, name) for name in kernels.__all__ if name not in TAKES_NOTHING}
    return {name: thing for name, thing in found.items() if inspect.isfunction(thing)}


class Listed:
    """The arguments that make a `kernels.Rows`."""

    def __init__(self, arrays, length, dtype):
        self.arrays, self.length, self.dtype = arrays, length, dtype


def _of_the_table(known, rng):
    """Return calls with arguments of the oracles' table."""
    calls = []
    for kernel, case, dtype in named(KERNELS)["argvalues"]:
        if kernel.name not in known:
            continue
        for size, count in ((1, 1), (2, 2), (3, 2), (9, 4), (40, 3)):
            if size <= 9 or kernel in SPLIT:  # large systems lose digits, so results may differ
                given = kernel.make(rng, size, count, dtype, **case)
                if "rows" in given:
                    given["rows"] = Listed(given["rows"], size, given["rows"][0].dtype)
                calls.append((kernel.name, given))
    return calls


@functools.cache
def examples():
    """Map each function's name to calls that succeed: dicts of arguments."""
    known, rng = functions(), np.random.default_rng(0)
    found = {name: [] for name in known}
    for name, arguments in _of_the_table(known, rng):
        found[name].append(arguments)
    if lacking := [name for name, calls in found.items() if not calls]:
        raise LookupError(f"no call that succeeds is known of {', '.join(lacking)}")
    return found


# ------------------------------------------------------------------------------- what is changed


class Case(Changes):
    """One call: its seed and number determine it, so it can be made again."""

    ways = (*Changes.ways, "alias", "alias")
    strange = (*Changes.strange, 2**70)

    def __init__(self, seed, number, only=()):
        super().__init__(np.random.default_rng([seed, number]))
        self.memories = []  # memory of arrays and the guards around them
        self.huge = False  # whether a number is so large that memory may run out
        known = {name: calls for name, calls in examples().items() if not only or name in only}
        self.name = str(self.rng.choice(sorted(known)))
        calls = known[self.name]
        given = copy.deepcopy(calls[self.rng.integers(len(calls))])
        names = list(given)
        changed = {names[at] for at in self.rng.permutation(len(names))[: self.rng.integers(0, 3)]}
        self.said.append(self.name)
        self.given = {name: self.placed(given[name]) for name in names if name not in changed}
        for name in sorted(changed):
            self.given[name] = self.changed(name, given[name])
        self.given = {name: self.given[name] for name in names}

    # ------------------------------------------------------------------------ where arrays lie

    def placed(self, value):
        """Copy a value's arrays to memory between guards, or to memory of exactly their size."""
        if isinstance(value, Listed):
            arrays = value.arrays
            if isinstance(arrays, np.ndarray):
                arrays = self.array(arrays)
            else:
                arrays = [self.array(each) for each in arrays]
            return kernels.Rows.of(arrays, value.length, value.dtype)
        return self.array(value) if type(value) is np.ndarray else value

    def array(self, value):
        """Copy an array, as in `placed`."""
        if value.dtype.hasobject or self.rng.random() < 0.5:
            return np.array(value, order="C")
        return self.within(value.nbytes, 0, value.dtype, value.shape, value)

    def within(self, size, shift, dtype, shape, value=0, strides=None, first=0):
        """Return an array in `size` bytes between guards."""
        memory = np.full(size + 2 * GUARD + 16, MARK, np.uint8)
        at = GUARD + -(memory.ctypes.data + GUARD) % 16 + shift
        self.memories.append((memory, at, at + size))
        array = np.ndarray(shape, dtype, memory, at + first, strides)
        with np.errstate(all="ignore"):
            if 0 not in (strides or (1,)):
                array[...] = value
            else:
                memory[at : at + size] = 0
        return array

    def intact(self):
        """Whether all guards are unchanged."""
        return all(
            (memory[:first] == MARK).all() and (memory[end:] == MARK).all()
            for memory, first, end in self.memories
        )

    # --------------------------------------------------------------------------- other arguments

    def misaligned(self, value):
        return self.within(value.nbytes, 1, value.dtype, value.shape, value)

    def other(self, name, value):
        """Return something to take an argument's place."""
        if isinstance(value, Listed) and self.rng.random() > self.often:
            return self.other_rows(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):  # a record of arrays
            field = self.pick(value._fields)
            self.said.append(field)
            parts = {key: self.placed(getattr(value, key)) for key in value._fields}
            return value._replace(**parts | {field: self.other(field, getattr(value, field))})
        if value is None:
            likely = [each for each in self.given.values() if type(each) is np.ndarray]
            return self.taken([*likely, np.arange(3), np.zeros(1)])
        return super().other(name, value)

    def numbers(self, name, value):
        alike, others = super().numbers(name, value)
        if isinstance(value, int) and not isinstance(value, bool):
            others = NUMBERS + others
        return alike, [*others, 2**1100]

    def taken(self, values):
        new = super().taken(values)
        self.huge |= isinstance(new, int) and new > 2**30
        return new

    def other_rows(self, value):
        arrays, length, dtype = value.arrays, value.length, value.dtype
        how = self.pick(["length", "dtype", "row", "fewer", "more", "stale", "all", "layout"])
        self.said.append(f"rows, {how}")
        if how == "length":
            length = self.pick([length - 1, length + 1, 0, 2 * length, -1, 2**40])
        elif how == "dtype":
            dtype = np.dtype(self.pick(["f4", "f8", "f2", "c8", "c16", "i8", "i2"]))
        elif how == "fewer":
            arrays = arrays[:-1]
        elif how == "more":
            arrays = [*arrays, *arrays[:1]]
        elif how == "all" and len(arrays):
            arrays = [each.astype(dtype) for each in np.array(arrays, "g")[:, : length - 1]]
        elif how == "layout" and len(arrays):
            wide = np.array(arrays)
            arrays = self.pick(
                [wide[::-1], np.asfortranarray(wide), np.repeat(wide[:1], 3, axis=0)]
            )
        try:
            if how == "row" and len(arrays):
                rows = [self.array(each) for each in arrays]
                rows[self.rng.integers(len(rows))] = self.other_array(rows[0])
                made = kernels.Rows.of(rows, length, dtype)
            else:
                made = self.placed(Listed(arrays, length, dtype))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            self.said.append(f"which are refused: {error}")
            return self.placed(value)
        if how == "stale":
            made.length = self.pick([length + 1, length + 100, -length])
        return made

    def by_alias(self, value):
        """Return memory of another argument: the same, or shifted by some elements."""
        others = [
            (name, each)
            for name, each in self.given.items()
            if type(each) is np.ndarray
            and each.size
            and each.flags.c_contiguous
            and not each.dtype.hasobject
        ]
        if not others or not value.size:
            return self.array(value)
        name, other = self.pick(others)
        self.wild = True
        if self.rng.random() < 0.5 or other.size < 2:
            self.said.append(f"is {name}")
            return other
        shift = int(self.rng.integers(1, other.size))
        self.said.append(f"{name} from {shift} on")
        size = other.size + shift
        whole = self.within(size * other.itemsize, 0, other.dtype, (size,))
        with np.errstate(all="ignore"):
            whole[: other.size] = other.reshape(-1)
        self.given[name] = whole[: other.size].reshape(other.shape)
        return whole[shift:].reshape(other.shape)


# ----------------------------------------------------------------------------------- what is held


def contents(given):
    """Map each array's place among the arguments to a copy of it."""
    found = {}
    for name, value in given.items():
        if isinstance(value, kernels.Rows):
            value = [*value.arrays]  # `arrays` may be a matrix
        parts = value if isinstance(value, list | tuple) else [value]
        for at, part in enumerate(parts):
            if isinstance(part, np.ndarray):
                found[name, at] = np.array(part)
    return found


def called(case):
    """Make a call; return its result, its exception, and `contents` before and after."""
    before = contents(case.given)
    function = getattr(kernels, case.name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result, error = function(**case.given), None
    except Exception as raised:
        result, error = None, raised
    return result, error, before, contents(case.given)


def same_bits(one, other):
    """Whether arrays hold the same bits, NaN included."""
    if one.dtype.hasobject:
        return list(map(repr, one.ravel())) == list(map(repr, other.ravel()))
    return one.tobytes() == other.tobytes()


def alike(one, other, wild):
    """Whether results agree up to roundings; if `wild`, in dtype and shape alone."""
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(alike, one, other, [wild] * len(one)))
    if one is None or other is None:
        return one is other or wild
    one, other = np.asarray(one), np.asarray(other)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if wild or not one.size or one.dtype.hasobject:
        return True
    if one.dtype.kind not in "fcV":
        return bool((one == other).all())
    with np.errstate(all="ignore"):
        wide = np.promote_types(one.dtype, np.float64) if one.dtype.kind != "V" else np.float64
        one, other = one.astype(wide), other.astype(wide)
        scale = np.abs(np.where(np.isfinite(other), other, 0)).max()
        return np.allclose(one, other, 1e-3, 1e-4 * scale, equal_nan=True)


def found_in(seed, number, only=()):
    """Return what is wrong with a call, or None."""
    case = Case(seed, number, only)
    result, error, before, after = called(case)
    if not case.intact():
        return f"{case.name}: writes beside an array"
    if error is not None:
        if isinstance(error, MemoryError) and case.huge:
            return None
        if not isinstance(error, REFUSED) or not str(error).strip():
            return f"{case.name}: {type(error).__name__}: {error}"[:150]
        if not all(same_bits(before[at], after[at]) for at in before):
            return f"{case.name}: writes, and then raises {type(error).__name__}"
    twin = Case(seed, number, only)
    with oracles.instead():
        expected, refused, _, wanted = called(twin)
    if (error is None) != (refused is None):
        return f"{case.name}: NumPy's {'raises' if refused else 'raises not'}: {refused or error}"[
            :150
        ]
    if error is not None:
        return None
    if not alike(result, expected, case.wild):
        return f"{case.name}: gives {result!r}, and NumPy's {expected!r}"[:150]
    # If the only change is an overlap, results must agree, unless it makes nodes coincide.
    overlaps = any(" alias " in part for part in case.said) and len(case.said) == 2
    wild = case.wild and not (overlaps and not {"nodes", "turns", "circulant"} & {*case.given})
    for at, array in after.items():
        # The oracle has its own proven bound.
        if not alike(array, wanted[at], wild or at[0] == "bound"):
            return f"{case.name}: {at[0]} is not what NumPy's makes of it"
    return None


# ---------------------------------------------------------------------------------- running them


def main(arguments=None):
    """Run for a while, print what was found, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[], help="no others than these functions")
    parser.add_argument("--call", type=int, help="make this one alone")
    options = parser.parse_args(arguments)
    if options.call is not None:
        print(Case(options.seed, options.call, options.only), flush=True)
        wrong = found_in(options.seed, options.call, options.only)
        print(wrong or "nothing is wrong")
        return int(bool(wrong))
    faulthandler.enable()
    found, shown = collections.Counter(), {}
    until, number = time.monotonic() + options.seconds, 0
    place = os.open(PLACE, os.O_WRONLY | os.O_CREAT)
    while time.monotonic() < until:
        os.pwrite(place, f"{number:020d}".encode(), 0)
        faulthandler.dump_traceback_later(HANGS, exit=True)
        if what := found_in(options.seed, number, options.only):
            found[what] += 1
            shown.setdefault(what, number)
        number += 1
    faulthandler.cancel_dump_traceback_later()
    for what, count in found.most_common():
        print(f"{count:6d}  {what}")
        case = Case(options.seed, shown[what], options.only)
        print(f"        --seed {options.seed} --call {shown[what]}: {case}")
    print(f"{number:6d}  calls of {len(functions())} functions")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
