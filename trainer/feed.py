"""The feed: what one rank reads of a snapshot, on its node's NVMe, staged before it trains or while it does."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from trainer import contents, images, leases, snapshots, staging
from trainer.batches import Batches
from trainer.config import Config
from trainer.data import Sequences
from trainer.models.model import Places, Rows
from trainer.order import Order, share
from trainer.origins import origin
from trainer.pictures import Pictures
from trainer.snapshots import Snapshot
from trainer.streaming import Streaming
from trainer.world import World


class Feed:
    """The data of one training and this rank's share of it."""

    def __init__(self, config: Config, world: World) -> None:
        """Open the snapshot, staged first unless `placement.staging` says otherwise.

        Raises ValueError for a configuration that does not fit the data, and what staging raises.
        """
        batch, on_gpu = config.batch, world.device.type == "cuda"
        self._lease = leases.hold(_nvme(config), config.snapshot)
        self.snapshot, self._streaming = _placed(config, world)
        self.data = contents.data(self.snapshot, config.model, batch.length, config.run.seed)
        self._training, self.held_out = (self._split(config, split) for split in ("train", "validation"))
        self.order = Order(self._training.sizes, config.run.seed, config.run.shuffle_shards)
        mine = self._mine = share(batch.sequences, world.data_rank, world.data_size)
        self._batches: Batches[Any] = Batches(
            self._training, self.order, batch.sequences, mine, config.run.steps, pinned=on_gpu
        )
        self._samples_a_step, self._leads_node = batch.sequences, world.local_rank == 0

    def rows(self, step: int) -> tuple[Rows, Places]:
        """This rank's samples of `step` and their places in the training's sequence; good until the next call."""
        places = step * self._samples_a_step + np.arange(self._mine.start, self._mine.stop)
        return self._batches.windows(step), places.astype(np.uint64)

    def _split(self, config: Config, split: str) -> Sequences | Pictures:
        bring = self._streaming.bring if self._streaming else None
        if isinstance(self.snapshot, images.Snapshot):
            return Pictures(_nvme(config), self.snapshot, split, bring)
        return Sequences(_nvme(config), self.snapshot, split, config.batch.length, bring)

    def stage_rest(self, step: int) -> None:
        """With a streaming start: begin to stage what is not here yet, in the order of its need from `step` on.

        One rank of a node does it for all; the others find what they need in place, or bring it themselves.
        """
        if self._streaming and self._leads_node:
            places = self.order.shards(step * self._samples_a_step)
            self._streaming.stage([self._training.shards[place] for place in places])


def _placed(config: Config, world: World) -> tuple[Snapshot, Streaming | None]:
    """The snapshot; and how its shards come here, unless they are all in place."""
    origins, nvme = [origin(config.placement.durable)], _nvme(config)
    streams = config.placement.staging == "streaming" and not staging.is_staged(config.snapshot, nvme)
    if not streams and world.local_rank == 0:
        staging.stage(config.snapshot, origins, nvme)
    # Also with a streaming start: ranks that looked at different moments may have found different things.
    world.gather(None)
    if streams:
        staging.bring_manifest(config.snapshot, origins, nvme)
    snapshot = snapshots.read(nvme, config.snapshot)
    return snapshot, Streaming(snapshot, origins, nvme) if streams else None


def _nvme(config: Config) -> Path:
    return Path(config.placement.nvme.format(node=os.environ.get("SLIPWAY_NODE", "local")))
