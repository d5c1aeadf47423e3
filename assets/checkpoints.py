"""Checkpoints: external assets, reported by a sensor when the trainer has committed them."""

import dagster as dg

from assets import keys
from recipes.schema import Training
from resources.training_store import TrainingStore
from trainer.fence import Commit


def checkpoint_assets(recipe: Training) -> list[dg.AssetSpec]:
    """The checkpoints of one lane, a partition for each."""
    return [
        dg.AssetSpec(
            keys.key(recipe.name, "checkpoint"),
            deps=[keys.key(recipe.name, "training")],
            partitions_def=keys.checkpoint_partitions(recipe.name),
            group_name=keys.lane(recipe.name),
            kinds={"torch", "safetensors"},
            owners=[recipe.owner],
            description=(
                "A committed checkpoint: weights, optimiser, random states, data position, with the hash of every "
                "byte. Written by the trainer, reported as soon as its commit is on record."
            ),
        )
    ]


def checkpoint_materialisation(store: TrainingStore, commit: Commit) -> dg.AssetMaterialization:
    """The event that shows one commit."""
    return dg.AssetMaterialization(
        keys.key(store.specification().recipe, "checkpoint"),
        partition=keys.checkpoint_partition(store.id, commit.step),
        metadata={
            "step": commit.step,
            "loss": dg.MetadataValue.float(commit.metrics["loss"]),
            "incarnation": commit.token.incarnation,
            "manifest": commit.manifest,
            "committed_at": dg.MetadataValue.timestamp(commit.at),
            "dagster/uri": commit.folder,
        },
        tags={"dagster/data_version": commit.manifest},
    )
