"""Audits without processes: what they find, who is outvoted, and that honest ranks never are."""

import copy
import itertools
import math
import threading

import numpy as np
import pytest
import strength

torch = pytest.importorskip("torch")
pytest.importorskip("cloudpickle")
from fastgc import (  # noqa: E402
    BinaryCode,
    CyclicRepetition,
    FractionalRepetition,
    Uncoded,
)
from fastgc.torch.all_reduce import _PIECE, _Message  # noqa: E402
from fastgc.torch.audit import (  # noqa: E402
    ROUNDED,
    SAME,
    SAME_HALF,
    Audit,
    Fingerprint,
    Signs,
    Sketch,
    Verdict,
    copies,
    in_half,
    majority,
    odd_one,
)


def bits(flat, seed):
    hashed = Fingerprint(seed)
    for each in [flat] if isinstance(flat, torch.Tensor) else flat:
        hashed.add_multiplied(each, 1.0, torch.empty_like(each))
    return hashed.value()


def printed(audit, flat, step):
    hashed = audit.fingerprint(step)
    hashed.add_multiplied(flat, 1.0, torch.empty_like(flat))
    return hashed.value()


class Views:
    """A view whose ranks are threads."""

    def __init__(self, ranks):
        self.ranks, self.given = ranks, []
        self.barrier = threading.Barrier(len(ranks), self.add)

    def add(self):
        total = torch.stack(self.given).sum(0)
        for each in self.given:
            each.copy_(total)
        self.given = []

    def sum(self, tensor):
        self.given.append(tensor)
        self.barrier.wait()


def look_all(audits, gradient, secret=1, half=False):
    """Return all ranks' verdict on ``gradient(rank, owner)``, and how often each computed it."""
    ((found, computed),) = look_often(audits, [gradient], secret, half)
    return found, computed


