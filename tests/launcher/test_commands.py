"""What nodes run, and what ranks find in their environment."""

import dataclasses
import sys
from pathlib import Path

from resources.launcher.commands import keeper_environment, rank_command, rank_environment
from resources.launcher.folder import Order
from resources.launcher.protocol import Job

JOB = Job("job-1", ("python", "-m", "trainer"), {}, ("node-0", "node-1"))
LONE = dataclasses.replace(JOB, nodes=("node-0",))
CONFIG = Path("/jobs/job-1/config.json")


def environment(job: Job, **inherited: str) -> dict[str, str]:
    return rank_environment(Order(job, Path("/fleet"), node_cores=8), "node-0", inherited)


def test_a_lone_rank_needs_no_agent():
    assert rank_command(LONE, CONFIG, 0)[1:] == ["-m", "trainer", str(CONFIG)]


def test_several_ranks_meet_at_a_store_that_no_node_hosts():
    command = rank_command(JOB, CONFIG, 4242)
    assert command[1:4] == ["-P", "-m", "torch.distributed.run"]
    assert {"--nnodes=2", "--nproc-per-node=1", "--rdzv-endpoint=127.0.0.1:4242", "--rdzv-id=job-1"} <= set(command)
    assert any("is_host=0" in argument for argument in command)
    assert command[-5:] == ["--no-python", sys.executable, "-m", "trainer", str(CONFIG)]


def test_a_command_that_is_not_python_is_run_as_it_is():
    assert rank_command(dataclasses.replace(LONE, command=("./train", "--fast")), CONFIG, 0) == [
        *("./train", "--fast"),
        str(CONFIG),
    ]


def test_the_cores_of_a_node_are_shared_by_its_ranks():
    assert environment(JOB)["OMP_NUM_THREADS"] == "8"
    assert environment(dataclasses.replace(JOB, ranks_per_node=8))["OMP_NUM_THREADS"] == "1"


def test_a_given_number_of_threads_is_left_alone():
    assert environment(JOB, OMP_NUM_THREADS="3")["OMP_NUM_THREADS"] == "3"
    asked = dataclasses.replace(JOB, environment={"OMP_NUM_THREADS": "2"})
    assert environment(asked, OMP_NUM_THREADS="3")["OMP_NUM_THREADS"] == "2"


def test_the_code_comes_first_on_the_path():
    assert keeper_environment(Path("/code"), {}) == {"PYTHONPATH": "/code"}
    assert keeper_environment(Path("/code"), {"PYTHONPATH": "/mine"}) == {"PYTHONPATH": "/code:/mine"}


def test_a_job_does_not_carry_the_mark_of_the_control_plane():
    assert "SLIPWAY_CONTROL_PLANE" not in keeper_environment(Path("/code"), {"SLIPWAY_CONTROL_PLANE": "1"})


def test_a_job_cannot_pretend_to_be_on_another_node():
    asked = dataclasses.replace(JOB, environment={"SLIPWAY_NODE": "node-9"})
    assert environment(asked)["SLIPWAY_NODE"] == "node-0"
