"""The controller of a sweep: carries out the decisions of the pure core, and logs its observations.

It may die between any two lines of the log. Its successor reads the log, takes the same decisions, and finds the
trials' jobs by their names (`slipway.assets.sweeps.trials`). A poll lists the nodes once and reads the running trials
that have written something since the last poll. Waiting trials take turns.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from slipway.assets.sweeps import events
from slipway.assets.sweeps.actions import Pause, Stop, TrialAction, next_actions
from slipway.assets.sweeps.decisions import decide
from slipway.assets.sweeps.samplers import TrialSampler
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.slots import Slots
from slipway.assets.sweeps.state import SweepState, Trial
from slipway.assets.sweeps.store import SweepStore
from slipway.assets.sweeps.trial_retention import keep_the_best
from slipway.assets.sweeps.trials import SweepTrials
from slipway.assets.sweeps.turns import Turns
from slipway.resources.errors import Unavailable
from slipway.resources.trainings import caching
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.watch import TrainingTraces
from slipway.trainer.base import lock

LOG = logging.getLogger(__name__)
WARM_SECONDS = 5.0
"""The shortest time for which a trial keeps its slot at a rung, because the next decision may let it continue."""
NEAR_SECONDS = 0.05
"""Seconds between two polls if trials are local processes, because a short trial takes only seconds."""
WARM_POLLS = 3
"""The same time in polls: the controller sees the report in one poll and decides in the next."""


class Controller:
    """Runs one sweep. Of several controllers exactly one works and the others wait, because a log has one writer."""

    def __init__(
        self, store: SweepStore, subject: SearchSubject, control: TrainingControl, poll_seconds: float
    ) -> None:
        self.store = store
        self.control = control
        self.poll_seconds = poll_seconds if control.fleet.scheduled else min(poll_seconds, NEAR_SECONDS)
        self._placement = subject.recipe.trial_of(subject.training).placement
        self._trials = SweepTrials(store, subject, max(WARM_SECONDS, WARM_POLLS * self.poll_seconds))
        self._sampler = TrialSampler()
        self._traces = TrainingTraces()
        self._turns = Turns()
        self._reported: set[str] = set()
        self._occupied_nodes: dict[int, tuple[str, ...]] = {}
        """Nodes that a trial occupies without a log entry, by trial: it is claimed but its job is not submitted, or it
        has paused but not left."""

    def run(self, on_change: Callable[[SweepState], None]) -> SweepState:
        """Run until the sweep is closed and all trials have stopped; `on_change` is called with each new state.

        While another process runs the sweep, this one logs that process and waits for it or for the sweep's end.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self.control.launcher.rest)
            while True:
                try:
                    stack.enter_context(lock.at_once(self.store.folder))
                    return self._run(on_change)
                except lock.LockHeld as error:
                    self._say(f"sweep {self.store.sweep}: {error}; this run waits for it, or for the sweep's end")
                sweep = self.store.state()
                if sweep is not None and is_over(sweep):
                    return sweep
                time.sleep(self.poll_seconds)

    def _run(self, on_change: Callable[[SweepState], None]) -> SweepState:
        logged: SweepState | None = None
        while True:
            self.store.log_requests()
            sweep = self.store.state()
            assert sweep is not None, "a sweep is opened before it is run"
            if sweep is not logged:
                on_change(sweep)
            if logged is None:
                unknown = [trial for trial in sweep.not_ended if not trial.nodes]
                occupied = {trial.number: self._nodes_of(trial.number) for trial in unknown}
                self._occupied_nodes = {number: nodes for number, nodes in occupied.items() if nodes}
            logged = sweep
            decided = decide(sweep, self._sampler)
            if decided:
                self.store.append(*decided)
                continue
            if is_over(sweep):
                keep_the_best(sweep, self._trials, self.control.paths)
                return sweep
            new_events = self.poll(sweep)
            if new_events:
                self.store.append(*new_events)
            else:
                time.sleep(self.poll_seconds)

    def poll(self, sweep: SweepState) -> list[events.Event]:
        """Take the due step for each trial; returns the observations for the log."""
        try:
            control = caching.of_now(self.control, is_recurring=True)
            slots = Slots(control.fleet, self._placement)
            self._say(slots.too_many(sweep.budget.parallel))
        except Unavailable as error:
            self._say(f"{error}; the next poll tries again")
            return []
        due = {action.trial: action for action in next_actions(sweep)}
        taken = {trial.number: trial.nodes for trial in sweep.running if trial.nodes} | self._occupied_nodes
        new_events: list[events.Event] = []
        for trial in sweep.not_ended:
            new = self._alone(trial.number, lambda: self._step(trial, due, taken, slots, sweep, control))  # noqa: B023
            for event in new:
                self._note_slot(event, taken)
            new_events += new
        return new_events

    def _step(
        self,
        trial: Trial,
        due: dict[int, TrialAction],
        taken: dict[int, tuple[str, ...]],
        slots: Slots,
        sweep: SweepState,
        control: TrainingControl,
    ) -> Iterable[events.Event]:
        """Take the due step for one trial. Raises Unavailable, OSError, and ValueError if it can never train."""
        steps = sweep.plan.steps
        folder = self._trials.store(trial.number).folder
        action = due.get(trial.number)

        def free_nodes() -> tuple[str, ...]:
            return slots.free(nodes for number, nodes in taken.items() if number != trial.number)

        match action:
            case Stop(reason=reason):
                return self._trials.stop(trial, reason, control)
            case Pause():
                why = sweep.pause.why if sweep.pause else ""
                return self._trials.interrupt(trial, f"the sweep is paused: {why}", steps, control)
            case None if trial.paused:
                if self._turns.is_due(trial.number):
                    ended = self._trials.ended_by_hand(trial)
                    if ended:
                        return [ended]
                if trial.number in self._occupied_nodes and self._trials.leave(trial, control):
                    self._occupied_nodes.pop(trial.number)
                return []
            case None:
                if not self._traces.is_new(folder):
                    return []
                return self._trials.watch(trial, steps, free_nodes(), control)
        free = free_nodes()
        if not free:
            return []
        started = self._trials.start(action, free, control)
        taken[trial.number] = self._occupied_nodes[trial.number] = self._nodes_of(trial.number)
        return started

    def _nodes_of(self, number: int) -> tuple[str, ...]:
        """The nodes that a trial occupies now, even if the log does not have its job."""
        facts = self._trials.store(number).read()
        return facts.nodes if facts.running else ()

    def _note_slot(self, event: events.Event, taken: dict[int, tuple[str, ...]]) -> None:
        """Track the free slots for the next trials of this poll and for the next poll."""
        match event:
            case events.Paused(trial=number):
                self._occupied_nodes[number] = taken.get(number, ())
            case events.Started(trial=number, nodes=nodes):
                self._occupied_nodes.pop(number, None)
                taken[number] = nodes
            case events.Ended(trial=number):
                self._occupied_nodes.pop(number, None)
                taken.pop(number, None)

    def _alone(self, trial: int, step: Callable[[], Iterable[events.Event]]) -> list[events.Event]:
        """The observations of a step for one trial. Its errors do not delay other trials."""
        try:
            return list(step())
        except (Unavailable, OSError) as error:  # the next poll tries again
            self._traces.forget(self._trials.store(trial).folder)
            self._say(f"trial {trial}: {error}; the next poll tries again")
        except ValueError as error:  # such as values that the recipe does not accept any more
            return [events.Ended(trial=trial, outcome="failed", reason=str(error))]
        return []

    def _say(self, what: str) -> None:
        """Log a message once; an empty message is ignored."""
        if what and what not in self._reported:
            self._reported.add(what)
            LOG.warning(what)


def is_over(sweep: SweepState) -> bool:
    """Whether the sweep is closed and all of its trials have ended."""
    return sweep.closed is not None and not sweep.not_ended
