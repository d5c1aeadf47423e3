"""Why a job does not run yet: from its pods, its queue and the events of its objects. Pure."""

from collections import Counter
from collections.abc import Iterable

from slipway.resources.kubernetes.objects import KubernetesObject
from slipway.resources.launchers.kubernetes.pod_facts import PodFacts


def by_pods(pods: Iterable[PodFacts]) -> str:
    """What keeps pods from starting, each reason once."""
    waits = Counter(pod.waits_for for pod in pods if pod.waits_for)
    return "; ".join(f"{_pods(count)}: {wait}" for wait, count in waits.items())


def by_queue(admissions: Iterable[KubernetesObject]) -> str:
    """Kueue's reasons for not admitting a job."""
    reasons = []
    for admission in admissions:
        for condition in admission.get("status", {}).get("conditions") or ():
            if condition["type"] in ("QuotaReserved", "Admitted") and condition["status"] == "False":
                reasons.append(f"the queue {admission['spec'].get('queueName', '')} holds it: {condition['message']}")
    return "; ".join(dict.fromkeys(reasons))


def by_events(events: Iterable[KubernetesObject], name: str) -> str:
    """The latest warning about an object of the job that is called `name`."""
    warnings = (event for event in events if event.get("type") == "Warning")
    about = [event for event in warnings if _is_about(event["involvedObject"].get("name", ""), name)]
    if not about:
        return ""
    last = max(about, key=_when)
    subject = last["involvedObject"]
    return f"{subject['kind']} {subject['name']}: {last.get('reason', '')}: {last.get('message', '')}"


def _is_about(subject: str, name: str) -> bool:
    """Controllers name the objects that they make after the object they make them for."""
    return subject == name or subject.startswith(f"{name}-")


def _when(event: KubernetesObject) -> str:
    """The time of an event. All times are in UTC and in one form, so they compare as texts."""
    return event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
