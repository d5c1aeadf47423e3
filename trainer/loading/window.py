"""Window: a node copies the shards of the coming steps ahead of them, and evicts the shards of past steps.

The order of the data is known in advance, so a node needs room for the shards that its steps read now, not for the
snapshot. One rank of a node moves the window; every rank brings a missing shard itself when it needs it. Each step
reads the same samples as if all shards had been staged before.
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
"""The steps that the ranks of one node may read at a time: that of the slowest rank, and two by ranks ahead of it."""
LATER_SECONDS = 1.0
"""The pause before a shard is tried again that could not be brought."""
TELL_SECONDS = 30.0
FULL_SECONDS = 60.0
"""The longest wait of a rank, on a full disk, for the window to shrink."""


@dataclass(frozen=True)
class DataCourse:
    """The shards that the steps of a training read, in their order."""

    order: SampleOrder
    files: Sequence[shards.ShardFile]
    """Of the training split, by the numbers of `order`."""
    samples_a_step: int
    steps: int

    def at_once(self, step: int) -> set[int]:
        """The numbers of the shards that are read while a rank is at `step`."""
        first = step * self.samples_a_step
        end = min(step + STEPS_AT_ONCE, self.steps) * self.samples_a_step
        return {index for block in self.order.blocks(first, end) for index in block.shards}

    def most_at_once(self) -> int:
        """The largest number of bytes of the shards of `at_once`, at any step of any epoch."""
        sizes = sorted((shard.bytes for shard in self.files), reverse=True)
        return sum(sizes[: self.order.shards_at_most(STEPS_AT_ONCE * self.samples_a_step)])

    def end_of_block(self, step: int) -> int:
        """The first step that reads nothing of the block in which `step` begins."""
        first = step * self.samples_a_step
        block = next(self.order.blocks(first, first + 1))
        return -(-block.end // self.samples_a_step)

    def ahead(self, step: int, pinned_names: frozenset[str], room: int) -> list[shards.ShardFile]:
        """The shards of the steps from `step` on that fit into `room` bytes, which `pinned_names` do not count in."""
        shards_ahead = dict[str, shards.ShardFile]()
        taken = 0
        for block in self.order.blocks(step * self.samples_a_step, self.steps * self.samples_a_step):
            for shard in (self.files[index] for index in block.shards):
                if shard.blake3 in shards_ahead:
                    continue
                if shard.blake3 not in pinned_names:
                    taken += shard.bytes
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
        """`fixed_shards` stay for the whole training; `room`: bytes for the shards ahead. It brings nothing yet.

        `report` is called every `TELL_SECONDS` until the window is full for the first time, and at that moment.
        """
        # What the training reads, and where the shards come from and lie.
        self._course = course
        self._sources = sources
        self._nvme = nvme
        self._verified = Verified(nvme)
        self._lease: ShardLease | None = None

        # How large the window is.
        self._fixed_shards = fixed_shards
        self._fixed_names = frozenset(shard.blake3 for shard in fixed_shards)
        self._room = room
        self._least = min(room, course.most_at_once())
        """The bytes to which a full disk may shrink `_room`: the steps need them."""

        # The plan of the thread that moves the window.
        self._step = 0
        """The first step that some rank has not read yet."""
        self._until = 0
        """The step at which the window moves on."""
        self._replan = True
        self._ahead: list[shards.ShardFile] = []
        self._later: dict[str, float] = {}
        """By shard, the monotonic time before which it is not tried again."""
        self._wake = threading.Event()
        self._over = False

        # The shards of the window by name; threads that copy change them too.
        self._lock = threading.Lock()
        self._window_names: frozenset[str] = frozenset()
        self._missing: dict[str, shards.ShardFile] = {}
        self._present: set[str] = set()
        self._busy: set[str] = set()
        """The shards that are being copied."""

        # What has been reported.
        self._report = report
        self._was_full = False
        self._began = 0.0
        self._reported_at = 0.0

    def bring(self, shard: shards.ShardFile) -> None:
        """Wait until the shard is on the NVMe, verified. Raises NoOrigin, and OSError when the NVMe stays full."""
        self._verified.refresh()
        if self._verified.not_verified([shard]):
            patiently(lambda: self._bring_once(shard, everywhere=True), _Full, FULL_SECONDS)

    def hold(self, lease: Lease) -> None:
        """Hold all shards until the window starts, and release `lease`, which holds the whole snapshot.

        From now on, the node's server answers for each missing shard that it is about to come.
        """
        self._lease = ShardLease(self._nvme, {shard.blake3 for shard in (*self._course.files, *self._fixed_shards)})
        lease.release()

    def start(self, step: int) -> threading.Thread:
        """Start the thread that moves the window with the steps, from `step` on. Call `hold` before it."""
        self._step = step
        self._began = time.monotonic()
        self._reported_at = self._began
        self._plan()
        self._wake.set()
        thread = threading.Thread(target=self._run, name="window", daemon=True)
        thread.start()
        return thread

    def move(self, step: int) -> None:
        """Move the window to `step`: every rank has read the samples of the steps before it."""
        self._step = step
        if step >= self._until:
            self._wake.set()

    def follow(self, course: DataCourse) -> None:
        """Go on with another number of steps."""
        self._course = course
        self._replan = True
        self._wake.set()

    def release(self) -> None:
        """End the thread, and release the shards."""
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
        """Choose the shards to hold from now on, and evict those of the snapshot that no lease holds."""
        self._until = self._course.end_of_block(self._step)
        self._replan = False
        assert self._lease is not None
        ahead = self._course.ahead(self._step, self._fixed_names, self._room)
        names = self._fixed_names.union(shard.blake3 for shard in ahead)
        self._lease.hold(names)
        with self._lock:
            self._window_names = names
            self._present &= names
            self._missing = {
                shard.blake3: shard for shard in (*ahead, *self._fixed_shards) if shard.blake3 not in self._present
            }
        self._ahead = ahead
        self._later = {name: at for name, at in self._later.items() if name in names}
        retention.evict(self._nvme, {shard.blake3 for shard in self._course.files} - names)

    def _begin_copies(self) -> None:
        """Begin to copy missing shards, each in a thread of its own: first those that the next steps read.

        Of these, the shards that this node keeps come first: other nodes may wait for them, and in this order no two
        nodes wait for each other.
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
        self._reported_at = now
        self._was_full = not self._missing
        sizes = {shard.blake3: shard.bytes for shard in (*self._ahead, *self._fixed_shards)}
        missing = dict(self._missing)
        total = sum(sizes.values())
        present_bytes = sum(sizes.values()) - sum(shard.bytes for shard in missing.values())
        rate = present_bytes / (now - self._began) if now > self._began else 0.0
        self._report(CopyProgress(present_bytes, total, len(sizes) - len(missing), len(sizes), rate))

    def _copy(self, shard: shards.ShardFile, urgent: bool) -> None:
        """Bring one shard, in a thread of its own. If it fails, the step that needs the shard tries again."""
        try:
            self._bring_once(shard, everywhere=urgent)
            with self._lock:
                if shard.blake3 in self._window_names:
                    self._present.add(shard.blake3)
                    self._missing.pop(shard.blake3, None)
                else:  # the window has moved past the shard meanwhile: the next plan evicts it
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
        """Make the window smaller: the disk has less room than at the start."""
        self._room = max(self._least, self._room * 3 // 4)
        self._replan = True


class _Full(OSError):
    """The NVMe is full, and leases hold all shards on it."""


def _is_early(error: Exception) -> bool:
    """Whether the keeper of a shard merely does not have it yet."""
    return isinstance(error, NoOrigin) and all(fault.kind is FaultKind.MISSING for fault in error.faults)


def _say(what: str) -> None:
    console.warn(f"trainer: {what}")
