"""Preflight: what a node's hardware gives beside what it should, a partition a node; the history is that of the node.

On a node in quarantine it is the diagnosis, and on one that joins the fleet the condition for its first work: without
a fault the node works, on probation; with one it goes to repair. On any other node it only measures, and a fault makes
the node a suspect. Each leaves a record of its verdict (`slipway.resources.fleet.health.preflights`).
"""

import time
from typing import Any

import dagster as dg
from pydantic import Field

from slipway.assets import keys
from slipway.assets.execution import on_nodes, pods
from slipway.resources.compute.protocol import Compute
from slipway.resources.fleet.health.preflights import PreflightRecord
from slipway.resources.tiers import Tiers
from slipway.trainer.node_task import PreflightTask, Result


class PreflightConfig(dg.Config):
    """How long is measured, and what should be reached."""

    seconds: float = Field(default=9.0, gt=0, description="How long to measure")
    disk_size: str = Field(default="512M", description="Bytes of the file on the NVMe, such as 512M or 4G")
    expect: list[str] = Field(default=[], description="What lines should give, as NAME=VALUE: disk read=7")


@dg.asset(
    key=keys.PREFLIGHT,
    partitions_def=keys.NODES,
    op_tags=pods.tags("preflight"),
    group_name="platform",
    owners=["team:platform"],
    kinds={"preflight"},
    description=(
        "What a node's hardware gives beside what it should. The sensor node_health requests it for a node in "
        "quarantine, whose diagnosis it is, and, where the settings say so, for one that joins and after incidents."
    ),
)
def preflight(
    context: dg.AssetExecutionContext, config: PreflightConfig, tiers: Tiers, compute: Compute
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    node, door = context.partition_key, compute.node_health(tiers)
    who = f"preflight (run {context.run.run_id[:8]})"
    answers = tuple(evidence.id for evidence in (door.begin_diagnosis(node, who) or door.register.of(node)).evidence)
    task = PreflightTask(
        str(tiers.nvme_path(node)),
        max(1, compute.gpus),
        config.seconds,
        config.disk_size,
        config.expect,
        (str(tiers.durable_path),),
    )
    done = on_nodes.run(context, compute, tiers, {node: task}, compute.diagnosis(tiers))[node]
    if done.failure:
        door.fail_diagnosis(node, done.failure, who)
        raise dg.Failure(f"{node}: nothing is known of its hardware: {done.failure}")
    fault_summary, verdict = faults(done.result), done.result["verdict"]
    door.preflights.add(
        PreflightRecord(node, context.run.run_id, verdict, fault_summary, time.time(), rates(done.result), answers)
    )
    after = door.end_diagnosis(node, fault_summary, who, context.run.run_id) or door.register.of(node)
    return dg.MaterializeResult(metadata=_metadata(node, done.result, fault_summary, str(after.standing)))


def faults(result: Result) -> str:
    """The faulty findings of a preflight in one line; empty where nothing is faulty."""
    faulty = [finding for finding in result["findings"] if finding["verdict"] == "faulty"]
    return "; ".join(f"{finding['name']}: {finding['note'] or _measured_text(finding)}" for finding in faulty)


def rates(result: Result) -> dict[str, float]:
    """What was measured by the second, by line with its unit."""
    return {
        f"{finding['name']}, {finding['unit']}": finding["value"]
        for finding in result["findings"]
        if isinstance(finding["value"], float) and finding["unit"].endswith("/s")
    }


def _measured_text(finding: dict[str, Any]) -> str:
    return f"{finding['value']} {finding['unit']} of {finding['reference']}"


def _metadata(node: str, result: Result, fault_summary: str, standing: str) -> dict[str, Any]:
    return {
        "node": node,
        "verdict": result["verdict"],
        "standing": standing,
        **({"faults": fault_summary} if fault_summary else {}),
        **{line.rpartition(", ")[0].replace(" ", "_"): value for line, value in rates(result).items()},
        "findings": dg.MetadataValue.json(result["findings"]),
    }
