"""Mirrored records: a record that a training cannot do without is written twice, so one damaged file stops nothing.

`<name>.json` decides: it is create-only, or replaced. `<name>.copy` beside it has the same bytes, is written after it,
and is read only if the first does not decode. A writer that dies between the two leaves a record without a copy.
"""

import contextlib
from pathlib import Path
from typing import Any, TypeVar

from slipway.trainer.base import atomic, codec
from slipway.trainer.record import files

Record = TypeVar("Record")
SUFFIX = ".copy"


def create_only(path: Path, record: Any, format: str) -> bool:
    """Write a record and its copy, unless there is such a record; returns whether it did. Raises OSError.

    A copy alone proves that there was a record, which was lost: it is not written anew.
    """
    data = codec.encode(record, format)
    if _has_copy(path) or not atomic.create_only(path, data):
        return False
    with contextlib.suppress(OSError):  # the record stands: without room for its copy it is as good as any other
        atomic.replace(_copy(path), data)
    return True


def replace(path: Path, record: Any, format: str) -> None:
    """Write or replace a record and its copy. Raises OSError."""
    data = codec.encode(record, format)
    atomic.replace(path, data)
    atomic.replace(_copy(path), data)


def read(path: Path, kind: type[Record], format: str) -> Record:
    """The record, or its copy if it is damaged or gone.

    Raises Unreadable if neither can be used, codec.OtherFormat, and OSError.
    """
    try:
        return codec.read(path, kind, format)
    except codec.OtherFormat:
        raise
    except (FileNotFoundError, codec.UndecodableRecord) as fault:
        stored = codec.read_if_whole(_copy(path), kind, format)
        if stored is not None:
            return stored
        raise files.Unreadable(
            f"{fault}. It has no good copy, and what it said is not guessed: restore {path.name} from a backup"
        ) from None


def read_if_there(path: Path, kind: type[Record], format: str) -> Record | None:
    """The record, None when there is neither the record nor its copy. Raises as `read`."""
    try:
        return codec.read(path, kind, format)
    except FileNotFoundError:
        return read(path, kind, format) if _has_copy(path) else None
    except codec.UndecodableRecord:
        return read(path, kind, format)


def _has_copy(path: Path) -> bool:
    """Unlike `Path.exists`, raises OSError if that cannot be read."""
    try:
        _copy(path).stat()
    except FileNotFoundError:
        return False
    return True


def _copy(path: Path) -> Path:
    return path.with_suffix(SUFFIX)
