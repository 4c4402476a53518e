"""A PyTorch network on eight coded workers: any two of them may be slow, or die, at any step."""

import sys

import torch
from torch.nn.functional import cross_entropy

import fastgc
from fastgc.torch import CodedDataParallel


def loss(module, batch):
    """Sum of the samples' losses, and how many are recognised."""
    x, y = batch
    found = module(x)
    return cross_entropy(found, y, reduction="sum"), (found.argmax(1) == y).sum()


if __name__ == "__main__":
    torch.manual_seed(0)
    digits = fastgc.data.load("digits")
    dataset = torch.utils.data.TensorDataset(
        torch.from_numpy(digits.X_train).float(), torch.from_numpy(digits.y_train).long()
    )
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(128, 10)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    code = fastgc.BinaryCode(8, stragglers=2)
    engine = sys.argv[1] if len(sys.argv) > 1 else "local"  # or "mpi", "ray", "torch"
    with CodedDataParallel(model, loss, dataset, code, batch_size=256, engine=engine) as coded:
        for step in range(60):
            optimizer.zero_grad()
            result = coded.backward()  # every .grad: that of all 256 samples
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 20 == 19:
                print(f"{step + 1}: loss {result.loss:.4f}, {result.sums[0]:.0f} of 256")
