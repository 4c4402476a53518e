"""Properties of every code: it decodes exactly the sets it should, by the same verbs."""

import itertools
from collections import Counter
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from liars import receive
from strength import much
from tables import (
    EVERY_LARGE,
    EVERY_SMALL,
    SMALL,
    Job,
    awaited,
    claims_all_that_spans,
    prefixes,
    spans,
)

from fastgc import BinaryCode, NotDecodableError, ReedSolomon, Uncoded
from fastgc.codes import catalogue
from fastgc.coding.code import check_code
from fastgc.stability import worst_stragglers


def subsets(code):
    everything = range(code.scheme.messages.count)
    return itertools.chain.from_iterable(
        itertools.combinations(everything, size) for size in range(code.scheme.messages.count + 1)
    )


# ------------------------------------------------------------------------ who came, as booleans


def verbs(code, job):
    """Return functions of survivors and their messages, one for each verb that takes survivors."""
    bound = code.bind(np.array(job.messages), p=job.p)
    return (
        lambda F, _: code.decodable(F),
        lambda F, _: code.decoding_vector(F),
        lambda F, _: code.decoder()(F).copy(),
        lambda F, sent: code.decode(F, sent, p=job.p),
        lambda F, sent: code.decode(F, sent, p=job.p, partial="best").gradient,
        lambda F, sent: code.combine(code.decoding_vector(F), F, sent, p=job.p),
        lambda F, _: bound(F).copy(),
        lambda F, _: code.best_vector(F)[0],
        lambda F, _: code.residual(F),
        lambda F, _: code.trust(F),
    )


@EVERY_SMALL
def test_booleans_are_the_numbers_of_those_that_came(code):
    job, rng, told = Job(code), np.random.default_rng(0), 0
    count = code.scheme.messages.count
    for missing in range(count):
        came = np.ones(count, dtype=bool)
        came[rng.permutation(count)[:missing]] = False
        numbers = np.flatnonzero(came)
        assert code.decodable(came) == code.decodable(came.tolist()) == code.decodable(numbers)
        if code.decodable(numbers) and told < 2:
            told += 1
            sent = [job.messages[m] for m in numbers]
            for verb in verbs(code, job):
                np.testing.assert_array_equal(verb(came, sent), verb(numbers, sent))
    assert told
    for wrong in (count - 1, count + 1):
        for verb in verbs(code, job):
            with pytest.raises(ValueError, match=f"{count} booleans, not {wrong} booleans"):
                verb(np.ones(wrong, dtype=bool), job.messages)


# ------------------------------------------------------------------------ exhaustively, if small


@EVERY_SMALL
def test_every_set_of_messages(code):
    """A code decodes exactly when it should; otherwise it says how many messages are missing."""
    job = Job(code)
    everything = set(range(code.scheme.messages.count))
    decodable = {F: code.decodable(F) for F in subsets(code)}
    for F, ready in decodable.items():
        if claims_all_that_spans(code):
            assert ready == spans(code, F), F
        if ready:
            assert job.error(job.decode(F)) < 1e-8
            continue
        with pytest.raises(NotDecodableError) as caught:
            job.decode(F)
        missing = caught.value.missing
        assert 1 <= missing <= code.scheme.messages.count - len(F)
        rest = sorted(everything.difference(F))
        if missing > 1 and len(rest) < 8:  # no fewer messages than `missing` suffice
            for more in itertools.combinations(rest, missing - 1):
                assert not decodable[tuple(sorted((*F, *more)))]
    assert not decodable[()]
    assert decodable[tuple(everything)]


@EVERY_SMALL
def test_threshold_and_stragglers_are_exact(code):
    """Every set of `threshold` messages in order decodes, and some set of one fewer does not."""
    most = max((len(F) for F in prefixes(code.scheme) if not code.decodable(F)), default=0)
    assert code.threshold == most + 1
    for s in range(code.n):
        every = all(
            code.decodable(code.scheme.messages.of(came))
            for came in itertools.combinations(range(code.n), code.n - s)
        )
        assert every == (s <= code.stragglers)


# One code of each class and layout, which hand different arguments to compiled code.
SMOKE = list({(type(code), code.scheme.layout): code for code in reversed(SMALL)}.values())


@EVERY_SMALL
def test_entries_are_those_of_rows(code):
    """They agree to the last bit, for schemes that give the entries of all workers at once."""
    scheme = code.scheme
    first, held, values = scheme.entries
    rows = list(scheme.message_rows())
    assert first.tolist() == np.cumsum([0, *(each.size for each, _ in rows)]).tolist()
    assert held.tolist() == [j for each, _ in rows for j in each.tolist()]
    np.testing.assert_array_equal(values, np.concatenate([each for _, each in rows]))
    assert held.dtype == np.int64


