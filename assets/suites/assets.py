"""A suite as an asset: made once from its dataset, and checked against the training data of today."""

from typing import Any

import dagster as dg

from assets import keys
from assets.datasets.snapshots import pointer
from assets.execution import pods
from assets.suites import making, suite
from assets.suites.suite import Example, Suite
from recipes.load import Recipes
from recipes.suite import SuiteRecipe
from resources.tiers import Tiers
from trainer.data import snapshots
from trainer.data.shards import TextSnapshot

DECONTAMINATED = "decontaminated"
SHOWN = 5


def suite_assets(recipe: SuiteRecipe, recipes: Recipes) -> list[dg.AssetsDefinition]:
    """The suite of one recipe; the check reads the datasets of the trainings that are compared on it."""
    key = keys.key(recipe.name, "suite")
    used = {name for each in recipes.trainings.values() if each.suite == recipe.name for name in each.datasets}
    datasets = sorted(used | ({recipe.dataset} if recipe.split == "validation" else set()))

    @dg.asset(
        key=key,
        deps=[keys.key(each, "snapshot") for each in sorted({recipe.dataset, *datasets})],
        group_name=keys.lane(recipe.name),
        kinds={"parquet"},
        owners=[recipe.owner],
        op_tags=pods.tags("suite", recipe.resources),
        description=f"{recipe.description}\n\nFixed examples, named by their hashes: they stay the same as the dataset "
        "grows, until the recipe's edition is raised.",
        check_specs=[
            dg.AssetCheckSpec(
                DECONTAMINATED,
                asset=key,
                description="No document of the suite shares a passage of 13 words with a training document of "
                f"{', '.join(datasets) or 'any dataset'}, as they are now; boilerplate does not count.",
            )
        ],
    )
    def suite_asset(tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        durable = tiers.durable_path
        made = making.named(durable, recipe)
        examples = suite.examples(durable, made)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(made.sha256),
            metadata=_metadata(made, examples),
            check_results=[_contamination(tiers, recipe, made, examples, datasets)],
        )

    return [suite_asset]


def _metadata(made: Suite, examples: list[Example]) -> dict[str, Any]:
    documents = [each for each in examples if each.task == suite.DOCUMENTS]
    return {
        "suite": made.sha256,
        "snapshot": made.snapshot,
        "examples": made.examples,
        "examples_by_task": dg.MetadataValue.json(dict(made.tasks)),
        "document_bytes": sum(each.bytes for each in documents),
        "left_out_as_leaked": made.left_out,
        "longest": max(each.bytes for each in documents),
    }


def _contamination(
    tiers: Tiers, recipe: SuiteRecipe, made: Suite, examples: list[Example], datasets: list[str]
) -> dg.AssetCheckResult:
    """The check: each dataset's current snapshot is read once."""
    durable, leaked = tiers.durable_path, dict[str, list[Example]]()
    for name in datasets:
        current = pointer.current(durable, name)
        snapshot = snapshots.read(durable, current) if current else None
        if isinstance(snapshot, TextSnapshot):
            leaked[name] = making.contaminated(durable, examples, snapshot, recipe.held_out)
    total = {each.blake3 for found in leaked.values() for each in found}
    share = len(total) / made.tasks[suite.DOCUMENTS]
    shown = [f"{name}: {each.text[:60]!r}" for name, found in leaked.items() for each in found[:SHOWN]]
    return dg.AssetCheckResult(
        check_name=DECONTAMINATED,
        passed=share <= recipe.contaminated,
        metadata={"leaked": len(total), "share": share, **({"such_as": "; ".join(shown)} if shown else {})},
    )
