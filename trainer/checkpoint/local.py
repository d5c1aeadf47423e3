"""Retention on a node's NVMe, by the node itself: what its rule gives up is withdrawn on record, then removed."""

import shutil
from collections.abc import Collection
from pathlib import Path

from trainer import fence
from trainer.checkpoint import format, replicas, retention
from trainer.checkpoint.interval import NVME
from trainer.operation import Keep


def retain(store: Path, checkpoints: Path, rule: Keep, copied: Collection[str]) -> list[str]:
    """Bring the folder of a training's checkpoints on the NVMe under its rule; the names of those that went.

    `copied` are still being copied to other tiers and stay. Nothing newer than the newest commit is touched.
    """
    commits = fence.commits(store)
    holders = replicas.holders(store, commits)
    referred = {name: ["it is being copied"] for name in copied}
    plan = retention.plan(commits, holders, {NVME: rule}, retention.losses(commits, {}), referred)
    retention.carry_out(store, plan)
    staying = {commit.name for commit in commits if NVME in holders[commit.name]}
    staying -= {commit.name for _, commit in plan.withdrawn}
    newest = max(((commit.token, commit.step) for commit in commits), default=(fence.Token(0), 0))
    going = [path for path in checkpoints.glob(f"[!.]*/{format.MANIFEST}") if path.parent.name not in staying]
    gone = [path.parent for path in going if _place(path.parent.name) <= newest]
    for folder in gone:
        shutil.rmtree(folder)
    return [folder.name for folder in gone]


def _place(name: str) -> tuple[fence.Token, int]:
    """A checkpoint's token and step, by the name of its folder."""
    step, _, token = name.partition(".")
    return fence.Token.parse(token), int(step)
