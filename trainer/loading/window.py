"""Window: the shards that the coming steps read are brought to the node ahead of them, and leave it behind them.

The order of the data is known in advance, so a node needs room for what its steps read now, not for the snapshot. One
rank of a node moves its window; every rank brings a shard itself that it needs and that is not there. Each step reads
the same samples as if all shards had been staged before.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import console
from slipway.trainer.base.patience import patiently
from slipway.trainer.base.progress import CopyProgress, Meter, OnProgress
from slipway.trainer.data import shards
from slipway.trainer.loading.order import SampleOrder
from slipway.trainer.loading.sources import Sources
from slipway.trainer.staging import retention
from slipway.trainer.staging.copying import FaultKind, NoOrigin
from slipway.trainer.staging.leases import Lease, ShardLease
from slipway.trainer.staging.nvme import Verified
from slipway.trainer.staging.retention import FULL
from slipway.trainer.staging.stage import WORKERS, Bringer

STEPS_AT_ONCE = 3
"""The steps that ranks of one node may read at a time: the slowest rank's, and two that another reads ahead."""
LATER_SECONDS = 1.0
"""After this a shard is tried again whose keeper did not have it yet."""
TELL_SECONDS = 30.0
FULL_SECONDS = 60.0
"""How long a rank waits, on a full disk, for the window to shrink."""


