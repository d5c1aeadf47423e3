"""Readings that several kinds of workload share: ended, suspended, made of Jobs. Pure."""

from collections.abc import Iterable, Mapping

from slipway.resources.kubernetes.objects import KubernetesObject, condition_reason, holding_conditions, time_seconds
from slipway.resources.launchers.kubernetes.queues import QUEUE
from slipway.resources.launchers.kubernetes.workloads.protocol import WorkloadReading
from slipway.resources.launchers.protocol import JobState


def ended(main: KubernetesObject, succeeded: str, failed: str) -> WorkloadReading | None:
    """How a workload ended, from the conditions of these types; None if neither is true."""
    conditions = holding_conditions(main)
    if failed in conditions:
        condition = conditions[failed]
        # A workload that is suspended after its start was pre-empted, however its pods ended.
        disrupted = is_disruption(condition) or "Suspended" in conditions
        reason = condition_reason(condition)
        return WorkloadReading(
            JobState.FAILED,
            f"disrupted: {reason}" if disrupted else reason,
            disrupted,
            submitted_at=submitted_at(main),
            ended_at=time_seconds(condition.get("lastTransitionTime")),
        )
    if succeeded in conditions:
        ended_at = time_seconds(conditions[succeeded].get("lastTransitionTime"))
        return WorkloadReading(JobState.SUCCEEDED, submitted_at=submitted_at(main), ended_at=ended_at)
    return None


def is_disruption(failed: Mapping[str, str]) -> bool:
    """Whether our rule for disruptions fired, in a Job's pod failure policy or a JobSet's failure policy."""
    return "DisruptionTarget" in failed.get("message", "") or failed.get("reason") == "FailJobSetFailurePolicyAction"


def suspended(main: KubernetesObject) -> WorkloadReading:
    """The reading of a suspended workload."""
    queue = main["metadata"].get("labels", {}).get(QUEUE)
    reason = f"suspended: queue {queue} has not admitted it" if queue else "suspended"
    return WorkloadReading(JobState.PENDING, reason, submitted_at=submitted_at(main))


def replicated(main: KubernetesObject, statuses: Iterable[Mapping[str, int]]) -> WorkloadReading:
    """The reading of a workload made of Jobs, from its counts of them. A Job is ready if all its pods are."""
    counts = list(statuses)
    at = submitted_at(main)
    if any(status.get("ready", 0) for status in counts):
        return WorkloadReading(JobState.RUNNING, submitted_at=at)
    if any(status.get("active", 0) for status in counts):
        return WorkloadReading(JobState.PENDING, "not all of its pods are ready", submitted_at=at)
    return WorkloadReading(JobState.PENDING, "it has no pods yet", submitted_at=at)


def submitted_at(main: KubernetesObject) -> float | None:
    """When the API server created it, in seconds since the epoch."""
    return time_seconds(main["metadata"].get("creationTimestamp"))
