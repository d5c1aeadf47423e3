"""Staging fit: a job is refused before it is submitted when its nodes cannot hold what it reads of its snapshot.

It asks what the trainer asks at its start (`slipway.trainer.loading.needs`), with the most room that the nodes may ever
have: what the recipe allows, the NVMe of the cluster's profile, and the whole disk where it is seen from here. Where
none of these is known, or the manifest cannot be read now, nothing is refused: the trainer itself measures at its
start.
"""

import shutil
from pathlib import Path

from slipway.resources.launchers.protocol import Job
from slipway.trainer.base import codec
from slipway.trainer.config import resolved
from slipway.trainer.config.operation import Placement
from slipway.trainer.config.profiles import HardwareProfile
from slipway.trainer.config.resolved import Config
from slipway.trainer.data import snapshots
from slipway.trainer.loading.needs import SnapshotReading, need_of_script
from slipway.trainer.staging import holding


def check(job: Job, durable: Path, hardware: HardwareProfile | None, sees_nodes: bool) -> None:
    """Raises ValueError, with the sizes, for a job whose nodes can hold its snapshot in no way that it allows."""
    placement = codec.build(Placement, job.config["placement"])
    rooms = {node: room for node in job.nodes[: job.size] if (room := _room(placement, node, hardware, sees_nodes))}
    if len(rooms) < job.size:
        return
    try:
        snapshot = snapshots.read(durable, str(job.config["snapshot"]))
    except (OSError, ValueError):
        return
    if job.config.get("format") != resolved.FORMAT:
        need = need_of_script(snapshot, job.ranks_per_node)
        for node, room in rooms.items():
            holding.choose(placement.staging, need, {node: room})
        return
    config = codec.build(Config, {name: each for name, each in job.config.items() if name != "format"})
    reading = SnapshotReading(snapshot, config.batch, config.run, config.validation, mix=config.mix)
    reading.hold(placement.staging, rooms)


def _room(placement: Placement, node: str, hardware: HardwareProfile | None, sees_nodes: bool) -> int | None:
    """The most bytes that shards may ever take on a node's NVMe; None where nobody has said."""
    known: list[float] = [] if placement.nvme_gigabytes is None else [placement.nvme_gigabytes * 1e9]
    if hardware is not None:
        known.append(holding.SHARE * hardware.nvme_bytes)
    if sees_nodes and (disk := _disk(Path(placement.nvme.format(node=node)))):
        known.append(holding.SHARE * disk)
    return int(min(known)) if known else None


def _disk(folder: Path) -> int | None:
    """The bytes of the disk that a folder is on, or will be; None when that cannot be read."""
    try:
        there = next(each for each in (folder, *folder.parents) if each.exists())
        return shutil.disk_usage(there).total
    except (OSError, StopIteration):
        return None
