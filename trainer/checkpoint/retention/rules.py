"""The rules of retention: the checkpoints that stay on a tier, and why.

One function decides for all tiers. The control plane carries out its decision on the durable tier and the backup, the
trainer on each node's NVMe. A checkpoint that no rule keeps and to which nothing refers is removed: on record first,
its bytes afterwards. A tier that does not outlive a node keeps checkpoints that are newer than all on lasting tiers.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.checkpoint.retention import holds
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.tier import LASTING
from slipway.trainer.config.operation import RetentionRule
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Commit, Token

UNCOVERED = 2
"""The checkpoints that stay on a node's NVMe if they are newer than all on lasting tiers: the newest is the training's
progress, and the one before it replaces it if it is damaged."""
Reasons = Mapping[str, Sequence[str]]
"""Reasons to keep a commit, by its name."""


def reasons_to_keep(
    commits: Sequence[Commit], rule: RetentionRule, losses: Mapping[str, float], referred: Reasons
) -> dict[str, list[str]]:
    """The commits that stay on a tier, by name, each with the reasons.

    `commits` are those on the tier, `losses` their known validation losses, and `referred` the references to them. The
    newest always stays, because `RetentionRule.last` is at least 1: a training resumes from it.
    """
    ordered = sorted(commits, key=_age)
    reasons: dict[str, list[str]] = {}

    def keep(chosen: Iterable[Commit], why: str) -> None:
        for commit in chosen:
            reasons.setdefault(commit.name, []).append(why)

    keep(ordered[-rule.last :], f"one of the last {rule.last}")
    keep((commit for commit in ordered if rule.every and commit.step % rule.every == 0), f"every {rule.every} steps")
    scored = sorted((commit for commit in ordered if commit.name in losses), key=lambda commit: losses[commit.name])
    keep(scored[: rule.best], f"one of the best {rule.best}")
    for commit in ordered:
        for why in referred.get(commit.name, ()):
            keep([commit], why)
    return reasons


@dataclass(frozen=True)
class RemovalPlan:
    """The copies to remove, the commits that no tier then holds, and why the others stay."""

    withdrawn: tuple[tuple[str, Commit], ...]
    """(tier, commit)"""
    pruned: tuple[Commit, ...]
    retained: Mapping[str, Reasons]
    """By tier and commit."""


def removal_plan(
    commits: Sequence[Commit],
    holders: Mapping[str, Collection[str]],
    rules: Mapping[str, RetentionRule | None],
    losses: Mapping[str, float],
    referred: Reasons,
) -> RemovalPlan:
    """The removals from the tiers in `rules`; a tier whose rule is None keeps only commits that no lasting tier covers.

    `holders` are the tiers that hold each commit, by its name; `losses` and `referred` as in `reasons_to_keep`.
    """
    commits_by_tier = {tier: [commit for commit in commits if tier in holders[commit.name]] for tier in rules}
    staying: dict[str, Reasons] = {}
    for tier, rule in rules.items():
        staying[tier] = reasons_to_keep(commits_by_tier[tier], rule, losses, referred) if rule else {}
        if tier not in LASTING:
            staying[tier] = {**uncovered(commits_by_tier[tier], commits, holders), **staying[tier]}
    going = [(tier, commit) for tier in rules for commit in commits_by_tier[tier] if commit.name not in staying[tier]]
    removed_copies = {(tier, commit.name) for tier, commit in going}
    lost = [commit for commit in commits if all((tier, commit.name) in removed_copies for tier in holders[commit.name])]
    return RemovalPlan(tuple(going), tuple(lost), staying)


def uncovered(
    tier_commits: Sequence[Commit], commits: Iterable[Commit], holders: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """The newest `UNCOVERED` of a node's commits `tier_commits` that are newer than all on lasting tiers."""
    lasting = max((_age(commit) for commit in commits if LASTING & set(holders[commit.name])), default=None)
    newer = sorted((commit for commit in tier_commits if lasting is None or _age(commit) > lasting), key=_age)
    return {commit.name: ["no tier that outlives the node holds one as new"] for commit in newer[-UNCOVERED:]}


def _age(commit: Commit) -> tuple[int, Token]:
    return commit.step, commit.token


def record_removals(store: Path, decided: RemovalPlan, token: Token | None = None) -> None:
    """Record a plan: from now on readers ignore its copies, and the bytes may be removed.

    Commits that are held by now stay. A commit that no tier holds because its copies are damaged is set aside and not
    pruned, so that a person may release it; the process that detected the damage may have been killed before. A trainer
    passes its token. Raises fence.Superseded with a token, and OSError.
    """
    if token is not None:
        fence.check(store, token)
    last = {commit.name for tier, commit in decided.withdrawn if tier in LASTING}
    with holds.leaving(store, sorted(last | {commit.name for commit in decided.pruned})):
        now = time.time()
        going = {*(commit.name for _, commit in decided.withdrawn), *(commit.name for commit in decided.pruned)}
        names_on_hold = {name for name in going if holds.reasons(store, name, now)}
        for tier, commit in decided.withdrawn:
            if commit.name not in names_on_hold:
                why = "retention: no rule of the tier keeps it, and nothing refers to it"
                replicas.withdraw(store, commit, tier, why, token=token)
        for commit in decided.pruned:
            if commit.name not in names_on_hold:
                _give_up(store, commit, token)


def _give_up(store: Path, commit: Commit, token: Token | None) -> None:
    """Prune a commit, unless a tier has got a copy meanwhile; set it aside if a copy is damaged."""
    if replicas.holders(store, [commit])[commit.name]:
        return
    damage = replicas.damage(store, commit)
    if damage:
        fence.set_aside(store, commit, "; ".join(damage.values()), token)
    else:
        fence.prune(store, commit, "retention: no tier keeps it", token)


def validation_losses(commits: Iterable[Commit], evaluated: Mapping[str, float]) -> dict[str, float]:
    """The validation loss of each commit that has one: of its evaluation, or else of the training."""
    measured = {
        commit.name: commit.metrics["validation_loss"] for commit in commits if "validation_loss" in commit.metrics
    }
    return {**measured, **evaluated}
