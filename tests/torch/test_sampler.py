"""Which samples each rank takes, and where in a sampler's order the next step begins."""

import numpy as np
import pytest

from fastgc import BinaryCode, CyclicRepetition, LagrangeCode, ReedSolomon, Uncoded

torch = pytest.importorskip("torch")
pytest.importorskip("cloudpickle")
from groups_of_ranks import BATCH, PER_EPOCH, SEED, N, net, order, samples  # noqa: E402

from fastgc.torch import CodedAllReduce, CodedSampler  # noqa: E402
from fastgc.torch.sampler import Position  # noqa: E402


@pytest.mark.parametrize(
    "code", [BinaryCode(N, 9, stragglers=1), CyclicRepetition(N, stragglers=2)], ids=repr
)
def test_samplers_of_all_ranks_go_through_an_epoch_once(code):
    """Each partition goes to its holders, and each epoch holds all partitions once."""
    made = [CodedSampler(samples(), code, BATCH, rank, seed=SEED) for rank in range(N)]
    for epoch in range(2):
        steps = list(zip(*made, strict=True))
        assert len(steps) == len(made[0]) == PER_EPOCH
        seen = []
        for at, batches in enumerate(steps):
            parts = np.array_split(order(epoch * PER_EPOCH + at), code.k)
            assert {len(part) for part in parts} <= {BATCH // code.k, -(-BATCH // code.k)}
            for rank, (sampler, batch) in enumerate(zip(made, batches, strict=True)):
                # CodedDataParallel cuts partitions at the same places.
                cuts = [BATCH * j // code.k for j in range(code.k + 1)]
                whole = order(epoch * PER_EPOCH + at)
                own = [whole[cuts[j] : cuts[j + 1]] for j in code.partitions(rank)]
                assert batch == np.concatenate(own).tolist()
                weights = np.repeat(code.coefficients(rank), [len(part) for part in own])
                np.testing.assert_allclose(sampler.weights, weights, rtol=1e-6)
                assert sampler.weights.dtype == torch.float32
            assert set().union(*batches) == set(whole.tolist())
            seen += set().union(*batches)
        assert len(seen) == len(set(seen)) == PER_EPOCH * BATCH


def test_sampler_goes_on_in_mid_epoch_and_from_the_epoch_that_is_set():
    code = BinaryCode(N, stragglers=1)

    def make(**keywords):
        return CodedSampler(samples(), code, BATCH, 3, **{"seed": SEED, **keywords})

    whole = [batch for sampler in [make()] for _ in range(3) for batch in sampler]
    assert len({tuple(batch) for batch in whole}) == 3 * PER_EPOCH
    started = make()
    batches = iter(started)
    assert [next(batches) for _ in range(2)] == whole[:2]
    again = make()
    again.load_state_dict(started.state_dict())
    assert again.step == 2
    again.set_epoch(0)  # the epoch that it is in already
    assert list(again) == whole[2:3]
    assert again.epoch == 1
    again.set_epoch(2)
    assert list(again) == whole[6:]
    again.set_epoch(1)
    assert list(again) == whole[3:6]
    again.step = 4
    assert list(again) == whole[4:6]
    with pytest.raises(ValueError, match="seed = 7, not 8"):
        make(seed=8).load_state_dict(started.state_dict())
    with pytest.raises(ValueError, match="step must be at least 0"):
        again.step = -1
    given = make(order=range(60))
    assert len(given) == 2
    assert [len(batch) for batch in given] == [10, 10]
    for wrong, error in [
        ({"rank": N}, "rank 6 does not exist"),
        ({"batch_size": 5}, "batch_size must be at least 6"),
        ({"dataset": iter([])}, "map-style"),
    ]:
        arguments = {"dataset": samples(), "code": code, "batch_size": BATCH, "rank": 0, **wrong}
        with pytest.raises((TypeError, ValueError), match=error):
            CodedSampler(**arguments)


def test_give_changes_what_coming_batches_hold():
    code = BinaryCode(N, stragglers=1)
    sampler = CodedSampler(range(60), code, 2 * N, 2, order=range(60))
    batches, held = iter(sampler), code.partitions(2).tolist()
    assert sampler.own == list(zip(held, code.coefficients(2).tolist(), strict=True))
    assert next(batches) == [2 * j + i for j in held for i in range(2)]
    assert sampler.given(0) == []  # nothing is remembered before `give`
    sampler.give([5, 0])
    assert sampler.own == [(5, 1.0), (0, 1.0)]
    assert sampler.weights == 1.0
    assert next(batches) == [22, 23, 12, 13]
    sampler.give([1])
    assert next(batches) == [26, 27]
    assert [sampler.given(at) for at in range(4)] == [[], [5, 0], [1], []]
    assert sampler.samples(1, [3, 1]) == [18, 19, 14, 15]
    assert sampler.of(sampler.take()[0], [2]).tolist() == [40, 41]
    sampler.forget(2)
    assert [sampler.given(at) for at in range(4)] == [[], [], [1], [1]]


def test_sampler_of_a_loader_with_workers_of_its_own():
    data = samples()
    sampler = CodedSampler(data, BinaryCode(N, stragglers=1), BATCH, 0, seed=SEED)
    loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=1)
    for step, (x, _) in enumerate(loader):
        assert torch.equal(x, data[order(step)[:10]][0])
    assert sampler.step == PER_EPOCH


@pytest.mark.parametrize("make", [CodedAllReduce, CodedSampler])
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ReedSolomon(6, stragglers=2), "ReedSolomon has complex coefficients, .* BinaryCode"),
        (LagrangeCode(9, 2, load=2), "codes the data"),
        (Uncoded(6, load=2), "Uncoded has 2 messages of each worker"),
        (3, "code must be a code"),
    ],
    ids=repr,
)
def test_codes_that_do_not_fit(make, code, error):
    first = net() if make is CodedAllReduce else samples()
    arguments = {"rank": 0} | ({"batch_size": 40} if make is CodedSampler else {})
    with pytest.raises((TypeError, ValueError), match=error):
        make(first, code=code, **arguments)


