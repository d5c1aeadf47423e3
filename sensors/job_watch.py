"""Job watch: what should run, runs; what has ended is shown, once for each exit record.

It sees a person's cancellation and wants the training stopped, advances every training that somebody wants,
asks for a run to show each live one, shows incidents and what a training waits for in vain, and materialises the
result when no run is left to do it. A result counts as shown once the event log has it: no crash between two ticks
loses one.
"""

import dagster as dg
from dagster import DagsterRunStatus

from assets import keys
from assets.training import result_metadata, result_version
from resources.compute import Compute, trainings
from resources.event_log import materialised, observed
from resources.launcher.protocol import Unavailable
from resources.tiers import Tiers
from resources.training_control import TrainingControl
from resources.training_decision import Action
from resources.training_store import TrainingStore
from sensors import incidents, pending, runs
from trainer.fence import Exit

DUTY = "run"


@dg.sensor(
    name="job_watch",
    asset_selection='key:"*/training"',
    minimum_interval_seconds=2,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="What should run, runs; results are shown once for each exit record.",
)
def job_watch(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
    known = trainings(tiers)
    control = compute.control(tiers)
    requests: list[dg.RunRequest] = []
    events: list[dg.AssetMaterialization | dg.AssetObservation] = []
    for id in known.opened(DUTY):
        store = known.store(id)
        try:
            _heed_cancellation(context.instance, store)
            action = _advance(control, store)
            waiting = control.overdue(store)
        except Unavailable as error:
            context.log.warning(f"{id}: the launcher cannot be asked: {error}")
            continue
        except ValueError as error:
            # A folder that cannot be read holds up its own training alone.
            context.log.error(f"{id}: {error}")
            continue
        failures = incidents.unshown(context.instance, store, control.launcher)
        events += failures
        events += pending.untold(context.instance, store, waiting) if waiting else []
        if action is not Action.DONE:
            if store.wanted and runs.may_request(context.instance, _tags(store)):
                requests.append(training_request(store))
        elif not failures and not runs.unfinished(context.instance, _tags(store)):
            ended = store.exit()
            if ended is not None and not _shown(context.instance, store, ended):
                events.append(_result(store, ended))
            elif store.desired() is not None:  # else somebody is about to want it
                known.close(id, DUTY)
    return dg.SensorResult(run_requests=requests, asset_events=events)


def training_request(store: TrainingStore) -> dg.RunRequest:
    """A run that shows this training, which is wanted already: it submits or adopts the job, and waits."""
    tags = {**_tags(store), keys.SHOWS_TAG: store.id}
    return runs.request([keys.key(store.specification().recipe, "training")], tags, store.id)


def _tags(store: TrainingStore) -> dict[str, str]:
    return {keys.TRAINING_TAG: store.id}


def _advance(control: TrainingControl, store: TrainingStore) -> Action:
    """Take the steps that are due, up to one that needs time."""
    while (action := control.advance(store, "job watch")) in (Action.CLAIM, Action.RECORD, Action.GIVE_UP):
        pass
    return action


def _heed_cancellation(instance: dg.DagsterInstance, store: TrainingStore) -> None:
    """When the newest run was cancelled after the training was last wanted, a person wants it stopped."""
    desired, record = store.desired(), runs.newest(instance, _tags(store))
    if desired is None or desired.want != "run" or record is None:
        return
    run = record.dagster_run
    if run.status is DagsterRunStatus.CANCELED and (record.end_time or 0.0) > desired.at:
        store.want("stop", "job watch", f"run {run.run_id} was cancelled")


def _shown(instance: dg.DagsterInstance, store: TrainingStore, ended: Exit) -> bool:
    """Whether the event log has this end."""
    key = keys.key(store.specification().recipe, "training")
    if ended.outcome == "succeeded":
        return materialised(instance, key, store.id)
    return observed(instance, key, store.id, {"outcome": ended.outcome, "incarnation": ended.incarnation})


def _result(store: TrainingStore, ended: Exit) -> dg.AssetMaterialization | dg.AssetObservation:
    """The event that shows how the newest incarnation ended."""
    key = keys.key(store.specification().recipe, "training")
    if ended.outcome == "succeeded":
        version = result_version(store).value
        return dg.AssetMaterialization(
            key, partition=store.id, metadata=result_metadata(store), tags={"dagster/data_version": version}
        )
    desired = store.desired()
    metadata: dict[str, str | int] = {
        "outcome": ended.outcome,
        "reason": ended.reason,
        "step": ended.step,
        "incarnation": ended.incarnation,
        **({"wanted": desired.want, "why": desired.why} if desired else {}),
    }
    return dg.AssetObservation(key, partition=store.id, metadata=metadata)
