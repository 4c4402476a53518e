"""Codes whose messages are sums over cells of partitions: rows, vectors, checks and thresholds."""

import numpy as np
import pytest
from liars import dense
from tables import prefixes

from fastgc import Code, NotDecodableError
from fastgc.coding.cells import CellScheme, entries_of, even_cuts


@pytest.mark.parametrize(("k", "cells"), [(7, 7), (7, 3), (12, 5), (4, 1), (3, 5)])
def test_even_cuts(k, cells):
    cuts = even_cuts(k, cells)
    assert (cuts[0], cuts[-1], cuts.size) == (0, k, cells + 1)
    sizes = np.diff(cuts).tolist()
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


def test_entries_of():
    """Cells [0, 2), [2, 3) and [3, 6): three messages, of which the second is empty."""
    cuts = np.array([0, 2, 3, 6])
    first, held, values = entries_of(
        cuts, np.array([0, 2, 2, 3]), np.array([2, 0, 1]), np.array([5.0, 6.0, 7.0])
    )
    assert first.tolist() == [0, 5, 5, 6]
    assert held.tolist() == [3, 4, 5, 0, 1, 2]
    assert values.tolist() == [5, 5, 5, 6, 6, 7]


def schemes(count, **options):
    """Yield random schemes of few messages in which every cell is picked.

    Workers send several messages, or cells are of different sizes. Options are functions of the
    numbers of workers and partitions.
    """
    rng = np.random.default_rng(0)
    for number in range(count):
        cells = int(rng.integers(1, 4))
        several = number % 2 == 0
        each = int(rng.integers(1, 4)) if several else rng.integers(1, 4, cells)
        cuts = np.append(0, np.cumsum(np.full(cells, each)))
        held = [
            rng.permutation(cells)[: rng.integers(1, cells + 1) if several else 1].tolist()
            for _ in range(rng.integers(1, 5))
        ]
        missing = sorted(set(range(cells)).difference(*held))
        held += [missing] if several and missing else [[cell] for cell in missing]
        sizes, choices = np.array([*map(len, held)]), np.concatenate(held)
        more = {name: each(sizes.size, int(cuts[-1])) for name, each in options.items()}
        yield CellScheme(cuts, sizes, choices, stragglers=0, **more)


def test_a_message_is_the_sum_over_its_cell():
    for scheme in schemes(40):
        B = np.zeros((scheme.messages.count, scheme.k))
        for m, cell in enumerate(scheme.cells.cell.tolist()):
            B[m, scheme.cuts[cell] : scheme.cuts[cell + 1]] = 1
        code = Code(scheme)
        np.testing.assert_array_equal(code.matrix(), B)
        ends = np.cumsum(scheme.messages.counts)
        loads = [rows.sum() for rows in np.split(B, ends[:-1])]
        assert scheme.loads.tolist() == loads
        np.testing.assert_array_equal(scheme.precision.row_sums, B.sum(axis=1))
        np.testing.assert_allclose(scheme.precision.row_norms, B.sum(axis=1) / scheme.k)
        assert not scheme.precision.unbiased


@pytest.mark.parametrize("rescale", [False, True])
def test_bind_vector_takes_the_first_of_each_cell(rescale):
    """Enough partitions suffice; their sum is multiplied by k over their number, or it is not."""
    rng = np.random.default_rng(1)
    options = {"need": lambda n, k: max(1, k - 2), "rescale": lambda n, k: rescale}
    for scheme in schemes(40, **options):
        sizes = np.diff(scheme.cuts)
        assert scheme.precision.unbiased == rescale
        for survivors in prefixes(scheme):
            survivors = rng.permutation(survivors)
            cells = scheme.cells.cell[survivors].tolist()
            came = int(sizes[sorted(set(cells))].sum())
            if came < scheme.k - 2 or not cells:
                with pytest.raises(NotDecodableError):
                    scheme.vector(survivors)
                continue
            first = [cells.index(cell) == at for at, cell in enumerate(cells)]
            factor = scheme.k / came if rescale else 1
            np.testing.assert_allclose(scheme.vector(survivors), np.array(first) * factor)


def test_bind_vector_of_few_workers():
    """Rounds that wait for w workers decode from whatever these have sent."""
    for scheme in schemes(40, wait=lambda n, k: max(1, n - 1)):
        assert not scheme.exact
        for lost in range(scheme.n):
            survivors = scheme.messages.of(np.delete(np.arange(scheme.n), lost))
            if survivors.size:
                assert scheme.rule.missing(survivors) == 0
                cells = scheme.cells.cell[survivors].tolist()
                first = [cells.index(cell) == at for at, cell in enumerate(cells)]
                np.testing.assert_array_equal(scheme.vector(survivors), first)


def test_threshold():
    """Every set in order of so many messages decodes, and some set of one fewer does not."""
    for scheme in schemes(60):
        short = [F.size for F in prefixes(scheme) if scheme.rule.missing(F)]
        assert scheme.threshold == max(short) + 1


def test_threshold_where_rounds_wait_for_few_workers():
    """The gradient is sure to be complete, or as many workers are, as are waited for."""
    for scheme in schemes(60, wait=lambda n, k: max(1, n - 1)):
        incomplete = partial = 0
        counts = scheme.messages.counts
        for F in prefixes(scheme):
            senders = [scheme.messages.sender(m)[0] for m in F.tolist()]
            sent = np.bincount(np.array(senders, dtype=int), minlength=scheme.n)
            if scheme.cells.missing(F):
                partial = max(partial, F.size)
            if (sent == counts).sum() < scheme.wait:
                incomplete = max(incomplete, F.size)
            assert F.size < scheme.threshold or not scheme.rule.missing(F)
        assert scheme.threshold == min(partial, incomplete) + 1


def test_parity_compares_copies():
    for scheme in schemes(40):
        survivors = np.random.default_rng(0).permutation(scheme.messages.count)
        parity = scheme.parity(survivors)
        cells = scheme.cells.cell[survivors].tolist()
        wanted = {(at, cells.index(cell)) for at, cell in enumerate(cells)}
        wanted = {pair for pair in wanted if pair[0] != pair[1]}
        assert parity.first.size == len(wanted)
        pairs = dense(parity, survivors.size)
        assert {(int(np.argmax(row)), int(np.argmin(row))) for row in pairs} == wanted
        assert all(sorted(row)[1:-1] == [0] * (len(row) - 2) for row in pairs)
        assert (parity.error == 0).all()
        np.testing.assert_array_equal(parity.ends, [[0, cell + 1] for cell in cells])
