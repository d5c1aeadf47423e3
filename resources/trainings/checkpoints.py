"""Checkpoints of a training on the shared tiers: their faults, missing copies, release, removal and resealing.

`known_faults` and `why_gone` explain to a person what happened to a checkpoint and what to do.

`pending_copy` finds a last checkpoint that the backup lacks once the training is over. While a training runs, its ranks
retry a copy until the tier accepts it or a newer one is due, and once more at the end. If an object store is away for
longer, it misses the last steps, and no rank is left to retry.

`release` makes a checkpoint that was set aside valid again, after every byte of a copy has been verified. The records
of setting it aside stay in `taken-back/`, with who released it, when, and what was verified.

`condemned` lists what the retention removes. A checkpoint is withdrawn in the records before its bytes are removed, so
that no reader finds a checkpoint whose bytes are being removed. The next retention continues an interrupted one.

`reseal_all` wraps the keys of a checkpoint's files with the newest key, so that an older key can be deleted. Each copy
gets one small file (`slipway.trainer.checkpoint.disk.resealing`), written atomically; after an interruption, the next
run seals the remaining copies. No byte of a checkpoint is rewritten. `Resealed.needed` says which keys the copies still
need.
"""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue
from slipway.trainer.base import codec, listing
from slipway.trainer.checkpoint.disk import encryption, resealing
from slipway.trainer.checkpoint.disk.encryption import HEADER, Key
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.resealing import RECORD, WrappedKeys
from slipway.trainer.checkpoint.disk.verification import verified_chunks, verified_manifest
from slipway.trainer.checkpoint.retention import rules as retention
from slipway.trainer.checkpoint.tiers import copying, replicas
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, TIERS, Tier, TierUnavailable
from slipway.trainer.config.operation import RetentionRule
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Commit

NOTHING = "nothing: this does not affect the training or its other checkpoints"
RELEASE_FORMAT = "slipway.release/1"
RECORD_FORMAT = "slipway.fence/1"
UNKNOWN_KEY = "unknown"
"""Stands for a key's id if the copy cannot be read from this machine."""
NAMED_COPIES = 10
"""The maximum number of copies that one sentence names."""


@dataclass(frozen=True)
class CheckpointFault:
    """One event in the life of one checkpoint."""

    id: str
    """The permanent id; a fault is reported once per id."""
    commit: str
    what: str
    reason: str
    what_to_do: str
    tier: str = ""
    """Empty if the fault concerns the checkpoint on all tiers."""

    @property
    def step(self) -> int:
        return int(self.commit.partition(".")[0])


def known_faults(facts: TrainingFacts) -> list[CheckpointFault]:
    """The faults of copies, and the releases. Raises OSError."""
    copy_faults = [_fault_of_copy(facts, fault) for fault in replicas.noted_faults(facts.folder)]
    return copy_faults + [
        CheckpointFault(name, name.partition(".release.")[0], "released", "it was set aside, but is intact", NOTHING)
        for name in _releases(facts)
    ]


def why_gone(facts: TrainingFacts, steps: Iterable[int]) -> dict[int, CheckpointFault]:
    """For each of these steps, why no shared tier has a valid checkpoint. Raises OSError and ValueError."""
    requested_steps = set(steps)
    if not requested_steps:
        return {}
    newest = {int(name.partition(".")[0]): name for name in files.names(facts.folder, files.COMMITS)}
    aside = fence.set_aside_reasons(facts.folder)
    pruned = set(fence.pruned(facts.folder))
    valid = set(fence.names_under(facts.folder, facts.claim))
    return {step: _why_one_is_gone(facts, step, newest.get(step), aside, pruned | valid) for step in requested_steps}


