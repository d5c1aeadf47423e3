"""Pods: the one table of what each kind of asset, check and op needs on a cluster; elsewhere it has no effect.

Light work, which launches, waits and looks, is done in the run's own pod. Each step of heavy work gets a pod of its
own, however the run is started. It gets the amounts of this table, as far as the largest node has them, unless the
recipe or the platform's settings say other ones.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from recipes.kubernetes import DataWork, HeavyWork, lesser
from resources.steps import StepSettings
from trainer.base import parsing

CONFIG = "dagster-k8s/config"
"""The tag by which Dagster's step pods are given what they need."""
WEIGHT = "slipway/weight"
WORK, ASKED = "slipway/work", "slipway/asked"
"""Tags of a step: the noun of this table, and as JSON the amounts that its recipe asks for."""
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
    "suite": Need(HEAVY, "4", "16Gi", "10Gi"),
    "evaluation": Need(HEAVY, "8", "32Gi", "50Gi"),
    "replay": Need(HEAVY, "8", "32Gi", "50Gi"),
    "restore_drill": Need(HEAVY, "8", "32Gi", "100Gi"),
    "metadata_backup": Need(HEAVY, "1", "2Gi", "20Gi"),
    "garbage": Need(HEAVY, "1", "4Gi", "1Gi"),
    # MLflow's and Optuna's libraries alone take half a gigabyte.
    "sweep": Need(HEAVY, "500m", "2Gi", "1Gi"),
    "model": Need(HEAVY, "4", "16Gi", "20Gi"),  # it measures small models itself
    "served": Need(HEAVY, "1", "4Gi", "1Gi"),
    "checkpoint_retention": Need(HEAVY, "500m", "2Gi", "1Gi"),
    "staged_shards": WAITING,
    "training": WAITING,
    "preflight": WAITING,
    "storage": WAITING,
    "morning": WAITING,
    "node_retention": WAITING,
    "logs": WAITING,
    "notices": WAITING,
    "branch": WAITING,
    "set": WAITING,
    "steer": WAITING,
    "node": WAITING,
}


UNTRUSTED = get_args(DataWork)


def tags(noun: str, asked: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The tags of an op that does this; the amounts that its recipe asks for take precedence."""
    need = NEEDS[noun]
    amounts = need.resources(asked or {})
    # A process that waits may take an idle core for a moment; one that works has a limit to go by.
    limits = {name: amount for name, amount in amounts.items() if need.weight == HEAVY or name != "cpu"}
    return {
        WEIGHT: need.weight,
        WORK: noun,
        ASKED: json.dumps(dict(asked or {}), sort_keys=True),
        CONFIG: {"container_config": {"resources": {"requests": amounts, "limits": limits}}},
    }


def given(tags: Mapping[str, str], steps: StepSettings) -> dict[str, dict[str, str]]:
    """The requests and limits of a step's pod on the cluster of these settings; `tags` are those of its op.

    The table's amounts are lowered to `steps.most`; what the settings or the recipe say of this work holds as it is.
    """
    noun, asked = tags[WORK], parsing.value(tags[ASKED])
    need = NEEDS[noun]
    said = steps.needs.get(cast(HeavyWork, noun), {})
    limits = {**lesser(need.resources({}), steps.most), **said, **asked}
    requests = lesser(limits, steps.requests)
    return {
        "requests": requests,
        "limits": {name: amount for name, amount in limits.items() if need.weight == HEAVY or name != "cpu"},
    }


def sandbox(tags: Mapping[str, str], steps: StepSettings) -> str:
    """The RuntimeClass of a step's pod: only work that reads what others wrote runs in the sandbox."""
    return steps.sandbox if tags[WORK] in UNTRUSTED else ""
