"""Checkpoint arrivals: shows each new commit as a checkpoint, and has it evaluated if it is one of our models'.

Should be: each valid commit on the durable tier or the backup has a partition and an event, and its evaluation; a
commit that is not valid any more (superseded, found damaged, or pruned by retention) has no partition.
Is: the training's records, the partitions and events that Dagster has, and the scores of the evaluations.
What happened to a checkpoint (damaged, away, pruned, superseded) is an event of its partition, before that goes.
Follows: events and partitions, and one run in one process for all checkpoints of a training that wait for evaluation.
What is shown is asked of Dagster alone, in one query for all that is new, so that nothing is lost with a crash or with
a database that is restored. A commit that only the nodes' NVMe holds is not shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import dagster as dg

from slipway.assets import keys, subjects
from slipway.assets.checkpoints import checkpoint_materialization
from slipway.assets.subjects import Subject
from slipway.resources.event_log import data_versions
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import PendingWork, Trainings, WorkQueue, all_trainings
from slipway.sensors.support import commits, final_events
from slipway.sensors.support.commits import KnownCommits
from slipway.sensors.support.observation_cache import SensorMemory, recalled
from slipway.sensors.support.runs import NewestRuns
from slipway.sensors.support.tick import Tick
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE
from slipway.trainer.record import files
from slipway.trainer.record.fence import Commit

NAME = "checkpoint_arrivals"
EVALUATES_TAG = "slipway/evaluates"
WITHDRAWN_AT_ONCE = 100
"""Of one training in one tick: each has its last event before it goes."""


@dataclass(frozen=True)
class ChangedTraining:
    """One training whose checkpoints may have changed."""

    work: PendingWork
    facts: TrainingFacts
    commits: dict[str, Commit]
    """By partition, the commits that are to be shown."""
    waiting: frozenset[str]
    """The partitions of those that wait for their evaluation."""
    unread: frozenset[str]
    """The partitions of valid commits that cannot be read: nothing follows for them."""
    logged: dict[str, str]
    """By partition, the manifest that the event log is known to have; kept from tick to tick."""

    @property
    def recipe(self) -> str:
        return self.facts.specification.recipe

    def unconfirmed(self) -> list[str]:
        """The partitions that the event log has to be asked about."""
        return [
            partition for partition, commit in self.commits.items() if self.logged.get(partition) != commit.manifest
        ]


@dg.sensor(
    name=NAME,
    asset_selection='key:"*/evaluation"',
    minimum_interval_seconds=2,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Shows each new commit as a checkpoint and has it evaluated.",
)
def checkpoint_arrivals(context: dg.SensorEvaluationContext, tiers: Tiers) -> dg.SensorResult:
    tick = Tick(context, NAME)
    root = all_trainings(tiers)
    pending_work = root.pending_work(WorkQueue.CHECKPOINTS)
    memory = recalled(tick.instance, NAME, root.root)
    memory.keep_only(work.training for work in pending_work)
    arrivals: list[ChangedTraining] = []
    tick.for_each(pending_work, _subject, lambda work: arrivals.extend(_look(tick, root, memory, work)))
    partitions = _ask(tick.instance, arrivals)
    runs = NewestRuns(tick.instance, EVALUATES_TAG, [arrival.facts.id for arrival in arrivals if arrival.waiting])
    tick.for_each(
        arrivals,
        lambda arrival: _subject(arrival.work),
        lambda arrival: _show_and_evaluate(tick, memory, arrival, partitions, runs),
    )
    return tick.result()


def _subject(work: PendingWork) -> Subject:
    return subjects.training(work.training)


def _look(tick: Tick, root: Trainings, memory: SensorMemory, work: PendingWork) -> list[ChangedTraining]:
    """What there is of one training's checkpoints; nothing when there was nothing to do and nothing has changed."""
    store = root.store(work.training)
    if memory.is_quiet(store.id, commits.folders(store.folder)):
        return []
    facts = store.read()
    known = _known.setdefault(str(store.folder), KnownCommits())
    recipe = facts.specification.recipe
    is_script = facts.specification.script is not None
    evaluated = set(files.names(store.folder, files.EVALUATIONS))
    durable_commits: dict[str, Commit] = {}
    waiting: set[str] = set()
    unread: set[str] = set()

    def take(name: str, partition: str) -> None:
        commit, holders = known.read(facts, name)
        if {DURABLE, BACKUP} & set(holders):
            durable_commits[partition] = commit
        # A script's are not evaluated: only the script knows what its checkpoints hold.
        if DURABLE in holders and name not in evaluated and not is_script:
            waiting.add(partition)

    for name in known.look(facts):
        partition = keys.checkpoint_partition(store.id, int(name.partition(".")[0]))
        who = Subject(f"{store.id}, commit {name}", keys.key(recipe, "checkpoint"), partition)
        if not tick.visit(who, lambda name=name, partition=partition: take(name, partition)):  # type: ignore[misc]
            unread.add(partition)
    return [
        ChangedTraining(work, facts, durable_commits, frozenset(waiting), frozenset(unread), memory.of(store.id, {}))
    ]


