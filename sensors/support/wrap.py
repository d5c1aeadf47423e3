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


def sensor(sensor: dg.SensorDefinition, wrapper: Callable[[Function], Function]) -> dg.SensorDefinition:
    """A sensor whose function, which returns a list, is the one that `wrapper` makes of it."""
    wrapped = copy.copy(sensor)
    wrapped._evaluation_fn = wrapper(sensor._evaluation_fn)
    return wrapped


def schedule(schedule: dg.ScheduleDefinition, wrapper: Callable[[Function], Function]) -> dg.ScheduleDefinition:
    """The same for a schedule, whose function may be a generator."""
    wrapped = copy.copy(schedule)
    function = schedule._execution_fn
    if isinstance(function, DecoratedScheduleFunction):
        evaluated = wrapper(function.wrapped_fn)
        wrapped._execution_fn = DecoratedScheduleFunction(function.decorated_fn, evaluated, function.has_context_arg)
    else:
        assert function is not None
        wrapped._execution_fn = wrapper(function)
    return wrapped
