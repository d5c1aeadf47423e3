"""Staging: a verified copy of a dataset snapshot, or of a node's part of it, on the node's own NVMe.

Shards come from the first origin that has them whole, several at a time. They are hashed while they are copied, and
appear under their names by a rename: a shard on the NVMe is whole or absent. A second staging reads no shard.
By hand: `slipway data stage`.
"""

import concurrent.futures
import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec, paths, verify
from slipway.trainer.base.progress import Meter, OnProgress
from slipway.trainer.data import shards, snapshots
from slipway.trainer.objects.origin import Missing, Origin, Unreachable, small
from slipway.trainer.objects.origins import Folder, origin
from slipway.trainer.record.causes import LackingTier
from slipway.trainer.staging import copying, holding, leases, retention
from slipway.trainer.staging.nvme import Verified, boot, claimed, partial_path, put, remove_partial
from slipway.trainer.staging.parts import WHOLE_SNAPSHOT, SnapshotPart

WORKERS = max(4, min(16, os.cpu_count() or 1))
"""Shards copied at a time. Two threads fill a small machine's memory bus; a file server is faster with more."""
REPORT_SECONDS = 1.0
_Work = concurrent.futures.Future[copying.Copied | None]
Origins = Sequence[Origin | str | Path] | str | Path
"""Where to fetch from, in order; a path or URL stands for its origin, and a single path or URL for a list of one."""


@dataclass(frozen=True)
class Staged:
    """The result of a staging; `copied_*` counts the shards that this staging itself has copied from an origin."""

    shards: int
    bytes: int
    copied_shards: int
    copied_bytes: int
    seconds: float
    faults: tuple[str, ...] = ()
    """The faults of origins, while another origin had the whole shard."""


@dataclass(frozen=True)
class Marker:
    """The file that a staging leaves on the NVMe: in which boot of the machine a part was whole, and its size."""

    boot: str
    node: str
    nodes: tuple[str, ...]
    shards: int
    bytes: int


def stage(
    snapshot_sha256: str,
    origins: Origins,
    nvme: Path,
    report: OnProgress | None = None,
    part: SnapshotPart = WHOLE_SNAPSHOT,
    workers: int | None = None,
) -> Staged:
    """Bring the snapshot's manifest and the part's shards to `nvme`, whole, and leave a marker.

    Any number of stagings may run on a node at once, of the same snapshot or of others: one of them brings each shard.
    A staging holds a lease while it runs; a process that reads the snapshot afterwards must take its own lease before
    the staging. Raises ValueError if no origin has the whole manifest or a shard, and OSError if the NVMe cannot be
    written, for example because it is full of shards with leases. Whole shards stay then. A partial copy never has a
    shard's name: the next staging continues it; if the NVMe cannot be written, it is removed.
    """
    began = time.monotonic()
    sources = origins_of(origins)
    manifest = _manifest(snapshot_sha256, sources, nvme)
    with leases.hold(nvme, snapshot_sha256), _leaving_room(nvme):
        snapshot = _leave_manifest(manifest, snapshot_sha256, nvme)
        own_shards = part.of(snapshot.shards())
        bringer = Bringer(sources, nvme, Verified(nvme))
        copied = bringer.bring_all(own_shards, workers or WORKERS, report)
        marker = Marker(boot(), part.node, part.nodes, len(own_shards), sum(shard.bytes for shard in own_shards))
        _put(paths.marker(nvme, snapshot_sha256), codec.encode(marker), nvme)
    return Staged(
        shards=len(own_shards),
        bytes=sum(shard.bytes for shard in own_shards),
        copied_shards=sum(one.bytes > 0 for one in copied),
        copied_bytes=sum(one.bytes for one in copied),
        seconds=time.monotonic() - began,
        faults=tuple(str(fault) for one in copied for fault in one.faults),
    )


def is_staged(snapshot_sha256: str, nvme: Path, part: SnapshotPart = WHOLE_SNAPSHOT) -> bool:
    """Whether a staging in this boot left the part on `nvme`, and its files did not change since."""
    try:
        marker = codec.read(paths.marker(nvme, snapshot_sha256), Marker)
        snapshot = snapshots.read(nvme, snapshot_sha256)
    except (FileNotFoundError, ValueError):
        return False
    return marker.boot == boot() and not Verified(nvme).not_verified(part.of(snapshot.shards()))


def too_large(snapshot_sha256: str, origins: Origins, nvme: Path) -> str:
    """Why the whole snapshot does not fit on `nvme`, with the sizes; empty when it does. Raises as `stage`."""
    with leases.hold(nvme, snapshot_sha256):
        every = bring_manifest(snapshot_sha256, origins, nvme).shards()
        total = sum(shard.bytes for shard in every)
        room = retention.room(nvme, {shard.blake3 for shard in every})
    fits = total <= room * holding.SHARE
    return "" if fits else f"the snapshot has {holding.size(total)}, and there is room for {holding.size(room)}"


