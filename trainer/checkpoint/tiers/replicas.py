"""Replicas: the records, in the training store, of the tiers that hold a copy of a commit.

The commit itself names the tier to which it was written. Each further copy has one record, made when the copy is
complete. Before retention removes a copy, a record withdraws it; a damaged copy is withdrawn with the reason, so that
no reader uses it again. A record never changes. A trainer withdraws copies under its token, as it sets commits aside
(`slipway.trainer.record.removals`): the withdrawals of a superseded trainer do not count.

    replicas/<commit>/<tier>.json    a copy, complete and verified
    withdrawn/<commit>/<tier>.json   a copy that no longer counts, with the reason; by a trainer <tier>.by.<token>.json
    taken-back/<commit>.<tier>.<n>.json   the record of a damaged copy that counts again

A fault of a copy is noted once, for the people who look at the checkpoint: a damaged copy, a tier for which a start had
to wait, a copy that a tier did not take. The control plane shows it on the checkpoint. No decision depends on a note.

    faults/<commit>.<tier>.<kind>.json
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, codec, listing
from slipway.trainer.checkpoint.tiers.tier import TIERS
from slipway.trainer.record import fence, files, removals
from slipway.trainer.record.fence import Commit

FORMAT = "slipway.replica/1"
FAULT_FORMAT = "slipway.copy-fault/1"
DAMAGED = "damaged"
AWAY = "away"
NOT_COPIED = "not-copied"


@dataclass(frozen=True)
class ReplicaRecord:
    """A complete copy of a commit on a further tier."""

    commit: str
    tier: str
    at: float
    bytes: int


@dataclass(frozen=True)
class WithdrawalRecord:
    """A copy of a commit that no longer counts."""

    commit: str
    tier: str
    at: float
    why: str
    damaged: bool


def record(store: Path, commit: Commit, tier: str, size: int) -> bool:
    """Record a copy of `size` bytes; returns False if it was on record already."""
    copy = ReplicaRecord(commit.name, tier, time.time(), size)
    return codec.create_only(_path(store, files.REPLICAS, commit.name, tier), copy, FORMAT)


def withdraw(
    store: Path, commit: Commit, tier: str, why: str, damaged: bool = False, token: fence.Token | None = None
) -> bool:
    """Record that a copy no longer counts; its bytes stay. Returns False if it was withdrawn already.

    With a trainer's token, the record counts only if the token is the newest claim's before and after the write; else
    raises fence.Superseded. Raises OSError.
    """
    if token is not None:
        fence.check(store, token)
    if tier in _withdrawn(store, commit.name):
        return False
    if damaged:
        note_fault(store, commit.name, tier, DAMAGED, why)
    copy = WithdrawalRecord(commit.name, tier, time.time(), why, damaged)
    record = tier if token is None else f"{tier}{removals.BY}{token}"
    is_new = codec.create_only(_path(store, files.WITHDRAWN, commit.name, record), copy, FORMAT)
    if token is not None:
        fence.check(store, token)
    return is_new


def set_aside(store: Path, commit: Commit, damaged: Mapping[str, str], token: fence.Token | None = None) -> bool:
    """Withdraw damaged copies, and set the commit aside if no tier holds another copy; returns whether it did.

    `damaged` has the reasons by tier. A trainer passes its token. Raises fence.Superseded with a token, and OSError.
    """
    for tier, reason in damaged.items():
        withdraw(store, commit, tier, reason, damaged=True, token=token)
    return not _holders(store, commit) and fence.set_aside(store, commit, "; ".join(damaged.values()), token)


def withdrawn_copies(store: Path, tier: str) -> dict[str, bool]:
    """The commits whose copy on a tier was withdrawn, by name, each with whether the copy was damaged.

    Raises OSError, and UndecodableRecord.
    """
    return {record.commit: record.damaged for record in _withdrawals(store, tier)}


def damaged(store: Path, tier: str) -> dict[str, WithdrawalRecord]:
    """The withdrawals of damaged copies on a tier, by commit. Raises OSError, and UndecodableRecord."""
    return {record.commit: record for record in _withdrawals(store, tier) if record.damaged}


def take_back(store: Path, commit: str, tier: str) -> bool:
    """Let a withdrawn damaged copy count again, and keep its record aside; returns False if there is none.

    The caller has verified the bytes. Raises OSError.
    """
    records = [
        file_name
        for file_name in files.names(store / files.WITHDRAWN, commit)
        if file_name.split(removals.BY)[0] == tier
    ]
    paths = [_path(store, files.WITHDRAWN, commit, file_name) for file_name in records]
    if not any(codec.read(path, WithdrawalRecord, FORMAT).damaged for path in paths):
        return False
    for path in paths:
        atomic.move(path, files.named(store, files.TAKEN_BACK, f"{commit}.{path.stem}.{time.time_ns()}"))
    forget_fault(store, commit, tier, DAMAGED)
    return True


def damage(store: Path, commit: Commit) -> dict[str, str]:
    """The reasons of a commit's damaged copies, by tier. Raises OSError, UndecodableRecord."""
    withdrawals = {
        tier: codec.read(_path(store, files.WITHDRAWN, commit.name, record), WithdrawalRecord, FORMAT)
        for tier, record in _withdrawn(store, commit.name).items()
    }
    return {tier: withdrawal.why for tier, withdrawal in withdrawals.items() if withdrawal.damaged}


