"""Training faults: why a running incarnation must be given up, and what one that does not run waits for. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from resources.fleet.protocol import Node
from resources.launcher.protocol import State, Status
from trainer.heartbeat import Beat

NAMED = 5
"""So many nodes are named in a sentence; of more, the number is told."""


@dataclass(frozen=True)
class Fault:
    """Why an incarnation must be given up."""

    cause: str
    nodes: tuple[str, ...]
    """Those that it was on."""
    disrupted: bool = False
    """Whether it was for no fault of the training: a node died, or its place was taken away."""


@dataclass(frozen=True)
class Waiting:
    """What a wanted training that does not run waits for."""

    incarnation: int
    """The newest one, 0 before the first."""
    reason: str
    seconds: float
    """For how long it has."""


def lost(status: Status, fleet: Iterable[Node]) -> Fault | None:
    """Nodes died, or left the fleet, under a job that the launcher still believes in."""
    sentences = lost_nodes(status.nodes, fleet) if status.state.live else []
    return Fault("; ".join(sentences), status.nodes, disrupted=True) if sentences else None


def pre_empted(status: Status, begun: bool) -> Fault | None:
    """It waits again, although its trainers have been heard of (`begun`): others were given its place."""
    if status.state is not State.PENDING or not begun:
        return None
    return Fault(f"pre-empted: {status.reason or 'it is pending again'}", status.nodes, disrupted=True)


def stranded(status: Status, offered: Iterable[str], fleet: Iterable[Node], needed: int) -> Fault | None:
    """It waits for a place on nodes that it was offered when others were ready: nodes come, go and are renamed."""
    ready = {node.name for node in fleet if node.ready} & set(offered)
    if status.state is not State.PENDING or len(ready) >= needed:
        return None
    cause = f"of the nodes it was to run on {len(ready)} are ready, and it needs {needed}"
    return Fault(cause, status.nodes, disrupted=True)


def stuck(status: Status, age: float, limit: float) -> Fault | None:
    """None of its trainers has moved on for `age` seconds, and `limit` is how long they may take."""
    if status.state is not State.RUNNING or age <= limit:
        return None
    return Fault(f"no progress for {age:.0f} s (the deadline is {limit:.0f} s)", status.nodes)


def lost_nodes(names: Iterable[str], fleet: Iterable[Node]) -> list[str]:
    """A sentence for each of the names whose node died or left; one that takes no new work alone is not lost."""
    nodes = {node.name: node for node in fleet}
    sentences = []
    for name in names:
        if name not in nodes:
            sentences.append(f"node {name} is lost: it left the fleet")
        elif nodes[name].lost:
            sentences.append(f"node {name} is lost: {nodes[name].reason}")
    return sentences


def too_few(nodes: Sequence[Node], needed: int) -> str:
    """What a training that needs so many ready nodes at least waits for; empty when there are enough."""
    ready = sum(node.ready for node in nodes)
    if ready >= needed:
        return ""
    away = [f"{node.name}: {node.reason}" for node in nodes if not node.ready]
    named = "; ".join(away[:NAMED]) + (f"; and {len(away) - NAMED} more" if len(away) > NAMED else "")
    return f"of the fleet's {len(nodes)} nodes {ready} are ready, and it needs {needed}" + (
        f" ({named})" if away else ""
    )


def progress_age(beats: Iterable[Beat], status: Status, now: float) -> float:
    """Seconds since any rank moved on: since the last progress, or since the job started if that is later."""
    begun = status.started_at or status.submitted_at or now
    return now - max([begun, *(beat.progress_at for beat in beats)])
