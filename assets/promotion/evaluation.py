"""Evaluation: measures each checkpoint on the whole validation split, in a process or in a job
(`slipway.assets.measurement`)."""

from pathlib import Path

import dagster as dg

from slipway.assets import keys, plots
from slipway.assets.execution import pods
from slipway.assets.measurement import Measuring, in_a_run
from slipway.recipes.training import ModelRecipe
from slipway.resources.compute.protocol import Compute
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import WorkQueue, all_trainings
from slipway.trainer.base import codec
from slipway.trainer.checkpoint.tiers.tier import DURABLE
from slipway.trainer.record import fence, files
from slipway.trainer.record.scores import Score


def evaluation_assets(recipe: ModelRecipe) -> list[dg.AssetsDefinition]:
    """The evaluation asset of one recipe, with a partition for each checkpoint. Waiting evaluations share a process."""

    @dg.asset(
        key=keys.key(recipe.name, "evaluation"),
        deps=[keys.key(recipe.name, "checkpoint")],
        partitions_def=keys.checkpoint_partitions(recipe.name),
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=keys.lane(recipe.name),
        kinds={"torch"},
        op_tags=pods.tags("evaluation", recipe.placement.steps.get("evaluation")),
        owners=[recipe.owner],
        description=(
            "The loss, perplexity and accuracy of a checkpoint on the whole validation split, and for texts its bits "
            "per byte. A sensor requests it for every new checkpoint; materialise it to evaluate one yourself. A "
            "checkpoint that fails verification is set aside, with the reason."
        ),
    )
    def evaluation(context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute) -> dg.MaterializeResult[None]:
        damaged = []
        measuring = in_a_run(context, tiers, compute)
        for training, steps in _by_training(context.partition_keys).items():
            root = all_trainings(tiers)
            store = root.store(training)
            facts = store.read()
            commits = [commit for commit in facts.commits_on(DURABLE) if commit.step in steps]
            scores = {score.checkpoint: score for score in evaluate(facts, commits, measuring)}
            root.open(training, WorkQueue.TRACKING)  # the scores, to MLflow
            for commit in commits:
                score = scores[commit.name]
                if score.damaged:
                    store.set_aside(commit, score.damaged)
                    damaged.append(f"step {commit.step}: {score.damaged}")
                    continue
                context.add_asset_metadata(
                    _metadata(facts, commit, score), partition_key=keys.checkpoint_partition(training, commit.step)
                )
        if damaged:
            raise dg.Failure(f"damaged checkpoints were set aside: {'; '.join(damaged)}")
        return dg.MaterializeResult()

    return [evaluation]


def evaluate(facts: TrainingFacts, commits: list[fence.Commit], measuring: Measuring) -> list[Score]:
    """Evaluate commits of one training on its own snapshot, except those that already have a score.

    Each score is written as soon as it is known. Raises dg.Failure.
    """
    waiting = [commit for commit in commits if score_of(facts, commit) is None]
    damaged = []
    for score in measuring.measure(facts.specification.snapshot, waiting, facts.run_policy):
        if score.damaged:
            damaged.append(score)
        else:
            codec.replace(_path(facts, score.checkpoint), score)
    scores = [score_of(facts, commit) for commit in commits]
    return [score for score in scores if score is not None] + damaged


def evaluated(facts: TrainingFacts) -> list[tuple[fence.Commit, Score]]:
    """The evaluated commits on the durable tier, by step, with their scores."""
    scores = [(commit, score_of(facts, commit)) for commit in facts.commits_on(DURABLE)]
    return [(commit, score) for commit, score in scores if score is not None]


def best(facts: TrainingFacts) -> tuple[fence.Commit, Score] | None:
    """The best evaluated checkpoint, the latest of equals; None if none is evaluated."""
    return min(reversed(evaluated(facts)), key=lambda pair: pair[1].ranking, default=None)


def score_of(facts: TrainingFacts, commit: fence.Commit) -> Score | None:
    """The score of a commit; None if it was not evaluated, or if its record is damaged and it must be evaluated
    again."""
    return codec.read_if_whole(_path(facts, commit.name), Score)


def _path(facts: TrainingFacts, checkpoint: str) -> Path:
    return files.named(facts.folder, files.EVALUATIONS, checkpoint)


def _metadata(facts: TrainingFacts, commit: fence.Commit, score: Score) -> dict[str, dg.MetadataValue]:
    curve = [(commit.step, known.loss) for commit, known in evaluated(facts)]
    return {
        "step": dg.MetadataValue.int(commit.step),
        "loss": dg.MetadataValue.float(score.loss),
        "perplexity": dg.MetadataValue.float(score.perplexity),
        **{name: dg.MetadataValue.float(value) for name, value in score.coded.items()},
        **{f"loss_on_{name}": dg.MetadataValue.float(loss) for name, loss in score.by_dataset.items()},
        "accuracy": dg.MetadataValue.float(score.accuracy),
        "predicted": dg.MetadataValue.int(score.tokens),
        "manifest": dg.MetadataValue.text(commit.manifest),
        "loss_curve": plots.curve({"validation loss": curve}, "step", "nats per prediction"),
    }


def _by_training(partitions: list[str] | tuple[str, ...]) -> dict[str, set[int]]:
    grouped: dict[str, set[int]] = {}
    for partition in partitions:
        training, step = keys.parse_checkpoint_partition(partition)
        grouped.setdefault(training, set()).add(step)
    return grouped
