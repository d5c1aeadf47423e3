"""Retention of a training's checkpoints on the tiers that all nodes share: withdrawn on record, then removed.

Whatever is on record goes first, so that nobody is told of a checkpoint whose bytes are being removed. Broken off
anywhere, the next retention goes on from there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from resources.training_store import TrainingStore
from trainer import fence
from trainer.checkpoint import replicas, retention
from trainer.checkpoint.interval import BACKUP, DURABLE, NVME
from trainer.checkpoint.tiers import Tier
from trainer.operation import Keep


@dataclass(frozen=True)
class Patience:
    """For how many seconds what does not count stays on a tier, since it was written."""

    damaged: float
    """Copies found damaged: for whoever looks into them."""
    unlisted: float
    """Checkpoints that are on no record: longer than any copy takes until it is."""


def decide(
    store: TrainingStore, tiers: Mapping[str, Tier], losses: Mapping[str, float], referred: retention.Reasons
) -> retention.Plan:
    """What goes from these tiers, and from the nodes' NVMe once the training is over: nobody restores from it then.

    `losses` and `referred` are by the name of a commit, as of `retention.kept`.
    """
    commits, storage = store.commits(), store.storage()
    rules: dict[str, Keep | None] = {DURABLE: storage.durable, BACKUP: storage.backup}
    rules = {tier: rule for tier, rule in rules.items() if tier in tiers} | ({} if store.unfinished else {NVME: None})
    return retention.plan(commits, replicas.holders(store.folder, commits), rules, losses, referred)


def condemned(store: TrainingStore, name: str, tier: Tier, patience: Patience, now: float) -> list[str]:
    """The folders of a training on a tier whose bytes are to go, by what is on record. Raises tiers.Unavailable."""
    found = tier.folders(f"checkpoints/{store.id}")
    counts = {commit.name for commit in store.commits(name)}
    withdrawn = replicas.withdrawn(store.folder, name)
    damaged = {commit for commit, was in withdrawn.items() if was} | set(fence.set_aside_reasons(store.folder))
    given_up = (set(withdrawn) | set(fence.pruned(store.folder))) - damaged
    going = []
    for folder, written in found.items():
        commit, age = folder.rpartition("/")[2], now - written
        stays = patience.damaged if commit in damaged else patience.unlisted
        if commit not in counts and (commit in given_up or age > stays):
            going.append(folder)
    return going
