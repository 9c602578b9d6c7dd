"""Data-parallel training with Lightning, which finds its ranks as under Slurm; see docs/slurm.md.

    #SBATCH --nodes=3 --ntasks-per-node=1
    python lightning_ddp.py

Lightning's SLURMEnvironment reads SLURM_NTASKS, SLURM_PROCID, SLURM_LOCALID, SLURM_NODEID, MASTER_ADDR and
MASTER_PORT. The model learns a straight line, so that the loss must fall. Each rank prints one JSON line.
"""

import json
import os

import lightning
import torch


class Line(lightning.LightningModule):
    """y = 3x + 1, by gradient descent."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.losses = []

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layer(inputs), targets)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    hosts = int(os.environ["SLURM_NNODES"])
    tasks = int(os.environ["SLURM_NTASKS_PER_NODE"])
    lightning.seed_everything(1)
    inputs = torch.linspace(-1, 1, 1024).unsqueeze(1)
    data = torch.utils.data.TensorDataset(inputs, 3 * inputs + 1)
    model = Line()
    trainer = lightning.Trainer(
        accelerator="auto", devices=tasks, num_nodes=hosts, strategy="ddp", max_epochs=4,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=16, shuffle=True))
    weights = [round(value.item(), 6) for value in model.parameters()]
    found = {"rank": trainer.global_rank, "size": trainer.world_size, "weights": weights}
    print(json.dumps({**found, "first_loss": model.losses[0], "last_loss": model.losses[-1]}), flush=True)


if __name__ == "__main__":
    main()
