"""The nodes of a training: the bytes that each has for shards, and the server that gives them to the others.

Rank 0 of each node answers for the node. All ranks gather the same answers, so all decide alike.
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
    answers = [answer for answer in world.all_gather((number, name(), room)) if answer[2] is not None]
    names = [node for _, node, _ in answers]
    # Machines without names of their own share the name "local": their numbers tell them apart.
    known = {
        node_number: node if names.count(node) == 1 else f"{node}#{node_number}" for node_number, node, _ in answers
    }
    return Nodes(
        known.get(number, name()), {known[node_number]: room for node_number, _, room in answers if room is not None}
    )


def peers(world: World, nodes: Nodes, url: str | None, nvme: Path) -> dict[str, Origin]:
    """The servers of the other nodes, by node; `url` is this node's own, from its first rank, and None from others.

    Two nodes on one machine that share an NVMe folder are no peers: they hold the same shards.
    """
    folder = nvme.stat()
    own_disk = (boot(), folder.st_dev, folder.st_ino)
    servers = world.all_gather((nodes.own, url, own_disk))
    return {
        node: origin(node_url)
        for node, node_url, disk in servers
        if node_url is not None and node != nodes.own and disk != own_disk
    }
