"""Training control: the one state machine that brings what is in line with what should be.

`decide` is pure: from what was observed it names the next action. `TrainingControl.advance` observes, decides
and acts once. It is level-triggered: it may be called at any moment, by any number of callers at once
(a waiting asset, the job watch), as every action is a create-only write or idempotent by the job's name.
"""

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from resources import scripts
from resources.fleet.protocol import Fleet
from resources.launcher.protocol import Job, Launcher, State, Status
from resources.training_store import Specification, TrainingStore
from trainer import config
from trainer.checkpoint import sealing
from trainer.fence import Claim
from trainer.script import FORMAT

GRACE_SECONDS = 20.0
"""Between asking a job to stop and killing it: time for a last checkpoint."""
SUPERSEDED_GRACE_SECONDS = 1.0
"""The same for a job that was superseded: its commits count no more, so there is nothing to wait for."""
MISSING_GRACE_SECONDS = 10.0
"""A job object must be seen missing twice, this far apart, before it counts as deleted."""


class Action(enum.Enum):
    WAIT = "wait"
    CLAIM = "claim the next incarnation"
    STOP_OLDER = "stop the job of an earlier incarnation"
    SUBMIT = "submit the job"
    STOP = "stop the job"
    RECORD = "record how the incarnation ended"
    GIVE_UP = "want it no longer"
    DONE = "nothing is left to do"


@dataclass(frozen=True)
class Observation:
    """What is and what should be, at one moment."""

    wanted: bool
    incarnation: int
    """The newest one, 0 before the first."""
    outcome: str | None
    """How it ended, None while it has not."""
    fruitless: int
    fruitless_limit: int
    job: State
    """The newest incarnation's job."""
    submitted: bool
    """Whether that job is known to have been submitted."""
    missing_confirmed: bool
    older_live: bool
    """Whether a job of an earlier incarnation may still be running."""
    ready_nodes: int
    min_nodes: int


def decide(seen: Observation) -> Action:
    """The next action. Unknown is not dead: a job that is merely missing is waited for until that is confirmed."""
    if seen.incarnation == 0 or seen.outcome is not None:
        return _after_the_end(seen)
    if seen.older_live:
        return Action.STOP_OLDER
    if seen.job.live:
        # A job that is there but not known to be submitted is one whose submitter died half-way: adopt it.
        return Action.STOP if not seen.wanted else Action.WAIT if seen.submitted else Action.SUBMIT
    if seen.job.terminal:
        return Action.RECORD
    if not seen.submitted:
        return _before_the_start(seen)
    return Action.RECORD if seen.missing_confirmed else Action.WAIT


def _before_the_start(seen: Observation) -> Action:
    """An incarnation is claimed and no job of the training runs."""
    if not seen.wanted:
        return Action.RECORD
    return Action.GIVE_UP if seen.fruitless >= seen.fruitless_limit else Action.SUBMIT


def _after_the_end(seen: Observation) -> Action:
    """No incarnation runs: start the first or the next one, or leave it at that."""
    if seen.outcome == "succeeded" or not seen.wanted:
        return Action.DONE
    if seen.fruitless >= seen.fruitless_limit:
        return Action.GIVE_UP
    return Action.CLAIM if seen.ready_nodes >= seen.min_nodes else Action.WAIT


@dataclass(frozen=True)
class Paths:
    """Where a training's things lie, as its processes see it."""

    durable: Path
    nvme: str
    """With {node} for the node's name."""
    backup: str = ""
    """The object store's URL, a folder, or empty for none."""


