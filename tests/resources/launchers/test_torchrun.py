"""The command of a node and the environment of its ranks, which all launchers share."""

import dataclasses
from pathlib import Path

import pytest

from slipway.resources.kubernetes.cluster import Cluster
from slipway.resources.launchers.environment import LONE_RANK, rank_environment
from slipway.resources.launchers.kubernetes import pods, store
from slipway.resources.launchers.local.folder import LocalOrder
from slipway.resources.launchers.local.local_process import keeper_environment, local_rank_environment
from slipway.resources.launchers.protocol import Job
from slipway.resources.launchers.torchrun import node_command

pytestmark = pytest.mark.pure

JOB = Job("job-1", ("python", "train.py"), {}, ("node-0", "node-1"))
BUILT_IN = dataclasses.replace(JOB, command=("python", "-m", "slipway.trainer"))
LONE = dataclasses.replace(JOB, nodes=("node-0",))
CONFIG = "/jobs/job-1/config.json"
NODE_PROCESS = ["/bin/python", "-P", "-m", "slipway.trainer.node.process"]


def command(job: Job) -> list[str]:
    return node_command(job, CONFIG, "10.0.0.1:4242", python="/bin/python")


def local_environment(job: Job, **inherited: str) -> dict[str, str]:
    return local_rank_environment(LocalOrder(job, Path("/fleet"), node_cores=8), "node-0", inherited)


def test_a_lone_rank_needs_no_agent():
    assert command(LONE) == [*NODE_PROCESS, "rank", "", "/bin/python", "train.py", CONFIG]


@pytest.mark.parametrize("nodes", [("node-0",), ("node-0", "node-1")])
def test_the_built_in_trainer_has_a_supervisor_on_each_node(nodes: tuple[str, ...]):
    arguments = command(dataclasses.replace(BUILT_IN, nodes=nodes))
    assert arguments[:9] == [*NODE_PROCESS, "supervisor", "", "/bin/python", "-P", "-m"]
    assert arguments[9:] == [
        "slipway.trainer.supervisor",
        *(f"--nnodes={len(nodes)}", "--nproc-per-node=1", "--rdzv-id=job-1", "--rdzv-endpoint=10.0.0.1:4242", CONFIG),
    ]


def test_several_ranks_meet_at_the_endpoint_of_their_launcher():
    arguments = command(JOB)
    assert arguments[:9] == [*NODE_PROCESS, "agent", "", "/bin/python", "-P", "-m"]
    assert {"--nnodes=2", "--nproc-per-node=1", "--rdzv-endpoint=10.0.0.1:4242", "--rdzv-id=job-1"} <= set(arguments)
    assert arguments[-4:] == ["--no-python", "/bin/python", "train.py", CONFIG]


def test_torchrun_restarts_nothing():
    assert "--max-restarts=0" in command(JOB)


def test_an_elastic_job_states_its_smallest_number_of_nodes():
    for job in (JOB, BUILT_IN):
        assert "--nnodes=1:2" in command(dataclasses.replace(job, least=1))


def test_a_command_that_is_not_python_is_run_as_it_is():
    assert command(dataclasses.replace(LONE, command=("./train", "--fast")))[-3:] == ["./train", "--fast", CONFIG]


def test_both_launchers_give_torchrun_the_same_arguments():
    in_a_pod = pods.command("job-1", JOB)
    on_this_machine = node_command(
        JOB, f"{pods.CONFIG_FOLDER}/{pods.CONFIG_FILE}", store.endpoint("job-1", JOB), "python"
    )
    assert in_a_pod == on_this_machine


def test_both_launchers_give_ranks_the_same_environment():
    cluster = Cluster(image="trainer:1", resources={"cpu": "8"})
    [container] = pods.template("job-1", LONE, cluster)["spec"]["containers"]
    shared = rank_environment(LONE, 8, {})
    assert shared.items() <= local_environment(LONE).items()
    assert shared.items() <= {variable["name"]: variable.get("value") for variable in container["env"]}.items()


def test_a_lone_rank_is_told_what_torchrun_would_tell_it():
    assert LONE_RANK.items() <= rank_environment(LONE, None, {"RANK": "7"}).items()
    assert "RANK" not in rank_environment(JOB, None, {})


@pytest.mark.parametrize(("ranks", "threads"), [(1, "8"), (2, "4"), (16, "1")])
def test_the_cores_of_a_node_are_shared_by_its_ranks(ranks: int, threads: str):
    environment = rank_environment(dataclasses.replace(JOB, ranks_per_node=ranks), 8, {})
    assert environment["OMP_NUM_THREADS"] == threads


def test_a_given_number_of_threads_is_left_alone():
    inherited = {"OMP_NUM_THREADS": "3"}
    assert rank_environment(JOB, 8, inherited)["OMP_NUM_THREADS"] == "3"
    with_threads = dataclasses.replace(JOB, environment={"OMP_NUM_THREADS": "2"})
    assert rank_environment(with_threads, 8, inherited)["OMP_NUM_THREADS"] == "2"


def test_the_code_comes_first_on_the_path():
    assert keeper_environment(Path("/code"), {}) == {"PYTHONPATH": "/code"}
    assert keeper_environment(Path("/code"), {"PYTHONPATH": "/mine"}) == {"PYTHONPATH": "/code:/mine"}


def test_a_job_does_not_carry_the_mark_of_the_control_plane():
    assert "SLIPWAY_CONTROL_PLANE" not in keeper_environment(Path("/code"), {"SLIPWAY_CONTROL_PLANE": "1"})


def test_a_job_cannot_pretend_to_be_on_another_node():
    pretender = dataclasses.replace(JOB, environment={"SLIPWAY_NODE": "node-9"})
    assert local_environment(pretender)["SLIPWAY_NODE"] == "node-0"


def test_no_node_of_a_local_job_hosts_the_store_wherever_its_submitter_runs():
    assert "JOB_COMPLETION_INDEX" not in local_environment(JOB, JOB_COMPLETION_INDEX="0")
