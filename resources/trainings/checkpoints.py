"""Checkpoints of a training on the tiers that all nodes share: what happened to them, and what is done about it.

A person should see what happened to a checkpoint, with what to do (`known_faults`, `why_gone`).

What the backup did not take while a training ran is copied once the training is over (`pending_copy`). While it runs,
the ranks' side tries a copy again until the tier takes it or a newer one is due, and at the end once more. An object
store that is away for longer has none of the last steps then, and nobody is left to try.

A checkpoint that was set aside counts again once every byte of a copy of it has been read and verified (`release`). The
records of the setting aside stay in `taken-back/`, and beside them who took it back, when, and what was verified.

A checkpoint is withdrawn on record before its bytes are removed (`condemned`), so that no reader finds a checkpoint
whose bytes are going. A retention that was interrupted anywhere is continued by the next one.

The keys of a checkpoint's files are wrapped with the newest key, so that an older one can go (`reseal_all`). Each copy
gets one small file (`slipway.trainer.checkpoint.disk.resealing`), which is written in one step: whoever is killed has
sealed some copies and not others, and the next run seals the rest. No byte of a checkpoint is written again.
`Resealed.needed` says which keys are still needed, by what is on the tiers.
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

NOTHING = "nothing: the training and its other checkpoints are not touched by it"
RELEASE_FORMAT = "slipway.release/1"
RECORD_FORMAT = "slipway.fence/1"
UNKNOWN_KEY = "unknown"
"""In place of a key's id: the copy cannot be read from here."""
NAMED_COPIES = 10
"""So many copies are named in one sentence."""


@dataclass(frozen=True)
class CheckpointFault:
    """One thing that happened to one checkpoint."""

    id: str
    """Names it for ever: a fault is reported once for each id."""
    commit: str
    what: str
    reason: str
    what_to_do: str
    tier: str = ""
    """Empty where it is about the checkpoint on all tiers."""

    @property
    def step(self) -> int:
        return int(self.commit.partition(".")[0])


def known_faults(facts: TrainingFacts) -> list[CheckpointFault]:
    """The faults of copies, and the releases. Raises OSError."""
    copy_faults = [_fault_of_copy(facts, fault) for fault in replicas.noted_faults(facts.folder)]
    return copy_faults + [
        CheckpointFault(name, name.partition(".release.")[0], "released", "it was set aside, and is whole", NOTHING)
        for name in _releases(facts)
    ]


def why_gone(facts: TrainingFacts, steps: Iterable[int]) -> dict[int, CheckpointFault]:
    """Why no valid checkpoint of these steps is on a tier that nodes share. Raises OSError and ValueError."""
    requested_steps = set(steps)
    if not requested_steps:
        return {}
    newest = {int(name.partition(".")[0]): name for name in files.names(facts.folder, files.COMMITS)}
    aside = fence.set_aside_reasons(facts.folder)
    pruned = set(fence.pruned(facts.folder))
    valid = set(fence.names_under(facts.folder, facts.claim))
    return {step: _why_one_is_gone(facts, step, newest.get(step), aside, pruned | valid) for step in requested_steps}


def pending_copy(facts: TrainingFacts) -> Commit | None:
    """The newest checkpoint of a training that is over, where the backup took none since it last failed to take one.

    Raises OSError.
    """
    if not facts.over or facts.let_go:
        return None
    newest = max(facts.commits_on(DURABLE), key=lambda commit: commit.step, default=None)
    if newest is None or newest in facts.commits_on(BACKUP):
        return None
    # The end of a run does not wait until a try of its own last checkpoint has failed too.
    backup_step = max((commit.step for commit in facts.commits_on(BACKUP)), default=0)
    failed = any(
        fault.tier == BACKUP and fault.kind == replicas.NOT_COPIED and int(fault.commit.partition(".")[0]) > backup_step
        for fault in replicas.noted_faults(facts.folder)
    )
    return newest if failed and newest.name not in replicas.withdrawn_copies(facts.folder, BACKUP) else None


def deliver_copy(store: Path, commit: Commit, durable: Path, backup: Tier) -> int:
    """Copy a commit of the training in the folder `store` to the backup, and put that on record; returns its bytes.

    Raises DamagedCheckpoint, TierUnavailable and OSError; none leaves a copy on record.
    """
    size = copying.replicate(durable / commit.folder, backup, commit.folder, commit.manifest)
    replicas.record(store, commit, BACKUP, size)
    return size


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """What was read of a checkpoint that is whole."""

    files: int
    bytes: int


