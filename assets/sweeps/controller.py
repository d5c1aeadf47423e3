"""The controller of a sweep: carries out what the pure core decides, and logs what it observes.

It may die between any two lines of the log. Its successor reads the log, takes the same decisions, and finds the
trials' jobs by their names. A trial is a training like any other (specification, fence, ledger), in the folder of the
sweep; the same state machine starts, watches and stops it.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from assets.sweeps import events
from assets.sweeps.decisions import Start, Stop, decide, next_actions
from assets.sweeps.space import Parameters
from assets.sweeps.state import SweepState, Trial
from assets.sweeps.store import SweepStore
from assets.training import terms
from recipes.sweep import SweepRecipe
from recipes.training import ModelRecipe, with_parameters
from resources.trainings.control import TrainingControl
from resources.trainings.decision import Action
from resources.trainings.duties import Duty
from resources.trainings.job import job_name
from resources.trainings.records import Specification
from resources.trainings.store import Trainings, TrainingStore
from resources.unavailable import Unavailable
from trainer.base import lock
from trainer.record import fence, ledger

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SearchSubject:
    """The subject of a search: a sweep recipe, its training recipe and a snapshot."""

    recipe: SweepRecipe
    training: ModelRecipe
    snapshot: str
    tokenizer: str

    def trial(self, parameters: Parameters) -> ModelRecipe:
        """The recipe of the trial with these parameters: a trial is a training."""
        return with_parameters(self.recipe.trial_of(self.training), dict(parameters))

    def specification(self) -> dict[str, object]:
        """Everything that decides the course of the sweep, as JSON; its hash is in the sweep's id."""
        passed_over = {"description", "owner", "placement"}
        searched = self.recipe.model_dump(mode="json", exclude=passed_over, exclude_unset=True)
        return {
            "sweep": searched,
            "numbers": self.training.numbers(),
            "snapshot": self.snapshot,
            "tokenizer": self.tokenizer,
        }

    def opened(self, sweep: str, recipe_hash: str) -> events.Opened:
        """The first event of its log."""
        recipe = self.recipe
        *rungs, steps = recipe.halving.rungs
        return events.Opened(
            sweep=sweep,
            recipe=recipe_hash,
            space={name: {domain.kind: domain.values} for name, domain in recipe.space.items()},
            sampler=recipe.sampler,
            seed=recipe.seed,
            trials=recipe.trials,
            parallel=recipe.parallel,
            steps=steps,
            rungs=tuple(rungs),
            eta=recipe.halving.eta,
            retries=recipe.limits.retries,
            failed_trials=recipe.limits.failed_trials,
        )


