"""Which connections NetworkPolicies allow: an evaluator of their semantics over rendered objects. Pure.

After https://kubernetes.io/docs/concepts/services-networking/network-policies/: a pod that no policy selects for a
direction lets everything through; one that some do lets through what any of their rules allows. A rule without ports
means all ports, one without peers means all peers. A named port is resolved by the pod that is entered, and is refused
here: no object of ours uses one.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.deploy.rendering import Object, namespace_of


@dataclass(frozen=True)
class End:
    """A pod, or an address outside the cluster."""

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = ""


def reaches(policies: list[Object], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    """Whether a connection may leave the source and enter the target."""
    return _lets(policies, source, target, "Egress", port, protocol) and _lets(
        policies, target, source, "Ingress", port, protocol
    )


def _lets(policies: list[Object], own: End, other: End, direction: str, port: int, protocol: str) -> bool:
    if own.address:
        return True
    binding = [
        policy["spec"]
        for policy in policies
        if namespace_of(policy) == own.namespace
        and direction in policy["spec"]["policyTypes"]
        and _selects(policy["spec"]["podSelector"], own.labels)
    ]
    field, side = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    rules = [rule for spec in binding for rule in spec.get(field) or ()]
    return not binding or any(
        _has_port(rule, port, protocol) and _has_peer(rule.get(side), own, other) for rule in rules
    )


def _has_port(rule: Mapping[str, Any], port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    return not ports or any(
        entry.get("protocol", "TCP") == protocol and ("port" not in entry or _is_within(entry, port)) for entry in ports
    )


def _is_within(entry: Mapping[str, Any], port: int) -> bool:
    assert isinstance(entry["port"], int), "ports are numbers"
    return bool(entry["port"] <= port <= entry.get("endPort", entry["port"]))


def _has_peer(peers: list[Any] | None, own: End, other: End) -> bool:
    return not peers or any(_is_peer(peer, own, other) for peer in peers)


def _is_peer(peer: Mapping[str, Any], own: End, other: End) -> bool:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        inside = _is_in(other.address, block["cidr"])
        return inside and not any(_is_in(other.address, network) for network in block.get("except", ()))
    if other.address:
        return False
    named = {"kubernetes.io/metadata.name": other.namespace}
    there = (
        _selects(peer["namespaceSelector"], named) if "namespaceSelector" in peer else own.namespace == other.namespace
    )
    return there and _selects(peer.get("podSelector", {}), other.labels)


def _is_in(address: str, block: str) -> bool:
    return bool(address) and ipaddress.ip_address(address) in ipaddress.ip_network(block)


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    labels_match = selector.get("matchLabels", {}).items() <= labels.items()
    return labels_match and all(_matches(expression, labels) for expression in selector.get("matchExpressions", ()))


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """After k8s.io/apimachinery/pkg/labels: `NotIn` also selects what has no such label."""
    value, operator = labels.get(expression["key"]), expression["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return bool((value is not None) == (operator == "Exists"))
    return bool((value in expression["values"]) == (operator == "In"))
