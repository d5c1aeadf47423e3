"""Streaming start: a training begins while its shards are still being copied to the node.

A shard that is about to be read is copied and verified first; a thread copies the others meanwhile, in the order in
which the training will need them. Each step reads the same samples as if all shards had been staged before.
"""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from slipway.trainer.base import console
from slipway.trainer.data import shards, snapshots
from slipway.trainer.objects.origin import Origin
from slipway.trainer.staging import stage as staging


class Streaming:
    """Copies the shards of a snapshot for one process; several processes may use the same folder `nvme`.

    The caller holds a lease on the snapshot, whose manifest is on `nvme`.
    """

    def __init__(self, snapshot: snapshots.Snapshot, origins: Sequence[Origin], nvme: Path) -> None:
        self._snapshot = snapshot
        self._origins = origins
        self._nvme = nvme
        self._present: set[str] = set()

    def bring(self, shard: shards.ShardFile) -> None:
        """Wait until the shard is on the NVMe, verified. Raises as `staging.bring` when no origin has it."""
        if shard.blake3 not in self._present:
            staging.bring(shard, self._origins, self._nvme)
            self._present.add(shard.blake3)

    def stage(self, first: Iterable[shards.ShardFile]) -> threading.Thread:
        """Copy the shards in `first`, in this order, and then all others, in a thread that ends with the process.

        A shard that cannot be copied is reported on stderr; the step that needs it tries again, and fails with the
        reason.
        """
        shards_to_stage = list(dict.fromkeys([*first, *self._snapshot.shards()]))
        thread = threading.Thread(target=self._bring_all, args=(shards_to_stage,), name="staging", daemon=True)
        thread.start()
        return thread

    def _bring_all(self, shards_to_stage: list[shards.ShardFile]) -> None:
        for shard in shards_to_stage:
            try:
                self.bring(shard)
            except (ValueError, OSError) as error:
                console.warn(f"trainer: a shard is not staged yet; the step that needs it tries again: {error}")
        if len(self._present) == len(shards_to_stage):
            # This copies nothing; it writes the marker that tells the next start that the snapshot is staged.
            staging.stage(self._snapshot.sha256, self._origins, self._nvme)
