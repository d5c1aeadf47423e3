"""The trials of a sweep as trainings: an action on a trial is carried out on its training.

A trial is a training like any other (specification, fence, ledger), in the folder of the sweep, and the same state
machine starts, watches and stops it. It has a grant for the steps up to its next pause
(`slipway.trainer.record.grants`). Every method may be called again after a crash: it finds what is already done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway.assets.sweeps import events
from slipway.assets.sweeps.actions import Continue, Start, StartBranch
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.state import Trial
from slipway.assets.sweeps.store import SweepStore
from slipway.recipes.search_space import fields_in
from slipway.resources.trainings import branching
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue
from slipway.trainer.config import changing
from slipway.trainer.record import files, grants, ledger

BY = "sweep"
AT_ONCE = (Action.CLAIM, Action.RECORD, Action.GIVE_UP)
"""The actions that need no waiting."""


def trials_of(store: SweepStore) -> Trainings:
    """The trials of a sweep, as trainings."""
    return Trainings(store.folder / "trials")


def trial_id(store: SweepStore, number: int) -> str:
    """The id of a trial, which is also its partition."""
    return f"{store.sweep}.{number}"


class TrialCurve:
    """The validation losses of a trial by step; each access reads only what is new."""

    def __init__(self, store: TrainingStore) -> None:
        self._tail = ledger.Tail(store.folder)
        self.losses: dict[int, float] = {}

    def read(self) -> dict[int, float]:
        """The losses so far, with the last value of a repeated step. Raises OSError."""
        self.losses.update(ledger.validation_curve(self._tail.new()))
        return self.losses


@dataclass
class SweepTrials:
    """The trainings of one sweep's trials."""

    sweep: SweepStore
    subject: SearchSubject
    wait_seconds: float
    """The time for which a paused trial keeps its slot, because the next decision may let it continue."""
    _curves: dict[int, TrialCurve] = field(default_factory=dict)
    _stores: dict[int, TrainingStore] = field(default_factory=dict)

    @property
    def root(self) -> Trainings:
        return trials_of(self.sweep)

    def store(self, number: int) -> TrainingStore:
        if number not in self._stores:
            self._stores[number] = self.root.store(trial_id(self.sweep, number))
        return self._stores[number]

    def start(
        self, action: Start | Continue | StartBranch, nodes: tuple[str, ...], control: TrainingControl
    ) -> list[events.Event]:
        """Let a trial train up to its next pause, on some of these nodes; Started once its job is submitted.

        A trial that a person has stopped meanwhile ends instead.

        Raises ValueError for parameters that its recipe does not accept, Unavailable and OSError.
        """
        store = self.store(action.trial)
        by_hand = self._stopped_by_hand(action.trial, store)
        if by_hand:
            return [by_hand]
        match action:
            case Start():
                self._propose(store, action)
            case StartBranch():
                self._branch(store, action)
        grants.grant(store.folder, action.until, BY, self.wait_seconds)
        self.root.start(store, BY, _why(action), queues=(WorkQueue.TRACKING,))
        done = self.advance(store, control, nodes)
        facts = store.read()
        is_submitted = facts.running and facts.submitted(facts.incarnation)
        if facts.claim is None or not (done is Action.DONE or is_submitted):
            return []
        job = job_name(store.id, facts.incarnation)
        return [events.Started(trial=action.trial, job=job, nodes=facts.claim.nodes)]

    def watch(self, trial: Trial, steps: int, free: tuple[str, ...], control: TrainingControl) -> list[events.Event]:
        """The news of a running trial: its new reports, and whether it has paused or ended.

        `steps` is the full length; `free` are the nodes on which it may restart. Raises Unavailable and OSError.
        """
        store = self.store(trial.number)
        facts = store.read()
        fault = control.fault(facts, control.fleet.nodes())
        if fault:
            control.supersede(store, facts, fault, BY, free)
        over = self.advance(store, control, free) is Action.DONE
        facts = store.read()  # before its ledger, to which a finished trial writes no more
        reports = self.new_reports(trial)
        if over and facts.paused:
            return [*self._at_rung(trial, reports), events.Paused(trial=trial.number, step=trial.until)]
        if over and facts.ended is not None:
            return [*reports, self._ended(trial.number, facts, steps)]
        if trial.until < steps and self._has_come_to(trial, facts):
            return [*reports, events.Paused(trial=trial.number, step=trial.until)]
        return reports

    def interrupt(self, trial: Trial, why: str, steps: int, control: TrainingControl) -> list[events.Event]:
        """Make a running trial save and leave its slot; Paused at the saved step, once it has left."""
        store = self.store(trial.number)
        store.want("stop", BY, why, by_platform=True)
        if self.advance(store, control, None) is not Action.DONE:
            return []
        facts = store.read()
        reports = self.new_reports(trial)
        if facts.succeeded:
            return [*reports, self._ended(trial.number, facts, steps)]
        by_hand = self._stopped_by_hand(trial.number, store)
        if by_hand:
            return [*reports, by_hand]
        step = max((commit.step for commit in facts.commits), default=trial.first_step)
        if step == trial.until:
            reports = self._at_rung(trial, reports)
        return [*reports, events.Paused(trial=trial.number, step=step)]

    def stop(self, trial: Trial, reason: str, control: TrainingControl) -> list[events.Event]:
        """Stop a trial; Ended once it has no job left, immediately if it never started."""
        store = self.store(trial.number)
        if not (store.folder / files.SPECIFICATION).exists():
            return [events.Ended(trial=trial.number, outcome="stopped", reason=reason)]
        store.want("stop", BY, reason, by_platform=True)
        if self.advance(store, control, None) is not Action.DONE:
            return []
        return [*self.new_reports(trial), events.Ended(trial=trial.number, outcome="stopped", reason=reason)]

    def ended_by_hand(self, trial: Trial) -> events.Ended | None:
        """The end of a trial that waits at a rung and that a person has stopped; None if nobody has. Raises OSError."""
        return self._stopped_by_hand(trial.number, self.store(trial.number))

    def leave(self, trial: Trial, control: TrainingControl) -> bool:
        """Make a trial that waits at a rung leave its slot; returns whether it has left."""
        store = self.store(trial.number)
        if not store.read().running:
            return True
        grants.grant(store.folder, trial.until, BY)
        return self.advance(store, control, None) is Action.DONE

    def advance(self, store: TrainingStore, control: TrainingControl, nodes: tuple[str, ...] | None) -> Action:
        """Take the due actions, up to the first one that needs time. Raises Unavailable."""
        while (action := control.advance(store, BY, nodes)) in AT_ONCE:
            pass
        return action

    def new_reports(self, trial: Trial) -> list[events.Event]:
        return [
            events.Reported(trial=trial.number, step=step, value=events.finite_or_none(loss))
            for step, loss in sorted(self._curve(trial.number).read().items())
            if step not in trial.reports
        ]

    def _curve(self, number: int) -> TrialCurve:
        return self._curves.setdefault(number, TrialCurve(self.store(number)))

    def _propose(self, store: TrainingStore, action: Start) -> None:
        recipe = self.subject.trial(action.parameters)
        policy = self.subject.trial_terms(recipe, self.sweep.sweep, action.trial, action.parameters)
        self.root.propose(self.subject.trial_specification(recipe), policy, id=store.id, by=BY)

    def _branch(self, store: TrainingStore, action: StartBranch) -> None:
        """Propose the child of another trial's commit, which is retained for it; only once, as the commit may go
        later."""
        if (store.folder / files.SPECIFICATION).exists():
            return
        parent = self.store(action.parent)
        recipe = self.subject.trial(action.parameters)
        policy = self.subject.trial_terms(recipe, self.sweep.sweep, action.trial, action.parameters)
        commit = branching.commit_at(parent, action.step)
        before = branching.numbers_at(parent, parent.specification(), action.step)
        changes = changed_fields(self.subject.recipe.space, before, recipe.numbers())
        branching.branch(self.root, parent, commit, changes, policy, BY, id=store.id)

    def _at_rung(self, trial: Trial, reports: list[events.Event]) -> list[events.Event]:
        """These reports, with one for the step of the pause, which has no value if the ledger has none."""
        if trial.until in trial.reports or trial.until in self._curve(trial.number).losses:
            return reports
        return [*reports, events.Reported(trial=trial.number, step=trial.until, value=None)]

    def _has_come_to(self, trial: Trial, facts: TrainingFacts) -> bool:
        """Whether a trial has reported at its pause, and the checkpoint of that step is recorded."""
        if trial.until not in self._curve(trial.number).losses:
            return False
        return any(commit.step == trial.until for commit in facts.commits)

    def _ended(self, number: int, facts: TrainingFacts, steps: int) -> events.Ended:
        """The end of a trial, with the validation loss of its last step if the ledger has one."""
        ended = facts.ended
        assert ended is not None
        if ended.outcome != "succeeded":
            by_hand = self._stopped_by_hand(number, self.store(number))
            if by_hand:
                return by_hand
            return events.Ended(trial=number, outcome="failed", reason=ended.reason)
        value = self._curve(number).losses.get(steps)
        if value is None:  # a training continues even if its ledger cannot be written
            reason = f"its ledger has no validation loss of step {steps}"
            return events.Ended(trial=number, outcome="completed", reason=reason)
        return events.Ended(trial=number, outcome="completed", value=events.finite_or_none(value))

    def _stopped_by_hand(self, number: int, store: TrainingStore) -> events.Ended | None:
        """The end of a trial that a person has stopped, which is not a failure."""
        desired = store.desired()
        if desired is None or desired.want != "stop" or desired.by == BY or desired.by_platform:
            return None
        return events.Ended(trial=number, outcome="stopped", reason=f"stopped by {desired.by}: {desired.why}")


def _why(action: Start | Continue | StartBranch) -> str:
    return f"attempt {action.attempt + 1}, up to step {action.until}"


def changed_fields(names: Iterable[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The searched fields of a training's identity that differ between two trials, with their later values. A section
    is searched by its fields, and a parameter that does not exist in a trial has the recipe's value."""
    changes = {}
    for searched in names:
        for name, value in fields_in(searched, changing.value_of(after, searched)):
            if not isinstance(value, Mapping) and changing.value_of(before, name) != value:
                changes[name] = value
    return changes
