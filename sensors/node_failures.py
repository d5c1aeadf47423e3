"""Node failures: gives a training a new incarnation when a node of it died, and keeps node partitions like the fleet.

Should be: every wanted training runs on nodes that live, keeps its place, makes progress within its deadline, and has
as many nodes as it may have where more of them pay back (`slipway.resources.trainings.growth`). The partitions of
staged shards are those of the nodes in the fleet.
Is: the fleet, the training's facts, and its job.
Follows: the next incarnation is claimed. The job watch then stops the old job, confirms that it is gone, submits the
next one and shows the incident. What was staged on a lost node counts as lost. This sensor cordons no node: a person or
the cluster's own health agents do.
"""

from collections.abc import Iterator

import dagster as dg

from slipway.assets import keys, subjects
from slipway.assets.subjects import Subject
from slipway.recipes.dataset import DatasetRecipe
from slipway.resources import receipts
from slipway.resources.compute.protocol import Compute
from slipway.resources.event_log import DATA_VERSION_TAG, data_versions
from slipway.resources.fleet.protocol import Node, by_name
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.facts import TrainingFacts, unchanged
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support.observation_cache import SensorMemory, decisive, recalled
from slipway.sensors.support.tick import Tick

NAME = "node_failures"
BY = "node failures"
PARTITIONS = Subject("partitions of nodes")
LOST = "lost"
"""The data version of staged shards whose node died or left: no snapshot has it, so they are staged again."""


def node_failures(datasets: dict[str, DatasetRecipe]) -> dg.SensorDefinition:
    """The sensor; it marks the staged shards of all dataset recipes."""
    staged_shards = [keys.key(name, "staged_shards") for name in datasets]

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/training"',
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Gives a training a new incarnation when a node of it died or it makes no progress.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
        tick = Tick(context, NAME)
        root = all_trainings(tiers)
        control = compute.control(tiers)
        memory = recalled(tick.instance, NAME, root.root)
        pending_work = root.pending_work(WorkQueue.RUN)
        memory.keep_only(work.training for work in pending_work)
        nodes: list[Node] = []
        if not tick.visit(subjects.FLEET, lambda: nodes.extend(compute.fleet().nodes())):
            return tick.result()
        tick.visit(PARTITIONS, lambda: _follow_the_fleet(tick, tiers, nodes, staged_shards))
        fleet = by_name(nodes)
        tick.for_each(
            pending_work,
            lambda work: subjects.training(work.training),
            lambda work: _replace_what_failed(tick, root.store(work.training), control, fleet, memory),
        )
        return tick.result()

    return sensor


def _replace_what_failed(
    tick: Tick, store: TrainingStore, control: TrainingControl, fleet: dict[str, Node], memory: SensorMemory
) -> None:
    """Claim the next incarnation of a training whose running one has a fault, or could have more nodes."""
    facts = _facts(store, memory)
    if not facts.should_run:
        return
    if fault := control.fault(facts, fleet):
        control.supersede(store, facts, fault, BY)
    elif cause := control.grow(store, facts, fleet, BY):
        tick.events.append(_grown(facts, cause))


def _grown(facts: TrainingFacts, cause: str) -> dg.AssetObservation:
    """What the UI shows of a growth, which the ledger has too."""
    key = keys.key(facts.specification.recipe, "training")
    metadata: dict[str, str | int] = {
        "grown": cause,
        "incarnation": facts.incarnation,
        "nodes_before": ", ".join(facts.nodes),
    }
    return dg.AssetObservation(key, partition=facts.id, description=cause, metadata=metadata)


def _facts(store: TrainingStore, memory: SensorMemory) -> TrainingFacts:
    """The facts of a training; those of the last look where none of its records has changed since."""
    cached_facts: TrainingFacts | None = memory.entries.get(store.id)
    if memory.is_quiet(store.id, decisive(store.folder)) and cached_facts is not None:
        return unchanged(cached_facts)
    facts = memory.entries[store.id] = store.read()
    if facts.running:
        facts.run_policy  # noqa: B018 - each look needs them
    memory.found_nothing(store.id)
    return unchanged(facts)


def _follow_the_fleet(tick: Tick, tiers: Tiers, nodes: list[Node], staged_shards: list[dg.AssetKey]) -> None:
    """Bring the partitions of nodes, and what is on record as staged there, in line with the fleet."""
    partitions = _partitions(tick.instance)
    names = {node.name for node in nodes}
    away = {node.name: node.reason for node in nodes if node.lost}
    away |= dict.fromkeys(partitions - names, "it left the fleet")
    for node in away:
        receipts.forget(tiers.durable_path, node)
    tick.events += _losses(tick.instance, staged_shards, away)
    if names - partitions:
        tick.partitions.append(keys.NODES.build_add_request(sorted(names - partitions)))
    if partitions - names:
        tick.partitions.append(keys.NODES.build_delete_request(sorted(partitions - names)))


def _losses(
    instance: dg.DagsterInstance, staged_shards: list[dg.AssetKey], away: dict[str, str]
) -> Iterator[dg.AssetMaterialization]:
    """The loss of what was staged on these nodes, once: a node may come back with an empty disk."""
    for key in staged_shards:
        versions = data_versions(instance, key, away)
        for node, reason in away.items():
            if versions.get(node) not in (None, LOST):
                yield dg.AssetMaterialization(
                    key,
                    partition=node,
                    description=f"Node {node} is lost: {reason}. It is staged again once the node is back.",
                    metadata={"node": node, "reason": reason},
                    tags={DATA_VERSION_TAG: LOST},
                )


def _partitions(instance: dg.DagsterInstance) -> set[str]:
    assert keys.NODES.name is not None
    return set(instance.get_dynamic_partitions(keys.NODES.name))