def pending_copy(facts: TrainingFacts) -> Commit | None:
    """The newest checkpoint of a training that is over, if the backup failed to accept it or an earlier one and has
    accepted none since. Raises OSError.
    """
    if not facts.over or facts.let_go:
        return None
    newest = max(facts.commits_on(DURABLE), key=lambda commit: commit.step, default=None)
    if newest is None or newest in facts.commits_on(BACKUP):
        return None
    # The run may have ended before the copy of its very last checkpoint failed, so a failure of an earlier one counts.
    backup_step = max((commit.step for commit in facts.commits_on(BACKUP)), default=0)
    failed = any(
        fault.tier == BACKUP and fault.kind == replicas.NOT_COPIED and int(fault.commit.partition(".")[0]) > backup_step
        for fault in replicas.noted_faults(facts.folder)
    )
    return newest if failed and newest.name not in replicas.withdrawn_copies(facts.folder, BACKUP) else None


def deliver_copy(store: Path, commit: Commit, durable: Path, backup: Tier) -> int:
    """Copy a commit of the training in the folder `store` to the backup and record the copy; returns its bytes.

    Raises DamagedCheckpoint, TierUnavailable and OSError; then no copy is recorded.
    """
    size = copying.replicate(durable / commit.folder, backup, commit.folder, commit.manifest)
    replicas.record(store, commit, BACKUP, size)
    return size


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """The number of files and bytes of an intact checkpoint."""

    files: int
    bytes: int


def verify(tier: Tier, commit: Commit, report: Callable[[int, int], None]) -> VerifiedCheckpoint:
    """Verify a checkpoint on a tier; calls `report` with the bytes read so far and the total.

    Raises DamagedCheckpoint with the first damaged file, and TierUnavailable. It does not set the checkpoint aside; the
    process that needs the checkpoint does so.
    """
    if not tier.holds(commit.folder):
        raise DamagedCheckpoint(f"{commit.folder}: it is not on this tier")
    data = b"".join(tier.read(commit.folder, MANIFEST))
    manifest = verified_manifest(data, commit.manifest, f"{commit.folder}/{MANIFEST}")
    done = 0
    for name, expected in manifest.files.items():
        for chunk in verified_chunks(tier.read(commit.folder, name), expected, f"{commit.folder}/{name}"):
            done += len(chunk)
            report(done, manifest.bytes)
    return VerifiedCheckpoint(len(manifest.files), done)


@dataclass(frozen=True)
class Release:
    """The record that a commit which was set aside is valid again."""

    commit: str
    reason: str
    """Why it was set aside."""
    by: str
    at: float
    tiers: tuple[str, ...]
    """The tiers whose copy was verified; only those copies are valid again."""


def set_aside(store: TrainingStore) -> dict[str, str]:
    """The commits that were set aside or have a damaged copy, by name, each with the reason."""
    copies = {name: damage.why for tier in TIERS for name, damage in replicas.damaged(store.folder, tier).items()}
    gone = set(fence.pruned(store.folder)) - copies.keys()  # an earlier version pruned damaged checkpoints
    return {name: why for name, why in {**copies, **fence.set_aside_reasons(store.folder)}.items() if name not in gone}


def release(
    store: TrainingStore,
    tiers: Mapping[str, Tier],
    name: str,
    by: str,
    report: Callable[[int, int], None],
) -> Release:
    """Make the commit `name`, one of `set_aside`, valid again; `report` as for `verify`.

    If no copy on these tiers is intact, changes nothing and raises DamagedCheckpoint, or TierUnavailable if a copy
    cannot be read. Raises ValueError if the newest incarnation of the training no longer lists the commit.
    """
    reason = set_aside(store)[name]
    commit = codec.read(files.named(store.folder, files.COMMITS, name), Commit, RECORD_FORMAT)
    good = _tiers_with_whole_copy(store.folder, commit, tiers, report)
    done = Release(name, reason, by, time.time(), tuple(good))
    codec.create_only(
        files.named(store.folder, files.TAKEN_BACK, f"{name}.release.{time.time_ns()}"), done, RELEASE_FORMAT
    )
    for tier in good:
        replicas.take_back(store.folder, name, tier)
    fence.take_back(store.folder, name)
    claim = store.newest_claim()
    if name not in fence.names_under(store.folder, claim):
        raise ValueError(
            f"{store.id}: {name} is intact, but the newest start of the training, {claim.token if claim else 'none'}, "
            "does not list it; the retention will remove its bytes like those of any unlisted checkpoint"
        )
    store.note_release(name, reason, by)
    Trainings(store.folder.parent).open(store.id, WorkQueue.CHECKPOINTS)
    return done


