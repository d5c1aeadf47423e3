"""The node register: each transition of a node's health status, on the durable tier.

`<durable>/nodes/<node>/<number>.json` is a transition. It is create-only: if several processes decide on the same
record, one wins and the others decide again. The newest record is the node's current status, and all of them are its
history. A node without any evidence against it has no folder.
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
    """exempt.json of a node: the platform must not take it out of service; who decided this, and why."""

    who: str
    why: str
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class NodeRegister:
    """The records of the nodes of one platform."""

    durable: Path

    def newest(self) -> dict[str, NodeRecord]:
        """The current record of each node that has one. Raises Unavailable, since unreadable does not mean healthy."""
        return {node: self.of(node) for node in self._entries(self.durable / FOLDER)}

    def of(self, node: str) -> NodeRecord:
        """The current record of one node; a node without a record is healthy. Raises Unavailable."""
        number = self._number(numbered.newest, node)
        return self._read(node, number) if number else unknown(node)

    def history(self, node: str) -> list[NodeRecord]:
        """All transitions of a node, the oldest first. Raises Unavailable."""
        return [self._read(node, number) for number in self._number(numbered.numbers, node)]

    def add(self, record: NodeRecord) -> bool:
        """Write a transition. Returns False if another process was faster. Raises OSError."""
        return numbered.add(self.durable / FOLDER / record.node, record.number, record, FORMAT)

    def exemption(self, node: str) -> Exemption | None:
        """The exemption of the node, or None. Raises Unavailable."""
        try:
            return codec.read_if_there(self.durable / FOLDER / node / EXEMPT, Exemption, FORMAT)
        except (OSError, codec.UndecodableRecord) as error:
            raise Unavailable(f"node {node}: its exemption cannot be read: {error}") from error

    def exempt(self, node: str, exemption: Exemption | None) -> None:
        """Exempt the node from being taken out of service by the platform; None ends that. Raises OSError."""
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
        """The result of a function of `numbered` for a node's log. Raises Unavailable."""
        try:
            return ask(self.durable / FOLDER / node)
        except files.Unreadable as error:
            raise Unavailable(f"node {node}: {error}") from error

    def _entries(self, folder: Path) -> list[str]:
        try:
            return sorted(files.entries(folder) or ())
        except files.Unreadable as error:
            raise Unavailable(str(error)) from error
