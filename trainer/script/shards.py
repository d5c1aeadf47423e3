"""Script shards: the shards of a script's rank, staged before it starts or brought while it reads.

The whole snapshot is staged if the node has room for it. Otherwise, or if the recipe requests it, there is a window:
the shard that a rank reads, and the next one while there is room. Only the script knows the order.
"""

import contextlib
import functools
from collections.abc import Generator, Iterable
from pathlib import Path

from slipway.trainer.base import paths
from slipway.trainer.base.background import BackgroundCall
from slipway.trainer.config.operation import Placement
from slipway.trainer.data import shards
from slipway.trainer.data.shards import ShardFile
from slipway.trainer.loading.needs import need_of_script
from slipway.trainer.loading.sources import origins
from slipway.trainer.staging import holding, leases, retention, stage
from slipway.trainer.staging.leases import ShardLease


class ScriptShards:
    """The shards of one rank."""

    def __init__(self, placement: Placement, snapshot: str, node: str, ranks_per_node: int) -> None:
        """Bring the manifest, and all shards if the node holds the whole snapshot.

        Raises ValueError, with the sizes, for a snapshot that the node cannot hold, and the errors of staging.
        """
        self.nvme = Path(placement.nvme.format(node=node))
        self._origins = origins(placement, node)
        self._lease = leases.hold(self.nvme, snapshot)
        self.snapshot = stage.bring_manifest(snapshot, self._origins, self.nvme)
        room = self._room(placement)
        need = need_of_script(self.snapshot, ranks_per_node)
        self.holding = holding.choose(placement.staging, need, {node: room})
        self._two = room >= 2 * need.window
        if self.is_whole:
            stage.stage(snapshot, self._origins, self.nvme)
        else:
            self._lease.release()

    @property
    def is_whole(self) -> bool:
        """Whether all shards are on the node's NVMe."""
        return self.holding.kind != "window"

    def files(self, split: str) -> list[Path]:
        """The files of a split's shards. Raises ValueError if the node holds a window."""
        if not self.is_whole:
            raise ValueError(
                f"shards({split!r}): found a window, as {self.holding.why}; expected moving({split!r}, order), which "
                "brings each shard before it is read, or placement.staging: whole with room for all"
            )
        return [shards.shard_path(self.nvme, shard) for shard in self.snapshot.splits[split].shards]

    def moving(self, split: str, order: Iterable[int]) -> Generator[Path]:
        """The file of each shard in `order`, by its number in the split; it stays until the next one is requested.

        Raises the errors of staging for a shard that no origin has whole.
        """
        files = self.snapshot.splits[split].shards
        if self.is_whole:
            yield from (shards.shard_path(self.nvme, files[number]) for number in order)
            return
        numbers = iter(order)
        lease = ShardLease(self.nvme, [])
        try:
            current = next(numbers, None)
            while current is not None:
                after = next(numbers, None)
                ahead = files[after] if after is not None and self._two else None
                lease.hold(shard.blake3 for shard in (files[current], ahead) if shard is not None)
                self._bring(files[current])
                coming = BackgroundCall(functools.partial(self._bring, ahead), "staging") if ahead is not None else None
                yield shards.shard_path(self.nvme, files[current])
                if coming is not None:
                    with contextlib.suppress(Exception):  # it is brought when it is read, and fails then
                        coming.result()
                if after != current:
                    lease.hold([files[after].blake3] if after is not None else [])
                    retention.evict(self.nvme, {files[current].blake3})
                current = after
        finally:
            lease.release()

    def _bring(self, shard: ShardFile) -> None:
        stage.bring(shard, self._origins, self.nvme)

    def _room(self, placement: Placement) -> int:
        """The bytes for the shards on the NVMe, including shards that other ranks are bringing now."""
        own = {shard.blake3 for shard in self.snapshot.shards()}
        growing = sum(_size(paths.partial(self.nvme, f"{name}{paths.SUFFIXES[paths.SHARDS]}")) for name in own)
        free = holding.SHARE * (retention.room(self.nvme, own) + growing)
        return int(free if placement.nvme_gigabytes is None else min(free, placement.nvme_gigabytes * 1e9))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
