"""The resumption: the state from which a training continues when its ranks have met.

It is the first of these that exists: the state that ranks of the generation before still hold; the state in the memory
of the nodes, unless a checkpoint is newer; the newest good checkpoint of this training, or the one that it branches
from. Without any of them, the caller begins with initial weights.
"""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer import lineage
from slipway.trainer.base import paths
from slipway.trainer.checkpoint import branching, restore, state
from slipway.trainer.checkpoint.disk import publication
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.memory import gathering, slots
from slipway.trainer.checkpoint.restore import RestoreWords
from slipway.trainer.checkpoint.saving import parts, random_state
from slipway.trainer.checkpoint.saving.saver import Saver
from slipway.trainer.checkpoint.tiers.locations import CheckpointPlaces, nvme_folder
from slipway.trainer.checkpoint.tiers.ring import NodeRing
from slipway.trainer.config.resolved import Config
from slipway.trainer.elastic import hand_over
from slipway.trainer.elastic.hand_over import HandOver, HeldPosition, HeldState
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from slipway.trainer.step import exhaustion
from slipway.trainer.step.engine import Engine


@dataclass
class GenerationCarryover:
    """The objects that a process takes from one generation into the next."""

    state: HeldState | None = None
    """None if this rank holds no whole state."""
    saver: Saver | None = None
    """It keeps its writer process and the memory of its buffers."""

    def saver_for(self, config: Config, world: World, token: fence.Token, ring: NodeRing) -> Saver:
        """The saver of the generation before, now with this one's token; a new saver if there is none."""
        if self.saver is None:
            self.saver = Saver(config.training, config.placement, world, token, config.storage, ring)
        else:
            self.saver.follow(token, ring, world)
        return self.saver

    def hold(
        self, engine: Engine, world: World, progress: TrainingProgress, figures: Mapping[str, float], reported: bool
    ) -> None:
        """Hold the state of `engine` after the step of `progress`; see `HeldPosition`."""
        self.state = None
        full_state = engine.whole_state()
        if full_state:
            position = HeldPosition(progress, figures, reported)
            self.state = HeldState(position, hand_over.part(world.rank, world.mesh), full_state)

    def close(self) -> None:
        """End the saver."""
        if self.saver is not None:
            self.saver.close()
            self.saver = None


@dataclass(frozen=True)
class RestoredProgress:
    """The progress that a training has restored."""

    progress: TrainingProgress
    own: bool
    """Whether it is this training's own, not that of its parent."""
    committed: bool = True
    """Whether a checkpoint of the step is on record, so that it need not be saved again."""


@dataclass(frozen=True)
class Resumption:
    """One rank's part in the resumption; all ranks call each method at the same time."""

    config: Config
    world: World
    token: fence.Token
    ring: NodeRing
    record: Callable[..., None]
    """Writes an event to the ledger; only rank 0 does."""
    on_progress: Callable[[], None]
    """Called while the training waits for a tier."""

    def remove_what_is_left(self) -> None:
        """Remove half-written files of older tokens. Raises fence.Superseded."""
        checkpoints = paths.checkpoints(self.config.training)
        placement = self.config.placement
        if self.world.is_rank_zero:
            fence.check(Path(placement.store), self.token)
            publication.remove_unpublished(Path(placement.durable) / checkpoints, self.token)
            parts.remove_older(Path(placement.store), self.token)
        if self.world.local_rank == 0:
            publication.remove_unpublished(nvme_folder(placement) / checkpoints, self.token)

    def from_ranks(self, engine: Engine, carryover: GenerationCarryover) -> HandOver | None:
        """Continue from the state that ranks hold; None if a part is missing. Afterwards `carryover` has no state."""
        if self.world.groups is None or not self.world.groups.stays:
            return None
        begun = time.time()
        handover = hand_over.hand_over(engine, self.world, carryover.state)
        carryover.state = None
        exhaustion.give_back_memory(self.world.device)
        if handover:
            givers = {str(rank): giver for rank, giver in handover.givers.items()}
            self.record("handed_over", step=handover.position.step, givers=givers, seconds=time.time() - begun)
        return handover

    def from_what_is_saved(self, engine: Engine, saver: Saver) -> RestoredProgress | None:
        """Continue from memory, or else from a checkpoint; None if there is neither."""
        return self.from_memory(engine, saver) or self.from_checkpoint(engine, saver)

    def from_memory(self, engine: Engine, saver: Saver) -> RestoredProgress | None:
        """Continue from the memory of the nodes; None if the newest commit is newer than it."""
        begun = time.time()
        commit = self._newest_commit()
        if isinstance(commit, str):  # `from_checkpoint` reports this fault
            return None
        needed = functools.partial(state.files_to_load, engine, self.world.rank, self.world.size)
        least = commit.step if commit else 0
        messages = RestoreWords(self.record, self.world.is_rank_zero, self.on_progress)
        buffers = slots.from_environment()
        own = self.token.incarnation
        checkpoint = gathering.newest(self.world, buffers, own, least, needed, messages.memory_fault)
        if checkpoint is None:
            return None
        restore.load(engine, checkpoint.contents, self.world)
        if commit:
            saver.resumed_from(commit)
        progress = checkpoint.contents.progress()
        committed = commit is not None and commit.step == checkpoint.step
        self._take_random_state(progress)
        name = commit.name if commit and committed else ""
        self.record("restored", step=checkpoint.step, commit=name, memory=True, seconds=time.time() - begun)
        return RestoredProgress(progress, own=True, committed=committed)

    def _newest_commit(self) -> fence.Commit | str | None:
        """The newest commit, or why it cannot be read; rank 0 reads it."""
        commit: fence.Commit | str | None = None
        if self.world.is_rank_zero:
            try:
                commit = next(reversed(fence.commits(Path(self.config.placement.store))), None)
            except (OSError, ValueError) as error:
                commit = str(error)
        return self.world.broadcast(commit)

    def _take_random_state(self, progress: TrainingProgress) -> None:
        if self.world.rank < len(progress.random_states):
            random_state.restore(progress.random_states[self.world.rank])

    def from_checkpoint(self, engine: Engine, saver: Saver) -> RestoredProgress | None:
        """Continue from the newest good checkpoint, or from the parent's; None if there is neither."""
        begun = time.time()
        store = Path(self.config.placement.store)
        locations = CheckpointPlaces(self.config.placement, self.world, self.token, self.ring)
        needed = functools.partial(state.files_to_load, engine, self.world.rank, self.world.size)
        messages = RestoreWords(self.record, self.world.is_rank_zero, self.on_progress)
        nodes = restore.NodeReading(needed, messages.source_fault, messages.lost)
        callbacks = (messages.damaged, messages.away, nodes)
        newest = restore.newest_verified(store, self.world, self.token, locations, *callbacks)
        if newest is None and self.config.branch is None:
            return None
        commit, checkpoint = newest or branching.parents(
            self.config, self.world, self.token, self.ring, nodes, messages.away
        )
        restore.load(engine, checkpoint, self.world)
        progress = checkpoint.progress()
        if newest:
            saver.resumed_from(commit)
        self._take_random_state(progress)
        since = lineage.since(progress, self.config)
        self.record("restored", step=progress.step, commit=commit.name, **since, seconds=time.time() - begun)
        return RestoredProgress(progress, newest is not None)
