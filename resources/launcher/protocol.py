"""What every launcher does, and the words it reports in.

A job is known by its name alone. `submit` is submit-or-adopt: launching one name twice gives one job,
whatever became of the first caller. Status is read from the job object; a status that cannot be read is
`Unavailable`, an exception, and never mistaken for a dead job.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Unavailable(Exception):
    """The launcher could not be asked. Nothing follows from it about the job."""


class State(enum.Enum):
    """Where a job stands."""

    PENDING = "pending"
    """Accepted, not running yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """Ended because `cancel` was called."""
    MISSING = "missing"
    """There is no such job object: never submitted, or deleted by hand."""

    @property
    def terminal(self) -> bool:
        """Whether the job has ended for good; a terminal job never runs again under its name."""
        return self in (State.SUCCEEDED, State.FAILED, State.STOPPED)

    @property
    def live(self) -> bool:
        """Whether processes of the job may be running or may still start."""
        return self in (State.PENDING, State.RUNNING)


@dataclass(frozen=True)
class Job:
    """What to run: the same command on each of its nodes; every rank finds its place in the environment."""

    name: str
    """Letters, digits, '-' and '.'; unique for ever."""
    command: tuple[str, ...]
    """What each rank runs; `python` as the first word is the Python that the platform runs on."""
    config: Mapping[str, object]
    """The JSON document whose file's path the command gets as one more argument."""
    nodes: tuple[str, ...]
    """The nodes that it may run on; which of them, and which rank runs where, is for the launcher to say."""
    size: int = 0
    """How many of them it takes; 0 for all."""
    least: int = 0
    """With how many it can do where `size` are not to be had; 0 for no fewer."""
    prefer: tuple[str, ...] = ()
    """Those of the nodes that hold its data already."""
    ranks_per_node: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to what every rank sees: a training's incarnation, say."""
    folder: str = ""
    """Where the command runs; empty for where the launcher's own processes do."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What people and tools find its objects by, where a launcher has such: the training, the Dagster run."""
    kubernetes: Mapping[str, object] = field(default_factory=dict)
    """What the recipe says about its pods, a `recipes.kubernetes.Kubernetes` as JSON has it; elsewhere of no effect."""


@dataclass(frozen=True)
class Status:
    """What the job object says. Times are seconds since the epoch, None when not reached."""

    state: State
    reason: str = ""
    """For a person: what it waits for while it is pending, or why it ended as it did: exit codes, signals, nodes."""
    nodes: tuple[str, ...] = ()
    """Those that its processes are or were on, as far as is known."""
    lost_nodes: tuple[str, ...] = ()
    """The nodes that died under the job."""
    disrupted: bool = False
    """Whether it ended for no fault of its own: its processes were evicted, or lost their place to others."""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None


class Launcher(Protocol):
    """The interface that `tests/launcher/contract.py` specifies."""

    def submit(self, job: Job) -> None:
        """Start the job, or adopt the one of that name; a terminal job is left as it is.

        Raises Unavailable; ValueError when the job cannot be started as described.
        """

    def poll(self, name: str) -> Status:
        """Where the job stands. Raises Unavailable."""

    def cancel(self, name: str, grace_seconds: float) -> None:
        """Ask the job to stop; returns at once. What runs after the grace is killed. Idempotent.

        A missing or terminal job stays as it is. Raises Unavailable.
        """

    def release(self, name: str) -> bool:
        """Remove a terminal job with its logs and say True; a live or missing one stays as it is. Raises Unavailable.

        Whoever does so has recorded how the job ended: a job that is wanted and missing is started again.
        """

    def logs(self, name: str, tail_bytes: int = 65_536) -> dict[str, str]:
        """The end of each node's output, by node; empty for a missing job. Raises Unavailable."""
