"""Steering: what a person asks of a sweep while it runs: to pause, to go on, to stop, and to spend more or less.

Each request is a record in the sweep's folder. The sweep's one writer logs it at its next poll; a sweep that has no
run gets one from the sensor of sweep completions. What a sweep is (space, sampler, seed, scheduler, training) stays.
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
"""What a sweep may spend, as its recipe names it and as its log does."""


class _Amounts(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    trials: int = Field(1, ge=1)
    parallel: int = Field(1, ge=1)
    retries: int = Field(0, ge=0)
    failed_trials: int = Field(0, ge=0)
    goal: float | None = None


def pause(store: SweepStore, by: str, why: str) -> None:
    """Have the trials save and leave their nodes, until `resume`. Raises ValueError for one that is not under way."""
    _under_way(store)
    store.ask("pause", by, why)


def resume(store: SweepStore, by: str, why: str) -> None:
    """Let a paused sweep go on, each trial from its checkpoint. Raises ValueError for one that is not paused."""
    sweep = _opened(store)
    if sweep.pause is None:
        raise ValueError(f"sweep {store.sweep}: found it {_standing(sweep)}, expected a paused one")
    store.ask("resume", by, why)


def stop(store: SweepStore, by: str, why: str) -> None:
    """End a sweep for good, with what it has found so far. Raises ValueError for one that is not under way."""
    _under_way(store)
    store.cancel(by, why)


def spend(store: SweepStore, fields: Sequence[str], by: str, why: str) -> dict[str, tuple[Any, Any]]:
    """Change what a sweep may spend, FIELD=VALUE; by field, what it was and what it is asked to be.

    One that is complete or has failed is open again when it asks for more. Raises ValueError, before anything is asked,
    for a field that decides what the sweep is, for a value that is not accepted, and for a sweep that was stopped.
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
            expected = "a finite number or null" if name == "goal.at_most" else f"a whole number, {least} or more"
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
    """Where a sweep stands, in a word."""
    if sweep.closed is not None:
        return sweep.closed.outcome
    return "under way" if sweep.pause is None else "paused"
