"""An Accelerate loop on three ranks, any of which may die at any step; torchrun starts them.

torchrun --nproc-per-node 3 -m fastgc.guard reactive_accelerate.py
"""

import os

import numpy as np
import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

import fastgc
from fastgc.torch import ReactiveDataParallel

BATCH, STEPS = 240, 60

# Without LOCAL_RANK Accelerate takes each rank for alone, and makes no process group.
local = os.environ.pop("LOCAL_RANK", "0")
if torch.cuda.is_available():
    os.environ["ACCELERATE_TORCH_DEVICE"] = f"cuda:{local}"
accelerator = Accelerator()

torch.manual_seed(0)  # the same parameters on all ranks
digits = fastgc.data.load("digits")
x = torch.from_numpy(digits.X_train).float().to(accelerator.device)
y = torch.from_numpy(digits.y_train).long().to(accelerator.device)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model, optimizer = accelerator.prepare(model, optimizer)  # no loader: samples come by index


def batch(step):
    """Return the indices of all samples of a step: another order in each epoch."""
    epoch, at = divmod(step, len(x) // BATCH)
    order = np.random.default_rng(epoch).permutation(len(x))
    return order[at * BATCH : (at + 1) * BATCH]


def compute(indices):
    """Return the sum of the losses of some samples."""
    with accelerator.autocast():
        return cross_entropy(model(x[indices]), y[indices], reduction="sum")


with ReactiveDataParallel(model, state=[optimizer]) as rdp:
    for step in rdp.steps(STEPS):
        optimizer.zero_grad()
        loss = rdp.backward(compute, batch(step))  # every .grad: that of all 240 samples
        accelerator.clip_grad_norm_(model.parameters(), 1e3)
        optimizer.step()
        if (step + 1) % 20 == 0 and rdp.first:
            print(f"{step + 1}: loss {loss:.4f}, ranks {rdp.ranks}", flush=True)
