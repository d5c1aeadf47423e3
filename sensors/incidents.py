"""Incidents: shows what interrupted the steps of each training, what that cost, and where it went on.

Should be: each incident of a training has a partition whose last materialisation says what its records say now, and the
overview says it of all incidents of the last days.
Is: the records of incidents, claims and ends, and what Dagster's event log has.
Follows: an incarnation that failed and has no record of it gets one. Partitions, materialisations and post-mortems are
made, and made again when a training has gone on. Partitions of trainings that are gone are removed, once a day.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import dagster as dg

from slipway.assets import incidents as incident_assets
from slipway.assets import keys, subjects
from slipway.assets.subjects import Subject
from slipway.recipes.training import TrainingRecipe
from slipway.resources.event_log import DATA_VERSION_TAG, data_versions
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import accounts, incident_reports
from slipway.resources.trainings import incidents as incident_records
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.incident_reports import IncidentReport
from slipway.resources.trainings.store import PendingWork, Trainings, TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support.observation_cache import SensorMemory, recalled
from slipway.sensors.support.tick import Tick
from slipway.trainer.base import atomic
from slipway.trainer.base.units import DAY
from slipway.trainer.record import fence, files, incidents

NAME = "incidents"
PAGE = Subject("overview of incidents", incident_assets.OVERVIEW)
DAYS = 7
"""The overview has the incidents of so many days, and those that wait for a person."""
POST_MORTEM = "post-mortem.md"
PRUNE_SECONDS = DAY
EVIDENCE_SECONDS = 20.0
"""After so long, the nodes that were asked for evidence will leave none."""
_OVERVIEW = "*"
"""Under this name, which no training has, a memory keeps what the overview is made of."""


@dataclass
class Overview:
    """What the overview is made of."""

    reports: dict[str, IncidentReport] = field(default_factory=dict)
    """By name."""
    recorded: str = ""
    """The version that the event log is known to have."""
    complete: bool = False
    """Whether the incidents of trainings that are over have been read too."""
    pruned: float | None = None
    """When partitions of trainings that are gone were looked for, by this process's monotonic clock."""


def incidents_sensor(recipes: Mapping[str, TrainingRecipe]) -> dg.SensorDefinition:
    """The sensor; it keeps the partitions of these recipes' incidents."""

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/incident" or key:"platform/incidents"',
        minimum_interval_seconds=2,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Shows what interrupted the steps of trainings, what that cost, and where they went on.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers) -> dg.SensorResult:
        tick = Tick(context, NAME)
        root = all_trainings(tiers)
        memory = recalled(tick.instance, NAME, root.root)
        overview = memory.lasting_of(_OVERVIEW, Overview())
        if not overview.complete:
            tick.visit(PAGE, lambda: _begin(root, overview))
        tick.visit(PAGE, lambda: _prune(tick, root, recipes, overview))
        pending_work = root.pending_work(WorkQueue.INCIDENTS)
        memory.keep_only([_OVERVIEW, *(work.training for work in pending_work)])
        tick.for_each(
            pending_work,
            lambda work: subjects.training(work.training),
            lambda work: _show(tick, memory, overview, work, root.store(work.training)),
        )
        tick.visit(PAGE, lambda: _show_overview(tick, overview))
        return tick.result()

    return sensor


def _begin(root: Trainings, overview: Overview) -> None:
    """Once for each process: read the incidents of the last days, and owe what an earlier version did not."""
    ids = root.ids()
    for id in set(root.pending(WorkQueue.RUN)) - set(root.pending(WorkQueue.INCIDENTS)):
        root.open(id, WorkQueue.INCIDENTS)
    since = time.time() - DAYS * DAY
    recent = [root.store(id) for id in ids if _changed_since(root.store(id), since)]
    overview.reports |= {report.name: report for report in incident_reports.of_all(recent)}
    overview.complete = True


def _prune(tick: Tick, root: Trainings, recipes: Mapping[str, TrainingRecipe], overview: Overview) -> None:
    """Once a day, and when a process begins: remove the partitions and the lines of trainings that are gone."""
    now = time.monotonic()
    if overview.pruned is not None and now - overview.pruned < PRUNE_SECONDS:
        return
    ids = set(root.ids())
    for name in recipes:
        definition = keys.incident_partitions(name)
        listed = tick.instance.get_dynamic_partitions(definition.name or "")
        gone = [partition for partition in listed if keys.parse_incident_partition(partition)[0] not in ids]
        if gone:
            tick.partitions.append(definition.build_delete_request(gone))
    overview.reports = {name: report for name, report in overview.reports.items() if report.training in ids}
    overview.pruned = now


