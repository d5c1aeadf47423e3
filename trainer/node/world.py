"""The world: the rank of this process among all ranks, and its device.

Under torchrun the rank comes from the environment; a process that is started by hand is a world of one.
The mesh says which ranks have the same share of a batch, or the same weights.

Ranks use gloo on CPU. On GPU, tensors travel by NCCL, which is connected to the rank's own device at once: a cluster
whose network does not work is found at the start, and no later exchange has to guess the device. What is no tensor
(agreements, plans of checkpoints, names of nodes) travels by a gloo group beside it, and waits for no kernel.
"""

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config.layout import Mesh, check
from slipway.trainer.config.operation import Hardware
from slipway.trainer.config.resolved import Config
from slipway.trainer.node import affinity, fabric, settings
from slipway.trainer.node.groups import Groups

ALONE = Mesh()

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """One rank among all ranks of a training."""

    rank: int
    size: int
    local_rank: int
    device: torch.device
    mesh: Mesh = ALONE
    groups: Groups | None = None
    """None for a world of one, and for one whose ranks are not real."""

    def __post_init__(self) -> None:
        assert self.mesh.ranks == self.size

    @property
    def objects(self) -> dist.ProcessGroup | None:
        """The group for what is no tensor; None for the default group, where that is gloo."""
        return self.groups.objects if self.groups else None

    @property
    def data_rank(self) -> int:
        """Which share of a batch this rank has."""
        return self.mesh.data_rank(self.rank)

    @property
    def data_size(self) -> int:
        """The number of shares into which a batch is divided."""
        return self.mesh.data

    @property
    def counts_losses(self) -> bool:
        """Whether this rank counts the losses of its samples, so that a sum over all ranks has every sample once."""
        return self.mesh.counts_losses(self.rank)

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which writes the ledger and the checkpoints."""
        return self.rank == 0

    def check_generation(self) -> None:
        """Raises GenerationEnded when this rank has heard that a rank is lost, and stays in its process."""
        if self.groups:
            self.groups.check()

    def sum(self, *values: float | Tensor) -> list[float]:
        """Each value (a number, or a scalar on the device) summed over all ranks."""
        total = self.column(*values)
        if self.size > 1:
            dist.all_reduce(total)
        return read(total)

    def column(self, *values: float | Tensor) -> Tensor:
        """The values as one tensor in double precision on the device, for which the host does not wait."""
        numbers = torch.tensor([0.0 if isinstance(value, Tensor) else value for value in values], dtype=torch.float64)
        if self.device.type == "cuda":
            numbers = numbers.pin_memory().to(self.device, non_blocking=True)
        for place, value in enumerate(values):
            if isinstance(value, Tensor):
                numbers[place] = value
        return numbers

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in the order of the ranks, on every rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value, group=self.objects)
        return values

    def from_leader(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        return self.gather(value)[0]


@contextlib.contextmanager
def join(config: Config | None = None) -> Iterator[World]:
    """Join the process group of all ranks; leave it at the end. Without a configuration every rank is a replica.

    Raises ValueError, before any rank is contacted, for a layout that does not fit the number of ranks or the model.
    """
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    mesh, hardware = _mesh(config, size), config.hardware if config else Hardware()
    if config:
        settings.set_environment(config, os.environ)
        settings.set_torch(config.runtime, hardware.deterministic)
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    fabric.apply(hardware, os.environ)
    if fabric.with_profile(hardware).affinity == "numa":
        affinity.bind(local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", "1")), _pci_address(device))

    def connect(store: Store | None, rank: int, size: int) -> dist.ProcessGroup | None:
        place: dict[str, Any] = {} if store is None else {"store": store, "rank": rank, "world_size": size}
        return _connect(device, hardware.timeout_seconds, place)

    stays = config is not None and config.recovery.stays(on_gpu)
    groups = Groups(connect, rank, size, hardware.timeout_seconds, stays) if size > 1 else None
    try:
        yield World(rank, size, local_rank, device, mesh, groups)
    finally:
        if groups is not None:
            groups.leave()


def next_generation(world: World, config: Config) -> World:
    """The world of the generation after one that is over; its number of ranks may be another one.

    Raises RuntimeError when no generation begins, and ValueError for a layout that does not fit the ranks there.
    """
    groups = world.groups
    assert groups is not None
    groups.join_next_generation()
    return dataclasses.replace(world, rank=groups.rank, size=groups.size, mesh=_mesh(config, groups.size))


def read(numbers: Tensor) -> list[float]:
    """The numbers of a vector, in one transfer from the device: the host waits for it once."""
    values: list[float] = numbers.tolist()
    return values


def _connect(device: torch.device, seconds: float, place: dict[str, Any]) -> dist.ProcessGroup | None:
    """Connect this rank to all others; returns the group for what is no tensor, where it is not the default one."""
    timeout = timedelta(seconds=seconds)
    if device.type != "cuda":
        dist.init_process_group("gloo", timeout=timeout, **place)
        return None
    dist.init_process_group("nccl", timeout=timeout, device_id=device, **place)
    beside: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=timeout)
    return beside


def _mesh(config: Config | None, size: int) -> Mesh:
    if config is None:
        return Mesh(replicas=size)
    try:
        return check(config, size, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    except Invalid as error:
        raise ValueError(f"field {error.field}: {error}") from None


def _pci_address(device: torch.device) -> str:
    """The PCI address of a GPU, as the kernel writes it; empty for a CPU."""
    if device.type != "cuda":
        return ""
    known: Any = torch.cuda.get_device_properties(device)
    return f"{known.pci_domain_id:04x}:{known.pci_bus_id:02x}:{known.pci_device_id:02x}.0"
