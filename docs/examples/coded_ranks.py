"""A network trained by four ranks, of which one may die at any step; torchrun starts them.

torchrun --nproc-per-node 4 -m fastgc.guard coded_ranks.py
"""

import os

import torch
from torch.nn.functional import cross_entropy

import fastgc
from fastgc.torch import CodedDataParallel

STEPS = 60

torch.manual_seed(0)  # the same parameters on all ranks
digits = fastgc.data.load("digits")
dataset = torch.utils.data.TensorDataset(
    torch.from_numpy(digits.X_train).float(), torch.from_numpy(digits.y_train).long()
)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)


def loss(model, batch):
    """Of the samples of a batch, the sum."""
    x, y = batch
    return cross_entropy(model(x), y, reduction="sum")


code = fastgc.BinaryCode(4, stragglers=1)
options = {"engine": "all-reduce", "redundancy": "reactive", "state": [optimizer]}
with CodedDataParallel(model, loss, dataset, code, batch_size=240, **options) as coded:
    while coded.step < STEPS:
        optimizer.zero_grad()
        result = coded.backward()  # every .grad: that of all 240 samples
        optimizer.step()
        ranks = result.report.survivors.tolist()
        if coded.step % 20 == 0 and int(os.environ["RANK"]) == ranks[0]:
            print(f"{coded.step}: loss {result.loss:.4f}, ranks {ranks}", flush=True)
