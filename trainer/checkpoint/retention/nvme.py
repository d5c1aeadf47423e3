"""Retention on a node's NVMe, by the node itself: a surplus checkpoint is withdrawn on record, then removed.

While a training runs, its writer keeps the NVMe small (`remove_surplus`). When it is over, the node clears what is left
of it (`clear`); what is newer than all that lasts is brought to the durable tier first.
"""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import listing, paths, removal
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.retention import holds, rules
from slipway.trainer.checkpoint.retention.removal import Records, Remover
from slipway.trainer.checkpoint.tiers import replicas, ring
from slipway.trainer.checkpoint.tiers.copying import replicate, replicate_share
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.checkpoint.tiers.tier import DURABLE, NVME
from slipway.trainer.config.operation import RetentionRule
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Commit, Token


def remove_surplus(
    store: Path, checkpoints: Path, rule: RetentionRule, copying: Collection[str], token: Token
) -> list[str]:
    """Remove a training's checkpoints on the NVMe that its rule does not keep; returns their names.

    The commits `copying` are being copied to other tiers, and stay, and so does what is held. A checkpoint that is
    newer than the newest commit is being written, and stays. Raises fence.Superseded, and removes nothing, when `token`
    is not the newest claim's; OSError, ValueError and TierUnavailable where the records or the NVMe cannot be read.
    """
    Records.read(store)
    commits = fence.commits(store)
    holders = replicas.holders(store, commits)
    referred = {commit.name: holds.reasons(store, commit.name, time.time()) for commit in commits}
    referred |= {name: ["it is being copied"] for name in copying}
    plan = rules.removal_plan(commits, holders, {NVME: rule}, rules.validation_losses(commits, {}), referred)
    rules.record_removals(store, plan, token)
    return _remove_old(store, checkpoints, commits, token)


def remove_withdrawn(store: Path, checkpoints: Path, token: Token) -> list[str]:
    """Remove what no longer counts on record from a node other than rank 0's, which decides; returns the names.

    Raises as `remove_surplus`.
    """
    return _remove_old(store, checkpoints, fence.commits(store), token)


def _remove_old(store: Path, checkpoints: Path, commits: Sequence[Commit], token: Token) -> list[str]:
    """Remove the checkpoints that do not count and are no newer than the newest commit; returns their names."""
    newest = max(((commit.token, commit.step) for commit in commits), default=(Token(0), 0))
    root, under = checkpoints.parent.parent, f"{paths.CHECKPOINTS}/{checkpoints.name}"
    tier = FolderTier(root)
    remover = Remover(store, NVME, tier, token=token)
    old = [folder for folder in tier.folders(under) if _token_and_step(folder) <= newest]
    return [folder.rpartition("/")[2] for folder in old if not remover.remove(folder)]


@dataclass(frozen=True)
class Cleared:
    """What became of a training's checkpoints on a node: names, and for what stays, why."""

    removed: list[str]
    copied: list[str]
    """To the durable tier, before they were removed."""
    kept: dict[str, str]


def clear(nvme: Path, durable: Path, store: Path) -> Cleared:
    """Remove the checkpoints of a training that is over from this node; what nothing lasting covers is copied first.

    Raises OSError, ValueError and TierUnavailable where the records or a tier cannot be read, and then keeps the rest.
    """
    tier, under = FolderTier(nvme), paths.checkpoints(store.name)
    if not (nvme / under).exists():
        return Cleared([], [], {})
    names = [folder.rpartition("/")[2] for folder in tier.folders(under)]
    if live := why_not_over(store):
        return Cleared([], [], dict.fromkeys(names, live))
    done = Cleared([], _save_uncovered(nvme, durable, store) if names else [], {})
    for name in names:
        folder = f"{under}/{name}"
        why = why_not_over(store) or _withdraw_covered(store, name) or Remover(store, NVME, tier).remove(folder)
        if why:
            done.kept[name] = why
        else:
            done.removed.append(name)
    if not tier.folders(under) and not why_not_over(store):
        removal.remove_folder(nvme, under)
    return done


def why_not_over(store: Path) -> str:
    """Why a process may still write or restore here; empty when the newest incarnation has ended."""
    if not listing.names(store / files.CLAIMS, ".json") or (claim := fence.newest_claim(store)) is None:
        return "no claim can be read"
    return "" if fence.read_exit(store, claim.token.incarnation) else f"{claim.token} has not ended"


def _save_uncovered(nvme: Path, durable: Path, store: Path) -> list[str]:
    """Copy the newest good commit on this node to the durable tier, if it is newer than all that lasts; its name.

    Each node copies what it has of one that several nodes have together; the last of them returns its name.
    """
    for commit in reversed(fence.commits(store)):
        if not _why_uncovered(store, commit) or not (nvme / commit.folder).is_dir():
            continue
        shared = ring.read_spread(store, commit.name) is not None
        copy = replicate_share if shared else replicate
        try:
            size = copy(nvme / commit.folder, FolderTier(durable), commit.folder, commit.manifest)
        except DamagedCheckpoint as damage:
            if shared:
                return []  # another node has what this one cannot give
            replicas.set_aside(store, commit, {NVME: str(damage)})
            continue
        if not size:
            return []  # the other nodes copy the rest
        replicas.record(store, commit, DURABLE, size)
        return [commit.name]
    return []


def _withdraw_covered(store: Path, name: str) -> str:
    """Withdraw a commit's copy on the NVMe if a tier that lasts holds it or a newer one; else why it stays."""
    for commit in fence.commits(store):
        if commit.name == name:
            if why := _why_uncovered(store, commit) or "; ".join(holds.reasons(store, name, time.time())):
                return why
            alone = replicas.holders(store, [commit])[name] == (NVME,)
            plan = rules.RemovalPlan(((NVME, commit),), (commit,) if alone else (), {})
            rules.record_removals(store, plan)
    return ""


def _why_uncovered(store: Path, commit: Commit) -> str:
    """Why a commit stays on the NVMe: no tier that lasts holds it or a newer one; empty when it may go."""
    commits = fence.commits(store)
    holders = replicas.holders(store, commits)
    nvme_commits = [commit for commit in commits if NVME in holders[commit.name]]
    return "; ".join(rules.uncovered(nvme_commits, commits, holders).get(commit.name, ()))


def _token_and_step(folder: str) -> tuple[Token, int]:
    """A checkpoint's token and step, from the name of its folder."""
    step, _, token = folder.rpartition("/")[2].partition(".")
    return Token.parse(token), int(step)
