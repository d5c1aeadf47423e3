"""Growth: when a training that runs on fewer nodes than it may have is started again on more of them.

A growth is a restart that nobody needs, so it must pay back. Each new node has been seen ready for some time, so that
one that comes and goes is not taken each time. The incarnation has run for some time, which doubles with each growth
before. A checkpoint has just been made. And the seconds that the new nodes save on the steps that are left are several
times those that the restart costs. All ages are by the reader's own clock; a process that starts anew waits longer.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.fleet.protocol import Node
from slipway.resources.trainings import updates
from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.base.units import HOUR
from slipway.trainer.checkpoint.tiers.tier import LASTING
from slipway.trainer.record import fence, phases
from slipway.trainer.record.fence import Commit, Token

STEADY_SECONDS = 30.0
"""A node must have been seen ready for so long."""
COOL_DOWN_SECONDS = 120.0
"""An incarnation must have been seen at its steps for so long; twice as long after each growth before."""
LONGEST_COOL_DOWN_SECONDS = HOUR
PAYS_BACK = 2.0
"""A growth must save so many times what it costs."""
RESTART_SECONDS = 60.0
"""What a restart costs where none was seen."""
LONGEST_LOOK_SECONDS = 60.0
"""Who looked longer ago than that has not watched: the ages of nodes begin anew."""
AT_STEPS = frozenset(phase.name for phase in (phases.TRAINING, phases.VALIDATING, phases.SAVING, phases.COPYING))
"""The phases of a rank that has begun with its steps and has not ended."""


@dataclass(frozen=True)
class Pace:
    """How an incarnation has gone on, as far as it was watched."""

    seconds: float
    """For how long it has been seen at its steps."""
    seconds_per_step: float | None
    """None before two steps were seen."""
    is_saved: bool
    """Whether its newest checkpoint is new since the last look."""
    restart_seconds: float
    """What its start took; `RESTART_SECONDS` where that was not seen."""


@dataclass(frozen=True)
class Prospect:
    """A growth that is possible."""

    nodes_now: int
    nodes_then: int
    steps_left: int | None
    """None for a script, whose number of steps is its own."""
    steps_unsaved: int
    """Since the newest checkpoint; they are done again."""
    growths_before: int


def pays(prospect: Prospect, pace: Pace) -> bool:
    """Whether the growth saves `PAYS_BACK` times its cost; it takes for granted that speed follows the nodes.

    A script is taken to go on for as long as it has been watched.
    """
    if pace.seconds_per_step is None or prospect.nodes_then <= prospect.nodes_now:
        return False
    seconds_left = pace.seconds if prospect.steps_left is None else prospect.steps_left * pace.seconds_per_step
    saved = seconds_left * (1 - prospect.nodes_now / prospect.nodes_then)
    return saved >= PAYS_BACK * (pace.restart_seconds + prospect.steps_unsaved * pace.seconds_per_step)


def is_due(prospect: Prospect, pace: Pace) -> bool:
    """Whether now is the moment: a checkpoint was just made, the last start is long enough ago, and it pays back."""
    cool_down = min(COOL_DOWN_SECONDS * 2**prospect.growths_before, LONGEST_COOL_DOWN_SECONDS)
    return pace.is_saved and pace.seconds >= cool_down and pays(prospect, pace)


@dataclass
class _WatchedIncarnation:
    """What was seen of one incarnation."""

    first_look: float
    is_whole: bool
    """Whether it was seen before its ranks had done anything, so that its start could be timed."""
    first_step: int | None = None
    at_first_step: float = 0.0
    step: int = 0
    at_step: float = 0.0
    checkpoint: str = ""


@dataclass
class _WatchedNodes:
    """Since when each node of one platform has been seen ready."""

    looked: float
    since: dict[str, float] = field(default_factory=dict)


class GrowthWatch:
    """The observations of one process; any of its threads may look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._incarnations: dict[Path, tuple[Token, _WatchedIncarnation]] = {}
        self._nodes: dict[Path, _WatchedNodes] = {}

    def steady(self, platform: Path, nodes: Iterable[Node]) -> set[str]:
        """Those of the fleet's nodes that have been ready at each look for `STEADY_SECONDS`.

        platform: a folder that is the platform's own.
        """
        with self._lock:
            now = self._clock()
            watched_nodes = self._nodes.get(platform)
            known = watched_nodes.since if watched_nodes and now - watched_nodes.looked <= LONGEST_LOOK_SECONDS else {}
            since = {node.name: known.get(node.name, now) for node in nodes if node.ready}
            self._nodes[platform] = _WatchedNodes(now, since)
            return {name for name, first in since.items() if now - first >= STEADY_SECONDS}

    def look(self, training: Path, token: Token, step: int | None, checkpoint: str, begun: bool = True) -> Pace:
        """Take in where an incarnation is.

        step: its newest; None while its ranks are not at their steps. checkpoint: the name of its own newest one, empty
        before the first. begun: whether a rank has been heard of.
        """
        with self._lock:
            now = self._clock()
            stored = self._incarnations.get(training)
            if stored is None or stored[0] != token:
                stored = token, _WatchedIncarnation(now, is_whole=not begun, checkpoint=checkpoint)
                self._incarnations[training] = stored
            incarnation = stored[1]
            is_saved = checkpoint != incarnation.checkpoint
            incarnation.checkpoint = checkpoint
            if step is not None and incarnation.first_step is None:
                incarnation.first_step, incarnation.at_first_step = step, now
                incarnation.step, incarnation.at_step = step, now
            elif step is not None and step > incarnation.step:
                incarnation.step, incarnation.at_step = step, now
            return _pace(incarnation, now, is_saved)


