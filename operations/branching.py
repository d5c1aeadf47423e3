"""Branching and changing in the UI: a job for each recipe, whose partitions are the checkpoints or trainings there are.

The launchpad offers the partitions to choose from; the fields are written as a recipe has them.
"""

import dagster as dg
from pydantic import Field

from assets import branching, keys, updating
from assets.execution import pods
from recipes.training import TrainingRecipe
from resources.compute.protocol import Compute
from resources.tiers import Tiers
from resources.trainings.roots import trainings

FIELDS = "FIELD=VALUE, as a recipe names them: optimiser.learning_rate=0.001"


class BranchConfig(dg.Config):
    """What a branch has otherwise than its parent."""

    fields: list[str] = Field(default=[], description=FIELDS)
    name: str = Field(default="", description="Words that distinguish it from another branch of the same")


class UpdateConfig(dg.Config):
    """What is changed in a training."""

    fields: list[str] = Field(description=FIELDS)
    why: str = Field(default="set in the UI", description="The reason, kept on record")


def branch_job(recipe: TrainingRecipe) -> dg.JobDefinition:
    """The job that continues a checkpoint of the recipe's trainings as a training of its own."""
    lane = keys.lane(recipe.name)

    @dg.op(name=f"{lane}_branch_checkpoint", tags=pods.tags("branch"))
    def branch_checkpoint(
        context: dg.OpExecutionContext, config: BranchConfig, tiers: Tiers, compute: Compute
    ) -> dg.Output[None]:
        """Raises Failure with the reason where the checkpoint cannot be continued so."""
        training, step = keys.parse_checkpoint_partition(context.partition_key)
        root, by = trainings(tiers), f"run {context.run_id}"
        asked = (config.fields, {recipe.name: recipe}, by, config.name, compute.revision)
        try:
            store = branching.branch(root, root.store(training), step, *asked)
        except ValueError as error:
            raise dg.Failure(str(error)) from error
        context.log.info(f"{store.id} continues {training}@{step}; the job watch starts it")
        origin = store.terms().origin
        return dg.Output(None, metadata={"training": store.id, "origin": dg.MetadataValue.json(dict(origin))})

    @dg.job(
        name=f"{lane}_branch",
        partitions_def=keys.checkpoint_partitions(recipe.name),
        description="Continues a checkpoint (the partition) with its full state, as a training of its own.",
    )
    def job() -> None:
        branch_checkpoint()

    return job


def update_job(recipe: TrainingRecipe) -> dg.JobDefinition:
    """The job that changes a training of the recipe, in place where it runs."""
    lane = keys.lane(recipe.name)

    @dg.op(name=f"{lane}_set_fields", tags=pods.tags("set"))
    def set_fields(context: dg.OpExecutionContext, config: UpdateConfig, tiers: Tiers) -> dg.Output[None]:
        """Raises Failure with the reason where the training cannot be changed so."""
        store = trainings(tiers).store(context.partition_key)
        try:
            found = updating.update(store, config.fields, {recipe.name: recipe}, f"run {context.run_id}", config.why)
        except ValueError as error:
            raise dg.Failure(str(error)) from error
        shown = {each.field: f"{each.old!r} to {each.new!r}, {each.takes_effect}" for each in found}
        return dg.Output(None, metadata=shown)

    @dg.job(
        name=f"{lane}_set",
        partitions_def=keys.training_partitions(recipe.name),
        description="Changes a training (the partition): in place where it runs, else when it starts the next time.",
    )
    def job() -> None:
        set_fields()

    return job
