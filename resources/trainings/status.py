"""Training status: the current state of a training, in words and numbers.

It follows only from the training's records, its ledger and its ranks' heartbeats, so that every reader can compute it:
the sensor that shows it in Dagster, the web page, the command line. Only the launcher and the fleet know what a start
waits for. Callers pass that in, or a process that can ask them stores it beside the records (`keep_wait`); it applies
to one incarnation, until that has begun. `summary` gives the status in a few words. Except for `keep_wait`, read-only.
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

OFFERED = "offered"
WAITING = "waiting"
STARTING = "starting"
RUNNING = "running"
HANGING = "hanging"
STOPPING = "stopping"
RESTARTING = "restarting"
FINISHED = "finished"
FAILED = "failed"
STOPPED = "stopped"
PAUSED = "paused"
LIVE = (WAITING, STARTING, RUNNING, HANGING, STOPPING, RESTARTING, *PHASES)
"""The states that change by themselves. The name of a phase is a state too."""
HANG_SECONDS = 5.0
HANG_TIMES = 3.0
"""A step is shown as hanging after `HANG_TIMES` times the longest recent step, but at least `HANG_SECONDS`."""
STILL_SECONDS = 30.0
"""In phases that count something else than steps, a rank is shown as hanging after this time without progress."""
PHASE_TEXTS = {
    "starting": "starting: its processes start and connect",
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
    """The status of a training."""

    state: str
    """One word: offered, waiting, starting, a phase's name, running, hanging, stopping, restarting, finished, failed,
    stopped or paused."""
    summary: str
    """The state and the progress in a sentence for a person."""
    step: int
    steps: int | None
    """None for a script, since only the script knows its number of steps."""
    checkpoint: int
    """The step of the newest checkpoint; 0 before the first."""
    incarnation: int
    nodes: tuple[str, ...]
    seconds_left: float | None = None
    """The remaining time at the pace of the last steps; None if unknown or if the training does not run."""
    loss: float | None = None
    best_loss: float | None = None
    best_step: int | None = None
    figures: tuple[tuple[str, float], ...] = ()
    """The metrics of the last step by name: tokens_per_second, mfu, learning_rate and so on."""

    @property
    def is_live(self) -> bool:
        """Whether it may change by itself."""
        return self.state in LIVE


def status_of(facts: TrainingFacts, fold: CurveFold, sights: Sequence[Sight], wait: str = "") -> TrainingStatus:
    """The status of a training.

    sights: its ranks, as the caller's watch saw them; needed only while it runs. wait: what a start waits for, if
    known. Raises Unreadable.
    """
    ended = facts.ended
    steps = updates.steps_now(facts)
    checkpoint = facts.newest_step
    reached = max(checkpoint, ended.step if ended else 0)
    if facts.running or _failed(facts):  # otherwise it goes on from a checkpoint
        reached = max(reached, int(fold.last.get("step", 0)))
    state, sentence = _state(facts, fold, sights, reached, steps, checkpoint, wait)
    seconds_left = None
    if steps and fold.pace and state in (RUNNING, "validating", "committing"):
        seconds_left = fold.pace * (steps - reached)
        sentence = f"{sentence}, {duration(seconds_left)} left"
    return TrainingStatus(
        state=state,
        summary=sentence,
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
    """Seconds without progress after which a rank is shown as hanging, long before its deadline.

    A silent process is shown as hanging in any phase; phases without a counter have no other sign.
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
    """How its newest incarnation ended, or the state of its live job, or "waiting" before its first job, "offered"
    before it was first started, or "unreadable"."""
    step: int
    steps: int | None
    """The number of its last step; None for a script, since only the script knows it."""
    checkpoint: int
    """The step of the newest checkpoint; 0 before the first."""
    incarnation: int
    nodes: tuple[str, ...]
    """The nodes of the newest incarnation."""
    desired: str
    """run, stop, or empty."""
    why: str
    """Why it failed; otherwise who wants it to run or stop, and why."""
    since: float | None
    """When it reached that state, in seconds since the epoch; None if unknown."""


