"""Node health: takes nodes that something speaks against out of service, has them diagnosed, and lets them back.

Should be: every piece of evidence against a node (an incident that names it, an Xid in its kernel's log, a condition of
the node) is in its record, and the node's standing follows from it (`slipway.resources.fleet.health`). A quarantined
node is diagnosed; one on probation is healthy again after some runs. Where the rules say so, a node is measured before
it works, and a suspect once nothing runs on it. The event log has every transition.
Is: the incidents of trainings that are under way, the fleet, and the nodes' records.
Follows: transitions through the one door, a run of the asset `preflight` for each node that is to be measured.
"""

import functools
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import dagster as dg

from slipway.assets import keys, subjects
from slipway.resources.compute.protocol import Compute
from slipway.resources.event_log import observations
from slipway.resources.fleet.health import suspicion
from slipway.resources.fleet.health.node_health import NodeHealth
from slipway.resources.fleet.health.standing import Evidence, NodeRecord, Standing
from slipway.resources.fleet.protocol import Node
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support import busy_nodes
from slipway.sensors.support.observation_cache import SensorMemory, recalled
from slipway.sensors.support.runs import NewestRuns
from slipway.sensors.support.tick import Tick
from slipway.trainer.base import codec
from slipway.trainer.diagnosis import folder
from slipway.trainer.record import incidents

NAME = "node_health"
BY = "node health"
EVIDENCE_SECONDS = 30.0
"""After so long, the nodes of an incident will leave no more evidence."""


@dg.sensor(
    name=NAME,
    asset_selection='key:"platform/preflight"',
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Takes nodes that something speaks against out of service, and has them diagnosed.",
)
def node_health(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
    tick = Tick(context, NAME)
    root = all_trainings(tiers)
    door = compute.node_health(tiers)
    memory = recalled(tick.instance, NAME, root.root)
    nodes = list[Node]()
    if not tick.visit(subjects.FLEET, lambda: nodes.extend(compute.fleet().nodes())):
        return tick.result()
    pending = root.pending(WorkQueue.RUN)
    # Those of the last tick too: a training may have ended since, and its last incident counts.
    visited = sorted({*pending, *(id for id in memory.lasting if not id.startswith(_OF_NODE))})
    heard = Heard(
        len(nodes), [record for record in door.register.newest().values() if record.standing is Standing.RELEASED]
    )
    tick.for_each(
        visited, subjects.training, lambda id: heard.listen(tick, root.store(id), memory.lasting.get(id, set()))
    )
    memory.keep_only([*pending, *(_OF_NODE + node.name for node in nodes)])
    runs = NewestRuns(tick.instance, keys.DIAGNOSES_TAG, [node.name for node in nodes])
    occupied = functools.cache(lambda: set(busy_nodes.nodes(tiers)))
    done = [
        tick.visit(
            subjects.node(node.name),
            lambda node=node: _bring_to_its_standing(tick, node, door, memory, runs, heard, occupied),  # type: ignore[misc]
        )
        for node in nodes
    ]
    for id, new in heard.new.items() if all(done) else ():
        if id in pending:
            memory.lasting_of(id, set[str]()).update(new)
    return tick.result()


_OF_NODE = "node/"


@dataclass
class Heard:
    """What the trainings of one tick say about nodes."""

    nodes: int
    """How many the fleet has."""
    probation: list[NodeRecord]
    """The nodes that were released and are watched."""
    evidence: defaultdict[str, list[Evidence]] = field(default_factory=lambda: defaultdict(list))
    clean: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    new: dict[str, set[str]] = field(default_factory=dict)
    """By training, the incidents that count as heard once every node's record has them."""

    def listen(self, tick: Tick, store: TrainingStore, known: set[str]) -> None:
        """Take in a training's incidents that are not known yet, and whether it runs on nodes on probation."""
        self.new[store.id] = set(incidents.names(store.folder)) - known
        for id in sorted(self.new[store.id]):
            try:
                incident = incidents.read(store.folder, id)
            except codec.UndecodableRecord as error:
                tick.log.warning(f"{store.id}: incident {id} is damaged and says nothing about nodes: {error}")
                continue
            for node, evidence in suspicion.by_incident(incident, store.id, self.nodes):
                self.evidence[node].append(evidence)
            manifests = folder.manifests(store.folder, id)
            for manifest in manifests:
                self.evidence[manifest.node] += suspicion.by_kernel(manifest.kernel, store.id, incident)
            if not manifests and time.time() - incident.at < EVIDENCE_SECONDS:
                self.new[store.id].discard(id)  # its nodes may say more yet: it is heard once more
        if self.probation:
            self._collect_clean_runs(store)

    def _collect_clean_runs(self, store: TrainingStore) -> None:
        """An incarnation that was claimed after the release, and has made a checkpoint, is a run without a fault."""
        facts = store.read()
        if facts.claim is None or not any(commit.token.incarnation == facts.incarnation for commit in facts.commits):
            return
        for record in self.probation:
            if record.node in facts.nodes and facts.claim.at > record.at:
                self.clean[record.node].append(f"{store.id}-i{facts.incarnation}")


def _bring_to_its_standing(
    tick: Tick,
    node: Node,
    door: NodeHealth,
    memory: SensorMemory,
    runs: NewestRuns,
    heard: Heard,
    occupied: Callable[[], set[str]],
) -> None:
    """Take the steps that are due for one node, and show each transition once."""
    door.join(node, BY)
    fleet_evidence = suspicion.by_fleet(node, door.clock())
    evidence = [*heard.evidence[node.name], *([fleet_evidence] if fleet_evidence else [])]
    record = door.register.of(node.name)
    if evidence or record.number:
        door.suspect(node.name, evidence, BY)
        door.ran_clean(node.name, heard.clean[node.name], BY)
        record = door.register.of(node.name)
    if not record.number:
        return
    _show(tick, record, door, memory)
    is_due = door.is_diagnosis_due(record) or (door.is_preflight_due(record) and node.name not in occupied())
    if is_due and not node.lost and runs.may_request(node.name):
        tick.request([keys.PREFLIGHT], {keys.DIAGNOSES_TAG: node.name}, node.name)
    door.enforce(node)


def _show(tick: Tick, record: NodeRecord, door: NodeHealth, memory: SensorMemory) -> None:
    """Give the event log the transitions that it lacks."""
    key = _OF_NODE + record.node
    if memory.lasting.get(key) == record.number:
        return
    logged = observations(tick.instance, keys.PREFLIGHT, record.node)
    last_logged = max(
        (int(observation["transition"]) for observation in logged if "transition" in observation), default=0
    )
    memory.lasting[key] = last_logged
    tick.events += [
        _observation(transition) for transition in door.register.history(record.node) if transition.number > last_logged
    ]


def _observation(record: NodeRecord) -> dg.AssetObservation:
    metadata: dict[str, str | int | bool] = {
        "transition": record.number,
        "standing": str(record.standing),
        "was": str(record.was),
        "who": record.who,
        "why": record.why,
        "by_hand": record.by_hand,
        "dry_run": not record.applied,
        "evidence": "; ".join(evidence.why for evidence in record.evidence),
    }
    return dg.AssetObservation(
        keys.PREFLIGHT, partition=record.node, description=f"{record.standing}: {record.why}", metadata=metadata
    )
