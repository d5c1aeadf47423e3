"""Elastic membership: a node that joins restarts all ranks under a generation of their own."""

import socket
import subprocess

import pytest

from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.conftest import until
from tests.trainer.conftest import Training, wait


def agent(training: Training, port: int) -> "subprocess.Popen[str]":
    """A node of one rank, which trains with one or two nodes."""
    rendezvous = f"--rdzv-endpoint=127.0.0.1:{port}"
    conf = "--rdzv-conf=last_call_timeout=1,join_timeout=120"
    return training.spawn(
        *("torch.distributed.run", "--nnodes=1:2", "--nproc-per-node=1", "--local-addr=127.0.0.1"),
        *("--rdzv-backend=c10d", rendezvous, conf, "--rdzv-id=tiny", "--monitor-interval=0.2", "--max-restarts=0"),
        *("-m", "slipway.trainer", str(training.config)),
        SLIPWAY_INCARNATION="1",
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
    )


def worlds(training: Training) -> list[int]:
    return [event["world"] for event in training.events("started")]


@pytest.mark.slow
def test_a_node_that_joins_restarts_all_ranks_under_the_next_generation(training: Training) -> None:
    training.configure(run={"steps": 100_000})
    assert fence.claim(training.store, Token(1), nodes=("a", "b"), cause="a test", by="a test")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    first = agent(training, port)
    until(lambda: training.commits(), "the first checkpoint of one rank", 120)
    second = agent(training, port)
    until(lambda: worlds(training) == [1, 2] and training.events("restored"), "both ranks", 120)
    newest_claim = fence.newest_claim(training.store)
    assert newest_claim is not None and newest_claim.token == Token(1, 1)
    assert {commit.token for commit in training.commits()} >= {Token(1)}
    until(lambda: Token(1, 1) in {commit.token for commit in training.commits()}, "a checkpoint of both", 120)
    for node_agent in (first, second):
        node_agent.kill()
    for node_agent in (first, second):
        wait(node_agent)
