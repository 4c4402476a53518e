"""`CodedDataParallel` without a master: the same loop on all ranks, by ``engine="all-reduce"``.

Ranks are those of `groups_of_ranks`.
"""

import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from fastgc import BinaryCode, CyclicRepetition, LeftOutError, ReedSolomon

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from groups_of_ranks import (  # noqa: E402
    BATCH,
    EXACT,
    SEED,
    Momentum,
    N,
    check,
    flat,
    launch,
    launch_each,
    order,
    samples,
    slowly,
    torchrun,
    train_on_digits,
    wait_until_back,
)

from fastgc.torch import CodedDataParallel  # noqa: E402

cloudpickle.register_pickle_by_value(sys.modules[__name__])
STEPS = 10


class Net(torch.nn.Sequential):
    """A net with dropout, if asked for."""

    def __init__(self, dropout=0.0):
        torch.manual_seed(3)
        drops = [torch.nn.Dropout(dropout)] if dropout else []
        super().__init__(torch.nn.Linear(20, 32), torch.nn.Tanh(), *drops, torch.nn.Linear(32, 1))


def loss(module, batch):
    x, y = batch
    found = module(x)
    return ((found - y) ** 2).sum(), float((found.detach() > 0).sum())


def coded(module, code, optimizer, rank, store, **options):
    return CodedDataParallel(
        module,
        loss,
        samples(),
        code,
        batch_size=BATCH,
        engine="all-reduce",
        state=[optimizer],
        rank=rank,
        store=store,
        seed=SEED,
        **{"deadline": 30.0, "settle": 1.5, **options},
    )


def training(
    code, steps=STEPS, dropout=0.0, trouble=lambda rank, step, life, store: None, **options
):
    """Return a rank's program; without dropout, it returns its worst step's error."""

    def train(rank, store, life):
        module, data = Net(dropout), samples()
        optimizer, worst, sums = Momentum(module), 0.0, []
        with coded(module, code, optimizer, rank, store, **options) as parallel:
            store.set(f"{rank}/life/{life}", b"")
            while parallel.step < steps:
                step = parallel.step
                optimizer.zero_grad()
                store.set(f"{rank}/{step}", b"")
                trouble(rank, step, life, store)
                drawn = torch.get_rng_state()
                try:
                    result = parallel.backward()
                except LeftOutError:
                    parallel.join()
                    continue
                assert torch.equal(torch.get_rng_state(), drawn)
                sums.append((result.loss, *result.sums))
                if not dropout:
                    whole, hits = loss(module, data[order(step)])
                    truth = flat(torch.autograd.grad(whole / BATCH, list(module.parameters())))
                    error = (flat(p.grad for p in module.parameters()) - truth).norm()
                    worst = max(worst, float(error / truth.norm()))
                    assert result.loss == pytest.approx(whole.item() / BATCH, rel=1e-5)
                    assert result.sums == pytest.approx((hits,), rel=1e-5)
                optimizer.step()
            report = result.report
        return {
            "worst": worst,
            "steps": parallel.step,
            "theta": flat(module.parameters()).numpy(),
            "momentum": flat(optimizer.momentum).numpy(),
            "sums": sums,
            "survivors": report.survivors.tolist(),
            "lost": report.lost,
        }

    return train


def simulated(code, dropout):
    """Return the losses of the same run with a master."""
    module = Net(dropout)
    optimizer, found = Momentum(module), []
    options = {"batch_size": BATCH, "engine": "simulated", "seed": SEED}
    with CodedDataParallel(module, loss, samples(), code, **options) as parallel:
        for _ in range(STEPS):
            optimizer.zero_grad()
            result = parallel.backward()
            found.append((result.loss, *result.sums))
            optimizer.step()
    return found, flat(module.parameters()).numpy()


CODES = [BinaryCode(N, stragglers=2), CyclicRepetition(N, stragglers=1)]


def test_the_loop_of_a_master_on_all_ranks(tmp_path):
    """This holds even if the loss draws random numbers: copies draw the same."""
    cases = [(code, dropout) for code in CODES for dropout in (0.0, 0.3)]
    trains = [training(code, dropout=dropout) for code, dropout in cases]
    trains.append(training(CODES[0], num_workers=2))
    trains.append(training(CODES[0], redundancy="reactive", num_workers=1))
    trains.append(training(CODES[0], redundancy="reactive", audit=2))
    results = launch_each(tmp_path, trains)
    for (code, dropout), found in zip([*cases, *[(CODES[0], 0.0)] * 3], results, strict=True):
        sums, theta = simulated(code, dropout)
        assert sorted(found) == list(range(N))
        for each in found.values():
            assert isinstance(each, dict), each
            assert each["worst"] <= EXACT
            np.testing.assert_allclose(each["sums"], sums, rtol=1e-5)
            assert abs(each["theta"] - theta).max() <= 1e-5 * abs(theta).max()
            assert np.array_equal(each["theta"], found[0]["theta"])
            assert (each["survivors"], each["lost"]) == (list(range(N)), ())


