"""The writer: a process beside each rank that writes its part of every checkpoint; rank 0's commits the whole.

``python -m trainer.checkpoint.writer PARENT FD FD`` serves requests from its standard input, one a line, until that
ends, and answers each with a line. The bytes lie in the two memfds that it inherits. It imports no torch, so that it
is there at once and small; it dies with the trainer, and works when the trainer leaves it something to work with.
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

from trainer import fence
from trainer.checkpoint import files, format, local, parts, sealing
from trainer.checkpoint.interval import NVME
from trainer.checkpoint.manifest import File, Manifest, decode, entry
from trainer.checkpoint.replicator import Copy, Replicator
from trainer.checkpoint.sealing import Key
from trainer.operation import Keep
from trainer.processes import die_with_parent

NICE = 5
"""The kernel derives the priority of reads and writes from it too."""
BLOCK = 8 << 20


@dataclass(frozen=True)
class Piece:
    """A file in the buffer."""

    name: str
    begin: int
    size: int
    """In bytes."""
    frozen: bool
    """Whether it may be the same as in the checkpoint before."""


@dataclass(frozen=True)
class Request:
    """One rank's part of one checkpoint. `folder` and `previous` are relative to the tier that it is written to."""

    step: int
    incarnation: int
    generation: int
    rank: int
    size: int
    """Ranks."""
    tier: str
    """Where it is written first, the fastest of those that are due."""
    root: str
    """That tier's folder."""
    copies: dict[str, str]
    """The folders and URLs of the other tiers that are due, by name."""
    keep: dict[str, Any]
    """What the NVMe keeps, as `trainer.operation.Keep`."""
    key_file: str
    store: str
    folder: str
    previous: str
    """The checkpoint that this incarnation began with, or empty."""
    pieces: list[dict[str, Any]]
    random_state: dict[str, Any]
    values: dict[str, Any]
    patience: float
    """Seconds for which rank 0 waits for the parts of the others."""
    begun: float
    progress: dict[str, Any]
    tensors: dict[str, Any]
    """The manifest's; like `progress` on rank 0 alone."""

    @property
    def name(self) -> str:
        return self.folder.rpartition("/")[2]

    def commit(self, manifest: str) -> fence.Commit:
        """The commit of this checkpoint, whose manifest has this SHA-256."""
        token = fence.Token(self.incarnation, self.generation)
        metrics = self.progress["metrics"]
        return fence.Commit(self.step, token, self.folder, manifest, metrics, time.time(), self.tier)

    @property
    def hidden(self) -> Path:
        """Where it is put together."""
        target = Path(self.root) / self.folder
        return target.with_name(f".{target.name}.partial")


