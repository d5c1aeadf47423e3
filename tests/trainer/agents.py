"""Nodes for a test: one torchrun agent of one rank for each, with a name and an NVMe folder of its own."""

import socket
import subprocess
from collections.abc import Sequence

from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.conftest import until
from tests.trainer.conftest import Training, wait


def started(
    training: Training, names: Sequence[str], incarnation: int, freeze: str = ""
) -> "list[subprocess.Popen[str]]":
    """The agents of these nodes, in their order, for one incarnation. The first hosts their meeting.

    `freeze` gives the steps of `tests.trainer.frozen`.
    """
    module = ["tests.trainer.frozen", freeze] if freeze else ["slipway.trainer"]
    assert fence.claim(training.store, Token(incarnation), nodes=tuple(names), cause="a test", by="a test")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return [
        training.spawn(
            *("torch.distributed.run", f"--nnodes={len(names)}", "--nproc-per-node=1", f"--node-rank={number}"),
            *("--master-addr=127.0.0.1", f"--master-port={port}"),
            *("--monitor-interval=0.2", "--max-restarts=0", "-m", *module, str(training.config)),
            SLIPWAY_NODE=name,
            SLIPWAY_INCARNATION=str(incarnation),
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        )
        for number, name in enumerate(names)
    ]


def killed(training: Training, names: Sequence[str], step: int) -> None:
    """Run the first incarnation until its first rank freezes after `step`, and kill every node after a commit."""
    agents = started(training, names, 1, freeze=str(step))
    training.until_frozen()
    until(training.commits, "a commit")
    for agent in agents:
        agent.kill()
    for agent in agents:
        wait(agent)


def completed(training: Training, names: Sequence[str], incarnation: int) -> str:
    """Run an incarnation to its end; what its nodes said on standard error."""
    ended = [wait(agent) for agent in started(training, names, incarnation)]
    errors = "\n".join(result.err for result in ended)
    assert all(result.code == 0 for result in ended), errors
    return errors
