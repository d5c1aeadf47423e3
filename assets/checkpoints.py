"""Checkpoints: external assets, which a sensor reports after the trainer has committed them."""

import dagster as dg

from slipway.assets import keys
from slipway.recipes.training import ModelRecipe, TrainingRecipe
from slipway.resources.trainings.checkpoints import CheckpointFault
from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.record.fence import Commit


def checkpoint_assets(recipe: TrainingRecipe) -> list[dg.AssetSpec]:
    """The checkpoint asset of one recipe, with a partition for each checkpoint."""
    return [
        dg.AssetSpec(
            keys.key(recipe.name, "checkpoint"),
            deps=[keys.key(recipe.name, "training")],
            partitions_def=keys.checkpoint_partitions(recipe.name),
            group_name=keys.lane(recipe.name),
            kinds={"torch", "safetensors"} if isinstance(recipe, ModelRecipe) else {"script"},
            owners=[recipe.owner],
            description=(
                f"A committed checkpoint of the training: {_content(recipe)}, with a hash of every byte. The trainer "
                "writes it, and a sensor reports it as soon as it is committed."
            ),
        )
    ]


def _content(recipe: TrainingRecipe) -> str:
    if isinstance(recipe, ModelRecipe):
        return "weights, optimiser, random states, data position"
    return "the script's files"


def checkpoint_materialization(facts: TrainingFacts, commit: Commit) -> dg.AssetMaterialization:
    """The event that shows a committed checkpoint."""
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
    """The event that shows a fault of one checkpoint."""
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
