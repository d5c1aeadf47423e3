"""Bisection on embedded nodes: real processes exchange, and the node that spoils the network is found."""

from pathlib import Path

import pytest

from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.node_tasks.together import Together
from slipway.trainer.base.paths import CODE
from slipway.trainer.node_task import CollectiveTask
from tests.conftest import Marked

NODES = ("node-0", "node-1", "node-2", "node-3")
EXPECTED = 0.004
"""GB/s: an exchange of 1 MiB in a quarter of a second."""
SLOW_ON_NODE_2 = ("python", "-m", "tests.resources.node_tasks.slow_node")


@pytest.mark.nightly
def test_a_slow_node_among_four_is_found_in_two_rounds(tmp_path: Path, marked: Marked):
    launcher = LocalLauncher(tmp_path / "jobs", CODE, EmbeddedFleet(tmp_path / "nodes", NODES, 60))
    task = CollectiveTask(largest=2**20, seconds=5)
    messages: list[str] = []
    together = Together(launcher, tmp_path / "durable" / "run", task, 1, 0.2, command=SLOW_ON_NODE_2, expected=EXPECTED)
    state = together.bisect(NODES, (), messages.append)
    assert (state.bad, set(state.good), state.unresolved) == (("node-2",), {"node-0", "node-1", "node-3"}, ())
    assert len(together.rates) == 4, "two halves, then two nodes with a good one each"
    assert [line for line in messages if line.endswith("not good") and "node-2" in line]
