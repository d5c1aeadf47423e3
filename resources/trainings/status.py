"""Training status: where a training stands now, in words and figures that are true while it runs.

It follows from the training's records, its ledger and its ranks' heartbeats alone, so that whoever reads them can tell
it: the sensor that shows it in Dagster, the page beside Dagster, the command line. What only the launcher and the fleet
know, what a start waits for, is handed in, or kept beside the records by who can ask them (`keep_wait`): it holds for
one incarnation, and only while that has not begun. `summary` is the same in a few words. Reads, and changes nothing
else.
"""

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.protocol import Node
from slipway.resources.launchers.protocol import Launcher
from slipway.resources.trainings import budgets, updates
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.faults import SHORT, SILENT_SECONDS, where
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.metric_series import CurveFold, StagedPart
from slipway.resources.trainings.store import TrainingStore
from slipway.resources.trainings.watch import Sight
from slipway.trainer.base import atomic, codec
from slipway.trainer.base.quantities import duration
from slipway.trainer.record.phases import PHASES, STAGING, TRAINING

OFFERED, WAITING, STARTING, RUNNING, HANGING = "offered", "waiting", "starting", "running", "hanging"
STOPPING, RESTARTING, FINISHED, FAILED, STOPPED, PAUSED = (
    "stopping", "restarting", "finished", "failed", "stopped", "paused",
)  # fmt: skip
LIVE = (WAITING, STARTING, RUNNING, HANGING, STOPPING, RESTARTING, *PHASES)
"""The states in which it changes by itself; a phase's name is a state too."""
HANG_SECONDS, HANG_TIMES = 5.0, 3.0
"""A step looks like a hang after so long at the earliest, and after so many times the longest of the last ones."""
STILL_SECONDS = 30.0
"""Where something else than steps is counted, a rank looks like a hang that has moved nothing for so long."""
PHASE_TEXTS = {
    "starting": "starting: its processes come up and meet",
    "staging": "staging the snapshot on its nodes",
    "building": "building the model",
    "restoring": "restoring a checkpoint",
    "compiling": "compiling the first step",
    "validating": "running, validating",
    "committing": "running, writing a checkpoint",
    "copying": "copying its last checkpoint to other tiers",
    "ending": "writing its last records",
}
WAIT_FILE = "waits.json"
WAIT_FORMAT = "slipway.waits/1"


@dataclass(frozen=True)
class TrainingStatus:
    """Where a training stands."""

    state: str
    """One word: offered, waiting, starting, a phase's name, running, hanging, stopping, restarting, finished, failed,
    stopped or paused."""
    summary: str
    """The same in a sentence for a person, with how far it is."""
    step: int
    steps: int | None
    """None for a script, whose parameters are its own."""
    checkpoint: int
    """The step of the newest checkpoint, 0 before the first."""
    incarnation: int
    nodes: tuple[str, ...]
    seconds_left: float | None = None
    """At the pace of the last steps; None where that is not known, or it does not run."""
    loss: float | None = None
    best_loss: float | None = None
    best_step: int | None = None
    figures: tuple[tuple[str, float], ...] = ()
    """Of the last step: tokens_per_second, mfu, learning_rate and so on, by name."""

    @property
    def is_live(self) -> bool:
        """Whether it may change by itself."""
        return self.state in LIVE


def status_of(facts: TrainingFacts, fold: CurveFold, sights: Sequence[Sight], wait: str = "") -> TrainingStatus:
    """Where the training stands.

    sights: its ranks, by the watch of who looks; needed only while it runs. waits: what a start waits for, where known.
    Raises Unreadable.
    """
    ended = facts.ended
    steps = updates.steps_now(facts)
    checkpoint = facts.newest_step
    done = int(fold.last.get("step", 0)) if facts.running or _failed(facts) else 0  # else it goes on from a checkpoint
    reached = max(checkpoint, done, ended.step if ended else 0)
    state, sentence = _state(facts, fold, sights, reached, steps, checkpoint, wait)
    seconds_left = (
        fold.pace * (steps - reached)
        if steps and fold.pace and state in (RUNNING, "validating", "committing")
        else None
    )
    return TrainingStatus(
        state=state,
        summary=f"{sentence}, {duration(seconds_left)} left" if seconds_left is not None else sentence,
        step=reached,
        steps=steps,
        checkpoint=checkpoint,
        incarnation=facts.incarnation,
        nodes=facts.nodes,
        seconds_left=seconds_left,
        loss=fold.last.get("loss"),
        best_loss=fold.best.get("loss"),
        best_step=int(fold.best["step"]) if fold.best else None,
        figures=tuple((name, value) for name, value in fold.last.items() if name not in ("loss", "step", "t")),
    )


