"""A suite as an asset: it is made once from its dataset, and checked against the current training data."""

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
MAX_EXAMPLES = 5


def compared_with(recipe: SuiteRecipe, recipes: Recipes) -> list[str]:
    """The datasets whose training documents must not contain the suite's documents: those of the trainings that are
    compared on it, and its own if a training may use it."""
    used = {
        name for training in recipes.trainings.values() if training.suite == recipe.name for name in training.datasets
    }
    return sorted(used | ({recipe.dataset} if recipe.split == "validation" else set()))


def suite_assets(recipe: SuiteRecipe, recipes: Recipes) -> list[dg.AssetsDefinition]:
    """The suite of one recipe, with a check against the datasets of the trainings that are compared on it."""
    key = keys.key(recipe.name, "suite")
    datasets = compared_with(recipe, recipes)

    @dg.asset(
        key=key,
        deps=[keys.key(dataset, "snapshot") for dataset in sorted({recipe.dataset, *datasets})],
        group_name=keys.lane(recipe.name),
        kinds={"parquet"},
        owners=[recipe.owner],
        op_tags=pods.tags("suite", recipe.resources),
        description=f"{recipe.description}\n\nA fixed set of evaluation examples. They stay the same as the dataset "
        "grows; to make new ones, raise the recipe's edition and materialise this asset.",
        check_specs=[
            dg.AssetCheckSpec(
                DECONTAMINATED,
                asset=key,
                description="No document of the suite shares a passage of 13 words with a current training document "
                f"of {', '.join(datasets) or 'any dataset'}. Boilerplate does not count.",
            )
        ],
    )
    def suite_asset(tiers: Tiers) -> dg.MaterializeResult:  # type: ignore[type-arg]
        durable = tiers.durable_path
        built = making.named(durable, recipe)
        examples = suite.examples(durable, built)
        return dg.MaterializeResult(
            data_version=dg.DataVersion(built.sha256),
            metadata=_metadata(built, examples),
            check_results=[_contamination(tiers, recipe, built, examples, datasets)],
        )

    return [suite_asset]


def _metadata(built: Suite, examples: list[Example]) -> dict[str, Any]:
    documents = [example for example in examples if example.task == suite.DOCUMENTS]
    return {
        "suite": built.sha256,
        "snapshot": built.snapshot,
        "examples": built.examples,
        "examples_by_task": dg.MetadataValue.json(dict(built.tasks)),
        "document_bytes": sum(document.bytes for document in documents),
        "left_out_as_leaked": built.left_out,
        "longest": max(document.bytes for document in documents),
    }


def _contamination(
    tiers: Tiers, recipe: SuiteRecipe, built: Suite, examples: list[Example], datasets: list[str]
) -> dg.AssetCheckResult:
    """The result of the check, which reads each snapshot only once."""
    durable = tiers.durable_path
    pointed = {name: pointer.current(durable, name) for name in datasets}
    current = {name: snapshot for name, snapshot in pointed.items() if snapshot}
    compared = leaks.documents(built, examples, recipe.held_out)
    known = {name: leaks.of(durable, compared, sha256) for name, sha256 in current.items()}
    total = {blake3 for check in known.values() for blake3 in check.leaked}
    share = len(total) / built.tasks[suite.DOCUMENTS]
    text = {example.blake3: example.text for example in examples}
    leaked_texts = [
        f"{name}: {text[blake3][:60]!r}" for name, check in known.items() for blake3 in check.leaked[:MAX_EXAMPLES]
    ]
    metadata: dict[str, Any] = {"leaked": len(total), "share": share, "snapshots": dg.MetadataValue.json(current)}
    return dg.AssetCheckResult(
        check_name=DECONTAMINATED,
        passed=share <= recipe.contaminated,
        metadata={**metadata, **({"such_as": "; ".join(leaked_texts)} if leaked_texts else {})},
    )
