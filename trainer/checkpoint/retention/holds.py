"""Holds: a process that reads checkpoints by name (a replay) protects them from removal while it runs.

``<store>/holds/<commit>.<random>.json`` is the hold of a process, removed at its end; if the process is killed, the
hold counts for `DAYS` from its time. ``<store>/holds/<commit>.<training>.json`` is the hold of a training that
continues the checkpoint. It counts until that training has its own checkpoint on a tier that outlives nodes, and for
`DAYS` if the training was never proposed. The control plane removes it when that training is no longer wanted.

A process that removes a commit first announces it, ``<store>/leaving/<commit>.<random>.json``, then reads the holds,
and removes the commit if there are none. A process that holds a commit checks afterwards whether it is leaving, and
whether it still exists (`require_kept`). So at least one of the two sees the other, even if either is killed.
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
"""An announcement counts for this time, if its process was killed; no removal takes longer."""
DAYS = 7.0
"""No process reads the checkpoints that it holds for longer; the clocks of machines differ by far less."""


@dataclass(frozen=True)
class Hold:
    """A protection of a commit from removal."""

    commit: str
    by: str
    why: str
    at: float
    """Seconds since the epoch."""
    child: str = ""
    """The folder, relative to this store, of the training that continues the commit; else empty."""


class NotKept(ValueError):
    """A commit was removed while it was being held, or may be."""


@dataclass(frozen=True)
class LeavingCommit:
    """The announcement that a commit will be removed if it is not held."""

    commit: str
    at: float
    """Seconds since the epoch."""


@contextlib.contextmanager
def leaving(store: Path, commits: Iterable[str]) -> Iterator[None]:
    """Announce the removal of these commits, until it is on record. Raises OSError."""
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
    """Raises NotKept unless all of these held commits exist and none is leaving; and OSError."""
    names = list(commits)
    for record in listing.names_if_there(store / files.LEAVING, ".json"):
        name = record.rpartition(".")[0]
        if name in names and _is_leaving(files.named(store, files.LEAVING, record)):
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
    """End the hold for the training `child`; returns False if there was none. Raises OSError."""
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
    is_needed = now - hold.at < DAYS * DAY
    if hold.child:
        is_needed = _is_needed(path.parent.parent / hold.child, is_needed)
    return [f"{hold.by} holds it: {hold.why}"] if is_needed else []


def _is_needed(child: Path, fresh: bool) -> bool:
    """Whether a training that continues a commit has no checkpoint of its own on a lasting tier. Raises OSError."""
    if files.SPECIFICATION not in (files.entries(child) or ()):
        return fresh
    own = fence.commits(child)
    tiers_by_commit = replicas.holders(child, own)
    return not any(LASTING & set(tiers_by_commit[commit.name]) for commit in own)