class Writer:
    """Serves one rank."""

    def __init__(self, buffers: list[int]) -> None:
        self._buffers = buffers
        self._frozen: dict[str, tuple[Path, File]] = {}
        self._replicator: Replicator | None = None

    def serve(self, line: Mapping[str, int]) -> dict[str, Any]:
        """Carry out the request that lies in a buffer; its answer: {step, outcome, reason, ...}."""
        descriptor = self._buffers[line["buffer"]]
        request = Request(**json.loads(os.pread(descriptor, line["length"], line["begin"])))
        try:
            part = self._part(request, descriptor)
        except (OSError, ValueError) as error:
            part = {"error": str(error)}
        answer = {"step": request.step, "outcome": "failed" if "error" in part else "written"}
        try:
            parts.report(Path(request.store), request.name, request.rank, part)
            if request.rank == 0:
                answer |= self._finish(request)
        except fence.Superseded as error:
            answer |= {"outcome": "superseded", "reason": str(error)}
        except OSError as error:
            answer |= {"outcome": "failed", "reason": str(error)}
        return answer

    def finish(self) -> None:
        """Wait for the copies to other tiers; the trainer, which is at its end, decides for how long."""
        if self._replicator:
            self._replicator.finish(threading.TIMEOUT_MAX)

    def _part(self, request: Request, descriptor: int) -> parts.Part:
        """Write this rank's files. Raises OSError (a full disk, say)."""
        if request.rank == 0:
            _sweep_older(request)
        request.hidden.mkdir(parents=True, exist_ok=True)
        described = {}
        key = sealing.read_key(Path(request.key_file)) if request.key_file else None
        memory = memoryview(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ))
        for piece in (Piece(**each) for each in request.pieces):
            data = memory[piece.begin : piece.begin + piece.size]
            described[piece.name] = asdict(self._write(request, piece, data, key))
        return {"files": described, "random_state": request.random_state, "values": request.values}

    def _write(self, request: Request, piece: Piece, data: memoryview, key: Key | None) -> File:
        """Write a file, or refer to the one of the checkpoint before; what is sealed never is the same twice."""
        path = request.hidden / piece.name
        if key is not None:
            return _write_hashed(path, sealing.seal([data], key))
        if not piece.frozen:
            return _write_hashed(path, _blocks(data))
        file = File(len(data), blake3(data).hexdigest())
        if not self._refer(request, path, file):
            _write_hashed(path, _blocks(data))
        self._frozen[piece.name] = (Path(request.root) / request.folder / piece.name, file)
        return file

    def _refer(self, request: Request, path: Path, file: File) -> bool:
        """Whether the same file was in an earlier checkpoint, is good, and now is in this one too, by a hard link."""
        known = self._frozen.get(path.name) or _earlier(request, path.name)
        if known is None or known[1] != file:
            return False
        try:
            files.verify(known[0], file)
            os.link(known[0], path)
        except (OSError, files.Damaged):
            return False
        return True

    def _finish(self, request: Request) -> dict[str, Any]:
        """Commit once every rank has done its part. Raises OSError, and fence.Superseded."""
        store, target = Path(request.store), Path(request.root) / request.folder
        found = parts.gather(store, request.name, request.size, request.patience)
        faults = [f"rank {rank}: {part['error']}" for rank, part in enumerate(found) if "error" in part]
        try:
            if faults:
                return {"outcome": "failed", "reason": "; ".join(faults)}
            manifest = _manifest(request, found)
            token = fence.Token(request.incarnation, request.generation)
            fence.check(store, token)
            sha256 = format.publish(request.hidden, target, manifest)
            commit = request.commit(sha256)
            fence.commit(store, commit)
        finally:
            shutil.rmtree(request.hidden, ignore_errors=True)
            parts.sweep(store, request.name)
        seconds = time.time() - request.begun
        self._replicate(request, commit)
        return {"outcome": "committed", "commit": commit.name, "bytes": manifest.bytes, "seconds": seconds}

    def _replicate(self, request: Request, commit: fence.Commit) -> None:
        """Have it copied to the other tiers that are due, and make room on the NVMe."""
        store, source = Path(request.store), Path(request.root) / request.folder
        for tier, where in request.copies.items():
            self._replicator = self._replicator or Replicator()
            self._replicator.want(Copy(store, commit, source, tier, where))
        if request.tier == NVME:
            copied = self._replicator.names() if self._replicator else set[str]()
            with contextlib.suppress(OSError):  # the next one removes what this one left
                local.retain(store, source.parent, Keep(**request.keep), copied)


def _manifest(request: Request, found: list[parts.Part]) -> Manifest:
    """Write progress.json, with what every rank has to add to it, and describe all files."""
    values: dict[str, Any] = {}
    for part in reversed(found):
        values |= part["values"]
    states = [part["random_state"] for part in found]
    data = json.dumps({**request.progress, "random_states": states, "values": values}, sort_keys=True).encode()
    format.write_file(request.hidden / format.PROGRESS, data)
    described = {name: File(**file) for part in found for name, file in part["files"].items()}
    described[format.PROGRESS] = File(len(data), blake3(data).hexdigest())
    tensors = {name: entry(value) for name, value in request.tensors.items()}
    return Manifest(format.LAYOUT, described, tensors)


def _blocks(data: memoryview) -> Iterator[memoryview]:
    return (data[begin : begin + BLOCK] for begin in range(0, len(data), BLOCK))


def _write_hashed(path: Path, blocks: Iterable[bytes | memoryview]) -> File:
    """Write a file and have it on disk; hashed on the way. Raises OSError."""
    hasher, size = blake3(), 0
    with open(path, "wb", buffering=0) as file:
        for block in blocks:
            hasher.update(block)
            size += len(block)
            rest = memoryview(block)
            while rest:
                rest = rest[file.write(rest) :]
        os.fsync(file.fileno())
    return File(size, hasher.hexdigest())


def _earlier(request: Request, name: str) -> tuple[Path, File] | None:
    """The file of this name in the checkpoint that the incarnation began with."""
    folder = Path(request.root) / request.previous
    try:
        manifest = decode((folder / format.MANIFEST).read_bytes())
    except (OSError, ValueError):
        return None
    file = manifest.files.get(name)
    return (folder / name, file) if request.previous and file else None


def _sweep_older(request: Request) -> None:
    """Remove what was left of this incarnation's earlier checkpoints that were given up."""
    token = request.name.partition(".")[2]
    folders = [*request.hidden.parent.glob(f".*.{token}.partial"), *Path(request.store, "parts").glob(f"*.{token}")]
    for left in folders:
        if request.name not in left.name:
            shutil.rmtree(left, ignore_errors=True)


def main(arguments: list[str]) -> None:
    parent, *buffers = map(int, arguments)
    die_with_parent(parent)
    # A signal to the whole group is for the trainer to answer: its last checkpoint is still to be written.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    writer = Writer(buffers)
    for line in sys.stdin:
        print(json.dumps(writer.serve(json.loads(line))), flush=True)
    writer.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
