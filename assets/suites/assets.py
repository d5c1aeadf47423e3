"""A suite as an asset: made once from its dataset, and checked against the training data of today."""

from typing import Any

import dagster as dg

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.execution import pods
from slipway.assets.suites import leaks, making, suite
from slipway.assets.suites.suite import Example, Suite
from slipway.recipes.load import Recipes
from slipway.recipes.suite import SuiteRecipe
from slipway.resources.tiers import Tiers

DECONTAMINATED = "decontaminated"
SHOWN = 5


def compared_with(recipe: SuiteRecipe, recipes: Recipes) -> list[str]:
    """The datasets whose training documents no document of a suite may give away: those of the trainings that are
    compared on it, and its own where something is trained on that."""
    used = {name for each in recipes.trainings.values() if each.suite == recipe.name for name in each.datasets}
    return sorted(used | ({recipe.dataset} if recipe.split == "validation" else set()))


def suite_assets(recipe: SuiteRecipe, recipes: Recipes) -> list[dg.AssetsDefinition]:
    """The suite of one recipe; the check reads the datasets of the trainings that are compared on it."""
    key, datasets = keys.key(recipe.name, "suite"), compared_with(recipe, recipes)

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
    """The check: each snapshot that is new since the last one is read once."""
    durable = tiers.durable_path
    current = {name: found for name in datasets if (found := pointer.current(durable, name))}
    compared = leaks.documents(made, examples, recipe.held_out)
    known = {name: leaks.of(durable, compared, each) for name, each in current.items()}
    total = {each for check in known.values() for each in check.leaked}
    share, text = len(total) / made.tasks[suite.DOCUMENTS], {each.blake3: each.text for each in examples}
    shown = [f"{name}: {text[each][:60]!r}" for name, check in known.items() for each in check.leaked[:SHOWN]]
    metadata: dict[str, Any] = {"leaked": len(total), "share": share, "snapshots": dg.MetadataValue.json(current)}
    return dg.AssetCheckResult(
        check_name=DECONTAMINATED,
        passed=share <= recipe.contaminated,
        metadata={**metadata, **({"such_as": "; ".join(shown)} if shown else {})},
    )
