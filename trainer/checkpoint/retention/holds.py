"""Holds: a process that reads checkpoints by name (a replay) keeps them from being removed while it lasts.

``<store>/holds/<commit>.<random>.json`` is one hold, removed at the end. One that a killed process left counts for
`DAYS` from its time. ``<store>/holds/<commit>.<training>.json`` is that of a training that continues the checkpoint: it
counts until that one has a checkpoint of its own that outlives its nodes, and for `DAYS` where it was never proposed.
The control plane lets go of it where nobody wants that training any more.

Who removes says so first, ``<store>/leaving/<commit>.<random>.json``, then looks at the holds, and removes what nobody
holds. Who holds looks afterwards whether the commit is leaving, and whether it is still there (`require_kept`). So of
the two at least one sees the other, whoever is killed anywhere.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec, listing
from slipway.trainer.base.units import DAY, HOUR
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.tier import LASTING
from slipway.trainer.record import fence, files

FORMAT = "slipway.hold/1"
LEAVING_HOURS = 24.0
"""For so long it counts that a commit is leaving, where who said so was killed; no removal takes longer."""
DAYS = 7.0
"""Longer than any process reads the checkpoints that it holds; the clocks of machines differ by far less."""


@dataclass(frozen=True)
class Hold:
    """Who keeps a commit from being removed, why, and since when, in seconds since the epoch."""

    commit: str
    by: str
    why: str
    at: float
    child: str = ""
    """Of a training that continues the commit, its folder, relative to this store."""


class NotKept(ValueError):
    """A commit that is held was removed at this moment, or may be."""


@dataclass(frozen=True)
class LeavingCommit:
    """That retention looks whether a commit is held, and removes it if it is not."""

    commit: str
    at: float
    """Seconds since the epoch."""


@contextlib.contextmanager
def leaving(store: Path, commits: Iterable[str]) -> Iterator[None]:
    """Say of the commits of these names that they are leaving, until their removal is on record. Raises OSError."""
    paths = []
    try:
        for name in commits:
            path = files.named(store, files.LEAVING, f"{name}.{secrets.token_hex(4)}")
            codec.create_only(path, LeavingCommit(name, time.time()), FORMAT)
            paths.append(path)
        yield
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def require_kept(store: Path, commits: Iterable[str]) -> None:
    """Raises NotKept unless all of these commits, which are held, stay for as long as they are; and OSError."""
    names = list(commits)
    for record in listing.names_if_there(store / files.LEAVING, ".json"):
        if (name := record.rpartition(".")[0]) in names and _is_leaving(files.named(store, files.LEAVING, record)):
            raise NotKept(f"{name} is being removed at this moment; ask again, or choose another one")
    valid = {commit.name: commit for commit in fence.commits(store)}
    for name in names:
        if name not in valid or not replicas.holders(store, [valid[name]])[name]:
            raise NotKept(f"{name} was removed at this moment; choose another one")


def _is_leaving(path: Path) -> bool:
    try:
        return time.time() - codec.read(path, LeavingCommit, FORMAT).at < LEAVING_HOURS * HOUR
    except FileNotFoundError:
        return False
    except codec.UndecodableRecord:
        return True


@contextlib.contextmanager
def holding(store: Path, commits: Iterable[str], by: str, why: str) -> Iterator[None]:
    """Hold the commits of these names. Raises OSError."""
    paths = []
    try:
        for name in commits:
            path = files.named(store, files.HOLDS, f"{name}.{secrets.token_hex(4)}")
            codec.create_only(path, Hold(name, by, why, time.time()), FORMAT)
            paths.append(path)
        yield
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def hold_for(store: Path, commit: str, child: Path) -> None:
    """Hold a commit for the training in the folder `child`, which continues it. Raises OSError."""
    where = os.path.relpath(child, store)
    why = "it continues it, and has no checkpoint of its own"
    hold = Hold(commit, f"training {child.name}", why, time.time(), where)
    codec.create_only(files.named(store, files.HOLDS, f"{commit}.{child.name}"), hold, FORMAT)


def let_go(store: Path, commit: str, child: str) -> bool:
    """End the hold for the training `child`; False where there was none. Raises OSError."""
    path = files.named(store, files.HOLDS, f"{commit}.{child}")
    existed = path.exists()
    path.unlink(missing_ok=True)
    return existed


def reasons(store: Path, commit: str, now: float) -> list[str]:
    """Why a commit is held at a time. A hold that cannot be decoded counts. Raises OSError."""
    hold_reasons = []
    for name in listing.names_if_there(store / files.HOLDS, ".json"):
        if name.startswith(f"{commit}."):
            hold_reasons += _reason(files.named(store, files.HOLDS, name), now)
    return hold_reasons


def _reason(path: Path, now: float) -> list[str]:
    try:
        hold = codec.read(path, Hold, FORMAT)
    except FileNotFoundError:
        return []
    except codec.UndecodableRecord as error:
        return [str(error)]
    fresh = now - hold.at < DAYS * DAY
    needed = _is_needed(path.parent.parent / hold.child, fresh) if hold.child else fresh
    return [f"{hold.by} holds it: {hold.why}"] if needed else []


def _is_needed(child: Path, fresh: bool) -> bool:
    """Whether a training that continues a commit has no checkpoint of its own that lasts. Raises OSError."""
    if files.SPECIFICATION not in (files.entries(child) or ()):
        return fresh
    own = fence.commits(child)
    tiers_by_commit = replicas.holders(child, own)
    return not any(LASTING & set(tiers_by_commit[commit.name]) for commit in own)
