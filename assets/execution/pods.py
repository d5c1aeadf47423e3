"""Pods: the one table of what each kind of asset, check and op needs on a cluster; elsewhere it has no effect.

Light work, which launches, waits and looks, is done in the run's own pod. Each step of heavy work gets a pod of its
own, with the amounts of this table as its requests and limits, however the run is started.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONFIG = "dagster-k8s/config"
"""The tag by which Dagster's step pods are given what they need."""
WEIGHT = "slipway/weight"
LIGHT, HEAVY = "light", "heavy"


@dataclass(frozen=True)
class Need:
    """What a pod is given, in Kubernetes' notation of amounts."""

    weight: str
    cpu: str
    memory: str
    scratch: str
    """Space on the node's disk for temporary files: a pod that takes more is evicted."""

    def resources(self, asked: Mapping[str, str]) -> dict[str, str]:
        """The amounts by Kubernetes' names; those that a recipe asks for take precedence."""
        return {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": self.scratch, **asked}


WAITING = Need(LIGHT, "100m", "512Mi", "1Gi")
NEEDS: dict[str, Need] = {
    "documents": Need(HEAVY, "8", "32Gi", "50Gi"),
    "tokenizer": Need(HEAVY, "4", "16Gi", "10Gi"),
    "snapshot": Need(HEAVY, "8", "32Gi", "50Gi"),
    "evaluation": Need(HEAVY, "8", "32Gi", "50Gi"),
    "restore_drill": Need(HEAVY, "8", "32Gi", "100Gi"),
    "metadata_backup": Need(HEAVY, "1", "2Gi", "20Gi"),
    "garbage": Need(HEAVY, "1", "4Gi", "1Gi"),
    # MLflow's and Optuna's libraries alone take half a gigabyte.
    "sweep": Need(HEAVY, "500m", "2Gi", "1Gi"),
    "model": Need(HEAVY, "500m", "2Gi", "1Gi"),
    "checkpoint_retention": Need(HEAVY, "500m", "2Gi", "1Gi"),
    "staged_shards": WAITING,
    "training": WAITING,
    "preflight": WAITING,
    "storage": WAITING,
    "node_retention": WAITING,
    "logs": WAITING,
    "branch": WAITING,
    "set": WAITING,
}


def tags(noun: str, asked: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The tags of an op that does this; the amounts that its recipe asks for take precedence."""
    need = NEEDS[noun]
    amounts = need.resources(asked or {})
    # A process that waits may take an idle core for a moment; one that works has a limit to go by.
    limits = {name: amount for name, amount in amounts.items() if need.weight == HEAVY or name != "cpu"}
    return {
        WEIGHT: need.weight,
        CONFIG: {"container_config": {"resources": {"requests": amounts, "limits": limits}}},
    }
