"""The world: the rank of this process among all ranks, and its device.

The mesh decides which ranks have the same share of a batch, or the same weights. The ranks' process groups are made in
`slipway.trainer.elastic.process_groups`, and end with their generation; this module has the interfaces for a step.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from slipway.trainer.config.layout import Mesh

ALONE = Mesh()

T = TypeVar("T")


class Interrupted(Exception):
    """A rank, this or another, could not finish a section of work; the exchanges of all ranks are ended. Says why."""


class SectionPeers(Protocol):
    """The ranks' agreement on errors (`slipway.trainer.elastic.peers`)."""

    def section(self, reason: Callable[[BaseException], str | None]) -> contextlib.AbstractContextManager[None]:
        """One section of work, which all ranks go through in the same order. Raises Interrupted, on every rank."""

    def rejoin(self) -> None:
        """Make the process groups anew; all ranks call it after the section in which they were interrupted."""


class RankGroups(Protocol):
    """The interface of one rank's process groups (`slipway.trainer.elastic.process_groups` makes them)."""

    rank: int
    size: int
    objects: dist.ProcessGroup | None
    """The group for objects that are no tensors, if that is not the default group."""

    @property
    def peers(self) -> SectionPeers: ...

    @property
    def stays(self) -> bool:
        """Whether this rank stays in its process when its generation is over."""

    def opening(self) -> contextlib.AbstractContextManager[None]:
        """Make further groups inside; else their exchanges cannot be ended."""

    def exchanging(self, is_broken: Callable[[BaseException], bool]) -> contextlib.AbstractContextManager[None]:
        """Work with exchanges. Raises GenerationEnded when the generation is over and this rank stays; else nothing."""

    def check(self) -> None:
        """Raises GenerationEnded when this rank has heard that the generation is over, and stays."""

    def leave_generation(self, seconds: float) -> None:
        """Wait for the end of the generation, which is about to be announced. Raises GenerationEnded, RuntimeError."""

    def join_next_generation(self) -> None:
        """Come out of a generation that is over, and join the next one. Raises RuntimeError."""


@dataclass(frozen=True)
class World:
    """One rank among all ranks of a training."""

    rank: int
    size: int
    local_rank: int
    device: torch.device
    mesh: Mesh = ALONE
    groups: RankGroups | None = None
    """None for a world of one, and for one whose ranks are not real."""

    def __post_init__(self) -> None:
        assert self.mesh.ranks == self.size

    @property
    def objects(self) -> dist.ProcessGroup | None:
        """The group for objects that are no tensors; None for the default group, if that is gloo."""
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
    def is_rank_zero(self) -> bool:
        """Whether this is rank 0, which writes the ledger and the checkpoints."""
        return self.rank == 0

    def check_generation(self) -> None:
        """Raises GenerationEnded when this rank has heard that a rank is lost, and stays in its process."""
        if self.groups:
            self.groups.check()

    def all_reduce(self, *values: float | Tensor) -> list[float]:
        """Each value (a number, or a scalar on the device) summed over all ranks."""
        total = self.to_vector(*values)
        if self.size > 1:
            dist.all_reduce(total)
        return read(total)

    def to_vector(self, *values: float | Tensor) -> Tensor:
        """The values as one tensor in double precision on the device; the host does not wait for the device."""
        numbers = torch.tensor([0.0 if isinstance(value, Tensor) else value for value in values], dtype=torch.float64)
        if self.device.type == "cuda":
            numbers = numbers.pin_memory().to(self.device, non_blocking=True)
        for index, value in enumerate(values):
            if isinstance(value, Tensor):
                numbers[index] = value
        return numbers

    def all_gather(self, value: T) -> list[T]:
        """The values of all ranks, in the order of the ranks, on every rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value, group=self.objects)
        return values

    def broadcast(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        return self.all_gather(value)[0]


def read(numbers: Tensor) -> list[float]:
    """The numbers of a vector, in one transfer from the device: the host waits for it once."""
    values: list[float] = numbers.tolist()
    return values
