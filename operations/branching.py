"""Branching, replaying and changing in the UI: jobs of each recipe, whose partitions are what there is to choose from.

The launchpad offers the partitions to choose from; the fields are written as a recipe has them.
"""

import tempfile

import dagster as dg
from pydantic import Field

from slipway.assets import keys, training_commands
from slipway.assets.execution import pods
from slipway.operations.job_config import about
from slipway.recipes import assignments
from slipway.recipes.training import TrainingRecipe
from slipway.resources import identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import branching as training_branching
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.base import field_changes

FIELDS = "FIELD=VALUE, as a recipe names them: optimizer.learning_rate=0.001"


class BranchConfig(dg.Config):
    """What a branch has otherwise than its parent."""

    fields: list[str] = Field(default=[], description=FIELDS)
    name: str = Field(default="", description="Words that distinguish it from another branch of the same")


class ReplayConfig(dg.Config):
    """What is done again, and what it is compared by."""

    steps: int = Field(default=10, ge=1, description="How many steps to do again")
    ranks: int | None = Field(default=None, ge=1, description="With so many ranks; by default as many as trained")
    tolerance: float | None = Field(default=None, ge=0, description="Relative difference that is still accepted")
    fields: list[str] = Field(default=[], description=FIELDS)


VERDICTS = {0: "equal", training_branching.WITHIN_TOLERANCE: "within the tolerance"}


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
        training, step = keys.parse_checkpoint_partition(about(context, "checkpoint"))
        root = all_trainings(tiers)
        actor = identity.of_run(context.run)
        arguments = (config.fields, {recipe.name: recipe}, actor, config.name, compute.revision)
        try:
            store = training_commands.branch(root, root.store(training), step, *arguments)
        except ValueError as error:
            raise dg.Failure(str(error)) from error
        context.log.info(f"{store.id} continues {training}@{step}; the job watch starts it")
        origin = store.run_policy().origin
        return dg.Output(None, metadata={"training": store.id, "origin": dg.MetadataValue.json(dict(origin))})

    @dg.job(
        name=f"{lane}_branch",
        partitions_def=keys.checkpoint_partitions(recipe.name),
        description="Continues a checkpoint (the partition) with its full state, as a training of its own.",
    )
    def job() -> None:
        branch_checkpoint()

    return job


def replay_job(recipe: TrainingRecipe) -> dg.JobDefinition:
    """The job that does steps of the recipe's trainings again, in the process of its own run."""
    lane = keys.lane(recipe.name)

    @dg.op(name=f"{lane}_replay_steps", tags=pods.tags("replay", recipe.placement.steps.get("replay")))
    def replay_steps(
        context: dg.OpExecutionContext, config: ReplayConfig, tiers: Tiers, compute: Compute
    ) -> dg.Output[None]:
        """Raises Failure with what differs, or why the steps cannot be done again."""
        training, step = keys.parse_checkpoint_partition(about(context, "checkpoint"))
        store = all_trainings(tiers).store(training)
        paths = compute.control(tiers).paths
        with tempfile.TemporaryFile("w+") as printed:
            try:
                changes = assignments.parsed(config.fields)
                chosen = (config.steps, config.ranks, config.tolerance, changes)
                code = training_branching.replay(store, paths, step, *chosen, output=printed)
            except ValueError as error:
                raise dg.Failure(str(error)) from error
            printed.seek(0)
            text = printed.read().strip()
        context.log.info(text)
        if code not in VERDICTS:
            raise dg.Failure(text)
        return dg.Output(None, metadata={"verdict": VERDICTS[code], "found": text})

    @dg.job(
        name=f"{lane}_replay",
        partitions_def=keys.checkpoint_partitions(recipe.name),
        description="Does the steps after a checkpoint (the partition) again, and compares them with the record.",
    )
    def job() -> None:
        replay_steps()

    return job


def update_job(recipe: TrainingRecipe) -> dg.JobDefinition:
    """The job that changes a training of the recipe, in place where it runs."""
    lane = keys.lane(recipe.name)

    @dg.op(name=f"{lane}_set_fields", tags=pods.tags("set"))
    def set_fields(context: dg.OpExecutionContext, config: UpdateConfig, tiers: Tiers) -> dg.Output[None]:
        """Raises Failure with the reason where the training cannot be changed so."""
        store = all_trainings(tiers).store(about(context, "training"))
        try:
            changes = training_commands.update(
                store, config.fields, {recipe.name: recipe}, identity.of_run(context.run), config.why
            )
        except ValueError as error:
            raise dg.Failure(str(error)) from error
        metadata = {
            change.field: f"{field_changes.change(change.old, change.new)}, {change.takes_effect}" for change in changes
        }
        return dg.Output(None, metadata=metadata)

    @dg.job(
        name=f"{lane}_set",
        partitions_def=keys.training_partitions(recipe.name),
        description="Changes a training (the partition): in place where it runs, else when it starts the next time.",
    )
    def job() -> None:
        set_fields()

    return job
