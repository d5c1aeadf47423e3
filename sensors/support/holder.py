"""Holder: sensors and schedules that decide only in the control plane that holds the lease of the home.

Anywhere else they skip, and say who decides.
"""

from collections.abc import Callable
from typing import Any

import dagster as dg

from resources.lease import HomeLease
from sensors.support import around

Function = Callable[..., Any]


def sensors(all: list[dg.SensorDefinition], lease: HomeLease) -> list[dg.SensorDefinition]:
    """These sensors, evaluated by the holder of the lease alone."""
    return [around.sensor(each, lambda function: _held(function, lease, list)) for each in all]


def schedules(all: list[dg.ScheduleDefinition], lease: HomeLease) -> list[dg.ScheduleDefinition]:
    """These schedules, evaluated by the holder of the lease alone."""
    return [around.schedule(each, lambda function: _held(function, lease)) for each in all]


def _held(function: Function, lease: HomeLease, kind: Function | None = None) -> Function:
    """The function, or a reason to skip while another process holds the lease: alone, or in a `kind` such as a list."""

    def evaluated(context: Any) -> Any:
        if (why := lease.take()) is None:
            return function(context)
        skip = dg.SkipReason(why)
        return kind([skip]) if kind else skip

    return evaluated
