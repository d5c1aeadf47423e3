"""The scheduler of a sweep's plan. Without one, every trial trains at full length and nothing is compared."""

from dataclasses import dataclass

from slipway.assets.sweeps.draws import Mutation
from slipway.assets.sweeps.events import Opened, rungs_of
from slipway.assets.sweeps.schedulers.hyperband import HyperbandBrackets
from slipway.assets.sweeps.schedulers.median import MedianRule
from slipway.assets.sweeps.schedulers.population import PopulationRules
from slipway.assets.sweeps.schedulers.promotion import PromotionHalving
from slipway.assets.sweeps.schedulers.protocol import SweepScheduler
from slipway.assets.sweeps.schedulers.stopping import StoppingHalving
from slipway.assets.sweeps.state import SweepState
from slipway.recipes.schedulers import (
    HyperbandScheduler,
    MedianScheduler,
    NoScheduler,
    PopulationScheduler,
    PromotionScheduler,
    StoppingScheduler,
    parsed,
)
from slipway.recipes.search_space import SearchSpace


def scheduler_of(plan: Opened) -> SweepScheduler:
    """The scheduler of a plan. Raises RefusedValue for an unknown scheduler."""
    section = parsed(plan.scheduler)
    steps = plan.steps
    rungs = rungs_of(plan)
    match section:
        case NoScheduler():
            return FullLength(steps)
        case StoppingScheduler(eta=eta, noise=noise):
            return StoppingHalving(steps, eta, noise)
        case PromotionScheduler(eta=eta, noise=noise, restart_steps=restart):
            return PromotionHalving(rungs, steps, eta, noise, restart)
        case HyperbandScheduler(eta=eta, noise=noise, restart_steps=restart):
            return HyperbandBrackets(PromotionHalving(rungs, steps, eta, noise, restart))
        case MedianScheduler(startup=startup):
            return MedianRule(steps, startup)
        case PopulationScheduler(every=every, quantile=quantile):
            space = SearchSpace.of(plan.space, plan.constraints, plan.fixed)
            mutation = Mutation(section.factors, section.resample)
            return PopulationRules(every, steps, quantile, mutation, plan.seed, space)


@dataclass(frozen=True)
class FullLength:
    """Every trial trains `steps`."""

    steps: int

    def until(self, number: int, step: int) -> int:
        return self.steps

    def judge(self, sweep: SweepState) -> None:
        return None

    def go_on(self, sweep: SweepState) -> None:
        return None
