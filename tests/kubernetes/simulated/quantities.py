"""Amounts of a resource: ``500m``, ``2Gi``, ``8`` (k8s.io/apimachinery/pkg/api/resource)."""

import re

from tests.kubernetes.simulated.kinds import Object

SUFFIXES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
SUFFIXES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}


def amount(quantity: str | int | float) -> float:
    matched = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(quantity))
    assert matched, f"{quantity!r} is not a quantity"
    return float(matched[1]) * SUFFIXES[matched[2]]


def requests(pod: Object) -> dict[str, float]:
    """What a pod takes of a node: its containers together, or its greediest init container if that takes more."""
    total: dict[str, float] = {}
    for container in pod["spec"]["containers"]:
        for resource, quantity in _requested(container).items():
            total[resource] = total.get(resource, 0.0) + amount(quantity)
    for container in pod["spec"].get("initContainers") or ():
        for resource, quantity in _requested(container).items():
            total[resource] = max(total.get(resource, 0.0), amount(quantity))
    return total


def _requested(container: Object) -> dict[str, str]:
    resource_requests: dict[str, str] = container.get("resources", {}).get("requests") or {}
    return resource_requests
