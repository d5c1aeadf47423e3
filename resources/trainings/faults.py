"""Training faults: why a running incarnation must be replaced, and what a waiting training waits for. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from slipway.resources.fleet.protocol import Node
from slipway.resources.launchers.protocol import JobState, Status
from slipway.resources.trainings.watch import Sight
from slipway.trainer.record import causes
from slipway.trainer.record.phases import PHASES, TRAINING, VALIDATING
from slipway.trainer.record.rank_exit import RankEnd

REST = 0.1
"""The longest delay between the deadline of a hang and its detection, as a share of the deadline."""
LEARNED = 10.0
"""A step hangs if it takes this many times as long as the longest recent step; slow is not hung. A validation hangs if
it makes no progress for this many times as long as the longest recent validation took."""
REPEATED = (TRAINING.name, VALIDATING.name)
"""The phases that recur with a similar duration, so that their deadlines can be learned. Phases that wait for a tier
are not among them, since a new start would wait for the same tier."""
SHORT = ("", "forward", "backward", "pipeline", "optimizer", "communication")
"""The sections of a step with a similar duration in every step. Loading data is not one of them: it may be slow."""
SILENT_SECONDS = 5.0
"""A process whose heartbeat has not changed for longer counts as silent: it is stuck, whatever it did last."""
STORED = ("staging", "restoring", "committing", "copying")
"""The phases in which a rank waits for a tier."""
HANGS = "no progress for "
"""The beginning of the sentence of a hang. It names first the rank that has waited longest, which need not be the
cause."""
APART = "not in the exchange of the others: "
"""In such a sentence, the text before the ranks for which the others wait."""
NONE_APART = "all ranks are alive, and all wait in an exchange"
NAMED = 5
"""The maximum number of nodes that a sentence names; it counts the others."""


@dataclass(frozen=True)
class TrainingFault:
    """Why an incarnation must be replaced."""

    cause: str
    nodes: tuple[str, ...]
    """The nodes of the incarnation."""
    disrupted: bool = False
    """Whether the fault is external: a node died, or the job was preempted or evicted."""
    kind: str = ""
    """The cause, from `slipway.trainer.record.causes`."""
    suspects: tuple[str, ...] = ()
    """The nodes on which the fault probably began."""
    ranks: tuple[int, ...] = ()
    """The ranks on which the fault probably began."""


@dataclass(frozen=True)
class Waiting:
    """What an unfinished training that does not run waits for."""

    incarnation: int
    """The newest incarnation; 0 before the first."""
    reason: str
    seconds: float
    """How long it has waited."""


@dataclass(frozen=True)
class EndVerdict:
    """How an incarnation without an exit record of its own ended."""

    outcome: str
    reason: str
    kind: str
    """The cause, from `slipway.trainer.record.causes`."""
    disrupted: bool = False


def verdict(should_run: bool, job: Status, disrupted: bool, end: RankEnd | None) -> EndVerdict:
    """How an incarnation ended, from the status of its job and from the exit records of its ranks, if any.

    disrupted: whether its job was evicted or lost a node.
    """
    if not should_run:
        return EndVerdict("stopped", "asked to stop", causes.STOP_REQUESTED, disrupted)
    if job.state is JobState.MISSING:
        return EndVerdict("failed", "the job object was deleted by hand; it is started again", causes.DELETED)
    if disrupted:
        return EndVerdict("failed", job.reason, causes.DISRUPTED, disrupted=True)
    if job.kind and (
        end is None or end.kind == causes.STOP_REQUESTED
    ):  # the job's fault is why the ranks were asked to stop
        return EndVerdict("failed", job.reason, job.kind)
    if end is not None and end.kind == causes.STOP_REQUESTED:
        return EndVerdict("stopped", f"{end.node} was {end.reason}, at step {end.step}", end.kind, disrupted=True)
    if job.state is JobState.FAILED:
        return EndVerdict("failed", job.reason, end.kind if end else causes.UNKNOWN)
    return EndVerdict("stopped", job.reason or "the job ended before the last step", causes.STOP_REQUESTED)


def lost(
    status: Status, fleet: Mapping[str, Node], members: Collection[str] | None = None, least: int = 0
) -> TrainingFault | None:
    """The fault if nodes died or left the fleet while the launcher still reports the job as live.

    members, least: for a job of supervisors, the nodes of its newest generation, and the number of nodes that it needs.
    Nodes that it has dropped do not matter. While enough nodes are left, the job recovers by itself; if it does not, it
    is `stuck`.
    """
    nodes = [node for node in status.nodes if members is None or node in members]
    sentences = lost_nodes(nodes, fleet) if status.state.live else []
    goes_on = members is not None and status.state is JobState.RUNNING and len(nodes) - len(sentences) >= least
    if not sentences or goes_on:
        return None
    return TrainingFault("; ".join(sentences), status.nodes, disrupted=True, kind=causes.DISRUPTED)


def pre_empted(status: Status, begun: bool) -> TrainingFault | None:
    """The fault if a job is pending again although its trainers had begun: it was pre-empted."""
    if status.state is not JobState.PENDING or not begun:
        return None
    return TrainingFault(
        f"pre-empted: {status.reason or 'it is pending again'}", status.nodes, disrupted=True, kind=causes.DISRUPTED
    )


def stranded(status: Status, offered: Iterable[str], fleet: Iterable[Node], needed: int) -> TrainingFault | None:
    """The fault if a job waits for nodes that are no longer ready, for example because they were renamed."""
    ready = {node.name for node in fleet if node.ready} & set(offered)
    if status.state is not JobState.PENDING or len(ready) >= needed:
        return None
    cause = f"found {len(ready)} ready nodes among those that it may use, expected {needed} or more"
    return TrainingFault(cause, status.nodes, disrupted=True, kind=causes.DISRUPTED)


def stuck(
    status: Status, sights: Sequence[Sight], deadline: Callable[[str], float], least: float | None = None
) -> TrainingFault | None:
    """The fault if every rank has made no progress for longer than its deadline.

    deadline: the deadline of a phase in seconds. least: the minimum deadline of a step in seconds; if given, the
    deadlines of steps and validations are learned from earlier ones. Ranks wait for one another, so progress of one
    rank is a sign of life of all. The fault names the rank that is longest over its deadline, and those for which it
    waits.
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
    """The cause of a hang: storage if ranks wait for a tier, network if all live ranks wait in an exchange, else hung.

    apart: the ranks for which the others wait.
    """
    if all(_waits_for_a_tier(sight) for sight in apart or sights):
        return causes.STORAGE
    exchanging = all(sight.section == "communication" and sight.silent <= SILENT_SECONDS for sight in sights)
    return causes.NETWORK if exchanging and len(sights) > 1 and not apart else causes.HUNG


