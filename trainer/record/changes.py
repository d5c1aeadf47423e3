"""Changes: a person's changes of a running training, and the step from which each change holds.

    changes/<n>.json             the change of this number: the fields and their new values; create-only
    applied/<n>.<token>.json     the step from which it holds; create-only, written before that step

All ranks agree on a change at the end of a step. Its record is written first and has that step. So a start from an
earlier checkpoint applies the change after the same step again, and repeats the same numbers. If a superseded process
has left a record too, the newest token's holds, because the fence let that process go on. Each record has a copy,
because without it the training could not repeat its steps.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.trainer.record import claims, files, mirrored_record, numbered
from slipway.trainer.record.claims import Token

FORMAT = "slipway.change/1"


@dataclass(frozen=True)
class ChangeRecord:
    """One requested change: the new values, as JSON, by the fields' dotted names."""

    number: int
    fields: Mapping[str, Any]
    by: str
    why: str
    at: float
    after: int = 0
    """The earliest step after which it may hold; 0 for as soon as possible."""


@dataclass(frozen=True)
class AppliedChange:
    """That a change holds after `step`, for the steps that follow it; or why it was refused."""

    number: int
    step: int
    token: Token
    changed: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """By field, its value before and its value since."""
    by: str = ""
    why: str = ""
    refused: str = ""
    at: float = 0.0

    @property
    def fields(self) -> dict[str, Any]:
        """The new value of each field."""
        return {name: now for name, (_, now) in self.changed.items()}


def propose(store: Path, fields: Mapping[str, Any], by: str, why: str, after: int = 0) -> ChangeRecord:
    """Record a change, under the next number; one that was recorded before its step `after` holds exactly from there.

    Raises OSError.
    """
    while True:
        number = numbered.newest(store / files.CHANGES) + 1
        change = ChangeRecord(number, dict(fields), by, why, time.time(), after)
        if numbered.add(store / files.CHANGES, number, change, FORMAT):
            return change


def numbers(store: Path) -> list[int]:
    """The numbers of all changes, including lost ones, which only a read detects. Raises Unreadable."""
    return list(range(1, numbered.newest(store / files.CHANGES) + 1))


def read(store: Path, number: int) -> ChangeRecord:
    """One change. Raises Unreadable."""
    return numbered.read(store / files.CHANGES, number, ChangeRecord, FORMAT)


def record(store: Path, applied: AppliedChange) -> None:
    """Record from which step a change holds; on return no later start can fail to see it.

    Raises Superseded when the token is not the newest claim's, before the write or after it: then the step is not done.
    """
    claims.check(store, applied.token)
    mirrored_record.create_only(
        files.named(store, files.APPLIED, f"{applied.number:06d}.{applied.token}"), applied, FORMAT
    )
    claims.check(store, applied.token)


def applied(store: Path) -> dict[int, AppliedChange]:
    """By number, from which step each change holds. Raises Unreadable."""
    changes: dict[int, AppliedChange] = {}
    for name in files.names(store, files.APPLIED):
        change = mirrored_record.read(files.named(store, files.APPLIED, name), AppliedChange, FORMAT)
        if change.number not in changes or changes[change.number].token < change.token:
            changes[change.number] = change
    return changes


def held_at(store: Path, step: int) -> list[AppliedChange]:
    """The changes that a checkpoint of `step` has, in the order in which they were applied. Raises as `applied`."""
    changes = [change for change in applied(store).values() if not change.refused and change.step <= step]
    return sorted(changes, key=lambda change: (change.step, change.number))


def values(changes: list[AppliedChange]) -> dict[str, Any]:
    """The newest value of each field that these changes set."""
    return {name: value for change in changes for name, value in change.fields.items()}
