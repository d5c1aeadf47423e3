"""Generations: how the nodes and ranks of a job meet, and learn that a generation of ranks is over.

A job has a store, which its launcher hosts. The supervisors of its nodes (`trainer.supervisor`) and the ranks below
them write there under ``generation/<g>/``, a prefix for each generation: no rank reads an address of an earlier one.
Values are JSON.

    generation/<g>/arrivals          how many nodes have arrived; the number given to a node is its place below
    generation/<g>/arrived/<place>   an `Arrival`
    generation/<g>/members           the `Members`: the meeting is closed, and the token of the generation is claimed;
                                     a node that is not among them takes part in the next generation
    generation/<g>/ranks/...         what the process groups of the ranks exchange (`rank_store`)
    generation/<g>/end               an `End`: the generation is over. The first one that is written stands
    generation/<g>/done/<node>       the ranks of this node have ended with 0
    alive/<node>                     a number that grows while the supervisor of this node lives
    lost/<node>                      the launcher says that this node is lost for the job
    stopping                         a node was asked to stop: the generation that runs is the last one

A node arrives at a generation when its ranks of the one before are gone, or have left their exchanges.

A rank that stays when its generation ends waits for ``generation/<g>/end``, then for ``generation/<g + 1>/members``,
where it finds its new place by the name of its node. A rank that is started finds its place in its environment.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

VARIABLE = "SLIPWAY_GENERATION"
"""The generation of a rank; ranks that no supervisor started have none."""
ALIVE, LOST, STOPPING = "alive", "lost", "stopping"


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
        return any(each.node == node for each in self.nodes)

    def number(self, node: str) -> int:
        """The number of a node among them."""
        return [each.node for each in self.nodes].index(node)

    def first_rank(self, node: str) -> int:
        """The rank that the node's first rank has among all."""
        return sum(each.ranks for each in self.nodes[: self.number(node)])


@dataclass(frozen=True)
class End:
    """Why a generation is over."""

    node: str
    """Who says so."""
    kind: str
    """Of `trainer.record.causes`."""
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


def key(generation: int, *names: str | int) -> str:
    """The key of a generation's value."""
    return "/".join(["generation", str(generation), *map(str, names)])


def given(environment: Mapping[str, str] = os.environ) -> int | None:
    """The generation of this rank; None for a rank that no supervisor started."""
    text = environment.get(VARIABLE)
    return int(text) if text else None


def rank_store(environment: Mapping[str, str] = os.environ, seconds: float = 300.0) -> "Store | None":
    """The store in which the ranks of this generation meet; None for ranks that no supervisor started.

    No rank waits there for longer than `seconds`. Raises RuntimeError (DistNetworkError) when the store is gone.
    """
    generation = given(environment)
    if generation is None:
        return None
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    place = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    job = TCPStore(*place, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=seconds))
    return PrefixStore(key(generation, "ranks"), job)
