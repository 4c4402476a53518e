"""Ranks that train together: gradients of whole batches, deaths, newcomers, and what goes wrong.

Ranks are threads of this process here; `schedules` has processes that are killed at random.
"""

import copy
import logging
import multiprocessing
import time

import numpy as np
import programs
import pytest
from strength import much

import fastgc
from fastgc.errors import FinishedError, LeftOutError, LostError

torch = pytest.importorskip("torch")
pytest.importorskip("cloudpickle")
from ranks import (  # noqa: E402
    BATCH,
    SECONDS,
    STEPS,
    DeadError,
    Ranks,
    X,
    Y,
    batch,
    flat,
    loss,
    net,
    plain,
)

from fastgc.torch import ReactiveDataParallel, member  # noqa: E402
from fastgc.torch.coordinator import Server  # noqa: E402


def training(trouble=lambda *_: None, calls=1, steps=STEPS, pause=0.0, left_out=False):
    """Return a rank's program; ``trouble(when, rank, life, step)`` may raise `DeadError`."""

    def run(rank, life, options):
        module = net()
        optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + 0.1 * n))
        state = [optimizer] if left_out else [optimizer, schedule]
        worst, done = 0.0, []
        with ReactiveDataParallel(module, state, **options) as rdp:
            for step in rdp.steps(steps):
                done.append(step)
                optimizer.zero_grad()
                trouble("before", rank, life, step)
                total = 0.0
                for call in range(calls):
                    own = batch(calls * step + call)
                    before = loss(module, own) / BATCH
                    mean, count = rdp.backward(lambda i: (loss(module, i), len(i)), own)
                    assert count == BATCH
                    assert mean == pytest.approx(before.item(), rel=1e-5)
                    total = total + before
                true = flat(torch.autograd.grad(total, list(module.parameters())))
                found = flat(p.grad for p in module.parameters())
                worst = max(worst, float((found - true).norm() / true.norm()))
                trouble("after", rank, life, step)
                optimizer.step()
                schedule.step()
                time.sleep(pause)
        assert worst < 1e-5
        return {"step": rdp.step, "weights": flat(module.parameters()), "steps": done}

    return run


def check(results, calls=1):
    """Require the weights of one process, and the same bits on all ranks that have ended."""
    ended = [each for each in results.values() if isinstance(each, dict)]
    wrong = [e for e in results.values() if isinstance(e, Exception) and type(e) is not DeadError]
    assert not wrong, wrong
    assert ended
    for each in ended:
        assert each["step"] == STEPS
        assert torch.equal(each["weights"], ended[0]["weights"])
    torch.testing.assert_close(ended[0]["weights"], plain(calls=calls), rtol=1e-4, atol=1e-6)
    return ended


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_backward_gives_the_gradient_of_the_whole_batch(count, calls):
    assert len(check(Ranks(count, training(calls=calls)).end(), calls)) == count


def test_backward_sums_once_after_the_first_step(monkeypatch):
    """Gradients go round with what ranks tell, in one collective, while ranks and modules stay."""
    calls, sum_ = [], member.Member.sum

    def counted(self, *rest):
        calls.append(self.rank)
        return sum_(self, *rest)

    monkeypatch.setattr(member.Member, "sum", counted)
    check(Ranks(2, training()).end())
    assert calls.count(0) == calls.count(1) == 1 + 2 + (STEPS - 1) + 1  # begin, step 0, others, end


def dies(*deaths):
    def trouble(when, rank, life, step):
        time.sleep(0.02)
        if life == 0 and (when, rank, step) in deaths:
            raise DeadError

    return trouble


@pytest.mark.parametrize(
    "deaths",
    [
        [("before", 1, 3)],
        [("after", 0, 3)],
        [("before", 0, 3), ("after", 1, 3)],
        [("after", 0, 2), ("after", 1, 2)],
        [("before", 2, 0)],
        [("after", 2, STEPS - 1)],
    ],
)
def test_a_death_costs_no_step(deaths):
    results = Ranks(3, training(dies(*deaths), pause=0.05)).end()
    late = [key for key, each in results.items() if isinstance(each, FinishedError)]
    check({key: each for key, each in results.items() if key not in late})
    assert sum(isinstance(each, DeadError) for each in results.values()) == len(deaths)


@pytest.mark.parametrize("error", [DeadError, TimeoutError])
def test_a_state_that_is_not_handed_over_stalls_nobody(error, monkeypatch):
    """As its sender dies, or does not reach the newcomer: nobody waits for `hang`."""
    call, failed = member.Member.call, []

    def fails_if_first(self, name, address, number):
        # For a step alone the last rank sends the state, for the view the first one.
        if self.rank == 0 and not failed:
            failed.append(number)
            raise error
        return call(self, name, address, number)

    monkeypatch.setattr(member.Member, "call", fails_if_first)

    def run(rank, life, options):
        return None if life and not rank else training(trouble, pause=0.1)(rank, life, options)

    trouble = dies(("before", 2, 2))
    results = Ranks(3, run, hang=1000.0).end()
    assert failed[0] > 0
    assert isinstance(results[0, 0], DeadError) == (error is DeadError)
    check({key: each for key, each in results.items() if each is not None})


