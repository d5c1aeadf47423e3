"""What a recipe may say about the pods of its jobs on Kubernetes, where the cluster's own settings do not suit it."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from recipes.parts import Part, Text

_AMOUNT = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$"


def _amount(text: str) -> str:
    if not re.match(_AMOUNT, text):
        raise ValueError("expected an amount as Kubernetes writes it, like 8, 500m or 512Gi")
    return text


Quantity = Annotated[str, AfterValidator(_amount), Field(json_schema_extra={"pattern": _AMOUNT})]
"""As Kubernetes writes amounts: 8, 500m, 512Gi."""


class Kubernetes(Part):
    """The section `placement.kubernetes`; what is left out is as the cluster has it."""

    image: Text | None = None
    """The trainer's image, by digest."""
    queue: Text | None = None
    """The Kueue LocalQueue that admits the job."""
    priority: Text | None = None
    """The PriorityClass of the pods."""
    resources: dict[str, Quantity] | None = None
    """What each pod is given, as requests and as limits: `nvidia.com/gpu: "8"`, `cpu: "128"`, `rdma/ib: "1"`."""
    shared_memory: Quantity | None = None
    """The size of /dev/shm."""
    grace_seconds: Annotated[int, Field(ge=1)] | None = None
    """What the pods get to save a last checkpoint in, when they are stopped, evicted or pre-empted."""
    spot: bool = False
    """Whether the pods may run on spot nodes."""
    spread: Literal["pack", "spread"] | None = None
    """Nodes close together in the network topology, or apart."""
    patch: dict[str, Any] = Field(default={})
    """Merged into the pods' template as `kubectl patch --type strategic` would: lists of containers, volumes and the
    like by their names, other lists replaced."""
