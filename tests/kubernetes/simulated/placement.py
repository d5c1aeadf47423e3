"""Which nodes can run a pod, why others cannot, and which is best: the scheduler's plugins as pure functions."""

from collections.abc import Mapping

from tests.kubernetes.simulated import pods
from tests.kubernetes.simulated.kinds import Object
from tests.kubernetes.simulated.quantities import amount, requests
from tests.kubernetes.simulated.selectors import by_expressions, expression

HOSTNAME = "kubernetes.io/hostname"


def filtered(pod: Object, nodes: list[Object], others: list[Object]) -> tuple[list[Object], list[list[str]]]:
    """The nodes that can run the pod, and the reasons of all others."""
    placed: dict[str, list[Object]] = {}
    for other in others:
        if other["spec"].get("nodeName") and not pods.is_finished(other):
            placed.setdefault(other["spec"]["nodeName"], []).append(other)
    domains = _Domains(pod, nodes, placed)
    refusals = {node["metadata"]["name"]: _refusals(pod, node, placed, domains) for node in nodes}
    fitting = [node for node in nodes if not refusals[node["metadata"]["name"]]]
    return fitting, [refusal for refusal in refusals.values() if refusal]


def _refusals(pod: Object, node: Object, placed: Mapping[str, list[Object]], domains: "_Domains") -> list[str]:
    """The reasons of the first plugin that refuses."""
    node_pods = placed.get(node["metadata"]["name"], [])
    if node["spec"].get("unschedulable") and not _tolerates_cordon(pod):
        return ["node(s) were unschedulable"]
    if not all(tolerates(pod, taint) for taint in hard_taints(node)):
        return ["node(s) had untolerated taint(s)"]
    if not _is_wanted(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    return _shortages(pod, node, node_pods) or domains.refusals(node)


def hard_taints(node: Object) -> list[Object]:
    taints = node["spec"].get("taints") or ()
    return [taint for taint in taints if taint["effect"] in ("NoSchedule", "NoExecute") and not _is_cordon(taint)]


def tolerates(pod: Object, taint: Object) -> Object | None:
    """The first toleration that fits the taint."""
    for toleration in pod["spec"].get("tolerations") or ():
        operator, key = toleration.get("operator") or "Equal", toleration.get("key")
        fits_key = key == taint["key"] or (not key and operator == "Exists")
        fits_value = operator == "Exists" or toleration.get("value", "") == taint.get("value", "")
        if fits_key and fits_value and toleration.get("effect") in (None, "", taint["effect"]):
            return dict(toleration)
    return None


def _is_cordon(taint: Object) -> bool:
    return bool(taint["key"] == "node.kubernetes.io/unschedulable")


def _tolerates_cordon(pod: Object) -> bool:
    return tolerates(pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}) is not None


def _is_wanted(pod: Object, node: Object) -> bool:
    labels, spec = node["metadata"].get("labels") or {}, pod["spec"]
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_term(term, node) for term in required["nodeSelectorTerms"])


def _term(term: Object, node: Object) -> bool:
    fields = {"metadata.name": node["metadata"]["name"]}
    labels = node["metadata"].get("labels") or {}
    return by_expressions(term)(labels) and all(
        expression(fields, **requirement) for requirement in term.get("matchFields") or ()
    )


def _shortages(pod: Object, node: Object, node_pods: list[Object]) -> list[str]:
    allocatable = node["status"]["allocatable"]
    taken = [requests(other) for other in node_pods]
    short = ["Too many pods"] if len(node_pods) + 1 > amount(allocatable.get("pods", "110")) else []
    for resource, requested in requests(pod).items():
        if requested + sum(amounts.get(resource, 0) for amounts in taken) > amount(allocatable.get(resource, "0")):
            short.append(f"Insufficient {resource}")
    return short


class _Domains:
    """Pod affinity and anti-affinity, both ways: of the pod to others, and of others to the pod."""

    def __init__(self, pod: Object, nodes: list[Object], placed: Mapping[str, list[Object]]) -> None:
        by_name = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}
        running = [(by_name.get(name, {}), other) for name, others in placed.items() for other in others]
        self._forbidden = _taken(pod, running, _affinity_terms(pod, "podAntiAffinity"))
        self._resented = {
            (term["topologyKey"], labels[term["topologyKey"]])
            for labels, other in running
            for term in _affinity_terms(other, "podAntiAffinity")
            if term["topologyKey"] in labels and _selects(term, other, pod)
        }

    def refusals(self, node: Object) -> list[str]:
        labels = node["metadata"].get("labels") or {}
        if self._forbidden & set(labels.items()):
            return ["node(s) didn't match pod anti-affinity rules"]
        if self._resented & set(labels.items()):
            return ["node(s) didn't satisfy existing pods anti-affinity rules"]
        return []


def _affinity_terms(pod: Object, kind: str) -> list[Object]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    affinity_terms: list[Object] = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []
    return affinity_terms


def _taken(pod: Object, running: list[tuple[Object, Object]], affinity_terms: list[Object]) -> set[tuple[str, str]]:
    """The places of the topology where a pod is that a term selects."""
    return {
        (term["topologyKey"], labels[term["topologyKey"]])
        for term in affinity_terms
        for labels, other in running
        if term["topologyKey"] in labels and _selects(term, pod, other)
    }


def _selects(term: Object, owner: Object, other: Object) -> bool:
    namespaces = term.get("namespaces") or [owner["metadata"]["namespace"]]
    labels = other["metadata"].get("labels") or {}
    return other["metadata"]["namespace"] in namespaces and by_expressions(term.get("labelSelector") or {})(labels)


def best(pod: Object, nodes: list[Object], others: list[Object]) -> str:
    """The node with the highest score: what the pod prefers, then the fewest pods, then its name."""
    placed = [other for other in others if other["spec"].get("nodeName") and not pods.is_finished(other)]
    counts: dict[str, int] = {}
    for other in placed:
        counts[other["spec"]["nodeName"]] = counts.get(other["spec"]["nodeName"], 0) + 1
    by_name = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}

    def order(node: Object) -> tuple[int, int, str]:
        name = node["metadata"]["name"]
        return -_preference(pod, node, placed, by_name), counts.get(name, 0), name

    return str(min(nodes, key=order)["metadata"]["name"])


def _preference(pod: Object, node: Object, placed: list[Object], by_name: Mapping[str, Mapping[str, str]]) -> int:
    affinity = pod["spec"].get("affinity") or {}
    soft = "preferredDuringSchedulingIgnoredDuringExecution"
    score = sum(
        preference["weight"]
        for preference in (affinity.get("nodeAffinity") or {}).get(soft) or ()
        if _term(preference["preference"], node)
    )
    labels = node["metadata"].get("labels") or {}
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for preference in (affinity.get(kind) or {}).get(soft) or ():
            term = preference["podAffinityTerm"]
            key = term["topologyKey"]
            near = [other for other in placed if by_name.get(other["spec"]["nodeName"], {}).get(key) == labels.get(key)]
            score += sign * preference["weight"] * sum(_selects(term, pod, other) for other in near)
    return int(score)
