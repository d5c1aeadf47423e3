"""Retention of checkpoints: which of them stay on a tier, each with the reasons for it.

One pure decision for all tiers; the control plane carries it out on the durable tier and the backup, the trainer on
each node's NVMe. What a tier's rule does not name and nobody refers to goes.
"""

from collections.abc import Iterable, Mapping, Sequence

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


def surplus(commits: Sequence[Commit], rule: Keep, losses: Mapping[str, float], referred: Reasons) -> list[Commit]:
    """The commits of a tier that go, the oldest first; arguments as of `kept`."""
    staying = kept(commits, rule, losses, referred)
    return [commit for commit in sorted(commits, key=lambda commit: commit.step) if commit.name not in staying]


def losses(commits: Iterable[Commit], evaluated: Mapping[str, float]) -> dict[str, float]:
    """The validation loss of each commit that has one: as evaluated, else as the training itself measured it."""
    measured = {c.name: c.metrics["validation_loss"] for c in commits if "validation_loss" in c.metrics}
    return {**measured, **evaluated}
