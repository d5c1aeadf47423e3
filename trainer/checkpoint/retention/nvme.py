"""Retention on a node's NVMe, by the node itself: a surplus checkpoint is withdrawn on record, then removed.

While a training runs, its writer removes surplus checkpoints (`remove_surplus`). When the training is over, the node
removes all its checkpoints (`clear`), after it has copied the newest to the durable tier, if no lasting tier has one as
new.
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

    These stay: the commits `copying`, which are being copied to other tiers; held commits; and checkpoints that are
    newer than the newest commit, because they are being written. Raises fence.Superseded, before any removal, if
    `token` is not the newest claim's; and OSError, ValueError and TierUnavailable if the records or the NVMe cannot be
    read.
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
    """Remove the checkpoints that are withdrawn on record; returns their names.

    For nodes other than rank 0's, which withdraws them. Raises as `remove_surplus`.
    """
    return _remove_old(store, checkpoints, fence.commits(store), token)


def _remove_old(store: Path, checkpoints: Path, commits: Sequence[Commit], token: Token) -> list[str]:
    """Remove the checkpoints that do not count and are no newer than the newest commit; returns their names."""
    newest = max(((commit.token, commit.step) for commit in commits), default=(Token(0), 0))
    root = checkpoints.parent.parent
    under = f"{paths.CHECKPOINTS}/{checkpoints.name}"
    tier = FolderTier(root)
    remover = Remover(store, NVME, tier, token=token)
    old = [folder for folder in tier.folders(under) if _token_and_step(folder) <= newest]
    return [folder.rpartition("/")[2] for folder in old if not remover.remove(folder)]


@dataclass(frozen=True)
class Cleared:
    """The outcome for a training's checkpoints on a node, by name."""

    removed: list[str]
    copied: list[str]
    """To the durable tier, before the removal."""
    retained: dict[str, str]
    """With the reasons."""


def clear(nvme: Path, durable: Path, store: Path) -> Cleared:
    """Remove the checkpoints of a training that is over from this node, after a copy of the newest if necessary.

    Raises OSError, ValueError and TierUnavailable if the records or a tier cannot be read; the other checkpoints stay.
    """
    tier = FolderTier(nvme)
    under = paths.checkpoints(store.name)
    if not (nvme / under).exists():
        return Cleared([], [], {})
    names = [folder.rpartition("/")[2] for folder in tier.folders(under)]
    live = why_not_over(store)
    if live:
        return Cleared([], [], dict.fromkeys(names, live))
    copied = _save_uncovered(nvme, durable, store) if names else []
    done = Cleared([], copied, {})
    for name in names:
        folder = f"{under}/{name}"
        why = why_not_over(store) or _withdraw_covered(store, name) or Remover(store, NVME, tier).remove(folder)
        if why:
            done.retained[name] = why
        else:
            done.removed.append(name)
    if not tier.folders(under) and not why_not_over(store):
        removal.remove_folder(nvme, under)
    return done


def why_not_over(store: Path) -> str:
    """Why a process may still write or restore here; empty if the newest incarnation has ended."""
    claim = None
    if listing.names(store / files.CLAIMS, ".json"):
        claim = fence.newest_claim(store)
    if claim is None:
        return "no claim can be read"
    return "" if fence.read_exit(store, claim.token.incarnation) else f"{claim.token} has not ended"


def _save_uncovered(nvme: Path, durable: Path, store: Path) -> list[str]:
    """Copy this node's newest good commit to the durable tier, if no lasting tier has one as new; returns its name.

    Of a commit that is spread over several nodes, each node copies its files; the last of them returns the name.
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
                return []  # another node has a copy of the damaged files
            replicas.set_aside(store, commit, {NVME: str(damage)})
            continue
        if not size:
            return []  # the other nodes copy the rest
        replicas.record(store, commit, DURABLE, size)
        return [commit.name]
    return []


def _withdraw_covered(store: Path, name: str) -> str:
    """Withdraw a commit's copy on the NVMe if a lasting tier holds it or a newer one; else returns why it stays."""
    for commit in fence.commits(store):
        if commit.name != name:
            continue
        why = _why_uncovered(store, commit) or "; ".join(holds.reasons(store, name, time.time()))
        if why:
            return why
        is_only_copy = replicas.holders(store, [commit])[name] == (NVME,)
        pruned = (commit,) if is_only_copy else ()
        rules.record_removals(store, rules.RemovalPlan(((NVME, commit),), pruned, {}))
    return ""


def _why_uncovered(store: Path, commit: Commit) -> str:
    """Why a commit stays on the NVMe: no lasting tier holds it or a newer one; empty if it may go."""
    commits = fence.commits(store)
    holders = replicas.holders(store, commits)
    nvme_commits = [commit for commit in commits if NVME in holders[commit.name]]
    return "; ".join(rules.uncovered(nvme_commits, commits, holders).get(commit.name, ()))


def _token_and_step(folder: str) -> tuple[Token, int]:
    """A checkpoint's token and step, from the name of its folder."""
    step, _, token = folder.rpartition("/")[2].partition(".")
    return Token.parse(token), int(step)
