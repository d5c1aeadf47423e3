"""Checkpoints of a script's training: its own files and `progress.json`, on the durable tier, written by rank 0."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from slipway.trainer.base import atomic, paths
from slipway.trainer.checkpoint.disk import publication, verification
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers import replicas, waiting
from slipway.trainer.checkpoint.tiers.tier import DURABLE
from slipway.trainer.checkpoint.tiers.waiting import Wait
from slipway.trainer.node import runtime_info
from slipway.trainer.record import fence
from slipway.trainer.script.settings import FORMAT, ScriptSettings

LAYOUT = "script/1"
"""A checkpoint's layout: the files of a script, and `progress.json`."""
OnDamaged = Callable[[fence.Commit, str], None]
"""Receives a commit that is set aside, and why."""


@dataclass(frozen=True)
class RestoredCheckpoint:
    """A checkpoint, every byte of it verified."""

    step: int
    files: Mapping[str, bytes]
    metrics: Mapping[str, float]


CommitAndState = tuple[fence.Commit, RestoredCheckpoint]


class ScriptCheckpoints:
    """The checkpoints of one training, for one incarnation."""

    def __init__(self, settings: ScriptSettings, token: fence.Token) -> None:
        self._settings = settings
        self._token = token
        self._store = Path(settings.placement.store)
        self._durable = Path(settings.placement.durable)
        self._folder = paths.checkpoints(settings.training)

    def newest_good(self, on_damaged: OnDamaged, on_away: Callable[[str], None]) -> CommitAndState | None:
        """The newest checkpoint that verifies; newer ones, which are damaged, are set aside. Rank 0 calls this.

        It waits while the tier cannot be read, and calls `on_away` with the reason. Raises TierAway if none could be
        read, and fence.Superseded if a newer token is claimed.
        """
        fence.check(self._store, self._token)
        publication.remove_unpublished(self._durable / self._folder, self._token)
        wait = Wait()
        for commit in reversed(waiting.commits(self._store)):
            while True:
                try:
                    return self._read(commit)
                except DamagedCheckpoint as damage:
                    replicas.set_aside(self._store, commit, {DURABLE: str(damage)}, self._token)
                    on_damaged(commit, str(damage))
                    break
                except OSError as error:
                    reason = f"checkpoint {commit.name}: {error}"
                    replicas.note_fault(self._store, commit.name, DURABLE, replicas.AWAY, str(error))
                    on_away(reason)
                    if not wait.again(reason):
                        break
        wait.check()
        return None

    def named(self, name: str) -> CommitAndState:
        """The checkpoint of the commit `name`. Raises DamagedCheckpoint."""
        return self._read(next(commit for commit in fence.commits(self._store) if commit.name == name))

    def write(self, step: int, metrics: Mapping[str, float], contents: Mapping[str, bytes]) -> tuple[fence.Commit, int]:
        """Commit a checkpoint; returns the commit and its bytes. Raises OSError and fence.Superseded."""
        folder = f"{self._folder}/{step:09d}.{self._token}"
        files = {**contents, PROGRESS: self._progress(step, metrics)}
        manifest = publication.write(self._durable / folder, LAYOUT, files)
        commit = fence.Commit(step, self._token, folder, manifest, metrics, time.time())
        fence.commit(self._store, commit)
        return commit, sum(map(len, files.values()))

    def has_step(self, step: int) -> bool:
        """Whether the newest commit is of this step."""
        committed = fence.commits(self._store)
        return bool(committed) and committed[-1].step == step

    def _read(self, commit: fence.Commit) -> CommitAndState:
        files = verification.read_files(self._durable / commit.folder, commit.manifest)
        own = {name: data for name, data in files.items() if name != PROGRESS}
        return commit, RestoredCheckpoint(commit.step, own, commit.metrics)

    def _progress(self, step: int, metrics: Mapping[str, float]) -> bytes:
        revision = os.environ.get("SLIPWAY_REVISION", "")
        lineage = {"snapshot": self._settings.snapshot, "revision": revision, **runtime_info.of_process()}
        settings = {"format": FORMAT, **asdict(self._settings)}
        fields = {"step": step, "metrics": metrics, "config": settings, "lineage": lineage, "at": time.time()}
        return atomic.readable_json(fields)


def file_name(name: str) -> str:
    """`name`, if a file of a checkpoint may have it. Raises ValueError if not."""
    if not name or "/" in name or name.startswith(".") or name in (MANIFEST, PROGRESS):
        raise ValueError(f"found a file {name!r}, expected a plain name other than {MANIFEST}, {PROGRESS}")
    return name
