"""The network interfaces of a pod: the cluster's own network, and those that Multus attaches."""

from collections.abc import Mapping
from typing import Any

NETWORKS = "k8s.v1.cni.cncf.io/networks"


def interfaces(template: Mapping[str, Any]) -> set[str]:
    """Their names. Multus calls a network's interface net1, net2 and so on, unless its name follows after an @."""
    annotation = template["metadata"].get("annotations", {}).get(NETWORKS, "")
    attached = [network.strip() for network in annotation.split(",") if network.strip()]
    names = {network.partition("@")[2] or f"net{number}" for number, network in enumerate(attached, 1)}
    return {"lo", "eth0"} | names
