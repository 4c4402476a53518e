"""`fastgc.torch.CodedDataParallel` gives the plain loop's parameters, from the first workers."""

import copy
import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import programs
import pytest

import fastgc

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from coded_nets import (  # noqa: E402
    COMPLEX,
    REAL,
    N,
    Net,
    coded,
    far,
    loss,
    loss_and_hits,
    net,
    order,
    plain_step,
    samples,
    stragglers,
)

from fastgc.engines import SimulatedCluster  # noqa: E402

# Workers can import a test module only if the checkout happens to be on their path.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("code", REAL + COMPLEX, ids=repr)
def test_parameters_are_those_of_the_plain_loop(code, optimizer):
    data, module = samples(), net()
    plain = copy.deepcopy(module)
    mine, theirs = (optimizer(m.parameters(), lr=1e-2) for m in (module, plain))
    survivors = None if code is REAL[-1] else stragglers
    with coded(module, code=code, data=data, function=loss_and_hits, survivors=survivors) as made:
        for step in range(25):
            mine.zero_grad()
            result = made.backward()
            mine.step()
            hits = int((plain(data[order(step)][0]).argmax(1) == data[order(step)][1]).sum())
            theirs.zero_grad()
            assert result.loss == pytest.approx(plain_step(plain, data, step), rel=1e-5)
            theirs.step()
            assert result.sums == pytest.approx((hits,), rel=1e-5)
        assert made.step == 25
    assert far(module, plain) <= 1e-6


def test_doubles_are_exact_to_their_own_rounding():
    data, module = samples(torch.float64), net(dtype=torch.float64)
    plain = copy.deepcopy(module)
    with coded(module, data=data, survivors=stragglers) as made:
        made.backward()
    plain_step(plain, data, 0)
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        assert float((p.grad - q.grad).abs().max()) <= 1e-14 * float(q.grad.abs().max())


def test_real_workers_of_which_one_sleeps_and_one_dies(tmp_path):
    data, module = samples(), net()
    plain = copy.deepcopy(module)
    mine, theirs = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (module, plain))
    delays = fastgc.delays.Empirical(np.array([[0.0] * (N - 1) + [0.3]]))
    deadly, deaths = Deadly(tmp_path / "died"), 0
    with coded(module, data=data, engine="local", delays=delays, function=deadly) as made:
        for step in range(30):
            mine.zero_grad(), theirs.zero_grad()
            deaths = made.backward().report.deaths
            plain_step(plain, data, step)
            mine.step(), theirs.step()
            if deaths and step >= 6:
                break
    assert deaths == 1
    assert far(module, plain) <= 1e-6


class Deadly:
    """A loss that kills worker 1 once."""

    def __init__(self, path):
        self.path = path

    def __call__(self, module, batch):
        if Path("/proc/self/comm").read_text() == "fastgc-1\n" and not self.path.exists():
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return loss(module, batch)


def test_what_it_is_in_a_line():
    """Its repr, as in a notebook, names code, engine, batch and step."""
    with coded(net()) as both:
        both.backward()
        said = repr(both)
    assert said == (
        "<CodedDataParallel of a Net with BinaryCode(n=6, stragglers=2) on a SimulatedCluster: 60 "
        "samples a step, step 1>"
    )


def test_reduction():
    data, module = samples(), net()
    plain = copy.deepcopy(module)
    with coded(module, data=data, reduction="sum") as made:
        found = made.backward().loss
    assert found == pytest.approx(plain_step(plain, data, 0, 1.0), rel=1e-5)
    for p, q in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_add_up_as_elsewhere(to_none):
    data, module = samples(), net()
    plain = copy.deepcopy(module)
    with coded(module, data=data) as made:
        for step in range(6):
            made.backward(), plain_step(plain, data, step)
            for p, q in zip(module.parameters(), plain.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-6)
            if step % 3 == 2:
                module.zero_grad(to_none), plain.zero_grad(to_none)


