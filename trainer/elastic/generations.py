"""Generations: how the nodes and ranks of a job meet, and learn that a generation of ranks is over.

A job has a store, which its launcher hosts. The supervisors of its nodes (`slipway.trainer.supervisor`) and the ranks
below them write there under ``generation/<g>/``, a prefix for each generation: no rank reads an address of an earlier
one. Values are JSON.

    generation/<g>/arrivals          the number of nodes that have arrived; each gets the next number
    generation/<g>/arrived/<number>  an `Arrival`
    generation/<g>/members           the `Members`: the meeting is closed, and the token of the generation is claimed;
                                     a node that is not among them takes part in the next generation
    generation/<g>/waits             the number of nodes that wait for the next generation, beside the members
    generation/<g>/waiting/<number>  an `Arrival` of such a node; rank 0 ends the generation for it (`scaling`)
    generation/<g>/ranks/...         the keys of the ranks' process groups (`rank_store`)
    generation/<g>/end               an `End`: the generation is over. The first one that is written stands
    generation/<g>/done/<node>       the ranks of this node have ended with 0
    alive/<node>                     a number that grows while the supervisor of this node lives
    lost/<node>                      the launcher has lost this node; removed when it is started anew
    stopping                         a node was asked to stop: the current generation is the last one
    asked/<node>                     the same in a job whose nodes are replaced: this node leaves, and the others go on;
                                     if all nodes of a generation were asked, it is the last one
    over                             the job has ended: no node comes back to it
    exception_dump                   torch's own: a rank had an error of NCCL; gone before the next generation connects

A node arrives at a generation when its ranks of the one before are gone, or have left their collectives.

A rank that stays when its generation ends waits for ``generation/<g>/end``, then for ``generation/<g + 1>/members``,
where it finds its new rank by the name of its node. A rank that is started finds its rank in its environment.
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
"""The generation of a rank; unset for ranks that no supervisor started."""
MOST = "SLIPWAY_MOST_NODES"
"""The most nodes that the job may have. A rank compares it with `GROUP_WORLD_SIZE`, the number that it has now."""
REPLACED = "SLIPWAY_REPLACED_SECONDS"
"""Set if the launcher starts a dead node anew, under the same number and perhaps on another machine: the seconds for
which a job with too few nodes waits for it."""
ALIVE = "alive"
LOST = "lost"
STOPPING = "stopping"
STOP_REQUESTED = "asked"
OVER = "over"
DUMP = "exception_dump"
"""ProcessGroupNCCL sets it, without a prefix, when a rank has an error, and never removes it. A rank that connects and
reads it dumps its collectives too, waits TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, and ends its process. So the error of one
generation would end all later ones (`ProcessGroupNCCL::HeartbeatMonitor`)."""


@dataclass(frozen=True)
class Arrival:
    """A node that wants to take part in a generation."""

    node: str
    """Its name, unique in the job."""
    index: int
    """Its number in the job if the launcher gives numbers; else -1."""
    ranks: int
    address: str


@dataclass(frozen=True)
class Members:
    """The nodes of a generation, in the order of their ranks."""

    incarnation: int
    """0 if the ranks claim an incarnation themselves."""
    generation: int
    nodes: tuple[Arrival, ...]
    at: float
    """The time when the token was claimed: seconds since the epoch, by the clock of the first node."""

    @property
    def world(self) -> int:
        """The number of ranks."""
        return sum(node.ranks for node in self.nodes)

    def has(self, node: str) -> bool:
        return any(member.node == node for member in self.nodes)

    def number(self, node: str) -> int:
        """The index of a node among the members."""
        return [member.node for member in self.nodes].index(node)

    def first_rank(self, node: str) -> int:
        """The global rank of the node's local rank 0."""
        return sum(member.ranks for member in self.nodes[: self.number(node)])

    def ranks(self, node: str) -> range:
        """The ranks of a node."""
        first = self.first_rank(node)
        return range(first, first + self.nodes[self.number(node)].ranks)


@dataclass(frozen=True)
class End:
    """Why a generation is over."""

    node: str
    """The node that announced the end."""
    kind: str
    """The cause, of `slipway.trainer.record.causes`."""
    reason: str
    """One sentence for a person."""
    final: bool
    """Whether the job ends too: a new start in this job would change nothing, or is not allowed."""
    code: int
    """The exit code of the rank that failed first, 128 + n for signal n."""
    at: float
    """The time of its detection: seconds since the epoch, by the clock of that node."""
    ranks: tuple[int, ...] = ()
    """The ranks that failed first, as far as they are known."""
    nodes: tuple[str, ...] = ()
    """The nodes of these ranks, as far as they are known."""
    ranks_stay: bool = False
    """Whether healthy ranks stay in their processes and join the next generation from there."""
    joins: tuple[str, ...] = ()
    """New nodes for which the next generation waits, beside those of this one."""


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
    """The store of this generation's process groups; None for ranks that no supervisor started.

    A rank waits there for at most `seconds`. Raises RuntimeError (DistNetworkError) if the store is gone.
    """
    generation = from_environment()
    if generation is None:
        return None
    from torch._C._distributed_c10d import PrefixStore

    return PrefixStore(key(generation, "ranks"), job_store(seconds=seconds))


def job_store(environment: Mapping[str, str] = os.environ, seconds: float = 60.0) -> "Store":
    """A new connection to the store of this rank's job, with a timeout of `seconds`.

    Raises RuntimeError (DistNetworkError) if the store is gone.
    """
    from torch._C._distributed_c10d import TCPStore

    address = environment["MASTER_ADDR"]
    port = int(environment["MASTER_PORT"])
    return TCPStore(address, port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds))


def announce(end: End, environment: Mapping[str, str] = os.environ) -> None:
    """Announce the end of this rank's generation, unless somebody has. Raises RuntimeError if the store is gone."""
    generation = from_environment(environment)
    assert generation is not None
    store: Any = job_store(environment)
    store.compare_set(key(generation, "end"), "", codec.encode(end).decode())