class Controller:
    """Runs one sweep. Exactly one of several controllers works and the others wait, because a log has one writer."""

    def __init__(
        self, store: SweepStore, subject: SearchSubject, control: TrainingControl, poll_seconds: float
    ) -> None:
        self.store, self.subject, self.control, self.poll_seconds = store, subject, control, poll_seconds
        self.trials = trials_of(store)
        self._said: set[str] = set()
        self._curves: dict[str, TrialCurve] = {}

    def run(self, on_change: Callable[[SweepState], None]) -> SweepState:
        """Run until the sweep is closed and no trial runs; `on_change` is called with each new state.

        While another process runs it, this one says which, and waits for it or for the sweep's end.
        """
        with contextlib.ExitStack() as held:
            while True:
                try:
                    held.enter_context(lock.at_once(self.store.folder))
                    return self._run(on_change)
                except lock.Held as error:
                    self._say(f"sweep {self.store.sweep}: {error}; this run waits for it, or for the sweep's end")
                sweep = self.store.state()
                if sweep is not None and sweep.closed and not sweep.running:
                    return sweep
                time.sleep(self.poll_seconds)

    def _run(self, on_change: Callable[[SweepState], None]) -> SweepState:
        while True:
            self.store.log_cancellation()
            sweep = self.store.state()
            assert sweep is not None, "a sweep is opened before it is run"
            on_change(sweep)
            if decided := decide(sweep):
                self.store.append(*decided)
            elif sweep.closed and not sweep.running:
                return sweep
            elif seen := self._act_and_observe(sweep):
                self.store.append(*seen)
            else:
                time.sleep(self.poll_seconds)

    def _act_and_observe(self, sweep: SweepState) -> list[events.Event]:
        stops = {action.trial: action for action in next_actions(sweep) if isinstance(action, Stop)}
        starts = {action.trial: action for action in next_actions(sweep) if isinstance(action, Start)}
        seen: list[events.Event] = []
        for trial in sweep.running:
            new: list[events.Event] = []
            store = self.trials.store(trial_id(self.store, trial.number))
            try:
                if trial.number in starts:
                    new = self._start(store, starts[trial.number], sweep)
                elif trial.number in stops:
                    new = self._stop(store, trial, stops[trial.number].reason)
                else:
                    new = self._watch(store, trial, sweep)
            except (Unavailable, OSError) as error:  # the same is tried again later, and the other trials go on
                self._say(f"trial {trial.number}: {error}; it is tried again")
            except ValueError as error:  # such as values that the recipe does not accept any more
                new = [events.Ended(trial=trial.number, outcome="failed", reason=str(error))]
            for event in new:
                sweep = sweep.after(event)
            seen += new
        return seen

    def _say(self, what: str) -> None:
        """Say something in the log of the run, once."""
        if what not in self._said:
            self._said.add(what)
            LOG.warning(what)

    def _start(self, store: TrainingStore, start: Start, sweep: SweepState) -> list[events.Event]:
        recipe = self.subject.trial(start.parameters)
        specification = Specification(recipe.name, recipe.numbers(), self.subject.snapshot, self.subject.tokenizer)
        origin = {"sweep": self.store.sweep, "trial": start.trial, **start.parameters}
        self.trials.propose(specification, terms(recipe, origin), id=store.id, by="sweep")
        self.trials.start(store, "sweep", f"attempt {start.attempt + 1}", duties=(Duty.TRACKING,))
        self._advance(store, self._free_nodes(start.trial, sweep))
        facts = store.read()
        if facts.claim is None or not facts.submitted(facts.incarnation):
            return []
        job = job_name(store.id, facts.incarnation)
        return [events.Started(trial=start.trial, job=job, nodes=facts.claim.nodes)]

    def _stop(self, store: TrainingStore, trial: Trial, reason: str) -> list[events.Event]:
        if (store.folder / "specification.json").exists():
            store.want("stop", "sweep", reason)
            if self._advance(store, None) is not Action.DONE:
                return []
        return [*self._new_reports(store, trial), events.Ended(trial=trial.number, outcome="stopped", reason=reason)]

    def _watch(self, store: TrainingStore, trial: Trial, sweep: SweepState) -> list[events.Event]:
        free = self._free_nodes(trial.number, sweep)
        facts = store.read()
        if fault := self.control.fault(facts, self.control.fleet.nodes()):
            self.control.supersede(store, facts, fault, "sweep", free)
        action = self._advance(store, free)
        ended = store.exit() if action is Action.DONE else None  # before its ledger: what is over writes no more
        reports = self._new_reports(store, trial)
        value = self._curve(store).losses.get(sweep.plan.steps)
        return [*reports, _ended(trial.number, ended, sweep.plan.steps, value)] if ended else reports

    def _new_reports(self, store: TrainingStore, trial: Trial) -> list[events.Event]:
        return [
            events.Reported(trial=trial.number, step=step, value=events.finite_or_none(loss))
            for step, loss in sorted(self._curve(store).read().items())
            if step not in trial.reports
        ]

    def _curve(self, store: TrainingStore) -> "TrialCurve":
        return self._curves.setdefault(store.id, TrialCurve(store))

    def _advance(self, store: TrainingStore, nodes: tuple[str, ...] | None) -> Action:
        """Take the actions that are due, up to the first that needs time. Raises Unavailable."""
        at_once = (Action.CLAIM, Action.RECORD, Action.GIVE_UP)
        while (action := self.control.advance(store, "sweep", nodes)) in at_once:
            pass
        return action

    def _free_nodes(self, trial: int, sweep: SweepState) -> tuple[str, ...]:
        """The nodes without another trial of this sweep; all nodes when those are too few for a trial, or when a
        scheduler places trials."""
        names = tuple(node.name for node in self.control.fleet.nodes() if node.ready)
        if self.control.fleet.scheduled:
            return names
        busy = {node for other in sweep.running if other.number != trial for node in other.nodes}
        free = tuple(name for name in names if name not in busy)
        return free if len(free) >= self.subject.recipe.placement.nodes.min else names


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


def _ended(number: int, ended: fence.Exit, steps: int, value: float | None) -> events.Ended:
    """How a trial ended, with its validation loss of the last step where its ledger has one."""
    if ended.outcome != "succeeded":
        return events.Ended(trial=number, outcome="failed", reason=ended.reason)
    if value is None:  # a training goes on when its ledger cannot be written
        reason = f"its ledger has no validation loss of step {steps}"
        return events.Ended(trial=number, outcome="completed", reason=reason)
    return events.Ended(trial=number, outcome="completed", value=events.finite_or_none(value))
