"""The section `placement.kubernetes`: how the pods of a training differ from the cluster's own settings."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from slipway.recipes.parts import RecipeSection, Text

_AMOUNT = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"


def _amount(text: str) -> str:
    if not re.match(_AMOUNT, text):
        raise ValueError("expected an amount as Kubernetes writes it, like 8, 500m or 512Gi")
    return text


Quantity = Annotated[str, AfterValidator(_amount), Field(json_schema_extra={"pattern": _AMOUNT})]
"""An amount as Kubernetes writes it: 8, 500m, 512Gi."""


Amounts = dict[str, Quantity]
"""Amounts by Kubernetes' names of resources: cpu, memory, ephemeral-storage."""
TrainingWork = Literal["evaluation", "model", "replay", "restore_drill"]
"""The kinds of heavy work on the checkpoints of a training."""
DataWork = Literal["documents", "tokenizer", "snapshot", "suite"]
"""The kinds of heavy work that read what others wrote."""
HeavyWork = DataWork | TrainingWork | Literal["metadata_backup", "garbage", "checkpoint_retention", "sweep", "served"]
"""The kinds of work whose steps have pods of their own on a cluster."""


class KubernetesSection(RecipeSection):
    """How the pods of a training differ from the cluster's own settings; a field that is null keeps the cluster's."""

    image: Text | None = None
    """The image of the trainer, by its digest."""
    queue: Text | None = None
    """The Kueue LocalQueue that admits the job."""
    priority: Text | None = None
    """The PriorityClass of the pods."""
    resources: dict[str, Quantity] | None = None
    """The limits of each pod, and but for `requests` its requests: `nvidia.com/gpu: "8"`, `cpu: "128"`."""
    requests: dict[str, Quantity] | None = None
    """What is reserved for each pod where that is less than its limits: `cpu: 500m`."""
    runtime_class: Text | None = None
    """The RuntimeClass of the pods, such as a sandbox for a script that is not trusted (gvisor)."""
    shared_memory: Quantity | None = None
    """The size of /dev/shm in each pod, such as 64Gi."""
    grace_seconds: Annotated[int, Field(ge=1)] | None = None
    """Seconds for a last checkpoint when the pods are stopped, evicted or pre-empted."""
    spot: bool = False
    """Whether the pods may run on spot nodes."""
    spread: Literal["pack", "spread"] | None = None
    """Whether the nodes are close together in the network topology (pack) or apart (spread)."""
    patch: dict[str, Any] = Field(default={})
    """A patch of the pod template, merged as `kubectl patch --type strategic` does: lists of named items, such as
    containers and volumes, by name; other lists are replaced."""


UNITS = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BINARY = {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTP", 1)}


def amount(text: str) -> int:
    """The whole number that an amount stands for: bytes, for 512Gi."""
    return round(quantity(text))


def quantity(text: str) -> float:
    """The number that an amount stands for: 0.5 CPUs for 500m, bytes for 512Gi. Raises ValueError for no amount."""
    match = re.match(_AMOUNT, text)
    if match is None:
        raise ValueError(f"found {text!r}, expected an amount as Kubernetes writes it, like 8, 500m or 512Gi")
    unit = match[2] or ""
    return float(text.removesuffix(unit)) * {**UNITS, **BINARY}[unit]


def lesser(amounts: Mapping[str, str], most: Mapping[str, str]) -> dict[str, str]:
    """The amounts, each lowered to what `most` says of it."""
    return {name: min(amount, most.get(name, amount), key=quantity) for name, amount in amounts.items()}