def test_more_ranks_than_at_the_start_may_join():
    ranks = Ranks(2, training(pause=0.2))
    time.sleep(0.4)
    ranks.start(2)
    ranks.start(3)
    ended = check(ranks.end())
    assert len(ended) == 4
    assert ranks.results[3, 0]["steps"][0] > 0


def test_a_scheduler_that_state_does_not_name_is_an_error():
    trouble = dies(("after", 1, 4))
    results = Ranks(3, training(trouble, pause=0.05, left_out=True, steps=30)).end()
    told = [e for e in results.values() if isinstance(e, RuntimeError)]
    assert len(told) == 3
    for each in told:
        assert "parameters differ" in str(each)
        assert "state=" in str(each)


def test_what_one_rank_sees_is_an_error_on_all(monkeypatch):
    """Where the group breaks before the others have what it has seen."""
    check_ = ReactiveDataParallel._check

    def sees(self, *rest):
        if self.rank == 1 or self.step == 0:
            check_(self, *rest)

    monkeypatch.setattr(ReactiveDataParallel, "_check", sees)
    results = Ranks(3, differing("calls")).end()
    assert len(results) == 3
    for each in results.values():
        assert isinstance(each, RuntimeError)
        assert "different" in str(each)


def differing(what):
    def run(rank, life, options):
        module = net()
        if what == "parameters" and rank == 1:
            torch.nn.init.zeros_(module[0].bias)
        with ReactiveDataParallel(module, **options) as rdp:
            for step in rdp.steps(3):
                own = batch(step + (what == "batches" and rank))
                size = BATCH - (what == "sizes" and rank)
                rdp.backward(lambda i: loss(module, i), own[:size])
                if what == "calls" and rank and step == 1:
                    rdp.backward(lambda i: loss(module, i), own)

    return run


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("parameters", "parameters differ at the start"),
        ("batches", "different batches"),
        ("sizes", "different sizes"),
        ("calls", "different steps"),
    ],
)
def test_what_differs_is_an_error_on_all_ranks(what, said):
    results = Ranks(2, differing(what)).end()
    for each in results.values():
        assert isinstance(each, RuntimeError)
        assert said in str(each)


def test_a_rank_that_leaves_early_leaves_the_others(caplog):
    def run(rank, life, options):
        module = net()
        with ReactiveDataParallel(module, **options) as rdp:
            for step in rdp.steps(6):
                rdp.backward(lambda i: loss(module, i), batch(step))
                if rank == 0 and step == 2:
                    break
        return rdp.step

    with caplog.at_level(logging.WARNING, "fastgc"):
        results = Ranks(3, run).end()
    assert sorted(results.values()) == [2, 6, 6]
    assert caplog.text.count("rank 0 has left at step 2") == 2


def test_a_rank_that_hangs_is_left_out():
    def trouble(when, rank, life, step):
        if (when, rank, life, step) == ("before", 1, 0, 3):
            time.sleep(5)

    ranks = Ranks(3, training(trouble), hang=1.0)
    results = ranks.end()
    assert isinstance(results.pop((1, 0)), LeftOutError)
    assert len(check(results)) == 2


def test_others_wait_for_one_that_is_busy():
    def run(rank, life, options):
        module = net()
        with ReactiveDataParallel(module, **options) as rdp:
            for step in rdp.steps(4):
                if step == 2 and rdp.first:
                    with rdp.busy():
                        time.sleep(3)
                rdp.backward(lambda i: loss(module, i), batch(step))
            if rank == 1:
                time.sleep(3)
        return rdp.ranks

    assert list(Ranks(3, run, hang=1.0).end().values()) == [[0, 1, 2]] * 3


def test_a_rank_that_comes_too_late_and_one_that_finds_nobody():
    ranks = Ranks(2, training())
    for thread in list(ranks.threads):
        thread.join(SECONDS)
    ranks.start(1, life=1)
    assert isinstance(ranks.end()[1, 1], FinishedError)

    def run(rank, life, options):
        if life:
            time.sleep(0.3)
        return training(dies(("before", 0, 2), ("before", 1, 2)))(rank, life, options)

    results = Ranks(2, run, hang=1.0).end()
    assert isinstance(results[0, 1], LostError)
    assert isinstance(results[1, 1], LostError)