# ---------------------------------------------------------------------------------------- positions


def test_position_of_a_sampler_that_is_not_used():
    sampler = CodedSampler(samples(), Uncoded(1), BATCH, 0)
    position = Position(sampler, 1)
    with pytest.raises(RuntimeError, match="the sampler gave 0 batches for this step, not 1"):
        position.check()


@pytest.mark.parametrize("of", [1, 2, 3, 4])
@pytest.mark.parametrize("ahead", [0, 1, 4])
@pytest.mark.parametrize("size", [1, 4, 7, 12])
def test_positions_are_those_of_batches_that_were_used(of, ahead, size):
    """Batches taken in advance, never of the next epoch, do not count."""
    sampler = CodedSampler(range(size * 2), Uncoded(1), 2, 0)
    for begin in range(size if size % of == 0 or not ahead else 1):
        used = begin
        position = Position(sampler, of)
        position.begin(begin)
        for _ in range(3 * size):
            if ahead and used % size + of > size:
                break  # the sampler cannot tell where a step ends that two epochs share
            used += of
            end = -(-used // size) * size
            sampler.step = max(sampler.step, min(used + ahead, end))
            position.check()
            position.advance()
            if not ahead or begin % of == 0:
                assert position.at == used


@pytest.mark.parametrize("way", ["shared", "left out"])
@pytest.mark.parametrize("of", [2, 3, 4])
@pytest.mark.parametrize("ahead", [0, 1, 2, 5])
@pytest.mark.parametrize("size", [3, 5, 7, 8, 11])
def test_positions_where_an_epoch_does_not_end_with_a_step(of, ahead, size, way):
    """Last batches share a step with the next epoch, or belong to none; if unclear: an error."""
    if of > size:
        pytest.skip("an epoch has no step of its own")
    sampler = CodedSampler(range(size * 2), Uncoded(1), 2, 0)
    position, used, told = Position(sampler, of), 0, 0
    found = ""
    for step in range(4 * size):
        begins = used
        if way == "left out" and used % size + of > size:
            begins = used = -(-used // size) * size
        used += of
        sampler.step = max(sampler.step, min(used + ahead, -(-used // size) * size))
        try:
            position.check()
        except RuntimeError as error:
            found = str(error)
            break
        if step:
            assert position.at == begins
        told += 1
        position.advance()
    if found:
        assert "cannot be told" in found
        assert size % of
        assert of + ahead >= size  # a loader had taken a whole epoch before its first step ended
    else:
        assert told == 4 * size


def test_position_takes_over_what_a_loader_took_ahead():
    """A rank joins at the end of an epoch, of which a batch is left."""
    sampler = CodedSampler(range(14), Uncoded(1), 2, 0)  # seven batches
    for lead, taken, at in [(0, 8, 6), (0, 9, 7), (2, 10, 6), (2, 11, 7), (None, 8, 6)]:
        position = Position(sampler, 2)
        position.begin(6, lead)
        sampler.step = taken
        position.check()
        assert position.at == at
    for lead, taken, error in [
        (None, 9, "cannot be told"),
        (3, 14, "cannot be told"),
        (0, 10, "a step has 3 batches of an epoch after 1 that were left"),
    ]:
        position = Position(sampler, 2)
        position.begin(6, lead)
        sampler.step = taken
        with pytest.raises(RuntimeError, match=error):
            position.check()
