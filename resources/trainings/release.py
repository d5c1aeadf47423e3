"""Release: a checkpoint that was set aside counts again, once every byte of a copy of it has been read and verified.

The records of the setting aside stay in `taken-back/`, and beside them who took it back, when, and what was verified.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.resources.trainings.duties import Duty
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.resources.trainings.verification import verify
from slipway.trainer.base import codec
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.tier import TIERS, Tier
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Commit

FORMAT = "slipway.release/1"
RECORD_FORMAT = "slipway.fence/1"


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
    copies = {name: found.why for tier in TIERS for name, found in replicas.damaged(store.folder, tier).items()}
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
    good = _whole(store.folder, commit, tiers, report)
    done = Release(name, reason, by, time.time(), tuple(good))
    codec.create_only(files.named(store.folder, files.TAKEN_BACK, f"{name}.release.{time.time_ns()}"), done, FORMAT)
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
    Trainings(store.folder.parent).open(store.id, Duty.CHECKPOINTS)
    return done


def _whole(store: Path, commit: Commit, tiers: Mapping[str, Tier], report: Callable[[int, int], None]) -> list[str]:
    """The tiers whose copy of a commit is whole, of those that held one. Raises DamagedCheckpoint, TierUnavailable."""
    held = replicas.ever_held(store, commit)
    good, damage = list[str](), list[str]()
    for tier in (each for each in tiers if each in held):
        try:
            verify(tiers[tier], commit, report)
            good.append(tier)
        except DamagedCheckpoint as error:
            damage.append(f"{tier}: {error}")
    if not good:
        raise DamagedCheckpoint("; ".join(damage) or f"{commit.name}: no tier that can be read from here held it")
    return good
