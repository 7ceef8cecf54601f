"""Several processes that share the work of one training job, started by torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """This process among those of a training job; with a single process, all methods do nothing.

    Args:
        rank: number of this process, counted from 0.
        size: number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is process 0, which writes files."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """The rows that this process works on; sizes differ by at most one between processes."""
        return rows[self.rank :: self.size]

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, in place."""
        if self.size == 1:
            return
        parts = list(tensors)
        flat = torch.cat([part.flatten() for part in parts])
        dist.all_reduce(flat)
        for part, total in zip(parts, torch.split(flat, [part.numel() for part in parts]), strict=True):
            part.copy_(total.view_as(part))

    def gather(self, values: NDArray[np.float32], rows: NDArray[np.int64], n: int) -> NDArray[np.float32]:
        """Combine the values that each process computed for its rows into an array of all n rows."""
        if self.size == 1 and len(rows) == n:
            return values
        combined = torch.zeros(n, dtype=torch.float32)
        combined[torch.from_numpy(rows)] = torch.from_numpy(values)
        self.add_up([combined])
        return combined.numpy()

    def wait(self) -> None:
        """Wait until every process has reached this point."""
        if self.size > 1:
            dist.barrier()


SINGLE_PROCESS = Ranks()
"""A single process."""


@contextmanager
def join_process_group() -> Iterator[Ranks]:
    """Join the process group of torchrun during the block; without torchrun, the process works alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield SINGLE_PROCESS
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        ranks = Ranks(dist.get_rank(), size)
        yield ranks
        ranks.wait()  # no process closes connections that another still uses
    finally:
        dist.destroy_process_group()
