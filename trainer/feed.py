"""The feed: what one rank reads. Each step's windows, in the data order, and those held out for validation.

A thread reads the next step's windows while the present step trains, so that a cold disk or a shard that is
still on its way costs time only when it takes longer than a step.
"""

import os
import threading
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import torch

from trainer import shards, staging
from trainer.config import Config
from trainer.data import Sequences, Tokens
from trainer.order import Order, share
from trainer.origins import origin
from trainer.streaming import Streaming
from trainer.world import World


class Feed:
    """The data of one training, on this node's NVMe, and this rank's share of it."""

    def __init__(self, config: Config, world: World) -> None:
        """Open the snapshot, staged first where `placement.staging` says so.

        Raises ValueError for a configuration that does not fit the data, and what staging does.
        """
        batch = config.batch
        if batch.sequences < world.size:
            raise ValueError(f"batch.sequences: found {batch.sequences}, expected {world.size} (ranks) or more")
        self._steps, self._batch, self._leads_node = config.run.steps, batch.sequences, world.local_rank == 0
        self.snapshot, self._streaming = _placed(config, world)
        bring = self._streaming.bring if self._streaming else None
        nvme = _nvme(config)
        self._training = Sequences(nvme, self.snapshot, "train", batch.length, bring)
        self.held_out = Sequences(nvme, self.snapshot, "validation", batch.length, bring)
        self.order = Order(self._training.sizes, config.run.seed, config.run.shuffle_shards)
        self._share = share(batch.sequences, world.rank, world.size)
        shape = (2, self._share.stop - self._share.start, batch.length + 1)
        self._buffers: Tokens = np.empty(shape, self._training.dtype)
        if world.device.type == "cuda":
            self._buffers = torch.from_numpy(self._buffers).pin_memory().numpy()
        self._ahead: tuple[int, Future[Tokens]] | None = None

    def stage_rest(self, step: int) -> None:
        """With a streaming start: begin to stage what is not here yet, in the order in which `step` and later need it.

        One rank of a node does it for all; the others find what they need in place, or bring it themselves.
        """
        if self._streaming and self._leads_node:
            self._streaming.stage(self._training.shards[place] for place in self.order.shards(step * self._batch))

    def windows(self, step: int) -> Tokens:
        """This rank's windows of `step`: [share of the batch, length + 1]. They last until the next call."""
        expected, reading = self._ahead or (-1, None)
        self._ahead = None
        here = reading.result() if reading and expected == step else self._read(step)
        if step + 1 < self._steps:
            self._ahead = step + 1, self._read_beside(step + 1)
        return here

    def _read(self, step: int) -> Tokens:
        numbers = self.order.samples(step * self._batch, self._batch)[self._share]
        return self._training.read(numbers, self._buffers[step % 2])

    def _read_beside(self, step: int) -> Future[Tokens]:
        """Read in a thread that dies with the process, as one of an executor would not."""
        future: Future[Tokens] = Future()

        def read() -> None:
            try:
                future.set_result(self._read(step))
            except Exception as error:
                future.set_exception(error)

        threading.Thread(target=read, name="read-ahead", daemon=True).start()
        return future


def _placed(config: Config, world: World) -> tuple[shards.Snapshot, Streaming | None]:
    """The snapshot; and how its shards come here, unless they are all in place."""
    durable, nvme = Path(config.placement.durable), _nvme(config)
    streams = config.placement.staging == "streaming" and not staging.is_staged(config.snapshot, nvme)
    if not streams and world.local_rank == 0:
        staging.stage(config.snapshot, durable, nvme)
    # Also with a streaming start: ranks that looked at different moments may have found different things.
    world.gather(None)
    snapshot = shards.read_manifest(durable if streams else nvme, config.snapshot)
    return snapshot, Streaming(snapshot, [origin(durable)], nvme) if streams else None


def _nvme(config: Config) -> Path:
    return Path(config.placement.nvme.format(node=os.environ.get("SLIPWAY_NODE", "local")))