@dataclass(frozen=True)
class Patience:
    """How long invalid checkpoints stay on a tier, in seconds since they were written."""

    damaged: float
    """For damaged copies, which a person may want to inspect."""
    unlisted: float
    """For checkpoints without a record. It must be longer than any copy takes until it is recorded."""


def decide_removals(
    facts: TrainingFacts, tiers: Mapping[str, Tier], losses: Mapping[str, float], referred: retention.Reasons
) -> retention.RemovalPlan:
    """The plan of what to remove from these tiers and, once the training is over, from the nodes' NVMe.

    `losses` and `referred` have commit names as keys, as for `retention.reasons_to_keep`. If a person let a training's
    checkpoints go, only those that something refers to stay.
    """
    storage = facts.storage
    tier_rules = {DURABLE: storage.durable, BACKUP: storage.backup}
    rules: dict[str, RetentionRule | None] = {tier: rule for tier, rule in tier_rules.items() if tier in tiers}
    if not facts.unfinished:
        rules[NVME] = None
    if facts.let_go and not facts.unfinished:
        going = [commit for commit in facts.commits if not referred.get(commit.name)]
        return retention.removal_plan(going, facts.holders, dict.fromkeys(rules), losses, referred)
    return retention.removal_plan(facts.commits, facts.holders, rules, losses, referred)


def condemned(
    facts: TrainingFacts, name: str, manifest_times: Mapping[str, float], patience: Patience, now: float
) -> list[str]:
    """The folders of a tier to remove, according to the records; `manifest_times` has each folder's manifest time.

    `Remover` checks the records again before it removes them. Raises OSError and ValueError.
    """
    counts = {commit.name for commit in facts.commits_on(name)}
    withdrawn = replicas.withdrawn_copies(facts.folder, name)
    damaged = {commit for commit, was in withdrawn.items() if was} | set(fence.set_aside_reasons(facts.folder))
    given_up = (set(withdrawn) | set(fence.pruned(facts.folder))) - damaged
    going = []
    for folder, written in manifest_times.items():
        commit = folder.rpartition("/")[2]
        age = now - written
        stays = patience.damaged if commit in damaged else patience.unlisted
        if commit not in counts and (commit in given_up or age > stays):
            going.append(folder)
    return going


@dataclass
class Resealed:
    """The result of a resealing."""

    keys: list[str] = field(default_factory=list)
    """The id of the newest key in each key file that trainings name."""
    sealed: list[str] = field(default_factory=list)
    """The copies that were resealed."""
    needed: dict[str, list[str]] = field(default_factory=dict)
    """The copies that still need an older key, by its id; `UNKNOWN_KEY` for copies that cannot be read here."""
    failed: list[str] = field(default_factory=list)
    """The copies that could not be read or resealed, each with the reason."""


def reseal_all(stores: Iterable[TrainingStore], tiers: Mapping[str, Tier], dry_run: bool = False) -> Resealed:
    """Reseal the checkpoints of these trainings; an unreadable training does not stop the others.

    With `dry_run` nothing is written, and `needed` says which copies need which key now.
    """
    done = Resealed()
    for store in stores:
        try:
            reseal(store, tiers, done, dry_run)
        except (ValueError, OSError) as error:
            done.failed.append(f"{store.id}: {error}")
            done.needed.setdefault(UNKNOWN_KEY, []).append(store.id)
    return done


def resealing_sentences(done: Resealed) -> list[str]:
    """The result of a resealing, for a person. The last sentences say whether older keys can be deleted."""
    lines = [f"{copy}: resealed" for copy in done.sealed] + [f"not resealed: {failure}" for failure in done.failed]
    for key, copies in done.needed.items():
        which = "an unknown older key" if key == UNKNOWN_KEY else f"key {key}"
        lines.append(f"{len(copies)} copies still need {which}: {', '.join(copies[:NAMED_COPIES])}")
    if not done.keys:
        return [*lines, "no training encrypts its checkpoints"]
    if not done.needed:
        lines.append(f"all copies use {' and '.join(done.keys)}: you can delete the keys below it in the key file")
    return lines


