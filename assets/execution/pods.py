"""Pods: the table of the run kind and the pod resources of each kind of asset, check and op.

Light work, which launches, waits and observes, runs in the run's own pod. Each step of heavy work gets a pod of its
own, however the run was started. Its resources come from this table, limited by the largest node, unless the recipe or
the platform's settings name others.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

from slipway.recipes.kubernetes import DataWork, HeavyWork, lesser
from slipway.resources import run_kinds
from slipway.resources.run_kinds import RunKind
from slipway.resources.steps import StepSettings
from slipway.trainer.base import parsing

CONFIG = "dagster-k8s/config"
"""Dagster's tag for the configuration of a step's pod."""
WEIGHT = "slipway/weight"
WORK = "slipway/work"
"""Tag of a step: its key in this table."""
REQUESTED = "slipway/asked"
"""Tag of a step: the resources that its recipe requests, as JSON."""
LIGHT = "light"
HEAVY = "heavy"


@dataclass(frozen=True)
class Need:
    """The run kind of the work, and its pod's resources as Kubernetes quantities."""

    kind: RunKind
    weight: str
    cpu: str
    memory: str
    scratch: str
    """Space on the node's disk for temporary files; a pod that uses more is evicted."""

    def resources(self, requested: Mapping[str, str]) -> dict[str, str]:
        """The resources by Kubernetes' names; those that a recipe requests take precedence."""
        return {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": self.scratch, **requested}


def _waiting(kind: RunKind) -> Need:
    return Need(kind, LIGHT, "100m", "512Mi", "1Gi")


NEEDS: dict[str, Need] = {
    "documents": Need(RunKind.DATA, HEAVY, "8", "32Gi", "50Gi"),
    "tokenizer": Need(RunKind.DATA, HEAVY, "4", "16Gi", "10Gi"),
    "snapshot": Need(RunKind.DATA, HEAVY, "8", "32Gi", "50Gi"),
    "suite": Need(RunKind.DATA, HEAVY, "4", "16Gi", "10Gi"),
    "evaluation": Need(RunKind.EVALUATION, HEAVY, "8", "32Gi", "50Gi"),
    "replay": Need(RunKind.EVALUATION, HEAVY, "8", "32Gi", "50Gi"),
    "restore_drill": Need(RunKind.UPKEEP, HEAVY, "8", "32Gi", "100Gi"),
    "metadata_backup": Need(RunKind.UPKEEP, HEAVY, "1", "2Gi", "20Gi"),
    "garbage": Need(RunKind.UPKEEP, HEAVY, "1", "4Gi", "1Gi"),
    # The libraries of MLflow and Optuna alone take half a gigabyte.
    "sweep": Need(RunKind.SWEEP, HEAVY, "500m", "2Gi", "1Gi"),
    "model": Need(RunKind.MODEL, HEAVY, "4", "16Gi", "20Gi"),  # it measures small models itself
    "served": Need(RunKind.MODEL, HEAVY, "1", "4Gi", "1Gi"),
    "checkpoint_retention": Need(RunKind.UPKEEP, HEAVY, "500m", "2Gi", "1Gi"),
    "staged_shards": _waiting(RunKind.STAGING),
    "training": _waiting(RunKind.TRAINING),
    "preflight": _waiting(RunKind.RECOVERY),
    "storage": _waiting(RunKind.UPKEEP),
    "morning": _waiting(RunKind.UPKEEP),
    "node_retention": _waiting(RunKind.UPKEEP),
    "logs": _waiting(RunKind.VERB),
    "notices": _waiting(RunKind.VERB),
    "branch": _waiting(RunKind.VERB),
    "set": _waiting(RunKind.VERB),
    "steer": _waiting(RunKind.VERB),
    "node": _waiting(RunKind.VERB),
}
"""The needs by kind of work. An op that a person starts and waits for may have another run kind (`tags`)."""


UNTRUSTED = get_args(DataWork)


def tags(noun: str, requested: Mapping[str, str] | None = None, kind: RunKind | None = None) -> dict[str, Any]:
    """The tags of an op for this work. Resources that its recipe requests, and a run kind, take precedence."""
    need = NEEDS[noun]
    amounts = need.resources(requested or {})
    # Light work has no CPU limit, so that it may use an idle core for a moment. Heavy work sizes itself by its limit.
    limits = {name: amount for name, amount in amounts.items() if need.weight == HEAVY or name != "cpu"}
    return {
        run_kinds.TAG: (kind or need.kind).value,
        WEIGHT: need.weight,
        WORK: noun,
        REQUESTED: json.dumps(dict(requested or {}), sort_keys=True),
        CONFIG: {"container_config": {"resources": {"requests": amounts, "limits": limits}}},
    }


def requested_amounts(tags: Mapping[str, str], steps: StepSettings) -> dict[str, dict[str, str]]:
    """The requests and limits of a step's pod on the cluster with these settings; `tags` are those of its op.

    The table's resources are limited by `steps.most`; those from the settings or the recipe are used unchanged.
    """
    noun = tags[WORK]
    requested = parsing.value(tags[REQUESTED])
    need = NEEDS[noun]
    configured = steps.needs.get(cast(HeavyWork, noun), {})
    limits = {**lesser(need.resources({}), steps.most), **configured, **requested}
    requests = lesser(limits, steps.requests)
    return {
        "requests": requests,
        "limits": {name: amount for name, amount in limits.items() if need.weight == HEAVY or name != "cpu"},
    }


def sandbox(tags: Mapping[str, str], steps: StepSettings) -> str:
    """The RuntimeClass of a step's pod: only work on untrusted data runs in the sandbox."""
    return steps.sandbox if tags[WORK] in UNTRUSTED else ""
