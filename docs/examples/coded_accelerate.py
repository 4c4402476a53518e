"""An Accelerate loop on three ranks, of which one may die at any step; torchrun starts them.

torchrun --nproc-per-node 3 -m fastgc.guard coded_accelerate.py
"""

import os

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, default_collate

import fastgc
from fastgc.torch import CodedAllReduce, CodedSampler

BATCH, STEPS = 240, 60

# Without LOCAL_RANK Accelerate takes each rank for alone, and makes no process group.
local = os.environ.pop("LOCAL_RANK")
if torch.cuda.is_available():
    os.environ["ACCELERATE_TORCH_DEVICE"] = f"cuda:{local}"
accelerator = Accelerator()

torch.manual_seed(0)  # the same parameters on all ranks
digits = fastgc.data.load("digits")
dataset = TensorDataset(
    torch.from_numpy(digits.X_train).float(), torch.from_numpy(digits.y_train).long()
)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model, optimizer = accelerator.prepare(model, optimizer)  # not the loader: the sampler deals out
code = fastgc.BinaryCode(3, stragglers=1)
sampler = CodedSampler(dataset, code, BATCH)
loader = DataLoader(dataset, batch_sampler=sampler)


def backward(batch):
    """Add a batch's gradient; its loss, the sum divided by the size of the whole batch."""
    x, y = (each.to(accelerator.device) for each in batch)
    loss = cross_entropy(model(x), y, reduction="sum") / BATCH
    accelerator.backward(loss)
    return [loss.item()]


def recompute(indices):
    """What a rank that died owed in this step."""
    return backward(default_collate([dataset[i] for i in indices]))


options = {"redundancy": "reactive", "recompute": recompute, "state": [optimizer]}
with CodedAllReduce(model, code, sampler=sampler, **options) as all_reduce:
    while all_reduce.step < STEPS:
        for batch in loader:
            optimizer.zero_grad()
            (mean,) = all_reduce(*backward(batch))  # every .grad: that of all 240 samples
            optimizer.step()
            if all_reduce.step % 20 == 0 and all_reduce.rank == all_reduce.ranks[0]:
                print(f"{all_reduce.step}: loss {mean:.4f}, ranks {all_reduce.ranks}", flush=True)
            if all_reduce.step == STEPS:
                break
