"""The result of a short job: the end of an attempt, in one small file that is written once.

The job writes its result, or the control plane writes why there is none. The first record stands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.trainer.base import codec

FORMAT = "slipway.outcome/1"
RESTORED = "restored"
"""The folder beside an outcome in which an attempt has copies of checkpoints for a while."""


@dataclass(frozen=True)
class ShortJobOutcome:
    """The end of one attempt."""

    result: Mapping[str, Any] = field(default_factory=dict)
    """The job's result, as JSON."""
    failure: str = ""
    """Why there is no result; empty if there is one."""


def succeed(path: Path, result: Mapping[str, Any]) -> None:
    """Write the result, unless the attempt has ended already. Raises OSError."""
    codec.create_only(path, ShortJobOutcome(result), FORMAT)


def fail(path: Path, why: str) -> None:
    """Write why there is no result, unless the attempt has ended already. Raises OSError."""
    codec.create_only(path, ShortJobOutcome(failure=why), FORMAT)


def read(path: Path) -> ShortJobOutcome | None:
    """The outcome; None if there is none yet. Raises OSError and codec.UndecodableRecord."""
    return codec.read_if_there(path, ShortJobOutcome, FORMAT)
