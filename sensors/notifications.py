"""Notifications: messages to people, once each, on what happened, what was done and what to do.

Should be: every notice that the records give rise to is in the outbox, and every endpoint has had it.
Is: the records of trainings that are under way, of gates, nodes and tiers; the outbox, and what each endpoint has had.
Follows: notices are noted, and sent, in one message what happens at once. An endpoint that is away is tried again; it
loses nothing, and nothing waits for it. How full the durable tier is, each tick looks at itself: it may fill up in
minutes. Without settings nothing is noted and nothing is sent.
"""

import time

import dagster as dg

from slipway.assets import subjects
from slipway.assets.subjects import Subject
from slipway.resources import links
from slipway.resources.daily_report import reading
from slipway.resources.daily_report import report as daily_report
from slipway.resources.notify import notices
from slipway.resources.notify.courier import NoticeCourier
from slipway.resources.notify.outbox import Outbox
from slipway.resources.notify.settings import NotificationSettings
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import incidents as incident_records
from slipway.resources.trainings.store import PendingWork, TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support.observation_cache import SensorMemory, recalled
from slipway.sensors.support.tick import Tick
from slipway.trainer.base import listing
from slipway.trainer.record import files

NAME = "notifications"
PLATFORM = Subject("gates, nodes and tiers")
DELIVERY = Subject("notifications")
_AROUND = "*"
"""Under this name, which no training has, a memory keeps what it saw of gates, nodes and tiers."""


def notifications_sensor(settings: NotificationSettings | None) -> dg.SensorDefinition:
    """The sensor; without settings it tells nobody."""
    couriers: dict[str, NoticeCourier] = {}

    @dg.sensor(
        name=NAME,
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection='key:"platform/morning"',
        description="Tells people what happened, what was done and what to do: by mail, chat or webhook.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers) -> dg.SensorResult:
        tick = Tick(context, NAME)
        root = all_trainings(tiers)
        pending_work = root.pending_work(WorkQueue.NOTICES)
        if settings is None:
            tick.for_each(
                pending_work,
                lambda work: subjects.training(work.training),
                lambda work: work.close(root.store(work.training).desired_generation()),
            )
            return tick.result()
        durable = tiers.durable_path
        courier = couriers.setdefault(str(durable), NoticeCourier(Outbox.of(durable)))
        outbox = courier.outbox
        memory = recalled(tick.instance, NAME, root.root)
        since = outbox.begun()
        if memory.new:
            for id in set(root.pending(WorkQueue.RUN)) - {work.training for work in pending_work}:
                root.open(id, WorkQueue.NOTICES)
            pending_work = root.pending_work(WorkQueue.NOTICES)
        memory.keep_only([_AROUND, *(work.training for work in pending_work)])
        tick.for_each(
            pending_work,
            lambda work: subjects.training(work.training),
            lambda work: _note(memory, outbox, work, root.store(work.training), since, tiers),
        )
        tick.visit(PLATFORM, lambda: _note_around(memory, outbox, tiers, since))
        tick.visit(DELIVERY, lambda: _deliver(tick, courier, settings))
        return tick.result()

    return sensor


def _deliver(tick: Tick, courier: NoticeCourier, settings: NotificationSettings) -> None:
    for problem in courier.deliver(settings):
        tick.postpone(problem)


def _note(
    memory: SensorMemory, outbox: Outbox, work: PendingWork, store: TrainingStore, since: float, tiers: Tiers
) -> None:
    """Note what happened to one training; its work is done once it is over and its incidents are noted."""
    below = (files.INCIDENTS, files.CLAIMS, files.EXITS, files.DESIRED, files.FAULTS, files.SET_ASIDE)
    if memory.is_quiet(store.id, [f"{store.folder}/{name}" for name in below]):
        return
    facts = store.read()
    now = time.time()
    if incident_records.failures_without_record(store, facts.failures):
        return  # the sensor `incidents` is about to write the record of a failure
    report = daily_report.report(reading.read_facts(tiers.durable_path, since, now, store))
    for notice in notices.of_report(report):
        outbox.note(notice)
    end = reading.training_end(facts)
    if end is not None and end.outcome == "succeeded" and end.at >= since:
        outbox.note(notices.finished(store.id, links.training(end.recipe, store.id), end.at))
    if any(item.going for item in report.items):
        return
    memory.found_nothing(store.id)
    if facts.over:
        work.close(facts.desired_generation)


def _note_around(memory: SensorMemory, outbox: Outbox, tiers: Tiers, since: float) -> None:
    """Note what gates, nodes and tiers have to tell."""
    durable = tiers.durable_path
    models = [f"{durable}/models/{name}" for name in listing.folders_if_there(durable / "models")]
    nodes = [f"{durable}/nodes/{name}" for name in listing.folders_if_there(durable / "nodes")]
    folders = [*nodes, *(f"{model}/{name}" for model in models for name in ("judgements", "approvals", "promotions"))]
    is_quiet = memory.is_quiet(_AROUND, [*folders, f"{durable}/storage"])
    now = time.time()
    full = memory.of(_AROUND, dict[str, bool]())
    was = full.get("is", False)
    full["is"] = reading.use_now(durable).is_nearly_full
    if is_quiet and was == full["is"]:
        return
    for notice in notices.of_report(daily_report.report(reading.read_platform_facts(durable, since, now))):
        outbox.note(notice)
    outbox.prune(now)
    memory.found_nothing(_AROUND)
