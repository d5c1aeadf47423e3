"""Branching: how a training that continues its parent's checkpoint reads it, verified, from any tier.

The parent does not change: a damaged copy is not set aside, because only the parent's own token may do that.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from slipway.trainer.base import paths
from slipway.trainer.checkpoint import restore
from slipway.trainer.checkpoint.disk.contents import Contents
from slipway.trainer.checkpoint.restore import NodeReading
from slipway.trainer.checkpoint.tiers.locations import CheckpointPlaces
from slipway.trainer.checkpoint.tiers.ring import ONE_NODE, NodeRing
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Branch
from slipway.trainer.node.world import World
from slipway.trainer.record import commits
from slipway.trainer.record.causes import LackingTier
from slipway.trainer.record.fence import Commit, Token


def parents(
    config: Config,
    world: World,
    token: Token,
    ring: NodeRing = ONE_NODE,
    nodes: NodeReading | None = None,
    on_away: Callable[[str], None] = lambda _: None,
) -> tuple[Commit, Contents]:
    """The checkpoint of the configuration's section `branch`, with every byte verified.

    All ranks call it at the same time. Raises ValueError, on all ranks, if the checkpoint is not the parent's,
    LackingTier if all its copies are damaged, and OSError if it cannot be read now.
    """
    branch = config.branch
    assert branch is not None
    store = Path(config.placement.parent)
    commit = _commit(store, branch, world)
    own = Path(config.placement.durable) / paths.checkpoints(config.training)
    locations = CheckpointPlaces(replace(config.placement, store=str(store)), world, token, ring, fetched=own)
    try:
        return commit, restore.verified(commit, world, locations, on_away, nodes)
    except LackingTier as error:
        raise LackingTier(f"branch: {branch.training}: {error}") from None


def _commit(store: Path, branch: Branch, world: World) -> Commit:
    """The parent's commit; rank 0 reads its record."""
    commit: Commit | str = ""
    fault = ""
    if world.is_rank_zero:
        try:
            commit = commits.read(store, branch.commit)
        except OSError as error:
            fault = f"{store}: {error.strerror or error}"
        if isinstance(commit, Commit) and commit.manifest != branch.manifest:
            commit = (
                f"checkpoint {commit.name}: found the manifest {commit.manifest[:16]}, expected {branch.manifest[:16]}"
            )
    commit, fault = world.broadcast((commit, fault))
    if fault:
        raise OSError(fault)
    if isinstance(commit, str):
        raise ValueError(f"branch: {branch.training}: {commit}")
    return commit