def test_the_programs_own_random_numbers_are_left_alone():
    torch.manual_seed(1), np.random.seed(1)  # noqa: NPY002
    expected = torch.rand(3), np.random.rand(3)  # noqa: NPY002
    torch.manual_seed(1), np.random.seed(1)  # noqa: NPY002
    module = Net()
    torch.manual_seed(1), np.random.seed(1)  # noqa: NPY002
    with coded(module):
        pass
    assert torch.equal(torch.rand(3), expected[0])
    assert np.array_equal(np.random.rand(3), expected[1])  # noqa: NPY002


def test_a_run_stops_and_goes_on_to_the_bit(tmp_path):
    data = samples()

    def steps(made, optimizer, schedule, count):
        for _ in range(count):
            optimizer.zero_grad()
            made.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step(), schedule.step()

    def parts(module):
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    module = net(dropout=0.3)
    with coded(module, data=data) as made:
        steps(made, *parts(module), 7)
    whole = [p.clone() for p in module.parameters()]

    module = net(dropout=0.3)
    optimizer, schedule = parts(module)
    with coded(module, data=data) as made:
        steps(made, optimizer, schedule, 4)
        kept = module, optimizer, schedule, made
        torch.save([each.state_dict() for each in kept], tmp_path / "run.pt")
    states = torch.load(tmp_path / "run.pt")
    module = net(dropout=0.3)
    optimizer, schedule = parts(module)
    with coded(module, data=data) as made:
        for each, state in zip((module, optimizer, schedule, made), states, strict=True):
            each.load_state_dict(state)
        steps(made, optimizer, schedule, 3)
        assert made.step == 7
    for p, q in zip(module.parameters(), whole, strict=True):
        assert torch.equal(p, q)
    with (
        coded(net(), data=data, seed=1) as made,
        pytest.raises(ValueError, match="seed = 0, not 1"),
    ):
        made.load_state_dict(states[3])


SCRIPT = """
import torch, fastgc
from fastgc.torch import CodedDataParallel

class Net(torch.nn.Sequential):
    pass

torch.manual_seed(0)
model = Net(torch.nn.Linear(4, 1))
data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.randn(40, 1))
loss = lambda module, batch: ((module(batch[0]) - batch[1]) ** 2).sum()
code = fastgc.BinaryCode(3, stragglers=1)
for run in range(2):
    with CodedDataParallel(model, loss, data, code, batch_size=12, engine="local") as coded:
        coded.backward()
        print(f"{coded.backward().loss:.4f}", flush=True)
"""


def command_of(engine, ranks, *script):
    """Return the command that runs a script with this engine, by `ranks` ranks if it has any."""
    if engine == "torch":
        return programs.torchrun(ranks, *script)
    if engine == "mpi":
        if programs.MPIEXEC is None:
            pytest.skip("there is no mpiexec")
        return programs.mpiexec(ranks, *script)
    if engine == "ray":
        pytest.importorskip("ray")
    return programs.python(*script)


@pytest.mark.parametrize("engine", ["local", "simulated", "mpi", "ray", "torch"])
def test_a_script_of_lambdas_and_classes_without_a_guard_by_any_engine(engine, tmp_path):
    command = command_of(engine, 4, "script.py")
    script, runs = SCRIPT.replace('"local"', f'"{engine}"'), 2
    if engine == "ray":  # its workers import torch anew for each cluster
        script, runs = script.replace("range(2)", "range(1)"), 1
    (tmp_path / "script.py").write_text(script)
    done = programs.run(command, folder=tmp_path)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    x, y = torch.randn(40, 4), torch.randn(40, 1)
    second = order(1, count=40, size=12)
    found = float(((model(x[second]) - y[second]) ** 2).mean().detach())
    assert done.stdout == f"{found:.4f}\n" * runs, done.stderr


