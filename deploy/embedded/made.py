"""What has been made so far, read from storage alone: no daemon, no MLflow, no torch.

One chain for each sweep recipe: snapshot, sweep, training, checkpoints, champion. The same reading tells the
demo what is left to do, shows its progress, and fills its last table.
"""

import dataclasses
from dataclasses import dataclass

from assets.datasets import steps
from assets.evaluation import evaluated
from assets.initial import settled
from assets.sweeps.assets import find_sweep
from assets.sweeps.controller import Subject
from assets.sweeps.state import Sweep
from assets.training import specification
from recipes.load import Recipes
from recipes.schema import Sweep as SweepRecipe
from resources.compute import trainings
from resources.home import Home
from resources.registry import promotions
from resources.tiers import Tiers
from resources.tracking import Tracking
from resources.training_store import DUTIES, TrainingStore
from sensors.sweep_completions import best_training
from trainer import ledger
from trainer.fence import Commit
from trainer.journal import Event
from trainer.scores import Score
from trainer.shards import Snapshot, read_manifest


@dataclass(frozen=True)
class Chain:
    """How far one sweep recipe has come."""

    recipe: str
    model: str
    snapshot: Snapshot | None = None
    """None while the dataset is not up to date with its recipe and its source."""
    sweep: Sweep | None = None
    training: TrainingStore | None = None
    """The training that the completed sweep leads to, once it is proposed."""
    scores: tuple[tuple[Commit, Score], ...] = ()
    champion: Event | None = None
    """The last promotion of the model."""
    duties: tuple[str, ...] = ()
    """What the control plane still owes the training."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to make."""
        ended = self.training.exit() if self.training else None
        return ended is not None and ended.outcome == "succeeded" and not self.duties

    @property
    def failure(self) -> str | None:
        """Why it will never be complete by itself, None while it may be."""
        closed = self.sweep.closed if self.sweep else None
        if closed is not None and closed.outcome != "complete":
            return f"sweep {self.recipe} {closed.outcome}: {closed.reason}"
        desired = self.training.desired() if self.training else None
        if self.training and desired is not None and desired.want == "stop":
            return f"training {self.training.id} is not wanted any more: {desired.why}"
        return None

    def losses(self) -> list[tuple[int, float]]:
        """The training's loss curve so far."""
        return ledger.loss_curve(self.training.events()) if self.training and self.training.newest_claim() else []

    @property
    def promoted(self) -> bool:
        """Whether the champion is this training's."""
        tags = self.champion["tags"] if self.champion else {}
        return self.training is not None and tags.get("slipway.training") == self.training.id


class Reader:
    """Reads the chains of one home. Listing a corpus takes a while, so a snapshot found up to date is kept."""

    def __init__(self, recipes: Recipes, home: Home) -> None:
        self._recipes, self._home = recipes, home
        self._tiers = Tiers(durable=str(home.durable), nvme=home.nvme)
        self._current: dict[str, str] = {}

    def read(self) -> list[Chain]:
        """All chains, by sweep recipe. Raises ValueError when a dataset's source cannot be listed."""
        return [self._chain(sweep) for sweep in self._recipes.sweeps.values()]

    def _chain(self, sweep: SweepRecipe) -> Chain:
        recipe = self._recipes.trainings[sweep.training]
        current = self._up_to_date(recipe.dataset)
        if current is None:
            return Chain(sweep.name, recipe.registered_model)
        snapshot = read_manifest(self._home.durable, current)
        recipe = settled(recipe, current, self._tiers, Tracking(uri=self._home.tracking_uri))
        subject = Subject(sweep, recipe, current, snapshot.tokenizer.sha256)
        found = find_sweep(subject, self._tiers)
        known = Chain(sweep.name, recipe.registered_model, snapshot, found.state())
        best = best_training(subject, found)
        if best is None:
            return known
        store = trainings(self._tiers).store(specification(best[0], current, self._tiers).id)
        return self._with_training(known, store) if store.desired() else known

    def _with_training(self, known: Chain, store: TrainingStore) -> Chain:
        promoted = promotions(self._home.durable, known.model)
        opened = trainings(self._tiers).opened
        return dataclasses.replace(
            known,
            training=store,
            scores=tuple(evaluated(store)),
            champion=promoted[-1] if promoted else None,
            duties=tuple(duty for duty in DUTIES if store.id in opened(duty)),
        )

    def _up_to_date(self, dataset: str) -> str | None:
        if dataset not in self._current:
            found = steps.up_to_date(self._home.durable, self._recipes.datasets[dataset])
            if found is None:
                return None
            self._current[dataset] = found
        return self._current[dataset]