def _changed_since(store: TrainingStore, since: float) -> bool:
    try:
        return (store.folder / files.INCIDENTS).stat().st_mtime >= since
    except FileNotFoundError:
        return False


def _show(tick: Tick, memory: SensorMemory, overview: Overview, work: PendingWork, store: TrainingStore) -> None:
    """Bring what is shown of one training's incidents in line with its records."""
    below = (files.INCIDENTS, files.CLAIMS, files.EXITS, files.DESIRED, files.JOBS)
    if memory.is_quiet(store.id, [f"{store.folder}/{name}" for name in below]):
        return
    facts = store.read()
    for failure in incident_records.failures_without_record(store, facts.failures):
        incident_records.note_failure(store, failure)
    reports = _reports(tick, store, facts, memory.lasting_of(store.id, dict[str, IncidentReport]()))
    overview.reports |= {report.name: report for report in reports}
    changed = _unshown(tick, memory, facts.specification.recipe, store.id, reports)
    for report in changed:
        page = incident_reports.post_mortem(store, report)
        folder = incidents.evidence(store.folder, report.id)
        atomic.replace(folder / POST_MORTEM, page.encode())
        tick.events.append(incident_assets.incident_materialization(report, page, str(folder)))
    if changed or not all(report.settled and not _awaits_evidence(store, report) for report in reports):
        return
    memory.found_nothing(store.id)
    if facts.over:
        work.close(facts.desired_generation)


def _reports(
    tick: Tick, store: TrainingStore, facts: TrainingFacts, known: dict[str, IncidentReport]
) -> list[IncidentReport]:
    """The incidents of a training; those that are over are not computed again, a damaged one is logged and left."""
    open_ones = [id for id in incidents.names(store.folder) if not _is_final(store, known.get(id))]
    claims, costs = (fence.claims(store.folder), accounts.interruption_costs(store.folder)) if open_ones else ([], {})

    def compute(id: str) -> None:
        known[id] = incident_reports.report(store, facts, claims, costs, incidents.read(store.folder, id))

    for id in open_ones:
        who = Subject(f"{store.id}, incident {id}", keys.key(facts.specification.recipe, "training"), store.id)
        tick.visit(who, lambda id=id: compute(id))  # type: ignore[misc]
    return [known[id] for id in sorted(known)]


def _is_final(store: TrainingStore, report: IncidentReport | None) -> bool:
    """Whether nothing about an incident can change any more."""
    return report is not None and report.final and not _awaits_evidence(store, report)


def _awaits_evidence(store: TrainingStore, report: IncidentReport) -> bool:
    """Whether nodes were asked for evidence a moment ago, and have left none yet."""
    if report.evidence or time.time() - report.at > EVIDENCE_SECONDS:
        return False
    return files.named(store.folder, files.DIAGNOSES, report.id).exists()


def _unshown(
    tick: Tick, memory: SensorMemory, recipe: str, training: str, reports: list[IncidentReport]
) -> list[IncidentReport]:
    """The incidents of which the event log has nothing, or something else; their partitions are asked for."""
    logged = memory.of(training, dict[str, str]())
    versions = {report.name: incident_assets.version(report) for report in reports}
    unconfirmed = [name for name in versions if logged.get(name) != versions[name]]
    if not unconfirmed:
        return []
    definition = keys.incident_partitions(recipe)
    listed = set(tick.instance.get_dynamic_partitions(definition.name or ""))
    if unlisted := [name for name in unconfirmed if name not in listed]:
        tick.partitions.append(definition.build_add_request(unlisted))
    logged |= data_versions(tick.instance, keys.key(recipe, "incident"), unconfirmed)
    return [
        report for report in reports if report.name not in listed or logged.get(report.name) != versions[report.name]
    ]


def _show_overview(tick: Tick, overview: Overview) -> None:
    """Bring the overview in line with the incidents."""
    now = time.time()
    since = now - DAYS * DAY
    overview.reports = {name: report for name, report in overview.reports.items() if report.at >= since or report.todo}
    reports = list(overview.reports.values())
    version = incident_assets.overview_version(reports, now)
    if version == overview.recorded:
        return
    last = tick.instance.get_latest_materialization_event(incident_assets.OVERVIEW)
    materialization = last.asset_materialization if last is not None else None
    if materialization is not None and (materialization.tags or {}).get(DATA_VERSION_TAG) == version:
        overview.recorded = version
    else:
        tick.events.append(incident_assets.overview(reports, now))
