"""The order of a worker: which model it is to serve, and how."""

from dataclasses import dataclass
from pathlib import Path

ROWS = 16


@dataclass(frozen=True)
class WorkerOrder:
    """What a worker is to serve."""

    folder: Path
    manifest: str
    model: str
    """How its answers name it."""
    fingerprint: str
    rows: int = ROWS
    """Answers at a time."""
    dtype: str = "auto"
    """float32, bfloat16; auto: bfloat16 on a GPU, float32 on a CPU."""
