"""The trials of a sweep as trainings: what is asked of a trial is done to its training, and the result is returned.

A trial is a training like any other (specification, fence, ledger), in the folder of the sweep; the same state machine
starts, watches and stops it. It is granted its steps up to where it pauses (`slipway.trainer.record.grants`). Every
method may be called again after a crash: what was done is found, and done no second time.
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
"""What is done without waiting for anything."""


def trials_of(store: SweepStore) -> Trainings:
    """The trials of a sweep, as trainings."""
    return Trainings(store.folder / "trials")


def trial_id(store: SweepStore, number: int) -> str:
    """The id of a trial, which is its partition too."""
    return f"{store.sweep}.{number}"


class TrialCurve:
    """The validation losses of a trial, by step, of which each look reads what is new."""

    def __init__(self, store: TrainingStore) -> None:
        self._tail = ledger.Tail(store.folder)
        self.losses: dict[int, float] = {}

    def read(self) -> dict[int, float]:
        """The losses so far; of a step that was repeated, the last one. Raises OSError."""
        self.losses.update(ledger.validation_curve(self._tail.new()))
        return self.losses


@dataclass
class SweepTrials:
    """The trainings of one sweep's trials."""

    sweep: SweepStore
    subject: SearchSubject
    wait_seconds: float
    """How long a trial stays, with all that it holds, where it pauses: the next decision may let it go on."""
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
        """Have a trial train up to where it pauses next, on some of these nodes; Started once its job is submitted.

        A trial that a person has stopped meanwhile ends instead.

        Raises ValueError for parameters that its recipe does not accept, Unavailable and OSError.
        """
        store = self.store(action.trial)
        if by_hand := self._stopped_by_hand(action.trial, store):
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
        """What a running trial has done since: its new reports, and whether it has paused or ended.

        `steps` is the full length; `free` are the nodes on which it may be started again. Raises Unavailable, OSError.
        """
        store = self.store(trial.number)
        facts = store.read()
        if fault := control.fault(facts, control.fleet.nodes()):
            control.supersede(store, facts, fault, BY, free)
        over = self.advance(store, control, free) is Action.DONE
        facts = store.read()  # before its ledger: what is over writes no more
        reports = self.new_reports(trial)
        if over and facts.paused:
            return [*self._at_rung(trial, reports), events.Paused(trial=trial.number, step=trial.until)]
        if over and facts.ended is not None:
            return [*reports, self._ended(trial.number, facts, steps)]
        if trial.until < steps and self._has_come_to(trial, facts):
            return [*reports, events.Paused(trial=trial.number, step=trial.until)]
        return reports

    def interrupt(self, trial: Trial, why: str, steps: int, control: TrainingControl) -> list[events.Event]:
        """Have a running trial save and leave its slot; Paused at the step that it saved, once it has left."""
        store = self.store(trial.number)
        store.want("stop", BY, why, by_platform=True)
        if self.advance(store, control, None) is not Action.DONE:
            return []
        facts, reports = store.read(), self.new_reports(trial)
        if facts.succeeded:
            return [*reports, self._ended(trial.number, facts, steps)]
        if by_hand := self._stopped_by_hand(trial.number, store):
            return [*reports, by_hand]
        step = max((commit.step for commit in facts.commits), default=trial.first_step)
        if step == trial.until:
            reports = self._at_rung(trial, reports)
        return [*reports, events.Paused(trial=trial.number, step=step)]

    def stop(self, trial: Trial, reason: str, control: TrainingControl) -> list[events.Event]:
        """Have a trial stop; Ended once no job of it is left, at once for one that was never started."""
        store = self.store(trial.number)
        if not (store.folder / files.SPECIFICATION).exists():
            return [events.Ended(trial=trial.number, outcome="stopped", reason=reason)]
        store.want("stop", BY, reason, by_platform=True)
        if self.advance(store, control, None) is not Action.DONE:
            return []
        return [*self.new_reports(trial), events.Ended(trial=trial.number, outcome="stopped", reason=reason)]

    def ended_by_hand(self, trial: Trial) -> events.Ended | None:
        """How a trial that waits at a rung ends because a person stopped it; None where nobody did. Raises OSError."""
        return self._stopped_by_hand(trial.number, self.store(trial.number))

    def leave(self, trial: Trial, control: TrainingControl) -> bool:
        """Have a trial that waits at a rung give up its slot; whether it has."""
        store = self.store(trial.number)
        if not store.read().running:
            return True
        grants.grant(store.folder, trial.until, BY)
        return self.advance(store, control, None) is Action.DONE

    def advance(self, store: TrainingStore, control: TrainingControl, nodes: tuple[str, ...] | None) -> Action:
        """Take the actions that are due, up to the first that needs time. Raises Unavailable."""
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
        """Propose the child of another trial's commit, which is held for it; once, as the commit may go afterwards."""
        if (store.folder / files.SPECIFICATION).exists():
            return
        parent, recipe = self.store(action.parent), self.subject.trial(action.parameters)
        policy = self.subject.trial_terms(recipe, self.sweep.sweep, action.trial, action.parameters)
        commit = branching.commit_at(parent, action.step)
        before = branching.numbers_at(parent, parent.specification(), action.step)
        changes = changed_fields(self.subject.recipe.space, before, recipe.numbers())
        branching.branch(self.root, parent, commit, changes, policy, BY, id=store.id)

    def _at_rung(self, trial: Trial, reports: list[events.Event]) -> list[events.Event]:
        """These reports, with one of the step at which the trial pauses: without a value, where its ledger has none."""
        if trial.until in trial.reports or trial.until in self._curve(trial.number).losses:
            return reports
        return [*reports, events.Reported(trial=trial.number, step=trial.until, value=None)]

    def _has_come_to(self, trial: Trial, facts: TrainingFacts) -> bool:
        """Whether a trial has reported where it pauses, and its checkpoint of that step is on record."""
        if trial.until not in self._curve(trial.number).losses:
            return False
        return any(commit.step == trial.until for commit in facts.commits)

    def _ended(self, number: int, facts: TrainingFacts, steps: int) -> events.Ended:
        """How a trial ended, with its validation loss of the last step where its ledger has one."""
        ended = facts.ended
        assert ended is not None
        if ended.outcome != "succeeded":
            if by_hand := self._stopped_by_hand(number, self.store(number)):
                return by_hand
            return events.Ended(trial=number, outcome="failed", reason=ended.reason)
        value = self._curve(number).losses.get(steps)
        if value is None:  # a training goes on when its ledger cannot be written
            reason = f"its ledger has no validation loss of step {steps}"
            return events.Ended(trial=number, outcome="completed", reason=reason)
        return events.Ended(trial=number, outcome="completed", value=events.finite_or_none(value))

    def _stopped_by_hand(self, number: int, store: TrainingStore) -> events.Ended | None:
        """The end of a trial that a person does not want any more, which is no failure of it."""
        desired = store.desired()
        if desired is None or desired.want != "stop" or desired.by == BY or desired.by_platform:
            return None
        return events.Ended(trial=number, outcome="stopped", reason=f"stopped by {desired.by}: {desired.why}")


def _why(action: Start | Continue | StartBranch) -> str:
    return f"attempt {action.attempt + 1}, up to step {action.until}"


def changed_fields(names: Iterable[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that decide what a training computes and differ between two of them, with their later values; of
    those that are searched. A section is searched by its fields, and a parameter that does not exist in a trial has the
    recipe's value."""
    changes = {}
    for searched in names:
        for name, value in fields_in(searched, changing.value_of(after, searched)):
            if not isinstance(value, Mapping) and changing.value_of(before, name) != value:
                changes[name] = value
    return changes
