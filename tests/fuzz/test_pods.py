"""Fuzzing: whatever texts others write on a pod, its facts can be read and its job has a status.

The API server keeps the form of a pod. What its annotations, its messages and its reasons say is free.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.resources.launchers.kubernetes import pod_facts, status
from slipway.resources.launchers.kubernetes.orders import JobOrder
from slipway.resources.launchers.kubernetes.pod_facts import INDEX
from slipway.resources.launchers.kubernetes.pods import DEFAULT_CONTAINER
from slipway.resources.launchers.kubernetes.status import wait_by_pods
from slipway.resources.launchers.kubernetes.workloads.protocol import WorkloadReading
from slipway.resources.launchers.protocol import JobState
from tests.fuzz.test_readers import FEW, MANY

pytestmark = pytest.mark.pure

TEXTS = st.text(max_size=12) | st.sampled_from(["0", "1", "-1", "1e3", "\u0663", "9" * 5000, "trainer", "other"])
TIMES = st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"])
CODES = st.integers(0, 255)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


STATES = st.one_of(
    st.builds(dict),
    some(waiting=some(reason=TEXTS, message=TEXTS)),
    some(running=some(startedAt=TIMES)),
    st.fixed_dictionaries(
        {
            "terminated": st.fixed_dictionaries(
                {"exitCode": CODES},
                optional={"reason": TEXTS, "message": TEXTS, "startedAt": TIMES, "finishedAt": TIMES},
            )
        }
    ),
)
CONTAINERS = st.lists(st.fixed_dictionaries({"name": TEXTS}, optional={"state": STATES}), max_size=2)
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["DisruptionTarget", "PodScheduled", "Ready"]),
            "status": st.sampled_from(["True", "False", "Unknown"]),
        },
        optional={"reason": TEXTS, "message": TEXTS, "lastTransitionTime": TIMES},
    ),
    max_size=2,
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": TEXTS},
            optional={
                "annotations": st.dictionaries(st.sampled_from([INDEX, DEFAULT_CONTAINER]), TEXTS),
                "creationTimestamp": TIMES,
                "deletionTimestamp": TIMES,
            },
        ),
        "spec": st.fixed_dictionaries({"containers": st.just([{"name": "trainer"}])}, optional={"nodeName": TEXTS}),
    },
    optional={
        "status": some(
            phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
            reason=TEXTS,
            message=TEXTS,
            conditions=CONDITIONS,
            containerStatuses=CONTAINERS,
            initContainerStatuses=CONTAINERS,
        )
    },
)
ORDER = JobOrder("job-1", "uid-1", "7", {}, submitted_at=900.0, cancellation=None)
READINGS = (None, WorkloadReading(JobState.RUNNING), WorkloadReading(JobState.FAILED, "backoff limit reached"))


def read(pods: list[dict[str, Any]]) -> None:
    facts = [pod_facts.of(pod) for pod in pods]
    assert all(pod.index >= -1 and isinstance(pod.explanation, str) for pod in facts)
    assert all(isinstance(pod_facts.last_output(pod), str) for pod in pods)
    wait_by_pods(facts)
    for reading in READINGS:
        job_status = status.of(ORDER, reading, facts, {"node-0"}, 2e9)
        assert job_status.state in JobState and isinstance(job_status.reason, str)


def test_whatever_is_written_on_pods_their_job_has_a_status():
    FEW(given(st.lists(PODS, max_size=3))(read))()


@pytest.mark.nightly
def test_whatever_is_written_on_pods_their_job_has_a_status_for_thousands():
    MANY(given(st.lists(PODS, max_size=3))(read))()


@pytest.mark.parametrize("text", ["", "one", "-1", "1.0", "٣", "9" * 5000])
def test_a_number_of_a_pod_that_is_none_counts_as_none(text: str):
    pod = {
        "metadata": {"name": "a", "annotations": {INDEX: text}},
        "spec": {"containers": [{"name": "trainer"}]},
    }
    assert pod_facts.of(pod).index == -1
