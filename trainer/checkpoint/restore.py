"""Restore: the newest committed checkpoint that verifies; damaged ones are set aside with their reason."""

from collections.abc import Callable
from pathlib import Path

from trainer import fence
from trainer.checkpoint import format


def newest_good(
    store: Path, durable: Path, on_damaged: Callable[[fence.Commit, str], None]
) -> tuple[fence.Commit, dict[str, bytes]] | None:
    """The newest valid commit whose every byte verifies, with its files; None when there is none.

    A damaged one is taken out of what counts, `on_damaged` is told, and the one before is tried.
    """
    for commit in reversed(fence.commits(store)):
        try:
            return commit, format.read(durable / commit.folder, commit.manifest)
        except format.Damaged as damage:
            fence.set_aside(store, commit, str(damage))
            on_damaged(commit, str(damage))
    return None
