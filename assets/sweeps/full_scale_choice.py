"""The full-scale choice at the end of a sweep: the parameters of the training at full scale. Pure functions.

They are the best trial's if it beats trial 0, the recipe as it is written, by more than the noise of both values,
because the lowest of many noisy values is partly luck. Otherwise the recipe stays as it is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway.assets.sweeps import lineage
from slipway.assets.sweeps.schedulers.ties import band
from slipway.assets.sweeps.state import SweepState, Trial

WRITTEN = 0
"""The trial that is the recipe as it is written."""


@dataclass(frozen=True)
class FullScaleChoice:
    """The parameters for full scale, and the reason."""

    trial: int
    parameters: Mapping[str, Any]
    """The values that differ from the training's recipe; empty for the recipe as it is written."""
    why: str
    schedule: tuple[tuple[float, Mapping[str, Any]], ...] = field(default=())
    """For population-based training: the parameters from each point of the training on, as a share of its steps."""


def choose(sweep: SweepState) -> FullScaleChoice | None:
    """The choice of a completed sweep; None for other sweeps, and without a best trial."""
    best = sweep.best
    plain = sweep.trials.get(WRITTEN)
    if sweep.closed is None or sweep.closed.outcome != "complete" or best is None:
        return None
    finding = f"trial {best.number} is the best"
    if plain is None or best.number == WRITTEN:
        return FullScaleChoice(best.number, {}, f"{finding}, which is the recipe as it is written")
    of_best = lineage.reports(sweep, best)
    its = lineage.reports(sweep, plain)
    common = [step for step in of_best if of_best[step] is not None and its.get(step) is not None]
    if not common:
        why = f"{finding}, and the recipe as it is written has no value at a step where both have one"
        return FullScaleChoice(best.number, dict(best.parameters), why, _schedule(sweep, best))
    step = max(common)
    gain = float(its[step] or 0.0) - float(of_best[step] or 0.0)
    margin = band(of_best, its, step, sweep.plan.scheduler.get("noise"))
    known = "is not known, as there are too few reports"
    if margin is not None:
        known = f"is {margin:.4g}"
    comparison = f"after step {step} it is {gain:.4g} below the recipe as it is written, and the noise {known}"
    if gain > (margin or 0.0):
        return FullScaleChoice(best.number, dict(best.parameters), f"{finding}: {comparison}", _schedule(sweep, best))
    return FullScaleChoice(WRITTEN, {}, f"{finding}, but {comparison}: the recipe stays as it is")


def _schedule(sweep: SweepState, best: Trial) -> tuple[tuple[float, Mapping[str, Any]], ...]:
    if best.parent is None:
        return ()
    stretches = lineage.schedule(sweep, best)
    return tuple((stretch.first_step / sweep.plan.steps, dict(stretch.parameters)) for stretch in stretches)
