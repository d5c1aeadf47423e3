"""Slots: how many trials the nodes hold at a time, and which nodes have room for one more.

Where a scheduler places jobs, it has the queue, and every ready node is offered. On the embedded fleet a node has its
share of this machine's cores, and holds as many trials as it has cores for their ranks, one at least.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from slipway.recipes.load import Recipes
from slipway.recipes.problems import RecipeFault
from slipway.recipes.training import PlacementSection
from slipway.resources.fleet.protocol import Fleet, Node


def of_node(placement: PlacementSection, nodes: int, cores: int) -> int:
    """How many trials one of so many nodes holds that share so many cores."""
    return max(1, cores // max(1, nodes) // placement.ranks_per_node)


def faults(fleet: Fleet, recipes: Recipes, cores: int | None = None) -> Iterator[tuple[str, str, RecipeFault]]:
    """The sweeps that ask for more nodes or trials at a time than a fleet without a scheduler can ever hold.

    Raises Unavailable.
    """
    if fleet.scheduled:
        return
    for name, sweep in recipes.sweeps.items():
        training = recipes.trainings.get(sweep.training)
        if training is None:
            continue
        slots = Slots(fleet, sweep.placement.of_trial(training.placement), cores)
        if fault := slots.fault_of_one:
            yield "sweeps", name, fault
        elif slots.too_many(sweep.parallel):
            expected = f"at most {slots.most} here: {slots.holding}"
            yield "sweeps", name, RecipeFault(("parallel",), str(sweep.parallel), expected)


class Slots:
    """The slots of a fleet for trials that are placed alike. Raises Unavailable when the fleet cannot be read."""

    def __init__(self, fleet: Fleet, placement: PlacementSection, cores: int | None = None) -> None:
        """`cores` are those that the nodes of an embedded fleet share; by default, this process's."""
        self._scheduled, self._needed = fleet.scheduled, placement.nodes.min
        self._nodes: list[Node] = fleet.nodes()
        shared = len(os.sched_getaffinity(0)) if cores is None else cores
        self._per_node = of_node(placement, len(self._nodes), shared)

    @property
    def most(self) -> int | None:
        """How many trials the whole fleet holds at a time; None where a scheduler has a queue for the rest."""
        if self._scheduled:
            return None
        return self._per_node * len(self._nodes) // self._needed if self._needed <= len(self._nodes) else 0

    def free(self, taken: Iterable[Iterable[str]]) -> tuple[str, ...]:
        """The nodes that have room for one more trial, given the nodes of the others; empty when they are too few."""
        ready = tuple(node.name for node in self._nodes if node.ready)
        if self._scheduled:
            return ready
        used = Counter(node for nodes in taken for node in nodes)
        free = tuple(name for name in ready if used[name] < self._per_node)
        return free if len(free) >= self._needed else ()

    def too_many(self, parallel: int) -> str:
        """What is said about more trials at a time than the fleet can ever hold; empty for no more."""
        if self.most is None or parallel <= self.most:
            return ""
        return f"parallel: found {parallel}, but {self.holding}; the others wait for a slot"

    @property
    def holding(self) -> str:
        """How many trials the fleet holds, in words."""
        return f"the fleet's {len(self._nodes)} nodes hold {self.most} trials at a time, {self._per_node} on a node"

    @property
    def fault_of_one(self) -> RecipeFault | None:
        """Why the fleet can never hold one trial; None where it can."""
        if self.most != 0:
            return None
        expected = f"at most {len(self._nodes)}, the nodes of the fleet"
        return RecipeFault(("placement", "nodes", "min"), str(self._needed), expected)

    def check(self) -> None:
        """Raises ValueError where the fleet can never hold one trial."""
        if fault := self.fault_of_one:
            raise ValueError(str(fault))