def bring_manifest(snapshot_sha256: str, origins: Origins, nvme: Path) -> snapshots.Snapshot:
    """Bring the snapshot's manifest to `nvme`: the first step of a reader that brings shards one by one.

    Raises ValueError as `stage` does. The caller holds a lease on the snapshot, or retention may remove the manifest.
    """
    return _leave_manifest(_manifest(snapshot_sha256, origins_of(origins), nvme), snapshot_sha256, nvme)


def bring(shard: shards.ShardFile, origins: Origins, nvme: Path) -> None:
    """Bring one shard to `nvme`, whole and verified; returns at once when it is there already.

    Waits when another staging brings it. Raises as `stage` does. The caller holds a lease on a snapshot that names the
    shard and whose manifest is on `nvme`, or retention may remove the shard.
    """
    verified = Verified(nvme)
    if verified.not_verified([shard]):
        Bringer(origins_of(origins), nvme, verified).bring(shard, Meter(shard.bytes, 1), wait=True)


@dataclass(frozen=True)
class Bringer:
    """Brings shards from these origins to this NVMe. The caller has a lease that keeps them there."""

    origins: Sequence[Origin]
    nvme: Path
    verified: Verified

    def bring_all(
        self, shard_files: Sequence[shards.ShardFile], workers: int, report: OnProgress | None
    ) -> list[copying.Copied]:
        """Bring the missing shards: first those without another staging's claim, then the others, as they are done."""
        missing = self.verified.not_verified(shard_files)
        total, missing_bytes = (sum(shard.bytes for shard in some) for some in (shard_files, missing))
        meter = Meter(total, len(shard_files), total - missing_bytes, len(shard_files) - len(missing))
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

    def bring(self, shard: shards.ShardFile, meter: Meter, wait: bool) -> copying.Copied | None:
        """Bring one shard, or find it there; returns None at once if another staging works on it.

        On a full disk, it removes files without a lease at once. Raises as `copying.complete`.
        """
        return retention.in_room(self.nvme, shard.bytes, lambda: self._bring(shard, meter, wait))

    def _bring(self, shard: shards.ShardFile, meter: Meter, wait: bool) -> copying.Copied | None:
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
            partial_path(self.nvme, shard).replace(target)  # not synced: see `slipway.trainer.staging.nvme`
            self.verified.note(shard)
            meter.add(0, files=1)
            return copied

    def _is_there(self, shard: shards.ShardFile) -> bool:
        """Whether the shard lies whole under its name: by a note of this boot, or else by its hash."""
        self.verified.refresh()
        if not self.verified.not_verified([shard]):
            return True
        is_whole = verify.is_whole(shards.shard_path(self.nvme, shard), shard)
        if is_whole:
            self.verified.note(shard)
        return is_whole


def _await(work: Iterable[_Work], meter: Meter, report: OnProgress | None) -> None:
    """Wait for all the work, and report meanwhile. The first failure stops the rest and is raised."""
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
    """When the NVMe cannot be written, remove the partial copies: a full disk stops more than a staging."""
    try:
        yield
    except OSError:
        remove_partial(nvme, before=time.time())
        raise


def origins_of(where: Origins) -> list[Origin]:
    """The origins that paths and URLs name. Raises ValueError for an unknown scheme."""
    several = [where] if isinstance(where, str | Path) else where
    return [origin(one) if isinstance(one, str | Path) else one for one in several]


def _manifest(sha256: str, origins: Sequence[Origin], nvme: Path) -> bytes:
    """The bytes of the manifest, from the NVMe or from the first origin that has it whole."""
    faults: list[str] = []
    name = paths.named(paths.SNAPSHOTS, sha256)
    for tier in (Folder(nvme), *origins):
        try:
            with tier.open(name) as stream:
                data = small(stream, f"{tier}: {name}")
            verify.check_sha256(data, sha256, f"{tier}: {name}")
        except (Missing, Unreachable, verify.Mismatch) as error:
            faults.append(str(error))
        else:
            return data
    raise LackingTier(f"snapshot {sha256}: there is no such snapshot: {'; '.join(faults[1:])}")


def _leave_manifest(data: bytes, sha256: str, nvme: Path) -> snapshots.Snapshot:
    """Put the manifest on the NVMe, in place of a damaged one."""
    snapshot = snapshots.parse(data, sha256, f"snapshot {sha256}")
    _put(shards.manifest_path(nvme, sha256), data, nvme)
    return snapshot


def _put(path: Path, data: bytes, nvme: Path) -> None:
    retention.in_room(nvme, len(data), lambda: put(path, data, nvme))
