"""Nodes in the UI: jobs that set a node's standing and diagnose it, whose partitions are the nodes there are; and the
job that finds the nodes which spoil the network, which the sensor `network_faults` starts too.

They come through the same door as `slipway nodes` and the sensors (`slipway.resources.fleet.health.node_health`).
"""

import enum

import dagster as dg
from pydantic import Field

from slipway.assets import keys
from slipway.assets.execution import pods
from slipway.operations.job_config import about
from slipway.resources import identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.fleet.health.standing import Standing
from slipway.resources.node_tasks import network
from slipway.resources.node_tasks.network import NetworkCheck
from slipway.resources.run_kinds import RunKind
from slipway.resources.tiers import Tiers
from slipway.trainer.base.units import MIB
from slipway.trainer.node_task import CollectiveTask


class Choice(enum.Enum):
    """What a person may do with a node; the launchpad offers these names."""

    quarantine = "quarantined"
    repair = "repair"
    release = "released"
    exempt = "exempt"
    end_exemption = "end_exemption"


class NodeConfig(dg.Config):
    """What becomes of a node."""

    choice: Choice = Field(
        description="quarantine and repair take it out of service until it is released; release takes it back, on "
        "probation; exempt keeps every process from taking it out of service, until end_exemption"
    )
    why: str = Field(min_length=1, description="The reason, kept on record for the next operator")


@dg.op(tags=pods.tags("node"))
def set_node(context: dg.OpExecutionContext, config: NodeConfig, tiers: Tiers, compute: Compute) -> dg.Output[None]:
    """Raises Failure with the reason where there is no such node."""
    node = about(context, "node")
    door = compute.node_health(tiers)
    who = identity.of_run(context.run)
    try:
        if config.choice is Choice.exempt:
            door.exempt(node, who, config.why)
        elif config.choice is Choice.end_exemption:
            door.end_exemption(node)
        else:
            door.set_by_hand(node, Standing(config.choice.value), who, config.why)
    except ValueError as error:
        raise dg.Failure(str(error)) from error
    record = door.register.of(node)
    exemption = door.register.exemption(node)
    dry = record.standing.out_of_service and not record.applied
    return dg.Output(
        None,
        metadata={
            "node": node,
            "standing": str(record.standing),
            "gets_work": not record.out_of_service,
            **({"dry_run": "compute.quarantine.apply is false in the platform's settings"} if dry else {}),
            **({"exempt": exemption.why} if exemption else {}),
        },
    )


@dg.job(
    name="node_set",
    partitions_def=keys.NODES,
    description="Takes a node (the partition) out of service or back into it, past every guard.",
)
def set_job() -> None:
    set_node()


diagnose_job = dg.define_asset_job(
    "node_diagnose",
    dg.AssetSelection.assets(keys.PREFLIGHT),
    description="Measures a node (the partition). One in quarantine goes to repair or back to work by what is found.",
)


class BisectionConfig(dg.Config):
    """The nodes to be bisected."""

    nodes: list[str] = Field(min_length=2, description="The nodes, one of which spoils the network; they must be free")
    good: list[str] = Field(default=[], description="Nodes that are known to be good, to measure a lone suspect with")
    about: str = Field(default="", description="After which incident; by default the bisection is named by its run")
    megabytes: int = Field(default=64, gt=0, description="The largest all-reduce")
    seconds: float = Field(default=9.0, gt=0, description="How long each group measures")


@dg.op(name=network.OP, tags=pods.tags("node", kind=RunKind.RECOVERY))
def bisect_nodes(
    context: dg.OpExecutionContext, config: BisectionConfig, tiers: Tiers, compute: Compute
) -> dg.Output[None]:
    """Raises Failure with the reason for a group that no job can have."""
    ranks = max(1, compute.gpus)
    check = NetworkCheck(
        compute.launcher(), compute.node_health(tiers), tiers.durable_path, ranks, compute.poll_seconds
    )
    task = CollectiveTask(config.megabytes * MIB, config.seconds)
    who = identity.of_run(context.run)
    about = config.about or context.run_id
    try:
        bisection = check.bisect(about, config.nodes, config.good, task, who, context.log.info)
    except ValueError as error:
        raise dg.Failure(str(error)) from error
    named = {"bad": bisection.bad, "unresolved": bisection.unresolved, "good": bisection.good}
    return dg.Output(
        None, metadata={"about": about, **{what: ", ".join(nodes) or "none" for what, nodes in named.items()}}
    )


@dg.job(name=network.JOB, description="Finds the nodes that spoil the network, by exchanges among ever fewer.")
def bisect_job() -> None:
    bisect_nodes()
