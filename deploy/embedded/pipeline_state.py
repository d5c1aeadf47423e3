"""Pipeline state: what has been made so far, read only from storage, without a daemon, MLflow or torch.

Each sweep recipe has one chain: snapshot, sweep, training, checkpoints, champion. From the chains, the demo knows the
remaining work, shows its progress and makes its last table.
"""

import dataclasses
from dataclasses import dataclass

from slipway.assets import holdout_filter, training_data
from slipway.assets.datasets.kinds import dataset_kind
from slipway.assets.initial import with_initial_weights
from slipway.assets.promotion.evaluation import evaluated
from slipway.assets.sweeps.assets import find_sweep
from slipway.assets.sweeps.full_scale import led_to
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.state import SweepState
from slipway.assets.training import specification
from slipway.recipes.load import Recipes
from slipway.recipes.sweep import SweepRecipe
from slipway.resources.home import Home
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions.promotion import Promotion, champion
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.metric_series import read_sample
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings
from slipway.trainer.data import contents, snapshots
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.record import ledger
from slipway.trainer.record.fence import Commit
from slipway.trainer.record.scores import Score


@dataclass(frozen=True)
class Chain:
    """The state of one sweep recipe's work."""

    recipe: str
    model: str
    snapshot: Snapshot | None = None
    """The snapshot; None while the dataset is not up to date with its recipe and its source."""
    sweep: SweepState | None = None
    training: TrainingStore | None = None
    """The training that follows from the completed sweep, once it is proposed."""
    scores: tuple[tuple[Commit, Score], ...] = ()
    champion: Promotion | None = None
    """The last promotion of the model."""
    duties: tuple[str, ...] = ()
    """The open work of the control plane for the training."""

    @property
    def complete(self) -> bool:
        """Whether everything is made."""
        ended = self.training.exit() if self.training else None
        return ended is not None and ended.outcome == "succeeded" and not self.duties

    @property
    def failure(self) -> str | None:
        """Why it cannot become complete by itself; None if it can."""
        closed = self.sweep.closed if self.sweep else None
        if closed is not None and closed.outcome != "complete":
            return f"sweep {self.recipe} {closed.outcome}: {closed.reason}"
        desired = self.training.desired() if self.training else None
        if self.training and desired is not None and desired.want == "stop":
            return f"training {self.training.id} is not wanted any more: {desired.why}"
        return None

    def losses(self) -> list[tuple[int, float]]:
        """The training's loss curve so far, as (step, loss)."""
        if self.training is None or self.training.newest_claim() is None:
            return []
        return ledger.loss_curve(read_sample(self.training.folder).steps)

    @property
    def promoted(self) -> bool:
        """Whether the champion comes from this training."""
        tags = self.champion.tags if self.champion else {}
        return self.training is not None and tags.get("slipway.training") == self.training.id


class MadeReader:
    """Reads the chains of one home. It remembers snapshots that are up to date, since listing a corpus takes long."""

    def __init__(self, recipes: Recipes, home: Home) -> None:
        self._recipes = recipes
        self._home = home
        self._tiers = Tiers(durable=str(home.durable), nvme=home.nvme)
        self._current: dict[str, str] = {}

    def read(self) -> list[Chain]:
        """The chains of all sweep recipes. Raises ValueError if the source of a dataset cannot be listed."""
        return [self._chain(sweep) for sweep in self._recipes.sweeps.values()]

    def _chain(self, sweep: SweepRecipe) -> Chain:
        recipe = self._recipes.trainings[sweep.training]
        fresh = [self._up_to_date(dataset) for dataset in recipe.datasets]
        several = training_data.current(recipe, self._home.durable) if len(fresh) > 1 and all(fresh) else None
        current = several if len(fresh) > 1 else fresh[0]
        if current is None:
            return Chain(sweep.name, recipe.registered_model)
        snapshot = snapshots.read(self._home.durable, current)
        recipe = with_initial_weights(recipe, current, self._tiers, Tracking(uri=self._home.tracking_uri))
        searched = holdout_filter.snapshot_for(recipe.init, current, self._tiers)
        subject = SearchSubject(sweep, recipe, searched, contents.tokenizer_digest(snapshot))
        search = find_sweep(subject, self._tiers)
        known = Chain(sweep.name, recipe.registered_model, snapshot, search.state())
        best = led_to(subject, known.sweep) if known.sweep else None
        if best is None:
            return known
        store = all_trainings(self._tiers).store(specification(best.recipe, current, self._tiers, best.cause).id)
        return self._with_training(known, store) if store.desired() else known

    def _with_training(self, known: Chain, store: TrainingStore) -> Chain:
        root = all_trainings(self._tiers)
        return dataclasses.replace(
            known,
            training=store,
            scores=tuple(evaluated(store.read())),
            champion=champion(self._home.durable, known.model),
            duties=tuple(duty for duty in WorkQueue if root.is_open(store.id, duty)),
        )

    def _up_to_date(self, dataset: str) -> str | None:
        if dataset not in self._current:
            recipe = self._recipes.datasets[dataset]
            snapshot = dataset_kind(recipe).up_to_date(recipe, self._home.durable)
            if snapshot is None:
                return None
            self._current[dataset] = snapshot
        return self._current[dataset]
