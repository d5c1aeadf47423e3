"""Platform health: the problems of the durable tier, Dagster's daemon and the sensors, as far as storage shows them.

The webserver serves it, since it is the only process of the control plane that people can reach.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from dagster import DagsterInstance
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import TickStatus

from slipway.trainer.base import listing

SILENT_SECONDS = 300.0
"""The same time as in the alerts DaemonSilent and SensorSilent (`slipway.deploy.monitoring.platform_alerts`)."""


def problems(durable: Path, instance: DagsterInstance) -> dict[str, str]:
    """The current problems, by subject. Unreadable storage of Dagster is a problem too."""
    by_subject = dict(_of_tier(durable))
    try:
        by_subject.update(_of_daemons(instance))
        by_subject.update(_of_sensors(instance))
    except Exception as error:  # the error depends on the database
        by_subject["Dagster's storage"] = f"it cannot be read: {error}"
    return by_subject


def _of_tier(durable: Path) -> Iterator[tuple[str, str]]:
    try:
        listing.names(durable)
    except OSError as error:
        yield "durable tier", f"{durable}: {error.strerror}"


def _of_daemons(instance: DagsterInstance) -> Iterator[tuple[str, str]]:
    beats = instance.run_storage.get_daemon_heartbeats()
    if not beats:
        yield "daemon", "it has never sent a heartbeat; start it"
    for kind, beat in beats.items():
        age = time.time() - beat.timestamp
        if age > SILENT_SECONDS:
            yield f"daemon {kind}", f"it sent its last heartbeat {age:.0f} s ago, expected one per minute; start it"


def _of_sensors(instance: DagsterInstance) -> Iterator[tuple[str, str]]:
    for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
        if not state.is_running:
            continue
        ticks = instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=2)
        done = next((tick for tick in ticks if tick.status is not TickStatus.STARTED), None)
        if done is None:
            continue
        age = time.time() - done.timestamp
        if done.status is TickStatus.FAILURE:
            yield f"sensor {state.instigator_name}", f"its last tick failed: {done.error.message if done.error else ''}"
        elif age > SILENT_SECONDS:
            yield f"sensor {state.instigator_name}", f"its last tick was {age:.0f} s ago"
