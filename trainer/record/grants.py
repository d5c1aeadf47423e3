"""Grants: the steps that a training may do for now, if its steps are granted in parts, as by a sweep.

    grants/<n>.json    the steps that are granted, from the first on; create-only, the newest holds

A training without grants goes to its last step. When a training has done the steps of its newest grant, it has a
checkpoint of the last one and its incarnation ends; the next one begins when more steps are granted. The number of
steps in its configuration, from which its learning rates follow, does not change.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.record import files, numbered

FORMAT = "slipway.grant/1"


@dataclass(frozen=True)
class StepGrant:
    """How far a training may go for now."""

    until: int
    """The last step that it may do."""
    wait_seconds: float
    """How long its ranks stay after that step, with all that they hold, for another grant."""
    by: str
    at: float


def grant(store: Path, until: int, by: str, wait_seconds: float = 0.0) -> StepGrant:
    """Grant a training the steps up to `until`; a repeated call changes nothing.

    Raises OSError, and Unreadable if the newest grant cannot be read.
    """
    while True:
        number = _newest(store)
        last_grant = _read(store, number) if number else None
        if last_grant is not None and (last_grant.until, last_grant.wait_seconds) == (until, wait_seconds):
            return last_grant
        value = StepGrant(until, wait_seconds, by, time.time())
        if numbered.add(store / files.GRANTS, number + 1, value, FORMAT):
            return value


def newest(store: Path) -> StepGrant | None:
    """The grant that holds; None for a training that goes to its last step. Raises Unreadable."""
    number = _newest(store)
    return _read(store, number) if number else None


def _newest(store: Path) -> int:
    return numbered.newest(store / files.GRANTS)


def _read(store: Path, number: int) -> StepGrant:
    return numbered.read(store / files.GRANTS, number, StepGrant, FORMAT)
