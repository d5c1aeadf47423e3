"""Holder: sensors and schedules that decide only in the control plane that holds the lease of the home.

Anywhere else they skip, and say who decides.
"""

import copy
from collections.abc import Callable
from typing import Any

import dagster as dg
from dagster._core.definitions.schedule_definition import DecoratedScheduleFunction

from resources.lease import HomeLease

Function = Callable[..., Any]


def sensors(all: list[dg.SensorDefinition], lease: HomeLease) -> list[dg.SensorDefinition]:
    """These sensors, evaluated by the holder of the lease alone."""
    return [_sensor(each, lease) for each in all]


def schedules(all: list[dg.ScheduleDefinition], lease: HomeLease) -> list[dg.ScheduleDefinition]:
    """These schedules, evaluated by the holder of the lease alone."""
    return [_schedule(each, lease) for each in all]


# Dagster has no hook around the evaluation of a tick, so the function of a copy is replaced. `tests/sensors` evaluates
# every sensor and schedule of the definitions, in case another version of Dagster keeps it elsewhere.
def _sensor(sensor: dg.SensorDefinition, lease: HomeLease) -> dg.SensorDefinition:
    guarded = copy.copy(sensor)
    guarded._evaluation_fn = _held(sensor._evaluation_fn, lease, list)
    return guarded


def _schedule(schedule: dg.ScheduleDefinition, lease: HomeLease) -> dg.ScheduleDefinition:
    guarded, function = copy.copy(schedule), schedule._execution_fn
    if isinstance(function, DecoratedScheduleFunction):
        evaluated = _held(function.wrapped_fn, lease)
        guarded._execution_fn = DecoratedScheduleFunction(function.decorated_fn, evaluated, function.has_context_arg)
    else:
        assert function is not None
        guarded._execution_fn = _held(function, lease)
    return guarded


def _held(function: Function, lease: HomeLease, kind: Function | None = None) -> Function:
    """The function, or a reason to skip while another process holds the lease: alone, or in a `kind` such as a list."""

    def evaluated(context: Any) -> Any:
        if (why := lease.take()) is None:
            return function(context)
        skip = dg.SkipReason(why)
        return kind([skip]) if kind else skip

    return evaluated
