"""Commits: the checkpoints of a training that count. A commit is one small file; the bytes lie on a tier.

A commit counts when the newest claim lists it, or when it carries the newest claim's token, and when it was neither set
aside nor pruned. A record that is damaged does not count and is named; the others decide.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.record import files, removals
from slipway.trainer.record.claims import FORMAT, Claim, Token

_NAME = re.compile(r"\d{9,}\.\d{6,}\.\d{4,}")
GIVEN_UP = "its generation is over"
"""Why a save made no commit although nothing is wrong with it."""


@dataclass(frozen=True)
class Commit:
    """One committed checkpoint. `folder` is relative to the durable tier."""

    step: int
    token: Token
    folder: str
    manifest: str
    """SHA-256 of the checkpoint's manifest."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    at: float = 0.0
    tier: str = "durable"
    """Where its bytes were written first; see `slipway.trainer.checkpoint.tiers.replicas` for further copies."""

    @property
    def name(self) -> str:
        return f"{self.step:09d}.{self.token}"


def token_of(name: str) -> Token:
    """The token under which the commit of this name was made."""
    return Token.parse(name.split(".", 1)[1])


def step_of(name: str) -> int:
    """The step of the commit of this name."""
    return int(name.split(".", 1)[0])


def under(folder: Path, claim: Claim | None) -> list[Commit]:
    """The commits that count while `claim` is the newest claim, by step. Raises Unreadable."""
    return [commit for name in names_under(folder, claim) if isinstance(commit := read(folder, name), Commit)]


def damaged(folder: Path, claim: Claim | None) -> dict[str, str]:
    """Why the record of a commit that would count cannot be used, by the commit's name. Raises Unreadable."""
    readings = ((name, read(folder, name)) for name in names_under(folder, claim))
    return {name: reason for name, reason in readings if isinstance(reason, str)}


def names_under(folder: Path, claim: Claim | None) -> list[str]:
    """The names of the commits that count while `claim` is the newest claim, by step; opens no record."""
    if claim is None:
        return []
    out = removals.names_under(folder, claim)
    return [name for name in let_through(recorded(folder, claim), claim) if name not in out]


def let_through(names: Iterable[str], claim: Claim) -> list[str]:
    """Those of the commits on record that the fence lets through; some may have been removed since."""
    sealed = frozenset(claim.sealed)
    own = f".{claim.token}"
    return [name for name in names if name in sealed or name.endswith(own)]


def recorded(folder: Path, claim: Claim | None) -> list[str]:
    """The names of all commits on record, including those of superseded tokens. Raises Unreadable."""
    entries = files.entries(folder / files.COMMITS)
    if entries is None and _has_folder(claim):
        raise files.Unreadable(f"{folder / files.COMMITS}: the folder of the commits is gone. {files.REMEDY}")
    names = sorted(name.removesuffix(".json") for name in entries or () if name.endswith(".json"))
    return [name for name in names if _NAME.fullmatch(name)]


def make_folder(folder: Path, claim: Claim | None) -> None:
    """Make the folder of the commits, unless a claim has made it before: then it is there, or something is wrong."""
    if not _has_folder(claim):
        (folder / files.COMMITS).mkdir(exist_ok=True)


def create(folder: Path, value: Commit) -> bool:
    """Write a commit; False when there is one of its name. Raises OSError."""
    return codec.create_only(files.named(folder, files.COMMITS, value.name), value, FORMAT)


def _has_folder(claim: Claim | None) -> bool:
    """Whether there must be a folder of commits; only a claim of an earlier version made none."""
    return claim is not None and bool(claim.number or claim.sealed)


def read(folder: Path, name: str) -> Commit | str:
    """The commit of this name, or why its record cannot be used. Raises OSError."""
    path = files.named(folder, files.COMMITS, name)
    try:
        commit = codec.read(path, Commit, FORMAT)
    except codec.OtherFormat:
        raise
    except codec.UndecodableRecord as damage:
        return str(damage)
    return commit if commit.name == name else f"{path}: found the record of {commit.name}"