def test_shares_follow_paces_and_times_are_written(tmp_path):
    def run(rank, life, options):
        module, sizes = net(), []

        def compute(indices):
            sizes.append(len(indices))
            time.sleep(2e-3 * len(indices) * (3 if rank == 1 else 1))
            return loss(module, indices)

        with ReactiveDataParallel(module, times=tmp_path / "times.csv", **options) as rdp:
            for step in rdp.steps(15):
                rdp.backward(compute, batch(step))
        return sizes[-1]

    results = Ranks(2, run).end()
    assert results[0, 0] + results[1, 0] == BATCH
    assert abs(results[1, 0] - BATCH / 4) <= 2
    times = np.loadtxt(tmp_path / "times.csv", delimiter=",")
    assert times.shape == (15, 2)
    assert np.isfinite(fastgc.delays.Empirical(times).mean())
    ratios = times[5:, 1] / times[5:, 0]  # of equal shares, though rank 1 has computed a third
    assert 2 < np.median(ratios) < 4


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_fetches_samples_ahead(num_workers):
    dataset = torch.utils.data.TensorDataset(X, Y)

    def run(rank, life, options):
        module = net()
        with ReactiveDataParallel(module, **options) as rdp:
            load = rdp.loader(dataset, num_workers=num_workers, batch=batch)

            def compute(indices):
                x, y = load(indices)
                assert torch.equal(x, X[indices])
                if num_workers and rdp.step == 2:  # a process is killed: another takes its place
                    multiprocessing.active_children()[0].kill()
                return ((module(x) - y) ** 2).sum()

            for step in rdp.steps(5):
                mean = rdp.backward(compute, batch(step))
                assert mean == pytest.approx(loss(module, batch(step)).item() / BATCH, rel=1e-5)
        return rdp.step

    assert list(Ranks(1, run).end().values()) == [5]


def test_a_run_goes_on_from_a_checkpoint():
    saved = {}

    def run(rank, life, options, until, resume):
        module = net()
        optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + 0.1 * n))
        all_ = {"module": module, "optimizer": optimizer, "schedule": schedule}
        rdp = ReactiveDataParallel(module, [optimizer, schedule], **options)
        if resume:
            for name, each in {**all_, "rdp": rdp}.items():
                each.load_state_dict(copy.deepcopy(saved[name]))
        with rdp:
            for step in rdp.steps(until):
                optimizer.zero_grad()
                rdp.backward(lambda i: loss(module, i), batch(step))
                optimizer.step()
                schedule.step()
            if rdp.first:
                for name, each in {**all_, "rdp": rdp}.items():
                    saved[name] = each.state_dict()
        return {"step": rdp.step, "weights": flat(module.parameters())}

    Ranks(2, lambda *own: run(*own, 3, False)).end()
    check(Ranks(3, lambda *own: run(*own, STEPS, True)).end())


def test_an_error_of_compute_ends_its_rank_alone():
    def run(rank, life, options):
        module = net()

        def compute(indices):
            if rank == 1 and rdp.step == 2:
                raise ArithmeticError("a disk")
            return loss(module, indices)

        with ReactiveDataParallel(module, **options) as rdp:
            for step in rdp.steps(4):
                rdp.backward(compute, batch(step))
        return rdp.step

    results = Ranks(3, run).end()
    assert isinstance(results.pop((1, 0)), ArithmeticError)
    assert list(results.values()) == [4, 4]


def test_bad_arguments(monkeypatch):
    module = net()
    for options, error, said in (
        ({"state": [3]}, TypeError, "state= takes"),
        ({"reduction": "max"}, ValueError, "reduction"),
        ({"hang": 0}, ValueError, "hang must be"),
        ({"store": "here"}, ValueError, "store must be host:port"),
    ):
        with pytest.raises(error, match=said):
            ReactiveDataParallel(module, **options)
    with pytest.raises(TypeError, match="module"):
        ReactiveDataParallel([3])
    alone = torch.optim.SGD(module.parameters(), lr=0.1)  # not in a list
    with ReactiveDataParallel(module, alone) as rdp:
        with pytest.raises(RuntimeError, match="belongs into a loop"):
            rdp.backward(lambda i: loss(module, i), batch(0))
        for _ in rdp.steps(1):
            for value in (3.0, torch.zeros(2)):
                with pytest.raises(TypeError, match="loss must return"):
                    rdp.backward(lambda i, v=value: v, batch(0))
            with pytest.raises(ValueError, match="list of indices"):
                rdp.backward(lambda i: loss(module, i), [])
            rdp.backward(lambda i: loss(module, i), batch(0).tolist())
            rdp.backward(lambda i: loss(module, i), batch(0).numpy())
        with pytest.raises(RuntimeError, match="have begun"):
            rdp.load_state_dict({"step": 3})
    monkeypatch.setattr(member, "_REACH", 0.3)
    with Server("127.0.0.1")._listener as gone:
        port = gone.getsockname()[1]
    with pytest.raises(RuntimeError, match=f"coordinator at 127.0.0.1:{port}"):
        ReactiveDataParallel(module, store=f"127.0.0.1:{port}", hang=0.3)


@pytest.mark.timeout(much(8000, 1200))
def test_random_schedules_of_faults():
    """Processes that are killed, stopped and silent at random, as `schedules` says."""
    from pathlib import Path

    program = Path(__file__).parents[1] / "schedules.py"
    done = programs.run(programs.python(program, much(200, 2), "--seed", 7), status=None)
    assert done.returncode == 0, done.stdout + done.stderr
