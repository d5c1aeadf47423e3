"""Preflight: what a node's hardware gives beside what it should, a partition a node; the history is that of the node.

On a node in quarantine it is the diagnosis: without a fault the node works again on probation, with one it goes to
repair. On any other node it only measures, and a fault makes the node a suspect.
"""

from typing import Any

import dagster as dg
from pydantic import Field

from assets import keys
from assets.execution import on_nodes, pods
from resources.compute.protocol import Compute
from resources.tiers import Tiers
from trainer.node_task import PreflightTask, Result


class PreflightConfig(dg.Config):
    """How long is measured, and what should be reached."""

    seconds: float = Field(default=9.0, gt=0, description="How long to measure")
    disk_size: str = Field(default="512M", description="Bytes of the file on the NVMe, such as 512M or 4G")
    expect: list[str] = Field(default=[], description="What lines should give, as NAME=VALUE: disk read=7")


@dg.asset(
    key=keys.PREFLIGHT,
    partitions_def=keys.NODES,
    op_tags=pods.tags("preflight"),
    group_name="fleet",
    kinds={"preflight"},
    description=(
        "What a node's hardware gives beside what it should. For a node in quarantine it is the diagnosis, which the "
        "sensor node_health requests."
    ),
)
def preflight(
    context: dg.AssetExecutionContext, config: PreflightConfig, tiers: Tiers, compute: Compute
) -> dg.MaterializeResult:  # type: ignore[type-arg]
    node, door = context.partition_key, compute.node_health(tiers)
    who = f"preflight (run {context.run.run_id[:8]})"
    door.begin_diagnosis(node, who)
    task = PreflightTask(
        str(tiers.nvme_path(node)), max(1, compute.gpus), config.seconds, config.disk_size, config.expect
    )
    done = on_nodes.run(context, compute, tiers, {node: task}, compute.diagnosis(tiers))[node]
    if done.failure:
        door.fail_diagnosis(node, done.failure, who)
        raise dg.Failure(f"{node}: nothing is known of its hardware: {done.failure}")
    found = faults(done.result)
    after = door.end_diagnosis(node, found, who, context.run.run_id) or door.register.of(node)
    return dg.MaterializeResult(metadata=_metadata(node, done.result, found, str(after.standing)))


def faults(result: Result) -> str:
    """The faulty findings of a preflight in one line; empty where nothing is faulty."""
    faulty = [each for each in result["findings"] if each["verdict"] == "faulty"]
    return "; ".join(f"{each['name']}: {each['note'] or _shown(each)}" for each in faulty)


def _shown(finding: dict[str, Any]) -> str:
    return f"{finding['value']} {finding['unit']} of {finding['reference']}"


def _metadata(node: str, result: Result, found: str, standing: str) -> dict[str, Any]:
    rates = {
        each["name"].replace(" ", "_"): each["value"]
        for each in result["findings"]
        if isinstance(each["value"], float) and each["unit"].endswith("/s")
    }
    return {
        "node": node,
        "verdict": result["verdict"],
        "standing": standing,
        **({"faults": found} if found else {}),
        **rates,
        "findings": dg.MetadataValue.json(result["findings"]),
    }
