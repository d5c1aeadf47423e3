"""The home that Slipway 0.1 left, frozen: its own code made it, from a hundred small texts to a sweep and a training.

It is as the demo of 0.1 had it when it was interrupted at its first evaluation. Left out for their size: Dagster's
databases, the nodes' NVMe, cached segments, logs, and all checkpoints but the last one of the training.
"""

import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).with_name("home-0.1.tar.xz")
SWEEP = "small-decoder-d2d310b88eaa"
TRAINING = "small-decoder-db2080c72149"


def home_of_0_1(folder: Path) -> Path:
    """The home, unpacked below a folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "home"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
