"""The importance of each parameter for a trial's success, with its uncertainty."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from slipway.assets.sweeps.distributions import Coding
from slipway.assets.sweeps.report.compared import merit
from slipway.assets.sweeps.samplers import quiet_optuna
from slipway.assets.sweeps.state import SweepState
from slipway.recipes.search_space import SearchSpace

if TYPE_CHECKING:
    import optuna

ENOUGH = 4
"""The fewest finished trials for which the importance of parameters is computed."""
TOP = 0.25
"""The share of trials that count as good."""
RESAMPLES = 20
"""The number of resamples for the intervals; each takes a tenth of a CPU-second at 1,000 trials."""
INTERVAL = (0.05, 0.95)
"""The quantiles of the resampled shares at the ends of the interval, which contains nine in ten shares."""


@dataclass(frozen=True)
class ParameterImportance:
    """The share of the difference between good trials and all trials that one parameter explains."""

    parameter: str
    share: float
    """0 to 1; the shares of all parameters sum to 1."""
    low: float
    high: float
    """The upper end of the interval of nine in ten shares, if the trials are resampled (the bootstrap)."""


def importance(sweep: SweepState) -> tuple[ParameterImportance, ...] | None:
    """The importance of each parameter for being among the best quarter of trials, the most important first.

    None for fewer than `ENOUGH` finished trials. It uses Optuna's PED-ANOVA (Watanabe et al., IJCAI 2023; for
    parameters that not every trial has, arXiv:2601.20800) over completed and stopped trials. PED-ANOVA only needs to
    know which trials are good, so it works on ranks (more steps first), although values at different steps are not
    comparable; fANOVA would fit the values. With few trials the interval is wide, and a share whose interval reaches 0
    is only a hint.
    """
    ranked = _ranked(sweep)
    if len(ranked) < ENOUGH:
        return None
    with quiet_optuna():
        shares = _shares(ranked)
        draw = random.Random(f"{sweep.plan.seed}:{len(ranked)}")
        again = [
            _shares(sorted(draw.choices(ranked, k=len(ranked)), key=lambda trial: trial.value or 0.0))
            for _ in range(RESAMPLES)
        ]
    importances = [
        ParameterImportance(name, share, *_interval([shares.get(name, 0.0) for shares in again]))
        for name, share in shares.items()
    ]
    return tuple(
        sorted(
            importances, key=lambda parameter_importance: (-parameter_importance.share, parameter_importance.parameter)
        )
    )


def _ranked(sweep: SweepState) -> "list[optuna.trial.FrozenTrial]":
    """The finished trials in Optuna's form, the best first, with their ranks as values.

    The recipe as it is written is left out if its values are outside the space.
    """
    import optuna

    plan = sweep.plan
    trials = list[optuna.trial.FrozenTrial]()
    coding = Coding(SearchSpace.of(plan.space, plan.constraints, plan.fixed))
    for trial in sorted(sweep.finished, key=lambda trial: merit(sweep, trial)):
        coded = coding.coded(trial.parameters)
        if coded is not None:
            domains = {name: coding.distributions[name] for name in coded}
            trials.append(optuna.trial.create_trial(params=coded, distributions=domains, value=float(len(trials))))
    return trials


def _shares(trials: "Sequence[optuna.trial.FrozenTrial]") -> dict[str, float]:
    """The share of each parameter; equal shares if nothing distinguishes good trials from others."""
    import optuna

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.add_trials(trials)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=TOP)
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def _interval(shares: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(shares)
    low, high = (ordered[round(quantile * (len(ordered) - 1))] for quantile in INTERVAL)
    return low, high