# ---------------------------------------------------------------------------------- large codes


@EVERY_LARGE
def test_random_sets_of_large_codes(code):
    """Sets of `threshold` messages and larger ones decode, with the error that `trust` says."""
    job, rng = Job(code), np.random.default_rng(1)
    for size in (code.threshold, min(code.threshold + 7, code.scheme.messages.count)):
        due, F = Counter(), []
        for worker in rng.permutation(code.scheme.messages.workers)[:size].tolist():
            F.append(code.scheme.messages.number(worker, due[worker]))
            due[worker] += 1
        assert code.decodable(F)
        error, trusted = job.error(job.decode(F)), code.trust(F).relative_error
        assert trusted < 1e-2
        assert error < 30 * trusted


@EVERY_LARGE
def test_random_small_sets_of_large_codes(code):
    """Sets of any size are decodable if a linear decoder can decode them; others are refused."""
    rng = np.random.default_rng(2)
    seen = set()
    trials = much(12, 4) if claims_all_that_spans(code) else much(40, 10)
    for _ in range(trials):
        size = int(rng.integers(1, code.scheme.messages.count + 1))
        F = rng.permutation(code.scheme.messages.count)[:size]
        ready = code.decodable(F)
        seen.add(ready)
        if claims_all_that_spans(code):
            assert ready == spans(code, F)
        else:
            assert ready == (size >= code.threshold)
        if not ready:
            with pytest.raises(NotDecodableError, match=f"{size} messages do not determine"):
                code.decoding_vector(F)


# --------------------------------------------------------------------- what codes say of themselves


@EVERY_SMALL
def test_what_a_code_consists_of(code):
    assert code.scheme.loads.tolist() == [len(code.partitions(i)) for i in range(code.n)]
    assert code.load == code.scheme.loads.max()
    assert code.scheme.messages.per_worker == max(code.scheme.messages.counts)
    assert code.scheme.messages.count == sum(code.scheme.messages.counts)
    number = 0
    for i, count in enumerate(code.scheme.messages.counts):
        parts = [code.partitions(i, t) for t in range(count)]
        np.testing.assert_array_equal(np.concatenate(parts), code.partitions(i))
        coefficients = [code.coefficients(i, t) for t in range(count)]
        np.testing.assert_array_equal(np.concatenate(coefficients), code.coefficients(i))
        for t in range(count):
            assert code.scheme.messages.number(i, t) == number
            assert code.scheme.messages.sender(number) == (i, t)
            row = np.zeros(code.scheme.data.shards, dtype=complex)
            row[parts[t]] = coefficients[t]
            np.testing.assert_array_equal(code.matrix()[number], row)
            number += 1
        for t in (-1, count):
            for ask in (code.scheme.messages.number, code.partitions):
                with pytest.raises(ValueError, match=f"worker {i}, which sends {count}: index {t}"):
                    ask(i, t)
    with pytest.raises(ValueError, match=rf"message {number} does not exist: .* 0 to {number - 1}"):
        code.scheme.messages.sender(number)
    with pytest.raises(ValueError, match="worker -1 does not exist"):
        code.partitions(-1)
    what = "workers" if code.scheme.messages.per_worker == 1 else "messages"
    with pytest.raises(ValueError, match=rf"{what} are numbered 0 to {number - 1}"):
        code.decoding_vector([number])


@EVERY_SMALL
def test_recovery_is_the_mean_over_orders(code):
    """If every worker sends one message, it is the mean over all sets."""
    found = code.recovery(trials=400, seed=3)
    assert found == code.recovery(trials=400, seed=3)
    assert 1 <= found.workers <= found.messages <= code.threshold
    size = code.message_size(2) * code.scheme.format(1, np.float64).message_dtype.itemsize / 16
    assert found.communication_load == pytest.approx(found.messages * size)
    if code.scheme.messages.per_worker == 1:
        # E[messages] is the sum over m of the probability that m random messages do not suffice.
        rule = awaited(code)
        expected = sum(
            np.mean([rule.missing(np.array(F, int)) > 0 for F in combinations(range(code.n), m)])
            for m in range(code.n)
        )
        assert found.messages == pytest.approx(expected, abs=0.25)


# --------------------------------------------------------------------------- too few: the best


