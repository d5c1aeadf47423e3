"""The order for a worker: the model to serve, and its settings."""

from dataclasses import dataclass
from pathlib import Path

ROWS = 16


@dataclass(frozen=True)
class WorkerOrder:
    """The model that a worker serves, and its settings."""

    folder: Path
    manifest: str
    model: str
    """The name of the model in answers."""
    fingerprint: str
    rows: int = ROWS
    """The number of answers at the same time."""
    dtype: str = "auto"
    """float32, bfloat16, or auto: bfloat16 on a GPU, float32 on a CPU."""
