"""Removals: commits that were set aside because they are damaged, or pruned because no tier keeps them.

A trainer removes under its token, which is in the name of the record: `<commit>.by.<token>.json`. Such a record counts
while its token is the newest claim's, and afterwards when the claim that followed has listed it. So a trainer that was
superseded, and does not know it yet, removes nothing. The control plane and people remove without a token. A copy on
one tier is withdrawn in the same way: `withdrawn/<commit>/<tier>.by.<token>.json`.
"""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, codec
from slipway.trainer.record import claims, files
from slipway.trainer.record.claims import FORMAT, Claim, Token

BY = ".by."
"""In the name of a record, before the token of the trainer that wrote it."""
_NAME = re.compile(r"(\d{9,}\.\d{6,}\.\d{4,})(?:\.by\.(\d{6,}\.\d{4,}))?")


@dataclass(frozen=True)
class Removal:
    """A commit that no longer counts."""

    commit: str
    reason: str
    at: float


def names_under(folder: Path, claim: Claim | None) -> set[str]:
    """The commits that count no more while `claim` is the newest claim; opens no record. Raises Unreadable."""
    return {_commit(record) for where in (files.SET_ASIDE, files.PRUNED) for record in under(folder, where, claim)}


def under(folder: Path, where: str, claim: Claim | None) -> list[str]:
    """The names of the records in `where` that count. Raises Unreadable."""
    listed = frozenset(claim.removals) if claim else frozenset[str]()
    own = str(claim.token) if claim else ""
    matches = ((record, _NAME.fullmatch(record)) for record in files.names(folder, where))
    return [record for record, match in matches if match and (match[2] in (None, own) or record in listed)]


def by_tokens(folder: Path, claim: Claim | None, sealed: Iterable[str]) -> tuple[str, ...]:
    """The records by trainers that count, of commits set aside and of copies withdrawn: the next claim lists them.

    `sealed` are the commits that it seals: of others no copy matters any more.
    """
    aside = [record for record in under(folder, files.SET_ASIDE, claim) if BY in record]
    some = set(files.entries(folder / files.WITHDRAWN) or ()).intersection(sealed)
    copies = [f"{name}/{record}" for name in sorted(some) for record in withdrawn(folder, name, claim).values()]
    return (*aside, *(record for record in copies if BY in record))


def withdrawn(folder: Path, commit: str, claim: Claim | None) -> dict[str, str]:
    """The tiers whose copy of a commit is withdrawn while `claim` is the newest claim, each with its record's name.

    Raises Unreadable.
    """
    listed = frozenset(claim.removals) if claim else frozenset[str]()
    own = str(claim.token) if claim else ""
    records: dict[str, str] = {}
    for record in files.names(folder / files.WITHDRAWN, commit):
        tier, _, token = record.partition(BY)
        if token in ("", own) or f"{commit}/{record}" in listed:
            records.setdefault(tier, record)
    return records


def commits(folder: Path, where: str) -> list[str]:
    """The names of the commits that were set aside, or pruned. Raises Unreadable."""
    return sorted({_commit(record) for record in under(folder, where, claims.newest(folder))})


def reasons(folder: Path) -> dict[str, str]:
    """The commits that were set aside by name, each with its reason."""
    return {removal.commit: removal.reason for removal in set_aside(folder)}


def set_aside(folder: Path) -> list[Removal]:
    """The commits that were set aside as damaged. A record that is damaged itself has the time of its file."""
    removal_by_commit = {}
    for record in under(folder, files.SET_ASIDE, claims.newest(folder)):
        path = files.named(folder, files.SET_ASIDE, record)
        commit = _commit(record)
        try:
            removal_by_commit[commit] = codec.read(path, Removal, FORMAT)
        except codec.UndecodableRecord as damage:
            removal_by_commit[commit] = Removal(commit, f"the reason is not known: {damage}", path.stat().st_mtime)
    return [removal_by_commit[commit] for commit in sorted(removal_by_commit)]


def take_out(folder: Path, where: str, commit: str, reason: str, token: Token | None) -> bool:
    """Write that a commit no longer counts; False when that is on record. Raises Superseded, and OSError.

    With a token it counts only if that is the newest claim's, before the write and after it.
    """
    if token is not None:
        assert Token.parse(commit.split(".", 1)[1]) <= token, f"{token} removes {commit}, which is newer"
        claims.check(folder, token)
    if commit in commits(folder, where):
        return False
    name = commit if token is None else f"{commit}.by.{token}"
    is_new = codec.create_only(files.named(folder, where, name), Removal(commit, reason, time.time()), FORMAT)
    if token is not None:
        claims.check(folder, token)
    return is_new


def take_back(folder: Path, commit: str) -> bool:
    """Have a commit that was set aside count again; its records move to `taken-back/`. Returns False if there are none.

    An earlier version also pruned such a commit; this is undone as well. The commit counts only if the newest claim has
    sealed it or has its token: a commit that was set aside under a claim of an earlier version is not in later lists.
    """
    paths = [
        files.named(folder, where, record)
        for where in (files.SET_ASIDE, files.PRUNED)
        for record in files.names(folder, where)
        if _commit(record) == commit
    ]
    for path in paths:
        atomic.move(path, files.named(folder, files.TAKEN_BACK, f"{path.stem}.{time.time_ns()}"))
    return bool(paths)


def _commit(record: str) -> str:
    return record.split(BY)[0]
