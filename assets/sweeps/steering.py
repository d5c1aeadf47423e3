"""Steering: a person's requests to a running sweep: pause, resume, stop, and change the budget.

Each request is a record in the sweep's folder. The sweep's only writer logs it at its next poll; if the sweep has no
run, the sensor of sweep completions starts one. A sweep's identity (space, sampler, seed, scheduler, training) cannot
change.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.recipes import assignments

FIELDS: Mapping[str, str] = {
    "trials": "trials",
    "parallel": "parallel",
    "limits.retries": "retries",
    "limits.failed_trials": "failed_trials",
    "goal.at_most": "goal",
}
"""The fields of the budget, by their names in the recipe, with their names in the log."""


class _Amounts(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    trials: int = Field(1, ge=1)
    parallel: int = Field(1, ge=1)
    retries: int = Field(0, ge=0)
    failed_trials: int = Field(0, ge=0)
    goal: float | None = None


def pause(store: SweepStore, by: str, why: str) -> None:
    """Make the trials save and leave their nodes until `resume`. Raises ValueError if the sweep is not running."""
    _under_way(store)
    store.ask("pause", by, why)


def resume(store: SweepStore, by: str, why: str) -> None:
    """Resume a paused sweep, each trial from its checkpoint. Raises ValueError if the sweep is not paused."""
    sweep = _opened(store)
    if sweep.pause is None:
        raise ValueError(f"sweep {store.sweep}: found it {_standing(sweep)}, expected a paused one")
    store.ask("resume", by, why)


def stop(store: SweepStore, by: str, why: str) -> None:
    """End a sweep for good, with its results so far. Raises ValueError if the sweep is not running."""
    _under_way(store)
    store.cancel(by, why)


def spend(store: SweepStore, fields: Sequence[str], by: str, why: str) -> dict[str, tuple[Any, Any]]:
    """Change the budget of a sweep by FIELD=VALUE; returns the old and the new value of each field.

    A larger budget reopens a sweep that is complete or has failed. Raises ValueError, before anything is changed, for a
    field of the sweep's identity, a value that is not accepted, and a sweep that was stopped.
    """
    if not fields:
        raise ValueError(f"fields: found none, expected FIELD=VALUE of {', '.join(FIELDS)}")
    return _spend(store, assignments.parsed(fields), by, why)


def add(store: SweepStore, trials: int, by: str, why: str) -> dict[str, tuple[Any, Any]]:
    """Add trials to a sweep; as `spend`."""
    if trials < 1:
        raise ValueError(f"trials: found {trials}, expected 1 or more")
    return _spend(store, {"trials": _opened(store).budget.trials + trials}, by, why)


def _spend(store: SweepStore, requested: Mapping[str, Any], by: str, why: str) -> dict[str, tuple[Any, Any]]:
    sweep = _opened(store)
    if sweep.closed is not None and sweep.closed.outcome == "stopped":
        remedy = "another seed begins another sweep"
        raise ValueError(f"sweep {store.sweep}: found it stopped, expected one that may go on; {remedy}")
    changes = {}
    for name, value in requested.items():
        if name not in FIELDS:
            known = ", ".join(FIELDS)
            raise ValueError(f"{name}: found {value!r}, expected one of {known}: the rest decides what the sweep is")
        try:
            _Amounts.model_validate({FIELDS[name]: value})
        except ValueError:
            least = 1 if name in ("trials", "parallel") else 0
            expected = "a finite number or null"
            if name != "goal.at_most":
                expected = f"a whole number, {least} or more"
            raise ValueError(f"{name}: found {value!r}, expected {expected}") from None
        changes[FIELDS[name]] = value
    if changes.get("trials", sweep.drawn) < sweep.drawn:
        raise ValueError(f"trials: found {changes['trials']}, expected {sweep.drawn} or more, which are drawn already")
    store.ask("budget", by, why, **changes)
    return {name: (getattr(sweep.budget, FIELDS[name]), value) for name, value in requested.items()}


def _opened(store: SweepStore) -> SweepState:
    sweep = store.state()
    if sweep is None:
        raise ValueError(f"sweep {store.sweep}: it has not been opened yet")
    return sweep


def _under_way(store: SweepStore) -> None:
    sweep = _opened(store)
    if sweep.closed is not None:
        raise ValueError(f"sweep {store.sweep}: found it {_standing(sweep)}, expected one that is under way")


def _standing(sweep: SweepState) -> str:
    """The status of a sweep, in words."""
    if sweep.closed is not None:
        return sweep.closed.outcome
    return "under way" if sweep.pause is None else "paused"
