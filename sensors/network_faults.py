"""Network faults: has the nodes bisected after exchanges failed and no single node is named.

Should be: each incident of the last day in which ranks of several nodes could not exchange, or hung, and which does not
say on which node it lies, is followed by one bisection of these nodes.
Is: the incidents of trainings, the results of bisections on the durable tier, and Dagster's runs.
Follows: a run of the job `network_bisect`, once none of the nodes works; what it finds speaks against a node.
"""

import time
from dataclasses import dataclass

import dagster as dg

from slipway.assets import keys, subjects
from slipway.resources.compute.protocol import Compute
from slipway.resources.fleet.protocol import Node, by_name
from slipway.resources.node_tasks import network
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support import busy_nodes
from slipway.sensors.support.observation_cache import SensorMemory, recalled
from slipway.sensors.support.runs import NewestRuns
from slipway.sensors.support.tick import Tick
from slipway.trainer.base import codec
from slipway.trainer.base.units import DAY
from slipway.trainer.record import fence, files, incidents
from slipway.trainer.record.claims import Token

NAME = "network_faults"
WINDOW_SECONDS = DAY
"""An incident of longer ago says nothing about the network now."""
_DUE, _BEFORE = "*due", "*before"
"""Under these names, which no training has, a memory keeps the bisections that are due, and whom the last tick saw."""


@dataclass(frozen=True)
class DueBisection:
    """A bisection that waits until its nodes are free."""

    about: str
    """The incident's training and id."""
    nodes: tuple[str, ...]
    since: float


@dg.sensor(
    name=NAME,
    job_name=network.JOB,
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Has the nodes bisected after exchanges failed and no single node is named.",
)
def network_faults(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
    tick = Tick(context, NAME)
    root = all_trainings(tiers)
    memory = recalled(tick.instance, NAME, root.root)
    due = memory.lasting_of(_DUE, dict[str, DueBisection]())
    pending = {*root.pending(WorkQueue.RUN), *root.pending(WorkQueue.INCIDENTS)}
    before = memory.lasting_of(_BEFORE, set[str]())
    # Those of the last tick too: a training may have ended since, and its last incident counts.
    tick.for_each(sorted(pending | before), subjects.training, lambda id: _listen(memory, due, root.store(id)))
    before.clear()
    before.update(pending)
    memory.keep_only([_DUE, _BEFORE, *pending])
    now = time.time()
    for bisection in list(due.values()):
        if now - bisection.since > WINDOW_SECONDS or network.is_done(tiers.durable_path, bisection.about):
            del due[bisection.about]
    if due:
        tick.visit(subjects.FLEET, lambda: _request(tick, tiers, due, by_name(compute.fleet().nodes())))
    return tick.result()


def _listen(memory: SensorMemory, due: dict[str, DueBisection], store: TrainingStore) -> None:
    """Take in the incidents of a training that call for a bisection."""
    if memory.is_quiet(store.id, [f"{store.folder}/{files.INCIDENTS}"]):
        return
    claims = {claim.token: claim for claim in fence.claims(store.folder)}
    for id in incidents.names(store.folder):
        try:
            incident = incidents.read(store.folder, id)
        except codec.UndecodableRecord:
            continue
        claim = claims.get(Token.parse(incident.token))
        about = f"{store.id}/{id}"
        if claim is not None and network.calls_for_bisection(incident, claim.nodes):
            due.setdefault(about, DueBisection(about, tuple(claim.nodes), incident.at))
    memory.found_nothing(store.id)


def _request(tick: Tick, tiers: Tiers, due: dict[str, DueBisection], fleet: dict[str, Node]) -> None:
    """Request one bisection whose nodes are free; several at once would measure one another."""
    runs = NewestRuns(tick.instance, keys.BISECTS_TAG, due)
    if any(runs.unfinished(about) for about in due):
        return
    busy = set(busy_nodes.nodes(tiers))
    for bisection in due.values():
        suspects, good = network.free(fleet, bisection.nodes, busy)
        if suspects and runs.may_request(bisection.about):
            config = {"nodes": suspects, "good": good, "about": bisection.about}
            tags = {keys.BISECTS_TAG: bisection.about}
            tick.requests.append(dg.RunRequest(run_config={"ops": {network.OP: {"config": config}}}, tags=tags))
            return
        tick.postpone(f"{bisection.about}: its nodes are bisected once none of them works")
