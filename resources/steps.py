"""Steps: the section `compute.steps` of the platform's settings, and the check whether a pod fits a node.

A step that fits no node would wait for ever, so it is rejected before its launch, with what is missing.
"""

from collections.abc import Iterable, Mapping

from pydantic import Field

from slipway.recipes.kubernetes import Amounts, HeavyWork, quantity
from slipway.recipes.parts import RecipeSection
from slipway.resources.kubernetes.objects import KubernetesObject

MEASURED = ("cpu", "memory", "ephemeral-storage")
"""The resources that are compared. Devices are not, since they come and go with their plugins."""


class StepSettings(RecipeSection):
    """The resources of pods of heavy steps: building datasets, evaluating, restoring and cleaning up."""

    most: Amounts = Field(default_factory=dict)
    """The maximum for a step, unless its recipe or `needs` asks for more. Set it to the size of the largest node."""
    requests: Amounts = Field(default_factory=dict)
    """The requests of each step, if they are lower than its limits, for nodes that also run other work."""
    needs: dict[HeavyWork, Amounts] = Field(default_factory=dict)
    """The resources of steps by kind of work, such as `evaluation: {memory: 64Gi}`. A recipe overrides them."""
    sandbox: str = ""
    """The RuntimeClass, such as gvisor, of steps that read untrusted data: documents, tokenizer, snapshot and suite."""


def misfit(requests: Mapping[str, str], nodes: Iterable[KubernetesObject]) -> str:
    """Why no node can hold a pod with these requests; "" if some node could if it ran no other pods."""
    sizes = {node["metadata"]["name"]: _size(node) for node in nodes}
    if not sizes:
        return "found no node for it"
    lacks = {name: _insufficient(requests, size) for name, size in sizes.items()}
    largest = min(lacks, key=lambda name: (len(lacks[name]), -quantity(sizes[name].get("memory", "0"))))
    if not lacks[largest]:
        return ""
    request_text = ", ".join(f"{name} {requests[name]}" for name in lacks[largest])
    has = ", ".join(f"{name} {sizes[largest].get(name, '0')}" for name in lacks[largest])
    return f"it asks for {request_text}, and the largest node, {largest}, has {has}"


def _size(node: KubernetesObject) -> dict[str, str]:
    """What a node offers to pods. A resource that the node does not report is not checked."""
    status = node.get("status", {})
    return {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}


def _insufficient(requests: Mapping[str, str], size: Mapping[str, str]) -> list[str]:
    return [
        name
        for name in MEASURED
        if name in requests and name in size and quantity(requests[name]) > quantity(size[name])
    ]
