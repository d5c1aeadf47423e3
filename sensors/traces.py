"""Traces: sends trainings to OpenTelemetry, from the run of the asset to the parts of a step.

Should be: every run, job, rank and traced step of a training is a span where OpenTelemetry's variables say.
Is: what is on record, and what was sent.
Follows: what is new is sent. While the place is away nothing is lost, and nothing waits for it; after one request that
it does not take, the tick asks it no more. Without such a variable nothing is recorded and nothing is sent.
"""

import os
from collections.abc import Sequence

import dagster as dg

from slipway.assets import keys, subjects
from slipway.resources.delivery_state import DeliveredRecord
from slipway.resources.errors import Unavailable
from slipway.resources.opentelemetry import delivery, target
from slipway.resources.opentelemetry.delivery import SentSpans
from slipway.resources.opentelemetry.spans import BY_RUN, AssetRun
from slipway.resources.opentelemetry.target import TraceTarget
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support.tick import Tick
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Claim

NAME = "traces"


@dg.sensor(
    name=NAME,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Sends the traces of trainings to OpenTelemetry, where its variables say where.",
)
def traces(context: dg.SensorEvaluationContext, tiers: Tiers) -> dg.SensorResult | dg.SkipReason:
    try:
        where = target.of(os.environ)
    except ValueError as error:
        return dg.SkipReason(f"no traces are sent: {error}")
    if where is None:
        return dg.SkipReason("no place is set to which traces are sent")
    tick = Tick(context, NAME)
    root = all_trainings(tiers)
    away = list[Unavailable]()
    sent = DeliveredRecord(tiers.durable_path / "opentelemetry", SentSpans(), delivery.FORMAT)

    def send_unless_away(id: str) -> None:
        if away:  # it is asked again by the next tick
            return
        try:
            _send(context.instance, where, sent, root.store(id))
        except Unavailable as error:
            away.append(error)

    tick.for_each(sent.to_look_at(root.ids(), root.pending(WorkQueue.RUN)), subjects.training, send_unless_away)
    if away:
        tick.postpone(f"traces are not sent yet: {away[0]}")
    return tick.result()


def _send(
    instance: dg.DagsterInstance, where: TraceTarget, sent: DeliveredRecord[SentSpans], store: TrainingStore
) -> None:
    """Send what is new of a training, and note how far that came."""
    facts = store.read()
    progress = sent.of(store.id)
    is_whole = False
    try:
        if delivery.has_spans(store.folder):
            claims = fence.claims(store.folder)
            runs, under_way = _runs(instance, facts, claims)
            exits = [ended for number in range(1, facts.incarnation + 1) if (ended := facts.exit_of(number))]
            for batch in delivery.batches(store.folder, claims, exits, runs, progress):
                where.send(batch.spans)
                progress = batch.sent
            is_whole = facts.over and not under_way and delivery.is_whole(store.folder, progress)
        else:
            is_whole = facts.over
    finally:
        sent.note(store.id, progress, is_whole)


def _runs(instance: dg.DagsterInstance, facts: TrainingFacts, claims: Sequence[Claim]) -> tuple[list[AssetRun], bool]:
    """The runs of a training's asset that are over, the first one first; whether another one is under way.

    A run of a whole job has no selection of assets: it is known by what it claimed.
    """
    claimed = {claim.by.removeprefix(BY_RUN) for claim in claims}
    asset = keys.key(facts.specification.recipe, "training")
    records = instance.get_run_records(dg.RunsFilter(tags={keys.TRAINING_TAG: facts.id}), ascending=True)
    runs = [(record.dagster_run, record) for record in records]
    own = [record for run, record in runs if run.run_id in claimed or asset in (run.asset_selection or ())]
    over = [
        AssetRun(
            record.dagster_run.run_id,
            asset.to_user_string(),
            record.start_time,
            record.end_time,
            "the run failed" if record.dagster_run.status is dg.DagsterRunStatus.FAILURE else "",
        )
        for record in own
        if record.start_time is not None and record.end_time is not None
    ]
    return over, any(not record.dagster_run.is_finished for record in own)
