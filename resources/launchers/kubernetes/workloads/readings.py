"""The readings that several kinds of workload share: ended, suspended, made of Jobs. Pure."""

from collections.abc import Iterable, Mapping

from slipway.resources.kubernetes.objects import KubernetesObject, condition_reason, holding_conditions, time_seconds
from slipway.resources.launchers.kubernetes.queues import QUEUE
from slipway.resources.launchers.kubernetes.workloads.protocol import WorkloadReading
from slipway.resources.launchers.protocol import JobState


def ended(main: KubernetesObject, succeeded: str, failed: str) -> WorkloadReading | None:
    """How it ended, from the conditions of these types; None while neither holds."""
    conditions = holding_conditions(main)
    for kind, state in ((failed, JobState.FAILED), (succeeded, JobState.SUCCEEDED)):
        if condition := conditions.get(kind):
            # A workload that is suspended after it has begun is pre-empted, whatever its pods made of that.
            disrupted = state is JobState.FAILED and (is_disruption(condition) or "Suspended" in conditions)
            reason = (
                f"{'disrupted: ' if disrupted else ''}{condition_reason(condition)}" if state is JobState.FAILED else ""
            )
            at = time_seconds(condition.get("lastTransitionTime"))
            return WorkloadReading(state, reason, disrupted, submitted_at=submitted_at(main), ended_at=at)
    return None


def is_disruption(failed: Mapping[str, str]) -> bool:
    """Whether our rule for disruptions fired: a Job's pod failure policy, or a JobSet's failure policy."""
    return "DisruptionTarget" in failed.get("message", "") or failed.get("reason") == "FailJobSetFailurePolicyAction"


def suspended(main: KubernetesObject) -> WorkloadReading:
    """The reading of a workload that is held back."""
    queue = main["metadata"].get("labels", {}).get(QUEUE)
    reason = f"suspended: queue {queue} has not admitted it" if queue else "suspended"
    return WorkloadReading(JobState.PENDING, reason, submitted_at=submitted_at(main))


def replicated(main: KubernetesObject, statuses: Iterable[Mapping[str, int]]) -> WorkloadReading:
    """The reading of a workload made of Jobs, from its counts of them: a Job is ready when all of its pods are."""
    counts = list(statuses)
    at = submitted_at(main)
    if any(status.get("ready", 0) for status in counts):
        return WorkloadReading(JobState.RUNNING, submitted_at=at)
    if any(status.get("active", 0) for status in counts):
        return WorkloadReading(JobState.PENDING, "not all of its pods are ready", submitted_at=at)
    return WorkloadReading(JobState.PENDING, "it has no pods yet", submitted_at=at)


def submitted_at(main: KubernetesObject) -> float | None:
    """When the API server created it, seconds since the epoch."""
    return time_seconds(main["metadata"].get("creationTimestamp"))
