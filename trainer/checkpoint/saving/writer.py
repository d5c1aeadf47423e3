"""The writer: a process beside each rank that writes its part of every checkpoint; rank 0's writer commits the whole.

``python -m slipway.trainer.checkpoint.saving.writer PARENT FD FD`` reads requests from its standard input, one in each
line, until the input ends, and answers each with a line. The bytes are in the two memfds that it inherits. It does not
import torch, so it starts at once and stays small. It ends when the trainer dies.
"""

import contextlib
import json
import mmap
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from slipway.trainer.base import atomic, console, digest, parsing, regular_file, verify
from slipway.trainer.base.processes import die_with_parent
from slipway.trainer.base.progress import BYTE_COUNT
from slipway.trainer.checkpoint.disk import encryption, publication, verification
from slipway.trainer.checkpoint.disk.encryption import Key
from slipway.trainer.checkpoint.disk.manifest import LAYOUT, MANIFEST, CheckpointFile, CheckpointManifest, decode
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.retention import nvme
from slipway.trainer.checkpoint.saving import parts
from slipway.trainer.checkpoint.saving.node_share import NodeShare
from slipway.trainer.checkpoint.tiers import ring
from slipway.trainer.checkpoint.tiers.replicator import Copy, Replicator
from slipway.trainer.checkpoint.tiers.tier import NVME, TierUnavailable
from slipway.trainer.config.operation import RetentionRule
from slipway.trainer.record import fence
from slipway.trainer.record import files as record_files

NICE = 5
"""The kernel derives the priority of the process's reads and writes from it too."""
BLOCK = 8 << 20


@dataclass(frozen=True)
class WrittenPiece:
    """A file of this rank, as a range of bytes in the buffer."""

    name: str
    begin: int
    size: int
    """Bytes."""
    frozen: bool
    """Whether its parameters are not trained, so that an earlier checkpoint may hold the same file."""
    secret: bool
    """Whether it holds tensors, which are encrypted if there is a key."""


@dataclass(frozen=True)
class Request:
    """A request to write one rank's part of one checkpoint. `folder` and `previous` are relative to `root`."""

    step: int
    incarnation: int
    generation: int
    rank: int
    size: int
    """The number of ranks."""
    tier: str
    """The tier to which it is written: the fastest of the tiers that are due."""
    root: str
    """The folder of `tier`."""
    copies: dict[str, str]
    """The folders and URLs of the other due tiers, by name."""
    keep: dict[str, Any]
    """The retention rule of the NVMe, as `slipway.trainer.config.operation.RetentionRule`."""
    key_file: str
    """The file of the encryption key, or empty."""
    store: str
    folder: str
    previous: str
    """The folder of the checkpoint that this incarnation began with, or empty."""
    pieces: list[dict[str, Any]]
    random_state: dict[str, Any]
    values: dict[str, Any]
    patience: float
    """Seconds for which rank 0 waits for the parts of the other ranks."""
    begun: float
    """The time of the save's begin: seconds since the epoch."""
    progress: dict[str, Any]
    """The content of progress.json; only on rank 0."""
    spread: dict[str, Any]
    """For a checkpoint that is spread over several nodes, their ring, as `slipway.trainer.checkpoint.tiers.ring`; else
    empty."""

    @property
    def name(self) -> str:
        return self.folder.rpartition("/")[2]

    @property
    def token(self) -> fence.Token:
        return fence.Token(self.incarnation, self.generation)

    def commit(self, manifest: str) -> fence.Commit:
        """The commit of this checkpoint, whose manifest has this SHA-256."""
        metrics = self.progress["metrics"]
        return fence.Commit(self.step, self.token, self.folder, manifest, metrics, time.time(), self.tier)

    @property
    def hidden(self) -> Path:
        """The folder that collects the files until they are published."""
        target = Path(self.root) / self.folder
        return target.with_name(f".{target.name}.partial")

    @property
    def share(self) -> NodeShare | None:
        """This node's share of a spread checkpoint, on the first rank of the node; else None."""
        spread = ring.decode(self.spread) if self.spread else ring.ONE_NODE
        if not spread.spreads or spread.node.ranks[0] != self.rank:
            return None
        target = Path(self.root) / self.folder
        return NodeShare(spread, Path(self.store), self.folder, self.hidden, target, self.patience)


