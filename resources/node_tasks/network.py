"""Network faults: after an incident that names no single node, bisect the nodes and suspect the bad ones."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.resources.fleet.health import suspicion
from slipway.resources.fleet.health.node_health import NodeHealth
from slipway.resources.fleet.protocol import Node
from slipway.resources.launchers.protocol import Launcher
from slipway.resources.node_tasks.protocol import Say
from slipway.resources.node_tasks.together import FOLDER, Together
from slipway.trainer.base import codec, digest
from slipway.trainer.node_task import CollectiveTask
from slipway.trainer.preflight.bisection import BisectionState
from slipway.trainer.record import causes
from slipway.trainer.record.incidents import IncidentRecord

FORMAT = "slipway.bisection/1"
RESULT = "result.json"
JOB = "network_bisect"
OP = "bisect_nodes"
"""The names of the Dagster job that bisects, and of its only op."""
LEAST = 3
"""The minimum number of nodes. With two nodes, nobody could tell which one is bad."""


@dataclass(frozen=True)
class BisectionResult:
    """result.json of a bisection: its cause and its result."""

    about: str
    nodes: tuple[str, ...]
    bad: tuple[str, ...]
    unresolved: tuple[str, ...]
    good: tuple[str, ...]
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class NetworkCheck:
    """The means for a bisection."""

    launcher: Launcher
    door: NodeHealth
    durable: Path
    ranks_per_node: int
    poll_seconds: float

    def bisect(
        self,
        about: str,
        suspects: Sequence[str],
        good: Sequence[str],
        task: CollectiveTask,
        who: str,
        say: Say,
        expected: float | None = None,
    ) -> BisectionResult:
        """Find the nodes that disturb the network, and suspect each of them with this bisection as the evidence.

        `about` identifies the bisection: a repeated call adopts its running jobs. `expected` is the bus bandwidth in
        GB/s of a good group. Raises ValueError for a group that no job can have, Unavailable, and OSError.
        """
        folder = _folder(self.durable, about)
        together = Together(self.launcher, folder, task, self.ranks_per_node, self.poll_seconds, expected=expected)
        state = together.bisect(suspects, good, say)
        now = self.door.clock()
        for node in state.bad:
            self.door.suspect(node, [suspicion.by_bisection(folder.name, now)], who)
        result = _result(about, suspects, state, now)
        keep(self.durable, result)
        return result


def keep(durable: Path, result: BisectionResult) -> None:
    """Record a result. Raises OSError."""
    codec.replace(_folder(durable, result.about) / RESULT, result, FORMAT)


def is_done(durable: Path, about: str) -> bool:
    """Whether the bisection called `about` has a result."""
    return (_folder(durable, about) / RESULT).exists()


def calls_for_bisection(incident: IncidentRecord, ran_on: Collection[str]) -> bool:
    """Whether exchanges failed or hung among several nodes, and the incident does not name a single cause."""
    communication = incident.kind in (causes.NETWORK, causes.HUNG)
    return communication and not incident.survived and len(set(incident.nodes)) != 1 and len(set(ran_on)) >= LEAST


def free(nodes: Mapping[str, Node], ran_on: Sequence[str], busy: Collection[str]) -> tuple[list[str], list[str]]:
    """The nodes of an incident to bisect, and another node to measure them with.

    Both are empty while one of them is busy, since a measurement beside a training is useless and would slow it down.
    Lost and removed nodes are left out.
    """
    there = [name for name in ran_on if name in nodes and not nodes[name].lost]
    if len(there) < LEAST or set(there) & set(busy):
        return [], []
    others = [name for name in nodes if name not in ran_on and name not in busy and nodes[name].ready]
    return there, others[:1]


def _folder(durable: Path, about: str) -> Path:
    return durable / FOLDER / digest.sha256(about.encode())[:12]


def _result(about: str, suspects: Sequence[str], state: BisectionState, now: float) -> BisectionResult:
    return BisectionResult(about, tuple(suspects), state.bad, state.unresolved, state.good, now)
