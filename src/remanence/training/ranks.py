"""One training job on several processes, as torchrun starts them."""

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
    """Which process this is, and how many there are. Alone, everything here is free."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """This process's part of some rows; parts differ by one at most."""
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

    def gather(self, mine: NDArray[np.float32], rows: NDArray[np.int64], n: int) -> NDArray[np.float32]:
        """Put together what each process computed for its rows of n."""
        if self.size == 1 and len(rows) == n:
            return mine
        whole = torch.zeros(n, dtype=torch.float32)
        whole[torch.from_numpy(rows)] = torch.from_numpy(mine)
        self.add_up([whole])
        return whole.numpy()

    def wait(self) -> None:
        """Until every process is here."""
        if self.size > 1:
            dist.barrier()


ALONE = Ranks()


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the job that torchrun started, if it did; leave it at the end."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ALONE
        return
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        ranks = Ranks(dist.get_rank(), size)
        yield ranks
        ranks.wait()  # nobody takes the connections down while another still uses them
    finally:
        dist.destroy_process_group()