def summary(store: TrainingStore, launcher: Launcher) -> TrainingSummary:
    """The summary of one training; if its records cannot be read, the summary says why."""
    try:
        return _summary(store, launcher)
    except (ValueError, OSError) as error:
        return TrainingSummary(store.id, "unreadable", 0, None, 0, 0, (), "", str(error), None)


@dataclass(frozen=True)
class KeptWait:
    """The record of what the next start waits for."""

    incarnation: int
    """The newest incarnation; 0 before the first."""
    desired_generation: int = field(metadata={codec.KEY: "life"})
    reason: str
    """Empty if it no longer waits."""


def keep_wait(facts: TrainingFacts, reason: str) -> None:
    """Store the reason if it is new. Raises OSError."""
    wait = KeptWait(facts.incarnation, facts.desired_generation, reason)
    stored = _read_wait(facts.folder)
    if wait != stored and (reason or stored is not None):
        atomic.replace(facts.folder / WAIT_FILE, codec.encode(wait, WAIT_FORMAT), lasting=False)


def wait_reason(facts: TrainingFacts) -> str:
    """The stored reason why the training waits; "" if there is none, or if the training runs or is over."""
    stored = _read_wait(facts.folder)
    if stored is None or not facts.unfinished or (facts.running and facts.begun):
        return ""
    if (stored.incarnation, stored.desired_generation) != (facts.incarnation, facts.desired_generation):
        return ""
    return stored.reason


def node_shortage(facts: TrainingFacts, fleet: Iterable[Node], coming: int = 0) -> int:
    """The number of further nodes that a waiting training could use if too few are ready; 0 if it does not wait.

    coming: nodes that will become ready by themselves, since they are being measured.
    """
    is_waiting = facts.should_run and facts.unfinished and not facts.paused and not facts.running
    ready = sum(node.ready for node in fleet)
    if not is_waiting or ready >= facts.run_policy.min_nodes:
        return 0
    return max(0, facts.run_policy.max_nodes - coming)


def _state(
    facts: TrainingFacts,
    fold: CurveFold,
    sights: Sequence[Sight],
    reached: int,
    steps: int | None,
    checkpoint: int,
    wait: str,
) -> tuple[str, str]:
    """The state, and a sentence for it."""
    of_steps = f"step {reached:,} of {steps:,}" if steps else f"step {reached:,}"
    ended = facts.ended
    if facts.desired is None:
        start = f"slipway run {facts.specification.recipe}, or materialise it in Dagster"
        return OFFERED, f"offered, not started: to start it, {start}"
    if facts.claim is None:
        if facts.should_run:
            return WAITING, _waiting(wait)
        return STOPPED, "stopped before it started: resume starts it"
    if ended is None:
        if not facts.should_run:
            return STOPPING, f"stopping at {of_steps}, with a checkpoint"
        return _running(facts, fold, sights, of_steps, wait)
    if ended.outcome == "succeeded":
        return FINISHED, f"finished at {of_steps}"
    if facts.paused:
        return PAUSED, f"paused at {of_steps}: it has completed the granted steps"
    if _restarts(facts):
        waiting = f"; waiting: {_short(wait)}" if wait else ""
        return RESTARTING, f"restarting from step {checkpoint:,}: {_short(ended.reason)}{waiting}"
    removal = ""
    if facts.let_go and checkpoint:
        removal = "; its checkpoints will be removed unless it is resumed"
    if ended.outcome == "failed":
        return FAILED, f"failed at {of_steps}: {_short(ended.reason)}{removal}"
    at = f"{reached:,} of {steps:,}" if steps else f"step {reached:,}"
    if facts.let_go and not checkpoint:
        return STOPPED, f"stopped at {at}: its checkpoints were removed; resume starts it again"
    return STOPPED, f"stopped at {at}: resume goes on from step {checkpoint:,}{removal}"


