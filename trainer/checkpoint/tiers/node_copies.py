"""Node copies: a commit on the NVMe of several nodes; each node collects the files that its ranks need.

Each rank lists the files that it reads. A file is verified on the node's own disk, else fetched from another node that
has it, else from the durable tier, and every byte is hashed on its way. If a source gives other bytes or stalls, the
fault is recorded, and the next source is tried. A fetched file stays in the node's folder, as if it had been written
there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.trainer.base import atomic, verify
from slipway.trainer.checkpoint.disk import reading, verification
from slipway.trainer.checkpoint.disk.contents import Contents
from slipway.trainer.checkpoint.disk.manifest import (
    MANIFEST,
    CheckpointFile,
    CheckpointManifest,
    decode,
    require_readable,
)
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.verification import verified_chunks, verified_manifest
from slipway.trainer.checkpoint.tiers import fetching
from slipway.trainer.checkpoint.tiers.ring import NodeRing, SpreadRecord
from slipway.trainer.checkpoint.tiers.tier import DURABLE, TierUnavailable
from slipway.trainer.node.world import World
from slipway.trainer.objects.peer import PeerOrigin
from slipway.trainer.record.fence import Commit

Needed = Callable[[Contents], Iterable[str]]
"""The names of the files that this rank reads of a checkpoint."""


@dataclass(frozen=True)
class SourceFault:
    """A source that did not give a file as it was committed."""

    node: str
    """The name of the node or tier."""
    file: str
    damaged: bool
    """Whether it gave other bytes; if not, it gave none, or stalled."""
    reason: str

    def fields(self, commit: Commit) -> dict[str, str]:
        """The fields of the ledger's event."""
        kind = "damaged" if self.damaged else "away"
        return {"commit": commit.name, "node": self.node, "file": self.file, "kind": kind, "reason": self.reason}