def reseal(store: TrainingStore, tiers: Mapping[str, Tier], done: Resealed, dry_run: bool = False) -> None:
    """Reseal the checkpoints of a training, if it encrypts them, and add the result to `done`.

    If a training no longer encrypts checkpoints, the older ones still need their keys. Raises ValueError for a bad key
    file, and OSError if the training's records cannot be read.
    """
    named = store.read().storage.key_file
    key = encryption.read_key(Path(named)) if named else None
    if key is not None and key.id not in done.keys:
        done.keys.append(key.id)
    commits = store.commits()
    holders = replicas.holders(store.folder, commits)
    for commit in commits:
        for tier in holders[commit.name]:
            copy = f"{store.id}@{commit.step} on {tier}"
            if tier in tiers:
                _bring(done, copy, tiers[tier], commit, key, dry_run)
            elif not set(holders[commit.name]) & set(tiers):
                done.needed.setdefault(UNKNOWN_KEY, []).append(copy)


def _why_one_is_gone(
    facts: TrainingFacts, step: int, committed: str | None, aside: Mapping[str, str], present: Container[str]
) -> CheckpointFault:
    """Why the checkpoint of one step is gone.
    committed: the name of its newest commit. aside: the commits set aside, with reasons. present: the names of pruned
    and valid commits.
    """
    name = committed or f"{step:09d}"
    ask = f"to make it valid again, run slipway checkpoints release {facts.id}@{step}, which verifies every byte of it"
    if name in aside:
        number = sum(release_name.startswith(f"{name}.") for release_name in _releases(facts))
        return CheckpointFault(f"{name}.set-aside.{number}", name, "set aside", aside[name], ask)
    if name in present:
        reason = "no retention rule keeps it on a shared tier, and nothing refers to it"
        return CheckpointFault(f"{name}.pruned", name, "removed", reason, "to keep more, change the recipe's `storage`")
    if committed is None:
        return CheckpointFault(f"{name}.lost", name, "lost", "its record is gone", "look at the training's folder")
    reason = "it was committed after a newer start of the training had listed the valid checkpoints"
    return CheckpointFault(f"{name}.superseded", name, "superseded", reason, NOTHING)


def _fault_of_copy(facts: TrainingFacts, fault: replicas.CopyFault) -> CheckpointFault:
    step = int(fault.commit.partition(".")[0])
    verify = f"slipway checkpoints verify {facts.id}@{step} --tier {fault.tier}"
    advices = {
        replicas.DAMAGED: f"check the tier's disk; the bytes stay for inspection, and {verify} reads them again",
        replicas.AWAY: f"check that the {fault.tier} tier is mounted and readable; nothing was set aside",
        replicas.NOT_COPIED: f"check the {fault.tier} tier; the training copies its next checkpoint, and the hourly "
        "retention copies the last one of a training once the tier answers",
    }
    what = {replicas.DAMAGED: "damaged copy", replicas.AWAY: "tier away", replicas.NOT_COPIED: "not copied"}
    todo = advices.get(fault.kind, NOTHING)
    return CheckpointFault(
        f"{fault.name}.{fault.at:.3f}", fault.commit, what.get(fault.kind, fault.kind), fault.reason, todo, fault.tier
    )


def _releases(facts: TrainingFacts) -> list[str]:
    return [name for name in listing.names_if_there(facts.folder / files.TAKEN_BACK, ".json") if ".release." in name]


