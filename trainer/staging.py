"""Staging: a verified copy of a dataset snapshot, or of a node's part of it, on the node's own NVMe.

Shards come from the first origin that has them whole, several at a time, are hashed while they are copied and
appear under their names by a rename: a shard on the NVMe is whole or absent. Staging again reads nothing.
By hand: ``python -m trainer.staging SHA256 --from ORIGIN --to NVME``.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer import atomic, copying, digest, leases, shards, snapshots
from trainer.nvme import Verified, boot, claimed, leave, partial_path, remove_partial
from trainer.origins import Folder, Missing, Origin, Unreachable, origin
from trainer.part import WHOLE, Part
from trainer.progress import Meter, Progress, Report, every

WORKERS = max(4, min(16, os.cpu_count() or 1))
"""Shards copied at a time. Two threads fill a small machine's memory bus; a file server is faster with more."""
REPORT_SECONDS, LINE_SECONDS = 1.0, 5.0
_Work = concurrent.futures.Future[copying.Copied | None]
Origins = Sequence[Origin | str | Path] | str | Path
"""Where to fetch from, in order; a path or URL stands for its origin, and one alone for a list of one."""


@dataclass(frozen=True)
class Staged:
    """What a staging found and did; `copied_*` counts what it brought from an origin itself."""

    shards: int
    bytes: int
    copied_shards: int
    copied_bytes: int
    seconds: float
    faults: tuple[str, ...] = ()
    """What was wrong with origins that others made up for."""


def stage(
    snapshot_sha256: str,
    origins: Origins,
    nvme: Path,
    report: Report | None = None,
    part: Part = WHOLE,
    workers: int | None = None,
) -> Staged:
    """Bring the snapshot's manifest and the part's shards to `nvme`, whole, and leave a marker.

    Any number may stage on a node at once, the same snapshot or others: each shard is brought by one of them. A
    lease is held meanwhile; who reads the snapshot afterwards should hold its own from before on. Raises ValueError
    when no origin has the manifest or a shard whole, and OSError when the NVMe cannot be written (a full disk,
    say). What was whole before stays, and nothing partial is under a shard's name: it is continued next time, or,
    when the NVMe cannot be written, removed.
    """
    began, sources = time.monotonic(), _origins(origins)
    manifest = _manifest(snapshot_sha256, sources, nvme)
    with leases.hold(nvme, snapshot_sha256), _leaving_room(nvme):
        snapshot = _leave_manifest(manifest, snapshot_sha256, nvme)
        mine, crew = part.of(snapshot.shards()), _Crew(sources, nvme, Verified(nvme))
        copied = crew.bring_all(mine, workers or WORKERS, report)
        leave(_marker(nvme, snapshot_sha256), _marked(mine, part), nvme)
    return Staged(
        shards=len(mine),
        bytes=sum(shard.bytes for shard in mine),
        copied_shards=sum(one.bytes > 0 for one in copied),
        copied_bytes=sum(one.bytes for one in copied),
        seconds=time.monotonic() - began,
        faults=tuple(fault for one in copied for fault in one.faults),
    )


def is_staged(snapshot_sha256: str, nvme: Path, part: Part = WHOLE) -> bool:
    """Whether a staging of this boot left the part on `nvme`, and its files were not touched since."""
    try:
        marker = json.loads(_marker(nvme, snapshot_sha256).read_bytes())
        snapshot = snapshots.read(nvme, snapshot_sha256)
    except (FileNotFoundError, ValueError):
        return False
    fresh = isinstance(marker, dict) and marker.get("boot") == boot()
    return fresh and not Verified(nvme).without(part.of(snapshot.shards()))


def bring_manifest(snapshot_sha256: str, origins: Origins, nvme: Path) -> snapshots.Snapshot:
    """The snapshot, its manifest on `nvme` afterwards: where a reader that brings shards one by one begins.

    Raises ValueError as `stage`. The caller holds a lease on the snapshot, or retention may remove it.
    """
    return _leave_manifest(_manifest(snapshot_sha256, _origins(origins), nvme), snapshot_sha256, nvme)


def bring(shard: shards.File, origins: Origins, nvme: Path) -> None:
    """Have one shard on `nvme`, whole and verified; returns at once when it is there already.

    Blocks until then, be it another staging that brings it. Raises as `stage` does. The caller holds a lease on a
    snapshot that names the shard and whose manifest is on `nvme`, or retention may remove it.
    """
    verified = Verified(nvme)
    if verified.without([shard]):
        _Crew(_origins(origins), nvme, verified).bring(shard, Meter(shard.bytes, 1), wait=True)


