"""Lacking nodes: how many nodes a wanted training that does not run waits for. Pure."""

from collections.abc import Iterable

from slipway.resources.fleet.protocol import Node
from slipway.resources.trainings.facts import TrainingFacts


def nodes(facts: TrainingFacts, fleet: Iterable[Node], coming: int = 0) -> int:
    """How many more nodes it would run on, where fewer are ready than it needs; 0 where it waits for none.

    coming: nodes that are there and will be ready by themselves, since they are being measured.
    """
    waits = facts.wanted and facts.unfinished and not facts.paused and not facts.running
    ready = sum(node.ready for node in fleet)
    return max(0, facts.terms.max_nodes - coming) if waits and ready < facts.terms.min_nodes else 0
