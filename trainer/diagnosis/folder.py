"""The folder of one node's evidence of an incident; its manifest also lists missing evidence with the reasons.

incidents/<id>/<node>/manifest.json   the time, the duration, each rank, the files, and missing evidence
                      stacks.txt      the Python stacks of all threads of all ranks
                      native.txt      their stacks in C, if py-spy is installed and allowed
                      flight-<rank>   PyTorch's flight recorder, if NCCL is used
                      figures.json    the last heartbeats of all ranks, the last events of the ledger
                      health.txt      GPUs, kernel log, disks, network, memory, load of the node
                      kernel.txt      the kernel's messages about GPUs and memory in the last minutes
                      log.txt         the end of the output of the node's processes
"""

import contextlib
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.trainer.base import atomic, codec
from slipway.trainer.diagnosis.ranks import RankSeen
from slipway.trainer.record import files, incidents

FORMAT = "slipway.diagnosis/1"
MANIFEST = "manifest.json"
MOST_BYTES = 4 << 20
"""Of all evidence of one node."""


@dataclass(frozen=True)
class DiagnosisManifest:
    """The findings of one node."""

    node: str
    at: float
    """Seconds since the epoch, by the clock of the node."""
    seconds: float
    """How long the collection took."""
    why: str
    ranks: tuple[RankSeen, ...]
    files: Mapping[str, int]
    """Bytes of each file."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """The missing evidence, with the reasons."""
    kernel: tuple[str, ...] = ()
    """The kernel's messages of the last minutes: Xids, and processes killed because memory ran out."""


def write(store: Path, id: str, manifest: DiagnosisManifest, texts: Mapping[str, bytes]) -> bool:
    """Show a node's evidence whole; False when the node has left its evidence of this incident before.

    Raises OSError.
    """
    above = incidents.evidence(store, id)
    atomic.make_folder(above)
    temporary = above / f".{manifest.node}.{uuid.uuid4().hex}"
    temporary.mkdir()
    try:
        for name, data in texts.items():
            atomic.write(temporary / name, [data])
        atomic.write(temporary / MANIFEST, [codec.encode(manifest, FORMAT)])
        return atomic.show(temporary, above / manifest.node)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def bounded(texts: Mapping[str, bytes], most: int = MOST_BYTES) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files that fit, the smallest first, and the reasons for the others."""
    selection = dict[str, bytes]()
    omissions = dict[str, str]()
    room = most
    for name in sorted(texts, key=lambda name: len(texts[name])):
        if len(texts[name]) <= room:
            selection[name] = texts[name]
            room -= len(texts[name])
        else:
            omissions[name] = f"it has {len(texts[name]):,} bytes, and the evidence of a node {most:,} at most"
    return selection, omissions


def nodes(store: Path, id: str) -> list[str]:
    """The nodes that have left evidence of an incident. Raises Unreadable."""
    above = incidents.evidence(store, id)
    return [name for name in files.entries(above) or () if (above / name / MANIFEST).is_file()]


def manifests(store: Path, id: str) -> list[DiagnosisManifest]:
    """The findings by node, without damaged ones. Raises OSError."""
    readings = (
        codec.read_if_whole(incidents.evidence(store, id) / node / MANIFEST, DiagnosisManifest, FORMAT)
        for node in nodes(store, id)
    )
    return [manifest for manifest in readings if manifest is not None]


def text(store: Path, id: str, node: str, name: str) -> str:
    """A file of a node's evidence as text; empty if there is none."""
    with contextlib.suppress(OSError):
        return (incidents.evidence(store, id) / node / name).read_text(errors="replace")
    return ""
