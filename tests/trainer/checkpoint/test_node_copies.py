"""A checkpoint that several nodes have together: each file comes from where it is whole, and who lies is named.

Each node is a rank with a folder and a real server of its own.
"""

import json
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slipway.trainer.base import digest
from slipway.trainer.checkpoint.disk.manifest import LAYOUT, MANIFEST, CheckpointFile, CheckpointManifest
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.tiers.node_copies import NodeCopies, SourceFault
from slipway.trainer.checkpoint.tiers.ring import NodeRing, RingNode, SpreadNode, SpreadRecord
from slipway.trainer.node.world import World
from slipway.trainer.record.fence import Commit, Token
from tests.trainer import gang
from tests.trainer.peer_process import PeerProcess, peer_process

pytestmark = pytest.mark.slow
FOLDER = f"checkpoints/tiny/{5:09d}.{Token(1)}"
FILES = {
    PROGRESS: b"{}",
    "model-00000.safetensors": b"of rank 0" * 9000,
    "model-00001.safetensors": b"of rank 1" * 9000,
}
FIRST, SECOND = "model-00000.safetensors", "model-00001.safetensors"
BYTES = CheckpointManifest(
    LAYOUT, {name: CheckpointFile(len(data), digest.of_bytes(data)) for name, data in FILES.items()}
).encode()
RECORD = SpreadRecord("x", (SpreadNode("a", (0,)), SpreadNode("b", (1,))))


@dataclass
class Nodes:
    """Nodes with their folders and servers."""

    folder: Path
    names: list[str]
    servers: list[PeerProcess]
    durable: Path | None = None
    needed: list[str] = field(default_factory=lambda: list(FILES))

    def path(self, node: str, name: str) -> Path:
        return self.folder / node / FOLDER / name

    def write(self, node: str, *names: str) -> None:
        for name in names:
            self.path(node, name).parent.mkdir(parents=True, exist_ok=True)
            self.path(node, name).write_bytes(FILES.get(name, BYTES))

    def flip(self, node: str, name: str) -> None:
        data = bytearray(FILES[name])
        data[100] ^= 1
        self.path(node, name).write_bytes(data)

    def gathered(self) -> list[tuple[bool, str, str, str, list[SourceFault]]]:
        """What each node found: whether all is there, what is damaged, away and lost, and the faults."""
        ring = [RingNode(name, server.url, (rank,)) for rank, (name, server) in enumerate(self.pairs)]
        return gang.run(len(self.names), gathered, self.folder, ring, self.durable, self.needed)

    @property
    def pairs(self) -> list[tuple[str, PeerProcess]]:
        return list(zip(self.names, self.servers, strict=True))


def gathered(
    world: World, folder: Path, nodes: list[RingNode], durable: Path | None, needed: list[str]
) -> tuple[bool, str, str, str, list[SourceFault]]:
    commit = Commit(5, Token(1), FOLDER, digest.sha256(BYTES), tier="nvme")
    ring = NodeRing(tuple(nodes), world.rank)
    copies = NodeCopies(commit, folder / ring.node.name / FOLDER, ring, RECORD, durable)
    outcome = copies.gathered(lambda _: needed, world)
    return outcome.contents is not None, outcome.damage, outcome.away, outcome.lost, outcome.faults


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Nodes]:
    """Node a has its own files and those of b; node c is new, where b was."""
    with ExitStack() as running:
        for name in ("a", "c"):
            (tmp_path / name).mkdir()
        servers = [running.enter_context(peer_process(tmp_path / name)) for name in ("a", "c")]
        nodes = Nodes(tmp_path, ["a", "c"], servers)
        nodes.write("a", MANIFEST, *FILES)
        yield nodes


def durable_copy(nodes: Nodes) -> None:
    nodes.write("durable", MANIFEST, *FILES)
    nodes.durable = nodes.folder / "durable" / FOLDER


def test_a_new_node_gets_its_files_from_the_node_that_has_their_copy_and_keeps_them(two: Nodes) -> None:
    assert two.gathered() == [(True, "", "", "", [])] * 2
    for name, data in FILES.items():
        assert two.path("c", name).read_bytes() == data
    assert two.path("c", MANIFEST).read_bytes() == BYTES


def test_a_flipped_bit_on_the_own_disk_is_named_and_replaced_by_the_other_nodes_copy(two: Nodes) -> None:
    two.write("c", MANIFEST, *FILES)
    two.flip("a", FIRST)
    [(is_complete, _, _, _, [fault]), _] = two.gathered()
    assert is_complete and (fault.node, fault.file, fault.damaged) == ("a", FIRST, True)
    assert "found BLAKE3" in fault.reason
    assert two.path("a", FIRST).read_bytes() == FILES[FIRST]


def test_a_node_that_gives_flipped_bits_is_named_and_the_durable_tier_gives_the_file(two: Nodes) -> None:
    durable_copy(two)
    two.flip("a", SECOND)
    results = two.gathered()
    assert all(result[0] for result in results)
    assert {(fault.node, fault.file, fault.damaged) for fault in results[0][4]} == {("a", SECOND, True)}
    assert two.path("c", SECOND).read_bytes() == two.path("a", SECOND).read_bytes() == FILES[SECOND]


def test_a_node_that_stalls_is_named_and_asked_no_second_time_while_another_source_gives_the_files(two: Nodes) -> None:
    durable_copy(two)
    two.servers[0].signal(signal.SIGSTOP)
    results = two.gathered()
    assert all(result[0] for result in results)
    assert {(fault.node, fault.damaged) for fault in results[0][4]} == {("a", False)}
    assert len(results[0][4]) == 1
    assert two.path("c", SECOND).read_bytes() == FILES[SECOND]


def test_a_file_that_only_a_node_which_is_gone_has_whole_is_lost_and_not_damaged(two: Nodes) -> None:
    two.flip("a", SECOND)
    [(is_complete, damage, away, lost, _), other] = two.gathered()
    assert not is_complete and not other[0] and damage == away == ""
    assert SECOND in lost and "it was on b (ranks 1), which this training does not have now" in lost
    assert not two.path("c", MANIFEST).exists()


def test_a_file_that_is_damaged_on_every_node_that_has_it_is_damaged(two: Nodes) -> None:
    shutil.move(two.folder / "c", two.folder / "b")
    (two.folder / "c").symlink_to("b")  # where the server of the second node looks
    two.names[1] = "b"
    two.write("b", MANIFEST, *FILES)
    for node in ("a", "b"):
        two.flip(node, SECOND)
    [(is_complete, damage, away, lost, faults), _] = two.gathered()
    assert not is_complete and away == lost == "" and "found BLAKE3" in damage
    assert {fault.node for fault in faults} == {"a", "b"}


def test_only_what_a_node_needs_is_brought(two: Nodes) -> None:
    two.needed = [SECOND]
    assert all(result[0] for result in two.gathered())
    assert not two.path("c", FIRST).exists()
    assert json.loads(two.path("c", PROGRESS).read_bytes()) == {}
