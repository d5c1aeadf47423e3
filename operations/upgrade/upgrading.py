"""Upgrading: a durable tier of an earlier release becomes one of this release, whole or not at all.

All new files are first written below ``upgrades/.<n>.making/``, beside copies of the old ones. One rename to
``upgrades/<n>/`` decides: from there on the upgrade is finished by whoever comes next, however often it is interrupted.
The files are put in place one by one, each in one step, and the mark comes last (`slipway.resources.state`). Taking it
back goes the same way, with the copies.

    upgrades/<n>/plan.json     what changes: create-only
                 before/<path> the old bytes of each file that changes, below the durable tier
                 after/<path>  the new ones
                 done.json     all of them are in place: create-only
                 undo.json     somebody takes it back: create-only
                 undone.json   all of the old ones are in place again: create-only
"""

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.operations.upgrade.migrations import UnmigratedFile, outstanding
from slipway.resources import state
from slipway.trainer.base import atomic, codec, digest, listing, lock, regular_file

FOLDER = "upgrades"
FORMAT = "slipway.upgrade/1"
PLAN = "plan.json"
DONE = "done.json"
UNDO = "undo.json"
UNDONE = "undone.json"
BEFORE = "before"
AFTER = "after"
OTHERS_SECONDS = 60.0
"""How long another process may upgrade the same tier."""
WITHOUT_MARK = min(state.RELEASES)
"""The state of a tier that has no mark and is not new: no upgrade has marked it since."""


@dataclass(frozen=True)
class FileChange:
    """A file that an upgrade changes."""

    path: str
    formats: str
    before: str
    """BLAKE3 of its bytes."""
    after: str


@dataclass(frozen=True)
class UpgradePlan:
    """What an upgrade does."""

    was: int
    """The state that it begins with."""
    marked: bool
    """Whether the tier had a mark."""
    to: int
    changes: tuple[FileChange, ...]
    problems: Mapping[str, str]
    """By path, why a file stays as it is."""
    by: str
    at: float
    """Seconds since the epoch."""
    backup: str = ""
    """The backup of the databases that was made before, on its tier; empty where there was nothing to back up."""


@dataclass(frozen=True)
class UpgradeEvent:
    """That an upgrade is done, is taken back, or has been."""

    by: str
    at: float


def plan(durable: Path, actor: str) -> UpgradePlan:
    """What an upgrade would do now. Raises ValueError for a tier of a newer release, and OSError."""
    return _planned(durable, actor, None)


def upgrade(durable: Path, actor: str, back_up: Callable[[], str]) -> UpgradePlan:
    """Bring a tier to the state of this release; `back_up` is called before anything is changed.

    The control plane must be down. Raises ValueError as `plan` and `finish` do, OSError, and what `back_up` raises.
    """
    finish(durable)
    with _alone(durable):
        number = max(_numbers(durable), default=0) + 1
        making = durable / FOLDER / f".{number:06d}.making"
        shutil.rmtree(making, ignore_errors=True)
        try:
            upgrade_plan = _planned(durable, actor, making)
            if upgrade_plan.was == upgrade_plan.to:
                return upgrade_plan
            upgrade_plan = dataclasses.replace(upgrade_plan, backup=back_up())
            atomic.write(making / PLAN, [codec.encode(upgrade_plan, FORMAT)])
            atomic.show(making, durable / FOLDER / f"{number:06d}")
        finally:
            shutil.rmtree(making, ignore_errors=True)
    finish(durable)
    return upgrade_plan


def undo(durable: Path, actor: str) -> UpgradePlan:
    """Take the last upgrade back: what it changed is as it was. The control plane must be down.

    Raises ValueError, and changes nothing, when there is none, or a file has been changed since.
    """
    finish(durable)
    with _alone(durable):
        folder = _newest(durable)
        if folder is None or (folder / UNDONE).exists():
            raise ValueError(f"{durable / FOLDER}: found no upgrade, expected one that can be taken back")
        upgrade_plan = codec.read(folder / PLAN, UpgradePlan, FORMAT)
        for change in upgrade_plan.changes:
            _require_known(durable, change)
        codec.create_only(folder / UNDO, UpgradeEvent(actor, time.time()), FORMAT)
    finish(durable)
    return upgrade_plan