class TrainingControl:
    """Carries out decisions for the trainings of one platform."""

    def __init__(
        self, launcher: Launcher, fleet: Fleet, paths: Paths, revision: str = "", clock: Callable[[], float] = time.time
    ) -> None:
        self.launcher, self.fleet, self.paths = launcher, fleet, paths
        self._revision, self._clock = revision, clock

    def advance(self, store: TrainingStore, by: str, nodes: tuple[str, ...] | None = None) -> Action:
        """Take the one step that is due; returns it. `nodes` restricts the choice of nodes (a trial's slot).

        Raises resources.launcher.protocol.Unavailable when the launcher or the fleet cannot be asked; nothing
        has happened then that a later call does not put right.
        """
        seen, job, older, chosen = self._observe(store, nodes)
        action = decide(seen)
        match action:
            case Action.CLAIM:
                store.claim(seen.incarnation + 1, chosen, self._cause(store), by)
            case Action.STOP_OLDER:
                self.launcher.cancel(job_name(store.id, older), SUPERSEDED_GRACE_SECONDS)
            case Action.SUBMIT:
                self._submit(store, seen.incarnation, by)
            case Action.STOP:
                self.launcher.cancel(job_name(store.id, seen.incarnation), GRACE_SECONDS)
            case Action.RECORD:
                store.record_exit(seen.incarnation, *self._verdict(store.id, seen, job), by)
            case Action.GIVE_UP:
                store.want("stop", by, f"{seen.fruitless} in a row without a new checkpoint; {self._cause(store)}")
            case Action.WAIT | Action.DONE:
                pass
        return action

    def failure(self, store: TrainingStore) -> str | None:
        """Why the running incarnation must be given up, None when it need not be. Raises Unavailable."""
        claim = store.newest_claim()
        if claim is None or store.exit() is not None:
            return None
        lost = [node for node in self.fleet.nodes() if node.name in claim.nodes and not node.ready]
        if lost:
            return "; ".join(f"node {node.name} is lost: {node.reason}" for node in lost)
        status, limit = self.status(store), store.terms().no_progress_seconds
        age = progress_age(store, status, self._clock())
        if status.state is State.RUNNING and age > limit:
            return f"no progress for {age:.0f} s (the deadline is {limit:.0f} s)"
        return None

    def supersede(self, store: TrainingStore, cause: str, by: str, nodes: tuple[str, ...] | None = None) -> bool:
        """Give up the running incarnation: claim the next one on healthy nodes; `advance` does the rest.

        False when too few nodes are ready, when somebody else did it, or when nothing runs.
        """
        claim = store.newest_claim()
        chosen = self._choose(store, nodes)
        if claim is None or store.exit() is not None or len(chosen) < store.terms().min_nodes:
            return False
        incarnation = claim.token.incarnation
        if not store.claim(incarnation + 1, chosen, cause, by):
            return False
        store.note(by, "incident", incarnation, cause=cause, nodes=list(claim.nodes))
        store.record_exit(incarnation, "failed", cause, by)
        return True

    def status(self, store: TrainingStore) -> Status:
        """The newest incarnation's job; MISSING before the first."""
        claim = store.newest_claim()
        return self.launcher.poll(job_name(store.id, claim.token.incarnation)) if claim else Status(State.MISSING)

    def _observe(
        self, store: TrainingStore, nodes: tuple[str, ...] | None
    ) -> tuple[Observation, Status, int, tuple[str, ...]]:
        """What is, the newest job's status, the earlier incarnation that is live (0: none), the nodes to choose."""
        claim, terms = store.newest_claim(), store.terms()
        incarnation = claim.token.incarnation if claim else 0
        ended = store.exit()
        running = claim is not None and ended is None
        job = self.launcher.poll(job_name(store.id, incarnation)) if running else Status(State.MISSING)
        older = self._older_live(store, incarnation) if running else 0
        chosen = self._choose(store, nodes)
        seen = Observation(
            wanted=store.wanted,
            incarnation=incarnation,
            outcome=ended.outcome if ended else None,
            fruitless=store.fruitless(),
            fruitless_limit=terms.fruitless_incarnations,
            job=job.state,
            submitted=store.submitted(incarnation),
            missing_confirmed=running and self._missing_confirmed(store, incarnation, job.state),
            older_live=older > 0,
            ready_nodes=len(chosen),
            min_nodes=terms.min_nodes,
        )
        return seen, job, older, chosen

    def _older_live(self, store: TrainingStore, incarnation: int) -> int:
        """The newest earlier incarnation whose job may run, 0 for none.

        A job was submitted only once all before it were not live, so the search ends at the first job found.
        """
        for earlier in range(incarnation - 1, 0, -1):
            state = self.launcher.poll(job_name(store.id, earlier)).state
            if state.live:
                return earlier
            if state.terminal or store.submitted(earlier):
                return 0
        return 0

    def _missing_confirmed(self, store: TrainingStore, incarnation: int, job: State) -> bool:
        if job is not State.MISSING or not store.submitted(incarnation):
            store.seen_again(incarnation)
            return False
        return store.missing_for(incarnation, self._clock()) >= MISSING_GRACE_SECONDS

    def _choose(self, store: TrainingStore, allowed: tuple[str, ...] | None) -> tuple[str, ...]:
        """Ready nodes by name, no more than the training may have."""
        ready = [node.name for node in self.fleet.nodes() if node.ready and (allowed is None or node.name in allowed)]
        return tuple(ready[: store.terms().max_nodes])

    def _submit(self, store: TrainingStore, incarnation: int, by: str) -> None:
        """Submit or adopt the job; when it cannot be started as described, that is how the incarnation ended."""
        claim = store.newest_claim()
        assert claim is not None
        if claim.token.incarnation != incarnation:
            return
        try:
            self.launcher.submit(self._job(store, claim))
        except ValueError as error:
            store.record_exit(incarnation, "failed", str(error), by)
            return
        store.mark_submitted(incarnation)
        if store.exit() is not None:
            # It was not wanted any more and recorded as ended while it was on its way.
            self.launcher.cancel(job_name(store.id, incarnation), GRACE_SECONDS)

    def _job(self, store: TrainingStore, claim: Claim) -> Job:
        """Raises ValueError when the code of a script is gone, and for a key of checkpoints that cannot be used."""
        incarnation, specification = claim.token.incarnation, store.specification()
        script = specification.script
        if key_file := store.storage().key_file:
            sealing.read_key(Path(key_file))
        return Job(
            name=job_name(store.id, incarnation),
            command=tuple(script["command"]) if script else ("python", "-m", "trainer"),
            folder=str(scripts.folder(script["code"], self.paths.durable)) if script else "",
            config=self._configuration(store, specification),
            nodes=claim.nodes,
            ranks_per_node=store.terms().ranks_per_node,
            environment={"SLIPWAY_INCARNATION": str(incarnation), "SLIPWAY_REVISION": self._revision},
            labels={"training": store.id, "incarnation": str(incarnation)},
            kubernetes=store.terms().kubernetes,
        )

    def _configuration(self, store: TrainingStore, specification: Specification) -> dict[str, object]:
        placement = {
            "store": str(store.folder),
            "durable": str(self.paths.durable),
            "nvme": self.paths.nvme,
            "backup": self.paths.backup,
            "staging": store.terms().staging,
            "init": store.terms().init,
        }
        return {
            "format": FORMAT if specification.script else config.FORMAT,
            "training": store.id,
            "snapshot": specification.snapshot,
            **specification.numbers,
            **store.terms().operation,
            "placement": placement,
        }

    def _verdict(self, training: str, seen: Observation, job: Status) -> tuple[str, str]:
        """(outcome, reason) of an incarnation that left no record of its own."""
        if not seen.wanted:
            return "stopped", "asked to stop"
        match job.state:
            case State.FAILED:
                return "failed", f"{job.reason}{self._last_words(training, seen.incarnation)}"
            case State.MISSING:
                return "failed", "the job object was deleted by hand; it is started again"
            case _:
                return "stopped", job.reason or "the job ended before the last step"

    def _last_words(self, training: str, incarnation: int) -> str:
        """What the trainer said last on each node, for the reason of a failure."""
        words = ""
        for node, log in self.launcher.logs(job_name(training, incarnation), tail_bytes=4096).items():
            said = [line for line in log.splitlines() if line.startswith("trainer: ")]
            words += f"; {node}: {said[-1]}" if said else ""
        return words

    def _cause(self, store: TrainingStore) -> str:
        ended = store.exit()
        return f"incarnation {ended.incarnation} {ended.outcome}: {ended.reason}" if ended else "first start"


def job_name(training: str, incarnation: int) -> str:
    """The job of an incarnation: the same name for whoever submits it."""
    return f"{training}-i{incarnation}"


def progress_age(store: TrainingStore, status: Status, now: float) -> float:
    """Seconds since any rank moved on: since the last progress, or since the job started if that is later."""
    moments = [beat.progress_at for beat in store.beats()]
    begun = status.started_at or status.submitted_at or now
    return now - max([begun, *moments])