def hang_after(sight: Sight) -> float:
    """Seconds at one place after which a rank looks like a hang, which is long before its deadline.

    A process whose heartbeat stands still looks like one wherever it is; uncounted phases have no other sign.
    """
    phase = sight.progress.phase
    if sight.silent > SILENT_SECONDS:
        return SILENT_SECONDS
    if phase == TRAINING.name and sight.section in SHORT:
        return max(HANG_SECONDS, HANG_TIMES * sight.longest)
    counted = PHASES[phase].unit if phase in PHASES else ""
    return max(STILL_SECONDS, HANG_TIMES * sight.longest) if counted else float("inf")


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


@dataclass(frozen=True)
class KeptWait:
    """What the start after an incarnation, or that of one that has not begun, waits for."""

    incarnation: int
    """The newest incarnation, 0 before the first."""
    desired_generation: int = field(metadata={codec.KEY: "life"})
    reason: str
    """Empty once it waits no more."""


def keep_wait(facts: TrainingFacts, reason: str) -> None:
    """Keep the reason where it is a new one. Raises OSError."""
    wait = KeptWait(facts.incarnation, facts.desired_generation, reason)
    stored = _read_wait(facts.folder)
    if wait != stored and (reason or stored is not None):
        atomic.replace(facts.folder / WAIT_FILE, codec.encode(wait, WAIT_FORMAT), lasting=False)


def wait_reason(facts: TrainingFacts) -> str:
    """What the training waits for; empty where nothing is known, and for one that runs or is over."""
    stored = _read_wait(facts.folder)
    if stored is None or not facts.unfinished or (facts.running and facts.begun):
        return ""
    return (
        stored.reason
        if (stored.incarnation, stored.desired_generation) == (facts.incarnation, facts.desired_generation)
        else ""
    )


def node_shortage(facts: TrainingFacts, fleet: Iterable[Node], coming: int = 0) -> int:
    """How many more nodes it would run on, where fewer are ready than it needs; 0 where it waits for none.

    coming: nodes that are there and will be ready by themselves, since they are being measured.
    """
    is_waiting = facts.should_run and facts.unfinished and not facts.paused and not facts.running
    ready = sum(node.ready for node in fleet)
    return max(0, facts.run_policy.max_nodes - coming) if is_waiting and ready < facts.run_policy.min_nodes else 0


def _state(
    facts: TrainingFacts,
    fold: CurveFold,
    sights: Sequence[Sight],
    reached: int,
    steps: int | None,
    checkpoint: int,
    wait: str,
) -> tuple[str, str]:
    """The state, and the words for it."""
    of_steps = f"step {reached:,} of {steps:,}" if steps else f"step {reached:,}"
    ended = facts.ended
    if facts.desired is None:
        start = f"slipway run {facts.specification.recipe}, or materialise it in Dagster"
        return OFFERED, f"offered, not started: to start it, {start}"
    if facts.claim is None:
        return (
            (WAITING, _waiting(wait)) if facts.should_run else (STOPPED, "stopped before it started: resume begins it")
        )
    if ended is None:
        if not facts.should_run:
            return STOPPING, f"stopping at {of_steps}, with a checkpoint"
        return _running(facts, fold, sights, of_steps, wait)
    if ended.outcome == "succeeded":
        return FINISHED, f"finished at {of_steps}"
    if facts.paused:
        return PAUSED, f"paused at {of_steps}: it has done what it was granted"
    if _restarts(facts):
        return RESTARTING, f"restarting from step {checkpoint:,}: {_short(ended.reason)}" + (
            f"; waiting: {_short(wait)}" if wait else ""
        )
    goes = "; its checkpoints were given up for removal, and stay if it is resumed" if facts.let_go else ""
    if ended.outcome == "failed":
        return FAILED, f"failed at {of_steps}: {_short(ended.reason)}{goes if checkpoint else ''}"
    at = f"{reached:,} of {steps:,}" if steps else f"step {reached:,}"
    if facts.let_go and not checkpoint:
        return STOPPED, f"stopped at {at}: its checkpoints were removed; resume begins it again"
    return STOPPED, f"stopped at {at}: resume goes on from step {checkpoint:,}{goes}"


def _restarts(facts: TrainingFacts) -> bool:
    """Whether a further incarnation is due."""
    return facts.should_run and not budgets.exhausted_by(facts)


