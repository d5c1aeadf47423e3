"""Hyperband: brackets of successive halving that each start one rung later, so that not all depend on low rungs.

Source: Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", JMLR 2018. With S + 1
rungs (the full length is one), bracket s begins with ceil((S + 1) / (S - s + 1) x eta^(S - s)) of the trials at rung s.
The trials of one bracket are compared among themselves, by promotion. Which bracket a trial is in follows from its
number alone, so that the same seed gives the same sweep whatever its name.
"""

import functools
import itertools
from dataclasses import dataclass

from slipway.assets.sweeps.events import Decided, Resumed
from slipway.assets.sweeps.schedulers.promotion import PromotionHalving, chances, promoted
from slipway.assets.sweeps.schedulers.stopping import judged
from slipway.assets.sweeps.state import RungArrival, SweepState

GOLDEN = 2654435769
"""2^32 over the golden ratio: its multiples modulo 2^32 fall evenly into all intervals (Knuth 6.4)."""


@dataclass(frozen=True)
class HyperbandBrackets:
    """Halving by promotion within each bracket."""

    halving: PromotionHalving
    """The first bracket, which has all rungs."""

    def until(self, number: int, step: int) -> int:
        bracket = self.bracket(number)
        return next((rung for rung in self.halving.pauses if rung > step and rung in self._rungs(bracket)), self._end)

    def judge(self, sweep: SweepState) -> Decided | None:
        for arrival in sweep.unjudged:
            bracket = self.bracket(arrival.trial)
            if arrival.rung not in self._rungs(bracket):
                return Decided(trial=arrival.trial, step=arrival.rung, verdict="go on")
            own = self._of_bracket(sweep, arrival.rung, bracket)
            return judged(sweep, [arrival], self.halving.eta, self.halving.noise, own)
        return None

    def go_on(self, sweep: SweepState) -> Resumed | None:
        for is_last, rung in chances(sweep, self.halving.pauses):
            for bracket in range(len(self.weights)):
                if rung in self._rungs(bracket):
                    own = self._of_bracket(sweep, rung, bracket)
                    number = promoted(sweep, own, rung, self.halving.eta, self.halving.noise, is_last)
                    if number is not None:
                        return Resumed(trial=number, until=self.until(number, rung))
        return None

    def bracket(self, number: int) -> int:
        """The bracket of a trial, spread by `weights`; it depends only on the trial's number."""
        position = (number * GOLDEN) % 2**32 * sum(self.weights)
        ends = itertools.accumulate(self.weights)
        return next(bracket for bracket, end in enumerate(ends) if position < end * 2**32)

    @functools.cached_property
    def weights(self) -> tuple[int, ...]:
        """The relative numbers of trials in the brackets, as whole numbers, rounded up."""
        top = len(self.halving.rungs)  # S: the rungs are those below the full length
        eta = self.halving.eta
        return tuple(-(-((top + 1) * eta ** (top - low)) // (top - low + 1)) for low in range(top + 1))

    @property
    def _end(self) -> int:
        return self.halving.steps

    def _rungs(self, bracket: int) -> tuple[int, ...]:
        return self.halving.rungs[bracket:]

    def _of_bracket(self, sweep: SweepState, rung: int, bracket: int) -> tuple[RungArrival, ...]:
        return tuple(arrival for arrival in sweep.arrivals.get(rung, ()) if self.bracket(arrival.trial) == bracket)
