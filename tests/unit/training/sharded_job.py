"""A user's own training loop on one or two processes, recorded; started by test_sharded.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import remanence as rm
from remanence.errors import InputError
from remanence.storage import open_folder, read_trace
from remanence.training.example_statistics import example_statistics

STEPS, BATCH, N = 12, 16, 64
MECHANISM = rm.Mechanism(
    sigma=0.1, sampling_rate=BATCH / N, steps=STEPS, batch_size=BATCH, sampling="shuffled"
)


def build_with_statistics() -> nn.Module:
    """A model whose buffers differ between processes after a step."""
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def build() -> nn.Module:
    """A model with a frozen layer."""
    model = nn.Sequential(
        nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)
    )
    for parameter in model[3].parameters():
        parameter.requires_grad_(False)
    return model


def make_task(make: Callable[[], nn.Module] = build) -> rm.Task:
    source = torch.Generator().manual_seed(1)
    inputs, labels = torch.randn(N, 6, generator=source), torch.randint(3, (N,), generator=source)
    train, test = TensorDataset(inputs, labels), TensorDataset(inputs[:8], labels[:8])
    return rm.Task(make, train, test, rm.Recipe(epochs=3, learning_rate=0.1, batch_size=BATCH))


def wrapped(kind: str, model: nn.Module) -> nn.Module:
    cpu = torch.device("cpu")
    if kind.startswith("ddp"):
        return DistributedDataParallel(model)
    if kind == "fsdp1":
        return FullyShardedDataParallel(model, use_orig_params=True, device_id=cpu)
    if kind == "fsdp1-flat":
        return FullyShardedDataParallel(model.requires_grad_(True), device_id=cpu)
    if kind == "fsdp1-frozen":  # which parameters are frozen cannot be seen in flat parameters
        units = [
            FullyShardedDataParallel(layer, device_id=cpu) if isinstance(layer, nn.Linear) else layer
            for layer in model.children()
        ]
        return FullyShardedDataParallel(nn.Sequential(*units), device_id=cpu)
    if kind == "fsdp2":
        for layer in model.children():
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        return fully_shard(model)
    if kind == "single-flat":
        return model.requires_grad_(True)
    return model


def train(kind: str, out: Path, rank: int, size: int) -> None:
    """The user's loop: each process takes its share of every batch."""
    task = make_task(build_with_statistics if kind == "ddp-statistics" else build)
    model = wrapped(kind, task.new_model(0))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    recorder = rm.Recorder(
        model, task=task, total_steps=STEPS, mechanism=MECHANISM, checkpoints=4, placement="even", out=out
    )
    order = torch.randperm(N, generator=torch.Generator().manual_seed(2))
    for step in range(STEPS):
        rows = order[(step * BATCH) % N :][:BATCH][rank::size]
        inputs, labels = task.train.batch(rows)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        recorder.step()
    recorder.finish()


def refusals(rank: int) -> list[str]:
    """What is refused, as sentences."""
    settings: dict[str, Any] = {"total_steps": STEPS, "mechanism": MECHANISM}
    cases = (
        ("fsdp2", {"examples": make_task().train}),
        ("fsdp1-frozen", {"task": make_task()}),
        ("fsdp2", {"task": make_task(build_with_statistics)}),
    )
    sentences = []
    for kind, options in cases:
        try:
            rm.Recorder(wrapped(kind, make_task().new_model(0)), **options, **settings)
        except InputError as error:
            sentences.append(str(error))
    try:
        recorder = rm.Recorder(
            wrapped("ddp", make_task().new_model(0)), task=make_task(), overhead=0.05, **settings
        )
        with recorder.batch([0]):
            pass
    except InputError as error:
        sentences.append(str(error))
    return sentences


def run(kind: str, out: Path, rank: int, size: int) -> None:
    if kind != "refusals":
        train(kind, out, rank, size)
    if kind == "ddp-statistics" and rank == 0:
        check_last_row(out)
    if kind == "refusals":
        sentences = refusals(rank)
        if rank == 0:
            out.write_text("\n".join(sentences))


def main(folder: Path, *kinds: str) -> None:
    """Run one loop after the other; loading torch anew for each would take longer than all of them."""
    alone = kinds[0].startswith("single")
    if not alone:
        dist.init_process_group()
    rank, size = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
    for kind in kinds:
        run(kind, folder / kind, rank, size)
    if not alone:
        dist.barrier()
        dist.destroy_process_group()


def check_last_row(out: Path) -> None:
    """The last row is that of the weights and statistics that the first process saved."""
    model = build_with_statistics()
    model.load_state_dict(load_file(out / "weights.safetensors"))
    row = example_statistics(model, make_task().train)
    assert np.abs(read_trace(open_folder(out)).norms[-1] - row["norms"]).max() <= 1e-6


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
