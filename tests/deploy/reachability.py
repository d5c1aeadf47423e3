"""Which connections NetworkPolicies allow: an evaluator over rendered objects."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.deploy.rendering import Object, place


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
        if place(policy) == own.namespace
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
    return not ports or any(each["port"] == port and each.get("protocol", "TCP") == protocol for each in ports)


def _has_peer(peers: list[Any] | None, own: End, other: End) -> bool:
    return not peers or any(_is_peer(peer, own, other) for peer in peers)


def _is_peer(peer: Mapping[str, Any], own: End, other: End) -> bool:
    if "ipBlock" in peer:
        return bool(other.address) and ipaddress.ip_address(other.address) in ipaddress.ip_network(
            peer["ipBlock"]["cidr"]
        )
    if other.address:
        return False
    named = {"kubernetes.io/metadata.name": other.namespace}
    there = (
        _selects(peer["namespaceSelector"], named) if "namespaceSelector" in peer else own.namespace == other.namespace
    )
    return there and _selects(peer.get("podSelector", {}), other.labels)


def _selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(_matches(each, labels) for each in selector.get("matchExpressions", ()))


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(expression["key"])
    return value is not None if expression["operator"] == "Exists" else value in expression["values"]
