"""What the conditions of a workload say, and when: what all kinds share."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from resources.kubernetes.objects import Object
from resources.kubernetes.queues import QUEUE
from resources.kubernetes.workloads.protocol import Reading
from resources.launcher.protocol import State


def holding(main: Object) -> dict[str, Object]:
    """The conditions that hold, by type."""
    return {each["type"]: each for each in main.get("status", {}).get("conditions") or () if each["status"] == "True"}


def why(condition: Mapping[str, str]) -> str:
    """What a condition says for itself."""
    message, reason = condition.get("message", ""), condition.get("reason", "")
    return f"{message} ({reason})" if message and reason else message or reason


def ended(main: Object, succeeded: str, failed: str) -> Reading | None:
    """How it ended, from the conditions of these types; None while neither holds."""
    held = holding(main)
    for kind, state in ((failed, State.FAILED), (succeeded, State.SUCCEEDED)):
        if condition := held.get(kind):
            # What is suspended once it has begun is pre-empted; how its pods took that may count as an error of theirs.
            disrupted = state is State.FAILED and (is_disruption(condition) or "Suspended" in holding(main))
            reason = f"{'disrupted: ' if disrupted else ''}{why(condition)}" if state is State.FAILED else ""
            at = seconds(condition.get("lastTransitionTime"))
            return Reading(state, reason, disrupted, submitted_at=submitted_at(main), ended_at=at)
    return None


def is_disruption(failed: Mapping[str, str]) -> bool:
    """Whether our rule for disruptions is what fired: a Job's pod failure policy, or a JobSet's failure policy."""
    return "DisruptionTarget" in failed.get("message", "") or failed.get("reason") == "FailJobSetFailurePolicyAction"


def suspended(main: Object) -> Reading:
    """Of a workload that is held back."""
    queue = main["metadata"].get("labels", {}).get(QUEUE)
    reason = f"suspended: queue {queue} has not admitted it" if queue else "suspended"
    return Reading(State.PENDING, reason, submitted_at=submitted_at(main))


def replicated(main: Object, statuses: Iterable[Mapping[str, int]]) -> Reading:
    """Of a workload made of Jobs, from the counts that it keeps of them: a Job is ready when all of its pods are."""
    counts = list(statuses)
    at = submitted_at(main)
    if any(each.get("ready", 0) for each in counts):
        return Reading(State.RUNNING, submitted_at=at)
    if any(each.get("active", 0) for each in counts):
        return Reading(State.PENDING, "not all of its pods are ready", submitted_at=at)
    return Reading(State.PENDING, "it has no pods yet", submitted_at=at)


def submitted_at(main: Object) -> float | None:
    """When the API server took it."""
    return seconds(main["metadata"].get("creationTimestamp"))


def seconds(text: str | None) -> float | None:
    """A time of the API (RFC 3339) as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp() if text else None
