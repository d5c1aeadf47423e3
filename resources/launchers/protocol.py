"""The interface of launchers: a job, its states and its status.

A job is identified by its name. `submit` is submit-or-adopt: submitting a name twice gives one job, whatever happened
to the first caller. The status is read from the job object. A status that cannot be read raises `Unavailable`, and
never counts as a dead job.
"""

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol


class JobState(enum.Enum):
    """The state of a job."""

    PENDING = "pending"
    """Accepted, but not running yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended because `cancel` was called."""
    MISSING = "missing"
    """No job object has that name: it was never submitted, or was deleted by hand."""

    @property
    def terminal(self) -> bool:
        """Whether the job has ended. A terminal job never runs again under its name."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.STOPPED)

    @property
    def live(self) -> bool:
        """Whether processes of the job may be running or may still start."""
        return self in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True)
class Job:
    """A job: the same command for every rank on each node. A rank reads its rank from its environment."""

    name: str
    """Letters, digits, '-' and '.'; never reused for another job."""
    command: tuple[str, ...]
    """The command of each rank; `python` as the first word means the Python of the node."""
    config: Mapping[str, object]
    """A JSON document; the path of a file with it is the last argument of the command."""
    nodes: tuple[str, ...]
    """The nodes on which it may run. The launcher chooses among them, and places the ranks."""
    size: int = 0
    """The number of nodes that it uses; 0 for all. Read `node_count`."""
    least: int = 0
    """The minimum number of nodes, if `size` are not free; 0 for `size`. Read `least_nodes`."""
    prefer: tuple[str, ...] = ()
    """The nodes that already hold its data."""
    ranks_per_node: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables added to the environment of every rank, such as a training's incarnation."""
    folder: str = ""
    """The folder in which the command runs; empty for that of the launcher's own processes."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of its objects for people and tools: the training, the Dagster run. Not every launcher supports labels."""
    kubernetes: Mapping[str, object] = field(default_factory=dict)
    """The recipe's section `placement.kubernetes` as JSON; only a Kubernetes launcher reads it."""
    warm_start: bool = False
    """Whether similar jobs follow soon, so that a launcher may fork them from a warm process."""

    @property
    def node_count(self) -> int:
        """The number of nodes that the job uses."""
        return self.size or len(self.nodes)

    @property
    def least_nodes(self) -> int:
        """The minimum number of nodes."""
        return self.least or self.node_count

    @property
    def is_lone(self) -> bool:
        """Whether it has only a single rank."""
        return self.node_count == self.ranks_per_node == 1


@dataclass(frozen=True)
class Status:
    """The status of a job. Times are in seconds since the epoch; None if they have not come yet."""

    state: JobState
    reason: str = ""
    """For a person: what a pending job waits for, or why a job ended (exit codes, signals, nodes)."""
    nodes: tuple[str, ...] = ()
    """The known nodes of its processes, current or past."""
    lost_nodes: tuple[str, ...] = ()
    """The nodes that died while the job ran."""
    disrupted: bool = False
    """Whether it ended through no fault of its own: its processes were evicted or pre-empted."""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    kind: str = ""
    """The cause of a failure, from `slipway.trainer.record.causes`, if the launcher knows it. The exit records of ranks
    are more precise."""


class DoesNotFit(ValueError):
    """The job is too large for the present hardware."""


class MissingNodes(ValueError):
    """Nodes of the job have left the fleet since they were chosen."""


class Launcher(Protocol):
    """Starts, watches and stops jobs; `tests/resources/launchers/contract.py` specifies it."""

    def submit(self, job: Job) -> None:
        """Start the job, or adopt the job with its name. A terminal job stays as it is.

        Raises Unavailable (including PlatformFault), and DoesNotFit, MissingNodes or another ValueError if the job
        cannot be started as described.
        """

    def poll(self, name: str) -> Status:
        """The status of the job. Raises Unavailable."""

    def cancel(self, name: str, grace_seconds: float) -> None:
        """Ask the job to stop; returns at once. Processes that run longer than the grace period are killed. Idempotent.

        A missing or terminal job stays as it is. Raises Unavailable.
        """

    def take_back(self, name: str, nodes: Collection[str]) -> tuple[str, ...]:
        """Restart a running job's lost nodes among `nodes`; returns the nodes that it has again.

        Its ranks include them between two steps. Returns none if the job cannot go on without a node, or if the
        launcher cannot restart a node. Idempotent. Raises Unavailable.
        """

    def release(self, name: str) -> bool:
        """Remove a terminal job with its logs. Returns False for a live or missing job, which stays as it is.

        The caller must have recorded how the job ended, since a missing job that should run is started again. Raises
        Unavailable.
        """

    def rest(self) -> None:
        """Release what this process keeps for the next warm job. Running jobs go on."""

    def logs(self, name: str, tail_bytes: int = 65_536) -> dict[str, str]:
        """The end of each node's output, by node; no entries for a missing job. Raises Unavailable."""
