"""Restore: find the newest commit that verifies, and load it. Damaged copies are set aside with the reason.

A copy is damaged if its bytes were read and differ from the commit, or are proven to be absent. A copy that cannot be
read is neither good nor damaged: its tier is away (`slipway.trainer.checkpoint.tiers.waiting`).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from slipway.trainer.base import console
from slipway.trainer.checkpoint import state
from slipway.trainer.checkpoint.disk import contents
from slipway.trainer.checkpoint.disk.contents import Contents
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers import replicas, waiting
from slipway.trainer.checkpoint.tiers.locations import CommitPlace
from slipway.trainer.checkpoint.tiers.node_copies import Gathering, Needed, SourceFault
from slipway.trainer.checkpoint.tiers.waiting import Wait
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from slipway.trainer.record.causes import LackingTier
from slipway.trainer.record.fence import Commit

PlacesOf = Callable[[fence.Commit], Iterable[CommitPlace]]
"""The places in which a commit can be read, in the order in which they are tried."""
Record = Callable[..., None]
"""Writes an event to the ledger."""


def every_file(checkpoint: Contents) -> Iterable[str]:
    """All files of a checkpoint."""
    return checkpoint.manifest.files


@dataclass(frozen=True)
class NodeReading:
    """How a commit that is spread over several nodes is read, and the callbacks about it."""

    needed: Needed = every_file
    """The files that this rank needs."""
    on_fault: Callable[[fence.Commit, SourceFault], None] = lambda *_: None
    """Called on rank 0 with each source that gave other bytes or stalled."""
    on_lost: Callable[[fence.Commit, str], None] = lambda *_: None
    """Called on rank 0 with a commit that is passed over because the training does not have its nodes now, and why."""


class _Tried(NamedTuple):
    """One attempt to read a commit in all its places."""

    checkpoint: Contents | None
    damaged: dict[str, str]
    """By tier, the damage of its copy."""
    away: dict[str, str]
    """By tier, why its copy could not be read."""
    lost: dict[str, str]
    """By tier, why its copy is out of reach for this start."""


def newest_verified(
    store: Path,
    world: World,
    token: fence.Token,
    places_of: PlacesOf,
    on_damaged: Callable[[fence.Commit, str], None],
    on_away: Callable[[str], None],
    nodes: NodeReading | None = None,
) -> tuple[fence.Commit, Contents] | None:
    """The newest valid commit of which every byte verifies in one of its places; None if there is none.

    All ranks call it at the same time, and each verifies its part of the files. A damaged copy is withdrawn. A commit
    that is damaged in all its places is set aside; rank 0 calls `on_damaged` with it and the reason, and the search
    continues with the commit before it. While a place cannot be read, every rank calls `on_away` with the reason and
    tries again; after `waiting.SECONDS` the search continues with the commit before it. `nodes` is for commits that are
    spread over several nodes; by default every file is read.

    Raises TierAway, on all ranks, if no commit could be read and some place may hold one; OSError if the records cannot
    be read; and fence.Superseded if a copy is to be set aside and `token` is no longer the newest claim's.
    """
    wait = Wait()
    nodes = nodes or NodeReading()
    for commit in reversed(_commits(store, world)):
        while True:
            tried = _try(commit, places_of, world, nodes)
            if tried.damaged and world.is_rank_zero and replicas.set_aside(store, commit, tried.damaged, token):
                on_damaged(commit, "; ".join(tried.damaged.values()))
            if tried.checkpoint:
                return commit, tried.checkpoint
            if not tried.away:
                if tried.lost and world.is_rank_zero:
                    nodes.on_lost(commit, "; ".join(tried.lost.values()))
                break
            reason = f"checkpoint {commit.name}: {_by_tier(tried.away)}"
            if world.is_rank_zero:
                for tier, why in tried.away.items():
                    replicas.note_fault(store, commit.name, tier, replicas.AWAY, why)
            on_away(reason)
            if not world.broadcast(wait.again(reason)):
                break
    wait.check()
    return None


def verified(
    commit: fence.Commit,
    world: World,
    places_of: PlacesOf,
    on_away: Callable[[str], None],
    nodes: NodeReading | None = None,
) -> Contents:
    """A commit whose every byte verifies in one of its places; it sets nothing aside.

    All ranks call it at the same time. Raises LackingTier, on all ranks, if no place has the whole commit, and TierAway
    if a place cannot be read.
    """
    wait = Wait()
    while True:
        tried = _try(commit, places_of, world, nodes or NodeReading())
        if tried.checkpoint:
            return tried.checkpoint
        details = _by_tier({**tried.damaged, **tried.lost, **tried.away}) or "no tier holds it any more"
        reason = f"checkpoint {commit.name} cannot be loaded: {details}"
        if not tried.away:
            raise LackingTier(reason)
        on_away(reason)
        if not world.broadcast(wait.again(reason)):
            raise waiting.TierAway(f"{reason}. Nothing was changed; the training starts when the tier can be read")


def _by_tier(reasons: dict[str, str]) -> str:
    return "; ".join(f"{tier}: {why}" for tier, why in reasons.items())


def _commits(store: Path, world: World) -> list[fence.Commit]:
    """The valid commits; rank 0 reads them. Raises OSError on all ranks."""
    commits: list[fence.Commit] | str = []
    if world.is_rank_zero:
        try:
            commits = waiting.commits(store)
        except (OSError, ValueError) as error:
            commits = str(error)
    commits = world.broadcast(commits)
    if isinstance(commits, str):
        raise OSError(commits)
    return commits


def _try(commit: fence.Commit, places_of: PlacesOf, world: World, nodes: NodeReading) -> _Tried:
    damaged = dict[str, str]()
    away = dict[str, str]()
    lost = dict[str, str]()
    for location in places_of(commit):
        outcome = Gathering(damage=location.damage, away=location.away, lost=location.lost)
        if location.copies:
            outcome = location.copies.gathered(nodes.needed, world)
        elif not (location.damage or location.away or location.lost):
            outcome = _verified(location.folder, commit.manifest, world)
        if world.is_rank_zero:
            for fault in outcome.faults:
                nodes.on_fault(commit, fault)
        if outcome.contents:
            return _Tried(outcome.contents, damaged, {}, {})
        if outcome.damage:
            damaged[location.tier] = outcome.damage
        elif outcome.away:
            away[location.tier] = outcome.away
        else:
            lost[location.tier] = outcome.lost
    return _Tried(None, damaged, away, lost)


def load(engine: state.Stateful, checkpoint: Contents, world: World) -> None:
    """Load a checkpoint into `engine`; all ranks call it at the same time. Raises ValueError for another model's."""
    names = set[str]().union(*world.all_gather(set(engine.model.state_dict())))
    surplus = sorted(name for name in checkpoint.tensor_names("model/") if name.removeprefix("model/") not in names)
    if surplus:
        names_there = "; ".join(surplus)
        raise ValueError(f"{checkpoint.folder}: this is a checkpoint of another model: it also has {names_there}")
    state.load(engine, checkpoint, world.rank, world.size)


