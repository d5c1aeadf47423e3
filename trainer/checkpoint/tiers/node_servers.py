"""Node servers: the ranks of a training agree on the ring of their nodes; each node serves its files to the others."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import paths
from slipway.trainer.checkpoint.tiers.ring import ONE_NODE, NodeRing, RingNode
from slipway.trainer.checkpoint.tiers.tier import NVME
from slipway.trainer.node.world import World
from slipway.trainer.objects.peer_server import PeerServer
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token


def alone(world: World) -> NodeRing:
    """A ring of one node with all ranks."""
    return NodeRing((RingNode(_name(), "", tuple(range(world.size))),))


@dataclass(frozen=True)
class _Rank:
    """A rank's message about its node."""

    node: int
    name: str
    url: str
    fault: str


def number() -> int:
    """The number of this rank's node, from torchrun or the supervisor."""
    return int(os.environ.get("GROUP_RANK", "0"))


def _name() -> str:
    return os.environ.get("SLIPWAY_NODE", "local")


def is_on_one_node(world: World) -> bool:
    return world.size == int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


class NodeServers:
    """The ring of a training, and the server of this node, which runs until `close`."""

    def __init__(self, world: World, nvme: Path, store: Path, token: Token, saves: bool) -> None:
        """All ranks call it at the same time. It starts no server for a training on one node.

        `nvme`: this node's folder. `saves`: whether the training saves there; if it does not, and never has, it needs
        no server either.
        """
        self._server: PeerServer | None = None
        self.ring = ONE_NODE
        if is_on_one_node(world):
            return
        if not world.broadcast(world.is_rank_zero and (saves or _has_saved(store))):
            self.ring = NodeRing(unusable="no checkpoint on the NVMe is wanted")
            return
        fault = ""
        url = ""
        if world.local_rank == 0:
            fault = self._start(nvme, token)
            url = self._server.url if self._server else ""
        ranks = world.all_gather(_Rank(number(), _name(), url, fault))
        shared = world.all_gather(_shared_with(nvme, token) if world.local_rank == 0 else "")
        if world.local_rank == 0:
            with contextlib.suppress(OSError):
                _mark(nvme, token, number()).unlink(missing_ok=True)
        unusable = next(filter(None, [*(rank.fault for rank in ranks), *shared]), "")
        self.ring = NodeRing(unusable=unusable) if unusable else _ring(ranks)

    def close(self) -> None:
        """End the server."""
        if self._server:
            self._server.close()
            self._server = None

    def _start(self, nvme: Path, token: Token) -> str:
        """Start the server and mark the folder; returns why it cannot, or empty."""
        try:
            nvme.mkdir(parents=True, exist_ok=True)
            _mark(nvme, token, number()).touch()
            self._server = PeerServer(nvme)
        except (OSError, ValueError) as error:
            return str(error)
        return ""


def _ring(ranks: Sequence[_Rank]) -> NodeRing:
    numbers = sorted({rank.node for rank in ranks})
    names = {rank.node: rank.name for rank in ranks}
    urls = {rank.node: rank.url for rank in ranks if rank.url}
    # Machines without names of their own share the name "local": their numbers tell them apart.
    taken = list(names.values())
    known = {node: name if taken.count(name) == 1 else f"{name}#{node}" for node, name in names.items()}
    members = {node: tuple(at for at, rank in enumerate(ranks) if rank.node == node) for node in numbers}
    nodes = tuple(RingNode(known[node], urls[node], members[node]) for node in numbers)
    return NodeRing(nodes, numbers.index(number()))


def _has_saved(store: Path) -> bool:
    """Whether a commit was written to the NVMe; True if that cannot be read, because the restore reads it again."""
    with contextlib.suppress(OSError, ValueError):
        return any(commit.tier == NVME for commit in fence.commits(store))
    return True


def _mark(nvme: Path, token: Token, node: int) -> Path:
    return nvme / f".{paths.CHECKPOINTS}.{token}.{node:05d}.node"


def _shared_with(nvme: Path, token: Token) -> str:
    """Why a node cannot keep copies: another one has the same folder, which would be lost with both. Else empty."""
    try:
        names = {path.name for path in nvme.glob(f".{paths.CHECKPOINTS}.{token}.*.node")}
    except OSError as error:
        return f"{nvme}: {error.strerror}"
    others = names - {_mark(nvme, token, number()).name}
    return f"{nvme}: several nodes have this one folder, expected one of each node" if others else ""
