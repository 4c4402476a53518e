"""A network trained by ranks that may die, be slow, and come back; it goes on from a checkpoint.

torchrun --nproc-per-node 4 -m fastgc.guard reactive_ranks.py [FOLDER]
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import fastgc
from fastgc.torch import ReactiveDataParallel

BATCH, STEPS = 240, 60

torch.manual_seed(0)  # the same parameters on all ranks
digits = fastgc.data.load("digits")
x = torch.from_numpy(digits.X_train).float()
y = torch.from_numpy(digits.y_train).long()
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)


def batch(step):
    """Return the indices of all samples of a step: another order in each epoch."""
    epoch, at = divmod(step, len(x) // BATCH)
    order = np.random.default_rng(epoch).permutation(len(x))
    return order[at * BATCH : (at + 1) * BATCH]


def compute(indices):
    """Return the sum of the losses of some samples."""
    return cross_entropy(model(x[indices]), y[indices], reduction="sum")


rdp = ReactiveDataParallel(model, state=[optimizer])
saved = {"model": model, "optimizer": optimizer, "rdp": rdp}
checkpoint = Path(sys.argv[1]) / "checkpoint.pt" if len(sys.argv) > 1 else None
if checkpoint is not None and checkpoint.exists():  # all ranks begin there
    found = torch.load(checkpoint)
    for name, each in saved.items():
        each.load_state_dict(found[name])

with rdp:
    for step in rdp.steps(STEPS):
        optimizer.zero_grad()
        loss = rdp.backward(compute, batch(step))  # every .grad: that of all 240 samples
        optimizer.step()
        if (step + 1) % 20 == 0 and rdp.first:
            print(f"{step + 1}: loss {loss:.4f}, ranks {rdp.ranks}", flush=True)
            if checkpoint is not None:
                with rdp.busy():  # the others wait
                    checkpoint.parent.mkdir(parents=True, exist_ok=True)
                    torch.save({n: e.state_dict() for n, e in saved.items()}, f"{checkpoint}.new")
                    os.replace(f"{checkpoint}.new", checkpoint)