def patience(sight: Sight, deadline: Callable[[str], float], least: float | None = None) -> float:
    """Seconds for which a rank may make no progress where it is; arguments as for `stuck`."""
    is_short = sight.section in SHORT or sight.progress.phase == VALIDATING.name or sight.silent > SILENT_SECONDS
    return _patience_if_silent(sight, deadline, least) if is_short else deadline(sight.progress.phase)


def _patience_if_silent(sight: Sight, deadline: Callable[[str], float], least: float | None) -> float:
    """The same for a silent rank: the minimum that its patience can become."""
    allowed = deadline(sight.progress.phase)
    if least is None or not sight.longest or sight.progress.phase not in REPEATED:
        return allowed
    return min(allowed, max(least, LEARNED * sight.longest))


def outside(sights: Sequence[Sight]) -> list[Sight]:
    """The ranks for which the others wait: those that are silent, behind, or not in an exchange.

    Empty if all ranks are alike.
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
    """Seconds until these ranks must be checked again: a share of the time until all can be late.

    It assumes the shorter deadline of a silent rank, since a rank may become silent at any time.
    """
    return REST * max((_patience_if_silent(sight, deadline, least) - sight.age for sight in sights), default=0.0)


def where(sight: Sight) -> str:
    """A rank's phase or section of a step, and its progress, in words."""
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
    """The first ranks in words, and the number of the others."""
    descriptions = list[str]()
    for sight in sights[:NAMED]:
        silence = f" (silent for {sight.silent:.0f} s)" if sight.silent > SILENT_SECONDS else ""
        descriptions.append(f"rank {sight.rank} on {sight.node or 'an unknown node'}{silence}")
    if len(sights) > NAMED:
        descriptions.append(f"{len(sights) - NAMED} more")
    return ", ".join(descriptions)


def _amount(count: int, unit: str) -> str:
    return f"{count / 1e9:.2f} GB" if unit == "bytes" else f"{count} {unit}"


def lost_nodes(names: Iterable[str], nodes: Mapping[str, Node]) -> list[str]:
    """A sentence for each of these nodes that died or left the fleet. A cordoned node is not lost.

    `nodes` is the fleet by name.
    """
    sentences = []
    for name in names:
        if name not in nodes:
            sentences.append(f"node {name} is lost: it left the fleet")
        elif nodes[name].lost:
            sentences.append(f"node {name} is lost: {nodes[name].reason}")
    return sentences


def too_few(nodes: Sequence[Node], needed: int) -> str:
    """What a training that needs `needed` ready nodes waits for; "" if enough are ready."""
    ready = sum(node.ready for node in nodes)
    if ready >= needed:
        return ""
    shortage = f"found {ready} of the fleet's {len(nodes)} nodes ready, expected {needed} or more"
    unready = [f"{node.name}: {node.reason}" for node in nodes if not node.ready]
    if not unready:
        return shortage
    if len(unready) > NAMED:
        unready[NAMED:] = [f"and {len(unready) - NAMED} more"]
    return f"{shortage} ({'; '.join(unready)})"
