"""Requests: how the control plane asks the nodes of an incarnation for a diagnosis, before it ends them.

Both can reach the training's store under every launcher. A request is a record there, named after the incident, and an
answer is the manifest in the incident's folder.

    diagnoses/<incident>.json                  the request
    incidents/<incident>/<node>/manifest.json  the answer
"""

import time
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.record import files

FORMAT = "slipway.diagnosis-request/1"


@dataclass(frozen=True)
class DiagnosisRequest:
    """Who wants to know why."""

    why: str
    by: str
    at: float
    """Seconds since the epoch, by the clock of who asks; for people alone."""


def ask(store: Path, id: str, why: str, by: str) -> bool:
    """Request a diagnosis from the nodes of an incident's incarnation; returns False if it was requested before.

    Raises OSError.
    """
    return codec.create_only(files.named(store, files.DIAGNOSES, id), DiagnosisRequest(why, by, time.time()), FORMAT)


def names(store: Path, incarnation: int) -> list[str]:
    """The ids of the incidents of an incarnation for which a diagnosis is wanted. Raises OSError."""
    return [name for name in files.names(store, files.DIAGNOSES) if name.startswith(f"{incarnation:06d}.")]


def read(store: Path, id: str) -> DiagnosisRequest:
    """Raises OSError, and codec.UndecodableRecord."""
    return codec.read(files.named(store, files.DIAGNOSES, id), DiagnosisRequest, FORMAT)
