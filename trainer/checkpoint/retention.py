"""Retention of checkpoints: which of them stay on a tier, each with the reasons for it.

One pure decision for all tiers; the control plane carries it out on the durable tier and the backup, the trainer on
each node's NVMe. What a tier's rule does not name and nobody refers to goes: on record first, its bytes afterwards.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer import fence
from trainer.checkpoint import replicas
from trainer.fence import Commit
from trainer.operation import Keep

Reasons = Mapping[str, Sequence[str]]
"""By the name of a commit."""


def kept(commits: Sequence[Commit], rule: Keep, losses: Mapping[str, float], referred: Reasons) -> dict[str, list[str]]:
    """The commits of a tier that stay, by name, with why.

    `commits` are those that the tier holds, `losses` their validation losses where they are known, `referred` says
    who needs which. The newest always stays, as `Keep.last` is 1 or more: a live training goes on from it.
    """
    ordered = sorted(commits, key=lambda commit: (commit.step, commit.token))
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
class Plan:
    """What a retention does: the copies that go, the commits that no tier holds then, and why the others stay."""

    withdrawn: tuple[tuple[str, Commit], ...]
    """(tier, commit)"""
    pruned: tuple[Commit, ...]
    kept: Mapping[str, Reasons]
    """By tier and commit."""


def plan(
    commits: Sequence[Commit],
    holders: Mapping[str, Collection[str]],
    rules: Mapping[str, Keep | None],
    losses: Mapping[str, float],
    referred: Reasons,
) -> Plan:
    """What goes from the tiers that `rules` names; a tier without a rule keeps nothing.

    `holders` are the tiers that hold each commit, by its name; `losses` and `referred` as of `kept`.
    """
    held = {tier: [commit for commit in commits if tier in holders[commit.name]] for tier in rules}
    staying = {tier: kept(held[tier], rule, losses, referred) if rule else {} for tier, rule in rules.items()}
    going = [(tier, commit) for tier in rules for commit in held[tier] if commit.name not in staying[tier]]
    taken = {(tier, commit.name) for tier, commit in going}
    lost = [commit for commit in commits if not {t for t in holders[commit.name] if (t, commit.name) not in taken}]
    return Plan(tuple(going), tuple(lost), staying)


def carry_out(store: Path, decided: Plan) -> None:
    """Put a plan on record: from now on nobody is told of what goes, and its bytes may be removed."""
    for tier, commit in decided.withdrawn:
        replicas.withdraw(store, commit, tier, "retention: no rule keeps it there and nobody refers to it")
    for commit in decided.pruned:
        fence.prune(store, commit, "retention: no tier keeps it")


def losses(commits: Iterable[Commit], evaluated: Mapping[str, float]) -> dict[str, float]:
    """The validation loss of each commit that has one: as evaluated, else as the training itself measured it."""
    measured = {c.name: c.metrics["validation_loss"] for c in commits if "validation_loss" in c.metrics}
    return {**measured, **evaluated}
