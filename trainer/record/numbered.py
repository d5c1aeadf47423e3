"""Numbered logs: `<folder>/<n>.json`, from 1 on, create-only, each with its copy
(`slipway.trainer.record.mirrored_record`).

A log has no gaps, because each new record takes the number after the newest one. So a missing number below the newest
one is a lost record. This is an error that names the file, and never counts as "there is none": otherwise a lost record
would be undone in silence, and the next record would take its number. A copy counts like its record, so the copy proves
the loss of a newest record.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from slipway.trainer.record import files, mirrored_record

Record = TypeVar("Record")
_NAME = re.compile(r"(\d{6,})\.(?:json|copy)")


class LostRecord(files.Unreadable):
    """A numbered log has lost a record."""

    def __init__(self, folder: Path, lost: Sequence[int]) -> None:
        """`lost` are the numbers, in their order."""
        names = ", ".join(path(folder, number).name for number in lost)
        super().__init__(f"{folder}: found no {names}, which the log had: restore it from a backup")
        self.lost = tuple(lost)


def newest(folder: Path) -> int:
    """The number of the newest record, 0 before the first. Raises Unreadable."""
    return max(_there(folder), default=0)


def lost(folder: Path, least: int = 0) -> list[int]:
    """The numbers of the records that were lost; `least` is how many there have been by another record.

    Raises Unreadable.
    """
    there = _there(folder)
    return [number for number in range(1, max([*there, least]) + 1) if number not in there]


def numbers(folder: Path, least: int = 0) -> range:
    """The numbers of all records. Raises LostRecord if one is missing (`least` as in `lost`), and Unreadable."""
    missing = lost(folder, least)
    if missing:
        raise LostRecord(folder, missing)
    return range(1, newest(folder) + 1)


def read(folder: Path, number: int, kind: type[Record], format: str) -> Record:
    """The record of this number. Raises as `mirrored_record.read`."""
    return mirrored_record.read(path(folder, number), kind, format)


def read_all(folder: Path, kind: type[Record], format: str, least: int = 0) -> list[Record]:
    """All records, the newest one last. Raises as `numbers` and `read`."""
    return [read(folder, number, kind, format) for number in numbers(folder, least)]


def add(folder: Path, number: int, record: object, format: str) -> bool:
    """Add a record under this number, which follows the newest one; returns False if another process has added it.

    Raises OSError.
    """
    return mirrored_record.create_only(path(folder, number), record, format)


def path(folder: Path, number: int) -> Path:
    """The record of this number, below 1,000,000."""
    return folder / f"{number:06d}.json"


def _there(folder: Path) -> set[int]:
    return {int(match[1]) for name in files.entries(folder) or () if (match := _NAME.fullmatch(name))}