@dataclass(frozen=True)
class _Crew:
    """Those who bring shards from these origins to this NVMe."""

    origins: Sequence[Origin]
    nvme: Path
    verified: Verified

    def bring_all(self, wanted: Sequence[shards.File], workers: int, report: Report | None) -> list[copying.Copied]:
        """Bring what is missing: first what no other staging is at, then the rest, as they get through with it."""
        missing = self.verified.without(wanted)
        total, lacking = (sum(shard.bytes for shard in some) for some in (wanted, missing))
        meter = Meter(total, len(wanted), total - lacking, len(wanted) - len(missing))
        copied: list[copying.Copied] = []
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for wait in (False, True):
                work = {pool.submit(self.bring, shard, meter, wait): shard for shard in missing}
                _await(work, meter, report)
                copied += [result for future in work if (result := future.result())]
                missing = [shard for future, shard in work.items() if future.result() is None]
        if report:
            report(meter.progress())
        return copied

    def bring(self, shard: shards.File, meter: Meter, wait: bool) -> copying.Copied | None:
        """Bring one shard, or find that it is there; None, with nothing done, when another staging is at it."""
        with claimed(self.nvme, shard, wait) as file:
            if file is None:
                return None
            if self._is_there(shard):
                file.truncate(0)
                meter.add(shard.bytes, files=1)
                return copying.Copied()
            copied = copying.complete(shard, file, self.origins, meter)
            target = shards.shard_path(self.nvme, shard)
            target.parent.mkdir(exist_ok=True)
            partial_path(self.nvme, shard).replace(target)
            self.verified.note(shard)
            meter.add(0, files=1)
            return copied

    def _is_there(self, shard: shards.File) -> bool:
        """Whether the shard lies whole under its name: as was noted, or as its hash says now."""
        self.verified.refresh()
        if not self.verified.without([shard]):
            return True
        path = shards.shard_path(self.nvme, shard)
        try:
            whole = path.stat().st_size == shard.bytes and digest.of_file(path) == shard.blake3
        except FileNotFoundError:
            return False
        if whole:
            self.verified.note(shard)
        return whole


def _await(work: Iterable[_Work], meter: Meter, report: Report | None) -> None:
    """Wait for all, reporting meanwhile. The first failure stops the others and is raised."""
    waiting = set(work)
    try:
        while waiting:
            over, waiting = concurrent.futures.wait(waiting, REPORT_SECONDS, concurrent.futures.FIRST_EXCEPTION)
            for future in over:
                future.result()
            if report and waiting:
                report(meter.progress())
    except BaseException:
        meter.stopped = True
        for future in waiting:
            future.cancel()
        raise


@contextlib.contextmanager
def _leaving_room(nvme: Path) -> Iterator[None]:
    """When the NVMe cannot be written, remove what is partial: a full disk stops more than a staging."""
    try:
        yield
    except OSError:
        remove_partial(nvme, before=time.time())
        raise


def _origins(where: Origins) -> list[Origin]:
    several = [where] if isinstance(where, str | Path) else where
    return [origin(one) if isinstance(one, str | Path) else one for one in several]


def _manifest(sha256: str, origins: Sequence[Origin], nvme: Path) -> bytes:
    """The manifest's bytes, from the NVMe or the first origin that has it whole."""
    faults: list[str] = []
    name = f"snapshots/{digest.checked(sha256)}.json"
    for place in (Folder(nvme), *origins):
        try:
            with place.open(name) as stream:
                data = stream.read()
        except (Missing, Unreachable) as error:
            faults.append(str(error))
            continue
        if digest.sha256(data) == sha256:
            return data
        faults.append(f"{place}: {name}: damaged: its SHA-256 is {digest.sha256(data)}")
    raise ValueError(f"snapshot {sha256}: there is no such snapshot: {'; '.join(faults[1:])}")


def _leave_manifest(data: bytes, sha256: str, nvme: Path) -> snapshots.Snapshot:
    """Put the manifest on the NVMe, over a damaged one if need be."""
    snapshot = snapshots.parse(data, sha256, f"snapshot {sha256}")
    leave(shards.manifest_path(nvme, sha256), data, nvme)
    return snapshot


def _marker(nvme: Path, snapshot_sha256: str) -> Path:
    return nvme / "staged" / f"{digest.checked(snapshot_sha256)}.json"


def _marked(mine: Sequence[shards.File], part: Part) -> bytes:
    """What the marker says: in which boot all was found whole, and how much that was."""
    size = sum(shard.bytes for shard in mine)
    value = {"boot": boot(), "node": part.node, "nodes": part.nodes, "shards": len(mine), "bytes": size}
    return atomic.readable_json(value)


def main(arguments: list[str] | None = None) -> int:
    """Stage one snapshot and print what was done as one JSON line; 1 and a message when it cannot be."""
    options = _parser().parse_args(arguments)
    try:
        part = Part(options.node, tuple(options.nodes.split(","))) if options.nodes else WHOLE
        staged = stage(options.snapshot, options.origins, options.nvme, _on_stderr(), part)
    except (ValueError, OSError) as error:
        print(f"staging: {error}", file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(staged)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.staging", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("snapshot", metavar="SHA256", help="name of the snapshot: the SHA-256 of its manifest")
    parser.add_argument(
        "--from",
        dest="origins",
        metavar="ORIGIN",
        action="append",
        required=True,
        help="folder or URL to fetch from; given again: where to go on when one is away or damaged",
    )
    parser.add_argument("--to", dest="nvme", type=Path, required=True, help="folder on the node's NVMe")
    parser.add_argument("--node", default="", help="stage this node's part only")
    parser.add_argument("--nodes", help="names of all nodes that share the snapshot, with commas between")
    return parser


def _on_stderr() -> Report:
    """A line in place on a terminal, each second; elsewhere a line now and then."""
    terminal = sys.stderr.isatty()
    start, end = ("\r\x1b[K", "") if terminal else ("", "\n")

    def write(progress: Progress) -> None:
        through = terminal and progress.bytes == progress.total_bytes
        print(f"{start}staging: {progress}", end="\n" if through else end, file=sys.stderr, flush=True)

    return every(REPORT_SECONDS if terminal else LINE_SECONDS, write)


if __name__ == "__main__":
    sys.exit(main())
