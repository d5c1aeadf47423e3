"""Retention of a training's checkpoints on the tiers that all nodes share: withdrawn on record, then removed.

A checkpoint is withdrawn on record before its bytes are removed, so that no reader finds a checkpoint whose bytes are
going. A retention that was interrupted anywhere is continued by the next one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.checkpoint.retention import rules as retention
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, Tier
from slipway.trainer.config.operation import RetentionRule
from slipway.trainer.record import fence


@dataclass(frozen=True)
class Patience:
    """For how many seconds checkpoints that do not count stay on a tier, from when they were written."""

    damaged: float
    """Copies that were found damaged: a person may want to look into them."""
    unlisted: float
    """Checkpoints that are on no record: longer than any copy takes until it is on record."""


def decide(
    facts: TrainingFacts, tiers: Mapping[str, Tier], losses: Mapping[str, float], referred: retention.Reasons
) -> retention.RemovalPlan:
    """What goes from these tiers, and, once the training is over, what goes from the nodes' NVMe.

    `losses` and `referred` are by the name of a commit, as of `retention.reasons_to_keep`. Of a training whose
    checkpoints were let go only those stay that are referred to.
    """
    storage = facts.storage
    rules: dict[str, RetentionRule | None] = {DURABLE: storage.durable, BACKUP: storage.backup}
    rules = {tier: rule for tier, rule in rules.items() if tier in tiers} | ({} if facts.unfinished else {NVME: None})
    if facts.let_go and not facts.unfinished:
        going = [commit for commit in facts.commits if not referred.get(commit.name)]
        return retention.removal_plan(going, facts.holders, dict.fromkeys(rules), losses, referred)
    return retention.removal_plan(facts.commits, facts.holders, rules, losses, referred)


def condemned(facts: TrainingFacts, name: str, found: Mapping[str, float], patience: Patience, now: float) -> list[str]:
    """Which of the folders `found` on a tier, with the times of their manifests, are to go by what is on record.

    Only `Remover` removes them, by what is on record then. Raises OSError and ValueError.
    """
    counts = {commit.name for commit in facts.commits_on(name)}
    withdrawn = replicas.withdrawn_copies(facts.folder, name)
    damaged = {commit for commit, was in withdrawn.items() if was} | set(fence.set_aside_reasons(facts.folder))
    given_up = (set(withdrawn) | set(fence.pruned(facts.folder))) - damaged
    going = []
    for folder, written in found.items():
        commit, age = folder.rpartition("/")[2], now - written
        stays = patience.damaged if commit in damaged else patience.unlisted
        if commit not in counts and (commit in given_up or age > stays):
            going.append(folder)
    return going
