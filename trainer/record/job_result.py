"""The result of a short job: how an attempt ended, in one small file that is written once and by whoever is first.

The job writes its result; the control plane writes why there is none. What comes later changes nothing.
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
    """What the job found, as JSON."""
    failure: str = ""
    """Why there is no result; empty when there is one."""


def succeed(path: Path, result: Mapping[str, Any]) -> None:
    """Write the result, unless the attempt has ended already. Raises OSError."""
    codec.create_only(path, ShortJobOutcome(result), FORMAT)


def fail(path: Path, why: str) -> None:
    """Write why there is no result, unless the attempt has ended already. Raises OSError."""
    codec.create_only(path, ShortJobOutcome(failure=why), FORMAT)


def read(path: Path) -> ShortJobOutcome | None:
    """The outcome; None while there is none. Raises OSError and codec.UndecodableRecord."""
    return codec.read_if_there(path, ShortJobOutcome, FORMAT)
