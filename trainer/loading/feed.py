"""The feed: one rank's data from a snapshot on its node's NVMe, staged before the training or during it."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from trainer.config.resolved import Config
from trainer.data import contents, images, snapshots
from trainer.data.pictures import Pictures
from trainer.data.sequences import Sequences
from trainer.data.snapshots import Snapshot
from trainer.loading.batches import Batches
from trainer.loading.order import Order, rank_slice
from trainer.loading.streaming import Streaming
from trainer.models.model import Rows, SampleNumbers
from trainer.node.world import World
from trainer.objects.origins import origin
from trainer.staging import leases, stage


class Feed:
    """The data of one training, and this rank's share of it."""

    def __init__(self, config: Config, world: World) -> None:
        """Open the snapshot, which is staged first with `placement.staging: before`.

        Raises ValueError for a configuration that does not fit the data, and what staging raises.
        """
        batch, on_gpu = config.batch, world.device.type == "cuda"
        self._lease = leases.hold(_nvme(config), config.snapshot)
        self.snapshot, self._streaming = _staged(config, world)
        self.data = contents.data(self.snapshot, config.model, batch.length, config.run.seed)
        self._training, self.held_out = (self._split(config, split) for split in ("train", "validation"))
        self.order = Order(self._training.sizes, config.run.seed, config.run.shuffle_shards)
        mine = self._mine = rank_slice(batch.sequences, world.data_rank, world.data_size)
        self._batches: Batches[Any] = Batches(
            self._training, self.order, batch.sequences, mine, config.run.steps, pinned=on_gpu
        )
        self._samples_a_step, self._leads_node = batch.sequences, world.local_rank == 0

    def rows(self, step: int) -> tuple[Rows, SampleNumbers]:
        """This rank's samples of `step`, valid until the next call, and their positions in the training's sequence."""
        places = step * self._samples_a_step + np.arange(self._mine.start, self._mine.stop)
        return self._batches.windows(step), places.astype(np.uint64)

    def _split(self, config: Config, split: str) -> Sequences | Pictures:
        bring = self._streaming.bring if self._streaming else None
        if isinstance(self.snapshot, images.ImageSnapshot):
            return Pictures(_nvme(config), self.snapshot, split, bring)
        return Sequences(_nvme(config), self.snapshot, split, config.batch.length, bring)

    def stage_rest(self, step: int) -> None:
        """With a streaming start: begin to stage the missing shards in the order in which the steps need them.

        One rank of a node does it for all ranks there; a rank that needs a shard earlier copies it itself.
        """
        if self._streaming and self._leads_node:
            places = self.order.shards(step * self._samples_a_step)
            self._streaming.stage([self._training.shards[place] for place in places])


def _staged(config: Config, world: World) -> tuple[Snapshot, Streaming | None]:
    """The snapshot, and a `Streaming` for its shards unless they are all staged."""
    origins, nvme = [origin(config.placement.durable)], _nvme(config)
    streams = config.placement.staging == "streaming" and not stage.is_staged(config.snapshot, nvme)
    if not streams and world.local_rank == 0:
        stage.stage(config.snapshot, origins, nvme)
    # All ranks wait here, also with a streaming start: they looked at different moments and may disagree.
    world.gather(None)
    if streams:
        stage.bring_manifest(config.snapshot, origins, nvme)
    snapshot = snapshots.read(nvme, config.snapshot)
    return snapshot, Streaming(snapshot, origins, nvme) if streams else None


def _nvme(config: Config) -> Path:
    return Path(config.placement.nvme.format(node=os.environ.get("SLIPWAY_NODE", "local")))
