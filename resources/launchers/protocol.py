"""The interface of every launcher: a job, its states and its status.

A job is known by its name alone. `submit` is submit-or-adopt: to submit one name twice gives one job, whatever became
of the first caller. The status is read from the job object; a status that cannot be read raises `Unavailable`, and is
never taken for a dead job.
"""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol


class JobState(enum.Enum):
    """Where a job stands."""

    PENDING = "pending"
    """Accepted, not running yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended because `cancel` was called."""
    MISSING = "missing"
    """There is no job object of that name: never submitted, or deleted by hand."""

    @property
    def terminal(self) -> bool:
        """Whether the job has ended for good; a terminal job never runs again under its name."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED)

    @property
    def live(self) -> bool:
        """Whether processes of the job may be running or may still start."""
        return self in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True)
class Job:
    """What to run: the same command for every rank, on each of the nodes; a rank reads its place in its environment."""

    name: str
    """Letters, digits, '-' and '.'; never used for another job."""
    command: tuple[str, ...]
    """What each rank runs; `python` as the first word is the Python of the node."""
    config: Mapping[str, object]
    """A JSON document; the command gets the path of a file that holds it as its last argument."""
    nodes: tuple[str, ...]
    """The nodes that it may run on; the launcher chooses among them, and which rank runs where."""
    size: int = 0
    """How many of them it takes; 0 for all. Read `node_count`."""
    least: int = 0
    """How many are enough where `size` are not free; 0 for no fewer than `size`. Read `least_nodes`."""
    prefer: tuple[str, ...] = ()
    """Those of the nodes that already hold its data."""
    ranks_per_node: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of every rank, such as a training's incarnation."""
    folder: str = ""
    """The folder in which the command runs; empty for that of the launcher's own processes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of its objects, for people and tools: the training, the Dagster run. Not every launcher has labels."""
    kubernetes: Mapping[str, object] = field(default_factory=dict)
    """The recipe's section `placement.kubernetes` as JSON; only a Kubernetes launcher reads it."""
    warm: bool = False
    """Whether others like it follow soon: a launcher that can then forks it from what it has imported before."""

    @property
    def node_count(self) -> int:
        """How many nodes the job takes."""
        return self.size or len(self.nodes)

    @property
    def least_nodes(self) -> int:
        """The smallest number of nodes that is enough for it."""
        return self.least or self.node_count

    @property
    def is_lone(self) -> bool:
        """Whether it is a single rank, which meets no other."""
        return self.node_count == self.ranks_per_node == 1


@dataclass(frozen=True)
class Status:
    """What the job object says. Times are seconds since the epoch; None for a moment that has not come."""

    state: JobState
    reason: str = ""
    """For a person: what a pending job waits for, or why a job ended: exit codes, signals, nodes."""
    nodes: tuple[str, ...] = ()
    """The nodes that its processes are or were on, as far as is known."""
    lost_nodes: tuple[str, ...] = ()
    """The nodes that died under the job."""
    disrupted: bool = False
    """Whether it ended through no fault of its own: its processes were evicted, or lost their place to others."""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    kind: str = ""
    """The class of the cause of a failure, of `slipway.trainer.record.causes`, where the launcher has seen it; what a
    rank says of its own end tells more."""


class DoesNotFit(ValueError):
    """The job is too large for the hardware that there is now."""


class MissingNodes(ValueError):
    """Nodes that the job may run on are none of the fleet any more: they left it after they were chosen."""


class Launcher(Protocol):
    """Starts, watches and stops jobs; `tests/resources/launchers/contract.py` specifies it."""

    def submit(self, job: Job) -> None:
        """Start the job, or adopt the one of that name; a terminal job is left as it is.

        Raises Unavailable, PlatformFault among it; DoesNotFit, MissingNodes, and else ValueError when the job cannot be
        started as described.
        """

    def poll(self, name: str) -> Status:
        """Where the job stands. Raises Unavailable."""

    def cancel(self, name: str, grace_seconds: float) -> None:
        """Ask the job to stop; returns at once. Processes that still run after the grace are killed. Idempotent.

        A missing or terminal job stays as it is. Raises Unavailable.
        """

    def take_back(self, name: str, nodes: Collection[str]) -> tuple[str, ...]:
        """Have a running job start anew on those of these nodes that it had and lost; returns those that it has again.

        Its ranks make room for them between two steps. Nothing follows, and there are none, where a job cannot go on
        without a node, or the launcher cannot start one again. Idempotent. Raises Unavailable.
        """

    def release(self, name: str) -> bool:
        """Remove a terminal job with its logs; False for a live or a missing job, which stays as it is.

        The caller has recorded before how the job ended: a job that is wanted and missing is started again. Raises
        Unavailable.
        """

    def rest(self) -> None:
        """Let go of what this process keeps for the next warm job; those that run go on."""

    def logs(self, name: str, tail_bytes: int = 65_536) -> dict[str, str]:
        """The end of each node's output, by node; no entries for a missing job. Raises Unavailable."""