def _failed(facts: TrainingFacts) -> bool:
    """Whether it has failed for good."""
    return facts.ended is not None and facts.ended.outcome == "failed" and not facts.paused and not _restarts(facts)


def _running(
    facts: TrainingFacts, fold: CurveFold, sights: Sequence[Sight], of_steps: str, wait: str
) -> tuple[str, str]:
    """The state of an incarnation that is claimed and has not ended."""
    ranks = [sight for sight in sights if sight.rank is not None]
    if not ranks:
        if wait:
            return WAITING, _waiting(wait)
        return (
            STARTING,
            f"starting: its job is {'coming up' if facts.submitted(facts.incarnation) else 'being submitted'}",
        )
    last = min(ranks, key=lambda sight: (_order(sight.progress.phase), sight.progress.step, sight.progress.done))
    hung = [sight for sight in ranks if sight.age >= hang_after(sight)]
    if hung:
        worst = max(hung, key=lambda sight: sight.age)
        limit = facts.run_policy.deadline(worst.progress.phase)
        return HANGING, (
            f"hanging for {duration(worst.age)} at {of_steps}: {where(worst)}"
            + (f", silent for {duration(worst.silent)}" if worst.silent > SILENT_SECONDS else "")
            + f"; it is restarted after {duration(limit)} at the latest"
        )
    phase = last.progress.phase
    if phase == TRAINING.name:
        return RUNNING, f"running, {of_steps}"
    phase_text = PHASE_TEXTS.get(phase, phase)
    if phase == STAGING.name:
        return phase, f"{phase_text}{_staged(fold.staged, facts.nodes)}"
    done = (
        f", {_amount(last.progress.done, PHASES[phase].unit)} so far" if last.progress.done and phase in PHASES else ""
    )
    waited = f", for {duration(last.age)}" if last.age >= 1 and not done else ""
    at = f", {of_steps}" if phase in ("validating", "committing", "copying") else ""
    return phase, f"{phase_text}{at}{done}{waited}"


def _waiting(wait: str) -> str:
    return f"waiting: {_short(wait)}" if wait else "waiting for its first start"


def _staged(staged: dict[str, StagedPart], nodes: Sequence[str]) -> str:
    """How far the staging of the node that is furthest behind is."""
    own = {node: part for node, part in staged.items() if node in nodes and part.bytes < part.total_bytes}
    if not own:
        return ""
    node, part = min(own.items(), key=lambda item: item[1].bytes / max(1, item[1].total_bytes))
    seconds_left = part.seconds_left
    return f": {_amount(part.bytes, 'bytes')} of {_amount(part.total_bytes, 'bytes')} on {node}" + (
        f", {duration(seconds_left)} left" if seconds_left is not None else ""
    )


def _amount(count: int, unit: str) -> str:
    if unit != "bytes":
        return f"{count:,} {unit}"
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _order(phase: str) -> int:
    """Phases in the order in which a start goes through them; one that is not known comes last."""
    return list(PHASES).index(phase) if phase in PHASES else len(PHASES)


def _short(text: str) -> str:
    """The first line of a reason."""
    first = text.split("\n")[0].strip()
    return first if len(first) <= 160 else f"{first[:159]}…"


def _summary(store: TrainingStore, launcher: Launcher) -> TrainingSummary:
    facts = store.read()
    desired = facts.desired
    claim = facts.claim
    ended = facts.ended
    checkpoint = facts.newest_step
    reached = max([checkpoint, ended.step if ended else 0, *(beat.step for beat in facts.beats)])
    request = f"{desired.by}: {desired.why}" if desired else ""
    begun = claim.at if claim else desired.at if desired else None
    return TrainingSummary(
        id=store.id,
        state=ended.outcome if ended else _job_state(facts, launcher) if claim else "waiting" if desired else "offered",
        step=reached,
        steps=updates.steps_now(facts),
        checkpoint=checkpoint,
        incarnation=facts.incarnation,
        nodes=claim.nodes if claim else (),
        wanted=desired.want if desired else "",
        why=ended.reason if ended and ended.outcome == "failed" else request,
        since=ended.at if ended else begun,
    )


def _job_state(facts: TrainingFacts, launcher: Launcher) -> str:
    """The state of the newest incarnation's job."""
    try:
        return str(launcher.poll(job_name(facts.id, facts.incarnation)).state.value)
    except Unavailable:
        return "unknown"


def _read_wait(folder: Path) -> KeptWait | None:
    with contextlib.suppress(OSError, ValueError):
        return codec.read_if_there(folder / WAIT_FILE, KeptWait, WAIT_FORMAT)
    return None
