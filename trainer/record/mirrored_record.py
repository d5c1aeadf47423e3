"""Mirrored records: one without which a training cannot go on is written twice, so that one damaged file stops nothing.

`<name>.json` decides: it is create-only, or replaced. `<name>.copy` beside it has the same bytes, is written after it,
and is read only where the first does not decode. A writer that dies between the two leaves a record that has no copy.
"""

import contextlib
from pathlib import Path
from typing import Any, TypeVar

from slipway.trainer.base import atomic, codec
from slipway.trainer.record import files

Record = TypeVar("Record")
SUFFIX = ".copy"


def create_only(path: Path, record: Any, format: str) -> bool:
    """Write a record and its copy; False, and nothing changes, when there is such a record. Raises OSError.

    A copy alone says that there was one, which was lost: it is not written anew.
    """
    data = codec.encode(record, format)
    if _has_copy(path) or not atomic.create_only(path, data):
        return False
    with contextlib.suppress(OSError):  # the record stands: without room for its copy it is as good as any other
        atomic.replace(_copy(path), data)
    return True


def replace(path: Path, record: Any, format: str) -> None:
    """Write a record and its copy in place of what was there. Raises OSError."""
    data = codec.encode(record, format)
    atomic.replace(path, data)
    atomic.replace(_copy(path), data)


def read(path: Path, kind: type[Record], format: str) -> Record:
    """The record, or its copy where it is damaged or gone.

    Raises Unreadable when neither can be used, codec.OtherFormat, and OSError.
    """
    try:
        return codec.read(path, kind, format)
    except codec.OtherFormat:
        raise
    except (FileNotFoundError, codec.UndecodableRecord) as fault:
        if (stored := codec.read_if_whole(_copy(path), kind, format)) is not None:
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
    """Unlike `Path.exists`, raises OSError where that cannot be read."""
    try:
        _copy(path).stat()
    except FileNotFoundError:
        return False
    return True


def _copy(path: Path) -> Path:
    return path.with_suffix(SUFFIX)
