"""Process groups: a rank joins those of all ranks, and they can be ended in the middle of an exchange and made again.

Under torchrun the rank comes from the environment; a process that is started by hand is a world of one (`join`).

Ranks use gloo on CPU. On GPU, tensors travel by NCCL, which is connected to the rank's own device at once: a cluster
whose network does not work is found at the start, and no later exchange has to guess the device. What is no tensor
(agreements, plans of checkpoints, names of nodes) travels by a gloo group beside it, and waits for no kernel.

NCCL aborts its communicators. gloo cannot, so that its connections are shut down
(`slipway.trainer.elastic.gloo_connections`). New groups meet in the same store, which the job or, without a supervisor,
rank 0 hosts.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed import distributed_c10d

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config.layout import Mesh, check
from slipway.trainer.config.operation import Hardware
from slipway.trainer.config.resolved import Config
from slipway.trainer.elastic import generations
from slipway.trainer.elastic.generation_listener import GenerationEnded, GenerationListener, IsBroken
from slipway.trainer.elastic.gloo_connections import Links
from slipway.trainer.elastic.peers import Peers
from slipway.trainer.node import affinity, fabric, settings
from slipway.trainer.node.world import World

Connect = Callable[[Store | None, int, int], dist.ProcessGroup | None]
"""Makes the process groups of all ranks, of which this is the given one of so many. They meet in the given store, or in
the one that the environment names. Returns the group for what is no tensor, where that is not the default one."""


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
        rank_arguments: dict[str, Any] = {} if store is None else {"store": store, "rank": rank, "world_size": size}
        return _connect(device, hardware.timeout_seconds, rank_arguments)

    stays = config is not None and config.recovery.stays(on_gpu)
    groups = ProcessGroups(connect, rank, size, hardware.timeout_seconds, stays) if size > 1 else None
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


class ProcessGroups:
    """The process groups of one rank."""

    peers: Peers
    """What the ranks agree on beside their exchanges."""

    def __init__(self, connect: Connect, rank: int, size: int, seconds: float, stays: bool = False) -> None:
        """Join the others. No rank waits for another for longer than `seconds`.

        stays: whether this rank stays in its process when its generation is over, and joins the next one.
        """
        self._connect, self._links, self._times, self._seconds = connect, Links(), 0, seconds
        self.rank, self.size = rank, size
        self.objects: dist.ProcessGroup | None = None
        self._listener: GenerationListener | None = None
        store = generations.rank_store(seconds=seconds)
        if store is None or not stays:
            self._open(store)
            return
        self._job = _job(store)
        self._join_generation()

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """Make further groups inside; else their exchanges cannot be ended."""
        with self._links.opening():
            yield

    @contextlib.contextmanager
    def exchanging(self, is_broken: IsBroken) -> Iterator[None]:
        """Work with exchanges. Raises GenerationEnded when the generation is over and this rank stays; else nothing."""
        with self._listener.exchanging(is_broken) if self._listener else contextlib.nullcontext():
            yield

    @property
    def stays(self) -> bool:
        """Whether this rank stays when its generation is over."""
        return self._listener is not None

    def check(self) -> None:
        """Raises GenerationEnded when this rank has heard that the generation is over, and stays."""
        if self._listener:
            self._listener.check()

    def leave_generation(self, seconds: float) -> None:
        """Wait for the end of the generation, which is about to be announced. Raises GenerationEnded, RuntimeError."""
        assert self._listener is not None
        self._listener.leave(seconds)

    def join_next_generation(self) -> None:
        """Come out of a generation that is over, and join the next one; `rank` and `size` may be others then.

        Raises RuntimeError when none begins in time, or none has a place for this node.
        """
        while True:
            assert self._listener is not None
            self._close()
            self._listener.next(self._seconds, os.environ.get("SLIPWAY_NODE", "local"))
            with contextlib.suppress(GenerationEnded):  # another rank was lost before all had met
                self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
                return self._join_generation()

    def leave(self) -> None:
        """Leave all groups."""
        self._close()

    def _join_generation(self) -> None:
        generation = generations.from_environment()
        assert generation is not None
        self._listener = GenerationListener(self._job, generation, self.rank, self.size, self._end_all)
        self._listener.meet(self._seconds)
        with self._listener.exchanging(lambda error: isinstance(error, RuntimeError | TimeoutError)):
            self._open(self._listener.ranks)

    def _open(self, store: Store | None) -> None:
        with self._links.opening():
            self.objects = self._connect(store, self.rank, self.size)
        known: Any = dist.distributed_c10d
        self._store = known._get_default_store()
        self._links.store_port = _job(self._store).port
        self.peers = Peers(self._store, self.rank, self.size, self._seconds, self._end_exchanges, self._rejoin)

    def _close(self) -> None:
        """Leave all groups, and listen no more."""
        if self._listener:
            self._listener.close()
        if hasattr(self, "peers"):
            self.peers.close()
        if dist.is_initialized():
            dist.destroy_process_group()

    def _end_all(self) -> None:
        """End all that this rank waits for, as its generation is over."""
        self._end_exchanges()
        if hasattr(self, "peers"):
            self.peers.abandon()

    def _end_exchanges(self) -> None:
        if dist.is_initialized() and dist.get_backend() == "nccl":
            known: Any = dist.distributed_c10d
            known._abort_process_group()
        self._links.shut_down()

    def _rejoin(self) -> None:
        self.check()
        if dist.is_initialized():
            dist.destroy_process_group()
        self._times += 1
        with self._links.opening():
            self.objects = self._connect(PrefixStore(f"again/{self._times}", self._store), self.rank, self.size)


class TimeLimits:
    """The limits of one rank: how long it waits for the others in one exchange, by phase.

    Before its first steps a rank may stage, restore or compile for long while others wait for it; a step is short, and
    a rank that does not answer there is gone. So the limit is `hardware.timeout_seconds` at the start, in validations
    and at the end, and `hardware.step_timeout_seconds` in steps.
    """

    def __init__(self, hardware: Hardware, world: World) -> None:
        self._outside_steps, self._in_steps = hardware.timeout_seconds, hardware.step_timeout_seconds
        self._world, self._stepped = world, False
        self._more: Callable[[], Sequence[dist.ProcessGroup]] = tuple
        self._now: tuple[float, list[dist.ProcessGroup]] = self._outside_steps, self._groups()

    def watch(self, groups: Callable[[], Sequence[dist.ProcessGroup]]) -> None:
        """Limit these groups too; they may be others later, when all ranks have made them anew."""
        self._more = groups

    def follow(self, hardware: Hardware) -> None:
        """Go on with the limits of another configuration, from the next phase on."""
        self._outside_steps, self._in_steps = hardware.timeout_seconds, hardware.step_timeout_seconds

    def enter(self, in_step: bool) -> None:
        """This rank begins a step, or something else. A process's first step warms up, and has the longer limit.

        No rank is behind in an exchange of the first step by then: at the end of each step all ranks agree.
        """
        seconds = self._in_steps if in_step and self._stepped else self._outside_steps
        self._stepped = self._stepped or in_step
        limits = seconds, self._groups()
        if limits != self._now:
            for group in limits[1]:
                # PyTorch has no public function for this; torchtitan lowers its limit by the same one.
                distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)
            self._now = limits

    def _groups(self) -> list[dist.ProcessGroup]:
        if self._world.size == 1:
            return []
        beside = [self._world.objects] if self._world.objects else []
        default: dist.ProcessGroup = distributed_c10d._get_default_group()
        return [default, *beside, *self._more()]


def _job(store: Store) -> Any:
    """The store itself, without a prefix."""
    known: Any = store
    return known._underlying_non_prefix_store


def _connect(device: torch.device, seconds: float, rank_arguments: dict[str, Any]) -> dist.ProcessGroup | None:
    """Connect this rank to all others; returns the group for what is no tensor, where it is not the default one."""
    timeout = timedelta(seconds=seconds)
    if device.type != "cuda":
        dist.init_process_group("gloo", timeout=timeout, **rank_arguments)
        return None
    dist.init_process_group("nccl", timeout=timeout, device_id=device, **rank_arguments)
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
