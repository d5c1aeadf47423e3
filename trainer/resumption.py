"""The resumption: where a training goes on from, when its ranks have met.

From the state that ranks of the generation before still hold; else from the newest good checkpoint; else from initial
weights.
"""

import functools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.base import paths
from trainer.checkpoint import restore, state
from trainer.checkpoint.disk import publication
from trainer.checkpoint.disk.progress import TrainingProgress
from trainer.checkpoint.saving import parts, random_state
from trainer.checkpoint.saving.saver import Saver
from trainer.checkpoint.tiers.locations import CheckpointPlaces, nvme_folder
from trainer.checkpoint.tiers.node_copies import SourceFault
from trainer.checkpoint.tiers.ring import NodeRing
from trainer.config.resolved import Config
from trainer.node.world import World
from trainer.record import fence
from trainer.step import exhaustion, handover
from trainer.step.engine import Engine
from trainer.step.handover import HandOver, HeldState


@dataclass
class Kept:
    """What a process takes from one generation into the next."""

    held: HeldState | None = None
    """None where this rank holds no whole state."""
    saver: Saver | None = None
    """With its writer process, and the memory of its buffers."""

    def close(self) -> None:
        """End the writer."""
        if self.saver is not None:
            self.saver.close()


@dataclass(frozen=True)
class Resumption:
    """One rank's part in it; all ranks call each method at the same time."""

    config: Config
    world: World
    token: fence.Token
    ring: NodeRing
    record: Callable[..., None]
    """Writes an event to the ledger; only rank 0 does."""
    wait: Callable[[], None]
    """Called while the training waits for a tier."""

    @property
    def store(self) -> Path:
        """The training's folder."""
        return Path(self.config.placement.store)

    def remove_what_is_left(self) -> None:
        """Remove what older tokens have left half written. Raises fence.Superseded."""
        checkpoints = paths.checkpoints(self.config.training)
        if self.world.leads:
            fence.check(self.store, self.token)
            publication.remove_unpublished(Path(self.config.placement.durable) / checkpoints, self.token)
            parts.remove_older(self.store, self.token)
        if self.world.local_rank == 0:
            publication.remove_unpublished(nvme_folder(self.config.placement) / checkpoints, self.token)

    def from_ranks(self, engine: Engine, kept: Kept) -> HandOver | None:
        """Continue from what ranks hold; None where that is not whole. Afterwards `kept` holds no state any more."""
        if self.world.groups is None or not self.world.groups.stays:
            return None
        begun = time.time()
        found = handover.hand_over(engine, self.world, kept.held)
        kept.held = None
        exhaustion.give_back_memory(self.world.device)
        if found:
            givers = {str(rank): giver for rank, giver in found.givers.items()}
            self.record("handed_over", step=found.position.step, givers=givers, seconds=time.time() - begun)
        return found

    def from_checkpoint(self, engine: Engine, saver: Saver) -> TrainingProgress | None:
        """Continue from the newest good checkpoint; None where there is none."""
        begun = time.time()
        places = CheckpointPlaces(self.config.placement, self.world, self.token, self.ring)
        needed = functools.partial(state.files_to_load, engine, self.world.rank, self.world.size)
        nodes = restore.NodeReading(needed, self._on_source_fault, self._on_lost)
        said = (self._on_damaged, self._on_away, nodes)
        found = restore.newest_verified(self.store, self.world, self.token, places, *said)
        if found is None:
            return None
        commit, kept = found
        restore.load(engine, kept, self.world)
        saver.resumed_from(commit)
        progress = kept.progress()
        if self.world.rank < len(progress.random_states):
            random_state.restore(progress.random_states[self.world.rank])
        self.record("restored", step=progress.step, commit=commit.name, seconds=time.time() - begun)
        return progress

    def _on_source_fault(self, commit: fence.Commit, fault: SourceFault) -> None:
        self.record("source_failed", **fault.fields(commit))
        _say(f"{fault.node}: {fault.reason}")

    def _on_lost(self, commit: fence.Commit, reason: str) -> None:
        self.record("passed_over", commit=commit.name, reason=reason)
        _say(f"checkpoint {commit.name} is passed over: {reason}")

    def _on_damaged(self, commit: fence.Commit, reason: str) -> None:
        self.record("set_aside", commit=commit.name, reason=reason)

    def _on_away(self, reason: str) -> None:
        self.wait()
        self.record("tier_away", reason=reason)
        if self.world.leads:
            _say(f"waiting: {reason}")


def _say(text: str) -> None:
    print(f"trainer: {text}\n", end="", file=sys.stderr, flush=True)
