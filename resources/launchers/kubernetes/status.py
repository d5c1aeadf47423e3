"""Job status, from the order, the workload and the pods of a job. Pure.

The workload decides whether and how the job ended; the pods show why and where. Kubernetes reports a pod on a node that
does not answer as running for ever, so it is ignored after its grace period. Its processes may still run; the fence
prevents them from doing harm.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from slipway.resources.kubernetes.objects import KubernetesObject
from slipway.resources.launchers.kubernetes import pod_facts
from slipway.resources.launchers.kubernetes.orders import JobOrder
from slipway.resources.launchers.kubernetes.pod_facts import LOSSES, PodFacts
from slipway.resources.launchers.kubernetes.workloads.protocol import WorkloadReading
from slipway.resources.launchers.protocol import JobState, Status
from slipway.trainer.record import causes


def of(
    order: JobOrder, reading: WorkloadReading | None, pods: Sequence[PodFacts], silent: Collection[str], now: float
) -> Status:
    """The status at `now`, in seconds since the epoch; `silent` are the pods' nodes that are gone or not ready.

    Replaced pods are ignored.
    """
    pods = pod_facts.current(pods)
    stranded = [pod for pod in pods if is_overdue(pod, now) and pod.node in silent]
    open_pods = [pod for pod in pods if not pod.is_over and pod not in stranded]
    if order.cancellation:
        return _cancelled(order, reading, pods, stranded, open_pods)
    if reading is None and not open_pods:
        return Status(JobState.MISSING)
    if reading is None:
        return _live(order, JobState.RUNNING, "its workload was deleted, and its pods are ending", pods, stranded)
    ending = _ending(reading, pods, stranded, open_pods)
    if ending is not None:
        return _ended(order, ending, reading, pods, stranded)
    if any(pod.started_at for pod in pods):
        return _live(order, JobState.RUNNING, _losses(stranded), pods, stranded)
    return _live(order, JobState.PENDING, reading.reason, pods, stranded)


def is_overdue(pod: PodFacts, now: float) -> bool:
    """Whether the pod still exists although its grace period is over."""
    return not pod.is_over and pod.must_end_at is not None and now > pod.must_end_at


def wait_by_pods(pods: Iterable[PodFacts]) -> str:
    """The reasons for which pods do not start, each reason once."""
    wait_counts = Counter(pod.waits_for for pod in pods if pod.waits_for)
    return "; ".join(f"{_pods(count)}: {wait}" for wait, count in wait_counts.items())


def wait_by_queue(admissions: Iterable[KubernetesObject]) -> str:
    """Kueue's reasons for not admitting a job."""
    reasons = []
    for admission in admissions:
        for condition in admission.get("status", {}).get("conditions") or ():
            if condition["type"] in ("QuotaReserved", "Admitted") and condition["status"] == "False":
                queue = admission["spec"].get("queueName", "")
                reasons.append(f"the queue {queue} has not admitted it: {condition['message']}")
    return "; ".join(dict.fromkeys(reasons))


def wait_by_events(events: Iterable[KubernetesObject], name: str) -> str:
    """The latest warning about an object of the job that is called `name`."""
    warnings = (event for event in events if event.get("type") == "Warning")
    about = [event for event in warnings if _is_about(event["involvedObject"].get("name", ""), name)]
    if not about:
        return ""
    last = max(about, key=_when)
    subject = last["involvedObject"]
    return f"{subject['kind']} {subject['name']}: {last.get('reason', '')}: {last.get('message', '')}"


def _ending(
    reading: WorkloadReading, pods: Sequence[PodFacts], stranded: Sequence[PodFacts], open_pods: Sequence[PodFacts]
) -> JobState | None:
    """How the job ended; None while it may run. Some kinds of workload end before their pods, others wait for stranded
    pods too."""
    if open_pods or not (stranded or reading.state.terminal):
        return None
    # A process that obeys a SIGTERM exits with 0, although its work is not done.
    if any(pod.disruption for pod in pods):
        return JobState.FAILED
    return reading.state if reading.state.terminal else reading.ending or JobState.FAILED


