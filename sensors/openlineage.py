"""OpenLineage: sends to a catalogue of lineage what snapshots, trainings and checkpoints were made of.

Should be: every snapshot, every start and end of a training and every checkpoint is an event in the catalogue.
Is: what is on record, and the events that were sent.
Follows: what is new is sent, snapshots first. While the catalogue is away nothing is lost, and nothing waits for it;
after one event that it does not take, the tick asks it no more. Without a target, nothing is sent.
"""

from collections.abc import Callable

import dagster as dg

from slipway.assets import subjects
from slipway.resources.errors import Unavailable
from slipway.resources.openlineage.events import TrainingEvents, of_snapshot
from slipway.resources.openlineage.sent_events import SentEvents, SentRecord
from slipway.resources.openlineage.target import OpenLineage
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support.tick import Tick
from slipway.trainer.base import paths
from slipway.trainer.data import snapshots
from slipway.trainer.record import fence

NAME = "openlineage"


@dg.sensor(
    name=NAME,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Sends OpenLineage events of snapshots, trainings and checkpoints, where a target is set.",
)
def openlineage(
    context: dg.SensorEvaluationContext, tiers: Tiers, openlineage: OpenLineage
) -> dg.SensorResult | dg.SkipReason:
    if not openlineage.is_wanted:
        return dg.SkipReason("no target of OpenLineage events is set")
    tick = Tick(context, NAME)
    sent = SentRecord(tiers.durable_path)
    away = list[Unavailable]()

    def send_unless_away(send: Callable[[], None]) -> None:
        if away:  # it is asked again by the next tick
            return
        try:
            send()
        except Unavailable as error:
            away.append(error)

    root = all_trainings(tiers)
    tick.for_each(
        sent.new_snapshots(),
        lambda sha256: subjects.Subject(f"snapshot {sha256[:16]}"),
        lambda sha256: send_unless_away(lambda: _send_snapshot(tiers, openlineage, sent, sha256)),
    )
    tick.for_each(
        sent.to_look_at(root.ids(), root.pending(WorkQueue.RUN)),
        subjects.training,
        lambda id: send_unless_away(lambda: _send_training(tiers, openlineage, sent, root.store(id))),
    )
    if away:
        tick.postpone(f"events are not sent yet: {away[0]}")
    return tick.result()


def _send_snapshot(tiers: Tiers, target: OpenLineage, sent: SentRecord, sha256: str) -> None:
    timestamp = (tiers.durable_path / paths.named(paths.SNAPSHOTS, sha256)).stat().st_mtime
    target.send(of_snapshot(snapshots.read(tiers.durable_path, sha256), timestamp))
    sent.note_snapshot(sha256)


def _send_training(tiers: Tiers, target: OpenLineage, sent: SentRecord, store: TrainingStore) -> None:
    """Send what is new of a training, and note how far that came."""
    facts = store.read()
    names = list(sent.of(store.id).names)
    is_whole = False
    events = TrainingEvents(facts, fence.claims(store.folder), lambda: _dataset(tiers, facts.specification.snapshot))
    try:
        for name, event in events.but(names):
            target.send(event)
            names.append(name)
        is_whole = facts.over
    finally:
        sent.note(store.id, SentEvents(tuple(names)), is_whole)


def _dataset(tiers: Tiers, snapshot: str) -> str:
    """The dataset that a snapshot is of; its own name where it is gone."""
    try:
        return snapshots.read(tiers.durable_path, snapshot).dataset
    except ValueError:
        return f"snapshot {snapshot[:16]}"