def _verified(folder: Path, manifest_sha256: str, world: World) -> Gathering:
    """The checkpoint in `folder` if every rank has verified its part of the files; else its damage, or the fault.

    Damage comes before faults: one rank's proof of it counts even if another rank cannot read.
    """
    checkpoint = None
    damage = ""
    fault = ""
    try:
        checkpoint = contents.open_unverified(folder, manifest_sha256)
        checkpoint.verify(checkpoint.files_to_verify(world.rank, world.size))
    except DamagedCheckpoint as error:
        damage = str(error)
    except OSError as error:
        fault = f"{folder}: {error.strerror or error}"
    gathered = world.all_gather((damage, fault))
    damages = [result[0] for result in gathered if result[0]]
    faults = [result[1] for result in gathered if result[1]]
    if damages or faults:
        return Gathering(damage=damages[0] if damages else "", away=faults[0] if faults else "")
    return Gathering(contents=checkpoint)


class RestoreWords:
    """One rank's messages about a restore, in the ledger and on standard error."""

    def __init__(self, record: Record, leads: bool, on_progress: Callable[[], None]) -> None:
        """`on_progress` is called while the restore waits for a tier, because a wait is no hang."""
        self._record = record
        self._leads = leads
        self._on_progress = on_progress

    def source_fault(self, commit: Commit, fault: SourceFault) -> None:
        """A source did not give its copy of a file; the next source is tried."""
        self._record("source_failed", **fault.fields(commit))
        _say(f"{fault.node}: {fault.reason}")

    def lost(self, commit: Commit, reason: str) -> None:
        """The present nodes do not have the whole checkpoint."""
        self._record("passed_over", commit=commit.name, reason=reason)
        _say(f"checkpoint {commit.name} is passed over: {reason}")

    def memory_fault(self, step: int, reason: str) -> None:
        """The state of this step in the memory of the nodes does not verify."""
        self._record("memory_damaged", step=step, reason=reason)
        if self._leads:
            _say(f"step {step} in the memory of the nodes is passed over: {reason}")

    def damaged(self, commit: Commit, reason: str) -> None:
        """A checkpoint is damaged and no longer counts."""
        self._record("set_aside", commit=commit.name, reason=reason)

    def away(self, reason: str) -> None:
        """A tier does not answer."""
        self._on_progress()
        self._record("tier_away", reason=reason)
        if self._leads:
            _say(f"waiting: {reason}")


def _say(text: str) -> None:
    console.warn(f"trainer: {text}")
