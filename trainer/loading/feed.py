"""The feed: one rank's data from a snapshot. Its node holds the whole snapshot, a part, or the next steps' shards."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from slipway.trainer.base.progress import CopyProgress, OnProgress, every
from slipway.trainer.config.resolved import Config
from slipway.trainer.data import contents, shards, snapshots
from slipway.trainer.loading import nodes
from slipway.trainer.loading.batches import Batches
from slipway.trainer.loading.blend import Blend
from slipway.trainer.loading.needs import SnapshotReading
from slipway.trainer.loading.order import Indices, rank_slice
from slipway.trainer.loading.sources import Sources, origins
from slipway.trainer.loading.streaming import Streaming
from slipway.trainer.loading.window import TELL_SECONDS, ShardWindow
from slipway.trainer.models.model import Rows, SampleNumbers
from slipway.trainer.node.world import World
from slipway.trainer.objects.peer_server import PeerServer
from slipway.trainer.staging import holding, leases, parts, retention, stage

QUIET_SECONDS = 5.0
"""A staging that takes less is not reported."""


class Feed:
    """The data of one training, and this rank's share of it."""

    def __init__(self, config: Config, world: World, tell: OnProgress = lambda _: None) -> None:
        """Open the snapshot, after staging if the node holds the whole of it.

        `tell` is called on one rank of each node, with the progress of the staging, until the node has its shards for
        the first time. Raises ValueError for a configuration that does not fit the data or the disks, and the errors of
        staging.
        """
        batch = config.batch
        self._config = config
        self._world = world
        self._tell = tell

        # This node's shards: where they lie, where they come from, and what brings them.
        self._leads_node = world.local_rank == 0
        self._nvme = _nvme(config)
        self._origins = origins(config.placement, nodes.name())
        self._lease = leases.hold(self._nvme, config.snapshot)
        self._streaming: Streaming | None = None
        """If the node will hold the whole snapshot, and training begins before it does."""
        self._window: ShardWindow | None = None
        """If the node holds only the shards of the coming steps."""
        self._server: PeerServer | None = None
        """Gives this node's shards to the others."""
        if self._leads_node:
            stage.bring_manifest(config.snapshot, self._origins, self._nvme)
        room = self._room() if self._leads_node else None
        self._nodes = nodes.gather(world, room)
        self._origins = origins(config.placement, self._nodes.own, self._nodes.rooms)

        # The samples, and their order.
        self.snapshot = snapshots.read(self._nvme, config.snapshot)
        self.data = contents.data(self.snapshot, config.model, batch.length, config.run.seed)
        reading = SnapshotReading(
            self.snapshot,
            batch,
            config.run,
            config.validation,
            self._nvme,
            self._bring,
            config.model.reads_documents,
            config.mix,
        )
        self._reading = reading
        self._training = reading.training
        self.held_out = reading.held_out
        self.order = reading.order
        self._course = reading.course
        self.holding = reading.hold(config.placement.staging, self._nodes.rooms)
        self._hold()

        # This rank's share of each step.
        self._samples_a_step = batch.sequences
        self._rank_rows = rank_slice(batch.sequences, world.data_rank, world.data_size)
        self._batches: Batches[Any] = Batches(
            self._training,
            self.order,
            batch.sequences,
            self._rank_rows,
            config.run.steps,
            pinned=world.device.type == "cuda",
            begins=self._close_behind,
        )

    def rows(self, step: int) -> tuple[Rows, SampleNumbers]:
        """This rank's samples of `step`, valid until the next call, and their positions in the training's sequence."""
        if self._window and self._leads_node:
            self._window.move(step)
        sample_ids = step * self._samples_a_step + np.arange(self._rank_rows.start, self._rank_rows.stop)
        return self._batches.windows(step), sample_ids.astype(np.uint64)

    def stage_rest(self, step: int) -> None:
        """Begin to bring this node's shards, in the order in which the steps from `step` on need them.

        One rank of a node brings them for all its ranks; a rank that needs a shard earlier brings it itself.
        """
        if not self._leads_node:
            return
        if self._streaming:
            indices = self.order.shards(step * self._samples_a_step)
            self._streaming.stage([self._training.shards[index] for index in indices])
        if self._window:
            self._window.start(min(step, self._course.steps - 1))

    def follow(self, steps: int) -> None:
        """Go on with another number of steps."""
        if steps == self._course.steps:
            return
        self._course = dataclasses.replace(self._course, steps=steps)
        self._batches.follow(steps)
        if self._window:
            self._window.follow(self._course)

    @property
    def measured(self) -> dict[str, Indices]:
        """The samples of `held_out` that validation measures, by dataset."""
        return self._reading.measured

    def mix_changes(self, step: int) -> bool:
        """Whether the weights of the datasets change after the first `step` steps."""
        return isinstance(self.order, Blend) and step * self._samples_a_step in self.order.changes

    def record_mix(self, step: int, record: Callable[..., None]) -> None:
        """Record the tokens and epochs of each dataset in the first `step` steps, if the snapshot is a mixture."""
        if not isinstance(self.order, Blend):
            return
        position = step * self._samples_a_step
        samples = self.order.consumed(position).tolist()
        passes = self.order.passes(position)
        length = self._config.batch.length
        read = {
            name: {"tokens": count * length, "passes": times}
            for (name, times), count in zip(passes.items(), samples, strict=True)
        }
        record("mixed", step=step, datasets=read)

    def close(self) -> None:
        """End the server of this node's shards, and release them."""
        if self._window:
            self._window.release()
        if self._server:
            self._server.close()

    def _hold(self) -> None:
        """Stage the snapshot, or prepare what brings it during the training."""
        snapshot = self._config.snapshot
        nvme = self._nvme
        if self.holding.moves:
            self._window = self._moving_window()
            return
        streams = self.holding.kind == "streaming" and not stage.is_staged(snapshot, nvme)
        if not streams and self._leads_node:
            stage.stage(snapshot, self._origins, nvme, every(TELL_SECONDS, _after_a_while(self._tell)))
        # All ranks wait here, even with a streaming start: they checked at different moments and may disagree.
        self._world.all_gather(None)
        if streams:
            self._streaming = Streaming(self.snapshot, self._origins, nvme)

    def _moving_window(self) -> ShardWindow:
        """This process's window; the first rank of a node also serves the node's shards to the other nodes."""
        own = self._nodes.own
        rooms = self._nodes.rooms
        if self._leads_node and len(rooms) > 1:
            self._server = PeerServer(self._nvme)
        peers = nodes.peers(self._world, self._nodes, self._server.url if self._server else None, self._nvme)
        unbounded = dict.fromkeys(rooms, 2 * self._reading.need.total)
        keepers = parts.divide([*self._training.shards, *self._reading.pinned], unbounded)
        assert keepers is not None
        keepers |= self.holding.keepers
        part = [one for one in self._training.shards if self.holding.keepers.get(one.blake3) == own]
        fixed_shards: list[shards.ShardFile] = list(
            {one.blake3: one for one in (*self._reading.pinned, *part)}.values()
        )
        ahead = rooms[own] - sum(one.bytes for one in fixed_shards)
        sources = Sources(own, peers, keepers, self._origins)
        window = ShardWindow(self._course, fixed_shards, ahead, sources, self._nvme, self._tell)
        if self._leads_node:
            window.hold(self._lease)
        else:
            self._lease.release()
        self._world.all_gather(None)  # from now on, every node's server announces the shards that it will have
        return window

    def _bring(self, shard: shards.ShardFile) -> None:
        """Wait until the shard is on the NVMe; called before it is opened."""
        if self._window:
            self._window.bring(shard)
        elif self._streaming:
            self._streaming.bring(shard)

    def _close_behind(self, step: int) -> None:
        """Close the shards that the next steps from `step` on do not read, so that an eviction frees their bytes."""
        if self._window:
            self._training.opened.close_others(self._course.at_once(step))

    def _room(self) -> int:
        """The bytes for the training's shards on this node's NVMe."""
        manifest = snapshots.read(self._nvme, self._config.snapshot)
        free = holding.SHARE * retention.room(self._nvme, {shard.blake3 for shard in manifest.shards()})
        gigabytes = self._config.placement.nvme_gigabytes
        if gigabytes is None:
            return int(free)
        return int(min(free, gigabytes * 1e9))


def _after_a_while(tell: OnProgress) -> OnProgress:
    """`tell`, but not in the first `QUIET_SECONDS`."""
    begun = time.monotonic()

    def tell_later(progress: CopyProgress) -> None:
        if time.monotonic() - begun >= QUIET_SECONDS:
            tell(progress)

    return tell_later


def _nvme(config: Config) -> Path:
    return Path(config.placement.nvme.format(node=nodes.name()))
