"""The world: the rank of this process among all ranks, and its device.

Under torchrun the rank comes from the environment; a process that is started by hand is a world of one.
Ranks use gloo on CPU and NCCL on GPU. The mesh says which ranks have the same share of a batch, or the same weights.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from trainer.base.invalid import Invalid
from trainer.config.layout import Mesh, check
from trainer.config.operation import Hardware
from trainer.config.resolved import Config
from trainer.node import affinity, fabric
from trainer.node.groups import Groups

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

    def sum(self, *values: float) -> list[float]:
        """Each value summed over all ranks."""
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.size > 1:
            dist.all_reduce(total)
        return [float(value) for value in total]

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in the order of the ranks, on every rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value)
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
    if hardware.deterministic:
        _use_deterministic_algorithms()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", local_rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    fabric.apply(hardware, os.environ)
    if fabric.with_profile(hardware).affinity == "numa":
        affinity.bind(local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", "1")), _pci_address(device))

    def connect(store: Store | None) -> None:
        place: dict[str, Any] = {} if store is None else {"store": store, "rank": rank, "world_size": size}
        backend, limit = "nccl" if on_gpu else "gloo", timedelta(seconds=hardware.timeout_seconds)
        dist.init_process_group(backend, timeout=limit, **place)

    groups = Groups(connect, rank, size, hardware.timeout_seconds) if size > 1 else None
    try:
        yield World(rank, size, local_rank, device, mesh, groups)
    finally:
        if groups is not None:
            groups.leave()


def _use_deterministic_algorithms() -> None:
    """Raises RuntimeError later, at an operation that has no such algorithm."""
    # cuBLAS is deterministic only with a workspace of a fixed size, which it reads when it starts (PyTorch's notes on
    # reproducibility).
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False


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
