"""The completion indexes of an Indexed Job, and how its status writes them (``0,1,3-5``)."""

from collections.abc import Iterable

from tests.kubernetes.simulated import pods
from tests.kubernetes.simulated.kinds import Object

INDEX = "batch.kubernetes.io/job-completion-index"


def is_indexed(job: Object) -> bool:
    return bool(job["spec"]["completionMode"] == "Indexed")


def of(pod: Object) -> int:
    """The index of a pod; -1 where it has none."""
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def completed(job: Object, job_pods: list[Object]) -> set[int]:
    """The indexes in the status, and those of pods that have succeeded since."""
    return read(job["status"].get("completedIndexes", "")) | {
        of(pod) for pod in job_pods if pods.phase(pod) == "Succeeded"
    }


def read(text: str) -> set[int]:
    spans = [span.split("-") for span in text.split(",") if span]
    return {index for span in spans for index in range(int(span[0]), int(span[-1]) + 1)}


def written(indexes: Iterable[int]) -> str:
    spans: list[list[int]] = []
    for index in sorted(indexes):
        if spans and spans[-1][-1] == index - 1:
            spans[-1][1:] = [index]
        else:
            spans.append([index])
    return ",".join(f"{span[0]}-{span[-1]}" if span[-1] > span[0] + 1 else ",".join(map(str, span)) for span in spans)
