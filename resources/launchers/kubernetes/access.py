"""Access rights: the kinds of objects that Slipway reads and writes for its jobs, from the kinds of workload. Pure.

The mirror holds the `mirrored_kinds`, and the chart's role for launchers has the `rights`.
"""

from collections.abc import Iterable
from typing import Any

from slipway.resources.kubernetes.objects import CONFIG_MAPS, EVENTS, JOB, NODES, PODS, SERVICES, Resource
from slipway.resources.launchers.kubernetes.network import NETWORK_POLICIES
from slipway.resources.launchers.kubernetes.queues import LOCAL_QUEUES, POD_GROUPS, QUEUED_JOB, WORKLOADS
from slipway.resources.launchers.kubernetes.workloads import KINDS
from slipway.resources.launchers.kubernetes.workloads.protocol import Workload

Kinds = Iterable[Workload]
ALL = tuple(KINDS.values())
LOOK = ("get", "list", "watch")
MAKE = ("create", *LOOK, "delete")


def created_kinds(kinds: Kinds = ALL) -> tuple[Resource, ...]:
    """The kinds of the objects that launchers create besides the order and the store's pod."""
    return tuple(
        dict.fromkeys(
            [
                *(resource for kind in kinds for resource in (*kind.parts, kind.resource)),
                POD_GROUPS,
                SERVICES,
                NETWORK_POLICIES,
            ]
        )
    )


def mirrored_kinds(kinds: Kinds = ALL) -> dict[Resource, str]:
    """The kinds of objects in the mirror, which sensors read in every tick, each with the label of relevant objects."""
    return {
        CONFIG_MAPS: JOB,
        PODS: JOB,
        NODES: "",
        WORKLOADS: QUEUED_JOB,
        **{kind.resource: JOB for kind in kinds},
    }


def rights(kinds: Kinds = ALL) -> list[dict[str, Any]]:
    """The rules of the Role that may submit, watch and stop jobs."""
    created = [
        _rule(resource, *MAKE, "patch") if resource == SERVICES else _rule(resource, *MAKE)  # for model servers
        for resource in created_kinds(kinds)
    ]
    return [
        _rule(CONFIG_MAPS, *MAKE, "patch"),
        *created,
        _rule(PODS, *MAKE),
        {**_rule(PODS, "get"), "resources": [f"{PODS.plural}/log"]},
        _rule(EVENTS, "list", "watch"),
        *(_rule(resource, *LOOK) for resource in (LOCAL_QUEUES, WORKLOADS)),
    ]


def _rule(resource: Resource, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [resource.group], "resources": [resource.plural], "verbs": list(verbs)}
