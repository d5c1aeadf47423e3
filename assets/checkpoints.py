"""Checkpoints: external assets, reported by a sensor when the trainer has committed them."""

import dagster as dg

from slipway.assets import keys
from slipway.recipes.training import ModelRecipe, TrainingRecipe
from slipway.resources.trainings.checkpoints import CheckpointFault
from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.record.fence import Commit


def checkpoint_assets(recipe: TrainingRecipe) -> list[dg.AssetSpec]:
    """The checkpoints of one lane, a partition for each."""
    return [
        dg.AssetSpec(
            keys.key(recipe.name, "checkpoint"),
            deps=[keys.key(recipe.name, "training")],
            partitions_def=keys.checkpoint_partitions(recipe.name),
            group_name=keys.lane(recipe.name),
            kinds={"torch", "safetensors"} if isinstance(recipe, ModelRecipe) else {"script"},
            owners=[recipe.owner],
            description=(
                f"A committed checkpoint: {_content(recipe)}, with the hash of every byte. Written by the trainer, "
                "reported as soon as its commit is on record."
            ),
        )
    ]


def _content(recipe: TrainingRecipe) -> str:
    return (
        "weights, optimiser, random states, data position" if isinstance(recipe, ModelRecipe) else "the script's files"
    )


def checkpoint_materialisation(facts: TrainingFacts, commit: Commit) -> dg.AssetMaterialization:
    """The event that shows one commit."""
    return dg.AssetMaterialization(
        keys.key(facts.specification.recipe, "checkpoint"),
        partition=keys.checkpoint_partition(facts.id, commit.step),
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


def checkpoint_observation(facts: TrainingFacts, fault: CheckpointFault) -> dg.AssetObservation:
    """The event that tells what happened to one checkpoint."""
    where = f" on the {fault.tier} tier" if fault.tier else ""
    return dg.AssetObservation(
        keys.key(facts.specification.recipe, "checkpoint"),
        partition=keys.checkpoint_partition(facts.id, fault.step),
        description=f"{fault.what}{where}: {fault.reason}; what to do: {fault.what_to_do}",
        metadata={
            "commit": fault.commit,
            "tier": fault.tier or "all",
            "what": fault.what,
            "reason": fault.reason,
            "what_to_do": fault.what_to_do,
            "fault": fault.id,
        },
    )
