"""A module as parts of one vector: parameters, buffers, and what workers are not sent."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
cloudpickle = pytest.importorskip("cloudpickle")
from coded_nets import (  # noqa: E402
    coded,
    far,
    net,
)

from fastgc.torch.parameters import (  # noqa: E402
    apart,
    as_tensor,
    fingerprint,
    trainable,
    views,
)


def test_trainable_takes_tied_parameters_once_and_frozen_ones_never():
    module = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(3)))
    module[1].weight = module[0].weight
    module[2].bias.requires_grad_(False)
    found = trainable(module)
    assert [id(p) for p in found] == [
        id(p) for p in (module[0].weight, module[0].bias, module[1].bias, module[2].weight)
    ]
    module[0].weight.placements = ()  # as fully_shard does
    with pytest.raises(TypeError, match=r"parameter 0\.weight"):
        trainable(module)


@pytest.mark.parametrize(
    ("dtypes", "error"),
    [
        ([torch.float64, torch.float64], None),
        ([torch.float32, torch.float64], r"torch\.float32, torch\.float64"),
        ([torch.float32, torch.bfloat16], r"torch\.bfloat16, torch\.float32"),
        ([torch.float16], r"torch\.float16"),
        ([torch.float32, torch.complex64], r"not torch\.complex64, torch\.float32.*as_real"),
    ],
)
def test_trainable_takes_parameters_of_one_real_dtype(dtypes, error):
    module = torch.nn.ParameterList(torch.zeros(2, dtype=dtype) for dtype in dtypes)
    if error is None:
        assert len(trainable(module)) == len(dtypes)
        return
    with pytest.raises(TypeError, match=error):
        trainable(module)


def test_views_share_memory_and_apart_has_a_storage_each():
    like = [torch.zeros(2, 3), torch.zeros(()), torch.zeros(4)]
    array = np.arange(11.0)
    flat = torch.from_numpy(array)
    for found in (views(flat, like), apart(array, like)):
        assert [each.shape for each in found] == [each.shape for each in like]
        assert [each.flatten().tolist() for each in found] == [
            [0, 1, 2, 3, 4, 5],
            [6],
            [7, 8, 9, 10],
        ]
        found[2][0] = -1.0
        assert array[7] == -1.0
        array[7] = 7.0
    assert [each.untyped_storage().nbytes() for each in apart(array, like)] == [48, 8, 32]


def test_fingerprint_differs_where_any_bit_of_any_tensor_does():
    tensors = [torch.arange(6.0).reshape(2, 3).T, torch.tensor(3), torch.zeros(2).bfloat16()]
    right = fingerprint(tensors)
    assert fingerprint([each.clone() for each in tensors]) == right
    for at, each in enumerate(tensors):
        wrong = each.clone()
        wrong[(-1,) * wrong.ndim] += 1
        assert fingerprint([*tensors[:at], wrong, *tensors[at + 1 :]]) != right
    assert fingerprint(tensors[1:]) != right
    assert fingerprint(tensors[:2]) != right


def test_as_tensor_shares_memory():
    array = np.arange(3.0)
    as_tensor(array)[1] = 7.0
    assert array.tolist() == [0.0, 7.0, 2.0]
    array.flags.writeable = False
    assert as_tensor(array).tolist() == [0.0, 7.0, 2.0]
    half = pytest.importorskip("ml_dtypes").bfloat16
    found = as_tensor(np.array([1.5, -2.0]).astype(half))
    assert (found.dtype, found.tolist()) == (torch.bfloat16, [1.5, -2.0])


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


# What is changed, and what is said of it.
OUTSIDE = {
    "a frozen parameter": (lambda m: m.first.bias.add_(1), "parameter first.bias has changed"),
    "a buffer": (lambda m: m.table.mul_(2), "buffer table has changed"),
    "another buffer": (lambda m: setattr(m, "table", m.table + 1), "buffer table has changed"),
    "a state": (
        lambda m: m.load_state_dict({**m.state_dict(), "table": torch.zeros(3)}),
        "buffer table has changed",
    ),
    "another parameter": (
        lambda m: setattr(m.last, "bias", torch.nn.Parameter(m.last.bias * 2)),
        "parameter last.bias was put in the place",
    ),
    "another layer": (
        lambda m: setattr(m, "drop", torch.nn.BatchNorm1d(16, affine=False)),
        "buffer drop.running_mean was put in the place",
    ),
    "no buffer": (lambda m: delattr(m, "table"), "table is no longer a part"),
}


@pytest.mark.parametrize(("change", "said"), OUTSIDE.values(), ids=OUTSIDE)
def test_unsent_what_workers_are_not_sent_must_not_change(change, said):
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
        with pytest.raises(RuntimeError, match=f"(?s){said}.*ake a new CodedDataParallel"):
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
