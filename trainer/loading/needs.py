"""Needs: which parts of its snapshot a training reads and when, from the manifest and the configuration alone.

The trainer uses it before its first step; the launch and the plan, before there are any nodes. It opens no shard.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from slipway.trainer.config.mix import Mix
from slipway.trainer.config.sections import Batch, Run, Validation
from slipway.trainer.data import images, shards
from slipway.trainer.data.documents import DocumentedSequences
from slipway.trainer.data.mixtures import MixtureSnapshot
from slipway.trainer.data.pictures import Pictures
from slipway.trainer.data.sequences import Sequences
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.loading import mixing
from slipway.trainer.loading.order import Indices, Order, SampleOrder
from slipway.trainer.loading.window import DataCourse
from slipway.trainer.staging import holding
from slipway.trainer.staging.holding import Holding, SnapshotNeed, Staging

NOWHERE = Path("/nowhere")
"""The tier of splits that are not read."""


@dataclass(frozen=True)
class SnapshotReading:
    """A training's splits, and the samples and shards that its steps read."""

    snapshot: Snapshot
    batch: Batch
    run: Run
    validation: Validation
    tier: Path = NOWHERE
    bring: Callable[[Any], None] | None = None
    """Called with a shard before it is opened."""
    documents: bool = False
    """Whether the samples tell where documents begin; the shards that are read are the same."""
    mix: Mix | None = None
    """The weights of the datasets of a mixture."""

    @cached_property
    def training(self) -> Sequences | DocumentedSequences | Pictures:
        """Raises ValueError when the split has no sample."""
        return self._split("train")

    @cached_property
    def held_out(self) -> Sequences | DocumentedSequences | Pictures:
        """Raises ValueError when the split has no sample."""
        return self._split("validation")

    @cached_property
    def order(self) -> SampleOrder:
        """Raises ValueError for a mix that does not fit the snapshot."""
        if not isinstance(self.snapshot, MixtureSnapshot):
            if self.mix is not None:
                raise ValueError(
                    f"mix: found one for snapshot {self.snapshot.sha256[:16]}, expected none: it is no mixture"
                )
            return Order(self.training.sizes, self.run.seed, self.run.shuffle_shards)
        return mixing.blend(self.snapshot, self.mix, self.training.sizes, self.batch, self.run)

    @cached_property
    def course(self) -> DataCourse:
        """The shards that the steps read."""
        return DataCourse(self.order, self.training.shards, self.batch.sequences, self.run.steps)

    @cached_property
    def measured(self) -> dict[str, Indices]:
        """The samples that validation measures, by dataset; equally many of each dataset of a mixture."""
        if isinstance(self.snapshot, MixtureSnapshot):
            return mixing.held_out(self.snapshot, self.held_out.sizes, self.validation.sequences)
        return {self.snapshot.dataset: np.arange(min(self.validation.sequences, len(self.held_out)), dtype=np.uint64)}

    @cached_property
    def pinned(self) -> list[shards.ShardFile]:
        """The shards that validation reads."""
        if not self.validation.every:
            return []
        ends = np.cumsum(self.held_out.sizes)
        shard_indices = np.searchsorted(ends, np.concatenate(list(self.measured.values())), "right")
        return [self.held_out.shards[index] for index in np.unique(shard_indices).tolist()]

    @cached_property
    def need(self) -> SnapshotNeed:
        every = self.snapshot.shards()
        return SnapshotNeed(
            total=sum(shard.bytes for shard in every),
            divided=sum(shard.bytes for shard in self.training.shards),
            pinned=sum(shard.bytes for shard in self.pinned),
            window=self.course.most_at_once(),
            largest=max(shard.bytes for shard in every),
        )

    def hold(self, staging: Staging, rooms: Mapping[str, int]) -> Holding:
        """How nodes with these rooms hold the snapshot. Raises ValueError, with the sizes, if they cannot."""
        return holding.choose(staging, self.need, rooms, list(self.training.shards))

    def _split(self, split: str) -> Sequences | DocumentedSequences | Pictures:
        if isinstance(self.snapshot, images.ImageSnapshot):
            return Pictures(self.tier, self.snapshot, split, self.bring)
        plain = Sequences(self.tier, self.snapshot, split, self.batch.length, self.bring)
        return DocumentedSequences(plain) if self.documents else plain


def need_of_script(snapshot: Snapshot, ranks_per_node: int) -> SnapshotNeed:
    """The need of a script's ranks on one node: each reads one shard at a time, in its own order."""
    every = snapshot.shards()
    total = sum(shard.bytes for shard in every)
    largest = max(shard.bytes for shard in every)
    return SnapshotNeed(total, divided=total, pinned=0, window=min(total, ranks_per_node * largest), largest=largest)
