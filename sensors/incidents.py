"""Incidents: every incarnation that failed is shown once, with its cause, whoever noticed that it did.

An incident counts as shown when the event log has it: no crash loses one.
"""

from collections.abc import Mapping

import dagster as dg

from assets import keys
from resources import tails
from resources.event_log import observed
from resources.launcher.protocol import Launcher
from resources.training_store import TrainingStore
from trainer.fence import Exit

NODES, LINES = 4, 30
"""Of so many nodes, so much of what they wrote last is shown; more of all of them is kept."""


def unshown(instance: dg.DagsterInstance, store: TrainingStore, launcher: Launcher) -> list[dg.AssetObservation]:
    """The observations of those incidents that the event log does not have yet; what the nodes wrote is kept."""
    key = keys.key(store.specification().recipe, "training")
    found = []
    for failure in store.failures():
        if store.reported(_mark(failure)):
            continue
        if observed(instance, key, store.id, {"cause": failure.reason, "incarnation": failure.incarnation}):
            store.mark_reported(_mark(failure))
        else:
            tails.keep(store, failure.incarnation, launcher)
            found.append(_observation(key, store.id, failure, tails.kept(store, failure.incarnation)))
    return found


def _observation(key: dg.AssetKey, partition: str, failure: Exit, ends: Mapping[str, str]) -> dg.AssetObservation:
    return dg.AssetObservation(
        key,
        partition=partition,
        description=failure.reason,
        metadata={
            "cause": failure.reason,
            "incarnation": failure.incarnation,
            "last_checkpoint": failure.step,
            "noticed_by": failure.by,
            "nodes": ", ".join(failure.nodes),
            "disrupted": failure.disrupted,
            **({"tails": dg.MetadataValue.md(_shown(ends, failure.reason))} if ends else {}),
        },
    )


def _shown(ends: Mapping[str, str], reason: str) -> str:
    """The last lines of the nodes that the reason names, or else of the first ones."""
    named = [node for node in ends if node in reason] or list(ends)
    return "\n\n".join(f"{node}\n```\n{_end(ends[node])}\n```" for node in named[:NODES])


def _end(log: str) -> str:
    return "\n".join(log.splitlines()[-LINES:])


def _mark(failure: Exit) -> str:
    return f"incident-{failure.incarnation:06d}"