@dataclass(frozen=True)
class Shelf:
    """The files of a commit that one node has."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    """The bytes of each file, by name."""
    manifest: bytes = b""
    """The verified manifest; empty without one."""
    fault: SourceFault | None = None


@dataclass
class Gathering:
    """The outcome, for one rank or for all: the contents, or why files are missing."""

    contents: Contents | None = None
    damage: str = ""
    away: str = ""
    lost: str = ""
    """The files that only nodes may have which the training does not have now."""
    faults: list[SourceFault] = field(default_factory=list)


class NodeCopies:
    """A commit on the present nodes of the training. All ranks call its methods at the same time."""

    def __init__(
        self, commit: Commit, folder: Path, ring: NodeRing, record: SpreadRecord | None, durable: Path | None
    ) -> None:
        """`folder` is the commit's on this node; `durable` is its folder on the durable tier, if that holds it."""
        self._commit = commit
        self._folder = folder
        self._ring = ring
        self._record = record
        self._durable = durable
        self._names = [node.name for node in ring.nodes]

        # The files of the commit, and where they are.
        self._files: Mapping[str, CheckpointFile] = {}
        self._shelves: list[Shelf] = []
        """By node."""

        # What this rank has tried.
        self._good: set[str] = set()
        """The files that are verified in this node's folder."""
        self._stalled: set[int] = set()
        """The nodes that stalled: they are tried last."""
        self._faults: list[SourceFault] = []

    def gathered(self, needed: Needed, world: World) -> Gathering:
        """Fetch and verify the files that the ranks of each node need; returns the same outcome on every rank."""
        self._shelves = self._survey(world)
        faults = [shelf.fault for shelf in self._shelves if shelf.fault]
        manifest = next((shelf.manifest for shelf in self._shelves if shelf.manifest), b"")
        if not manifest:
            outcome = self._why_missing(MANIFEST, faults)
            outcome.faults = faults
            return outcome
        files = decode(manifest)
        require_readable(files.layout, self._folder)
        outcome = self._bring_all(files, needed, world)
        outcome.faults = faults + outcome.faults
        if outcome.contents and world.rank == self._speaker and not self._own.manifest:
            atomic.replace(self._folder / MANIFEST, manifest)
        return outcome

    @property
    def _speaker(self) -> int:
        return self._ring.node.ranks[0]

    @property
    def _own(self) -> Shelf:
        return self._shelves[self._ring.own]

    def _survey(self, world: World) -> list[Shelf]:
        """The files of each node."""
        own_shelf = self._look() if world.rank == self._speaker else Shelf()
        shelves = world.all_gather(own_shelf)
        return [shelves[node.ranks[0]] for node in self._ring.nodes]

    def _look(self) -> Shelf:
        """The files of this node. A folder without a manifest is empty: it is being removed."""
        name = self._names[self._ring.own]
        try:
            data = bytes(reading.read(self._folder / MANIFEST))
            verified_manifest(data, self._commit.manifest, str(self._folder / MANIFEST))
            return Shelf({path.name: path.stat().st_size for path in self._folder.iterdir()}, data)
        except DamagedCheckpoint as error:
            if not self._folder.exists():
                return Shelf()
            return Shelf(fault=SourceFault(name, MANIFEST, True, str(error)))
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                return Shelf()
            return Shelf(fault=SourceFault(name, MANIFEST, False, str(error)))

    def _bring_all(self, manifest: CheckpointManifest, needed: Needed, world: World) -> Gathering:
        self._files = manifest.files
        contents = Contents(self._folder, manifest, self._bring)
        names_to_bring = set[str]()
        failed = Gathering()
        try:
            names_to_bring = {PROGRESS, *needed(contents)}
        except (DamagedCheckpoint, TierUnavailable, OSError) as error:
            failed = self._failure(error)
        except ValueError:
            pass  # it has another model: `load` raises this on all ranks
        gathered = world.all_gather((names_to_bring, failed))
        if not any(_failed(result) for _, result in gathered):
            ranks = self._ring.node.ranks
            names = sorted(set[str]().union(*(gathered[rank][0] for rank in ranks)))
            failed = self._bring_each(names[ranks.index(world.rank) :: len(ranks)])
        failed.faults = self._faults
        every = [first for _, first in gathered] + world.all_gather(failed)
        return Gathering(
            contents=None if any(map(_failed, every)) else contents,
            damage=next((result.damage for result in every if result.damage), ""),
            away=next((result.away for result in every if result.away), ""),
            lost=next((result.lost for result in every if result.lost), ""),
            faults=list(dict.fromkeys(fault for result in every for fault in result.faults)),
        )

    def _bring_each(self, names: list[str]) -> Gathering:
        try:
            for name in names:
                self._bring(name)
        except (DamagedCheckpoint, TierUnavailable, OSError) as error:
            return self._failure(error)
        return Gathering()

    def _bring(self, name: str) -> None:
        """Verify a file in this node's folder, or fetch it. Raises _Missing, and OSError for this node's own disk."""
        if name in self._good:
            return
        expected = self._files[name]
        tried = list[SourceFault]()
        for source, bring in self._sources(name, expected):
            try:
                bring()
            except DamagedCheckpoint as error:
                tried.append(SourceFault(source, name, True, str(error)))
            except TierUnavailable as error:
                tried.append(SourceFault(source, name, False, str(error)))
                if source in self._names:
                    self._stalled.add(self._names.index(source))
            else:
                self._faults += tried
                self._good.add(name)
                return
        self._faults += tried
        raise _Missing(name, tried)

    def _sources(self, name: str, expected: CheckpointFile) -> Iterator[tuple[str, Callable[[], None]]]:
        """The possible sources of a file, in order: this node, other nodes, the durable tier, nodes that stalled."""
        path = self._folder / name
        count = len(self._names)
        own = self._ring.own
        if name in self._own.sizes:
            yield self._names[own], lambda: _verify(path, expected)
        others = [(own + step) % count for step in range(1, count)]
        have = [number for number in others if self._shelves[number].sizes.get(name) == expected.bytes]
        late = set(self._stalled)
        for number in have:
            if number not in late:
                yield self._names[number], self._fetcher(number, name, expected)
        if self._durable:
            yield DURABLE, self._copier(self._durable / name, expected)
        for number in have:
            if number in late:
                yield self._names[number], self._fetcher(number, name, expected)

    def _fetcher(self, node: int, name: str, expected: CheckpointFile) -> Callable[[], None]:
        source = PeerOrigin(self._ring.nodes[node].url)

        def fetch() -> None:
            self._folder.mkdir(parents=True, exist_ok=True)
            fetching.file(source, [f"{self._commit.folder}/{name}"], expected, self._folder / name)

        return fetch

    def _copier(self, path: Path, expected: CheckpointFile) -> Callable[[], None]:
        def copy() -> None:
            self._folder.mkdir(parents=True, exist_ok=True)
            fetching.keep(verified_chunks(_blocks(path), expected, str(path)), self._folder / path.name)

        return copy

    def _failure(self, error: Exception) -> Gathering:
        if isinstance(error, _Missing):
            return self._why_missing(error.file, error.tried)
        return Gathering(away=str(error))

    def _why_missing(self, file: str, tried: list[SourceFault]) -> Gathering:
        """Why no source gave a file: one is away, a node of the commit is missing, or the file is damaged."""
        reasons = "; ".join(f"{fault.node}: {fault.reason}" for fault in tried)
        if any(not fault.damaged for fault in tried):
            return Gathering(away=reasons)
        names = ", ".join(self._names)
        gone = self._record.missing(self._names) if self._record else []
        if gone or not (self._record or tried):
            where = "its node is not there now"
            if gone:
                nodes = ", ".join(f"{node.name} (ranks {', '.join(map(str, node.ranks))})" for node in gone)
                where = f"it was on {nodes}, which this training does not have now"
            return Gathering(lost="; ".join(filter(None, [f"{file}: on none of {names}", where, reasons])))
        return Gathering(damage=reasons or f"{file}: found on none of {names}, which should have it")


class _Missing(DamagedCheckpoint):
    """No source gives a file."""

    def __init__(self, file: str, tried: list[SourceFault]) -> None:
        super().__init__(f"{file}: no place gives it")
        self.file = file
        self.tried = tried


def _failed(outcome: Gathering) -> bool:
    return bool(outcome.damage or outcome.away or outcome.lost)


def _verify(path: Path, expected: CheckpointFile) -> None:
    """Raises DamagedCheckpoint, and TierUnavailable if the file cannot be read."""
    try:
        verification.verify_file(path, expected)
    except OSError as error:
        raise TierUnavailable(f"{path}: {error.strerror or error}") from error


def _blocks(path: Path) -> Iterator[bytes]:
    try:
        yield from verify.blocks(path)
    except OSError as error:
        raise TierUnavailable(f"{path}: {error.strerror or error}") from error