def ever_held(store: Path, commit: Commit) -> set[str]:
    """The tiers that have or had a copy of a commit, withdrawn or not. Raises OSError."""
    return {commit.tier, *_tiers(store, files.REPLICAS, commit)}


def holders(store: Path, commits: Iterable[Commit]) -> dict[str, tuple[str, ...]]:
    """The tiers that hold each commit, by its name, the fastest first. Raises OSError."""
    return {commit.name: _holders(store, commit) for commit in commits}


@dataclass(frozen=True)
class CopyFault:
    """The first fault of a kind of a commit's copy on a tier."""

    commit: str
    tier: str
    kind: str
    reason: str
    at: float

    @property
    def name(self) -> str:
        return f"{self.commit}.{self.tier}.{self.kind}"


def note_fault(store: Path, commit: str, tier: str, kind: str, reason: str) -> None:
    """Note a fault, unless it was noted before. If the store cannot be written, the note is dropped."""
    fault = CopyFault(commit, tier, kind, reason, time.time())
    with contextlib.suppress(OSError):
        codec.create_only(files.named(store, files.FAULTS, fault.name), fault, FAULT_FORMAT)


def noted_faults(store: Path) -> list[CopyFault]:
    """The noted faults, without those that cannot be decoded. Raises OSError."""
    copy_faults = []
    for name in listing.names_if_there(store / files.FAULTS, ".json"):
        with contextlib.suppress(codec.UndecodableRecord, FileNotFoundError):
            copy_faults.append(codec.read(files.named(store, files.FAULTS, name), CopyFault, FAULT_FORMAT))
    return copy_faults


def forget_fault(store: Path, commit: str, tier: str, kind: str) -> None:
    """Remove a note, so that the next such fault is noted again. Raises OSError."""
    files.named(store, files.FAULTS, f"{commit}.{tier}.{kind}").unlink(missing_ok=True)


def _holders(store: Path, commit: Commit) -> tuple[str, ...]:
    copies = {commit.tier, *_tiers(store, files.REPLICAS, commit)} - _withdrawn(store, commit.name).keys()
    return tuple(tier for tier in TIERS if tier in copies)


def _withdrawals(store: Path, tier: str) -> Iterator[WithdrawalRecord]:
    for commit in listing.names_if_there(store / files.WITHDRAWN):
        name = _withdrawn(store, commit).get(tier)
        if not name:
            continue
        record = codec.read_if_there(_path(store, files.WITHDRAWN, commit, name), WithdrawalRecord, FORMAT)
        if record is not None:
            yield record


def _withdrawn(store: Path, commit: str) -> dict[str, str]:
    """The tiers whose copy of a commit is withdrawn, each with its record; reads the claim only if it matters."""
    records = files.names(store / files.WITHDRAWN, commit)
    if not records:
        return {}
    claim = None
    if any(removals.BY in record for record in records):
        claim = fence.newest_claim(store)
    return removals.withdrawn(store, commit, claim)


def _tiers(store: Path, folder: str, commit: Commit) -> set[str]:
    return set(listing.names_if_there(store / folder / commit.name, ".json"))


def _path(store: Path, folder: str, commit: str, tier: str) -> Path:
    return files.named(store / folder, commit, tier)