_known: dict[str, KnownCommits] = {}
"""By the folder of a training, what was read of its commits: records that never change."""


def _ask(instance: dg.DagsterInstance, arrivals: list[ChangedTraining]) -> dict[str, dict[str, list[str]]]:
    """Ask Dagster, once for each recipe, which events and partitions it has.

    Notes the events in the arrivals; returns the partitions of the checkpoints by recipe and training, in the order in
    which they were added.
    """
    partitions: dict[str, dict[str, list[str]]] = {}
    for recipe in {arrival.recipe for arrival in arrivals}:
        of_recipe = [arrival for arrival in arrivals if arrival.recipe == recipe]
        unconfirmed = [partition for arrival in of_recipe for partition in arrival.unconfirmed()]
        versions = data_versions(instance, keys.key(recipe, "checkpoint"), unconfirmed)
        for arrival in of_recipe:
            arrival.logged.update({partition: versions.get(partition, "") for partition in arrival.unconfirmed()})
        by_training = partitions.setdefault(recipe, {})
        for partition in instance.get_dynamic_partitions(keys.checkpoint_partitions(recipe).name or ""):
            by_training.setdefault(partition.rpartition(".")[0], []).append(partition)
    return partitions


def _show_and_evaluate(
    tick: Tick,
    memory: SensorMemory,
    arrival: ChangedTraining,
    partitions: Mapping[str, Mapping[str, list[str]]],
    runs: NewestRuns,
) -> None:
    """Show what is new of one training's checkpoints, withdraw what counts no more, and request evaluations."""
    facts = arrival.facts
    definition = keys.checkpoint_partitions(arrival.recipe)
    listed = partitions[arrival.recipe].get(facts.id, [])
    unlisted = sorted(arrival.commits.keys() - set(listed))
    unlogged = arrival.unconfirmed()
    gone = sorted(set(listed) - arrival.commits.keys() - arrival.unread)[:WITHDRAWN_AT_ONCE]
    new_faults, ready_to_go = final_events.unlogged(tick.instance, facts, gone, memory.lasting_of(facts.id, set()))
    tick.events += new_faults
    if unlisted:
        tick.partitions.append(definition.build_add_request(unlisted))
    if ready_to_go:
        tick.partitions.append(definition.build_delete_request(ready_to_go))
    tick.events += [checkpoint_materialization(facts, arrival.commits[partition]) for partition in unlogged]
    ready = arrival.waiting - {*unlisted, *unlogged}
    if ready and runs.may_request(facts.id):
        # A range goes by the order in which partitions were added, not by step.
        added = [partition for partition in listed if partition in ready]
        tick.request([keys.key(arrival.recipe, "evaluation")], {EVALUATES_TAG: facts.id}, added[0], added[-1])
    if unlisted or gone or unlogged or new_faults or arrival.waiting or arrival.unread:
        return
    memory.found_nothing(facts.id)
    if facts.over:
        arrival.work.close(facts.desired_generation)
        _known.pop(str(facts.folder), None)
