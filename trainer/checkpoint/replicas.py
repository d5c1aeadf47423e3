"""Replicas: which tiers hold a commit, as it stands on record in the training store.

A commit says itself where it was written first; each further copy is one record, made when all of it is there. What
retention takes away is withdrawn on record before a byte goes, and a copy found damaged is withdrawn with the reason,
so that nobody reads from it again. No record is ever changed.

    replicas/<commit>/<tier>.json    a copy, complete and verified
    withdrawn/<commit>/<tier>.json   a copy that counts no more, with the reason
"""

import json
import time
from collections.abc import Iterable
from pathlib import Path

from trainer import atomic, fence
from trainer.checkpoint.interval import TIERS
from trainer.fence import Commit

FORMAT = "slipway.replica/1"


def record(store: Path, commit: Commit, tier: str, size: int) -> bool:
    """Record a copy of `size` bytes. False when it was on record."""
    return _create(store / "replicas" / commit.name / f"{tier}.json", commit, tier, bytes=size)


def withdraw(store: Path, commit: Commit, tier: str, why: str, damaged: bool = False) -> bool:
    """Take one copy out of what counts; its bytes are still there. False when it was out already."""
    path = store / "withdrawn" / commit.name / f"{tier}.json"
    return _create(path, commit, tier, why=why, damaged=damaged)


def set_aside(store: Path, commit: Commit, tier: str, reason: str) -> bool:
    """Take a damaged copy out of what counts, and the commit with it when no tier holds another; True then."""
    withdraw(store, commit, tier, reason, damaged=True)
    return not _holders(store, commit) and fence.set_aside(store, commit, reason)


def withdrawn(store: Path, tier: str) -> dict[str, bool]:
    """The names of the commits whose copy on a tier was withdrawn, and of each whether it was found damaged."""
    records = (json.loads(path.read_bytes()) for path in sorted(store.glob(f"withdrawn/*/{tier}.json")))
    return {record["commit"]: record["damaged"] for record in records}


def holders(store: Path, commits: Iterable[Commit]) -> dict[str, tuple[str, ...]]:
    """The tiers that hold each commit, by its name, the fastest first."""
    return {commit.name: _holders(store, commit) for commit in commits}


def _holders(store: Path, commit: Commit) -> tuple[str, ...]:
    copies = {commit.tier, *_names(store / "replicas" / commit.name)} - _names(store / "withdrawn" / commit.name)
    return tuple(tier for tier in TIERS if tier in copies)


def _names(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.json")}


def _create(path: Path, commit: Commit, tier: str, **fields: str | int | bool) -> bool:
    value = {"format": FORMAT, "commit": commit.name, "tier": tier, "at": time.time(), **fields}
    return atomic.create_only(path, atomic.readable_json(value))