@EVERY_SMALL
def test_best_of_too_few(code):
    job = Job(code)
    rng = np.random.default_rng(0)
    for size in range(1, code.scheme.messages.count + 1):
        F = rng.permutation(code.scheme.messages.count)[:size]
        messages = [job.messages[m] for m in F]
        found = code.decode(F, messages, p=job.p, partial="best")
        vector, residual = code.best_vector(F)
        assert found.residual == residual
        received = code.round(job.p)
        for m in F.tolist():
            receive(received, m, job.messages[m])
        best = received.best()
        assert best.residual == residual
        np.testing.assert_array_equal(best.gradient, found.gradient)
        if code.decodable(F):
            assert residual < 1e-12
            np.testing.assert_array_equal(found.gradient, job.decode(F))
            continue
        if code.scheme.data.coded:
            rows, target, _ = code.scheme.equations(F)
        else:
            rows, target = code.matrix()[F], np.ones(code.k)
        if received.form.message_dtype.kind == "c":  # the master takes the real part
            rows = np.concatenate([rows.real, -rows.imag])
            vector = np.concatenate([vector.real, vector.imag])
        distance = np.linalg.norm(vector @ rows - target)
        assert residual == pytest.approx(distance / np.sqrt(target.sum()), abs=1e-12)
        # By the normal equations, no other combination comes closer.
        slope = rows.conj() @ (vector @ rows - target)
        assert np.abs(slope).max() < 1e-9 * max(1, np.abs(rows).max() ** 2 * np.abs(vector).max())
        if not code.scheme.is_complex:
            combination = sum(a * m for a, m in zip(vector, messages, strict=True))
            np.testing.assert_allclose(found.gradient, combination, atol=1e-10)
        with pytest.raises(NotDecodableError):
            code.decode(F, messages, p=job.p)
    with pytest.raises(ValueError, match="without any message"):
        code.decode([], [], partial="best")
    with pytest.raises(ValueError, match="without any message"):
        code.round(job.p).best()


# --------------------------------------------------------------------------- rounds and encoders


@pytest.mark.every_backend
@EVERY_SMALL
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounds_and_streaming_encoders(code, dtype):
    job = Job(code, dtype)
    received = code.round(job.p, dtype)
    rng = np.random.default_rng(5)
    unit = np.finfo(dtype).eps
    for _ in range(3):
        received.reset()
        heard, due = [], Counter()
        for worker in rng.permutation(code.scheme.messages.workers).tolist():
            t, due[worker] = due[worker], due[worker] + 1
            encoder = code.encoder(worker, job.p, dtype, index=t)
            for j in rng.permutation(code.partitions(worker, t)):
                encoder.add(int(j), job.partials[j])
            heard.append(code.scheme.messages.number(worker, t))
            message = encoder.message()
            scale = np.abs(message).max()
            np.testing.assert_allclose(message, job.messages[heard[-1]], atol=40 * unit * scale)
            ready = received.receive(worker, job.messages[heard[-1]])
            assert ready == (not awaited(code).missing(np.array(heard)))
            assert received.survivors.tolist() == heard
            if received.ready:
                gradient, trusted = received.gradient(), received.trust().relative_error
                assert gradient.dtype == dtype
                assert job.error(gradient) < 100 * max(trusted, unit)
        before = received.survivors.tolist()
        with pytest.raises(ValueError, match=r"heard already|sent all its \d messages already"):
            received.receive(worker, job.messages[heard[-1]])
        with pytest.raises(ValueError, match="was heard already in this round"):
            received.receive(worker, job.messages[heard[-1]], 0)
        assert received.survivors.tolist() == before


# ---------------------------------------------------------------------------------- bad arguments


@EVERY_SMALL
def test_index_of_a_message(code):
    job = Job(code)
    given = [job.partials[j] for j in code.partitions(0, 0)]
    for index, error in ((None, TypeError), ("0", TypeError), (99, ValueError)):
        for call in (
            lambda index=index: code.encode(0, given, index=index),
            lambda index=index: code.encoder(0, job.p, index=index),
            lambda index=index: code.bind_encoder(0, np.array(given), index=index),
        ):
            with pytest.raises(error, match=r"must be an integer|does not exist"):
                call()
    with pytest.raises(ValueError, match=f"computes {len(given)} partial gradients"):
        code.encode(0, given * 2)
    with pytest.raises(ValueError, match="method"):
        code.decoding_vector(range(code.scheme.messages.count), "guess")


HUGE = np.broadcast_to(np.int64(1), 1 << 44)  # 8 bytes that look larger than any memory


def test_check_code_names_one():
    check_code(BinaryCode(3, stragglers=1))
    with pytest.raises(
        TypeError, match=r"^code must be .* such as fastgc.BinaryCode\(.*, not 'rs'$"
    ):
        check_code("rs")


def test_too_few_messages_are_counted():
    for came, said in (
        (0, "^0 messages do not "),
        (1, "^1 message does not "),
        (2, "^2 messages do "),
    ):
        with pytest.raises(NotDecodableError, match=said):
            BinaryCode(8, stragglers=2).decoding_vector(range(came))


def test_survivors_far_more_than_messages_are_refused_at_once():
    code = BinaryCode(4, stragglers=1)
    for verb in (code.decodable, code.trust, code.best_vector):
        with pytest.raises(ValueError, match="names worker 1 a second time"):
            verb(HUGE)