GROWTHS = GrowthWatch()
"""The watch of this process: a sensor's ticks share it."""


@dataclass(frozen=True)
class Growing:
    """The growth of the trainings of one platform."""

    watch: GrowthWatch
    platform: Path
    scheduled: bool
    """Whether a scheduler places jobs: then the next incarnation may run on other nodes than this one."""

    def is_wanted(self, facts: TrainingFacts, fleet: Mapping[str, Node]) -> bool:
        """Whether it runs on fewer nodes than it may have, and the fleet has others."""
        self.watch.steady(self.platform, fleet.values())
        return facts.running and facts.run_policy.grow and _size(facts) < facts.run_policy.max_nodes

    def allowed(self, facts: TrainingFacts, fleet: Mapping[str, Node]) -> tuple[str, ...]:
        """The nodes that it has, and those that have been ready for some time."""
        return tuple({*facts.nodes, *self.watch.steady(self.platform, fleet.values())})

    def due(self, facts: TrainingFacts, chosen: tuple[str, ...]) -> tuple[str, ...]:
        """The new nodes when it should go on on the chosen ones now; none when it should not."""
        assert facts.claim is not None
        steps = [beat.step for beat in facts.beats if beat.phase in AT_STEPS]
        step = max(steps) if steps else None
        saved = self._newest(facts)
        pace = self.watch.look(facts.folder, facts.claim.token, step, saved.name if saved else "", bool(facts.beats))
        # None of its own nodes may go: they hold what was saved last.
        if step is None or saved is None or not set(facts.nodes) <= set(chosen):
            return ()
        total = updates.steps_now(facts)
        prospect = Prospect(
            nodes_now=_size(facts),
            nodes_then=min(facts.run_policy.max_nodes, len(chosen)),
            steps_left=None if total is None else max(0, total - step),
            steps_unsaved=max(0, step - saved.step),
            growths_before=facts.growths,
        )
        return tuple(sorted(set(chosen) - set(facts.nodes))) if is_due(prospect, pace) else ()

    def cause(self, facts: TrainingFacts, new: tuple[str, ...]) -> str:
        """Why it is started again, for a person."""
        before = {node for claim in fence.claims(facts.folder) for node in claim.nodes}
        return "grown: " + ", ".join(f"{node} is {'back' if node in before else 'free'}" for node in new)

    def _newest(self, facts: TrainingFacts) -> Commit | None:
        """The newest checkpoint of this incarnation that the next one can read wherever it runs."""
        commits = facts.commits_on(*LASTING) if self.scheduled else facts.commits
        return commits[-1] if commits and commits[-1].token.incarnation == facts.incarnation else None


def _pace(incarnation: _WatchedIncarnation, now: float, is_saved: bool) -> Pace:
    if incarnation.first_step is None:
        return Pace(0.0, None, is_saved, RESTART_SECONDS)
    steps = incarnation.step - incarnation.first_step
    seconds_per_step = (incarnation.at_step - incarnation.at_first_step) / steps if steps > 0 else None
    restart = incarnation.at_first_step - incarnation.first_look if incarnation.is_whole else RESTART_SECONDS
    return Pace(now - incarnation.at_first_step, seconds_per_step, is_saved, restart)


def _size(facts: TrainingFacts) -> int:
    """How many nodes its job takes, as `slipway.resources.trainings.job` says it."""
    return min(facts.run_policy.max_nodes, len(facts.nodes))