def verify(tier: Tier, commit: Commit, report: Callable[[int, int], None]) -> VerifiedCheckpoint:
    """Read a checkpoint on a tier; `report` is called with the bytes read so far and those there are.

    Raises DamagedCheckpoint, with the first file that is not what was committed, and TierUnavailable. It sets nothing
    aside: the process that needs the checkpoint does.
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
    """Who took the setting aside of a commit back."""

    commit: str
    reason: str
    """Why it was set aside."""
    by: str
    at: float
    tiers: tuple[str, ...]
    """Those whose copy was verified; only they count again."""


def set_aside(store: TrainingStore) -> dict[str, str]:
    """The commits that were set aside, and those with a copy that was found damaged, by name, each with the reason."""
    copies = {name: damage.why for tier in TIERS for name, damage in replicas.damaged(store.folder, tier).items()}
    gone = set(fence.pruned(store.folder)) - copies.keys()  # an earlier version pruned what was found damaged
    return {name: why for name, why in {**copies, **fence.set_aside_reasons(store.folder)}.items() if name not in gone}


def release(
    store: TrainingStore,
    tiers: Mapping[str, Tier],
    name: str,
    by: str,
    report: Callable[[int, int], None],
) -> Release:
    """Have the commit `name`, one of `set_aside`, count again; `report` as of `verify`.

    Raises DamagedCheckpoint, and changes nothing, when no copy on these tiers is whole, TierUnavailable when one cannot
    be read and none is whole, and ValueError when the newest start of the training does not know the commit any more.
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
            f"{store.id}: {name} is whole, and the newest start of the training, {claim.token if claim else 'none'}, "
            "does not list it; its bytes stay for as long as those of a checkpoint that is on no record"
        )
    store.note_release(name, reason, by)
    Trainings(store.folder.parent).open(store.id, WorkQueue.CHECKPOINTS)
    return done


@dataclass(frozen=True)
class Patience:
    """For how many seconds checkpoints that do not count stay on a tier, from when they were written."""

    damaged: float
    """Copies that were found damaged: a person may want to look into them."""
    unlisted: float
    """Checkpoints that are on no record: longer than any copy takes until it is on record."""


def decide_removals(
    facts: TrainingFacts, tiers: Mapping[str, Tier], losses: Mapping[str, float], referred: retention.Reasons
) -> retention.RemovalPlan:
    """What goes from these tiers, and, once the training is over, what goes from the nodes' NVMe.

    `losses` and `referred` are by the name of a commit, as of `retention.reasons_to_keep`. Of a training whose
    checkpoints were let go only those stay that are referred to.
    """
    storage = facts.storage
    rules: dict[str, RetentionRule | None] = {DURABLE: storage.durable, BACKUP: storage.backup}
    rules = {tier: rule for tier, rule in rules.items() if tier in tiers} | ({} if facts.unfinished else {NVME: None})
    if facts.let_go and not facts.unfinished:
        going = [commit for commit in facts.commits if not referred.get(commit.name)]
        return retention.removal_plan(going, facts.holders, dict.fromkeys(rules), losses, referred)
    return retention.removal_plan(facts.commits, facts.holders, rules, losses, referred)


def condemned(
    facts: TrainingFacts, name: str, manifest_times: Mapping[str, float], patience: Patience, now: float
) -> list[str]:
    """Which folders of a tier, by name with the time of their manifest, are to go by what is on record.

    Only `Remover` removes them, by what is on record then. Raises OSError and ValueError.
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
    """What a run did and found."""

    keys: list[str] = field(default_factory=list)
    """The id of the newest key in each key file that trainings name."""
    sealed: list[str] = field(default_factory=list)
    """The copies that were sealed anew."""
    needed: dict[str, list[str]] = field(default_factory=dict)
    """By the id of each other key, the copies that still need it; `UNKNOWN_KEY` for those that cannot be read here."""
    failed: list[str] = field(default_factory=list)
    """What could not be read or sealed, each with the reason."""


def reseal_all(stores: Iterable[TrainingStore], tiers: Mapping[str, Tier], dry_run: bool = False) -> Resealed:
    """Seal the checkpoints of these trainings anew, each training alone: one that cannot be read stops no other.

    With `dry_run` nothing is written, and `needed` says what needs which key now.
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
    """What a run did and found, for a person: the last ones say whether older keys can go."""
    lines = [f"{copy}: sealed anew" for copy in done.sealed] + [f"not sealed: {failure}" for failure in done.failed]
    for key, copies in done.needed.items():
        which = "an older key, which is not known from here," if key == UNKNOWN_KEY else f"key {key}"
        lines.append(f"{which} is needed by {len(copies)} copies: {', '.join(copies[:NAMED_COPIES])}")
    if not done.keys:
        return [*lines, "no training encrypts its checkpoints"]
    if not done.needed:
        lines.append(f"nothing needs another key than {' and '.join(done.keys)}: the lines below it can go")
    return lines