def test_messages_of_no_workers():
    code = Uncoded(3, load=2)
    np.testing.assert_array_equal(
        code.scheme.messages.of([2, 0]), code.scheme.messages.of(iter([0, 2]))
    )
    for workers, error, text in [
        ([3], ValueError, "worker 3 does not exist"),
        ([-1], ValueError, "worker -1 does not exist"),
        ([0.0], TypeError, "must be an integer"),
        (np.array([True]), TypeError, "must be an integer"),
    ]:
        with pytest.raises(error, match=text):
            code.scheme.messages.of(workers)


def test_seeds_and_trials_are_numbers():
    code = BinaryCode(4, stragglers=1)
    with pytest.raises(ValueError, match="trials must be at least 1, not 0"):
        code.recovery(0)
    for verb in (code.recovery, partial(worst_stragglers, code)):
        with pytest.raises(ValueError, match="seed must be at least 0, not -1"):
            verb(seed=-1)
        with pytest.raises(TypeError, match="seed must be an integer, not None"):
            verb(seed=None)


@EVERY_SMALL
def test_decoders_fill_no_more_than_they_hold(code):
    decoder = code.decoder()
    decoder.survivors[:] = np.arange(code.scheme.messages.count)
    for f in (-1, code.scheme.messages.count + 1, 1 << 40):
        with pytest.raises(ValueError, match="f must be in 0"):
            decoder.fill(f)


@pytest.mark.parametrize("name", ["rs", "uc-mmc:load=3", "lcc-mmc:load=3"])
def test_senders_of_messages_are_those_of_each(name):
    scheme = catalogue.make(name, 9).scheme
    messages = np.random.default_rng(0).permutation(scheme.messages.count)[:7]
    expected = sorted({scheme.messages.sender(int(each))[0] for each in messages})
    assert scheme.messages.senders(messages).tolist() == expected


# ------------------------------------------------------------------------------ many rounds at once


@pytest.mark.every_backend
@pytest.mark.parametrize("code", SMOKE, ids=repr)
def test_batch_is_each_round_by_itself(code):
    rng = np.random.default_rng(3)
    masks = rng.random((60, code.scheme.messages.count)) < rng.random((60, 1))
    masks[0], masks[1] = True, False
    before = masks.copy()
    vectors = code.decoding_vectors(masks, undecodable="nan")
    np.testing.assert_array_equal(masks, before)
    columns = np.asfortranarray(masks)
    np.testing.assert_array_equal(code.decoding_vectors(columns, undecodable="nan"), vectors)
    decodable = 0
    for mask, vector in zip(masks, vectors, strict=True):
        survivors = np.flatnonzero(mask)
        if code.decodable(survivors):
            decodable += 1
            np.testing.assert_array_equal(vector[survivors], code.decoding_vector(survivors))
            assert not vector[~mask].any()
        else:
            assert np.isnan(vector).all()
    assert 0 < decodable < 60
    first = int(np.flatnonzero(np.isnan(vectors).any(axis=1))[0])
    with pytest.raises(NotDecodableError) as caught:
        code.decoding_vectors(masks)
    assert caught.value.__notes__ == [f"round {first} of 60"]


def test_batch_refuses_other_masks():
    code = ReedSolomon(6, stragglers=1)
    with pytest.raises(TypeError, match="masks must be boolean, not int64"):
        code.decoding_vectors(np.ones((2, 6), dtype=np.int64))
    with pytest.raises(ValueError, match=r"\(rounds, 6\), not \(2, 5\)"):
        code.decoding_vectors(np.ones((2, 5), dtype=bool))
    with pytest.raises(ValueError, match="undecodable must be"):
        code.decoding_vectors(np.ones((2, 6), dtype=bool), undecodable="skip")
    with pytest.raises(ValueError, match="method must be"):
        code.decoding_vectors(np.ones((2, 6), dtype=bool), "guess")


@pytest.mark.parametrize("partial", [None, "best"])
def test_decode_tells_a_tracker(partial):
    """What it decodes, from whom, and the error that it trusts the gradient to have."""
    told = []

    class Notes:
        def record(self, scheme, survivors, vector, form, predicted):
            told.append((survivors.tolist(), vector, predicted))

    code = ReedSolomon(7, stragglers=2)
    job, F = Job(code), [6, 1, 2, 3, 5]
    found = job.decode(F, tracker=Notes(), partial=partial)
    np.testing.assert_array_equal(found if partial is None else found.gradient, job.decode(F))
    [(survivors, vector, predicted)] = told
    assert survivors == F
    np.testing.assert_allclose(vector, code.decoding_vector(F))
    assert 0 < predicted < 1e-12
