"""Leader only: sensors and schedules that decide only in the control plane that holds the lease of the home.

Anywhere else they skip, and say who decides.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from slipway.resources.lease import HomeLease
from slipway.sensors.support import wrap

Function = Callable[..., Any]


def sensors(all: list[dg.SensorDefinition], lease: HomeLease) -> list[dg.SensorDefinition]:
    """These sensors, evaluated by the holder of the lease alone."""
    return [wrap.sensor(sensor, lambda function: _leader_only_sensor(function, lease)) for sensor in all]


def schedules(all: list[dg.ScheduleDefinition], lease: HomeLease) -> list[dg.ScheduleDefinition]:
    """These schedules, evaluated by the holder of the lease alone."""
    return [wrap.schedule(schedule, lambda function: _leader_only_schedule(function, lease)) for schedule in all]


def _leader_only_sensor(function: Function, lease: HomeLease) -> Function:
    """The function of a sensor, which returns a list; of a reason to skip while another process decides."""

    def evaluated(context: Any) -> Any:
        with lease.decision() as why:
            return function(context) if why is None else [dg.SkipReason(why)]

    return evaluated


def _leader_only_schedule(function: Function, lease: HomeLease) -> Function:
    """The function of a schedule, which may be a generator: what it gives is made while this process may decide."""

    def evaluated(context: Any) -> Iterator[Any]:
        with lease.decision() as why:
            if why is not None:
                yield dg.SkipReason(why)
                return
            result = function(context)
            yield from result if inspect.isgenerator(result) else [result]

    return evaluated
