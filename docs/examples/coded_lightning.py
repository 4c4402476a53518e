"""A LightningModule trained by three ranks, of which one may die at any step; torchrun starts them.

torchrun --nproc-per-node 3 -m fastgc.guard coded_lightning.py
"""

import lightning
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset, default_collate

import fastgc
from fastgc.torch import CodedAllReduce, CodedSampler

BATCH, STEPS = 240, 60


class Digits(lightning.LightningModule):
    """A network of one hidden layer."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )

    def loss(self, batch):
        """Of a batch's samples the sum, divided by the number that all ranks have together."""
        x, y = batch
        return cross_entropy(self.net(x), y, reduction="sum") / BATCH

    def training_step(self, batch, index):
        """Of the samples that this rank has of a batch."""
        loss = self.loss(batch)
        self.own = loss.item()
        return loss

    def configure_optimizers(self):
        """As of any module."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


class Coded(lightning.Callback):
    """Lets every gradient be that of the whole batch, on all ranks, whoever dies."""

    def on_fit_start(self, trainer, module):
        """Find the other ranks, or join them."""

        def compute(indices):  # what a rank that died owed in this step
            batch = default_collate([dataset[i] for i in indices])
            batch = trainer.strategy.batch_to_device(batch)
            with trainer.precision_plugin.train_step_context():
                loss = module.loss(batch)
            loss.backward()
            return [loss.item()]

        schedules = [each.scheduler for each in trainer.lr_scheduler_configs]
        self.all_reduce = CodedAllReduce(
            module,
            code,
            sampler=sampler,
            redundancy="reactive",
            recompute=compute,
            state=[*trainer.optimizers, *schedules, trainer.fit_loop],  # of a rank that joins
        )

    def on_after_backward(self, trainer, module):
        """Sum up."""
        (mean,) = self.all_reduce(module.own)  # every .grad: that of all 240 samples
        step, ranks = self.all_reduce.step, self.all_reduce.ranks
        if step % 20 == 0 and self.all_reduce.rank == ranks[0]:
            print(f"{step}: loss {mean:.4f}, ranks {ranks}", flush=True)

    def on_fit_end(self, trainer, module):
        """End the run, for all."""
        self.all_reduce.close()


torch.manual_seed(0)  # the same parameters on all ranks
digits = fastgc.data.load("digits")
dataset = TensorDataset(
    torch.from_numpy(digits.X_train).float(), torch.from_numpy(digits.y_train).long()
)
model = Digits()
code = fastgc.BinaryCode(3, stragglers=1)
sampler = CodedSampler(dataset, code, BATCH)
trainer = lightning.Trainer(
    max_steps=STEPS,
    accelerator="cpu",  # of a GPU each: accelerator="gpu", devices=[int(os.environ["LOCAL_RANK"])]
    devices=1,
    plugins=[LightningEnvironment()],  # for Lightning each rank is alone
    use_distributed_sampler=False,
    callbacks=[Coded()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(model, DataLoader(dataset, batch_sampler=sampler))