def _tiers_with_whole_copy(
    store: Path, commit: Commit, tiers: Mapping[str, Tier], report: Callable[[int, int], None]
) -> list[str]:
    """The tiers with an intact copy of a commit. Raises DamagedCheckpoint and TierUnavailable."""
    tiers_on_record = replicas.ever_held(store, commit)
    good = list[str]()
    damage = list[str]()
    for tier in (name for name in tiers if name in tiers_on_record):
        try:
            verify(tiers[tier], commit, report)
            good.append(tier)
        except DamagedCheckpoint as error:
            damage.append(f"{tier}: {error}")
    if not good:
        raise DamagedCheckpoint("; ".join(damage) or f"{commit.name}: no tier that is readable from here had a copy")
    return good


def _bring(done: Resealed, copy: str, tier: Tier, commit: Commit, key: Key | None, dry_run: bool) -> None:
    """Reseal one copy, and record which key it needs now."""
    try:
        headers = dict(_headers(tier, commit, all_of_them=key is not None))
        wrapped_keys = _wrapped_keys(tier, commit.folder) if headers else None
        keys = _wrapped(headers, wrapped_keys, key, copy) if key is not None and not dry_run else None
        if keys:
            tier.amend(commit.folder, RECORD, resealing.encode(keys))
            done.sealed.append(copy)
            wrapped_keys = _wrapped_keys(tier, commit.folder)
        ids = {_needs(name, header, wrapped_keys, key) for name, header in headers.items()}
        for needed in sorted(ids - {key.id if key else ""}):
            done.needed.setdefault(needed, []).append(copy)
    except (DamagedCheckpoint, TierUnavailable, ValueError) as error:
        done.failed.append(f"{copy}: {error}")
        done.needed.setdefault(UNKNOWN_KEY, []).append(copy)


def _headers(tier: Tier, commit: Commit, all_of_them: bool) -> Iterator[tuple[str, bytes]]:
    """The headers of a copy's encrypted files by name, or only that of its largest file, since all files of a copy are
    encrypted or none is. Raises DamagedCheckpoint, TierUnavailable and ValueError.
    """
    where = f"{tier}/{commit.folder}/{MANIFEST}"
    data = b"".join(tier.read(commit.folder, MANIFEST))
    files = verified_manifest(data, commit.manifest, where).files
    largest = max(files, key=lambda name: files[name].bytes, default="")
    for name in files if all_of_them else filter(None, [largest]):
        header = _first_bytes(tier, commit.folder, name)
        if encryption.is_encrypted(header):
            yield name, header


def _first_bytes(tier: Tier, folder: str, name: str) -> bytes:
    """The first `HEADER` bytes of a file."""
    first_bytes = b""
    blocks = tier.read(folder, name)
    for block in blocks:
        first_bytes += bytes(block[: HEADER - len(first_bytes)])
        if len(first_bytes) == HEADER:
            break
    return first_bytes


def _wrapped_keys(tier: Tier, folder: str) -> WrappedKeys | None:
    """The wrapped keys of a resealed copy; None if it was never resealed."""
    try:
        data = b"".join(tier.read(folder, RECORD))
    except DamagedCheckpoint:
        return None
    return resealing.decode(data, f"{tier}/{folder}/{RECORD}")


def _needs(name: str, header: bytes, wrapped_keys: WrappedKeys | None, key: Key | None) -> str:
    """The id of the key that a file needs: the newest key if the file or its wrapped key uses it."""
    own = encryption.key_id(header, name)
    wrapping = wrapped_keys.key if wrapped_keys is not None and name in wrapped_keys.files else own
    return key.id if key is not None and key.id in (own, wrapping) else wrapping


def _wrapped(headers: Mapping[str, bytes], previous: WrappedKeys | None, key: Key, copy: str) -> WrappedKeys | None:
    """The keys of a copy's files, wrapped with the newest key; None if all use it already. Raises as `file_key`."""
    if all(_needs(name, header, previous, key) == key.id for name, header in headers.items()):
        return None
    file_keys = {}
    for name, header in headers.items():
        file_key = encryption.file_key(header, key, name, lambda: previous, f"{copy}: {name}")
        file_keys[name] = resealing.wrapped(key.secret, file_key, header)
    return WrappedKeys(key.id, file_keys)
