"""A module as parts of one vector: parameters, buffers, and what workers are not sent."""

import pytest

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from coded_nets import (  # noqa: E402
    coded,
    far,
    net,
)

from fastgc.torch.parameters import trainable, unchanged_buffers  # noqa: E402


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("net", "torch.nn.Module"),
        (torch.nn.Identity(), "no parameter that requires"),
        (torch.nn.Linear(20, 5).half(), "float32 or all float64.*autocast"),
        (torch.nn.Linear(20, 5, device="meta"), "on the CPU"),
        (torch.nn.LazyLinear(5), "call the module once"),
    ],
)
def test_trainable_refuses_modules(module, error):
    with pytest.raises((TypeError, ValueError), match=error), coded(module):
        pass


def test_trainable_refuses_modules_that_are_shared_out():
    """`fully_shard` makes their parameters DTensors."""

    class Part(torch.nn.Parameter):
        placements = ()

    module = net()
    module.last.bias = Part(module.last.bias.detach())
    with pytest.raises(TypeError, match=r"last.bias is a part of one that several processes"):
        trainable(module)


OUTSIDE = {
    "a frozen parameter": lambda m: m.first.bias.add_(1),
    "a buffer": lambda m: m.table.mul_(2),
    "another buffer": lambda m: setattr(m, "table", m.table + 1),
    "a state": lambda m: m.load_state_dict({**m.state_dict(), "table": torch.zeros(3)}),
    "another parameter": lambda m: setattr(m.last, "bias", torch.nn.Parameter(m.last.bias * 2)),
    "another layer": lambda m: setattr(m, "drop", torch.nn.BatchNorm1d(16, affine=False)),
    "no buffer": lambda m: delattr(m, "table"),
}


@pytest.mark.parametrize("change", OUTSIDE.values(), ids=OUTSIDE)
def test_unsent_what_workers_are_not_sent_must_not_change(change):
    """Otherwise gradients would be those of a module that no longer exists."""
    module = net()
    module.first.bias.requires_grad_(False)
    module.register_buffer("table", torch.arange(3.0))
    with coded(module) as made:
        made.backward()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        module.load_state_dict(before)  # writes everything, but changes nothing
        made.backward()
        change(module)
        with pytest.raises(RuntimeError, match=r"[mM]ake a new CodedDataParallel"):
            made.backward()


def test_changes_that_workers_do_not_know_of():
    module = net()
    with coded(module) as made:
        module.eval()
        with pytest.raises(RuntimeError, match="mode"):
            made.backward()
        module.train()
        module.first.bias.requires_grad_(False)
        with pytest.raises(RuntimeError, match="requires_grad"):
            made.backward()
        module.first.bias.requires_grad_(True)
        state = {name: 2 * value for name, value in module.state_dict().items()}
        module.load_state_dict(state)
        made.backward()
        module.load_state_dict(state, assign=True)  # replaces the parameters' tensors
        with pytest.raises(RuntimeError, match=r"first.weight was put in the place of one"):
            made.backward()


class Replaces(torch.nn.Module):
    """Forward puts other tensors in the place of its buffers, one of them of another shape."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("mask", torch.zeros(1))

    def forward(self, x):
        self.mean, self.mask = self.mean + x, torch.ones(3)
        return x


def test_unchanged_buffers_that_forward_replaces():
    module = Replaces()
    with unchanged_buffers(module):
        module(torch.ones(2))
        assert module.mean.tolist() == [1.0, 1.0]
    assert module.mean.tolist() == [0.0, 0.0]
    assert module.mask.tolist() == [1.0, 1.0, 1.0]


def test_apart_a_tensor_that_is_saved_is_saved_alone(tmp_path):
    module = net()
    with coded(module) as made:
        made.backward()
        for what in (module.last.bias, module.last.bias.grad):
            torch.save(what, tmp_path / "file")
            assert (tmp_path / "file").stat().st_size < 2000
        torch.save(module.state_dict(), tmp_path / "state")
    again = net()
    again.load_state_dict(torch.load(tmp_path / "state"))
    assert far(module, again) == 0.0
