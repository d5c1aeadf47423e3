"""Slots: the number of trials that the nodes can run at the same time, and the nodes with room for another one.

If a scheduler places jobs, it has the queue, and every ready node is available. On the embedded fleet a node has its
share of this machine's cores, and runs as many trials as it has cores for their ranks, but at least one.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator

from slipway.recipes.load import Recipes
from slipway.recipes.problems import RecipeFault
from slipway.recipes.training import PlacementSection
from slipway.resources.fleet.protocol import Fleet, Node


def of_node(placement: PlacementSection, nodes: int, cores: int) -> int:
    """The number of trials for each of `nodes` nodes that share `cores` cores."""
    return max(1, cores // max(1, nodes) // placement.ranks_per_node)


def faults(fleet: Fleet, recipes: Recipes, cores: int | None = None) -> Iterator[tuple[str, str, RecipeFault]]:
    """The faults of sweeps that need more nodes or parallel trials than a fleet without a scheduler can ever run.

    Raises Unavailable.
    """
    if fleet.scheduled:
        return
    for name, sweep in recipes.sweeps.items():
        training = recipes.trainings.get(sweep.training)
        if training is None:
            continue
        slots = Slots(fleet, sweep.placement.of_trial(training.placement), cores)
        fault = slots.fault_of_one
        if fault:
            yield "sweeps", name, fault
        elif slots.too_many(sweep.parallel):
            expected = f"at most {slots.most} here: {slots.holding}"
            yield "sweeps", name, RecipeFault(("parallel",), str(sweep.parallel), expected)


class Slots:
    """The slots of a fleet for trials with the same placement. Raises Unavailable if the fleet cannot be read."""

    def __init__(self, fleet: Fleet, placement: PlacementSection, cores: int | None = None) -> None:
        """`cores` is the number that the nodes of an embedded fleet share; by default, this process's cores."""
        self._scheduled = fleet.scheduled
        self._needed = placement.nodes.min
        self._nodes: list[Node] = fleet.nodes()
        shared = len(os.sched_getaffinity(0)) if cores is None else cores
        self._per_node = of_node(placement, len(self._nodes), shared)

    @property
    def most(self) -> int | None:
        """The number of parallel trials on the whole fleet; None if a scheduler queues the rest."""
        if self._scheduled:
            return None
        if self._needed <= len(self._nodes):
            return self._per_node * len(self._nodes) // self._needed
        return 0

    def free(self, taken: Iterable[Iterable[str]]) -> tuple[str, ...]:
        """The nodes with room for one more trial, given the nodes of the others; empty if they are too few."""
        ready = tuple(node.name for node in self._nodes if node.ready)
        if self._scheduled:
            return ready
        used = Counter(node for nodes in taken for node in nodes)
        free = tuple(name for name in ready if used[name] < self._per_node)
        return free if len(free) >= self._needed else ()

    def too_many(self, parallel: int) -> str:
        """A message about more parallel trials than the fleet can ever run; empty if it can."""
        if self.most is None or parallel <= self.most:
            return ""
        return f"parallel: found {parallel}, but {self.holding}; the others wait for a slot"

    @property
    def holding(self) -> str:
        """The number of trials that the fleet runs, in words."""
        return f"the fleet's {len(self._nodes)} nodes hold {self.most} trials at a time, {self._per_node} on a node"

    @property
    def fault_of_one(self) -> RecipeFault | None:
        """The fault if the fleet can never run one trial; None if it can."""
        if self.most != 0:
            return None
        expected = f"at most {len(self._nodes)}, the nodes of the fleet"
        return RecipeFault(("placement", "nodes", "min"), str(self._needed), expected)

    def check(self) -> None:
        """Raises ValueError if the fleet can never run one trial."""
        fault = self.fault_of_one
        if fault:
            raise ValueError(str(fault))