def test_audits_know_what_was_drawn(tmp_path):
    """A share computed again agrees up to rounding, also with dropout."""
    options = {"dropout": 0.3, "redundancy": "reactive", "audit": 1}
    trains = [training(CODES[0], **options, num_workers=ahead) for ahead in (0, 1)]
    first, second = launch_each(tmp_path, trains)
    for found in (first, second):
        for each in found.values():
            assert isinstance(each, dict), each
            assert np.array_equal(each["theta"], first[0]["theta"])


def test_a_rank_that_dies_and_comes_back(tmp_path):
    def trouble(rank, step, life, store):
        if (rank, step, life) == (4, 3, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        if step > 5:
            slowly("before", rank, step, life)

    def director(group):
        group.until("1/5")
        os.waitpid(group.pids.pop(4), 0)
        group.start(4)
        group.until_back(4)

    trains = [
        training(BinaryCode(N, stragglers=1), 30, trouble=trouble, redundancy=redundancy)
        for redundancy in ("proactive", "reactive")
    ]
    for found in launch_each(tmp_path, trains, [director] * 2):
        check(found, 30)
        assert {tuple(each["survivors"]) for each in found.values()} == {tuple(range(N))}


def test_what_a_late_rank_owes_is_computed_by_others(tmp_path):
    """The late rank goes on after the others' further steps, and joins them."""

    def trouble(rank, step, life, store):
        if (rank, step) == (2, 25):
            store.wait(["0/35"])
        if step > 35:
            wait_until_back(store, rank == 2)

    options = {"redundancy": "reactive", "deadline": "auto", "settle": 0.3}
    train = training(BinaryCode(N, stragglers=1), 80, trouble=trouble, **options)
    found = launch(tmp_path, train)
    check(found, 80)
    assert {rank: len(each["sums"]) == 80 for rank, each in found.items()} == {
        rank: rank != 2 for rank in range(N)
    }


def test_a_rank_that_comes_back_gets_gradients_of_earlier_steps(tmp_path):
    """The loop keeps a part of earlier gradients, here half; a new rank gets them, too."""
    steps, code = 30, BinaryCode(N, stragglers=1)

    def train(rank, store, life):
        module = Net()
        optimizer = Momentum(module)
        with coded(module, code, optimizer, rank, store) as parallel:
            joined = parallel.step
            while parallel.step < steps:
                step = parallel.step
                if (rank, step, life) == (4, 3, 0):
                    os.kill(os.getpid(), signal.SIGKILL)
                store.set(f"{rank}/{step}", b"")
                if step > 5:
                    slowly("before", rank, step, life)
                parallel.backward()
                optimizer.step()
                for p in module.parameters():
                    p.grad /= 2
        return {"joined": joined, "theta": flat(module.parameters()).numpy()}

    def director(group):
        group.until("1/5")
        os.waitpid(group.pids.pop(4), 0)
        group.start(4)
        group.until_back(4)

    found = launch(tmp_path, train, director)
    assert found[4]["joined"] > 5
    for each in found.values():
        assert np.array_equal(each["theta"], found[0]["theta"])


def test_gradients_are_added_to_what_is_there(tmp_path):
    def train(rank, store, life):
        module = Net()
        before = torch.ones_like(module[0].bias)
        with coded(module, CODES[0], Momentum(module), rank, store) as parallel:
            module[0].bias.grad = before.clone()
            parallel.backward()
            whole = loss(module, samples()[order(0)])[0] / BATCH
            truth = torch.autograd.grad(whole, list(module.parameters()))
            return [
                float((p.grad - g - (before if p is module[0].bias else 0)).abs().max())
                for p, g in zip(module.parameters(), truth, strict=True)
            ]

    for errors in launch(tmp_path, train).values():
        assert max(errors) < 1e-6


def test_a_run_goes_on_at_a_step(tmp_path):
    def train(rank, store, life):
        module = Net()
        found = coded(module, CODES[0], Momentum(module), rank, store, first_step=5)
        with found as parallel:
            result = parallel.backward()
            with pytest.raises(RuntimeError, match="first_step="):
                parallel.load_state_dict(parallel.state_dict())
            whole = loss(module, samples()[order(5)])[0] / BATCH
            return parallel.step, parallel.steps_per_epoch, result.loss - whole.item()

    for step, per_epoch, difference in launch(tmp_path, train).values():
        assert (step, per_epoch) == (6, 3)
        assert abs(difference) < 1e-5


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"timeout": 3.0}, "engine=\"all-reduce\" has no option 'timeout'; it takes seed, redun"),
        ({"device": "cpu"}, "computes where the module is"),
        ({"engine": "simulated", "deadline": 3.0}, 'deadline= is for engine="all-reduce", not'),
        ({"code": ReedSolomon(6, stragglers=2)}, "has complex coefficients"),
        ({"rank": 6}, "rank 6 does not exist"),
        ({"redundancy": "lazy"}, 'redundancy must be "proactive" or "reactive"'),
        ({"num_workers": -1}, "num_workers must be"),
        ({"buffers": "drop"}, 'buffers must be "error" or "mean"'),
    ],
)
@pytest.mark.filterwarnings("ignore:ReedSolomon has complex")
def test_mistakes_are_told_before_ranks_meet(change, error):
    given = {"code": CODES[0], "engine": "all-reduce", "rank": 0, "store": object()} | change
    if given["engine"] == "simulated":
        del given["rank"], given["store"]
    code = given.pop("code")
    with pytest.raises((TypeError, ValueError), match=re.escape(error)):
        CodedDataParallel(Net(), loss, samples(), code, batch_size=BATCH, **given)


