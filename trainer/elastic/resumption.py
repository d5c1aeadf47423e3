"""The resumption: where a training goes on from, when its ranks have met.

From the state that ranks of the generation before still hold; else from what they have left in the memory of the
nodes, unless a checkpoint is newer; else from the newest good checkpoint, its own or the one that it branches from;
else from initial weights, which are the caller's.
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
    """What a process takes from one generation into the next."""

    state: HeldState | None = None
    """None where this rank holds no whole state."""
    saver: Saver | None = None
    """With its writer process, and the memory of its buffers."""

    def saver_for(self, config: Config, world: World, token: fence.Token, ring: NodeRing) -> Saver:
        """The saver of the generation before, for this one; a new one where there is none."""
        if self.saver is None:
            self.saver = Saver(config.training, config.placement, world, token, config.storage, ring)
        else:
            self.saver.follow(token, ring, world)
        return self.saver

    def hold(
        self, engine: Engine, world: World, progress: TrainingProgress, figures: Mapping[str, float], reported: bool
    ) -> None:
        """Hold what `engine` has after the step of `progress`; see `HeldPosition`."""
        full_state = engine.whole_state()
        position = HeldPosition(progress, figures, reported)
        self.state = HeldState(position, hand_over.part(world.rank, world.mesh), full_state) if full_state else None

    def close(self) -> None:
        """End the saver."""
        if self.saver is not None:
            self.saver.close()
            self.saver = None


@dataclass(frozen=True)
class RestoredProgress:
    """What a checkpoint said."""

    progress: TrainingProgress
    own: bool
    """Whether it is one of this training, and not of the one that it branches from."""
    committed: bool = True
    """Whether it is on record, so that the step need not be saved again."""


@dataclass(frozen=True)
class Resumption:
    """One rank's part in it; all ranks call each method at the same time."""

    config: Config
    world: World
    token: fence.Token
    ring: NodeRing
    record: Callable[..., None]
    """Writes an event to the ledger; only rank 0 does."""
    on_progress: Callable[[], None]
    """Called while the training waits for a tier."""

    def remove_what_is_left(self) -> None:
        """Remove what older tokens have left half written. Raises fence.Superseded."""
        checkpoints, placement = paths.checkpoints(self.config.training), self.config.placement
        if self.world.is_rank_zero:
            fence.check(Path(placement.store), self.token)
            publication.remove_unpublished(Path(placement.durable) / checkpoints, self.token)
            parts.remove_older(Path(placement.store), self.token)
        if self.world.local_rank == 0:
            publication.remove_unpublished(nvme_folder(placement) / checkpoints, self.token)

    def from_ranks(self, engine: Engine, carryover: GenerationCarryover) -> HandOver | None:
        """Continue from what ranks hold; None where that is not whole. Afterwards `carryover` holds no state."""
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
        """Continue from memory or else from a checkpoint; None where there is none."""
        return self.from_memory(engine, saver) or self.from_checkpoint(engine, saver)

    def from_memory(self, engine: Engine, saver: Saver) -> RestoredProgress | None:
        """Continue from what the memory of the nodes holds; None where it holds nothing as new as the newest commit."""
        begun, commit = time.time(), self._newest_commit()
        if isinstance(commit, str):  # the code that reads the checkpoints reports this fault
            return None
        needed = functools.partial(state.files_to_load, engine, self.world.rank, self.world.size)
        least = commit.step if commit else 0
        messages = RestoreWords(self.record, self.world.is_rank_zero, self.on_progress)
        buffers, own = slots.from_environment(), self.token.incarnation
        checkpoint = gathering.newest(self.world, buffers, own, least, needed, messages.memory_fault)
        if checkpoint is None:
            return None
        restore.load(engine, checkpoint.contents, self.world)
        if commit:
            saver.resumed_from(commit)
        progress, committed = checkpoint.contents.progress(), commit is not None and commit.step == checkpoint.step
        self._take_random_state(progress)
        name = commit.name if commit and committed else ""
        self.record("restored", step=checkpoint.step, commit=name, memory=True, seconds=time.time() - begun)
        return RestoredProgress(progress, own=True, committed=committed)

    def _newest_commit(self) -> fence.Commit | str | None:
        """As rank 0 reads it, or why it cannot."""
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
        """Continue from the newest good checkpoint; None where there is none, nor one to branch from."""
        begun, store = time.time(), Path(self.config.placement.store)
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