def _cancelled(
    order: JobOrder,
    reading: WorkloadReading | None,
    pods: Sequence[PodFacts],
    stranded: Sequence[PodFacts],
    open_pods: Sequence[PodFacts],
) -> Status:
    """The status of a cancelled job. It has ended once its workload, which could start pods, and its pods are gone."""
    assert order.cancellation
    if open_pods or reading is not None:
        nodes = sorted({pod.node for pod in open_pods if pod.node})
        where = f" on {', '.join(nodes)}" if nodes else ""
        state = JobState.RUNNING if any(pod.started_at for pod in open_pods) else JobState.PENDING
        return _live(order, state, f"cancelled, and ending{where}", pods, stranded)
    return Status(
        JobState.STOPPED,
        "; ".join(filter(None, ["cancelled", _losses(stranded)])),
        nodes=_nodes(pods),
        lost_nodes=_lost(pods, stranded),
        submitted_at=order.submitted_at,
        started_at=_started_at(pods, None),
        ended_at=order.cancellation.at,
    )


def _live(
    order: JobOrder, state: JobState, reason: str, pods: Sequence[PodFacts], stranded: Sequence[PodFacts]
) -> Status:
    started_at = _started_at(pods, None)
    return Status(state, reason, _nodes(pods), _lost(pods, stranded), False, order.submitted_at, started_at)


def _ended(
    order: JobOrder, state: JobState, reading: WorkloadReading, pods: Sequence[PodFacts], stranded: Sequence[PodFacts]
) -> Status:
    failed = state is JobState.FAILED
    return Status(
        state,
        (_explanation(pods, stranded) or reading.reason) if failed else "",
        nodes=_nodes(pods),
        lost_nodes=_lost(pods, stranded) if failed else (),
        disrupted=failed and bool(reading.disrupted or stranded or any(pod.disruption for pod in pods)),
        submitted_at=order.submitted_at,
        started_at=_started_at(pods, reading),
        ended_at=reading.ended_at,
        kind=causes.KILLED if failed and any(pod.was_killed for pod in pods) else "",
    )


def _explanation(pods: Sequence[PodFacts], stranded: Sequence[PodFacts]) -> str:
    """Why the job failed, from its pods. Pods that ended only because of other pods are left out."""
    ended = [pod for pod in pods if pod.explanation and pod not in stranded]
    own = [pod for pod in ended if pod.must_end_at is None or pod.disruption]
    explanations = [pod.explanation for pod in own or ([] if stranded else ended)]
    return "; ".join(dict.fromkeys(filter(None, [*explanations, _losses(stranded)])))


def _losses(stranded: Iterable[PodFacts]) -> str:
    return "; ".join(f"{node} was lost: it does not answer; processes may still run there" for node in _nodes(stranded))


def _lost(pods: Iterable[PodFacts], stranded: Iterable[PodFacts]) -> tuple[str, ...]:
    return _nodes([*(pod for pod in pods if pod.disruption in LOSSES), *stranded])


def _nodes(pods: Iterable[PodFacts]) -> tuple[str, ...]:
    """The nodes that the pods are or were on, by name."""
    return tuple(sorted({pod.node for pod in pods if pod.node}))


def _started_at(pods: Iterable[PodFacts], reading: WorkloadReading | None) -> float | None:
    """When the first pod started; if the pods are gone, when the workload started."""
    starts = [pod.started_at for pod in pods if pod.started_at]
    if starts:
        return min(starts)
    return reading.started_at if reading else None


def _is_about(subject: str, name: str) -> bool:
    """Whether an object belongs to the job: controllers derive the names of their objects from the job's name."""
    return subject == name or subject.startswith(f"{name}-")


def _when(event: KubernetesObject) -> str:
    """The time of an event. All times are in UTC and in the same form, so texts can be compared."""
    return event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
