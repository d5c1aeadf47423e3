"""What one scrape reads, as plain values: ages and durations in seconds, moments in seconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

STATES = ("waiting", "running", "succeeded", "failed", "stopped", "offered", "unreadable")


@dataclass(frozen=True)
class LatestCheckpoint:
    """A checkpoint that a lasting tier holds."""

    step: int
    manifest: str
    at: float


@dataclass(frozen=True)
class TrainingReading:
    """One training."""

    id: str
    recipe: str
    state: str
    """One of `STATES`."""
    since: float = 0.0
    """When it reached that state, as far as is on record."""
    should_run: bool = False
    incarnation: int = 0
    step: int = 0
    steps: int | None = None
    nodes: int = 0
    still: float | None = None
    """For how long the exporter has seen no rank move; None while it does not run."""
    waiting: float | None = None
    staged: int | None = None
    spent: Mapping[str, float] = field(default_factory=dict)
    ettr: Mapping[str, float | None] = field(default_factory=dict)
    """By definition."""
    goodput: float | None = None
    mfu: float | None = None
    failures: int = 0
    failures_in_a_row: int = 0
    given_up: bool = False
    incidents: Mapping[str, int] = field(default_factory=dict)
    """By class."""
    checkpoints: Mapping[str, int] = field(default_factory=dict)
    """By tier."""
    newest: Mapping[str, float] = field(default_factory=dict)
    """When the newest checkpoint of each tier was made."""
    checkpoint_step: int | None = None
    damaged: int = 0
    latest: "LatestCheckpoint | None" = None
    """The newest checkpoint that the event log should have."""


@dataclass(frozen=True)
class FleetNodeReading:
    """One node."""

    name: str
    state: str
    """ready, closed or lost."""
    standing: str
    evidence: int


@dataclass(frozen=True)
class SweepReading:
    """One sweep."""

    id: str
    state: str
    """open, paused, or how it was closed."""
    trials: Mapping[str, int]
    """By state."""
    best: float | None


@dataclass(frozen=True)
class ServedReading:
    """One model that should answer, or did."""

    model: str
    version: int | None
    switching: bool


@dataclass(frozen=True)
class TierReading:
    """The file system of one tier."""

    name: str
    size: int
    free: int
    look_seconds: float


@dataclass(frozen=True)
class SensorReading:
    """One sensor."""

    name: str
    on: bool
    age: float | None = None
    """Since its last tick; None before the first."""
    seconds: float | None = None
    failed: bool = False


@dataclass(frozen=True)
class DagsterReading:
    """Dagster."""

    sensors: tuple[SensorReading, ...] = ()
    daemons: Mapping[str, float] = field(default_factory=dict)
    """Ages of heartbeats."""
    runs: Mapping[str, int] = field(default_factory=dict)
    """Unfinished ones, by status."""
    queued: float = 0.0
    """How long the oldest queued run has waited."""
    records: int = 0
    lag: float = 0.0
    """For how long the event log has lacked the oldest checkpoint that it should have."""


@dataclass(frozen=True)
class PlatformFacts:
    """All that one scrape reads. A part that could not be read is empty, and named in `unreadable`."""

    at: float
    trainings: tuple[TrainingReading, ...] = ()
    duties: Mapping[str, int] = field(default_factory=dict)
    nodes: tuple[FleetNodeReading, ...] = ()
    sweeps: tuple[SweepReading, ...] = ()
    served: tuple[ServedReading, ...] = ()
    tiers: tuple[TierReading, ...] = ()
    dagster: DagsterReading | None = None
    unreadable: tuple[str, ...] = ()
    read: int = 0
    """Trainings whose records were read for this scrape."""
    seconds: float = 0.0
