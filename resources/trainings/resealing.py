"""Re-sealing of checkpoints: the keys of their files are wrapped with the newest key, so that an older one can go.

Each copy on a tier that all nodes share gets one small file (`slipway.trainer.checkpoint.disk.resealing`), which is
written in one step: whoever is killed has sealed some copies and not others, and the next run seals the rest. No byte
of a checkpoint is written again. `Resealed.needed` says which keys are still
needed, by what is on the tiers.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.checkpoint.disk import encryption, resealing
from slipway.trainer.checkpoint.disk.encryption import HEADER, Key
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.resealing import RECORD, WrappedKeys
from slipway.trainer.checkpoint.disk.verification import verified_manifest
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.tier import Tier, TierUnavailable
from slipway.trainer.record.fence import Commit

UNKNOWN = "unknown"
"""In place of a key's id: the copy cannot be read from here."""
NAMED = 10
"""So many copies are named in one sentence."""


@dataclass
class Resealed:
    """What a run did and found."""

    keys: list[str] = field(default_factory=list)
    """The id of the newest key in each key file that trainings name."""
    sealed: list[str] = field(default_factory=list)
    """The copies that were sealed anew."""
    needed: dict[str, list[str]] = field(default_factory=dict)
    """By the id of each other key, the copies that still need it; `UNKNOWN` for those that cannot be read from here."""
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
            done.needed.setdefault(UNKNOWN, []).append(store.id)
    return done


def sentences(done: Resealed) -> list[str]:
    """What a run did and found, for a person: the last ones say whether older keys can go."""
    lines = [f"{copy}: sealed anew" for copy in done.sealed] + [f"not sealed: {each}" for each in done.failed]
    for key, copies in done.needed.items():
        which = "an older key, which is not known from here," if key == UNKNOWN else f"key {key}"
        lines.append(f"{which} is needed by {len(copies)} copies: {', '.join(copies[:NAMED])}")
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
                done.needed.setdefault(UNKNOWN, []).append(copy)
            # Else who reads it has the wrapped keys from a copy on a shared tier.


def _bring(done: Resealed, copy: str, tier: Tier, commit: Commit, key: Key | None, dry_run: bool) -> None:
    """Seal one copy anew, and note what it needs now."""
    try:
        headers = dict(_headers(tier, commit, all_of_them=key is not None))
        held = _held(tier, commit.folder) if headers else None
        if key is not None and not dry_run and (keys := _wrapped(headers, held, key, copy)):
            tier.amend(commit.folder, RECORD, resealing.encode(keys))
            done.sealed.append(copy)
            held = _held(tier, commit.folder)
        ids = {_needs(name, header, held, key) for name, header in headers.items()}
        for needed in sorted(ids - {key.id if key else ""}):
            done.needed.setdefault(needed, []).append(copy)
    except (DamagedCheckpoint, TierUnavailable, ValueError) as error:
        done.failed.append(f"{copy}: {error}")
        done.needed.setdefault(UNKNOWN, []).append(copy)


def _headers(tier: Tier, commit: Commit, all_of_them: bool) -> Iterator[tuple[str, bytes]]:
    """The headers of a copy's encrypted files, by name, or that of its largest file: all are encrypted, or none.

    Raises DamagedCheckpoint, TierUnavailable and ValueError.
    """
    where = f"{tier}/{commit.folder}/{MANIFEST}"
    data = b"".join(tier.read(commit.folder, MANIFEST))
    files = verified_manifest(data, commit.manifest, where).files
    largest = max(files, key=lambda name: files[name].bytes, default="")
    for name in files if all_of_them else filter(None, [largest]):
        header = _beginning(tier, commit.folder, name)
        if encryption.is_encrypted(header):
            yield name, header


def _beginning(tier: Tier, folder: str, name: str) -> bytes:
    """The first bytes of a file, as many as a header has."""
    found, blocks = b"", tier.read(folder, name)
    for block in blocks:
        found += bytes(block[: HEADER - len(found)])
        if len(found) == HEADER:
            break
    return found


def _held(tier: Tier, folder: str) -> WrappedKeys | None:
    """What a copy was sealed anew with; None where it was not."""
    try:
        data = b"".join(tier.read(folder, RECORD))
    except DamagedCheckpoint:
        return None
    return resealing.decode(data, f"{tier}/{folder}/{RECORD}")


def _needs(name: str, header: bytes, held: WrappedKeys | None, key: Key | None) -> str:
    """The id of the key that a file needs: the newest one, where it or what it was sealed anew with has it."""
    own = encryption.key_id(header, name)
    wrapping = held.key if held is not None and name in held.files else own
    return key.id if key is not None and key.id in (own, wrapping) else wrapping


def _wrapped(headers: Mapping[str, bytes], held: WrappedKeys | None, key: Key, copy: str) -> WrappedKeys | None:
    """The keys of all files of a copy, wrapped with the newest key; None where all have it. Raises as `file_key`."""
    if all(_needs(name, header, held, key) == key.id for name, header in headers.items()):
        return None
    found = {}
    for name, header in headers.items():
        file_key = encryption.file_key(header, key, name, lambda: held, f"{copy}: {name}")
        found[name] = resealing.wrapped(key.secret, file_key, header)
    return WrappedKeys(key.id, found)
