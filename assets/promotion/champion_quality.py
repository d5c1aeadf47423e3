"""Champion quality: whether the champion is as good on the current data as it was when it was judged.

The champion is measured on the validation documents of the dataset's current snapshot. Its quality has fallen if its
confidence interval there is above its recorded interval. Then the previous champion is measured on the same documents,
and comes back if it is better, with its paired interval below 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slipway.assets.promotion import comparison, evaluation_set, policy_checks
from slipway.assets.promotion.comparison import PairedDifference
from slipway.assets.promotion.gate import Gate
from slipway.assets.suites import measured
from slipway.assets.suites.measured import ExampleTable, ModelFigures
from slipway.recipes.training import ModelRecipe
from slipway.resources.mlflow.registry import FOLDER_TAG, SNAPSHOT_TAG, TRAINING_TAG
from slipway.resources.promotions.promotion import Promotion
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.data.snapshots import Snapshot, read
from slipway.trainer.record.fence import Commit, Token


@dataclass(frozen=True)
class Quality:
    """The champion's loss now and on record, in the same unit."""

    model: str
    version: str
    on: str
    """SHA-256 of the snapshot on which it is measured now."""
    unit: str
    now: PairedDifference
    then: PairedDifference | None
    """The recorded loss; None if the champion's examples are gone, and then a loss of quality cannot be detected."""

    @property
    def has_fallen(self) -> bool:
        return self.then is not None and self.now.low > self.then.high

    def figures(self) -> Mapping[str, float]:
        figures = {"loss_now": self.now.mean, "low_now": self.now.low}
        if self.then is None:
            return figures
        return {**figures, "loss_then": self.then.mean, "high_then": self.then.high}


def of_champion(gate: Gate, recipe: ModelRecipe, current: str) -> Quality | None:
    """The champion's quality on the snapshot `current`; None if there is no champion.

    Raises ValueError for a champion that cannot be measured, and dg.Failure.
    """
    champion = gate.promotions.champion()
    if champion is None:
        return None
    figures, table = _measure(gate, recipe, champion, read(gate.tiers.durable_path, current))
    then = _on_record(gate, champion, figures.unit)
    losses, sizes = table.compared(figures.unit)
    seed = policy_checks.seed_of(recipe.gate, champion.manifest, figures.suite)
    now = comparison.interval_of(losses, sizes, seed, recipe.gate.confidence)
    before = None
    if then:
        before = comparison.interval_of(*then, seed, recipe.gate.confidence)
    return Quality(gate.model, champion.version, figures.suite, figures.unit, now, before)


def better_before(gate: Gate, recipe: ModelRecipe, current: str) -> Promotion | None:
    """The previous champion if it is significantly better on the snapshot, otherwise None."""
    champion = gate.promotions.champion()
    former = [
        promotion
        for promotion in gate.promotions.history()
        if champion and promotion.version and promotion.version == champion.before
    ]
    if champion is None or not former:
        return None
    described = read(gate.tiers.durable_path, current)
    try:
        own, own_table = _measure(gate, recipe, champion, described)
        other, other_table = _measure(gate, recipe, former[-1], described)
    except ValueError:
        return None  # a champion that cannot be measured any more cannot come back
    if own.unit != other.unit or len(own_table.losses) != len(other_table.losses):
        return None
    losses, sizes = own_table.compared(own.unit)
    seed = policy_checks.seed_of(recipe.gate, former[-1].manifest, champion.manifest, own.suite)
    difference = comparison.compare(other_table.compared(own.unit)[0], losses, sizes, seed, recipe.gate.confidence)
    return former[-1] if difference.high < 0 else None


def _measure(
    gate: Gate, recipe: ModelRecipe, promotion: Promotion, described: Snapshot
) -> tuple[ModelFigures, ExampleTable]:
    """Measure a former or present champion on the validation documents of a snapshot."""
    plain = recipe.model_copy(update={"suite": None})
    text = bool(float(promotion.tags.get("slipway.bits_per_byte", "0")))
    evaluation = evaluation_set.of_recipe(gate.measuring, plain, {}, described, text)
    store = all_trainings(gate.tiers).store(promotion.tags.get(TRAINING_TAG, ""))
    if not promotion.tags.get(TRAINING_TAG) or not store.folder.is_dir():
        raise ValueError(f"version {promotion.version}: its training is gone")
    commit = Commit(0, Token(0), promotion.tags[FOLDER_TAG], promotion.manifest)
    return evaluation.measure(commit, store.run_policy(), read(gate.tiers.durable_path, promotion.tags[SNAPSHOT_TAG]))


def _on_record(gate: Gate, champion: Promotion, unit: str) -> tuple[comparison.Values, comparison.Values] | None:
    """(losses, sizes) of the examples on which the champion was judged; None if they are gone."""
    on = next(
        (
            promotion.judgement.inputs["suite"]
            for promotion in reversed(gate.promotions.history())
            if promotion.manifest == champion.manifest and promotion.judgement and "suite" in promotion.judgement.inputs
        ),
        "",
    )
    figures = None
    if on:
        figures = measured.known(gate.tiers.durable_path, on, champion.manifest)
    if figures is None or figures.unit != unit:
        return None
    return measured.examples(gate.tiers.durable_path, figures).compared(unit)
