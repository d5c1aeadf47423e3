"""Generations: how the nodes and ranks of a job meet, and learn that a generation of ranks is over.

A job has a store, which its launcher hosts. The supervisors of its nodes (`slipway.trainer.supervisor`) and the ranks
below them write there under ``generation/<g>/``, a prefix for each generation: no rank reads an address of an earlier
one. Values are JSON.

    generation/<g>/arrivals          how many nodes have arrived; the number given to a node is its place below
    generation/<g>/arrived/<place>   an `Arrival`
    generation/<g>/members           the `Members`: the meeting is closed, and the token of the generation is claimed;
                                     a node that is not among them takes part in the next generation
    generation/<g>/waits             how many nodes wait to take part in the next one, beside its members
    generation/<g>/waiting/<place>   an `Arrival` of such a node; rank 0 ends the generation for it (`scaling`)
    generation/<g>/ranks/...         what the process groups of the ranks exchange (`rank_store`)
    generation/<g>/end               an `End`: the generation is over. The first one that is written stands
    generation/<g>/done/<node>       the ranks of this node have ended with 0
    alive/<node>                     a number that grows while the supervisor of this node lives
    lost/<node>                      the launcher says that this node is lost for the job, until it is started anew
    stopping                         a node was asked to stop: the generation that runs is the last one
    asked/<node>                     the same where nodes are replaced: this node leaves, and the others go on; a
                                     generation all of whose nodes were asked is the last one
    over                             the job has ended: no node comes back to it
    exception_dump                   torch's own: a rank had an error of NCCL; gone before the next generation connects

A node arrives at a generation when its ranks of the one before are gone, or have left their exchanges.

A rank that stays when its generation ends waits for ``generation/<g>/end``, then for ``generation/<g + 1>/members``,
where it finds its new place by the name of its node. A rank that is started finds its place in its environment.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from slipway.trainer.base import codec

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

VARIABLE = "SLIPWAY_GENERATION"
"""The generation of a rank; ranks that no supervisor started have none."""
MOST = "SLIPWAY_MOST_NODES"
"""How many nodes the job may have; with `GROUP_WORLD_SIZE`, the number that it has, a rank knows whether one lacks."""
REPLACED = "SLIPWAY_REPLACED_SECONDS"
"""Set where the launcher starts a node that died anew, under the same number and perhaps on another machine: for how
many seconds a job that has too few nodes waits for it."""
ALIVE, LOST, STOPPING, STOP_REQUESTED, OVER = "alive", "lost", "stopping", "asked", "over"
DUMP = "exception_dump"
"""ProcessGroupNCCL sets it, below no prefix, when a rank sees an error, and never removes it. Whoever finds it when it
has connected dumps its exchanges too, waits TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, and ends its process: with the error of
an earlier generation, every later one would end so (`ProcessGroupNCCL::HeartbeatMonitor`)."""


@dataclass(frozen=True)
class Arrival:
    """A node that wants to take part in a generation."""

    node: str
    """Its name, which no other node of the job has."""
    index: int
    """Its number in the job where the launcher gives one; else -1."""
    ranks: int
    address: str


@dataclass(frozen=True)
class Members:
    """Who takes part in a generation, in the order of the ranks."""

    incarnation: int
    """0 for ranks that claim an incarnation for themselves."""
    generation: int
    nodes: tuple[Arrival, ...]
    at: float
    """When they had met and the token was claimed: seconds since the epoch, by the clock of the first node."""

    @property
    def world(self) -> int:
        """The number of ranks."""
        return sum(node.ranks for node in self.nodes)

    def has(self, node: str) -> bool:
        return any(member.node == node for member in self.nodes)

    def number(self, node: str) -> int:
        """The number of a node among them."""
        return [member.node for member in self.nodes].index(node)

    def first_rank(self, node: str) -> int:
        """The rank that the node's first rank has among all."""
        return sum(member.ranks for member in self.nodes[: self.number(node)])

    def ranks(self, node: str) -> range:
        """The ranks of a node."""
        first = self.first_rank(node)
        return range(first, first + self.nodes[self.number(node)].ranks)


@dataclass(frozen=True)
class End:
    """Why a generation is over."""

    node: str
    """Who says so."""
    kind: str
    """Of `slipway.trainer.record.causes`."""
    reason: str
    """One sentence for a person."""
    final: bool
    """Whether the job ends with it: a new start in this job would change nothing, or is not allowed."""
    code: int
    """The exit code of the rank that it began with, 128 + n for signal n."""
    at: float
    """When it was noticed: seconds since the epoch, by the clock of that node."""
    ranks: tuple[int, ...] = ()
    """The ranks that it began with, as far as they are known."""
    nodes: tuple[str, ...] = ()
    """The nodes that it began on, as far as they are known."""
    stay: bool = False
    """Whether ranks that are well stay in their processes, and take part in the next generation from there."""
    joins: tuple[str, ...] = ()
    """The nodes for which the next generation waits beside those of this one."""


@dataclass(frozen=True)
class StopAsked:
    """A node was asked to stop."""

    node: str


def key(generation: int, *names: str | int) -> str:
    """The key of a generation's value."""
    return "/".join(["generation", str(generation), *map(str, names)])


def from_environment(environment: Mapping[str, str] = os.environ) -> int | None:
    """The generation of this rank; None for a rank that no supervisor started."""
    text = environment.get(VARIABLE)
    return int(text) if text else None


def rank_store(seconds: float) -> "Store | None":
    """The store in which the ranks of this generation meet; None for ranks that no supervisor started.

    No rank waits there for longer than `seconds`. Raises RuntimeError (DistNetworkError) when the store is gone.
    """
    generation = from_environment()
    if generation is None:
        return None
    from torch._C._distributed_c10d import PrefixStore

    return PrefixStore(key(generation, "ranks"), job_store(seconds=seconds))


def job_store(environment: Mapping[str, str] = os.environ, seconds: float = 60.0) -> "Store":
    """A connection of its own to the store of this rank's job; nobody waits on it for longer than `seconds`.

    Raises RuntimeError (DistNetworkError) when the store is gone.
    """
    from torch._C._distributed_c10d import TCPStore

    endpoint = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    return TCPStore(*endpoint, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds))


def announce(end: End, environment: Mapping[str, str] = os.environ) -> None:
    """Say that the generation of this rank is over, unless somebody has. Raises RuntimeError without the store."""
    generation = from_environment(environment)
    assert generation is not None
    store: Any = job_store(environment)
    store.compare_set(key(generation, "end"), "", codec.encode(end).decode())
