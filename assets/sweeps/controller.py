"""The controller of a sweep: carries out what the pure core decides, and logs what it observes.

It may die between any two lines of the log. Its successor reads the log, takes the same decisions, and finds
the trials' jobs by their names. A trial is a training like any other (specification, fence, ledger), in the
sweep's own folder; the same state machine starts, watches and stops it.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from assets.sweeps import events
from assets.sweeps.decisions import Start, Stop, decide, next_actions
from assets.sweeps.state import Sweep, Trial
from assets.sweeps.store import SweepStore
from recipes.schema import Sweep as SweepRecipe
from recipes.schema import Training, with_parameters
from resources.launcher.protocol import Unavailable
from resources.training_control import TrainingControl
from resources.training_decision import Action
from resources.training_job import job_name
from resources.training_store import Specification, Terms, Trainings, TrainingStore
from trainer import fence, ledger, lock


@dataclass(frozen=True)
class Subject:
    """What is searched: a training recipe on a snapshot."""

    recipe: SweepRecipe
    training: Training
    snapshot: str
    tokenizer: str

    def specification(self) -> dict[str, object]:
        """Everything that decides the sweep's course, as JSON; its hash is in the sweep's id."""
        searched = self.recipe.model_dump(mode="json", exclude={"description", "owner"}, exclude_unset=True)
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
    """Runs one sweep. Of several, one works and the others wait: a log has one writer."""

    def __init__(self, store: SweepStore, subject: Subject, control: TrainingControl, poll_seconds: float) -> None:
        self.store, self.subject, self.control, self.poll_seconds = store, subject, control, poll_seconds
        self.trials = trials_of(store)

    def run(self, on_change: Callable[[Sweep], None]) -> Sweep:
        """Go on until the sweep is closed and no trial runs; `on_change` is told of each new state."""
        with lock.exclusive(self.store.folder):
            return self._run(on_change)

    def _run(self, on_change: Callable[[Sweep], None]) -> Sweep:
        while True:
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

    def _act_and_observe(self, sweep: Sweep) -> list[events.Event]:
        stops = {action.trial: action for action in next_actions(sweep) if isinstance(action, Stop)}
        starts = {action.trial: action for action in next_actions(sweep) if isinstance(action, Start)}
        seen: list[events.Event] = []
        for trial in sweep.running:
            new: list[events.Event] = []
            store = self.trials.store(trial_id(self.store, trial.number))
            # What a launcher or a fleet that cannot be asked keeps from happening now, happens later.
            with contextlib.suppress(Unavailable):
                if trial.number in starts:
                    new = self._start(store, starts[trial.number], sweep)
                elif trial.number in stops:
                    new = self._stop(store, trial, stops[trial.number].reason)
                else:
                    new = self._watch(store, trial, sweep)
            for event in new:
                sweep = sweep.after(event)
            seen += new
        return seen

    def _start(self, store: TrainingStore, start: Start, sweep: Sweep) -> list[events.Event]:
        recipe = with_parameters(self.subject.training, {**self.subject.recipe.trial, **start.parameters})
        specification = Specification(recipe.name, recipe.numbers(), self.subject.snapshot, self.subject.tokenizer)
        origin = {"sweep": self.store.sweep, "trial": start.trial, **start.parameters}
        folder = recipe.init.folder if recipe.init else ""
        pods = recipe.placement.kubernetes.model_dump(exclude_defaults=True)
        terms = Terms(1, 1, 1, recipe.recovery.no_progress_seconds, 1, origin, init=folder, kubernetes=pods)
        self.trials.propose(specification, terms, id=store.id)
        self.trials.start(store, "sweep", f"attempt {start.attempt + 1}", duties=("tracking",))
        self._advance(store, self._free_nodes(start.trial, sweep))
        claim = store.newest_claim()
        if claim is None or not store.submitted(claim.token.incarnation):
            return []
        job = job_name(store.id, claim.token.incarnation)
        return [events.Started(trial=start.trial, job=job, nodes=claim.nodes)]

    def _stop(self, store: TrainingStore, trial: Trial, reason: str) -> list[events.Event]:
        if (store.folder / "specification.json").exists():
            store.want("stop", "sweep", reason)
            if self._advance(store, None) is not Action.DONE:
                return []
        return [*_new_reports(store, trial), events.Ended(trial=trial.number, outcome="stopped", reason=reason)]

    def _watch(self, store: TrainingStore, trial: Trial, sweep: Sweep) -> list[events.Event]:
        free = self._free_nodes(trial.number, sweep)
        if fault := self.control.failure(store, self.control.fleet.nodes()):
            self.control.supersede(store, fault, "sweep", free)
        action = self._advance(store, free)
        reports = _new_reports(store, trial)
        ended = store.exit() if action is Action.DONE else None
        return [*reports, _ended(store, trial.number, ended)] if ended else reports

    def _advance(self, store: TrainingStore, nodes: tuple[str, ...] | None) -> Action:
        """Take the steps that are due, up to one that needs time. Raises Unavailable."""
        at_once = (Action.CLAIM, Action.RECORD, Action.GIVE_UP)
        while (action := self.control.advance(store, "sweep", nodes)) in at_once:
            pass
        return action

    def _free_nodes(self, trial: int, sweep: Sweep) -> tuple[str, ...]:
        """The nodes that no other trial of the sweep runs on; all of them when there is none, or a scheduler places."""
        names = tuple(node.name for node in self.control.fleet.nodes() if node.ready)
        if self.control.fleet.scheduled:
            return names
        busy = {node for other in sweep.running if other.number != trial for node in other.nodes}
        return tuple(name for name in names if name not in busy) or names


def trials_of(store: SweepStore) -> Trainings:
    """The trials of a sweep, as trainings."""
    return Trainings(store.folder / "trials")


def trial_id(store: SweepStore, number: int) -> str:
    """A trial's id, and its partition."""
    return f"{store.sweep}.{number}"


def _new_reports(store: TrainingStore, trial: Trial) -> list[events.Event]:
    curve = ledger.validation_curve(store.events()) if store.newest_claim() else []
    return [
        events.Reported(trial=trial.number, step=step, value=events.finite(loss))
        for step, loss in curve
        if step not in trial.reports
    ]


def _ended(store: TrainingStore, number: int, ended: fence.Exit) -> events.Ended:
    if ended.outcome != "succeeded":
        return events.Ended(trial=number, outcome="failed", reason=ended.reason)
    value = ledger.validation_curve(store.events())[-1][1]
    return events.Ended(trial=number, outcome="completed", value=events.finite(value))
