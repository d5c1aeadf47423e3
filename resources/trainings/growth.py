"""Growth: when to restart a training on more nodes, if it runs on fewer than it may use.

Scaling up restarts a healthy job, so it must save more time than it costs. Four conditions must hold. Each new node has
been ready for some time, so that an unstable node is not used again and again. The incarnation has run for some time,
which doubles with each earlier growth. A checkpoint has just been saved. The new nodes save several times as many
seconds on the remaining steps as the restart costs. All ages use this process's own clock; a new process waits longer.
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
"""How long a new node must have been ready."""
COOL_DOWN_SECONDS = 120.0
"""How long an incarnation must have been training before a growth; it doubles with each earlier growth."""
LONGEST_COOL_DOWN_SECONDS = HOUR
PAYS_BACK = 2.0
"""A growth must save this many times its cost."""
RESTART_SECONDS = 60.0
"""The assumed cost of a restart if none was observed."""
LONGEST_LOOK_SECONDS = 60.0
"""After a longer gap between two observations, the ages of nodes start again."""
AT_STEPS = frozenset(phase.name for phase in (phases.TRAINING, phases.VALIDATING, phases.SAVING, phases.COPYING))
"""The phases of a rank that has begun with its steps and has not ended."""


@dataclass(frozen=True)
class Pace:
    """The observed progress of an incarnation."""

    seconds: float
    """How long it has been training."""
    seconds_per_step: float | None
    """None before two steps were observed."""
    is_saved: bool
    """Whether its newest checkpoint is new since the last observation."""
    restart_seconds: float
    """How long its start took; `RESTART_SECONDS` if that was not observed."""


@dataclass(frozen=True)
class Prospect:
    """A possible growth."""

    nodes_now: int
    nodes_then: int
    steps_left: int | None
    """None for a script, since only the script knows its number of steps."""
    steps_unsaved: int
    """The steps since the newest checkpoint, which would be repeated."""
    growths_before: int


def pays(prospect: Prospect, pace: Pace) -> bool:
    """Whether the growth saves `PAYS_BACK` times its cost, assuming that speed is proportional to the nodes.

    A script is assumed to go on for as long as it has been observed.
    """
    if pace.seconds_per_step is None or prospect.nodes_then <= prospect.nodes_now:
        return False
    seconds_left = pace.seconds if prospect.steps_left is None else prospect.steps_left * pace.seconds_per_step
    saved = seconds_left * (1 - prospect.nodes_now / prospect.nodes_then)
    return saved >= PAYS_BACK * (pace.restart_seconds + prospect.steps_unsaved * pace.seconds_per_step)


def is_due(prospect: Prospect, pace: Pace) -> bool:
    """Whether to grow now: a checkpoint was just saved, the last start is long enough ago, and the growth pays back."""
    cool_down = min(COOL_DOWN_SECONDS * 2**prospect.growths_before, LONGEST_COOL_DOWN_SECONDS)
    return pace.is_saved and pace.seconds >= cool_down and pays(prospect, pace)


@dataclass
class _WatchedIncarnation:
    """The observations of one incarnation."""

    first_look: float
    is_whole: bool
    """Whether it was first observed before its ranks began, so that its start could be timed."""
    first_step: int | None = None
    at_first_step: float = 0.0
    step: int = 0
    at_step: float = 0.0
    checkpoint: str = ""


@dataclass
class _WatchedNodes:
    """Since when each node of one platform has been ready."""

    looked: float
    since: dict[str, float] = field(default_factory=dict)


class GrowthWatch:
    """The observations of one process. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._incarnations: dict[Path, tuple[Token, _WatchedIncarnation]] = {}
        self._nodes: dict[Path, _WatchedNodes] = {}

    def steady(self, platform: Path, nodes: Iterable[Node]) -> set[str]:
        """The fleet's nodes that have been ready at each observation for `STEADY_SECONDS`.

        platform: a folder that identifies the platform.
        """
        with self._lock:
            now = self._clock()
            watched_nodes = self._nodes.get(platform)
            known = watched_nodes.since if watched_nodes and now - watched_nodes.looked <= LONGEST_LOOK_SECONDS else {}
            since = {node.name: known.get(node.name, now) for node in nodes if node.ready}
            self._nodes[platform] = _WatchedNodes(now, since)
            return {name for name, first in since.items() if now - first >= STEADY_SECONDS}

    def look(self, training: Path, token: Token, step: int | None, checkpoint: str, begun: bool = True) -> Pace:
        """Record an observation of an incarnation, and return its pace.

        step: the newest step; None before training. checkpoint: the name of its own newest checkpoint, or "". begun:
        whether a rank has written a heartbeat.
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
                incarnation.first_step = step
                incarnation.at_first_step = now
                incarnation.step = step
                incarnation.at_step = now
            elif step is not None and step > incarnation.step:
                incarnation.step = step
                incarnation.at_step = now
            return _pace(incarnation, now, is_saved)


GROWTHS = GrowthWatch()
"""The watch of this process, which the ticks of a sensor share."""


@dataclass(frozen=True)
class Growing:
    """The growth of the trainings of one platform."""

    watch: GrowthWatch
    platform: Path
    scheduled: bool
    """Whether a scheduler places jobs, so that the next incarnation may run on other nodes than this one."""

    def is_wanted(self, facts: TrainingFacts, fleet: Mapping[str, Node]) -> bool:
        """Whether the training runs on fewer nodes than it may use, and its recipe allows growth."""
        self.watch.steady(self.platform, fleet.values())
        return facts.running and facts.run_policy.grow and _size(facts) < facts.run_policy.max_nodes

    def allowed(self, facts: TrainingFacts, fleet: Mapping[str, Node]) -> tuple[str, ...]:
        """The training's own nodes, and those that have been ready for some time."""
        return tuple({*facts.nodes, *self.watch.steady(self.platform, fleet.values())})

    def due(self, facts: TrainingFacts, chosen: tuple[str, ...]) -> tuple[str, ...]:
        """The nodes to add now if the training should restart on the chosen nodes; else none."""
        assert facts.claim is not None
        steps = [beat.step for beat in facts.beats if beat.phase in AT_STEPS]
        step = max(steps) if steps else None
        saved = self._newest(facts)
        pace = self.watch.look(facts.folder, facts.claim.token, step, saved.name if saved else "", bool(facts.beats))
        # The training must keep all its own nodes, since they hold the newest checkpoint.
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
        """Why the training restarts, for a person."""
        before = {node for claim in fence.claims(facts.folder) for node in claim.nodes}
        return "grown: " + ", ".join(f"{node} is {'back' if node in before else 'free'}" for node in new)

    def _newest(self, facts: TrainingFacts) -> Commit | None:
        """The newest checkpoint of this incarnation that the next one can read on any node."""
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
    """The number of nodes of its job, as in `slipway.resources.trainings.job`."""
    return min(facts.run_policy.max_nodes, len(facts.nodes))
