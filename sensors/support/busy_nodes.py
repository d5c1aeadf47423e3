"""Busy nodes: the nodes on which trainings and trials run, or are about to; a measurement waits until they are free."""

from collections.abc import Iterator

from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import WorkQueue, all_trainings, all_trials


def nodes(tiers: Tiers) -> Iterator[str]:
    """Each such node, once for each job. Raises OSError and ValueError."""
    root = all_trainings(tiers)
    stores = [
        *map(root.store, root.pending(WorkQueue.RUN)),
        *(trial for of in all_trials(tiers).values() for trial in of.stores()),
    ]
    for store in stores:
        facts = store.read()
        if facts.unfinished or facts.running:
            yield from facts.nodes
