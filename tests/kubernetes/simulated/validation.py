"""The API server's checks of an object's names, labels and immutable fields."""

import re
from collections.abc import Mapping

from tests.kubernetes.simulated import errors
from tests.kubernetes.simulated.kinds import CONFIG_MAPS, EVENTS, JOB_SETS, JOBS, SERVICES, Object, Resource

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(rf"{LABEL.pattern}(\.{LABEL.pattern})*")
VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
"""RFC 1035, which Services kept the longest."""

NAME_RULE = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"  # noqa: E501
VALUE_RULE = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"  # noqa: E501
FIXED_JOB = ("completionMode", "selector", "template", "podFailurePolicy", "backoffLimitPerIndex", "managedBy")


def check_new(resource: Resource, object: Object) -> None:
    metadata = object["metadata"]
    name = metadata.get("name", "")
    if not name:
        raise errors.invalid(resource, "", "metadata.name", "", "name or generateName is required")
    if resource != EVENTS and (not SUBDOMAIN.fullmatch(name) or len(name) > 253):
        raise errors.invalid(resource, name, "metadata.name", name, NAME_RULE)
    if resource == SERVICES and (not SERVICE.fullmatch(name) or len(name) > 63):
        raise errors.invalid(resource, name, "metadata.name", name, "a DNS-1035 label must be at most 63 characters")
    _check_labels(resource, name, metadata.get("labels") or {})
    if resource == JOBS:
        _check_pod_names(resource, name, name, object["spec"])
    if resource == JOB_SETS:
        for replicated in object["spec"]["replicatedJobs"]:
            last = f"{name}-{replicated['name']}-{replicated.get('replicas', 1) - 1}"
            _check_pod_names(resource, name, last, replicated["template"]["spec"])


def check_changed(resource: Resource, before: Object, after: Object) -> None:
    name = after["metadata"]["name"]
    _check_labels(resource, name, after["metadata"].get("labels") or {})
    if resource == CONFIG_MAPS and before.get("immutable") and before.get("data") != after.get("data"):
        raise errors.invalid(resource, name, "data", "", "field is immutable when `immutable` is set")
    if resource == JOBS:
        for field in FIXED_JOB:
            if before["spec"].get(field) != after["spec"].get(field) and not _may_be_moved(before, field):
                raise errors.invalid(resource, name, f"spec.{field}", "", "field is immutable")


def _may_be_moved(job: Object, field: str) -> bool:
    """The scheduling directives of a suspended Job's template may change until it first starts (KEP-2926)."""
    return field == "template" and job["spec"]["suspend"] and "startTime" not in job["status"]


def _check_labels(resource: Resource, name: str, labels: Mapping[str, str]) -> None:
    for value in labels.values():
        if len(value) > 63:
            raise errors.invalid(resource, name, "metadata.labels", value, "must be no more than 63 bytes")
        if not VALUE.fullmatch(value):
            raise errors.invalid(resource, name, "metadata.labels", value, VALUE_RULE)


def _check_pod_names(resource: Resource, name: str, prefix: str, spec: Object) -> None:
    """The host names of an Indexed Job's pods are ``<job>-<index>`` and must be DNS labels."""
    if spec.get("completionMode", "Indexed" if resource == JOB_SETS else "") != "Indexed":
        return
    longest = f"{prefix}-{max(spec.get('completions') or spec.get('parallelism') or 1, 1) - 1}"
    if len(longest) > 63 or not LABEL.fullmatch(longest):
        why = "will not able to create pod with invalid DNS label: " + longest
        raise errors.invalid(resource, name, "metadata.name", name, why)
