"""Training faults: why a running incarnation must be given up, and what a waiting training waits for. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from resources.fleet.protocol import Node
from resources.launchers.protocol import JobState, Status
from resources.trainings.watch import Sight
from trainer.record import causes
from trainer.record.endings import RankEnd
from trainer.record.phases import PHASES

REST = 0.1
"""A hang is found so much later than its deadline at most, as a share of it."""
NAMED = 5
"""So many nodes are named in a sentence; for the rest, the sentence has their number."""


@dataclass(frozen=True)
class TrainingFault:
    """Why an incarnation must be given up."""

    cause: str
    nodes: tuple[str, ...]
    """The nodes that it ran on."""
    disrupted: bool = False
    """Whether the training is not to blame: a node died, or its place was taken away."""
    kind: str = ""
    """What class of cause it is: see `trainer.record.causes`."""


@dataclass(frozen=True)
class Waiting:
    """What a wanted training that does not run waits for."""

    incarnation: int
    """The newest incarnation, 0 before the first."""
    reason: str
    seconds: float
    """How long it has waited."""


@dataclass(frozen=True)
class EndVerdict:
    """How an incarnation ended that left no exit record of its own."""

    outcome: str
    reason: str
    kind: str
    """Of `trainer.record.causes`."""
    disrupted: bool = False


def verdict(wanted: bool, job: Status, disrupted: bool, end: RankEnd | None) -> EndVerdict:
    """How an incarnation ended, from its job and from what its ranks said of their end, if they said anything.

    disrupted: whether its job was evicted or lost a node.
    """
    if not wanted:
        return EndVerdict("stopped", "asked to stop", causes.ASKED, disrupted)
    if job.state is JobState.MISSING:
        return EndVerdict("failed", "the job object was deleted by hand; it is started again", causes.DELETED)
    if disrupted:
        return EndVerdict("failed", job.reason, causes.DISRUPTED, disrupted=True)
    if end is not None and end.kind == causes.ASKED:
        return EndVerdict("stopped", f"{end.node} was {end.reason}, at step {end.step}", end.kind, disrupted=True)
    if job.state is JobState.FAILED:
        return EndVerdict("failed", job.reason, end.kind if end else causes.UNKNOWN)
    return EndVerdict("stopped", job.reason or "the job ended before the last step", causes.ASKED)


def lost(status: Status, fleet: Mapping[str, Node]) -> TrainingFault | None:
    """The fault when nodes died, or left the fleet, while the launcher still reports the job as live."""
    sentences = lost_nodes(status.nodes, fleet) if status.state.live else []
    return (
        TrainingFault("; ".join(sentences), status.nodes, disrupted=True, kind=causes.DISRUPTED) if sentences else None
    )


def pre_empted(status: Status, begun: bool) -> TrainingFault | None:
    """The fault when a job waits again although its trainers had begun: other jobs were given its place."""
    if status.state is not JobState.PENDING or not begun:
        return None
    return TrainingFault(
        f"pre-empted: {status.reason or 'it is pending again'}", status.nodes, disrupted=True, kind=causes.DISRUPTED
    )


def stranded(status: Status, offered: Iterable[str], fleet: Iterable[Node], needed: int) -> TrainingFault | None:
    """The fault when a job waits for nodes that are not ready any more: nodes come, go and are renamed."""
    ready = {node.name for node in fleet if node.ready} & set(offered)
    if status.state is not JobState.PENDING or len(ready) >= needed:
        return None
    cause = f"found {len(ready)} of the nodes that it may run on ready, expected {needed} or more"
    return TrainingFault(cause, status.nodes, disrupted=True, kind=causes.DISRUPTED)


def stuck(status: Status, sights: Sequence[Sight], deadline: Callable[[str], float]) -> TrainingFault | None:
    """The fault when every rank has been at one place for longer than the deadline of its phase.

    Ranks wait for one another, so that one that moves is a sign of life of all. The fault names the rank that is the
    farthest over its deadline.
    """
    late = [sight for sight in sights if sight.age > deadline(sight.place.phase)]
    if status.state is not JobState.RUNNING or not late or len(late) < len(sights):
        return None
    worst = max(late, key=lambda sight: sight.age - deadline(sight.place.phase))
    cause = f"no progress for {worst.age:.0f} s (the deadline is {deadline(worst.place.phase):.0f} s): {where(worst)}"
    return TrainingFault(cause, status.nodes, kind=causes.HUNG)


def rest(sights: Sequence[Sight], deadline: Callable[[str], float]) -> float:
    """Seconds for which nobody need look at these ranks again: a share of what is left before all can be late."""
    return REST * max((deadline(sight.place.phase) - sight.age for sight in sights), default=0.0)


def where(sight: Sight) -> str:
    """A rank's phase and progress in words."""
    place = sight.place
    if sight.rank is None:
        return f"{place.phase}, no rank has written a heartbeat"
    unit = PHASES[place.phase].unit if place.phase in PHASES else ""
    done = f", {_amount(place.done, unit)} done" if unit not in ("", "steps") else ""
    return f"rank {sight.rank} is {place.phase} after step {place.step}{done}"


def _amount(count: int, unit: str) -> str:
    return f"{count / 1e9:.2f} GB" if unit == "bytes" else f"{count} {unit}"


def lost_nodes(names: Iterable[str], nodes: Mapping[str, Node]) -> list[str]:
    """A sentence for each of these nodes that died or left the fleet; a node that is only cordoned is not lost.

    `nodes` is the fleet, by name.
    """
    sentences = []
    for name in names:
        if name not in nodes:
            sentences.append(f"node {name} is lost: it left the fleet")
        elif nodes[name].lost:
            sentences.append(f"node {name} is lost: {nodes[name].reason}")
    return sentences


def too_few(nodes: Sequence[Node], needed: int) -> str:
    """What a training that needs at least so many ready nodes waits for; empty when enough are ready."""
    ready = sum(node.ready for node in nodes)
    if ready >= needed:
        return ""
    away = [f"{node.name}: {node.reason}" for node in nodes if not node.ready]
    named = "; ".join(away[:NAMED]) + (f"; and {len(away) - NAMED} more" if len(away) > NAMED else "")
    return f"found {ready} of the fleet's {len(nodes)} nodes ready, expected {needed} or more" + (
        f" ({named})" if away else ""
    )
