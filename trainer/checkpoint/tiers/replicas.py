"""Replicas: the records in the training store of which tiers hold a copy of a commit.

The commit itself names the tier that it was written to. Each further copy has one record, made when the copy is
complete. A copy that retention removes is withdrawn on record before its bytes are removed, and a damaged copy is
withdrawn with the reason, so that no reader uses it again. A record is never changed. A trainer withdraws under its
token, as it sets a commit aside (`slipway.trainer.record.removals`): once it is superseded, what it withdraws does not
count.

    replicas/<commit>/<tier>.json    a copy, complete and verified
    withdrawn/<commit>/<tier>.json   a copy that no longer counts, with the reason; by a trainer <tier>.by.<token>.json
    taken-back/<commit>.<tier>.<n>.json   the record of a damaged copy that counts again

What went wrong with a copy is noted for the people who look at the checkpoint, once, by whoever meets it: a copy that
is damaged, a tier that a start had to wait for, a copy that a tier did not take. The control plane shows each on the
checkpoint. A note decides nothing.

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
DAMAGED, AWAY, NOT_COPIED = "damaged", "away", "not-copied"


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
    """Record a copy of `size` bytes. False when it was on record already."""
    copy = ReplicaRecord(commit.name, tier, time.time(), size)
    return codec.create_only(_path(store, files.REPLICAS, commit.name, tier), copy, FORMAT)


def withdraw(
    store: Path, commit: Commit, tier: str, why: str, damaged: bool = False, token: fence.Token | None = None
) -> bool:
    """Record that a copy no longer counts; its bytes stay. False when it was withdrawn already.

    With a trainer's token, it counts only if that is the newest claim's, before the write and after it. Raises
    fence.Superseded then, and OSError.
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
    """Withdraw damaged copies, and set the commit aside when no tier holds another copy; True then.

    `damaged` has by tier what is wrong with the bytes there. A trainer does it under its token. Raises
    fence.Superseded then, and OSError.
    """
    for tier, reason in damaged.items():
        withdraw(store, commit, tier, reason, damaged=True, token=token)
    return not _holders(store, commit) and fence.set_aside(store, commit, "; ".join(damaged.values()), token)


def withdrawn_copies(store: Path, tier: str) -> dict[str, bool]:
    """The names of the commits whose copy on a tier was withdrawn, each with whether the copy was damaged.

    Raises OSError, and UndecodableRecord.
    """
    return {record.commit: record.damaged for record in _withdrawals(store, tier)}


def damaged(store: Path, tier: str) -> dict[str, WithdrawalRecord]:
    """The copies on a tier that were found damaged, by commit. Raises OSError, and UndecodableRecord."""
    return {record.commit: record for record in _withdrawals(store, tier) if record.damaged}


def take_back(store: Path, commit: str, tier: str) -> bool:
    """Have a copy that was found damaged count again; the record of it is kept. False when there is none.

    Raises OSError. The caller has verified the bytes.
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
    """What is wrong with the copies of a commit that were found damaged, by tier. Raises OSError, UndecodableRecord."""
    withdrawals = {
        tier: codec.read(_path(store, files.WITHDRAWN, commit.name, record), WithdrawalRecord, FORMAT)
        for tier, record in _withdrawn(store, commit.name).items()
    }
    return {tier: withdrawal.why for tier, withdrawal in withdrawals.items() if withdrawal.damaged}


def ever_held(store: Path, commit: Commit) -> set[str]:
    """The tiers on which there was a copy of a commit, withdrawn or not. Raises OSError."""
    return {commit.tier, *_tiers(store, files.REPLICAS, commit)}


def holders(store: Path, commits: Iterable[Commit]) -> dict[str, tuple[str, ...]]:
    """The tiers that hold each commit, by its name, the fastest first. Raises OSError."""
    return {commit.name: _holders(store, commit) for commit in commits}


@dataclass(frozen=True)
class CopyFault:
    """What went wrong with the copy of a commit on a tier, the first time."""

    commit: str
    tier: str
    kind: str
    reason: str
    at: float

    @property
    def name(self) -> str:
        return f"{self.commit}.{self.tier}.{self.kind}"


def note_fault(store: Path, commit: str, tier: str, kind: str, reason: str) -> None:
    """Note a fault, unless it was noted before. On a store that cannot be written only the note is lost."""
    fault = CopyFault(commit, tier, kind, reason, time.time())
    with contextlib.suppress(OSError):
        codec.create_only(files.named(store, files.FAULTS, fault.name), fault, FAULT_FORMAT)


def noted_faults(store: Path) -> list[CopyFault]:
    """The faults that were noted. One that cannot be decoded is left out. Raises OSError."""
    copy_faults = []
    for name in listing.names_if_there(store / files.FAULTS, ".json"):
        with contextlib.suppress(codec.UndecodableRecord, FileNotFoundError):
            copy_faults.append(codec.read(files.named(store, files.FAULTS, name), CopyFault, FAULT_FORMAT))
    return copy_faults


def forget_fault(store: Path, commit: str, tier: str, kind: str) -> None:
    """The fault is past: the next one is noted anew. Raises OSError."""
    files.named(store, files.FAULTS, f"{commit}.{tier}.{kind}").unlink(missing_ok=True)


def _holders(store: Path, commit: Commit) -> tuple[str, ...]:
    copies = {commit.tier, *_tiers(store, files.REPLICAS, commit)} - _withdrawn(store, commit.name).keys()
    return tuple(tier for tier in TIERS if tier in copies)


def _withdrawals(store: Path, tier: str) -> Iterator[WithdrawalRecord]:
    for commit in listing.names_if_there(store / files.WITHDRAWN):
        name = _withdrawn(store, commit).get(tier)
        path = _path(store, files.WITHDRAWN, commit, name) if name else None
        if path and (record := codec.read_if_there(path, WithdrawalRecord, FORMAT)) is not None:
            yield record


def _withdrawn(store: Path, commit: str) -> dict[str, str]:
    """The tiers whose copy of a commit is withdrawn, each with its record; reads the claim only where that matters."""
    records = files.names(store / files.WITHDRAWN, commit)
    claim = fence.newest_claim(store) if any(removals.BY in record for record in records) else None
    return removals.withdrawn(store, commit, claim) if records else {}


def _tiers(store: Path, folder: str, commit: Commit) -> set[str]:
    return set(listing.names_if_there(store / folder / commit.name, ".json"))


def _path(store: Path, folder: str, commit: str, tier: str) -> Path:
    return files.named(store / folder, commit, tier)
