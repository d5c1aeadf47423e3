"""The world: this process's place among the ranks, and its device.

Under torchrun the place comes from the environment; started by hand a process is a world of one.
gloo on CPU, NCCL on GPU.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from trainer import affinity, fabric
from trainer.operation import Hardware

T = TypeVar("T")
THIS_MACHINE = Hardware()
"""Whatever NCCL finds."""


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
def join(hardware: Hardware = THIS_MACHINE) -> Iterator[World]:
    """Meet the other ranks, with the settings of `hardware`; leave the process group at the end."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    fabric.apply(hardware, os.environ)
    if fabric.settled(hardware).affinity == "numa":
        affinity.bind(local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", "1")), _pci_address(device))
    if size > 1:
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(seconds=hardware.timeout_seconds))
    try:
        yield World(rank, size, local_rank, device)
    finally:
        if size > 1:
            dist.destroy_process_group()


def _pci_address(device: torch.device) -> str:
    """Of a GPU, as the kernel writes it; empty for a CPU."""
    if device.type != "cuda":
        return ""
    known: Any = torch.cuda.get_device_properties(device)
    return f"{known.pci_domain_id:04x}:{known.pci_bus_id:02x}:{known.pci_device_id:02x}.0"