def test_what_needs_a_master_or_none(tmp_path):
    def train(rank, store, life):
        module = Net()
        with coded(module, CODES[0], Momentum(module), rank, store) as parallel:
            parallel.backward()
            with pytest.raises(ValueError, match="same_batch=True is for engines with a master"):
                parallel.backward(same_batch=True)

    assert set(launch(tmp_path, train).values()) == {None}
    options = {"batch_size": BATCH, "engine": "simulated"}
    with (
        CodedDataParallel(Net(), loss, samples(), CODES[0], **options) as parallel,
        pytest.raises(RuntimeError, match='join\\(\\) is only for engine="all-reduce"'),
    ):
        parallel.join()


@pytest.mark.long
def test_the_example_is_the_plain_loop_though_a_rank_is_killed(tmp_path):
    """torchrun runs it, and a guard starts the rank again."""
    pytest.importorskip("sklearn")
    example = Path(__file__).resolve().parents[2] / "docs" / "examples" / "coded_ranks.py"
    text, place = example.read_text(encoding="utf-8"), "        optimizer.zero_grad()\n"
    death = """
        died = os.path.exists("died")
        if os.environ["RANK"] == "2" and coded.step == 25 and not died:
            open("died", "w").close()
            os.kill(os.getpid(), 9)
        if coded.step > 30:
            import time; time.sleep(0.5)  # so that it is back in time
"""
    assert text.count(place) == 1
    (tmp_path / "dies.py").write_text(text.replace(place, death + place), encoding="utf-8")
    done = torchrun(tmp_path, 4, "-m", "fastgc.guard", "dies.py")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "died").exists()
    found = re.findall(r"^(\d+): loss ([\d.]+), ranks (.*)$", done.stdout, re.M)
    assert [step for step, *_ in found] == ["20", "40", "60"], done.stdout + done.stderr
    for (_, loss, _), truth in zip(found, train_on_digits()[0], strict=True):
        assert float(loss) == pytest.approx(truth, abs=2e-4)
    assert found[-1][-1] == "[0, 1, 2, 3]"


@pytest.mark.long
def test_what_torchrun_prints_of_a_rank_that_is_killed(tmp_path):
    """The page of questions quotes it, up to numbers and paths."""
    page = Path(__file__).resolve().parents[2] / "docs" / "faq.md"
    (quoted,) = re.findall(r"^```text\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    (tmp_path / "script.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGKILL) if os.environ['RANK'] == '1' else time.sleep(60)\n"
    )
    done = torchrun(tmp_path, 2, "script.py")
    assert done.returncode == 1

    def known(line):
        return re.sub(r"(?i)(pid:?|process) \d+|binary: .*", r"\1", line).strip()

    printed = "\n".join(known(line) for line in done.stderr.splitlines())
    for line in quoted.splitlines():
        assert line == "..." or known(line) in printed, done.stderr