class CheckpointWriter:
    """The writer of one rank."""

    def __init__(self, buffers: list[int]) -> None:
        self._buffers = buffers
        self._frozen: dict[str, tuple[Path, CheckpointFile]] = {}
        self._replicator: Replicator | None = None

    def serve(self, line: Mapping[str, int]) -> dict[str, Any]:
        """Carry out the request in a buffer; returns the answer {step, outcome, reason, ...}."""
        descriptor = self._buffers[line["buffer"]]
        request = Request(**parsing.value(os.pread(descriptor, line["length"], line["begin"])))
        try:
            part = self._write_part(request, descriptor)
        except (OSError, ValueError) as error:
            part = {"error": str(error)}
        answer = {"step": request.step, "outcome": "failed" if "error" in part else "written"}
        try:
            parts.report(Path(request.store), request.name, request.rank, part)
            if request.rank == 0:
                answer |= self._commit(request)
            elif request.share and "error" not in part:
                request.share.keep()
        except fence.Superseded as error:
            answer |= {"outcome": "superseded", "reason": str(error)}
        except OSError as error:
            answer |= {"outcome": "failed", "reason": str(error)}
        return answer

    def finish(self) -> None:
        """Wait for the copies to other tiers; the trainer ends this process if they take too long."""
        if self._replicator:
            self._replicator.finish(threading.TIMEOUT_MAX)

    def _write_part(self, request: Request, descriptor: int) -> parts.SavedPart:
        """Write this rank's files. Raises OSError, for example for a full disk, and ValueError for a bad key file."""
        if request.rank == 0 or request.share:
            _remove_older(request)
        if request.share:
            # Remove checkpoints before this one is written: the disk has room for those that stay, and for this one.
            with contextlib.suppress(OSError, ValueError, TierUnavailable, fence.Superseded):
                nvme.remove_withdrawn(Path(request.store), (Path(request.root) / request.folder).parent, request.token)
        request.hidden.mkdir(parents=True, exist_ok=True)
        described = {}
        key = None
        if request.key_file:
            key = encryption.read_key(Path(request.key_file))
        memory = memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))
        for piece in (WrittenPiece(**fields) for fields in request.pieces):
            data = memory[piece.begin : piece.begin + piece.size]
            described[piece.name] = asdict(self._write_piece(request, piece, data, key))
        return {"files": described, "random_state": request.random_state, "values": request.values}

    def _write_piece(self, request: Request, piece: WrittenPiece, data: memoryview, key: Key | None) -> CheckpointFile:
        """Write a file, or link the same file of an earlier checkpoint; encrypted files are never the same twice."""
        path = request.hidden / piece.name
        if key is not None and piece.secret:
            return _write_hashed(path, encryption.encrypt([data], key))
        if not piece.frozen:
            return _write_hashed(path, _blocks(data))
        file = CheckpointFile(len(data), blake3(data).hexdigest())
        if not self._link_earlier(request, path, file):
            _write_hashed(path, _blocks(data))
        self._frozen[piece.name] = (Path(request.root) / request.folder / piece.name, file)
        return file

    def _link_earlier(self, request: Request, path: Path, file: CheckpointFile) -> bool:
        """Link the same file of an earlier checkpoint if it verifies; returns False if there is none."""
        known = self._frozen.get(path.name) or _file_at_start(request, path.name)
        if known is None or known[1] != file:
            return False
        try:
            verification.verify_file(known[0], file)
            os.link(known[0], path)
        except (OSError, DamagedCheckpoint):
            return False
        return True

    def _commit(self, request: Request) -> dict[str, Any]:
        """Commit the checkpoint once every rank has written its part. Raises OSError, and fence.Superseded."""
        store = Path(request.store)
        target = Path(request.root) / request.folder
        saved_parts = parts.gather(store, request.name, request.size, request.patience)
        faults = [f"rank {rank}: {part['error']}" for rank, part in enumerate(saved_parts) if "error" in part]
        try:
            if faults:
                return {"outcome": "failed", "reason": "; ".join(faults)}
            manifest = _manifest(request, saved_parts)
            fault = self._shared_out(request, manifest)
            if fault:
                return {"outcome": "failed", "reason": fault}
            fence.check(store, request.token)
            commit = request.commit(_publish(request, target, manifest))
            fence.commit(store, commit)
        finally:
            shutil.rmtree(request.hidden, ignore_errors=True)
            parts.remove(store, request.name)
        seconds = time.time() - request.begun
        self._replicate(request, commit)
        return {"outcome": "committed", "commit": commit.name, "bytes": manifest.bytes, "seconds": seconds}

    def _shared_out(self, request: Request, manifest: CheckpointManifest) -> str:
        """Let every node, this one too, keep its share of a spread checkpoint; returns why one does not, or empty.

        Raises OSError.
        """
        if not request.share:
            return ""
        data = manifest.encode()
        atomic.write(request.hidden / MANIFEST, [data])
        parts.announce(Path(request.store), request.name, digest.sha256(data))
        try:
            request.share.copy_neighbors()
        except OSError as error:
            return "; ".join([str(error), *request.share.why_missing()])
        return "; ".join(request.share.faults())

    def _replicate(self, request: Request, commit: fence.Commit) -> None:
        """Request the copies to the other tiers that are due, and remove old checkpoints from the NVMe."""
        store = Path(request.store)
        source = Path(request.root) / request.folder
        for tier, where in request.copies.items():
            self._replicator = self._replicator or Replicator()
            self._replicator.request(Copy(store, commit, source, tier, where))
        if request.tier == NVME:
            copying = self._replicator.commits_in_progress() if self._replicator else set[str]()
            # A failure does not affect the commit; the next call removes the remaining checkpoints.
            with contextlib.suppress(OSError, ValueError, TierUnavailable, fence.Superseded):
                nvme.remove_surplus(store, source.parent, RetentionRule(**request.keep), copying, commit.token)


