"""Streaming start: training begins while its shards are still on their way to the node.

A shard that is about to be read is brought first, verified; a thread beside it brings the others in the order
in which the training will need them. What is read, and when, is the same as if all had been staged before.
"""

import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainer import shards, snapshots, staging
from trainer.origins import Origin


class Streaming:
    """One process's way to the shards of a snapshot; several may share the folder `nvme`.

    The caller holds a lease on the snapshot, whose manifest is on `nvme`.
    """

    def __init__(self, snapshot: snapshots.Snapshot, origins: Sequence[Origin], nvme: Path) -> None:
        self._snapshot, self._origins, self._nvme = snapshot, origins, nvme
        self._here: set[str] = set()

    def bring(self, shard: shards.File) -> None:
        """Have the shard on the NVMe, verified. Blocks; raises what `staging.bring` does when no origin has it."""
        if shard.blake3 not in self._here:
            staging.bring(shard, self._origins, self._nvme)
            self._here.add(shard.blake3)

    def stage(self, first: Iterable[shards.File]) -> threading.Thread:
        """Bring the shards in `first`, in this order, and then all others, in a thread that dies with the process.

        What cannot be brought is said on stderr and left to the read that needs it, which fails with the reason.
        """
        wanted = list(dict.fromkeys([*first, *self._snapshot.shards()]))
        thread = threading.Thread(target=self._bring_all, args=(wanted,), name="staging", daemon=True)
        thread.start()
        return thread

    def _bring_all(self, wanted: list[shards.File]) -> None:
        for shard in wanted:
            try:
                self.bring(shard)
            except (ValueError, OSError) as error:
                print(f"trainer: not staged for now: {error}", file=sys.stderr, flush=True)
        if len(self._here) == len(wanted):
            # Copies nothing any more; leaves the marker, so that the next start finds the snapshot staged.
            staging.stage(self._snapshot.sha256, self._origins, self._nvme)
