"""A training in a few words, for people: its state, what is desired, and by whom. Reads, and changes nothing."""

from dataclasses import dataclass

from slipway.resources.launchers.protocol import Launcher
from slipway.resources.trainings import updating
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import TrainingStore
from slipway.resources.unavailable import Unavailable


@dataclass(frozen=True)
class TrainingSummary:
    """One training or trial."""

    id: str
    state: str
    """How its newest incarnation ended, its job's state while that lives, "waiting" before its first job, "offered"
    before it was first wanted, or "unreadable"."""
    step: int
    steps: int | None
    """The number of its last step; None for a script, whose parameters are its own."""
    checkpoint: int
    """The step of the newest checkpoint, 0 before the first."""
    incarnation: int
    nodes: tuple[str, ...]
    """The nodes of the newest incarnation."""
    wanted: str
    """run, stop, or empty."""
    why: str
    """Why it failed; otherwise by whom and why it should run or stop."""
    since: float | None
    """When it reached that state, in seconds since the epoch, as far as is on record."""


def summary(store: TrainingStore, launcher: Launcher) -> TrainingSummary:
    """The summary of one training; where its records cannot be read, the summary says what is wrong with them."""
    try:
        return _summary(store, launcher)
    except (ValueError, OSError) as error:
        return TrainingSummary(store.id, "unreadable", 0, None, 0, 0, (), "", str(error), None)


def _summary(store: TrainingStore, launcher: Launcher) -> TrainingSummary:
    facts = store.read()
    desired, claim, ended = facts.desired, facts.claim, facts.ended
    checkpoint = facts.newest_step
    reached = max([checkpoint, ended.step if ended else 0, *(beat.step for beat in facts.beats)])
    asked = f"{desired.by}: {desired.why}" if desired else ""
    begun = claim.at if claim else desired.at if desired else None
    return TrainingSummary(
        id=store.id,
        state=ended.outcome if ended else _state(facts, launcher) if claim else "waiting" if desired else "offered",
        step=reached,
        steps=updating.steps_now(facts),
        checkpoint=checkpoint,
        incarnation=facts.incarnation,
        nodes=claim.nodes if claim else (),
        wanted=desired.want if desired else "",
        why=ended.reason if ended and ended.outcome == "failed" else asked,
        since=ended.at if ended else begun,
    )


def _state(facts: TrainingFacts, launcher: Launcher) -> str:
    """The state of the newest incarnation's job."""
    try:
        return str(launcher.poll(job_name(facts.id, facts.incarnation)).state.value)
    except Unavailable:
        return "unknown"