def reseal(store: TrainingStore, tiers: Mapping[str, Tier], done: Resealed, dry_run: bool = False) -> None:
    """Seal the checkpoints of a training anew, if it encrypts them, and note in `done` what was done and found.

    Of a training that encrypts them no more, the older ones need their keys. Raises ValueError for a bad key file, and
    OSError when the training's records cannot be read.
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
    """Why one is not: from the name of its newest commit, what was set aside, and what was pruned or is valid."""
    name = committed or f"{step:09d}"
    ask = f"slipway checkpoints release {facts.id}@{step} takes it back, once every byte of a copy verifies"
    if name in aside:
        number = sum(release_name.startswith(f"{name}.") for release_name in _releases(facts))
        return CheckpointFault(f"{name}.set-aside.{number}", name, "set aside", aside[name], ask)
    if name in present:
        reason = "no rule of retention keeps it on a tier that outlives the nodes, and nothing refers to it"
        return CheckpointFault(f"{name}.pruned", name, "removed", reason, "to keep more, see the recipe's `storage`")
    if committed is None:
        return CheckpointFault(f"{name}.lost", name, "lost", "its record is gone", "look at the training's folder")
    reason = "it was committed after a newer start had listed what counts"
    return CheckpointFault(f"{name}.superseded", name, "superseded", reason, NOTHING)


def _fault_of_copy(facts: TrainingFacts, fault: replicas.CopyFault) -> CheckpointFault:
    step = int(fault.commit.partition(".")[0])
    verify = f"slipway checkpoints verify {facts.id}@{step} --tier {fault.tier}"
    advices = {
        replicas.DAMAGED: f"look at the tier's disk: the bytes stay for inspection; {verify} reads them again",
        replicas.AWAY: f"look whether the {fault.tier} tier is mounted and can be read; nothing was set aside",
        replicas.NOT_COPIED: f"look at the {fault.tier} tier; the next checkpoint is copied again, and the last one of "
        "a training by the hourly retention, once the tier answers",
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
    """The tiers whose copy of a commit is whole, of those that held one. Raises DamagedCheckpoint, TierUnavailable."""
    tiers_on_record = replicas.ever_held(store, commit)
    good, damage = list[str](), list[str]()
    for tier in (name for name in tiers if name in tiers_on_record):
        try:
            verify(tiers[tier], commit, report)
            good.append(tier)
        except DamagedCheckpoint as error:
            damage.append(f"{tier}: {error}")
    if not good:
        raise DamagedCheckpoint("; ".join(damage) or f"{commit.name}: no tier that can be read from here held it")
    return good

    # Else who reads it has the wrapped keys from a copy on a shared tier.


def _bring(done: Resealed, copy: str, tier: Tier, commit: Commit, key: Key | None, dry_run: bool) -> None:
    """Seal one copy anew, and note what it needs now."""
    try:
        headers = dict(_headers(tier, commit, all_of_them=key is not None))
        wrapped_keys = _wrapped_keys(tier, commit.folder) if headers else None
        if key is not None and not dry_run and (keys := _wrapped(headers, wrapped_keys, key, copy)):
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
    """The headers of a copy's encrypted files, by name, or that of its largest file: all are encrypted, or none.

    Raises DamagedCheckpoint, TierUnavailable and ValueError.
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
    """The first bytes of a file, as many as a header has."""
    first_bytes = b""
    blocks = tier.read(folder, name)
    for block in blocks:
        first_bytes += bytes(block[: HEADER - len(first_bytes)])
        if len(first_bytes) == HEADER:
            break
    return first_bytes


def _wrapped_keys(tier: Tier, folder: str) -> WrappedKeys | None:
    """What a copy was sealed anew with; None where it was not."""
    try:
        data = b"".join(tier.read(folder, RECORD))
    except DamagedCheckpoint:
        return None
    return resealing.decode(data, f"{tier}/{folder}/{RECORD}")


def _needs(name: str, header: bytes, wrapped_keys: WrappedKeys | None, key: Key | None) -> str:
    """The id of the key that a file needs: the newest one, where it or what it was sealed anew with has it."""
    own = encryption.key_id(header, name)
    wrapping = wrapped_keys.key if wrapped_keys is not None and name in wrapped_keys.files else own
    return key.id if key is not None and key.id in (own, wrapping) else wrapping


def _wrapped(headers: Mapping[str, bytes], previous: WrappedKeys | None, key: Key, copy: str) -> WrappedKeys | None:
    """The keys of all files of a copy, wrapped with the newest key; None where all have it. Raises as `file_key`."""
    if all(_needs(name, header, previous, key) == key.id for name, header in headers.items()):
        return None
    file_keys = {}
    for name, header in headers.items():
        file_key = encryption.file_key(header, key, name, lambda: previous, f"{copy}: {name}")
        file_keys[name] = resealing.wrapped(key.secret, file_key, header)
    return WrappedKeys(key.id, file_keys)
