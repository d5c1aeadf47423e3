"""Exports a sweep to a file as an Optuna study, for optuna-dashboard and `optuna.load_study`.

The study is a copy for inspection, and Slipway never reads it. Optuna's own interface writes it, so the installed
version of Optuna decides the format.
"""

import datetime
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.assets.sweeps.events import Ended, Event, Proposed
from slipway.assets.sweeps.samplers import quiet_optuna
from slipway.assets.sweeps.state import SweepState, Trial
from slipway.recipes.domain import Domain
from slipway.recipes.search_space import SearchSpace
from slipway.trainer.base import atomic

if TYPE_CHECKING:
    import optuna

JOURNALS = (".log", ".journal")
DATABASES = (".db", ".sqlite", ".sqlite3")


def export(sweep: SweepState, log: Sequence[Event], path: Path) -> None:
    """Write the sweep's trials to `path`, a journal or an SQLite database by its ending, in one step.

    Completed trials are complete, stopped ones pruned, failed ones failed; running, paused and pending ones are running
    or waiting. Their reports are the intermediate values. Raises ValueError for another ending and for an existing
    file, and OSError.
    """
    if path.suffix not in JOURNALS + DATABASES:
        raise ValueError(
            f"{path}: found the ending {path.suffix!r}, expected {', '.join(JOURNALS)} for a journal or "
            f"{', '.join(DATABASES)} for an SQLite database"
        )
    if path.exists():
        raise ValueError(f"{path} exists already, expected the name of a new file")
    with tempfile.TemporaryDirectory(dir=path.resolve().parent, prefix=f".{path.name}.") as folder:
        temporary = Path(folder) / path.name
        with quiet_optuna():
            _write(sweep, _times(log), temporary)
        atomic.move(temporary, path)


def _write(sweep: SweepState, times: dict[int, tuple[float, float]], path: Path) -> None:
    import optuna

    study = optuna.create_study(study_name=sweep.plan.sweep, storage=_storage(path), direction="minimize")
    study.set_user_attr("sampler", sweep.plan.sampler)
    study.set_user_attr("scheduler", json.dumps(dict(sweep.plan.scheduler)))
    plan = sweep.plan
    searched = SearchSpace.of(plan.space, plan.constraints, plan.fixed)
    domains = {name: _distribution(domain) for name, domain in searched.domains.items()}
    study.add_trials([_frozen(trial, domains, times[trial.number]) for trial in sweep.trials.values()])


def _storage(path: Path) -> "optuna.storages.BaseStorage | str":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    if path.suffix in DATABASES:
        return f"sqlite:///{path}"
    return JournalStorage(JournalFileBackend(str(path), lock_obj=JournalFileOpenLock(str(path))))


def _frozen(trial: Trial, domains: dict[str, Any], times: tuple[float, float]) -> "optuna.trial.FrozenTrial":
    import optuna
    from optuna.trial import TrialState

    states = {
        "completed": TrialState.COMPLETE if trial.value is not None else TrialState.FAIL,
        "stopped": TrialState.PRUNED,
        "failed": TrialState.FAIL,
        "pending": TrialState.WAITING,
    }
    state = states.get(trial.state, TrialState.RUNNING)
    values = {name: _readable(value) for name, value in trial.parameters.items()}
    chosen = {name: value for name, value in values.items() if _inside(domains[name], value)}
    outside = {name: value for name, value in values.items() if name not in chosen}
    attributes = {
        "state": trial.state,
        "attempts": trial.attempt + 1,
        **({"reason": trial.ended.reason} if trial.ended and trial.ended.reason else {}),
        **({"parent": trial.parent} if trial.parent is not None else {}),
        **({"outside the space": json.dumps(outside)} if outside else {}),
    }
    frozen = optuna.trial.create_trial(
        state=state,
        value=trial.value if state is TrialState.COMPLETE else None,
        params=chosen,
        distributions={name: domains[name] for name in chosen},
        user_attrs=attributes,
        intermediate_values={step: math.nan if value is None else value for step, value in trial.reports.items()},
    )
    begun, ended = (datetime.datetime.fromtimestamp(at) for at in times)
    frozen.datetime_start = None if state is TrialState.WAITING else begun
    frozen.datetime_complete = ended if state.is_finished() else None
    return frozen


def _distribution(domain: Domain) -> "optuna.distributions.BaseDistribution":
    """The domain in a readable form: the recipe's own values, if Optuna's files can store them."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if domain.kind == "choice":
        return CategoricalDistribution(list(dict.fromkeys(_readable(value) for value in domain.values)))
    low, high = domain.values
    if domain.kind == "randint":
        step = int(domain.step or 1)
        return IntDistribution(low, low + (high - low) // step * step, step=step)
    listed = domain.listed()
    if domain.kind == "loguniform":  # Optuna does not support steps here
        return FloatDistribution(low, high, log=True)
    return FloatDistribution(low, listed[-1] if listed else high, step=domain.step)


def _readable(value: Any) -> Any:
    """A value that Optuna's files can store: a section or a list becomes JSON text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return json.dumps(value)


def _inside(domain: "optuna.distributions.BaseDistribution", value: Any) -> bool:
    """Whether Optuna accepts this value for the parameter; the recipe's own value may be outside the space."""
    try:
        return bool(domain._contains(domain.to_internal_repr(value)))
    except (TypeError, ValueError):
        return False


def _times(log: Sequence[Event]) -> dict[int, tuple[float, float]]:
    """The times when each trial was drawn and when its last attempt ended, in seconds since the epoch."""
    times: dict[int, tuple[float, float]] = {}
    for event in log:
        match event:
            case Proposed(trial=trial, at=at):
                times[trial] = (at, at)
            case Ended(trial=trial, at=at):
                times[trial] = (times[trial][0], at)
            case _:
                pass
    return times
