"""The search space of a sweep, and the parameters of its n-th trial.

Optuna's samplers are used as pure functions: each time, a study is built in memory from the finished trials and then
dropped, so only the log of the sweep has to survive a crash. Optuna is imported at its first use, because the import
takes half a second.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import optuna

Space = Mapping[str, Mapping[str, Sequence[Any]]]
"""By dotted parameter, one of {"loguniform": [lo, hi]}, {"uniform": [lo, hi]}, {"randint": [lo, hi]} (both ends
included) and {"choice": [...]} (numbers, strings, booleans)."""
Parameters = Mapping[str, Any]
"""A value for each dotted parameter."""
Sampler = Literal["random", "tpe"]

STARTUP = 5
"""Finished trials before TPE samples by its model; with Optuna's default of 10, small sweeps would be random."""


@dataclass(frozen=True)
class TrialObservation:
    """The result of a finished trial, as the sampler gets it."""

    parameters: Parameters
    value: float | None
    """Lower is better; None, the worst value, for a trial that failed or diverged."""
    stopped_at: int | None = None
    """The step at which the trial was stopped early; None for a trial of full length."""


def suggest(
    space: Space,
    sampler: Sampler,
    seed: int,
    number: int,
    history: Sequence[TrialObservation] = (),
    running: Sequence[Parameters] = (),
) -> dict[str, Any]:
    """The parameters of trial `number`: a pure function of the arguments; "random" uses only seed and number.

    "tpe" is the multivariate tree-structured Parzen estimator (Bergstra et al. 2011, Falkner et al. 2018). It
    counts running trials among the bad ones to keep away from them (the constant liar), and its first `STARTUP`
    trials are those of "random". Raises ValueError for an invalid domain.
    """
    import optuna

    domains = distributions(space)
    own_seed = int.from_bytes(hashlib.sha256(f"{seed}:{number}".encode()).digest()[:4])
    with quiet_optuna():
        if sampler == "random":
            study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=own_seed))
        else:
            tpe = optuna.samplers.TPESampler(
                seed=own_seed, n_startup_trials=STARTUP, multivariate=True, constant_liar=True
            )
            study = optuna.create_study(sampler=tpe)
            study.add_trials([_finished(each, domains) for each in history])
            study.add_trials([_running(parameters, domains) for parameters in running])
        return dict(study.ask(domains).params)


def distributions(space: Space) -> dict[str, "optuna.distributions.BaseDistribution"]:
    """Optuna's distribution of each parameter, sorted by name: samplers draw in that order.

    Raises ValueError naming the parameter, what was found and what is expected.
    """
    return {name: _distribution(name, space[name]) for name in sorted(space)}


@contextlib.contextmanager
def quiet_optuna() -> Iterator[None]:
    """A context in which Optuna does not log the studies that it makes."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _distribution(name: str, domain: Mapping[str, Sequence[Any]]) -> "optuna.distributions.BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match list(domain.items()):
        case [("loguniform", [int() | float() as low, int() | float() as high])] if 0 < low <= high:
            return FloatDistribution(low, high, log=True)
        case [("uniform", [int() | float() as low, int() | float() as high])] if low <= high:
            return FloatDistribution(low, high)
        case [("randint", [int() as low, int() as high])] if low <= high:
            return IntDistribution(low, high)
        case [("choice", [_, *_] as options)]:
            return CategoricalDistribution(options)
    raise ValueError(
        f"space: {name}: found {dict(domain)!r}, expected one of loguniform: [lo, hi] with 0 < lo <= hi, "
        "uniform: [lo, hi], randint: [lo, hi] of whole numbers, choice: [at least one value]"
    )


def _finished(each: TrialObservation, domains: dict[str, Any]) -> "optuna.trial.FrozenTrial":
    """A finished trial as TPE ranks it: complete ones by value, then stopped ones by how far they came."""
    import optuna

    if each.value is not None and each.stopped_at is None:
        return optuna.trial.create_trial(params=dict(each.parameters), distributions=domains, value=each.value)
    reached = {} if each.value is None or each.stopped_at is None else {each.stopped_at: each.value}
    return optuna.trial.create_trial(
        state=optuna.trial.TrialState.PRUNED,
        params=dict(each.parameters),
        distributions=domains,
        intermediate_values=reached,
    )


def _running(parameters: Parameters, domains: dict[str, Any]) -> "optuna.trial.FrozenTrial":
    import optuna

    return optuna.trial.create_trial(
        state=optuna.trial.TrialState.RUNNING, params=dict(parameters), distributions=domains
    )
