"""The register of nodes: each transition of a node's standing, on the durable tier.

`<durable>/nodes/<node>/<number>.json` is a transition, create-only: of several processes that decide on the same
record, one wins, and the others look again. The newest is the node's standing, all of them are its history. A node that
nothing was ever found against has no folder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.health.standing import NodeRecord, unknown
from slipway.trainer.base import codec
from slipway.trainer.record import files, numbered

FORMAT = "slipway.node/1"
FOLDER = "nodes"
EXEMPT = "exempt.json"
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Exemption:
    """exempt.json of a node: that no process takes it out of service; who said so, and why."""

    who: str
    why: str
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class NodeRegister:
    """The records of the nodes of one platform."""

    durable: Path

    def newest(self) -> dict[str, NodeRecord]:
        """The standing of each node that has a record. Raises Unavailable: unreadable is not healthy."""
        return {node: self.of(node) for node in self._entries(self.durable / FOLDER)}

    def of(self, node: str) -> NodeRecord:
        """The standing of one node; a node without a record is healthy. Raises Unavailable."""
        number = self._number(numbered.newest, node)
        return self._read(node, number) if number else unknown(node)

    def history(self, node: str) -> list[NodeRecord]:
        """All transitions of a node, the oldest first. Raises Unavailable."""
        return [self._read(node, number) for number in self._number(numbered.numbers, node)]

    def add(self, record: NodeRecord) -> bool:
        """Write a transition; False where another process has decided meanwhile. Raises OSError."""
        return numbered.add(self.durable / FOLDER / record.node, record.number, record, FORMAT)

    def exemption(self, node: str) -> Exemption | None:
        """Why no process takes the node out of service; None where one may. Raises Unavailable."""
        try:
            return codec.read_if_there(self.durable / FOLDER / node / EXEMPT, Exemption, FORMAT)
        except (OSError, codec.UndecodableRecord) as error:
            raise Unavailable(f"node {node}: whether it is exempt cannot be read: {error}") from error

    def exempt(self, node: str, exemption: Exemption | None) -> None:
        """Keep every process from taking the node out of service; None takes that back. Raises OSError."""
        path = self.durable / FOLDER / node / EXEMPT
        if exemption is None:
            path.unlink(missing_ok=True)
        else:
            codec.replace(path, exemption, FORMAT)

    def _read(self, node: str, number: int) -> NodeRecord:
        try:
            return numbered.read(self.durable / FOLDER / node, number, NodeRecord, FORMAT)
        except (OSError, codec.UndecodableRecord) as error:
            raise Unavailable(f"node {node}: its record {number} cannot be read: {error}") from error

    def _number(self, ask: Callable[[Path], Answer], node: str) -> Answer:
        """What one of `numbered` says of a node's log. Raises Unavailable."""
        try:
            return ask(self.durable / FOLDER / node)
        except files.Unreadable as error:
            raise Unavailable(f"node {node}: {error}") from error

    def _entries(self, folder: Path) -> list[str]:
        try:
            return sorted(files.entries(folder) or ())
        except files.Unreadable as error:
            raise Unavailable(str(error)) from error
