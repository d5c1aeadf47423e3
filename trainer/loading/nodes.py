"""Nodes of a training: the room that each has for shards, and the server by which it gives them to the others.

Rank 0 of each node speaks for the node. What the ranks gather is the same on all of them, so all of them decide alike.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.node.world import World
from slipway.trainer.objects.origin import Origin
from slipway.trainer.objects.origins import origin
from slipway.trainer.staging.nvme import boot


@dataclass(frozen=True)
class Nodes:
    """The nodes of a training, as this rank sees them."""

    own: str
    """The name of this rank's node among them."""
    rooms: Mapping[str, int]
    """Bytes for shards on each node's NVMe."""


def name() -> str:
    """This node's name, as the launcher gave it."""
    return os.environ.get("SLIPWAY_NODE", "local")


def gather(world: World, room: int | None) -> Nodes:
    """The nodes of all ranks; `room` comes from the first rank of each node, and None from the others."""
    number = int(os.environ.get("GROUP_RANK", "0"))
    answers = [one for one in world.all_gather((number, name(), room)) if one[2] is not None]
    names = [node for _, node, _ in answers]
    # Two machines that were given no names of their own are two nodes all the same.
    known = {
        node_number: node if names.count(node) == 1 else f"{node}#{node_number}" for node_number, node, _ in answers
    }
    return Nodes(
        known.get(number, name()), {known[node_number]: room for node_number, _, room in answers if room is not None}
    )


def peers(world: World, nodes: Nodes, url: str | None, nvme: Path) -> dict[str, Origin]:
    """The servers of the other nodes, by node; `url` is this node's own, from its first rank, and None from others.

    Two nodes by name whose NVMe is one folder, on one machine, are no peers: what one lacks the other lacks too.
    """
    folder = nvme.stat()
    disk = boot(), folder.st_dev, folder.st_ino
    servers = [(node, url, there) for node, url, there in world.all_gather((nodes.own, url, disk)) if url is not None]
    return {node: origin(url) for node, url, there in servers if node != nodes.own and there != disk}