def finish(durable: Path) -> bool:
    """Finish an upgrade, or its taking back, that was begun; False when there is none.

    Raises ValueError for a file that is neither as before nor as after, and for another process that is at it.
    """
    if _unfinished(durable) is None:
        return False
    with _alone(durable):
        if (folder := _unfinished(durable)) is None:
            return True
        upgrade_plan = codec.read(folder / PLAN, UpgradePlan, FORMAT)
        back = (folder / UNDO).exists()
        for change in upgrade_plan.changes:
            _require_known(durable, change)
        for change in upgrade_plan.changes:
            _put(durable / change.path, folder / (BEFORE if back else AFTER) / change.path)
        if not back:
            state.write(durable, upgrade_plan.to)
        elif upgrade_plan.marked:
            state.write(durable, upgrade_plan.was)
        else:
            (durable / state.FILE).unlink(missing_ok=True)
        codec.create_only(folder / (UNDONE if back else DONE), UpgradeEvent(upgrade_plan.by, time.time()), FORMAT)
    return True


def ready(durable: Path) -> None:
    """Have a durable tier that this release can work on: a new one is marked, what was begun is finished.

    Raises ValueError for a tier that a newer release wrote, and for one that is to be upgraded first.
    """
    mark = state.refuse_newer(durable)
    if finish(durable):
        mark = state.state_of(durable)
    if mark is not None and mark.state == state.STATE:
        return
    if not state.is_new(durable):
        upgrade_plan = plan(durable, "")
        if upgrade_plan.changes or upgrade_plan.problems:
            raise ValueError(
                f"{durable}: found what Slipway {state.RELEASES[upgrade_plan.was]} wrote, with "
                f"{len(upgrade_plan.changes)} files to migrate, "
                f"expected the state of {state.RELEASES[state.STATE]}: slipway upgrade"
            )
    state.write(durable, state.STATE)


def _planned(durable: Path, actor: str, making: Path | None) -> UpgradePlan:
    """The plan; the old and new bytes of all files go below `making`, where there is one."""
    mark = state.refuse_newer(durable)
    was = mark.state if mark else WITHOUT_MARK
    changes = list[FileChange]()
    problems = dict[str, str]()
    for file in outstanding(durable, was):
        if isinstance(file, UnmigratedFile):
            problems[file.path] = file.problem
            continue
        if making is not None:
            atomic.write(making / BEFORE / file.path, [file.before])
            atomic.write(making / AFTER / file.path, [file.after])
        digests = digest.of_bytes(file.before), digest.of_bytes(file.after)
        changes.append(FileChange(file.path, file.formats, *digests))
    return UpgradePlan(was, mark is not None, state.STATE, tuple(changes), problems, actor, time.time())


def _put(path: Path, source: Path) -> None:
    """Put the bytes of a file in place, unless they are there, or the file has been removed since."""
    data = regular_file.read(source)
    if path.exists() and regular_file.read(path) != data:
        atomic.replace(path, data)


def _require_known(durable: Path, change: FileChange) -> None:
    path = durable / change.path
    if path.exists() and digest.of_bytes(regular_file.read(path)) not in (change.before, change.after):
        raise ValueError(
            f"{path}: found a file that was changed since the upgrade, expected it as before or as after: "
            "what was added to it would be lost"
        )


def _numbers(durable: Path) -> list[int]:
    return [int(name) for name in listing.names_if_there(durable / FOLDER) if name.isdigit()]


def _newest(durable: Path) -> Path | None:
    numbers = _numbers(durable)
    return durable / FOLDER / f"{max(numbers):06d}" if numbers else None


def _unfinished(durable: Path) -> Path | None:
    """The last upgrade, when it or its taking back was begun and not finished."""
    folder = _newest(durable)
    if folder is None or (folder / (UNDONE if (folder / UNDO).exists() else DONE)).exists():
        return None
    return folder


@contextlib.contextmanager
def _alone(durable: Path) -> Iterator[None]:
    try:
        with lock.within(durable / FOLDER, OTHERS_SECONDS):
            yield
    except lock.LockHeld as error:
        raise ValueError(f"{durable}: another process upgrades it: {error}") from None
