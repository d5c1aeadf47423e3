"""Lineage: what a candidate's record must have before it is promoted."""

from pathlib import Path

from slipway.assets.gates.checks import CheckOutcome
from slipway.resources import code
from slipway.resources.mlflow.record import ModelRecord, missing

CHECKED, COMPLETE = "checked", "complete"
ADVICE = {
    "code.revision": ": run from a checkout of git, or set revision in the platform's settings",
    "environment.image_digest": ": name compute.cluster.image by digest, name@sha256:…",
}
"""What to do about a field, where that is not plain."""


def faults(record: ModelRecord, durable: Path, wanted: str, on_a_cluster: bool) -> list[str]:
    """What is missing, a sentence each; `wanted` is the policy's `lineage`."""
    found = []
    revision = str(record.code.get("revision", ""))
    if code.is_changed(revision) and not code.difference_path(durable, revision).exists():
        found.append(f"the code was changed ({revision}), and its difference is not on record")
    if wanted == COMPLETE:
        found += [f"{field} is not known{ADVICE.get(field, '')}" for field in missing(record)]
        if on_a_cluster and not record.environment.get("image"):
            found.append("environment.image_digest is not known")
    return found


def check(record: ModelRecord | None, durable: Path, wanted: str, on_a_cluster: bool, damage: str) -> CheckOutcome:
    """The check; `damage` is what is wrong with the checkpoint's bytes, `record` None where nobody has kept one."""
    found = ["its record (slipway models show): materialise its candidate"]
    if record is not None:
        found = faults(record, durable, wanted, on_a_cluster)
    return CheckOutcome(not found and not damage, {"missing": found, **({"damaged": damage} if damage else {})})
