"""Jobs on a network that enforces policies: a pod of one job reaches none of another's ports, in either direction.

What the policies allow is read from the objects in `tests/deploy/test_network.py`; here packets try it. That they fail
means something only where others arrive, so that jobs without a policy try too; on the simulated cluster, which has no
network of its own, only these do.
"""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slipway.resources.kubernetes.objects import JOB, NODES, PODS
from slipway.resources.launchers.kubernetes import names
from slipway.resources.launchers.kubernetes.launcher import KubernetesLauncher
from slipway.resources.launchers.kubernetes.workloads.indexed_job import IndexedJob
from slipway.resources.launchers.protocol import Job, JobState
from tests.conftest import Marked, until
from tests.kubernetes import grounds
from tests.kubernetes.grounds import Ground
from tests.s3 import free_ports

pytestmark = pytest.mark.slow
REAL = pytest.param("real", marks=pytest.mark.cluster)
on_a_real_cluster = pytest.mark.parametrize("ground", [REAL], indirect=True)
LISTEN = "import socket, time; found = socket.create_server(('', {port})); time.sleep(3600)"
CONNECT = """
import socket, time
for _ in range(20):
    try:
        socket.create_connection(('{address}', {port}), 3)
    except OSError:
        time.sleep(0.5)
    else:
        raise SystemExit(0)
raise SystemExit(7)
"""
"""It tries for as long as a network plugin may take to know a new pod."""


@pytest.fixture(params=["simulated", REAL])
def ground(request: pytest.FixtureRequest, marked: Marked, tmp_path: Path) -> Iterator[Ground]:
    test_ground = grounds.asked_for(request, tmp_path, grace_seconds=1)
    yield test_ground
    test_ground.clear()


def launcher(ground: Ground, *, alone: bool) -> KubernetesLauncher:
    return KubernetesLauncher(ground.client, replace(ground.cluster, network_policy=alone), IndexedJob())


def submitted(ground: Ground, program: str, *, alone: bool) -> Job:
    """A job of one pod that runs a program of Python."""
    [node, *_] = [node["metadata"]["name"] for node in ground.client.list(NODES, {})]
    job = Job(f"isolation-{uuid.uuid4().hex[:8]}", ("python", "-c", program), {}, (node,), folder="/tmp")
    launcher(ground, alone=alone).submit(job)
    return job


def listening(ground: Ground, port: int, *, alone: bool) -> str:
    """The address of a job's pod that listens on a port."""
    job = submitted(ground, LISTEN.format(port=port), alone=alone)

    def address() -> str:
        job_pods = ground.client.list(PODS, {JOB: names.object_name(job.name)})
        running = [pod["status"] for pod in job_pods if pod["status"].get("phase") == "Running"]
        return str(running[0].get("podIP", "")) if running else ""

    return until(address, f"the pod of {job.name} to run")


def connects(ground: Ground, address: str, port: int, *, alone: bool) -> bool:
    job = submitted(ground, CONNECT.format(address=address, port=port), alone=alone)
    poll = launcher(ground, alone=alone).poll
    until(lambda: poll(job.name).state.terminal, f"{job.name} to end")
    return poll(job.name).state is JobState.SUCCEEDED


def test_pods_that_no_policy_selects_reach_each_other(ground: Ground):
    [port] = free_ports(1)
    assert connects(ground, listening(ground, port, alone=False), port, alone=False)


@on_a_real_cluster
def test_a_connection_to_a_port_on_which_nobody_listens_is_told_from_one_that_arrives(ground: Ground):
    used, free = free_ports(2)
    assert not connects(ground, listening(ground, used, alone=False), free, alone=False)


@on_a_real_cluster
@pytest.mark.parametrize(("listener_alone", "caller_alone"), [(True, True), (True, False), (False, True)])
def test_a_pod_of_a_job_reaches_no_port_of_another_and_none_reaches_its_own(
    ground: Ground, listener_alone: bool, caller_alone: bool
):
    [port] = free_ports(1)
    address = listening(ground, port, alone=listener_alone)
    assert not connects(ground, address, port, alone=caller_alone)
