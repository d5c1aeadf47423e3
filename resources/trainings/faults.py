"""Training faults: why a running incarnation must be given up, and what a waiting training waits for. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slipway.resources.fleet.protocol import Node
from slipway.resources.launchers.protocol import JobState, Status
from slipway.resources.trainings.watch import Sight
from slipway.trainer.record import causes
from slipway.trainer.record.phases import PHASES, TRAINING, VALIDATING
from slipway.trainer.record.rank_exit import RankEnd

REST = 0.1
"""A hang is found so much later than its deadline at most, as a share of it."""
LEARNED = 10.0
"""A step hangs when it takes so many times as long as the longest of the last ones; slow is not hung. A validation
hangs when it stays at one place for so many times as long as the longest one took in all."""
REPEATED = (TRAINING.name, VALIDATING.name)
"""The phases that come again and take about as long each time, so that their deadlines are learned. What waits for a
tier does not: a new start would wait for the same tier."""
SHORT = ("", "forward", "backward", "pipeline", "optimiser", "communication")
"""The sections of a step that take about as long in every step. Data may have to come from far away."""
SILENT_SECONDS = 5.0
"""A process whose heartbeat stays the same for longer stands still, whatever it did last."""
STORED = ("staging", "restoring", "committing", "copying")
"""The phases in which a rank waits for a tier."""
HANGS = "no progress for "
"""How the sentence of a hang begins. The rank that it names first waits the longest: that is no sign that it is to
blame."""
APART = "not in the exchange of the others: "
"""What follows in a sentence are the ranks for which the others wait, and their nodes."""
NONE_APART = "all ranks live, and all wait in an exchange"
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
    """What class of cause it is: see `slipway.trainer.record.causes`."""
    suspects: tuple[str, ...] = ()
    """Those of the nodes on which it seems to have begun."""
    ranks: tuple[int, ...] = ()
    """The ranks with which it seems to have begun."""


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
    """Of `slipway.trainer.record.causes`."""
    disrupted: bool = False


def verdict(should_run: bool, job: Status, disrupted: bool, end: RankEnd | None) -> EndVerdict:
    """How an incarnation ended, from its job and from what its ranks said of their end, if they said anything.

    disrupted: whether its job was evicted or lost a node.
    """
    if not should_run:
        return EndVerdict("stopped", "asked to stop", causes.STOP_REQUESTED, disrupted)
    if job.state is JobState.MISSING:
        return EndVerdict("failed", "the job object was deleted by hand; it is started again", causes.DELETED)
    if disrupted:
        return EndVerdict("failed", job.reason, causes.DISRUPTED, disrupted=True)
    if job.kind and (end is None or end.kind == causes.STOP_REQUESTED):  # the ranks were asked because of it
        return EndVerdict("failed", job.reason, job.kind)
    if end is not None and end.kind == causes.STOP_REQUESTED:
        return EndVerdict("stopped", f"{end.node} was {end.reason}, at step {end.step}", end.kind, disrupted=True)
    if job.state is JobState.FAILED:
        return EndVerdict("failed", job.reason, end.kind if end else causes.UNKNOWN)
    return EndVerdict("stopped", job.reason or "the job ended before the last step", causes.STOP_REQUESTED)


def lost(
    status: Status, fleet: Mapping[str, Node], members: Collection[str] | None = None, least: int = 0
) -> TrainingFault | None:
    """The fault when nodes died, or left the fleet, while the launcher still reports the job as live.

    members, least: given for a job of supervisors, the nodes of its newest generation and how many it needs. Nodes that
    it went on without are none of its own any more. While enough are left it goes on by itself; where it does not, it
    is `stuck`.
    """
    nodes = [node for node in status.nodes if members is None or node in members]
    sentences = lost_nodes(nodes, fleet) if status.state.live else []
    goes_on = members is not None and status.state is JobState.RUNNING and len(nodes) - len(sentences) >= least
    if not sentences or goes_on:
        return None
    return TrainingFault("; ".join(sentences), status.nodes, disrupted=True, kind=causes.DISRUPTED)


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


def stuck(
    status: Status, sights: Sequence[Sight], deadline: Callable[[str], float], least: float | None = None
) -> TrainingFault | None:
    """The fault when every rank has been at one place for longer than its deadline.

    deadline: that of a phase. least: the seconds that a step has at least; where they are given, the deadlines of a
    step and of a validation are learned from those before. Ranks wait for one another, so that one that moves is a sign
    of life of all. The fault names the rank that waits the longest over its deadline, and those for which it waits.
    """
    over = {sight: sight.age - patience(sight, deadline, least) for sight in sights}
    if status.state is not JobState.RUNNING or not over or min(over.values()) <= 0:
        return None
    apart = outside(sights)
    worst = max((sight for sight in sights if sight not in apart), key=lambda sight: over[sight])
    cause = f"{HANGS}{worst.age:.0f} s (the deadline is {worst.age - over[worst]:.0f} s): {where(worst)}"
    if apart:
        cause += f"; {APART}{_named(apart)}"
    kind = kind_of_hang(sights, apart)
    if kind == causes.NETWORK:
        cause += f"; {NONE_APART}"
    suspects = tuple(dict.fromkeys(sight.node for sight in apart if sight.node))
    ranks = tuple(sight.rank for sight in apart if sight.rank is not None)
    return TrainingFault(cause, status.nodes, kind=kind, suspects=suspects, ranks=ranks)


def kind_of_hang(sights: Sequence[Sight], apart: Sequence[Sight]) -> str:
    """The class of a hang: the tier for which ranks wait, the network that lost what all of them wait for, or a hang.

    apart: the ranks for which the others wait.
    """
    if all(_waits_for_a_tier(sight) for sight in apart or sights):
        return causes.STORAGE
    exchanging = all(sight.section == "communication" and sight.silent <= SILENT_SECONDS for sight in sights)
    return causes.NETWORK if exchanging and len(sights) > 1 and not apart else causes.HUNG


def patience(sight: Sight, deadline: Callable[[str], float], least: float | None = None) -> float:
    """Seconds for which a rank may stay at the place where it was seen; arguments as for `stuck`."""
    is_short = sight.section in SHORT or sight.progress.phase == VALIDATING.name or sight.silent > SILENT_SECONDS
    return _patience_if_silent(sight, deadline, least) if is_short else deadline(sight.progress.phase)


def _patience_if_silent(sight: Sight, deadline: Callable[[str], float], least: float | None) -> float:
    """The same for a rank that stands still wherever it is: the least that its patience can become."""
    allowed = deadline(sight.progress.phase)
    if least is None or not sight.longest or sight.progress.phase not in REPEATED:
        return allowed
    return min(allowed, max(least, LEARNED * sight.longest))


def outside(sights: Sequence[Sight]) -> list[Sight]:
    """The ranks for which the others wait: those that stand still, are behind, or are not in an exchange.

    None where all ranks are alike.
    """
    behind = min(sight.progress.step for sight in sights)
    signs: Sequence[Callable[[Sight], bool]] = (
        lambda sight: sight.silent > SILENT_SECONDS,
        lambda sight: sight.progress.step == behind,
        lambda sight: sight.section != "communication",
    )
    for sign in signs:
        matching = [sight for sight in sights if sign(sight)]
        if 0 < len(matching) < len(sights):
            return matching
    return []


def rest(sights: Sequence[Sight], deadline: Callable[[str], float], least: float | None = None) -> float:
    """Seconds for which these ranks need not be looked at again: a share of what is left before all can be late.

    A rank that may take long where it is has less patience as soon as it stands still, which only a look can show.
    """
    return REST * max((_patience_if_silent(sight, deadline, least) - sight.age for sight in sights), default=0.0)


def where(sight: Sight) -> str:
    """A rank's phase, or its section of a step, and its progress in words."""
    rank_place = sight.progress
    if sight.rank is None:
        return f"{rank_place.phase}, no rank has written a heartbeat"
    rank = f"rank {sight.rank} on {sight.node}" if sight.node else f"rank {sight.rank}"
    if sight.section:
        return f"{rank} is in {sight.section} after step {rank_place.step}"
    unit = PHASES[rank_place.phase].unit if rank_place.phase in PHASES else ""
    done = f", {_amount(rank_place.done, unit)} done" if unit not in ("", "steps") else ""
    return f"{rank} is {rank_place.phase} after step {rank_place.step}{done}"


def _waits_for_a_tier(sight: Sight) -> bool:
    reads = sight.section == "data" and sight.silent <= SILENT_SECONDS
    return reads or sight.progress.phase in STORED


def _named(sights: Sequence[Sight]) -> str:
    """Some ranks in words, and how many more there are."""
    descriptions = [
        f"rank {sight.rank} on {sight.node or 'an unknown node'}"
        + (f" (silent for {sight.silent:.0f} s)" if sight.silent > SILENT_SECONDS else "")
        for sight in sights[:NAMED]
    ]
    more = [f"{len(sights) - NAMED} more"] if len(sights) > NAMED else []
    return ", ".join(descriptions + more)


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
