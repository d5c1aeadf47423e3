"""Preflight: compares the measured performance of a node's hardware with its reference; one partition per node.

For a node in quarantine it is the diagnosis, and for a node that joins the fleet the condition for its first work:
without a fault the node works, on probation; with a fault it goes to repair. On any other node it only measures, and a
fault makes the node a suspect. Each preflight records its verdict (`slipway.resources.fleet.health.preflights`).
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
    """The duration of the measurement, and the reference values."""

    seconds: float = Field(default=9.0, gt=0, description="Duration of the measurement, in seconds")
    disk_size: str = Field(default="512M", description="Size of the test file on the NVMe, such as 512M or 4G")
    expect: list[str] = Field(
        default=[], description="Expected values of measurements, as NAME=VALUE, such as disk read=7"
    )


@dg.asset(
    key=keys.PREFLIGHT,
    partitions_def=keys.NODES,
    op_tags=pods.tags("preflight"),
    group_name="platform",
    owners=["team:platform"],
    kinds={"preflight"},
    description=(
        "Measures a node's hardware and compares it with the expected values. The sensor node_health requests it to "
        "diagnose a node in quarantine and, if the settings say so, for new nodes and after incidents; materialise it "
        "to test a node at any time."
    ),
)
def preflight(
    context: dg.AssetExecutionContext, config: PreflightConfig, tiers: Tiers, compute: Compute
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    node = context.partition_key
    door = compute.node_health(tiers)
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
        raise dg.Failure(f"{node}: its hardware could not be measured: {done.failure}")
    fault_summary = faults(done.result)
    verdict = done.result["verdict"]
    door.preflights.add(
        PreflightRecord(node, context.run.run_id, verdict, fault_summary, time.time(), rates(done.result), answers)
    )
    after = door.end_diagnosis(node, fault_summary, who, context.run.run_id) or door.register.of(node)
    return dg.MaterializeResult(metadata=_metadata(node, done.result, fault_summary, str(after.standing)))


def faults(result: Result) -> str:
    """The faulty findings of a preflight in one line; empty if there are none."""
    faulty = [finding for finding in result["findings"] if finding["verdict"] == "faulty"]
    return "; ".join(f"{finding['name']}: {finding['note'] or _measured_text(finding)}" for finding in faulty)


def rates(result: Result) -> dict[str, float]:
    """The measured rates (per second), by name and unit."""
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
