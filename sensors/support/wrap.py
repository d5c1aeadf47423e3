"""Wrap: sensors and schedules whose evaluation is done inside another function.

Dagster has no hook around the evaluation of a tick, so the function of a copy is replaced. `tests/sensors` evaluates
every sensor and schedule of the definitions, in case another version of Dagster keeps it elsewhere.
"""

import copy
from collections.abc import Callable
from typing import Any

import dagster as dg
from dagster._core.definitions.schedule_definition import DecoratedScheduleFunction

Function = Callable[..., Any]


def sensor(sensor: dg.SensorDefinition, around: Callable[[Function], Function]) -> dg.SensorDefinition:
    """A sensor whose function, which returns a list, is the one that `around` makes of it."""
    made = copy.copy(sensor)
    made._evaluation_fn = around(sensor._evaluation_fn)
    return made


def schedule(schedule: dg.ScheduleDefinition, around: Callable[[Function], Function]) -> dg.ScheduleDefinition:
    """The same for a schedule, whose function may be a generator."""
    made, function = copy.copy(schedule), schedule._execution_fn
    if isinstance(function, DecoratedScheduleFunction):
        evaluated = around(function.wrapped_fn)
        made._execution_fn = DecoratedScheduleFunction(function.decorated_fn, evaluated, function.has_context_arg)
    else:
        assert function is not None
        made._execution_fn = around(function)
    return made
