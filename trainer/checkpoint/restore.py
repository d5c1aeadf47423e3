"""Restore: the newest committed checkpoint that verifies; damaged ones are set aside with their reason."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from trainer import fence
from trainer.checkpoint import contents, format, state
from trainer.checkpoint.contents import Contents
from trainer.checkpoint.tiers import Unavailable
from trainer.world import World

Places = Callable[[fence.Commit], Iterable[Path]]
"""The folders in which a commit can be read here, the best first."""


def newest_good(
    store: Path, world: World, places: Places, on_damaged: Callable[[fence.Commit, str], None]
) -> tuple[fence.Commit, Contents] | None:
    """The newest valid commit whose every byte verifies in one of its places; None when there is none.

    All ranks call at once, and each verifies its share. A commit that is damaged in all its places is taken out of
    what counts, rank 0's `on_damaged` is told, and the one before is tried; it is tried, too, where a tier that may
    have a good copy is away, and nothing is set aside then. Raises OSError for what says nothing of the files: a
    tier that is not there, or may not be read.
    """
    for commit in reversed(world.from_leader(fence.commits(store) if world.leads else [])):
        reasons = []
        try:
            for folder in places(commit):
                found, reason = _verified(folder, commit.manifest, world)
                if found:
                    return commit, found
                reasons.append(reason)
        except Unavailable as error:
            print(f"trainer: checkpoint {commit.name} is passed over: {error}", file=sys.stderr, flush=True)
            continue
        except format.Damaged as damage:
            reasons.append(str(damage))
        # Without a reason it lies on nodes that are not here, and nothing is known of it.
        if world.leads and reasons:
            fence.set_aside(store, commit, "; ".join(reasons))
            on_damaged(commit, "; ".join(reasons))
    return None


def durable(tier: Path) -> Places:
    """Every commit is in its folder on the durable tier."""
    return lambda commit: [tier / commit.folder]


def load(engine: state.Stateful, found: Contents, world: World) -> None:
    """Put a checkpoint into `engine`; all ranks call at once. Raises ValueError for a checkpoint of another model."""
    names = set[str]().union(*world.gather(set(engine.model.state_dict())))
    surplus = sorted(name for name in found.names("model/") if name.removeprefix("model/") not in names)
    if surplus:
        raise ValueError(f"{found.folder}: a checkpoint of another model: {'; '.join(surplus)}: not expected")
    state.load(engine, found, world.rank)


def _verified(folder: Path, manifest_sha256: str, world: World) -> tuple[Contents | None, str]:
    """The checkpoint in `folder` when all ranks find their share of it good; else None and why."""
    found, reason = None, ""
    if not folder.parent.is_dir():
        raise OSError(f"{folder.parent}: expected the folder of this training's checkpoints; is the tier mounted?")
    try:
        found = contents.open(folder, manifest_sha256)
        found.verify(found.share(world.rank, world.size))
    except format.Damaged as damage:
        reason = str(damage)
    reasons = [reason for reason in world.gather(reason) if reason]
    return (None, reasons[0]) if reasons else (found, "")