@dataclass(frozen=True)
class DataCourse:
    """Which shards the steps of a training read, in their order."""

    order: SampleOrder
    files: Sequence[shards.ShardFile]
    """Of the training split, by the numbers of `order`."""
    samples_a_step: int
    steps: int

    def at_once(self, step: int) -> set[int]:
        """The numbers of the shards that are read while a rank is at `step`."""
        first, end = step * self.samples_a_step, min(step + STEPS_AT_ONCE, self.steps) * self.samples_a_step
        return {index for block in self.order.blocks(first, end) for index in block.shards}

    def most_at_once(self) -> int:
        """The most bytes that `at_once` may name, at any step of any epoch."""
        sizes = sorted((shard.bytes for shard in self.files), reverse=True)
        return sum(sizes[: self.order.shards_at_most(STEPS_AT_ONCE * self.samples_a_step)])

    def end_of_block(self, step: int) -> int:
        """The first step that reads nothing of the block in which `step` begins."""
        first = step * self.samples_a_step
        block = next(self.order.blocks(first, first + 1))
        return -(-block.end // self.samples_a_step)

    def ahead(self, step: int, pinned_names: frozenset[str], room: int) -> list[shards.ShardFile]:
        """The shards that the steps from `step` on read, as many as fit into `room` besides `pinned_names`."""
        shards_ahead, taken = dict[str, shards.ShardFile](), 0
        for block in self.order.blocks(step * self.samples_a_step, self.steps * self.samples_a_step):
            for shard in (self.files[index] for index in block.shards):
                if shard.blake3 in shards_ahead:
                    continue
                taken += 0 if shard.blake3 in pinned_names else shard.bytes
                if taken > room:
                    return list(shards_ahead.values())
                shards_ahead[shard.blake3] = shard
            if len(shards_ahead) == len(self.files):
                break
        return list(shards_ahead.values())


class ShardWindow:
    """The window of one process. The windows of the node's other ranks, on the same NVMe, do not move."""

    def __init__(
        self,
        course: DataCourse,
        fixed_shards: Sequence[shards.ShardFile],
        room: int,
        sources: Sources,
        nvme: Path,
        report: OnProgress = lambda _: None,
    ) -> None:
        """`fixed_shards` stays for the whole training; `room` is for the shards ahead, in bytes. It brings nothing yet.

        `report` is called every `TELL_SECONDS` until the window is full for the first time, and then.
        """
        self._course, self._room, self._sources, self._nvme = course, room, sources, nvme
        self._fixed_shards, self._fixed_names = fixed_shards, frozenset(shard.blake3 for shard in fixed_shards)
        self._least = min(room, course.most_at_once())
        self._verified = Verified(nvme)
        self._step, self._until, self._replan = 0, 0, True
        self._ahead, self._missing = list[shards.ShardFile](), dict[str, shards.ShardFile]()
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._window_names, self._over = frozenset[str](), False
        self._busy, self._present, self._later = set[str](), set[str](), dict[str, float]()
        self._lease: ShardLease | None = None
        self._report, self._was_full, self._began, self._reported_at = report, False, 0.0, 0.0

    def bring(self, shard: shards.ShardFile) -> None:
        """Wait until the shard is on the NVMe, verified. Raises NoOrigin, and OSError when the NVMe stays full."""
        self._verified.refresh()
        if self._verified.not_verified([shard]):
            patiently(lambda: self._bring_once(shard, everywhere=True), _Full, FULL_SECONDS)

    def hold(self, lease: Lease) -> None:
        """Hold all shards until the window starts, in place of `lease`, that of the whole snapshot.

        From now on, the node's server says of each shard that it is about to come.
        """
        self._lease = ShardLease(self._nvme, {shard.blake3 for shard in (*self._course.files, *self._fixed_shards)})
        lease.release()

    def start(self, step: int) -> threading.Thread:
        """Begin to move with the steps, from `step` on, in a thread that ends with the process; after `hold`."""
        self._step, self._began = step, time.monotonic()
        self._reported_at = self._began
        self._plan()
        self._wake.set()
        thread = threading.Thread(target=self._run, name="window", daemon=True)
        thread.start()
        return thread

    def move(self, step: int) -> None:
        """Say that every rank has read all that the steps before `step` read."""
        self._step = step
        if step >= self._until:
            self._wake.set()

    def follow(self, course: DataCourse) -> None:
        """Go on with another number of steps."""
        self._course, self._replan = course, True
        self._wake.set()

    def release(self) -> None:
        """Hold nothing any more."""
        if self._began and not self._was_full:
            self._reported_at = 0.0
            self._tell()
        self._over = True
        self._wake.set()
        if self._lease is not None:
            self._lease.release()

    def _run(self) -> None:
        while not self._over:
            self._wake.wait(LATER_SECONDS if self._later or self._replan else None)
            self._wake.clear()
            try:
                if self._replan or self._step >= self._until:
                    self._plan()
                self._begin_copies()
                self._tell()
            except (OSError, ValueError) as error:  # ValueError: the lease was released meanwhile
                self._replan = True
                if not self._over:
                    _say(f"the window did not move, and tries again: {error}")

    def _plan(self) -> None:
        """Decide what is held from now on, and evict the rest of the snapshot, as far as no other lease holds it."""
        self._until, self._replan = self._course.end_of_block(self._step), False
        assert self._lease is not None
        ahead = self._course.ahead(self._step, self._fixed_names, self._room)
        names = self._fixed_names.union(shard.blake3 for shard in ahead)
        self._lease.hold(names)
        with self._lock:
            self._window_names = names
            self._present &= names
            self._missing = {
                one.blake3: one for one in (*ahead, *self._fixed_shards) if one.blake3 not in self._present
            }
        self._ahead, self._later = ahead, {name: at for name, at in self._later.items() if name in names}
        retention.evict(self._nvme, {shard.blake3 for shard in self._course.files} - names)

    def _begin_copies(self) -> None:
        """Begin to copy what is missing: first what the steps read next, each shard in a thread of its own.

        Of that, first what other nodes may wait for: only so can no two nodes wait for each other.
        """
        now = time.monotonic()
        urgent = [self._course.files[index] for index in self._course.at_once(self._step)]
        names = {shard.blake3 for shard in urgent}
        first = sorted(urgent, key=lambda shard: not self._sources.is_own(shard))
        for shard in (*first, *list(self._missing.values())):
            if len(self._busy) >= WORKERS:
                return
            name = shard.blake3
            if name in self._missing and name not in self._busy and self._later.get(name, 0.0) <= now:
                self._busy.add(name)
                arguments = (shard, name in names)
                threading.Thread(target=self._copy, args=arguments, name="staging", daemon=True).start()

    def _tell(self) -> None:
        """Report how far the window is from being full for the first time."""
        now = time.monotonic()
        if self._was_full or (self._missing and now < self._reported_at + TELL_SECONDS):
            return
        self._reported_at, self._was_full = now, not self._missing
        sizes = {shard.blake3: shard.bytes for shard in (*self._ahead, *self._fixed_shards)}
        missing = dict(self._missing)
        total, present_bytes = sum(sizes.values()), sum(sizes.values()) - sum(shard.bytes for shard in missing.values())
        rate = present_bytes / (now - self._began) if now > self._began else 0.0
        self._report(CopyProgress(present_bytes, total, len(sizes) - len(missing), len(sizes), rate))

    def _copy(self, shard: shards.ShardFile, urgent: bool) -> None:
        """Bring one shard, in a thread of its own. A step that needs what could not be brought tries again."""
        try:
            self._bring_once(shard, everywhere=urgent)
            with self._lock:
                if shard.blake3 in self._window_names:
                    self._present.add(shard.blake3)
                    self._missing.pop(shard.blake3, None)
                else:  # the window has left it behind meanwhile: the next plan evicts it
                    self._replan = True
        except _Full:
            self._shrink()
            self._later[shard.blake3] = time.monotonic() + LATER_SECONDS
        except (ValueError, OSError) as error:
            if not _is_early(error):
                _say(f"a shard is not staged yet; the step that needs it tries again: {error}")
            self._later[shard.blake3] = time.monotonic() + LATER_SECONDS
        finally:
            self._busy.discard(shard.blake3)
            self._wake.set()

    def _bring_once(self, shard: shards.ShardFile, everywhere: bool) -> None:
        """Bring a shard from its keeper, or from everywhere. Raises _Full, and as `Bringer.bring`."""
        bringer = Bringer(self._sources.of(shard, everywhere), self._nvme, self._verified)
        try:
            copied = bringer.bring(shard, Meter(shard.bytes, 1), wait=True)
            self._sources.learn(copied.faults if copied else ())
        except NoOrigin as error:
            self._sources.learn(error.faults)
            raise
        except OSError as error:
            if error.errno in FULL:
                raise _Full(*error.args[:2], error.filename) from None
            raise

    def _shrink(self) -> None:
        """Let go of the shards that are needed last: the disk has less room than there was at the start."""
        self._room, self._replan = max(self._least, self._room * 3 // 4), True


class _Full(OSError):
    """The NVMe is full, and leases hold all that is on it."""


def _is_early(error: Exception) -> bool:
    """Whether the keeper of a shard merely does not have it yet."""
    return isinstance(error, NoOrigin) and all(fault.kind is FaultKind.MISSING for fault in error.faults)


def _say(what: str) -> None:
    console.warn(f"trainer: {what}")
