"""Sweep demand: how many nodes the trials of open sweeps wait for, where fewer are ready than one trial needs.

A sweep starts no trial before one has its nodes, so that on a fleet without nodes nothing of it is in the cluster. Once
enough are ready for one, all that may run at a time are submitted, and an autoscaler sees their pods.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slipway.assets.sweeps import store as sweep_stores
from slipway.assets.sweeps.actions import Continue, Start, StartBranch, next_actions
from slipway.assets.sweeps.controller import is_over
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.assets.sweeps.trials import trial_id, trials_of
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.training import ModelRecipe, PlacementSection
from slipway.resources.fleet.protocol import Node
from slipway.resources.launchers.kubernetes.node_shortage import Lack
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.quotas import Quotas
from slipway.resources.trainings.status import node_shortage

BEGINS = (Start, Continue, StartBranch)


@dataclass
class SweepDemand:
    """The sweeps of some recipes; each log is read once, and then what is new in it."""

    sweeps: Mapping[str, SweepRecipe]
    trainings: Mapping[str, ModelRecipe]
    _followed: dict[Path, SweepStore] = field(default_factory=dict)

    def stores(self, tiers: Tiers) -> list[SweepStore]:
        """The sweeps there are of these recipes. Raises OSError when they cannot be listed."""
        opened = sweep_stores.sweeps(tiers.durable_path / "sweeps")
        known = {
            store.folder: self._followed.get(store.folder, store) for store in opened if _recipe(store) in self.sweeps
        }
        self._followed = known
        return list(known.values())

    def lack(self, store: SweepStore, nodes: tuple[Node, ...], coming: int, quotas: Quotas) -> Lack | None:
        """What the trials of a sweep wait for; None for nothing. Raises ValueError and OSError as its records do."""
        recipe = self.sweeps[_recipe(store)]
        sweep = store.state()
        if sweep is None or is_over(sweep) or quotas.used_up(recipe.owner, time.time()):
            return None
        placement = recipe.placement.of_trial(self.trainings[recipe.training].placement)
        if sum(node.ready for node in nodes) >= placement.nodes.min:
            return None
        count = max(0, _nodes_to_start(sweep, placement) + _nodes_to_recover(store, sweep, nodes) - coming)
        return Lack(count, placement.kubernetes.model_dump(mode="json", exclude_defaults=True)) if count else None


def _recipe(store: SweepStore) -> str:
    return store.sweep.rpartition("-")[0]


def _nodes_to_start(sweep: SweepState, placement: PlacementSection) -> int:
    """The nodes of the trials that are to begin or to go on."""
    return placement.nodes.max * sum(isinstance(action, BEGINS) for action in next_actions(sweep))


def _nodes_to_recover(store: SweepStore, sweep: SweepState, nodes: tuple[Node, ...]) -> int:
    """The nodes of the trials that have begun and lost theirs."""
    root = trials_of(store)
    begun = [trial for trial in sweep.running if trial.state == "running"]
    return sum(node_shortage(root.store(trial_id(store, trial.number)).read(), nodes) for trial in begun)