def _restarts(facts: TrainingFacts) -> bool:
    """Whether a further incarnation is due."""
    return facts.should_run and not budgets.exhausted_by(facts)


def _failed(facts: TrainingFacts) -> bool:
    """Whether it has failed for good."""
    return facts.ended is not None and facts.ended.outcome == "failed" and not facts.paused and not _restarts(facts)


def _running(
    facts: TrainingFacts, fold: CurveFold, sights: Sequence[Sight], of_steps: str, wait: str
) -> tuple[str, str]:
    """The state of a claimed incarnation that has not ended, and a sentence for it."""
    ranks = [sight for sight in sights if sight.rank is not None]
    if not ranks:
        if wait:
            return WAITING, _waiting(wait)
        progress = "starting" if facts.submitted(facts.incarnation) else "being submitted"
        return STARTING, f"starting: its job is {progress}"
    last = min(ranks, key=lambda sight: (_order(sight.progress.phase), sight.progress.step, sight.progress.done))
    hung = [sight for sight in ranks if sight.age >= hang_after(sight)]
    if hung:
        worst = max(hung, key=lambda sight: sight.age)
        limit = facts.run_policy.deadline(worst.progress.phase)
        silence = f", silent for {duration(worst.silent)}" if worst.silent > SILENT_SECONDS else ""
        return HANGING, (
            f"hanging for {duration(worst.age)} at {of_steps}: {where(worst)}{silence}; "
            f"it is restarted after {duration(limit)} at the latest"
        )
    phase = last.progress.phase
    if phase == TRAINING.name:
        return RUNNING, f"running, {of_steps}"
    phase_text = PHASE_TEXTS.get(phase, phase)
    if phase == STAGING.name:
        return phase, f"{phase_text}{_staged(fold.staged, facts.nodes)}"
    parts = [phase_text]
    if phase in ("validating", "committing", "copying"):
        parts.append(of_steps)
    if last.progress.done and phase in PHASES:
        parts.append(f"{_amount(last.progress.done, PHASES[phase].unit)} so far")
    elif last.age >= 1:
        parts.append(f"for {duration(last.age)}")
    return phase, ", ".join(parts)


def _waiting(wait: str) -> str:
    return f"waiting: {_short(wait)}" if wait else "waiting for its first start"


def _staged(staged: dict[str, StagedPart], nodes: Sequence[str]) -> str:
    """The staging progress of the slowest node, in words."""
    own = {node: part for node, part in staged.items() if node in nodes and part.bytes < part.total_bytes}
    if not own:
        return ""
    node, part = min(own.items(), key=lambda item: item[1].bytes / max(1, item[1].total_bytes))
    progress = f": {_amount(part.bytes, 'bytes')} of {_amount(part.total_bytes, 'bytes')} on {node}"
    if part.seconds_left is None:
        return progress
    return f"{progress}, {duration(part.seconds_left)} left"


def _amount(count: int, unit: str) -> str:
    if unit != "bytes":
        return f"{count:,} {unit}"
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def _order(phase: str) -> int:
    """The position of a phase in the order of a start; an unknown phase comes last."""
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
    state = "offered"
    since = None
    why = ""
    if desired:
        state = "waiting"
        since = desired.at
        why = f"{desired.by}: {desired.why}"
    if ended:
        state = ended.outcome
        since = ended.at
        if ended.outcome == "failed":
            why = ended.reason
    elif claim:
        state = _job_state(facts, launcher)
        since = claim.at
    return TrainingSummary(
        id=store.id,
        state=state,
        step=reached,
        steps=updates.steps_now(facts),
        checkpoint=checkpoint,
        incarnation=facts.incarnation,
        nodes=claim.nodes if claim else (),
        desired=desired.want if desired else "",
        why=why,
        since=since,
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
