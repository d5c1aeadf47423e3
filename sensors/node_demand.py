"""Node demand: shows the cluster's autoscaler which nodes trainings and trials wait for.

Should be: where an autoscaler changes the fleet, each wanted training that does not run because too few nodes are ready
has pending placeholders, as many as the nodes that it would run on, and so has each sweep whose trials wait; no other
training or sweep has any.
Is: the facts of trainings, the logs of sweeps, the fleet, and the placeholders in the cluster.
Follows: placeholders are made and removed. The autoscaler adds nodes for them; the job watch claims the training once
enough are ready. Nodes on which nothing of Slipway runs are the autoscaler's to remove.
"""

from dataclasses import dataclass

import dagster as dg

from slipway.assets import subjects
from slipway.assets.sweeps.store import SweepStore
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.training import ModelRecipe
from slipway.resources.compute.protocol import Compute
from slipway.resources.fleet.protocol import Node
from slipway.resources.launchers.kubernetes.node_shortage import Lack
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.status import node_shortage
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings
from slipway.sensors.support.observation_cache import SensorMemory, decisive, recalled
from slipway.sensors.support.sweep_demand import SweepDemand
from slipway.sensors.support.tick import Tick

NAME = "node_demand"


def node_demand(sweeps: dict[str, SweepRecipe], recipes: dict[str, ModelRecipe]) -> dg.SensorDefinition:
    """The sensor over all trainings, and the sweeps of these recipes."""
    of_sweeps = SweepDemand(sweeps, recipes)

    @dg.sensor(
        name=NAME,
        asset_selection='key:"*/training" or key:"*/sweep"',
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Shows the cluster's autoscaler which nodes trainings and trials wait for.",
    )
    def sensor(context: dg.SensorEvaluationContext, tiers: Tiers, compute: Compute) -> dg.SensorResult:
        tick = Tick(context, NAME)
        demand = compute.node_demand()
        fleets = list[ObservedFleet]()
        if demand is None or not tick.visit(subjects.FLEET, lambda: fleets.append(_fleet(tiers, compute))):
            return tick.result()
        lacks = dict[str, Lack | None]()
        pending = _look_at_trainings(tick, tiers, compute, fleets[0], lacks)
        pending += _look_at_sweeps(tick, tiers, compute, fleets[0], lacks, of_sweeps)
        shortages = {id: lack for id, lack in lacks.items() if lack}
        tick.visit(subjects.FLEET, lambda: demand.bring_to(shortages, unknown=set(pending) - set(lacks)))
        return tick.result()

    return sensor


def _look_at_trainings(
    tick: Tick, tiers: Tiers, compute: Compute, fleet: "ObservedFleet", lacks: dict[str, Lack | None]
) -> list[str]:
    """Note in `lacks` what each training waits for; the ids of those that there are."""
    root = all_trainings(tiers)
    control = compute.control(tiers)
    memory = recalled(tick.instance, NAME, root.root)
    pending = root.pending(WorkQueue.RUN)
    memory.keep_only(pending)

    def look(id: str) -> None:
        lacks[id] = _lack(root.store(id), memory, fleet, control)

    tick.for_each(pending, subjects.training, look)
    return list(pending)


def _look_at_sweeps(
    tick: Tick,
    tiers: Tiers,
    compute: Compute,
    fleet: "ObservedFleet",
    lacks: dict[str, Lack | None],
    demand: SweepDemand,
) -> list[str]:
    """The same for the trials of each sweep, by the sweep's id."""
    stores = demand.stores(tiers)
    quotas = compute.quotas(tiers)

    def look(store: SweepStore) -> None:
        lacks[store.sweep] = demand.lack(store, fleet.nodes, fleet.coming, quotas)

    tick.for_each(stores, lambda store: subjects.sweep(store.sweep.rpartition("-")[0], store.sweep), look)
    return [store.sweep for store in stores]


@dataclass(frozen=True)
class ObservedFleet:
    """The fleet at this tick."""

    nodes: tuple[Node, ...]
    """As work may use it."""
    coming: int
    """How many of them are ready but for their preflight."""


def _fleet(tiers: Tiers, compute: Compute) -> ObservedFleet:
    """Raises Unavailable."""
    nodes = tuple(compute.working_fleet(tiers).nodes())
    not_ready = {node.name for node in nodes if not node.ready}
    standings = compute.node_health(tiers).register.newest()
    out = {name for name, record in standings.items() if record.standing.lacks}
    return ObservedFleet(nodes, sum(node.ready and node.name in not_ready - out for node in compute.fleet().nodes()))


def _lack(store: TrainingStore, memory: SensorMemory, fleet: ObservedFleet, control: TrainingControl) -> Lack | None:
    """What a training waits for; one whose records have not changed since it ran is not read again.

    One that a quota or a rest holds back would not begin on new nodes, and waits for none.
    """
    if memory.is_quiet(store.id, decisive(store.folder)):
        return None
    facts = store.read()
    if facts.running:
        memory.found_nothing(store.id)
    count = node_shortage(facts, fleet.nodes, fleet.coming)
    return Lack(count, facts.run_policy.kubernetes) if count and not control.held_back(facts) else None
