"""The world: this process's place among the ranks, and its device.

Under torchrun the place comes from the environment; started by hand a process is a world of one.
gloo on CPU, NCCL on GPU.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    local_rank: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which writes the ledger and the checkpoints."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Each value summed over all ranks."""
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.size > 1:
            dist.all_reduce(total)
        return [float(value) for value in total]

    def gather(self, value: T) -> list[T]:
        """The ranks' values, by rank, on every rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
        return values

    def from_leader(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        return self.gather(value)[0]


@contextlib.contextmanager
def join() -> Iterator[World]:
    """Meet the other ranks; leave the process group at the end."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    if size > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield World(rank, size, local_rank, device)
    finally:
        if size > 1:
            dist.destroy_process_group()
