"""Growing: what one training's facts say about growing back; `growth` decides."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.resources.fleet.protocol import Node
from slipway.resources.trainings import updating
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.growth import GrowthWatch, Prospect, is_due
from slipway.trainer.checkpoint.tiers.tier import LASTING
from slipway.trainer.record import fence, phases
from slipway.trainer.record.fence import Commit

AT_STEPS = frozenset(each.name for each in (phases.TRAINING, phases.VALIDATING, phases.SAVING, phases.COPYING))
"""The phases of a rank that has begun with its steps and has not ended."""


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
        return facts.running and facts.terms.grow and _size(facts) < facts.terms.max_nodes

    def allowed(self, facts: TrainingFacts, fleet: Mapping[str, Node]) -> tuple[str, ...]:
        """The nodes that it has, and those that have been ready for some time."""
        return tuple({*facts.nodes, *self.watch.steady(self.platform, fleet.values())})

    def due(self, facts: TrainingFacts, chosen: tuple[str, ...]) -> tuple[str, ...]:
        """The new nodes when it should go on on the chosen ones now; none when it should not."""
        assert facts.claim is not None
        steps = [beat.step for beat in facts.beats if beat.phase in AT_STEPS]
        step, saved = (max(steps) if steps else None), self._newest(facts)
        pace = self.watch.look(facts.folder, facts.claim.token, step, saved.name if saved else "", bool(facts.beats))
        # None of its own nodes may go: they hold what was saved last.
        if step is None or saved is None or not set(facts.nodes) <= set(chosen):
            return ()
        total = updating.steps_now(facts)
        prospect = Prospect(
            nodes_now=_size(facts),
            nodes_then=min(facts.terms.max_nodes, len(chosen)),
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
        found = facts.commits_on(*LASTING) if self.scheduled else facts.commits
        return found[-1] if found and found[-1].token.incarnation == facts.incarnation else None


def _size(facts: TrainingFacts) -> int:
    """How many nodes its job takes, as `slipway.resources.trainings.job` says it."""
    return min(facts.terms.max_nodes, len(facts.nodes))
