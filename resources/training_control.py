"""Training control: the one state machine that brings what is in line with what should be.

`advance` observes, decides (`resources.training_decision`) and acts once. It is level-triggered: it may be called
at any moment, by any number of callers at once (a waiting asset, the job watch), as every action is a create-only
write or idempotent by the job's name.
"""

import time
from collections.abc import Callable, Sequence

from resources import tails, training_job
from resources import training_faults as faults
from resources.fleet.protocol import Fleet, Node
from resources.launcher.protocol import Launcher, State, Status
from resources.training_decision import Action, Observation, decide
from resources.training_faults import Fault, Waiting
from resources.training_job import Paths, job_name
from resources.training_store import TrainingStore

GRACE_SECONDS = 20.0
"""Between asking a job to stop and killing it: time for a last checkpoint, where nobody says otherwise."""
SUPERSEDED_GRACE_SECONDS = 1.0
"""The same for a job that was superseded: its commits count no more, so there is nothing to wait for."""
MISSING_GRACE_SECONDS = 10.0
"""A job object must be seen missing twice, this far apart, before it counts as deleted."""


class TrainingControl:
    """Carries out decisions for the trainings of one platform."""

    def __init__(
        self,
        launcher: Launcher,
        fleet: Fleet,
        paths: Paths,
        revision: str = "",
        clock: Callable[[], float] = time.time,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self.launcher, self.fleet, self.paths = launcher, fleet, paths
        self._revision, self._clock, self._grace_seconds = revision, clock, grace_seconds

    def advance(self, store: TrainingStore, by: str, nodes: tuple[str, ...] | None = None, run: str = "") -> Action:
        """Take the one step that is due; returns it. `nodes` restricts the choice of nodes (a trial's slot).

        `run` is the Dagster run that asks, if one does: a job that is submitted says so. Raises
        resources.launcher.protocol.Unavailable when the launcher or the fleet cannot be asked; nothing
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
                self._submit(store, seen.incarnation, by, run)
            case Action.STOP:
                self._stop(store, seen.incarnation)
            case Action.RECORD:
                self._record(store, seen, job, by)
            case Action.GIVE_UP:
                store.want("stop", by, f"{seen.fruitless} in a row without a new checkpoint; {self._cause(store)}")
            case Action.WAIT | Action.DONE:
                pass
        return action

    def failure(self, store: TrainingStore, fleet: Sequence[Node]) -> Fault | None:
        """Why the running incarnation must be given up, None when it need not be. Raises Unavailable."""
        claim, terms = store.newest_claim(), store.terms()
        if claim is None or store.exit() is not None:
            return None
        status = self.status(store)
        age = faults.progress_age(store.beats(), status, self._clock())
        return (
            faults.lost(status, fleet)
            or faults.pre_empted(status, store.begun(claim.token.incarnation))
            or faults.stranded(status, claim.nodes, fleet, terms.min_nodes)
            or faults.stuck(status, age, terms.no_progress_seconds)
        )

    def supersede(self, store: TrainingStore, fault: Fault, by: str, nodes: tuple[str, ...] | None = None) -> bool:
        """Give up the running incarnation: claim the next one on healthy nodes; `advance` does the rest.

        False when too few nodes are ready, when somebody else did it, or when nothing runs.
        """
        claim = store.newest_claim()
        chosen = self._choose(store, nodes)
        if claim is None or store.exit() is not None or len(chosen) < store.terms().min_nodes:
            return False
        incarnation = claim.token.incarnation
        if not store.claim(incarnation + 1, chosen, fault.cause, by):
            return False
        tails.keep(store, incarnation, self.launcher)  # before its job is stopped
        store.note(by, "incident", incarnation, cause=fault.cause, nodes=list(fault.nodes))
        store.record_exit(incarnation, "failed", fault.cause, by, fault.nodes, fault.disrupted)
        return True

    def overdue(self, store: TrainingStore) -> Waiting | None:
        """What a wanted training has been waiting for longer than its terms say, None when it does not.

        Nothing follows from it but that somebody is told: a quota, a node or an image may still come. Raises
        Unavailable.
        """
        return self.waiting(store, store.terms().pending_seconds)

    def waiting(self, store: TrainingStore, at_least: float = 0.0) -> Waiting | None:
        """What a wanted training has been waiting for, so many seconds at least; None otherwise. Raises Unavailable."""
        desired, claim, ended = store.desired(), store.newest_claim(), store.exit()
        if desired is None or not store.unfinished:
            return None
        incarnation = claim.token.incarnation if claim else 0
        running = claim is not None and ended is None
        since = claim.at if claim and running else max(desired.at, ended.at if ended else 0.0)
        seconds = self._clock() - since
        if seconds < at_least or (running and store.begun(incarnation)):
            return None
        if reason := self._waits_for(store, incarnation) if running else self._waits_for_nodes(store):
            return Waiting(incarnation, reason, seconds)
        return None

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
        submitted = store.submitted(incarnation)
        older = self._older_live(store, incarnation) if running and not submitted else 0
        chosen = () if running else self._choose(store, nodes)
        seen = Observation(
            wanted=store.wanted,
            incarnation=incarnation,
            outcome=ended.outcome if ended else None,
            fruitless=store.fruitless(),
            fruitless_limit=terms.fruitless_incarnations,
            job=job.state,
            submitted=submitted,
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
        """Ready nodes by name: no more than the training may have, or all that a scheduler may choose from."""
        ready = [node.name for node in self.fleet.nodes() if node.ready and (allowed is None or node.name in allowed)]
        return tuple(ready if self.fleet.scheduled else ready[: store.terms().max_nodes])

    def _submit(self, store: TrainingStore, incarnation: int, by: str, run: str) -> None:
        """Submit or adopt the job; when it cannot be started as described, that is how the incarnation ended."""
        claim = store.newest_claim()
        assert claim is not None
        if claim.token.incarnation != incarnation:
            return
        try:
            self.launcher.submit(training_job.job(store, claim, self.paths, self._revision, run))
        except ValueError as error:
            store.record_exit(incarnation, "failed", str(error), by)
            return
        store.mark_submitted(incarnation)
        newest = store.newest_claim()
        if store.exit() is not None or (newest and newest.token.incarnation != incarnation):
            # It was not wanted any more and recorded as ended, or superseded, while it was on its way.
            self._stop(store, incarnation)

    def _stop(self, store: TrainingStore, incarnation: int) -> None:
        grace = store.terms().kubernetes.get("grace_seconds", self._grace_seconds)
        self.launcher.cancel(job_name(store.id, incarnation), grace)

    def _record(self, store: TrainingStore, seen: Observation, job: Status, by: str) -> None:
        """Record the end of an incarnation that left no record of its own."""
        outcome, reason = self._verdict(store.id, seen, job)
        disrupted = job.disrupted or bool(job.lost_nodes and faults.lost_nodes(job.lost_nodes, self.fleet.nodes()))
        store.record_exit(seen.incarnation, outcome, reason, by, job.nodes, disrupted)

    def _verdict(self, training: str, seen: Observation, job: Status) -> tuple[str, str]:
        """(outcome, reason) of an incarnation."""
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

    def _waits_for_nodes(self, store: TrainingStore) -> str:
        return faults.too_few(self.fleet.nodes(), store.terms().min_nodes)

    def _waits_for(self, store: TrainingStore, incarnation: int) -> str:
        """What a claimed incarnation waits for; empty when its job is not pending."""
        job = self.status(store)
        if job.state is State.PENDING:
            return job.reason or "its job is pending, and its launcher does not say why"
        older = self._older_live(store, incarnation) if job.state is State.MISSING else 0
        return f"the job of incarnation {older}, which was asked to stop, has not stopped" if older else ""
