"""Causes: the classes of reasons for which an incarnation ended; every record of an end has one.

A cause decides the platform's next action and a person's first look; the reason beside it is a sentence. `CAUSES` is
the only table of them. It has whose fault each is, the answers that a recipe may choose (`recovery.policies`), and how
many ends with this cause are too many while no new checkpoint is made. docs/runbook.md has a section for each.
"""

from collections.abc import Mapping
from dataclasses import dataclass

DONE = "done"
STOP_REQUESTED = "asked"
DISRUPTED = "disrupted"
OUT_OF_MEMORY = "out_of_memory"
ANSWERED = "out_of_memory_answered"
CONFIGURATION = "configuration"
DIVERGED = "diverged"
SPIKE = "spike"
STRAGGLER = "straggler"
MACHINE = "machine"
CORRUPTION = "corruption"
NETWORK = "network"
STORAGE = "storage"
HUNG = "hung"
KILLED = "killed"
SUPERSEDED = "superseded"
GROWN = "grown"
PAUSED = "paused"
DELETED = "deleted"
PROGRAM = "program"
NODE = "node"
PLATFORM = "platform"
UNKNOWN = ""
"""There is no record of the cause, as for a rank that is killed, or in a record of an earlier version."""

RETRY = "retry"
"""Start again, from the newest good checkpoint."""
SKIP = "skip"
"""Leave the batch out, and go on."""
SHRINK = "shrink"
"""Go on with less: the nodes that are ready, or a smaller micro-batch."""
REPLACE = "replace"
"""Start again on other nodes than the named ones, if enough others are ready."""
STOP = "stop"
"""End the training, and notify."""
TELL = "tell"
"""Go on, and notify."""
NOTHING = "nothing"
"""There is nothing to do."""

AT_ONCE = 1
"""The budget of a cause after which a new start would end in the same way."""
OWN = ("configuration", "program", "data")
"""The faults that lie in a training itself: in what it is specified as, in its code, in its data."""


@dataclass(frozen=True)
class Cause:
    """A class of causes."""

    name: str
    sentence: str
    """What it is, for a person."""
    fault: str
    """Whose: machine, platform, program, configuration, data, person or unknown; empty if it is no fault."""
    answers: tuple[str, ...]
    """The answers that a recipe may choose; the first one is the default."""
    factor: int | None = 1
    """So many times the recipe's `recovery.failures_without_checkpoint` ends of the class in a row, without a new
    checkpoint, are too many; None for a class that is never counted."""
    most: int | None = None
    """No more of them than this in any case."""

    @property
    def is_own(self) -> bool:
        """Whether it lies in the training itself, so that a new start would meet it wherever it is."""
        return self.fault in OWN

    def budget(self, base: int) -> int | None:
        """How many ends in a row are too many, where the recipe gives so many; None for no limit."""
        if self.factor is None:
            return None
        limit = self.factor * base
        return limit if self.most is None else min(limit, self.most)


