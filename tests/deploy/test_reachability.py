"""The evaluator of NetworkPolicies: each rule of their semantics by itself."""

from typing import Any

import pytest

from tests.deploy.reachability import End, reaches

pytestmark = pytest.mark.pure

A, B, OTHER_NAMESPACE = End("n", {"app": "a"}), End("n", {"app": "b"}), End("m", {"app": "b"})
WORLD = End(address="203.0.113.9")


def policy(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": {"podSelector": {}, **spec}}


def egress(*rules: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return policy(policyTypes=["Egress"], egress=list(rules), **spec)


def test_pods_that_no_policy_selects_are_open():
    assert reaches([], A, B, 80)
    assert reaches([egress(podSelector={"matchLabels": {"app": "b"}})], A, B, 80)


def test_a_selected_pod_lets_nothing_through_but_what_some_rule_allows():
    to_b = {"to": [{"podSelector": {"matchLabels": {"app": "b"}}}]}
    assert not reaches([egress()], A, B, 80)
    assert reaches([egress(), egress(to_b)], A, B, 80), "policies add up"
    assert not reaches([egress(to_b)], A, OTHER_NAMESPACE, 80), "a pod selector alone stays in the policy's namespace"


def test_both_ends_must_let_a_connection_through():
    shut = policy(policyTypes=["Ingress"], podSelector={"matchLabels": {"app": "b"}})
    assert not reaches([shut], A, B, 80) and reaches([shut], B, A, 80)


def test_a_rule_that_names_nobody_means_everybody():
    assert reaches([egress({"ports": [{"port": 443}]})], A, WORLD, 443)
    assert not reaches([egress({"ports": [{"port": 443}]})], A, WORLD, 80)


def test_ports_are_of_a_protocol_and_may_be_a_range():
    rule = {"ports": [{"protocol": "UDP", "port": 53}, {"port": 8000, "endPort": 8010}]}
    reachable = {(port, protocol): reaches([egress(rule)], A, B, port, protocol) for port, protocol in PORTS}
    assert reachable == {
        (53, "UDP"): True,
        (53, "TCP"): False,
        (8000, "TCP"): True,
        (8010, "TCP"): True,
        (8011, "TCP"): False,
    }


PORTS = [(53, "UDP"), (53, "TCP"), (8000, "TCP"), (8010, "TCP"), (8011, "TCP")]


def test_a_block_of_addresses_has_exceptions_and_no_pods():
    block = {"to": [{"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.128/25"]}}]}
    assert reaches([egress(block)], A, WORLD, 443)
    assert not reaches([egress(block)], A, End(address="203.0.113.200"), 443)
    assert not reaches([egress(block)], A, B, 443)


def test_a_namespace_selector_with_a_pod_selector_needs_both():
    there = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "m"}}}
    assert reaches([egress({"to": [there]})], A, OTHER_NAMESPACE, 80) and not reaches(
        [egress({"to": [there]})], A, B, 80
    )
    both = {**there, "podSelector": {"matchLabels": {"app": "c"}}}
    assert not reaches([egress({"to": [both]})], A, OTHER_NAMESPACE, 80)


@pytest.mark.parametrize(
    ("operator", "values", "selected"),
    [
        ("In", ["b"], True),
        ("NotIn", ["b"], False),
        ("NotIn", ["c"], True),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ],
)
def test_expressions_select_as_labels_do(operator: str, values: list[str] | None, selected: bool):
    expression = {"key": "app", "operator": operator, **({"values": values} if values else {})}
    rule = {"to": [{"podSelector": {"matchExpressions": [expression]}}]}
    assert reaches([egress(rule)], A, B, 80) is selected


def test_what_lacks_a_label_is_not_in_its_values():
    expression = {"key": "role", "operator": "NotIn", "values": ["x"]}
    assert reaches([egress({"to": [{"podSelector": {"matchExpressions": [expression]}}]})], A, B, 80)
