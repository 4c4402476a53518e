"""A network trained by six ranks, of which one may die at any step; torchrun starts them.

torchrun --nproc-per-node 6 -m fastgc.guard coded_all_reduce.py
"""

import torch
from torch.nn.functional import cross_entropy

import fastgc
from fastgc.torch import CodedAllReduce, CodedSampler

BATCH, STEPS = 240, 60

torch.manual_seed(0)  # the same parameters on all ranks
digits = fastgc.data.load("digits")
dataset = torch.utils.data.TensorDataset(
    torch.from_numpy(digits.X_train).float(), torch.from_numpy(digits.y_train).long()
)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
code = fastgc.BinaryCode(6, stragglers=1)
sampler = CodedSampler(dataset, code, BATCH)
loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)

with CodedAllReduce(model, code, sampler=sampler, state=[optimizer]) as all_reduce:
    while all_reduce.step < STEPS:
        for x, y in loader:
            optimizer.zero_grad()
            loss = cross_entropy(model(x), y, reduction="sum") / BATCH
            loss.backward()
            (mean,) = all_reduce(loss.item())  # every .grad: that of all 240 samples
            optimizer.step()
            if all_reduce.step % 20 == 0 and all_reduce.rank == all_reduce.ranks[0]:
                print(f"{all_reduce.step}: loss {mean:.4f}, ranks {all_reduce.ranks}", flush=True)
            if all_reduce.step == STEPS:
                break