# ------------------------------------------------------------------------------------- mistakes


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"function": lambda m, b: loss(m, b) / len(b[1])}, "returns the mean.*sum"),
        ({"function": lambda m, b: loss(m, b) ** 2}, "must return the sum over"),
        ({"function": lambda m, b: m(b[0]).sum(1)}, "one number"),
        ({"function": lambda m, b: loss(m, b).item()}, "as a tensor"),
        ({"function": lambda m, b: loss(m, b).detach()}, "does not depend"),
        ({"function": None}, "loss must be callable"),
        ({"data": Stream()}, "map-style"),
        ({"data": samples(count=40)}, "40 samples, fewer than batch_size = 60"),
        ({"data": samples(count=4)}, "too few for 6 partitions"),
        ({"batch_size": 5}, "at least 6"),
        ({"code": fastgc.LagrangeCode(N, load=2)}, "codes the data"),
        ({"code": "binary"}, "must be a code"),
        ({"reduction": "none"}, '"mean" or "sum"'),
        ({"engine": "cloud"}, "engine must be"),
        ({"verfy": True}, "verify"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_sentence(change, error):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=error), coded(net(), **change):
        pass


@pytest.mark.parametrize("hook", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_of_parameters_are_refused(hook):
    module = net()
    with coded(module) as made:
        getattr(module.last.weight, hook)(lambda found: None)
        with pytest.raises(RuntimeError, match=r"hook.*is never called"):
            made.backward()


def test_the_state_of_a_run_may_be_loaded_while_it_goes_on():
    module, other, data = net(), net(), samples()
    with torch.no_grad():
        for p in other.parameters():
            p.add_(0.1)
    with coded(module, data=data) as made:
        made.backward()
        module.load_state_dict(other.state_dict())
        module.zero_grad()
        made.backward()
        plain_step(other, data, 1)
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_same_batch_once_more(workers):
    """LBFGS needs gradients at several points, of one batch with the same dropout."""
    engine = "local" if workers else "simulated"
    module, data = net(0.5), samples()
    with coded(module, data=data, engine=engine, num_workers=workers) as made:
        with pytest.raises(ValueError, match="no batch was taken before"):
            made.backward(same_batch=True)
        for step in range(3):
            found = []
            for again in (False, True, True):
                module.zero_grad()
                result = made.backward(same_batch=again)
                found.append((result.loss, *(p.grad.clone() for p in module.parameters())))
            assert made.step == step + 1
            for first, *others in zip(*found, strict=True):
                assert all(torch.allclose(torch.as_tensor(first), torch.as_tensor(other))
                           for other in others)  # fmt: skip


def test_lbfgs():
    data, module = samples(), net(dtype=torch.float64)
    data = samples(torch.float64)
    plain = copy.deepcopy(module)
    mine, theirs = (
        torch.optim.LBFGS(m.parameters(), max_iter=4, line_search_fn="strong_wolfe")
        for m in (module, plain)
    )
    with coded(module, data=data) as made:
        for step in range(4):
            calls = iter(range(100))

            def closure(calls=calls):
                mine.zero_grad()
                return made.backward(same_batch=next(calls) > 0).loss

            def plain_closure(step=step):
                theirs.zero_grad()
                return plain_step(plain, data, step)

            mine.step(closure)
            theirs.step(plain_closure)
    assert far(module, plain) <= 1e-6


def test_a_loss_that_differs_each_time():
    calls = iter(range(1, 1000))
    with (
        pytest.raises(RuntimeError, match="two computations of the same gradient differ"),
        coded(net(), function=lambda m, b: loss(m, b) * next(calls)),
    ):
        pass


def test_callable_engines_get_what_others_get():
    seen = {}

    def engine(*arguments, **keywords):
        seen.update(keywords)
        return SimulatedCluster(*arguments, cost=1.0, **keywords)

    with coded(net(), engine=engine, timeout=50.0) as made:
        assert made.backward().report.wait_seconds > 0
    assert seen["timeout"] == 50.0


def test_import_is_light():
    source = "import sys, fastgc, fastgc.engines; print('torch' in sys.modules)"
    assert programs.printed(source) == "False"


# ------------------------------------------------------------------------- the page's example

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "coded_torch.py"


def test_the_example_learns():
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 40
    done = programs.run(programs.python(str(EXAMPLE)))
    shown = re.findall(r"(\d+): loss ([\d.]+), (\d+) of 256", done.stdout)
    assert [int(step) for step, _, _ in shown] == [20, 40, 60]
    assert float(shown[-1][1]) < 0.5 < float(shown[0][1])
    assert int(shown[-1][2]) > 220
