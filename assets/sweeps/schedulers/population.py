"""Population-based training: at each interval, changed copies of the best members replace the worst.

Source: Jaderberg et al., "Population Based Training of Neural Networks", 2017 (arXiv:1711.09846): truncation selection;
a parameter of a copy is perturbed by a factor, or drawn anew with a probability.

The members wait for one another at each interval, so that all are compared at the same step, whatever the order in
which they come. Each has paused there: its commit is verified, and it is this commit that a child continues. A child is
a trial of its own; its member's parameters over time are `lineage.schedule`. The scheduler's randomness is a function
of the seed, the step and the child's place, so that a sweep that was killed draws the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slipway.assets.sweeps import draws
from slipway.assets.sweeps.draws import Mutation
from slipway.assets.sweeps.events import Decided, Proposed, Resumed
from slipway.assets.sweeps.state import SweepState, Trial
from slipway.recipes.search_space import SearchSpace


@dataclass(frozen=True)
class PopulationRules:
    """Truncation selection among the members at each interval."""

    every: int
    steps: int
    quantile: float
    mutation: Mutation
    seed: int
    space: SearchSpace

    def until(self, number: int, step: int) -> int:
        return min(step - step % self.every + self.every, self.steps)

    def judge(self, sweep: SweepState) -> Decided | None:
        """Once all members have arrived, the worst of them stop and the others continue."""
        step = _interval(sweep)
        members = _members_at(sweep, step)
        if step is None or not members or _on_their_way(sweep, step):
            return None
        worst = {trial.number for trial in members[len(members) - self._replaced(members) :]}
        for trial in members:
            if (trial.number, step) not in sweep.verdicts:
                stops = trial.number in worst or trial.reports.get(step) is None
                return Decided(trial=trial.number, step=step, verdict="stop" if stops else "go on")
        return None

    def go_on(self, sweep: SweepState) -> Resumed | Proposed | None:
        """The children come first, because their parents must not continue past the commit before them."""
        step = next((trial.paused_at for trial in sweep.paused if _goes_on(sweep, trial)), None)
        if step is None:
            return None
        best = [trial for trial in _members_at(sweep, step) if _goes_on(sweep, trial)]
        stopped = sum(verdict == "stop" for (_, at), verdict in sweep.verdicts.items() if at == step)
        children = sum(trial.parent is not None and trial.first_step == step for trial in sweep.trials.values())
        if children < stopped:
            parents = best[: max(1, self._replaced(best))]
            random = draws.generator(self.seed, "child", step, children)
            parent = parents[random.randrange(len(parents))]
            changed = draws.mutated(self.space, parent.parameters, self.mutation, random)
            until = self.until(len(sweep.trials), step)
            return Proposed(trial=len(sweep.trials), parameters=changed, until=until, parent=parent.number, step=step)
        first = min(best, key=lambda trial: trial.number)
        return Resumed(trial=first.number, until=self.until(first.number, step))

    def _replaced(self, members: Sequence[Trial]) -> int:
        """The number of members to replace: the share, and at least one of two or more."""
        if len(members) > 1:
            return max(int(self.quantile * len(members)), 1)
        return 0


def _interval(sweep: SweepState) -> int | None:
    """The step at which members wait for a verdict; the lowest one if members were added later."""
    at = [
        trial.paused_at
        for trial in sweep.paused
        if trial.is_waiting and (trial.number, trial.paused_at) not in sweep.verdicts
    ]
    return min((step for step in at if step is not None), default=None)


def _members_at(sweep: SweepState, step: int | None) -> list[Trial]:
    """The members at an interval, sorted by value and then by number."""
    there = [trial for trial in sweep.paused if trial.paused_at == trial.until == step]
    reports = {trial.number: trial.reports.get(step or 0) for trial in there}
    values = {number: float("inf") if report is None else report for number, report in reports.items()}
    return sorted(there, key=lambda trial: (values[trial.number], trial.number))


def _on_their_way(sweep: SweepState, step: int) -> bool:
    """Whether a member may still reach an interval."""
    if sweep.drawn < sweep.budget.trials or any(trial.until <= step for trial in sweep.retryable):
        return True
    return any(trial.until <= step and not trial.is_waiting for trial in sweep.not_ended if not trial.told_to_stop)


def _goes_on(sweep: SweepState, trial: Trial) -> bool:
    """Whether a waiting trial has the verdict to continue."""
    return (
        trial.is_waiting
        and trial.paused_at is not None
        and sweep.verdicts.get((trial.number, trial.paused_at)) == "go on"
    )
