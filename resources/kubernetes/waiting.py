"""Why a job does not run yet, as its pods, its queue and the events of what belongs to it tell it. Pure."""

from collections import Counter
from collections.abc import Iterable

from resources.kubernetes.objects import Object
from resources.kubernetes.pod_facts import PodFacts


def by_pods(pods: Iterable[PodFacts]) -> str:
    """What keeps pods from starting, each thing once."""
    waits = Counter(pod.waits for pod in pods if pod.waits)
    return "; ".join(f"{_pods(count)}: {wait}" for wait, count in waits.items())


def by_queue(admissions: Iterable[Object]) -> str:
    """What Kueue's objects say of a job that has not been admitted."""
    said = []
    for admission in admissions:
        for condition in admission.get("status", {}).get("conditions") or ():
            if condition["type"] in ("QuotaReserved", "Admitted") and condition["status"] == "False":
                said.append(f"the queue {admission['spec'].get('queueName', '')} holds it: {condition['message']}")
    return "; ".join(dict.fromkeys(said))


def by_events(events: Iterable[Object], name: str) -> str:
    """The latest warning about an object of the job that is called `name`."""
    warnings = (event for event in events if event.get("type") == "Warning")
    about = [event for event in warnings if _is_about(event["involvedObject"].get("name", ""), name)]
    if not about:
        return ""
    last = max(about, key=_when)
    subject = last["involvedObject"]
    return f"{subject['kind']} {subject['name']}: {last.get('reason', '')}: {last.get('message', '')}"


def _is_about(subject: str, name: str) -> bool:
    """Controllers name what they make after what it is for."""
    return subject == name or subject.startswith(f"{name}-")


def _when(event: Object) -> str:
    """All are in UTC and in one form, so that they compare as texts."""
    return event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
