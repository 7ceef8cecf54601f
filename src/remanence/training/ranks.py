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
        under_way = []
        for bucket in _buckets(tensors):
            flat = torch.cat([part.flatten() for part in bucket])
            under_way.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
        for bucket, flat, reduction in under_way:
            reduction.wait()
            for part, total in zip(bucket, torch.split(flat, [part.numel() for part in bucket]), strict=True):
                part.copy_(total.view_as(part))

    def copy_from_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of process 0, in place."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor, src=0)

    def decision_of_first(self, decision: int) -> int:
        """The decision of process 0, where each process came to one of its own (by the clock, for example)."""
        if self.size == 1:
            return decision
        shared = torch.tensor([decision], device=_collective_device())
        self.copy_from_first([shared])
        return int(shared.item())

    def gather(self, values: NDArray[np.float32], rows: NDArray[np.int64], n: int) -> NDArray[np.float32]:
        """Combine the values that each process computed for its rows into an array of all n rows."""
        if self.size == 1 and len(rows) == n:
            return values
        combined = torch.zeros(n, dtype=torch.float32)
        combined[torch.from_numpy(rows)] = torch.from_numpy(values)
        combined = combined.to(_collective_device())
        self.add_up([combined])
        return combined.cpu().numpy()

    def wait(self) -> None:
        """Wait until every process has reached this point."""
        if self.size > 1:
            dist.barrier()


_BUCKET = 25 << 20
"""Bytes per message of a sum over processes."""
SINGLE_PROCESS = Ranks()
"""A single process."""


@contextmanager
def join_process_group() -> Iterator[Ranks]:
    """Join the process group of torchrun during the block; without torchrun, the process works alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield SINGLE_PROCESS
        return
    dist.init_process_group()  # torch's default: a backend for each kind of device (gloo for CPU, nccl for CUDA)
    try:
        ranks = Ranks(dist.get_rank(), size)
        yield ranks
        ranks.wait()  # no process closes connections that another still uses
    finally:
        dist.destroy_process_group()


def _buckets(tensors: Iterable[Tensor]) -> list[list[Tensor]]:
    """Tensors of one device and type, about 25 MB together: one message each, as DistributedDataParallel sends them."""
    buckets: list[list[Tensor]] = []
    open_buckets: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        kind = tensor.device, tensor.dtype
        bucket = open_buckets.get(kind)
        if bucket is None or sum(part.nbytes for part in bucket) + tensor.nbytes > _BUCKET:
            bucket = open_buckets[kind] = []
            buckets.append(bucket)
        bucket.append(tensor)
    return buckets


def _collective_device() -> torch.device:
    """A device whose tensors the process group can add up: the CPU if it can, else the accelerator (nccl alone)."""
    if not dist.is_initialized():
        return torch.device("cpu")
    kinds = [pair.partition(":")[0] for pair in dist.get_backend_config().split(",")]
    return torch.device("cpu") if "cpu" in kinds else torch.device(kinds[0])
