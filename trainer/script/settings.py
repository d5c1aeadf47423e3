"""The resolved configuration of a script's training; one JSON file holds it."""

from dataclasses import dataclass
from typing import Any

from slipway.trainer.config.operation import Placement

FORMAT = "slipway.script-config/1"


@dataclass(frozen=True, kw_only=True)
class ScriptSource:
    """The program of each rank."""

    command: tuple[str, ...]
    code: str
    """Digest of the folder that the command runs in."""


@dataclass(frozen=True, kw_only=True)
class ScriptSettings:
    """One training by a script, resolved: nothing is left to look up but the files it names."""

    training: str
    """The training's id."""
    snapshot: str
    """SHA-256 of the dataset snapshot's manifest."""
    script: ScriptSource
    parameters: dict[str, Any]
    placement: Placement


class Parameters(dict[str, Any]):
    """The recipe's parameters by name."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"parameters.{name}: found nothing; the recipe has {', '.join(self) or 'none'}")
