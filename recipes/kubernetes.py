"""The section `placement.kubernetes`: settings of a training's pods that replace the cluster's settings."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from slipway.recipes.parts import RecipeSection, Text

_AMOUNT = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"


def _amount(text: str) -> str:
    if not re.match(_AMOUNT, text):
        raise ValueError("expected a Kubernetes quantity, such as 8, 500m or 512Gi")
    return text


Quantity = Annotated[str, AfterValidator(_amount), Field(json_schema_extra={"pattern": _AMOUNT})]
"""A Kubernetes quantity, such as 8, 500m or 512Gi."""


Amounts = dict[str, Quantity]
"""Quantities by Kubernetes' names of resources: cpu, memory, ephemeral-storage."""
TrainingWork = Literal["evaluation", "model", "replay", "restore_drill"]
"""The kinds of heavy work on the checkpoints of a training."""
DataWork = Literal["documents", "tokenizer", "snapshot", "suite"]
"""The kinds of heavy work that build datasets and suites."""
HeavyWork = DataWork | TrainingWork | Literal["metadata_backup", "garbage", "checkpoint_retention", "sweep", "served"]
"""The kinds of work whose steps have pods of their own on a cluster."""


class KubernetesSection(RecipeSection):
    """Settings of a training's pods that replace the cluster's settings; null keeps the cluster's setting."""

    image: Text | None = None
    """The trainer's image, with its digest."""
    queue: Text | None = None
    """The Kueue LocalQueue that admits the job."""
    priority: Text | None = None
    """The PriorityClass of the pods."""
    resources: dict[str, Quantity] | None = None
    """The limits of each pod, such as `nvidia.com/gpu: "8"` and `cpu: "128"`. They are also its requests, unless
    `requests` says otherwise."""
    requests: dict[str, Quantity] | None = None
    """The requests of each pod, where they are lower than its limits, such as `cpu: 500m`."""
    runtime_class: Text | None = None
    """The RuntimeClass of the pods, such as a sandbox for a script that is not trusted (gvisor)."""
    shared_memory: Quantity | None = None
    """The size of /dev/shm in each pod, such as 64Gi."""
    grace_seconds: Annotated[int, Field(ge=1)] | None = None
    """The pods' termination grace period, in seconds: the time for a last checkpoint before a stop or an eviction."""
    spot: bool = False
    """Whether the pods may run on spot nodes."""
    spread: Literal["pack", "spread"] | None = None
    """Whether the pods' nodes are close together in the network topology (pack) or far apart (spread)."""
    patch: dict[str, Any] = Field(default={})
    """A patch of the pod template, merged as `kubectl patch --type strategic` does: lists of named items, such as
    containers and volumes, by name; other lists are replaced."""


UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BINARY = {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", 1)}


def amount(text: str) -> int:
    """The whole number that a quantity stands for, such as the bytes of 512Gi."""
    return round(quantity(text))


def quantity(text: str) -> float:
    """The number that a quantity stands for, such as 0.5 for 500m. Raises ValueError for other text."""
    match = re.match(_AMOUNT, text)
    if match is None:
        raise ValueError(f"found {text!r}, expected a Kubernetes quantity, such as 8, 500m or 512Gi")
    unit = match[2] or ""
    return float(text.removesuffix(unit)) * {**UNITS, **BINARY}[unit]


def lesser(amounts: Mapping[str, str], most: Mapping[str, str]) -> dict[str, str]:
    """The amounts, each lowered to its limit in `most`."""
    return {name: min(amount, most.get(name, amount), key=quantity) for name, amount in amounts.items()}
