"""Label and field selectors of lists, watches and affinities."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from tests.kubernetes.simulated import errors
from tests.kubernetes.simulated.kinds import EVENTS, JOBS, NODES, PODS, Object, Resource

Test = Callable[[Object], bool]

FIELDS = {
    EVENTS: {
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
    },
    JOBS: {"status.successful"},
    NODES: {"spec.unschedulable"},
    PODS: {"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase", "status.podIP"},
}
"""The fields that can be selected by, besides name and namespace; of a custom resource these two alone."""

_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\((.*)\)$")


def by_labels(selector: str) -> Test:
    """The test of a `labelSelector`."""
    tests = [_requirement(part.strip()) for part in re.split(r",(?![^(]*\))", selector) if part.strip()]
    return lambda object: all(test(object["metadata"].get("labels") or {}) for test in tests)


def by_fields(resource: Resource, selector: str) -> Test:
    """The test of a `fieldSelector`. Raises 400 for a field that the kind cannot be selected by."""
    terms_of_selector: list[tuple[list[str], bool, str]] = []
    for part in filter(None, selector.split(",")):
        path, negated, value = _parted(part)
        if path not in FIELDS.get(resource, set()) | {"metadata.name", "metadata.namespace"}:
            raise errors.bad_request(f"field label not supported: {path}")
        terms_of_selector.append((path.split("."), negated, value))
    return lambda object: all((_at(object, path) == value) != negated for path, negated, value in terms_of_selector)


def by_expressions(selector: Mapping[str, object]) -> Callable[[Mapping[str, str]], bool]:
    """The test of a `labelSelector` object, or of a term of a node affinity, for labels."""
    labels = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or []
    assert isinstance(labels, Mapping) and isinstance(expressions, list)

    def matches(object_labels: Mapping[str, str]) -> bool:
        return all(object_labels.get(key) == value for key, value in labels.items()) and all(
            expression(object_labels, **requirement) for requirement in expressions
        )

    return matches


def expression(labels: Mapping[str, str], key: str, operator: str, values: list[str] | None = None) -> bool:
    """One requirement: In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    value, values = labels.get(key), values or []
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
        case "Gt":
            return value is not None and int(value) > int(values[0])
        case "Lt":
            return value is not None and int(value) < int(values[0])
    raise ValueError(f"{operator} is not an operator")


def _requirement(part: str) -> Callable[[Mapping[str, str]], bool]:
    if matched := _SET.match(part):
        key, operator, values = matched[1], {"in": "In", "notin": "NotIn"}[matched[2]], matched[3].split(",")
        return lambda labels: expression(labels, key, operator, [value.strip() for value in values])
    if "=" in part:
        key, negated, value = _parted(part)
        return lambda labels: (labels.get(key) == value) != negated
    if part.startswith("!"):
        return lambda labels: part[1:].strip() not in labels
    return lambda labels: part in labels


def _parted(part: str) -> tuple[str, bool, str]:
    """``a=b``, ``a==b`` or ``a!=b`` as key, whether it is negated, and value."""
    key, operator, value = re.split(r"(!=|==|=)", part, maxsplit=1)
    return key.strip(), operator == "!=", value.strip()


def _at(object: Object, path: list[str]) -> str:
    """The field as the API server compares it: a missing field is the empty string."""
    value: Any = object
    for key in path:
        value = value.get(key, "") if isinstance(value, Mapping) else ""
    return str(value).lower() if isinstance(value, bool) else str(value)
