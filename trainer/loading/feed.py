"""The feed: one rank's data from a snapshot, of which its node holds all, a part, or what the next steps read."""

from pathlib import Path
from typing import Any

import numpy as np

from trainer.config.resolved import Config
from trainer.data import contents, images, shards, snapshots
from trainer.data.documents import DocumentedSequences
from trainer.data.pictures import Pictures
from trainer.data.sequences import Sequences
from trainer.loading import nodes
from trainer.loading.batches import Batches
from trainer.loading.order import Order, rank_slice
from trainer.loading.sources import Sources
from trainer.loading.streaming import Streaming
from trainer.loading.window import DataCourse, ShardWindow
from trainer.models.model import Rows, SampleNumbers
from trainer.node.world import World
from trainer.objects.origins import origin
from trainer.staging import holding, leases, parts, retention, stage


class Feed:
    """The data of one training, and this rank's share of it."""

    def __init__(self, config: Config, world: World) -> None:
        """Open the snapshot, which is staged first where the node holds the whole of it.

        Raises ValueError for a configuration that does not fit the data or the disks, and what staging raises.
        """
        batch, on_gpu = config.batch, world.device.type == "cuda"
        self._config, self._world, self._nvme = config, world, _nvme(config)
        self._leads_node = world.local_rank == 0
        self._origins = [origin(config.placement.durable)]
        self._lease = leases.hold(self._nvme, config.snapshot)
        self._streaming: Streaming | None = None
        self._window: ShardWindow | None = None
        self._server: nodes.PeerServer | None = None
        if self._leads_node:
            stage.bring_manifest(config.snapshot, self._origins, self._nvme)
        room = self._room() if self._leads_node else None
        self._nodes = nodes.gather(world, room)
        self.snapshot = snapshots.read(self._nvme, config.snapshot)
        self.data = contents.data(self.snapshot, config.model, batch.length, config.run.seed)
        self._training, self.held_out = (self._split(split) for split in ("train", "validation"))
        self.order = Order(self._training.sizes, config.run.seed, config.run.shuffle_shards)
        self._course = DataCourse(self.order, self._training.shards, batch.sequences, config.run.steps)
        self.holding = holding.choose(
            config.placement.staging, self._need(), self._nodes.rooms, list(self._training.shards)
        )
        self._hold()
        mine = self._mine = rank_slice(batch.sequences, world.data_rank, world.data_size)
        self._batches: Batches[Any] = Batches(
            self._training, self.order, batch.sequences, mine, config.run.steps, on_gpu, self._close_behind
        )
        self._samples_a_step = batch.sequences

    def rows(self, step: int) -> tuple[Rows, SampleNumbers]:
        """This rank's samples of `step`, valid until the next call, and their positions in the training's sequence."""
        if self._window and self._leads_node:
            self._window.move(step)
        places = step * self._samples_a_step + np.arange(self._mine.start, self._mine.stop)
        return self._batches.windows(step), places.astype(np.uint64)

    def stage_rest(self, step: int) -> None:
        """Begin to bring what the node is to hold, in the order in which the steps from `step` on need it.

        One rank of a node does it for all ranks there; a rank that needs a shard earlier brings it itself.
        """
        if not self._leads_node:
            return
        if self._streaming:
            places = self.order.shards(step * self._samples_a_step)
            self._streaming.stage([self._training.shards[place] for place in places])
        if self._window:
            self._window.start(min(step, self._config.run.steps - 1), self._lease)

    def close(self) -> None:
        """End the server of this node's shards, and hold none of them any more."""
        if self._window:
            self._window.release()
        if self._server:
            self._server.close()

    def _hold(self) -> None:
        """Bring about what the node holds before the first step."""
        snapshot, nvme = self._config.snapshot, self._nvme
        if self.holding.moves:
            self._window = self._moving_window()
            return
        streams = self.holding.kind == "streaming" and not stage.is_staged(snapshot, nvme)
        if not streams and self._leads_node:
            stage.stage(snapshot, self._origins, nvme)
        # All ranks wait here, also with a streaming start: they looked at different moments and may disagree.
        self._world.gather(None)
        self._streaming = Streaming(self.snapshot, self._origins, nvme) if streams else None

    def _moving_window(self) -> ShardWindow:
        own, rooms = self._nodes.own, self._nodes.rooms
        if self._leads_node and len(rooms) > 1:
            self._server = nodes.PeerServer(self._nvme)
        peers = nodes.peers(self._world, self._nodes, self._server.url if self._server else None)
        unbounded = dict.fromkeys(rooms, self._need().total)
        keepers = self.holding.keepers or parts.divide(self._training.shards, unbounded) or {}
        part = [one for one in self._training.shards if self.holding.keepers.get(one.blake3) == own]
        kept: list[shards.ShardFile] = list({one.blake3: one for one in (*self._pinned(), *part)}.values())
        ahead = rooms[own] - sum(one.bytes for one in kept)
        if not self._leads_node:
            self._lease.release()
        return ShardWindow(self._course, kept, ahead, Sources(own, peers, keepers, self._origins), self._nvme)

    def _split(self, split: str) -> Sequences | DocumentedSequences | Pictures:
        if isinstance(self.snapshot, images.ImageSnapshot):
            return Pictures(self._nvme, self.snapshot, split, self._bring)
        plain = Sequences(self._nvme, self.snapshot, split, self._config.batch.length, self._bring)
        return DocumentedSequences(plain) if self._config.model.reads_documents else plain

    def _bring(self, shard: shards.ShardFile) -> None:
        """Have the shard on the NVMe before it is opened."""
        if self._window:
            self._window.bring(shard)
        elif self._streaming:
            self._streaming.bring(shard)

    def _close_behind(self, step: int) -> None:
        """Close the shards that no step from `step` on reads soon, so that their room is free once they are evicted."""
        if self._window:
            self._training.opened.close_others(self._course.at_once(step))

    def _room(self) -> int:
        """The bytes that the training's shards may take on this node's NVMe."""
        manifest = snapshots.read(self._nvme, self._config.snapshot)
        free = holding.SHARE * retention.room(self._nvme, {shard.blake3 for shard in manifest.shards()})
        given = self._config.placement.nvme_gigabytes
        return int(free if given is None else min(free, given * 1e9))

    def _pinned(self) -> list[shards.ShardFile]:
        """The shards that validation reads."""
        if not self._config.validation.every:
            return []
        ends = np.cumsum(self.held_out.sizes)
        last = int(np.searchsorted(ends, min(self._config.validation.sequences, len(self.held_out)) - 1, "right"))
        return list(self.held_out.shards[: last + 1])

    def _need(self) -> holding.SnapshotNeed:
        every = self.snapshot.shards()
        return holding.SnapshotNeed(
            total=sum(shard.bytes for shard in every),
            divided=sum(shard.bytes for shard in self._training.shards),
            pinned=sum(shard.bytes for shard in self._pinned()),
            window=self._course.most_at_once(),
            largest=max(shard.bytes for shard in every),
        )


def _nvme(config: Config) -> Path:
    return Path(config.placement.nvme.format(node=nodes.name()))