def _publish(request: Request, target: Path, manifest: CheckpointManifest) -> str:
    """Make the checkpoint, or this node's share of it, visible; returns the manifest's SHA-256. Raises OSError."""
    if not request.share:
        return publication.publish(request.hidden, target, manifest)
    data = manifest.encode()
    request.share.show(data)
    ring.record_spread(Path(request.store), request.name, request.share.ring)
    return digest.sha256(data)


def _manifest(request: Request, saved_parts: list[parts.SavedPart]) -> CheckpointManifest:
    """Write progress.json, with the random states and values of every rank; returns the manifest of all files."""
    values: dict[str, Any] = {}
    for part in reversed(saved_parts):
        values |= part["values"]
    states = [part["random_state"] for part in saved_parts]
    data = json.dumps({**request.progress, "random_states": states, "values": values}, sort_keys=True).encode()
    atomic.write(request.hidden / PROGRESS, [data])
    described = {name: CheckpointFile(**file) for part in saved_parts for name, file in part["files"].items()}
    described[PROGRESS] = CheckpointFile(len(data), blake3(data).hexdigest())
    return CheckpointManifest(LAYOUT, described)


def _blocks(data: memoryview) -> Iterator[memoryview]:
    return (data[begin : begin + BLOCK] for begin in range(0, len(data), BLOCK))


def _write_hashed(path: Path, blocks: Iterable[bytes | memoryview]) -> CheckpointFile:
    """Write a file and wait until the disk has it; returns its size and hash. Raises OSError."""
    tally = verify.RunningDigest()
    atomic.write(path, tally.passing(blocks))
    return CheckpointFile(tally.bytes, tally.blake3)


def _file_at_start(request: Request, name: str) -> tuple[Path, CheckpointFile] | None:
    """The file of this name in the checkpoint that the incarnation began with."""
    folder = Path(request.root) / request.previous
    try:
        manifest = decode(regular_file.read(folder / MANIFEST))
    except (OSError, ValueError):
        return None
    file = manifest.files.get(name)
    if not request.previous or file is None:
        return None
    return folder / name, file


def _remove_older(request: Request) -> None:
    """Remove the files of this incarnation's failed saves; other ranks may already write a later one."""
    token = request.name.partition(".")[2]
    folders = list(request.hidden.parent.glob(f".*.{token}.partial"))
    if request.rank == 0:
        folders += Path(request.store, record_files.PARTS).glob(f"*.{token}")
    for folder in folders:
        if folder.name.lstrip(".") < request.name:
            shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> None:
    parent, *buffers = map(int, arguments)
    die_with_parent(parent)
    # A signal to the whole process group is for the trainer, which still has to save its last checkpoint.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    writer = CheckpointWriter(buffers)
    for line in sys.stdin:
        with _saying_how_far():
            answer = writer.serve(parsing.value(line))
        _say(answer)
    writer.finish()


@contextlib.contextmanager
def _saying_how_far() -> Iterator[None]:
    """Report the bytes written so far each second, while they change, so that a slow disk is no dead writer."""
    over = threading.Event()

    def say() -> None:
        last_count = BYTE_COUNT()
        while not over.wait(1.0):
            if BYTE_COUNT() != last_count:
                last_count = BYTE_COUNT()
                _say({"moved": last_count})

    teller = threading.Thread(target=say, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def _say(line: dict[str, Any]) -> None:
    console.say(json.dumps(line))


if __name__ == "__main__":
    console.explain("slipway.trainer.checkpoint.saving.writer", "writes a rank's checkpoints")
    main(sys.argv[1:])
