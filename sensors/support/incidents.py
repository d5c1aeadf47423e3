"""Incidents: the observation of each incarnation that failed, with its cause; each is shown once.

An incident counts as shown when the event log has it, so that no crash loses one.
"""

from collections.abc import Mapping

import dagster as dg

from slipway.assets import keys
from slipway.assets.subjects import Subject
from slipway.resources.event_log import observations
from slipway.resources.launchers.protocol import Launcher
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.logs import keep_tails, kept_tails
from slipway.resources.trainings.store import TrainingStore
from slipway.sensors.support.tick import Tick
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Exit

NODES, LINES = 4, 30
"""Of at most so many nodes, so many of the last lines are shown; `slipway.resources.trainings.logs` keeps more."""


def unshown(
    tick: Tick, store: TrainingStore, facts: TrainingFacts, launcher: Launcher, settled: set[int]
) -> list[dg.AssetObservation]:
    """The observations of those incidents that the event log does not have yet; keeps what the nodes wrote.

    `settled` are the incarnations about which nothing is left to show; it grows. An unreadable exit is reported
    and keeps nothing else from being shown.
    """
    key = keys.key(facts.specification.recipe, "training")
    failures: list[Exit] = []

    def read(incarnation: int) -> None:
        ended = facts.ended if incarnation == facts.incarnation else fence.read_exit(facts.folder, incarnation)
        if ended is not None and ended.outcome == "failed":
            failures.append(ended)
        elif ended is not None:
            settled.add(incarnation)

    for incarnation in (number + 1 for number in range(facts.incarnation) if number + 1 not in settled):
        who = Subject(f"{facts.id}, exit {incarnation}", key, facts.id)
        tick.visit(who, lambda incarnation=incarnation: read(incarnation))  # type: ignore[misc]
    logged = _logged(tick.instance, key, facts.id) if failures else set()
    settled |= {failure.incarnation for failure in failures if failure.incarnation in logged}
    unlogged = []
    for failure in failures:
        if failure.incarnation not in logged:
            keep_tails(store, failure.incarnation, launcher)
            unlogged.append(_observation(key, facts.id, failure, kept_tails(store, failure.incarnation)))
    return unlogged


def _logged(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> set[int]:
    """The incarnations of a training whose incident the event log has."""
    return {
        int(observation["incarnation"])
        for observation in observations(instance, key, partition)
        if "cause" in observation
    }


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
            "kind": failure.kind,
            **({"tails": dg.MetadataValue.md(_last_lines(ends, failure.reason))} if ends else {}),
        },
    )


def _last_lines(ends: Mapping[str, str], reason: str) -> str:
    """The last lines of the nodes that the reason names; of the first nodes when it names none."""
    named = [node for node in ends if node in reason] or list(ends)
    return "\n\n".join(f"{node}\n```\n{_end(ends[node])}\n```" for node in named[:NODES])


def _end(log: str) -> str:
    return "\n".join(log.splitlines()[-LINES:])