def look_often(audits, gradients, secret, half):
    """Return the same for several gradients, one after the other."""
    view = Views(sorted(audits))
    shares = {r: [10 * r, 10 * r + 1] for r in view.ranks}
    verdicts = {r: [] for r in view.ranks}
    computed = {r: [0] * len(gradients) for r in view.ranks}

    def rank(r):
        for at, gradient in enumerate(gradients):

            def compute(partitions, at=at, gradient=gradient):
                computed[r][at] += 1
                assert partitions == shares[partitions[0] // 10]
                return gradient(r, partitions[0] // 10), half

            own = gradient(r, r), half
            verdicts[r].append(audits[r].look(view, secret + at, shares, own, compute))

    threads = [threading.Thread(target=rank, args=(r,)) for r in view.ranks]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    first = verdicts[view.ranks[0]]
    assert all(each == first for each in verdicts.values())
    return [(verdict, {r: computed[r][at] for r in view.ranks}) for at, verdict in enumerate(first)]


def audits_of(ranks, scaled=False, every=1000):
    return {r: Audit(r, max(ranks) + 1, every, scaled) for r in ranks}


def share(owner, size=50):
    return torch.randn(size, generator=torch.Generator().manual_seed(owner))


# ------------------------------------------------------------------------------- what is told


@pytest.mark.parametrize("size", [1, 50, 4095, 4096, 4097, 13000])
def test_projections_are_those_on_products_of_signs(size):
    signs = Signs(size, 5)
    columns = min(size, 4096)
    rows = -(-size // columns)
    generator = torch.Generator().manual_seed(5)
    left = 2 * torch.randint(2, (rows, 8), generator=generator).double() - 1
    right = 2 * torch.randint(2, (columns, 8), generator=generator).double() - 1
    each = (left[:, None] * right).reshape(-1, 8)[:size]
    for dtype, within in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        flat = torch.randn(size, generator=generator, dtype=dtype)
        truth = flat.double() @ each
        assert (signs.of(flat) - truth).abs().max() <= within * flat.norm()
    alone = torch.zeros(size)
    alone[size // 2] = 3.0
    assert signs.of(alone).abs().tolist() == [3.0] * 8
    assert not torch.equal(each, (left * 0)[:1].repeat(size, 1))


def test_distances_are_those_of_the_vectors_on_average():
    rng = torch.Generator().manual_seed(0)
    a = torch.randn(5000, generator=rng)
    ratios = []
    for seed in range(200):
        b = a + 0.01 * torch.randn(5000, generator=rng)
        truth = float((a - b).norm() / max(a.norm(), b.norm()))
        signs = Signs(5000, seed)
        x, y = Sketch.of(a, False, signs), Sketch.of(b, False, signs)
        assert x.distance(y) == y.distance(x)
        ratios.append(x.distance(y) / truth)
    assert np.mean(np.square(ratios)) == pytest.approx(1.0, abs=0.15)


def test_distances_of_what_is_zero_huge_or_not_finite():
    signs = Signs(3, 0)
    one, zero, huge, nan, inf = (
        Sketch.of(torch.tensor(values), False, signs)
        for values in (
            [1.0, 2.0, 3.0],
            [0.0] * 3,
            [3e38, 3e38, 3e38],
            [1.0, math.nan, 3.0],
            [1.0, -math.inf, 3.0],
        )
    )
    assert zero.distance(zero) == one.distance(one) == huge.distance(huge) == 0.0
    assert nan.distance(inf) == nan.distance(nan) == 0.0
    for a, b in itertools.permutations([one, zero, huge], 2):
        assert 0.1 < a.distance(b) < 10.0
    for a in (one, zero, huge):
        assert a.distance(nan) == inf.distance(a) == math.inf
    for each in (one, zero, huge, nan):
        assert Sketch.read(each.row()) == each
        assert all(map(math.isfinite, each.row()))


def test_limits_are_those_of_the_precision_of_either():
    def sketch(value, half):
        return Sketch(True, half, 1.0, (value,) * 8)

    for ours, theirs in itertools.product([False, True], repeat=2):
        limit = SAME_HALF if ours or theirs else SAME
        for away, differs in ((0.9, False), (1.1, True)):
            assert sketch(0.5, ours).differs(sketch(0.5 + away * limit, theirs)) == differs


def test_numbers_of_half_precision_are_seen_also_where_they_are_few():
    rng = torch.Generator().manual_seed(0)
    full = torch.randn(100_000, generator=rng)
    for dtype in (torch.bfloat16, torch.float16):
        few = torch.randn(10_000, generator=rng).to(dtype).float()
        assert in_half([few])
        assert in_half([full, None, few])
        assert not in_half([full, few[:1000]])
    large, rows = torch.randn(1 << 20, generator=rng), torch.zeros(1 << 10, 1 << 10)
    assert not in_half([large])
    assert in_half([large.bfloat16().float().view(1 << 10, -1).mT])
    rows[3, 5] = large.bfloat16().float()[0]
    assert in_half([rows])
    assert not in_half([full])
    assert not in_half([None])
    assert not in_half([full.double()])


def test_the_majority_is_more_than_half():
    assert majority({0: 5, 2: 5, 3: 7}) == 5
    assert majority({0: 5, 2: 7}) is None
    assert majority({0: 5, 1: 6, 2: 7}) is None
    assert majority({4: 9}) == 9


# ------------------------------------------------------------------------------- who is outvoted


def test_the_odd_one_is_away_from_two_that_agree():
    signs = Signs(50, 0)

    def sketch(*noise):
        return Sketch.of(share(1) + sum(noise), False, signs)

    small, large = 1e-7 * share(2), 0.3 * share(3)
    for at in range(3):
        three = [sketch(), sketch(small), sketch(2 * small)]
        three[at] = sketch(large)
        assert odd_one(three) == at
        three[at] = Sketch.of(share(1) * math.nan, False, signs)
        assert odd_one(three) == at
    assert odd_one([sketch(), sketch(small), sketch(-small)]) is None
    assert odd_one([sketch(), sketch(large), sketch(0.3 * share(4))]) is None  # all differ
    assert odd_one([sketch(), sketch(), sketch(1e-4 * share(3))]) is None  # rounding
    # One is far away, but the others differ from each other by more than an eighth of that.
    assert odd_one([sketch(), sketch(large / 4), sketch(-large)]) is None


@pytest.mark.parametrize("count", [3, 4, 5, 7])
def test_who_errs_is_outvoted_then_named_and_nobody_else(count):
    ranks = list(range(2, 2 + count))
    for secret, faulty in itertools.product(range(8), ranks):
        audits = audits_of(ranks)

        def gradient(rank, owner, faulty=faulty):
            found = share(owner)
            found[7] *= 1.5 if rank == faulty else 1.0
            return found

        first, computed = look_all(audits, gradient, secret)
        assert (first.outvoted, first.named) == ((faulty,), ())
        (wrong, other), *rest = first.instead.items()
        assert (wrong, rest) == (faulty, [])
        assert other in ranks
        assert other != faulty
        assert sum(computed.values()) == count + 2
        assert all(audit.due(1) for audit in audits.values())
        second, _ = look_all(audits, gradient, secret + 100)
        assert (second.outvoted, second.named) == ((faulty,), (faulty,))


def test_who_errs_in_its_own_share_alone_or_as_an_auditor_alone():
    ranks = list(range(4))
    for faulty, own in itertools.product(ranks, [True, False]):

        def gradient(rank, owner, faulty=faulty, own=own):
            return share(owner) * (2.0 if rank == faulty and (rank == owner) == own else 1.0)

        verdict, _ = look_all(audits_of(ranks), gradient)
        assert verdict.outvoted == (faulty,)
        assert list(verdict.instead) == ([faulty] if own else [])


def test_ranks_that_agree_compute_one_share_more_and_are_not_looked_at_again():
    audits = audits_of(range(5))
    verdict, computed = look_all(audits, lambda rank, owner: share(owner))
    assert verdict == Verdict()
    assert set(computed.values()) == {1}
    assert [audits[0].due(step) for step in (0, 1, 999, 1000, 2001)] == [1, 0, 0, 1, 0]


def test_who_erred_once_is_looked_at_for_some_steps_and_forgiven():
    def gradient(rank, owner):
        return share(owner) * (2.0 if rank == 1 and errs else 1.0)

    audits, errs = audits_of(range(4)), True
    assert look_all(audits, gradient)[0].outvoted == (1,)
    errs, looks = False, 0
    while audits[0].due(1):
        assert look_all(audits, gradient)[0] == Verdict()
        looks += 1
    assert looks == 3
    errs = True
    assert look_all(audits, gradient)[0].named == ()
    for audit in audits.values():
        audit.forget()
    assert not audits[0].due(1)
    assert look_all(audits, gradient)[0].named == ()
    assert look_all(audits, gradient)[0].named == (1,)


def test_sums_that_are_not_those_of_what_was_told():
    ranks = range(4)
    gradient = lambda rank, owner: share(owner, 9000)  # noqa: E731
    total = sum(share(r, 9000) for r in ranks)
    audits = audits_of(ranks)
    assert audits[0].adds_up(total)  # nothing is known yet
    look_all(audits, gradient)
    assert all(audit.adds_up(total) for audit in audits.values())
    for element, change in ((0, 1.0), (4095, -0.1), (8999, 0.1), (7, math.inf), (7, math.nan)):
        wrong = total.clone()
        wrong[element] += change
        assert not any(audit.adds_up(wrong) for audit in audits.values())
    look_all(audits, lambda rank, owner: share(owner) * math.nan)
    assert audits[0].adds_up(torch.zeros(50))  # sketches overflowed
    look_all(audits, lambda rank, owner: share(owner) * (1 + (rank == owner == 1)))
    assert audits[0].adds_up(torch.zeros(50))  # the sum holds the auditor's share, not rank 1's


def test_norms_that_rise_are_looked_at_but_those_that_a_scaler_skips():
    told = [1.0, 9.0, 91.0, 100.0, 0.1, 1.1, math.inf, math.nan, 1.0, math.nan, 1.0, 11.0]
    rise = [2, 5]  # 91 after 9, 1.1 after 0.1
    for scaled, which in ((False, [*rise, 6, 9, 11]), (True, [*rise, 11])):
        audit = Audit(0, 3, 100, scaled)
        assert [at for at, norms in enumerate(told) if audit.rises(norms)] == which
        audit.forget()
        assert not audit.rises(1000.0)


def test_two_ranks_and_one():
    def gradient(rank, owner):
        return share(owner) * (2.0 if rank == 1 else 1.0)

    assert look_all(audits_of([0, 1]), gradient)[0].undecided == (0, 1)
    assert look_all(audits_of([0, 2]), gradient)[0] == Verdict()
    assert look_all(audits_of([1]), gradient)[0] == Verdict()


def test_what_is_random_is_nobodys_fault():
    def gradient(rank, owner):
        return share(owner) * torch.randint(2, (50,), generator=drop[rank]) * 2.0

    for seed in range(20):
        drop = {r: torch.Generator().manual_seed(100 * seed + r) for r in range(5)}
        verdict, _ = look_all(audits_of(range(5)), gradient, seed)
        assert len(verdict.unlike) == 2


def test_one_that_overflows_counts_where_nothing_scales_or_the_third_time():
    def gradient(rank, owner):
        return share(owner) * (math.inf if rank == 1 or every else 1.0)

    every = True
    assert look_all(audits_of(range(4)), gradient)[0] == Verdict()
    every = False
    assert look_all(audits_of(range(4)), gradient)[0].outvoted == (1,)
    audits = audits_of(range(4), scaled=True)
    for outvoted in ((), (), (1,)):
        assert look_all(audits, gradient)[0].outvoted == outvoted
        assert audits[0].due(1)
    audits = audits_of(range(4), scaled=True)
    for every in (False, True, False, True):
        assert look_all(audits, gradient)[0] == Verdict()
        assert audits[0].due(1) == (not every)


# ------------------------------------------------------------------------------- copies


def folded(vectors, seed):
    """Return the fingerprint by its definition, in Python's integers."""

    def keys():
        return rng.integers(2**64 - 1, size=4096, dtype=np.uint64, endpoint=True).tolist()

    def hashed(words, keys):
        blocks = [words[at : at + 4096] for at in range(0, len(words), 4096)]
        return [sum(map(product, block, keys)) % 2**64 for block in blocks]

    def product(word, key):
        return (word + key) % 2**32 * (((word >> 32) + (key >> 32)) % 2**32)

    rng, found = np.random.default_rng(seed), []
    first = keys()
    for octets in vectors:
        filled = octets + bytes(-len(octets) % 8)
        found += hashed(np.frombuffer(filled, np.uint64).tolist(), first)
    found.append(0)
    while len(found) > 1:
        found = hashed(found, keys())
    return found[0]


@pytest.mark.parametrize("sizes", [[0], [1], [2], [7, 0, 8191], [8192, 1, 8193], [150_001]])
def test_fingerprints_are_sums_of_products_with_keys(sizes):
    rng = torch.Generator().manual_seed(sum(sizes))
    for dtype in (torch.float32, torch.float64):
        vectors = [torch.randn(size, generator=rng).to(dtype) for size in sizes]
        octets = [x.view(torch.uint8).numpy().tobytes() for x in vectors]
        assert bits(vectors, (3, 4)) == folded(octets, (3, 4))
        assert bits(vectors, (3, 5)) != bits(vectors, (3, 4)) or not sum(sizes)
        multiplied = Fingerprint((3, 4))
        for x in vectors:
            out = torch.empty_like(x)
            multiplied.add_multiplied(x, -0.75, out)
            assert torch.equal(out, -0.75 * x)
        assert multiplied.value() == bits(vectors, (3, 4))
        # The place in memory does not matter.
        shifted = [torch.cat([x[:1], x])[1:] for x in vectors]
        assert bits(shifted, (3, 4)) == bits(vectors, (3, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("coefficient", [0.0, 1.0, -0.75])
def test_a_message_holds_gradients_times_a_coefficient_whatever_is_hashed(coefficient, dtype):
    rng = torch.Generator().manual_seed(0)
    shapes = [(3,), (2, _PIECE + 5), (), (0, 4), (2, 3, 5, 7), (40, 50), (6,)]
    module = torch.nn.ParameterList(torch.randn(shape, generator=rng) for shape in shapes).to(dtype)
    for p in module:
        p.grad = torch.randn(p.shape, generator=rng, dtype=dtype)
    module[4].grad = module[4].grad.to(memory_format=torch.channels_last)
    module[5].grad = module[5].grad.to_sparse()
    module[6].grad = None
    message = _Message(module, averages=False, counted=0, prints=2)
    dense = [torch.zeros(6) if p.grad is None else p.grad.to_dense().flatten() for p in module]
    gradient = torch.cat(dense).to(dtype)
    message.flat.fill_(7.0)
    message.hash_gradients(coefficient, hashed := Fingerprint((1, 2)))
    small = [each.to(dtype) for each in dense]
    assert hashed.value() == bits([small[0], small[1], torch.cat(small[2:])], (1, 2))
    assert torch.equal(message.gradient, coefficient * gradient)
    assert (message.flat[len(gradient) :] == 7.0).all()
    module[1].grad[1, 3] = math.nan
    message.hash_gradients(coefficient, Fingerprint((1, 2)))
    assert message.gradient.isnan().sum() == (coefficient != 0.0)


def test_fingerprints_differ_where_any_bit_does_or_any_number_of_them():
    rng = torch.Generator().manual_seed(0)
    for dtype, words in ((torch.float32, torch.int32), (torch.float64, torch.int64)):
        flat = torch.randn(8195, generator=rng, dtype=dtype)
        right, width = bits(flat, (1,)), torch.iinfo(words).bits
        for element in (0, 1, 4096, 8191, 8192, 8194):
            for bit in range(width):
                wrong = flat.clone()
                wrong.view(words)[element] ^= (1 << bit) - (1 << width) * (bit == width - 1)
                assert bits(wrong, (1,)) != right
        # In a sum of odd multiples, the highest bits of an even number of words cancel.
        for seed, many in itertools.product(range(20), (2, 4, 8194)):
            wrong = flat.clone()
            wrong[torch.arange(many) + 1] *= -1.0
            assert bits(wrong, (seed,)) != bits(flat, (seed,))
        assert bits(flat.flip(0), (1,)) != right


def test_fingerprints_are_no_fixed_linear_function_as_checksums_are():
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(2**32, size=(3, 100), dtype=np.uint32)
    found = [bits(torch.from_numpy(x.view(np.float32)), (1,)) for x in (a, b, c, a ^ b ^ c)]
    assert found[0] ^ found[1] ^ found[2] != found[3]


def test_copies_have_equal_rows_and_codes_without_are_refused():
    assert copies(BinaryCode(6, stragglers=1)) == [[0, 1], [2, 3], [4, 5]]
    assert copies(BinaryCode(6, 4, stragglers=2)) == [[0, 1, 2], [3, 4, 5]]
    assert copies(FractionalRepetition(6, stragglers=1)) == [[0, 3], [1, 4], [2, 5]]
    for code, rank in [
        (BinaryCode(5, stragglers=1), 0),
        (CyclicRepetition(4, stragglers=1), 0),
        (Uncoded(3), 0),
    ]:
        with pytest.raises(ValueError, match=f"of rank {rank}: take FractionalRepetition, or"):
            copies(code)


class Told:
    """A view whose ranks all exchange their rows of a table."""

    def __init__(self, ranks, table):
        self.ranks, self.table = ranks, table

    def sum(self, tables):
        (tensor,) = tables
        (own,) = tensor.any(1).nonzero().flatten().tolist()
        assert torch.equal(tensor[own], self.table[own])
        tensor.copy_(self.table)


def compare_all(audits, gradients, step=0, secret=5, half=False):
    """Return all ranks' verdict on a gradient of each; None if gradients agree."""
    ranks = sorted(audits)
    told = [0] * (max(ranks) + 1)
    for r in ranks:
        told[r] = printed(audits[r], gradients[r], step)
    total = sum(gradients[r] for r in ranks)
    agreed = {audits[r].agree(ranks, told, total) for r in ranks}
    assert len(agreed) == 1
    if agreed.pop():
        return None
    size = gradients[ranks[0]].numel()
    view = Told(ranks, torch.zeros(len(told), 11, dtype=torch.float64))
    for r in ranks:
        sketch = Sketch.of(gradients[r], half, Signs(size, secret))
        view.table[r] = torch.tensor(sketch.row(), dtype=torch.float64)
    first, *others = (
        audits[r].compare(view, secret, told, (gradients[r], half), total) for r in ranks
    )
    assert all(each == first for each in others)
    return first


def copied(groups, scaled=False, seen=True):
    """Return audits of ranks in groups of copies; if `seen`, they have compared before."""
    count = max(map(max, groups)) + 1
    audits = {r: Audit(r, count, 1000, scaled, groups) for r in sorted(itertools.chain(*groups))}
    for audit in audits.values():
        audit.forget(11)
    if seen:
        assert compare_all(audits, of_groups(groups)) is None
    return audits


def of_groups(groups, size=50):
    return {r: share(at, size).clone() for at, group in enumerate(groups) for r in group}


PAIRS, TRIPLES = [[0, 3], [1, 4]], [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("groups", [PAIRS, TRIPLES, [[0, 2, 4, 6], [1, 3, 5, 7]]])
def test_every_bit_that_changes_the_step_is_found_in_every_rank(groups, dtype):
    words = torch.int32 if dtype == "float32" else torch.int64
    width = torch.iinfo(words).bits
    right = {r: x.to(getattr(torch, dtype)) for r, x in of_groups(groups).items()}
    step = sum(right[group[0]] for group in groups)
    before, signs, found = copied(groups)[0], Signs(50, 5), 0
    prints = [printed(before, right[r], 1) if r in right else 0 for r in range(max(right) + 1)]
    sketches = {r: Sketch.of(x, False, signs) for r, x in right.items()}
    for faulty, bit in itertools.product(right, range(width)):
        audit, wrong = copy.deepcopy(before), right[faulty].clone()
        wrong.view(words)[7] ^= (1 << bit) - (1 << width) * (bit == width - 1)
        told = prints.copy()
        told[faulty] = printed(audit, wrong, 1)
        assert not audit.agree(list(right), told, step)
        verdict = audit.judge_copies(told, sketches | {faulty: Sketch.of(wrong, False, signs)})
        group = next(each for each in groups if faulty in each)
        expected = {"undecided": tuple(group)} if len(group) == 2 else {"outvoted": (faulty,)}
        assert verdict in (Verdict(), Verdict(**expected))
        if not (wrong - right[faulty]).norm() <= 1e-4 * step.norm():  # true for NaN and Inf, too
            assert verdict == Verdict(**expected)
            found += 1
            assert audit.due(1) == (len(group) > 2)
    # Flips of the sign, the exponent, and the first bits of the fraction are found.
    assert found >= len(right) * (width - 22 if width == 32 else width - 50)


def test_a_copy_that_errs_is_outvoted_then_named_and_forgiven_if_it_does_not_again():
    audits, wrong = copied(TRIPLES), of_groups(TRIPLES)
    wrong[4][7] *= 1.5
    assert compare_all(audits, wrong) == Verdict(outvoted=(4,))
    assert compare_all(audits, wrong) == Verdict(outvoted=(4,), named=(4,))
    audits = copied(TRIPLES)
    compare_all(audits, wrong)
    for _ in range(3):
        assert all(audit.due(1) for audit in audits.values())
        assert compare_all(audits, of_groups(TRIPLES)) is None
    assert not any(audit.due(1) for audit in audits.values())
    assert compare_all(audits, wrong) == Verdict(outvoted=(4,))


def test_groups_without_a_majority():
    wrong = of_groups(TRIPLES)
    wrong[4][7] *= 1.5
    wrong[5][8] *= 1.5
    assert compare_all(copied(TRIPLES), wrong) == Verdict(undecided=(3, 4, 5))
    alone = of_groups([[0, 1], [2, 3, 4, 5]])
    alone[2][7] *= 1.5
    alone[3][7] *= 1.5
    assert compare_all(copied([[0, 1], [2, 3, 4, 5]]), alone) == Verdict(undecided=(2, 3, 4, 5))
    random = {r: share(10 + r) for r in range(6)}
    for groups in (PAIRS, TRIPLES):
        there = {r: random[r] for r in itertools.chain(*groups)}
        assert len(compare_all(copied(groups), there).unlike) == 2
    # Copies that are gone compare nothing; those left compare with each other.
    audits = copied(TRIPLES)
    rest = {r: audits[r] for r in (1, 3, 5)}
    assert compare_all(rest, random | {3: random[5]}) is None
    assert compare_all(rest, random) == Verdict(undecided=(3, 5))
    pairs = copied([[0, 1], [2, 3], [4, 5]])
    rest = {r: pairs[r] for r in (2, 4, 5)}
    assert compare_all(rest, random) == Verdict(undecided=(4, 5))


def test_machines_that_round_differently_are_nobodys_fault_and_others_are_held_to_their_bits():
    def off(by, who):
        found = of_groups(groups)
        found[who] += by * share(who).norm() * share(20) / share(20).norm()
        return found

    for groups, who in ((PAIRS, 3), (TRIPLES, 4)):
        small, large = off(0.3 * ROUNDED, who), off(0.3 * SAME, who)
        audits = copied(groups)
        assert compare_all(audits, large) not in (None, Verdict())
        audits = copied(groups)
        assert compare_all(audits, small) == Verdict()  # from now on, bits need not agree
        assert compare_all(audits, large) == Verdict()
        assert compare_all(audits, off(3 * SAME, who)) not in (None, Verdict())
        audits = copied(groups, seen=False)
        for norm in (0.0, math.nan):  # these do not show how machines round
            same = {r: x * norm for r, x in of_groups(groups).items()}
            assert compare_all(audits, same) is None
        assert compare_all(audits, large) == Verdict()
        assert compare_all(copied(groups), off(0.3 * SAME_HALF, who), half=True) == Verdict()


def test_a_copy_is_outvoted_only_where_the_others_are_near_each_other():
    def off(a, b):
        found = of_groups(TRIPLES)
        found[4][7] += a * share(1).norm()
        found[5][8] += b * share(1).norm()
        return found

    audits = copied(TRIPLES, seen=False)
    assert compare_all(audits, off(0.5 * SAME, 3 * SAME)) == Verdict()
    assert compare_all(audits, off(0.5 * SAME, 8 * SAME)) == Verdict(outvoted=(5,))


def test_copies_that_overflow_count_where_nothing_scales_or_the_third_time():
    for infinite in (math.inf, math.nan):
        wrong = of_groups(TRIPLES)
        wrong[4][7] *= infinite
        assert compare_all(copied(TRIPLES), wrong) == Verdict(outvoted=(4,))
        audits = copied(TRIPLES, scaled=True)
        for verdict in (Verdict(), Verdict(), Verdict(outvoted=(4,))):
            assert compare_all(audits, wrong) == verdict
            assert audits[0].due(1)
        audits = copied(TRIPLES, scaled=True)
        for _ in range(2):
            assert compare_all(audits, wrong) == Verdict()
            assert compare_all(audits, of_groups(TRIPLES)) is None
        every = {r: x * infinite for r, x in of_groups(TRIPLES).items()}
        every[0][3] = 1.0
        audits = copied(TRIPLES)
        assert compare_all(audits, every) == Verdict()
        wrong = of_groups(TRIPLES)
        wrong[0][7] += 0.3 * SAME * share(0).norm()
        assert compare_all(audits, wrong) == Verdict(outvoted=(0,))  # copies had the same bits


# ------------------------------------------------------------------------------- honest ranks


def gradients(count, dtype, devices, seed, scale=None):
    """Return gradients of many small nets: devices sum the same samples, each in its own order.

    The nets are perceptrons of three layers with ReLU. As by autocast, products are rounded to
    `dtype` and summed in float32; numbers too large for float16 become infinite.
    """
    rng = torch.Generator().manual_seed(seed)
    batch, inputs, width = 8, 12, 16
    x = torch.randn(count, batch, inputs, generator=rng)
    y = torch.randn(count, batch, 1, generator=rng)
    a = torch.randn(count, inputs, width, generator=rng) / inputs**0.5
    b = torch.randn(count, width, width, generator=rng) / width**0.5
    c = torch.randn(count, width, 1, generator=rng) / width**0.5
    scale = torch.ones(count, 1, 1) if scale is None else scale

    def near(t):
        return t.to(dtype).float()

    for _ in range(devices):
        samples, ins, units, others = (
            torch.randperm(m, generator=rng) for m in (batch, inputs, width, width)
        )
        u, v = x[:, samples][:, :, ins], y[:, samples]
        p, q, r = a[:, ins][:, :, units], b[:, units][:, :, others], c[:, others]
        u, p, q, r = map(near, (u, p, q, r))
        s = near(u @ p)
        h = s.relu()
        t = near(h @ q)
        k = t.relu()
        out = near(k @ r)
        d = near(2 * (out - v) * scale / batch)
        e = near(d @ r.mT) * (t > 0)
        f = near(e @ q.mT) * (s > 0)
        found = near(u.mT @ f), near(h.mT @ e), near(k.mT @ d)
        back = [torch.argsort(each) for each in (ins, units, others)]
        yield torch.cat(
            [
                found[0][:, back[0]][:, :, back[1]].flatten(1),
                found[1][:, back[1]][:, :, back[2]].flatten(1),
                found[2][:, back[2]].flatten(1),
            ],
            1,
        )


def near_each_other(of, within):
    """Return the steps in which all devices agree on all shares, up to `within`."""
    near = torch.ones(len(of[0][0]), dtype=torch.bool)
    for each in of:
        for a, b in itertools.combinations(each, 2):
            both = a.isfinite().all(1) & b.isfinite().all(1)
            neither = ~a.isfinite().all(1) & ~b.isfinite().all(1)
            away = (a.double() - b.double()).norm(dim=1) / a.double().norm(dim=1)
            near &= neither | (both & (away <= within))
    return near


def accusations(dtype, steps, seed=0):
    """Count audited steps in which one of three honest ranks is outvoted or named.

    Steps in which no two ranks differ by a tenth of the limit are skipped: nobody can be accused.
    """
    ranks, chunk = range(3), min(steps, 500)
    audits = audits_of(ranks, scaled=dtype is torch.float16)
    rng = torch.Generator().manual_seed(seed)
    what = ("outvoted", "named", "unlike", "overflow", "one overflows", "looked at")
    counts = dict.fromkeys(what, 0)
    for at in range(seed, seed + steps, chunk):
        of = []
        for owner in ranks:
            scale = None
            if dtype is torch.float16:  # so large that some overflow
                scale = torch.exp2(8 + 10 * torch.rand(chunk, 1, 1, generator=rng))
            of.append(list(gradients(chunk, dtype, 3, 3 * at + owner, scale)))
        finite = torch.stack([torch.stack([g.isfinite().all(1) for g in each]) for each in of])
        counts["overflow"] += int((~finite).any(0).any(0).sum())
        counts["one overflows"] += int((finite.any(1) & ~finite.all(1)).any(0).sum())
        half = in_half(g for each in of for g in each)
        assert half == (dtype is not torch.float32)
        near = near_each_other(of, (SAME_HALF if half else SAME) / 10)
        counts["looked at"] += len(near) - int(near.sum())
        of_each = [
            lambda rank, owner, at=at, of=of: of[owner][rank][at]
            for at in (~near).nonzero().flatten().tolist()
        ]
        for verdict, _ in look_often(audits, of_each, at, half):
            for what in ("outvoted", "named", "unlike"):
                counts[what] += len(getattr(verdict, what)) > 0
    return counts


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_no_honest_copy_is_accused_whatever_it_rounds(dtype):
    """Two of three ranks compute alike; some steps overflow."""
    steps, dtype = strength.much(10_000, 60), getattr(torch, dtype)
    half = dtype is not torch.float32
    scale = None
    if dtype is torch.float16:
        rng = torch.Generator().manual_seed(0)
        scale = torch.exp2(8 + 10 * torch.rand(steps, 1, 1, generator=rng))
    first, other = gradients(steps, dtype, 2, 1, scale)
    for alike in ([first, first, other], [first, other, first], [first, other]):
        ranks = range(len(alike))
        audits = copied([list(ranks)], scaled=dtype is torch.float16, seen=False)
        for step in range(steps):
            of_all = {r: alike[r][step] for r in ranks}
            verdict = compare_all(audits, of_all, step, half=half)
            assert verdict is None or not (verdict.named or verdict.unlike or verdict.undecided)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_no_honest_rank_is_accused_whatever_it_rounds(dtype):
    counts = accusations(getattr(torch, dtype), strength.much(100_000, 1000))
    assert counts["named"] == counts["unlike"] == 0
    if dtype == "float16":
        assert counts["overflow"] > 0
