"""A LightningModule trained by three ranks, any of which may die at any step; torchrun starts them.

torchrun --nproc-per-node 3 -m fastgc.guard reactive_lightning.py
"""

import lightning
import numpy as np
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch.nn.functional import cross_entropy

import fastgc
from fastgc.torch import ReactiveDataParallel

BATCH, STEPS = 240, 60


class Digits(lightning.LightningModule):
    """A network of one hidden layer."""

    automatic_optimization = False  # the loop of a step is training_step's

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )

    def compute(self, indices):
        """Return the sum of the losses of some samples."""
        with self.trainer.precision_plugin.train_step_context():
            return cross_entropy(self.net(x[indices]), y[indices], reduction="sum")

    def training_step(self, batch, index):
        """Run a step, of all ranks together; `batch` are the indices of its samples."""
        optimizer, rdp = self.optimizers(), steps.rdp
        optimizer.zero_grad()
        loss = rdp.backward(self.compute, batch)  # every .grad: that of all 240 samples
        optimizer.step()
        if (rdp.step + 1) % 20 == 0 and rdp.first:
            print(f"{rdp.step + 1}: loss {loss:.4f}, ranks {rdp.ranks}", flush=True)

    def configure_optimizers(self):
        """As of any module."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Steps:
    """The steps, in place of a loader: each gives the indices of all samples of its batch."""

    def __len__(self):  # with a length, Lightning asks for a step when it begins
        return STEPS + 1  # and once more at the end, so that the loop below ends by itself

    def __iter__(self):
        """Find the other ranks, or join them; leave at the end."""
        with ReactiveDataParallel(model, state=trainer.optimizers) as self.rdp:
            for step in self.rdp.steps(STEPS):
                epoch, at = divmod(step, len(x) // BATCH)
                order = np.random.default_rng(epoch).permutation(len(x))
                yield order[at * BATCH : (at + 1) * BATCH]


torch.manual_seed(0)  # the same parameters on all ranks
digits = fastgc.data.load("digits")
x = torch.from_numpy(digits.X_train).float()
y = torch.from_numpy(digits.y_train).long()
model, steps = Digits(), Steps()
trainer = lightning.Trainer(
    max_epochs=1,  # all steps
    accelerator="cpu",  # of a GPU each: accelerator="gpu", devices=[int(os.environ["LOCAL_RANK"])]
    devices=1,
    plugins=[LightningEnvironment()],  # for Lightning each rank is alone
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, steps)
