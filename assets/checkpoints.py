"""Checkpoints: external assets, reported by a sensor when the trainer has committed them."""

import dagster as dg

from assets import keys
from recipes.schema import Training, TrainingRecipe
from resources.training_store import TrainingStore
from trainer.fence import Commit


def checkpoint_assets(recipe: TrainingRecipe) -> list[dg.AssetSpec]:
    """The checkpoints of one lane, a partition for each."""
    return [
        dg.AssetSpec(
            keys.key(recipe.name, "checkpoint"),
            deps=[keys.key(recipe.name, "training")],
            partitions_def=keys.checkpoint_partitions(recipe.name),
            group_name=keys.lane(recipe.name),
            kinds={"torch", "safetensors"} if isinstance(recipe, Training) else {"script"},
            owners=[recipe.owner],
            description=(
                f"A committed checkpoint: {_content(recipe)}, with the hash of every byte. Written by the trainer, "
                "reported as soon as its commit is on record."
            ),
        )
    ]


def _content(recipe: TrainingRecipe) -> str:
    return "weights, optimiser, random states, data position" if isinstance(recipe, Training) else "the script's files"


def checkpoint_materialisation(store: TrainingStore, commit: Commit) -> dg.AssetMaterialization:
    """The event that shows one commit."""
    return dg.AssetMaterialization(
        keys.key(store.specification().recipe, "checkpoint"),
        partition=keys.checkpoint_partition(store.id, commit.step),
        metadata={
            **{name: dg.MetadataValue.float(value) for name, value in commit.metrics.items()},
            "step": commit.step,
            "incarnation": commit.token.incarnation,
            "manifest": commit.manifest,
            "committed_at": dg.MetadataValue.timestamp(commit.at),
            "dagster/uri": commit.folder,
        },
        tags={"dagster/data_version": commit.manifest},
    )
