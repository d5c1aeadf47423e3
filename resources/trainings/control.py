"""Training control: the state machine that brings a training to its desired state.

`advance` reads the training's facts once, decides (`slipway.resources.trainings.decision`) and acts once. It is
level-triggered: any number of callers (a waiting asset, the job watch) may call it at any time, because every action is
a create-only write or idempotent by the job's name.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from slipway.resources.fleet.protocol import Fleet, Node, by_name
from slipway.resources.launchers.protocol import JobState, Launcher, Status
from slipway.resources.trainings import budgets, faults, incidents, refusals
from slipway.resources.trainings.decision import Action, TrainingObservation, decide
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.faults import TrainingFault, Waiting
from slipway.resources.trainings.growth import GROWTHS, Growing, GrowthWatch
from slipway.resources.trainings.job import Paths, job_name
from slipway.resources.trainings.quotas import Quotas
from slipway.resources.trainings.store import TrainingStore
from slipway.resources.trainings.submission import Submission
from slipway.resources.trainings.watch import WATCH, ProgressWatch, is_writable
from slipway.trainer.config.profiles import HardwareProfile
from slipway.trainer.record import causes, rank_exit

GRACE_SECONDS = 20.0
"""The time from asking a job to stop until killing it, for a last checkpoint. A recipe may set another time."""
SUPERSEDED_GRACE_SECONDS = 1.0
"""The same for a superseded job. It is short, since the job's commits are no longer valid."""
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
        watch: ProgressWatch = WATCH,
        hardware: HardwareProfile | None = None,
        sees_nodes: bool = False,
        growths: GrowthWatch = GROWTHS,
        quotas: Quotas | None = None,
    ) -> None:
        """`sees_nodes`: whether this process can read the nodes' NVMe folders."""
        self.launcher = launcher
        self.fleet = fleet
        self.paths = paths
        self._submission = Submission(paths, clock, revision, hardware, sees_nodes)
        self._quotas = quotas or Quotas(paths.durable)
        self._growing = Growing(growths, paths.durable, fleet.scheduled)
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._watch = watch

    def advance(self, store: TrainingStore, by: str, nodes: tuple[str, ...] | None = None, run: str = "") -> Action:
        """Take the one step that is due, and return it. `nodes` restricts the choice of nodes (a trial's slot).

        `run` is the calling Dagster run, if any; a submitted job carries its id. Raises
        slipway.resources.errors.Unavailable if the launcher or the fleet does not answer; a later call completes what
        was begun.
        """
        return self.act(store, store.read(), by, nodes, run)

    def act(
        self,
        store: TrainingStore,
        facts: TrainingFacts,
        by: str,
        nodes: tuple[str, ...] | None = None,
        run: str = "",
    ) -> Action:
        """As `advance`, with facts that the caller has read. They are outdated afterwards."""
        observation, job, older, chosen = self._observe(store, facts, nodes)
        action = decide(observation)
        match action:
            case Action.CLAIM:
                store.claim(facts.incarnation + 1, chosen, _cause(facts), by)
            case Action.STOP_OLDER:
                self.launcher.cancel(job_name(facts.id, older), SUPERSEDED_GRACE_SECONDS)
            case Action.SUBMIT:
                self._submit(store, facts, by, run)
            case Action.STOP:
                self._stop(facts)
            case Action.RECORD:
                self._record(store, facts, job, by)
            case Action.GIVE_UP:
                store.want("stop", by, f"{observation.exhausted}; {_cause(facts)}", by_platform=True)
            case Action.WAIT | Action.DONE:
                pass
        return action

    def fault(self, facts: TrainingFacts, fleet: Mapping[str, Node] | Sequence[Node]) -> TrainingFault | None:
        """Why the running incarnation must be replaced, or None. Raises Unavailable.

        A caller with many trainings passes the fleet as a mapping by name, so that it is built only once.
        """
        if facts.claim is None or not facts.running:
            return None
        status = self.status(facts)
        nodes = fleet if isinstance(fleet, Mapping) else by_name(fleet)
        if faults.lost(status, nodes):  # a cheap check before the members are read
            members = None if facts.specification.script else facts.nodes
            lost = faults.lost(status, nodes, members, facts.run_policy.min_nodes)
            if lost:
                return lost
        match status.state:
            case JobState.PENDING:
                pre_empted = faults.pre_empted(status, facts.begun)
                return pre_empted or faults.stranded(
                    status, facts.claim.nodes, nodes.values(), facts.run_policy.min_nodes
                )
            case JobState.RUNNING:
                return self._hung(facts, status)
            case _:
                return None

    def _hung(self, facts: TrainingFacts, status: Status) -> TrainingFault | None:
        """The fault if no rank makes progress although the store is writable; an unwritable store is not a hang.

        Raises OSError if the store cannot be read. In both cases, the ranks' deadlines start again.
        """
        assert facts.claim is not None
        key = facts.folder, facts.claim.token
        if self._watch.rests(*key):
            return None
        try:
            sights = self._watch.look(*key, facts.beats)
            deadline = facts.run_policy.deadline
        except OSError:
            self._watch.restart(*key)
            raise
        least = facts.run_policy.hang_seconds
        fault = faults.stuck(status, sights, deadline, least)
        if fault and not is_writable(facts.folder):
            self._watch.restart(*key)
            return None
        if fault is None:
            self._watch.rest(*key, faults.rest(sights, deadline, least))
        return fault

    def supersede(
        self,
        store: TrainingStore,
        facts: TrainingFacts,
        fault: TrainingFault,
        by: str,
        nodes: tuple[str, ...] | None = None,
    ) -> bool:
        """Replace the running incarnation: claim the next one on healthy nodes; `advance` does the rest.

        Returns False if too few nodes are ready, if another process was faster, if nothing runs, or for some seconds
        while the nodes of a hanging incarnation collect its stacks. The caller may try again.
        """
        if not facts.running:
            return False
        chosen = self._choose(facts, nodes, fault)
        incarnation = facts.incarnation
        if len(chosen) < facts.run_policy.min_nodes:
            return False
        if not incidents.is_diagnosed(store, facts, fault, by):
            return False
        ended = store.exit_of(incarnation, "failed", fault.cause, by, fault.nodes, fault.disrupted, fault.kind)
        if not store.claim(incarnation + 1, chosen, fault.cause, by, ended):
            return False
        incidents.note_given_up(store, ended, self.launcher)  # before its job is stopped
        return True

    def grow(self, store: TrainingStore, facts: TrainingFacts, fleet: Mapping[str, Node], by: str) -> str:
        """Restart the running incarnation on more nodes if that is due; returns the reason, or "".

        This does not count as a failure. A job takes back a node that it had lost, without a restart. Raises
        Unavailable.
        """
        if not self._growing.is_wanted(facts, fleet) or self.status(facts).state is not JobState.RUNNING:
            return ""
        chosen = self._choose(facts, self._growing.allowed(facts, fleet))
        incarnation = facts.incarnation
        if self.launcher.take_back(job_name(facts.id, incarnation), set(chosen) - set(facts.nodes)):
            return ""
        new = self._growing.due(facts, chosen)
        if not new:
            return ""
        cause = self._growing.cause(facts, new)
        ended = store.exit_of(incarnation, "stopped", cause, by, facts.nodes, disrupted=True, kind=causes.GROWN)
        if not store.claim(incarnation + 1, chosen, cause, by, ended):
            return ""
        store.note_growth(incarnation, cause, new, by)
        store.note_end(ended)
        return cause

    def overdue(self, facts: TrainingFacts) -> Waiting | None:
        """What an unfinished training has been waiting for longer than its run policy allows, or None.

        It is only reported, since a quota, a node or an image may still come. Raises Unavailable.
        """
        return self.waiting(facts, facts.run_policy.pending_seconds) if facts.unfinished else None

    def waiting(self, facts: TrainingFacts, at_least: float = 0.0) -> Waiting | None:
        """What an unfinished training has been waiting for, for at least `at_least` seconds, or None.
        Raises Unavailable.
        """
        if facts.desired is None or not facts.unfinished or facts.paused:
            return None
        if facts.claim and facts.running:
            since = facts.claim.at
        else:
            since = max(facts.desired.at, facts.ended.at if facts.ended else 0.0)
        seconds = self._clock() - since
        if seconds < at_least or (facts.running and facts.begun):
            return None
        reason = self._job_waits_for(facts) if facts.running else self._start_waits_for(facts)
        return Waiting(facts.incarnation, reason, seconds) if reason else None

    def held_back(self, facts: TrainingFacts) -> str:
        """Why the next start waits although nodes are ready (a pause, a rejection, a quota), or ""."""
        now = self._clock()
        return (
            refusals.pause(facts, now)
            or budgets.rest(facts, now)
            or (self._quotas.holds_back(facts, now) if facts.unfinished else "")
        )

    def status(self, facts: TrainingFacts) -> Status:
        """The status of the newest incarnation's job; MISSING before the first."""
        return self.launcher.poll(job_name(facts.id, facts.incarnation)) if facts.claim else Status(JobState.MISSING)

    def grace_of(self, facts: TrainingFacts) -> float:
        """Seconds from asking the training's job to stop until killing it."""
        return float(facts.run_policy.kubernetes.get("grace_seconds", self._grace_seconds))

    def _observe(
        self, store: TrainingStore, facts: TrainingFacts, nodes: tuple[str, ...] | None
    ) -> tuple[TrainingObservation, Status, int, tuple[str, ...]]:
        """The observation, the newest job's status, the live earlier incarnation (0: none), and the chosen nodes."""
        job = self.status(facts) if facts.running else Status(JobState.MISSING)
        submitted = facts.submitted(facts.incarnation)
        older = self._older_live(facts) if facts.running and not submitted else 0
        chosen = () if facts.running else self._choose(facts, nodes)
        observation = TrainingObservation(
            should_run=facts.should_run and not facts.paused,
            incarnation=facts.incarnation,
            outcome=facts.ended.outcome if facts.ended else None,
            exhausted="" if facts.running and submitted else budgets.exhausted_by(facts),
            held_back=not (facts.running and submitted) and bool(self.held_back(facts)),
            job=job.state,
            submitted=submitted,
            missing_confirmed=facts.running and self._missing_confirmed(store, facts, job.state),
            older_live=older > 0,
            ready_nodes=len(chosen),
            min_nodes=facts.run_policy.min_nodes,
        )
        return observation, job, older, chosen

    def _older_live(self, facts: TrainingFacts) -> int:
        """The newest earlier incarnation whose job may be running; 0 if there is none.

        A job is submitted only if no earlier job is live, so the search ends at the first job that exists.
        """
        for earlier in range(facts.incarnation - 1, 0, -1):
            state = self.launcher.poll(job_name(facts.id, earlier)).state
            if state.live:
                return earlier
            if state.terminal or facts.submitted(earlier):
                return 0
        return 0

    def _missing_confirmed(self, store: TrainingStore, facts: TrainingFacts, job: JobState) -> bool:
        """Whether a submitted job has been missing for the grace period; records when it was first missing."""
        since = facts.missing_since(facts.incarnation)
        missing = job is JobState.MISSING
        if not missing or not facts.submitted(facts.incarnation):
            if since is not None:
                store.unmark_missing(facts.incarnation)
            return False
        if since is None:
            store.mark_missing(facts.incarnation, self._clock())
            return False
        return self._clock() - since >= MISSING_GRACE_SECONDS

    def _choose(
        self, facts: TrainingFacts, allowed: tuple[str, ...] | None, fault: TrainingFault | None = None
    ) -> tuple[str, ...]:
        """The names of ready nodes: at most as many as the training may use, or all if a scheduler chooses from them.

        The training's current nodes come first, since they hold its data and its newest checkpoint. Nodes on which its
        last faults began are used only if there would be too few otherwise.
        """
        ready = [node.name for node in self.fleet.nodes() if node.ready and (allowed is None or node.name in allowed)]
        policies = facts.run_policy.policies
        doubtful = incidents.suspects_on_record(facts.folder, facts.incarnation, facts.nodes, policies)
        doubtful |= incidents.suspects_of_fault(fault, policies) if fault else frozenset()
        ready = incidents.avoiding_suspects(ready, doubtful, facts.run_policy.max_nodes)
        if not self.fleet.scheduled:
            ready = sorted(ready, key=lambda node: node not in facts.nodes)[: facts.run_policy.max_nodes]
        return tuple(sorted(ready))

    def _submit(self, store: TrainingStore, facts: TrainingFacts, by: str, run: str) -> None:
        """Submit or adopt the job. If it cannot be started as described, the incarnation ends with that error."""
        if not self._submission.submit(self.launcher, store, facts, by, run, self.grace_of(facts)):
            return
        store.mark_submitted(facts.incarnation, by)
        after = store.read()
        if after.ended is not None or after.incarnation != facts.incarnation:
            # During the submission, the training was stopped and its end recorded, or it was superseded.
            self._stop(facts)

    def _stop(self, facts: TrainingFacts) -> None:
        self.launcher.cancel(job_name(facts.id, facts.incarnation), self.grace_of(facts))

    def _record(self, store: TrainingStore, facts: TrainingFacts, job: Status, by: str) -> None:
        """Record the end of an incarnation that left no record of its own."""
        nodes = by_name(self.fleet.nodes()) if job.lost_nodes else {}
        disrupted = job.disrupted or bool(faults.lost_nodes(job.lost_nodes, nodes))
        end = faults.verdict(facts.should_run, job, disrupted, rank_exit.decisive(facts.folder, facts.incarnation))
        reason = end.reason
        if end.outcome == "failed" and job.state is JobState.FAILED:
            reason += self._last_trainer_lines(facts)
        store.record_exit(facts.incarnation, end.outcome, reason, by, job.nodes, end.disrupted, end.kind, job.ended_at)
        incidents.note_if_failed(store, facts.incarnation)

    def _last_trainer_lines(self, facts: TrainingFacts) -> str:
        """The last line of the trainer on each node, for the reason of a failure."""
        logs = self.launcher.logs(job_name(facts.id, facts.incarnation), tail_bytes=4096)
        trainer_lines = {
            node: [line for line in log.splitlines() if line.startswith("trainer: ")] for node, log in logs.items()
        }
        return "".join(f"; {node}: {lines[-1]}" for node, lines in trainer_lines.items() if lines)

    def _start_waits_for(self, facts: TrainingFacts) -> str:
        """What the next incarnation waits for; "" if enough nodes are ready."""
        return self.held_back(facts) or faults.too_few(self.fleet.nodes(), facts.run_policy.min_nodes)

    def _job_waits_for(self, facts: TrainingFacts) -> str:
        """What a claimed incarnation waits for; "" if its job is not pending."""
        if facts.refusal is not None:
            return refusals.waits_for(facts.refusal)
        job = self.status(facts)
        if job.state is JobState.PENDING:
            return job.reason or "its job is pending, and its launcher does not say why"
        older = self._older_live(facts) if job.state is JobState.MISSING else 0
        return f"the job of incarnation {older} is stopping" if older else ""


def _cause(facts: TrainingFacts) -> str:
    """Why the next incarnation is claimed, or why the training fails for good."""
    ended = facts.ended
    return f"incarnation {ended.incarnation} {ended.outcome}: {ended.reason}" if ended else "first start"