_ALL = (
    Cause(DONE, "All steps are done.", "", (NOTHING,), None),
    Cause(
        STOP_REQUESTED,
        "It was asked to stop: by the control plane, or by a signal that drains a node.",
        "",
        (NOTHING,),
        None,
    ),
    Cause(DISRUPTED, "A node died, or the job lost its place.", "machine", (SHRINK,), None),
    Cause(OUT_OF_MEMORY, "Memory ran out, and no smaller micro-batch is left.", "configuration", (RETRY, STOP), 1, 2),
    Cause(
        ANSWERED, "Memory ran out, and the next start takes a smaller micro-batch.", "configuration", (SHRINK,), None
    ),
    Cause(
        CONFIGURATION,
        "The configuration cannot be trained: a new start would end in the same way.",
        "configuration",
        (STOP,),
        1,
        AT_ONCE,
    ),
    Cause(DIVERGED, "The loss or the gradients are not finite.", "data", (SKIP, RETRY, STOP), 1, 2),
    Cause(SPIKE, "The loss of a batch is far above those before it.", "data", (TELL, SKIP, STOP)),
    Cause(
        STRAGGLER, "A rank needs much longer for its own part of a step than the others.", "machine", (TELL, REPLACE)
    ),
    Cause(MACHINE, "Hardware or its driver failed.", "machine", (REPLACE, RETRY, STOP), 3),
    Cause(
        CORRUPTION,
        "Ranks hold different copies of what should be the same: memory or arithmetic failed without a word.",
        "machine",
        (REPLACE, RETRY, STOP),
        3,
    ),
    Cause(NETWORK, "An exchange between ranks failed, and no rank had died.", "machine", (RETRY, STOP), 3),
    Cause(STORAGE, "A tier could not be read or written, or did not answer.", "machine", (RETRY, STOP), 3),
    # A hang costs the steps since the last save, as a dead rank does, and on large clusters most hangs are a machine's
    # (ByteRobust, arXiv:2509.16293): so it counts for the interval of saves. One in the program comes again at the same
    # step, and soon spends this budget, which is not that of a machine.
    Cause(HUNG, "No rank made progress past a deadline.", "machine", (REPLACE, RETRY, STOP)),
    Cause(KILLED, "A rank was killed, or died without a word.", "machine", (RETRY, STOP), 3),
    Cause(SUPERSEDED, "A newer incarnation or generation took over.", "", (NOTHING,), None),
    Cause(GROWN, "It was started again on more nodes, as nodes came back.", "", (NOTHING,), None),
    Cause(PAUSED, "It has done the steps that it was granted, and waits for more.", "", (NOTHING,), None),
    Cause(DELETED, "A person deleted its job.", "person", (RETRY, STOP)),
    Cause(PROGRAM, "An error of the program that no other class names.", "program", (RETRY, STOP)),
    # A node that lacks something now leads to another node; no number of them ends a training.
    Cause(
        NODE,
        "A node lacked what a start needs: room, memory, a folder, a free port, a driver.",
        "platform",
        (REPLACE, RETRY, STOP),
    ),
    Cause(
        PLATFORM,
        "The platform did not let a start through: a permission, a kind, a queue was missing.",
        "platform",
        (RETRY,),
        None,
    ),
    Cause(UNKNOWN, "It ended and left no word.", "unknown", (RETRY, STOP)),
)
CAUSES: Mapping[str, Cause] = {cause.name: cause for cause in _ALL}
CHOICES: Mapping[str, tuple[str, ...]] = {
    cause.name: cause.answers for cause in _ALL if cause.name and len(cause.answers) > 1
}
"""The answers that a recipe may choose, by the cause's name."""


class Failure(Exception):
    """A rank ends for a reason of a known class; the message is one line for a person."""

    kind = PROGRAM
    ranks: tuple[int, ...] = ()
    """The ranks that failed first, if they are known."""
    nodes: tuple[str, ...] = ()
    """The nodes of these ranks, if they are known."""


class UnfitNode(Failure, ValueError):
    """A node lacks something that a start needs: another node may have it, and this one may have it tomorrow."""

    kind = NODE

    def __init__(self, message: str, *nodes: str) -> None:
        """`nodes`: the nodes that lack it, if they are known."""
        super().__init__(message)
        self.nodes = nodes


class LackingTier(Failure, ValueError):
    """No tier has an object that is on record: a tier may not be mounted, so this may change."""

    kind = STORAGE


def cause(name: str) -> Cause:
    """The cause of this name; UNKNOWN for a name of another version."""
    return CAUSES.get(name, CAUSES[UNKNOWN])


def answer(name: str, chosen: Mapping[str, str]) -> str:
    """The answer to a cause; `chosen` has the recipe's answers by the causes' names."""
    return chosen.get(name, cause(name).answers[0])


def wrong_choice(chosen: Mapping[str, str]) -> tuple[str, str]:
    """The first cause whose chosen answer is not allowed, and what was expected; empty if there is none."""
    for name, choice in chosen.items():
        if name not in CHOICES:
            if name and name in CAUSES:
                return name, f"expected no policy, as {CAUSES[name].answers[0]} is its only answer"
            return name, f"expected the policy of another cause: of {', '.join(CHOICES)}"
        if choice not in CHOICES[name]:
            return name, f"expected one of {', '.join(CHOICES[name])}"
    return "", ""
