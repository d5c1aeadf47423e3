"""Champion quality: whether the champion is still as good on the data of today as it was on record.

It is measured on the validation documents of the dataset's current snapshot. It has fallen if its interval there lies
above its interval on what it was judged on. Then the champion before it is measured on the same documents: if that one
is better, with its paired interval below 0, it comes back.
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
    """The champion now and on record, in one unit."""

    model: str
    version: str
    on: str
    """SHA-256 of what it was measured on now."""
    unit: str
    now: PairedDifference
    then: PairedDifference | None
    """None for a champion whose examples are not on record any more: whether its quality has fallen is not known."""

    @property
    def has_fallen(self) -> bool:
        return self.then is not None and self.now.low > self.then.high

    def figures(self) -> Mapping[str, float]:
        figures = {"loss_now": self.now.mean, "low_now": self.now.low}
        return {**figures, **({"loss_then": self.then.mean, "high_then": self.then.high} if self.then else {})}


def of_champion(gate: Gate, recipe: ModelRecipe, current: str) -> Quality | None:
    """How good the champion is on the snapshot `current`; None where there is no champion.

    Raises ValueError for a champion that cannot be measured, and dg.Failure.
    """
    held = gate.promotions.champion()
    if held is None:
        return None
    found, table = _measure(gate, recipe, held, read(gate.tiers.durable_path, current))
    then = _on_record(gate, held, found.unit)
    losses, sizes = table.compared(found.unit)
    seed = policy_checks.seed_of(recipe.gate, held.manifest, found.suite)
    now = comparison.interval_of(losses, sizes, seed, recipe.gate.confidence)
    before = comparison.interval_of(*then, seed, recipe.gate.confidence) if then else None
    return Quality(gate.model, held.version, found.suite, found.unit, now, before)


def better_before(gate: Gate, recipe: ModelRecipe, current: str) -> Promotion | None:
    """The champion before this one, if it is better on the snapshot, surely; None where there is none."""
    held = gate.promotions.champion()
    former = [each for each in gate.promotions.history() if held and each.version and each.version == held.before]
    if held is None or not former:
        return None
    described = read(gate.tiers.durable_path, current)
    try:
        own, mine = _measure(gate, recipe, held, described)
        other, theirs = _measure(gate, recipe, former[-1], described)
    except ValueError:
        return None  # it cannot be measured any more, so it cannot come back either
    if own.unit != other.unit or len(mine.losses) != len(theirs.losses):
        return None
    losses, sizes = mine.compared(own.unit)
    seed = policy_checks.seed_of(recipe.gate, former[-1].manifest, held.manifest, own.suite)
    found = comparison.compare(theirs.compared(own.unit)[0], losses, sizes, seed, recipe.gate.confidence)
    return former[-1] if found.high < 0 else None


def _measure(
    gate: Gate, recipe: ModelRecipe, held: Promotion, described: Snapshot
) -> tuple[ModelFigures, ExampleTable]:
    """A former or present champion on the validation documents of a snapshot."""
    plain = recipe.model_copy(update={"suite": None})
    text = bool(float(held.tags.get("slipway.bits_per_byte", "0")))
    stick = evaluation_set.of_recipe(gate.measuring, plain, {}, described, text)
    store = all_trainings(gate.tiers).store(held.tags.get(TRAINING_TAG, ""))
    if not held.tags.get(TRAINING_TAG) or not store.folder.is_dir():
        raise ValueError(f"version {held.version}: its training is gone")
    commit = Commit(0, Token(0), held.tags[FOLDER_TAG], held.manifest)
    return stick.measure(commit, store.terms(), read(gate.tiers.durable_path, held.tags[SNAPSHOT_TAG]))


def _on_record(gate: Gate, held: Promotion, unit: str) -> tuple[comparison.Values, comparison.Values] | None:
    """(losses, sizes) of the examples on which the champion was judged; None where they are gone."""
    on = next(
        (
            each.judgement.inputs["suite"]
            for each in reversed(gate.promotions.history())
            if each.manifest == held.manifest and each.judgement and "suite" in each.judgement.inputs
        ),
        "",
    )
    found = measured.known(gate.tiers.durable_path, on, held.manifest) if on else None
    if found is None or found.unit != unit:
        return None
    return measured.examples(gate.tiers.durable_path, found).compared(unit)
