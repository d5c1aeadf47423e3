"""Steps: the section `compute.steps` of the platform's settings, and whether a pod fits a node. Pure but for reading.

A step that no node is large enough for would wait for ever: it is refused before it is launched, with what is missing.
"""

from collections.abc import Iterable, Mapping

from pydantic import Field

from slipway.recipes.kubernetes import Amounts, HeavyWork, quantity
from slipway.recipes.parts import RecipeSection
from slipway.resources.kubernetes.objects import KubernetesObject

MEASURED = ("cpu", "memory", "ephemeral-storage")
"""What a node has whatever is plugged into it; devices come and go with their plugins."""


class StepSettings(RecipeSection):
    """The pods of heavy steps: what builds datasets, evaluates, restores and cleans."""

    most: Amounts = Field(default_factory=dict)
    """The most that a step gets unless its recipe or `needs` asks for more: what the largest node can give."""
    requests: Amounts = Field(default_factory=dict)
    """What is reserved for each step where that is less than its limits, for nodes that have other work too."""
    needs: dict[HeavyWork, Amounts] = Field(default_factory=dict)
    """What the steps of one kind of work get: `evaluation: {memory: 64Gi}`. A recipe comes before it."""
    sandbox: str = ""
    """The RuntimeClass (gvisor) of steps that read what others wrote: documents, tokenizer, snapshot and suite."""


def misfit(requests: Mapping[str, str], nodes: Iterable[KubernetesObject]) -> str:
    """Why no node can hold a pod with these requests; empty if one can, were it free of other pods."""
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
    """What pods may take of a node; a node that says nothing of a resource is not measured by it."""
    status = node.get("status", {})
    return {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}


def _insufficient(requests: Mapping[str, str], size: Mapping[str, str]) -> list[str]:
    return [
        name
        for name in MEASURED
        if name in requests and name in size and quantity(requests[name]) > quantity(size[name])
    ]
