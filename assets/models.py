"""Models: the best checkpoint of a training as candidate, and the champion that it becomes when the checks pass.

`assets.gate` judges the candidate; what it finds is shown as two blocking checks, and is the record that the promotion
needs. Materialising the champion alone therefore promotes nothing that did not pass.
"""

from collections.abc import Iterator

import dagster as dg

from assets import keys
from assets.evaluation import best
from assets.execution import pods
from assets.gate import BEATS_CHAMPION, BEATS_UNIGRAMS, Gate
from assets.measuring import in_a_run
from recipes.training import ModelRecipe
from resources.compute.protocol import Compute
from resources.mlflow.promotion import Judgement, NotPromoted
from resources.mlflow.registry import FOLDER_TAG, MANIFEST_TAG, SNAPSHOT_TAG, TRAINING_TAG
from resources.mlflow.tracking import Tracking
from resources.tiers import Tiers
from resources.trainings.facts import TrainingFacts
from resources.trainings.roots import trainings
from trainer.record.fence import Commit
from trainer.record.scores import Score


def model_assets(recipe: ModelRecipe) -> list[dg.AssetsDefinition]:
    """Candidate and champion of one lane, a partition for each training."""
    group, partitions = keys.lane(recipe.name), keys.training_partitions(recipe.name)
    candidate_key = keys.key(recipe.name, "candidate")

    @dg.asset(
        key=candidate_key,
        deps=[
            keys.key(recipe.name, "training"),
            dg.AssetDep(keys.key(recipe.name, "evaluation"), partition_mapping=ALL),
        ],
        partitions_def=partitions,
        group_name=group,
        kinds={"mlflow"},
        op_tags=pods.tags("model"),
        owners=[recipe.owner],
        check_specs=[
            dg.AssetCheckSpec(
                BEATS_UNIGRAMS,
                asset=candidate_key,
                blocking=True,
                partitions_def=partitions,
                description="The loss on the validation split is below the entropy of its tokens or classes.",
            ),
            dg.AssetCheckSpec(
                BEATS_CHAMPION,
                asset=candidate_key,
                blocking=True,
                partitions_def=partitions,
                description="Fewer bits per byte (or a lower loss) than the champion, on the same split.",
            ),
        ],
        description=(
            "The training's best checkpoint on the validation split, registered in MLflow by reference with its whole "
            "lineage: snapshot, tokenizer, code revision, configuration, checkpoint manifest."
        ),
    )
    def candidate(
        context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        store = trainings(tiers).store(context.partition_key)
        facts = store.read()
        commit, score = _best(facts)
        gate = Gate(in_a_run(context, tiers, compute), tracking, recipe.registered_model)
        tags = lineage(facts, commit, score, compute.revision)
        source = tiers.durable_path / commit.folder
        version = gate.registry.register(gate.model, source, tracking.run_of(store), tags)
        yield dg.MaterializeResult(
            metadata={"version": version.number, "step": commit.step, "bits_per_byte": score.bits_per_byte, **tags},
            data_version=dg.DataVersion(commit.manifest),
        )
        yield from _checks(gate.judge(version, f"run {context.run.run_id}"), candidate_key)

    @dg.asset(
        key=keys.key(recipe.name, "champion"),
        deps=[candidate_key],
        partitions_def=partitions,
        group_name=group,
        kinds={"mlflow"},
        op_tags=pods.tags("model"),
        owners=[recipe.owner],
        description="The registered version that is served: the candidate that passed its checks, with the evidence.",
    )
    def champion(
        context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> dg.MaterializeResult[None]:
        facts = trainings(tiers).store(context.partition_key).read()
        commit, score = _best(facts)
        gate = Gate(in_a_run(context, tiers, compute), tracking, recipe.registered_model)
        version = gate.registry.find(gate.model, commit.manifest)
        if version is None:
            raise dg.Failure(f"{facts.id}: its best checkpoint is not registered: materialise its candidate first")
        try:
            promotion = gate.promote(version, f"run {context.run.run_id}", "it passed its checks")
        except NotPromoted as error:
            raise dg.Failure(str(error)) from None
        return dg.MaterializeResult(
            metadata={
                "model": version.model,
                "version": version.number,
                "previous_version": promotion.before or "none",
                "training": facts.id,
                "step": commit.step,
                "loss": score.loss,
                "bits_per_byte": score.bits_per_byte,
                "dagster/uri": version.source,
            },
            data_version=dg.DataVersion(commit.manifest),
        )

    return [candidate, champion]


ALL = dg.AllPartitionMapping()
"""A candidate depends on every evaluation of its training; Dagster has no mapping by prefix."""


def lineage(facts: TrainingFacts, commit: Commit, score: Score, revision: str) -> dict[str, str]:
    """The tags of a registered version: where it came from."""
    specification = facts.specification
    return {
        MANIFEST_TAG: commit.manifest,
        FOLDER_TAG: commit.folder,
        "slipway.commit": commit.name,
        TRAINING_TAG: facts.id,
        "slipway.recipe": specification.recipe,
        SNAPSHOT_TAG: specification.snapshot,
        "slipway.tokenizer": specification.tokenizer,
        "slipway.revision": revision or "unknown",
        "slipway.bits_per_byte": f"{score.bits_per_byte:.6f}",
        "slipway.loss": f"{score.loss:.6f}",
        **{f"slipway.origin.{name}": str(value) for name, value in facts.terms.origin.items()},
    }


def _best(facts: TrainingFacts) -> tuple[Commit, Score]:
    found = best(facts)
    if found is None:
        raise dg.Failure(f"{facts.id}: no checkpoint is evaluated yet: materialise its evaluations first")
    return found


def _checks(judgement: Judgement, asset: dg.AssetKey) -> Iterator[dg.AssetCheckResult]:
    """What the gate found, as the results of the candidate's checks."""
    note = judgement.undecided or ("" if judgement.champion else "there is no champion yet")
    metadata = {**judgement.figures, **({"note": note} if note else {})}
    for name, passed in judgement.checks.items():
        yield dg.AssetCheckResult(check_name=name, asset_key=asset, passed=passed, metadata=metadata)
