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

from slipway.assets import incidents as shown
from slipway.assets import keys, subjects
from slipway.assets.subjects import Subject
from slipway.recipes.training import TrainingRecipe
from slipway.resources.event_log import DATA_VERSION_TAG, data_versions
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import accounts, incident_reports
from slipway.resources.trainings import incidents as recorded
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.incident_reports import IncidentReport
from slipway.resources.trainings.store import PendingWork, Trainings, TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support.observation_cache import SensorMemory, recalled
from slipway.sensors.support.tick import Tick
from slipway.trainer.base import atomic
from slipway.trainer.base.units import DAY
from slipway.trainer.record import fence, files, incidents

NAME = "incidents"
PAGE = Subject("overview of incidents", shown.OVERVIEW)
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
        tick, root = Tick(context, NAME), all_trainings(tiers)
        memory = recalled(tick.instance, NAME, root.root)
        overview = memory.lasting_of(_OVERVIEW, Overview())
        if not overview.complete:
            tick.visit(PAGE, lambda: _begin(root, overview))
        tick.visit(PAGE, lambda: _prune(tick, root, recipes, overview))
        owed = root.pending_work(WorkQueue.INCIDENTS)
        memory.keep_only([_OVERVIEW, *(duty.training for duty in owed)])
        tick.each(
            owed,
            lambda duty: subjects.training(duty.training),
            lambda duty: _show(tick, memory, overview, duty, root.store(duty.training)),
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
    overview.reports |= {each.name: each for each in incident_reports.of_all(recent)}
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
        gone = [each for each in listed if keys.parse_incident_partition(each)[0] not in ids]
        if gone:
            tick.partitions.append(definition.build_delete_request(gone))
    overview.reports = {name: each for name, each in overview.reports.items() if each.training in ids}
    overview.pruned = now


def _changed_since(store: TrainingStore, since: float) -> bool:
    try:
        return (store.folder / files.INCIDENTS).stat().st_mtime >= since
    except FileNotFoundError:
        return False


def _show(tick: Tick, memory: SensorMemory, overview: Overview, duty: PendingWork, store: TrainingStore) -> None:
    """Bring what is shown of one training's incidents in line with its records."""
    below = (files.INCIDENTS, files.CLAIMS, files.EXITS, files.DESIRED, files.JOBS)
    if memory.is_quiet(store.id, [f"{store.folder}/{name}" for name in below]):
        return
    facts = store.read()
    for failure in recorded.failures_without_record(store, facts.failures):
        recorded.note_failure(store, failure)
    reports = _reports(tick, store, facts, memory.lasting_of(store.id, dict[str, IncidentReport]()))
    overview.reports |= {each.name: each for each in reports}
    changed = _unshown(tick, memory, facts.specification.recipe, store.id, reports)
    for each in changed:
        page = incident_reports.post_mortem(store, each)
        folder = incidents.evidence(store.folder, each.id)
        atomic.replace(folder / POST_MORTEM, page.encode())
        tick.events.append(shown.incident_materialisation(each, page, str(folder)))
    if changed or not all(each.settled and not _awaits_evidence(store, each) for each in reports):
        return
    memory.found_nothing(store.id)
    if facts.over:
        duty.close(facts.desired_generation)


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
    logged, wanted = memory.of(training, dict[str, str]()), {each.name: shown.version(each) for each in reports}
    unconfirmed = [name for name in wanted if logged.get(name) != wanted[name]]
    if not unconfirmed:
        return []
    definition = keys.incident_partitions(recipe)
    listed = set(tick.instance.get_dynamic_partitions(definition.name or ""))
    if lacking := [name for name in unconfirmed if name not in listed]:
        tick.partitions.append(definition.build_add_request(lacking))
    logged |= data_versions(tick.instance, keys.key(recipe, "incident"), unconfirmed)
    return [each for each in reports if each.name not in listed or logged.get(each.name) != wanted[each.name]]


def _show_overview(tick: Tick, overview: Overview) -> None:
    """Bring the overview in line with the incidents."""
    now = time.time()
    since = now - DAYS * DAY
    overview.reports = {name: each for name, each in overview.reports.items() if each.at >= since or each.todo}
    reports = list(overview.reports.values())
    version = shown.overview_version(reports, now)
    if version == overview.recorded:
        return
    last = tick.instance.get_latest_materialization_event(shown.OVERVIEW)
    found = last.asset_materialization if last is not None else None
    if found is not None and (found.tags or {}).get(DATA_VERSION_TAG) == version:
        overview.recorded = version
    else:
        tick.events.append(shown.overview(reports, now))
