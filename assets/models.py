"""Models: the best checkpoint of a training becomes the candidate, and the champion if its checks pass.

`slipway.assets.promotion.gate` judges the candidate. Its findings appear as checks, one with a picture of the
interval, and as the record that the promotion requires, so materialising the champion promotes only a candidate that
passed. If one run judges and promotes, a rejection is not a failure: the champion's partition shows the reason.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from slipway.assets import keys, model_card, plots, stages
from slipway.assets.execution import pods
from slipway.assets.measurement import in_a_run
from slipway.assets.promotion.evaluation import best
from slipway.assets.promotion.gate import Gate
from slipway.assets.promotion.policy_checks import CHECKS
from slipway.recipes.suite import SuiteRecipe
from slipway.recipes.training import ModelRecipe
from slipway.resources import identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.mlflow.registry import FOLDER_TAG, MANIFEST_TAG, SNAPSHOT_TAG, TRAINING_TAG
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.promotions import model_record
from slipway.resources.promotions.promotion import Judgement, NotAPromoter, NotPromoted
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.data import snapshots
from slipway.trainer.record.fence import Commit
from slipway.trainer.record.scores import Score


def model_assets(recipe: ModelRecipe, suites: Mapping[str, SuiteRecipe]) -> list[dg.AssetsDefinition]:
    """Candidate and champion of one recipe, with a partition for each training; `suites` are the suites' recipes."""
    group = keys.lane(recipe.name)
    partitions = keys.training_partitions(recipe.name)
    candidate_key = keys.key(recipe.name, "candidate")
    measured_on = [keys.key(recipe.suite, "suite")] if recipe.suite else []

    def gate_of(context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute, tracking: Tracking) -> Gate:
        measuring = in_a_run(context, tiers, compute)
        return Gate(measuring, tracking, recipe.registered_model, {recipe.name: recipe}, suites)

    @dg.asset(
        key=candidate_key,
        deps=[
            keys.key(recipe.name, "training"),
            dg.AssetDep(keys.key(recipe.name, "evaluation"), partition_mapping=ALL),
            *measured_on,
        ],
        partitions_def=partitions,
        group_name=group,
        kinds={"mlflow"},
        op_tags=pods.tags("model", recipe.placement.steps.get("model")),
        owners=[recipe.owner],
        check_specs=[
            dg.AssetCheckSpec(name, asset=candidate_key, partitions_def=partitions, description=text)
            for name, text in CHECKS.items()
        ],
        description=(
            "The training's best checkpoint on the validation split, registered in MLflow with its lineage: snapshot, "
            "tokenizer, code revision, configuration and checkpoint manifest. Materialise it to register the "
            "checkpoint and run the checks that compare it with the champion."
        ),
    )
    def candidate(
        context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        store = all_trainings(tiers).store(context.partition_key)
        facts = store.read()
        commit, score = _best(facts)
        gate = gate_of(context, tiers, compute, tracking)
        tags = lineage(facts, commit, score, compute.revision)
        source = tiers.durable_path / commit.folder
        snapshot = snapshots.read(tiers.durable_path, facts.specification.snapshot)
        how = stages.of_snapshot(tiers.durable_path, snapshot)
        record = model_record.of_checkpoint(gate.model, facts, commit, score, snapshot, tiers.durable_path, how)
        model_record.keep(tiers.durable_path, record)
        run = tracking.run_of(store)
        version = gate.registry.register(gate.model, source, run, tags)
        try:
            judgement = gate.judge(version, identity.of_run(context.run))
        except ValueError as error:
            raise dg.Failure(f"{facts.id}: its candidate cannot be judged: {error}") from None
        record = model_record.read(tiers.durable_path, gate.model, commit.manifest) or record
        page = tracking.pages.of_run(run)
        yield dg.MaterializeResult(
            metadata={
                "version": version.number,
                "step": commit.step,
                **score.coded,
                **tags,
                **({"mlflow": dg.MetadataValue.url(page)} if page else {}),
                "not_known": ", ".join(model_record.not_known(record)) or "nothing",
                "model_card": dg.MetadataValue.md(model_card.of(record, judgement)),
            },
            data_version=dg.DataVersion(commit.manifest),
        )
        yield from _checks(judgement, candidate_key)

    @dg.asset(
        key=keys.key(recipe.name, "champion"),
        deps=[candidate_key],
        partitions_def=partitions,
        group_name=group,
        kinds={"mlflow"},
        op_tags=pods.tags("model", recipe.placement.steps.get("model")),
        owners=[recipe.owner],
        output_required=False,  # a rejected candidate becomes no champion
        description=(
            "The model version in production. Materialise it to promote the training's candidate, which must have "
            "passed its checks; if the candidate was rejected, the newest event says why."
        ),
    )
    def champion(
        context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute, tracking: Tracking
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetObservation]:
        facts = all_trainings(tiers).store(context.partition_key).read()
        commit, score = _best(facts)
        gate = gate_of(context, tiers, compute, tracking)
        version = gate.registry.find(gate.model, commit.manifest)
        if version is None:
            raise dg.Failure(f"{facts.id}: its best checkpoint is not registered: materialise its candidate first")
        by = identity.of_run(context.run)
        judgement = gate.promotions.judged(version.manifest)
        judges = judgement is not None and judgement.by == by
        try:
            promotion = gate.promote(version, by, "it passed its checks")
        except NotPromoted as error:
            if not judges or isinstance(error, NotAPromoter):  # a person asked for this promotion, so the run fails
                raise dg.Failure(str(error)) from None
            yield _rejection(context, str(error))
            return
        except ValueError as error:
            raise dg.Failure(f"{facts.id}: its candidate cannot be judged: {error}") from None
        yield dg.MaterializeResult(
            metadata={
                "model": version.model,
                "version": version.number,
                "previous_version": promotion.before or "none",
                "training": facts.id,
                "step": commit.step,
                "loss": score.loss,
                **score.coded,
                "dagster/uri": version.source,
            },
            data_version=dg.DataVersion(commit.manifest),
        )

    return [candidate, champion]


ALL = dg.AllPartitionMapping()
"""A candidate depends on every evaluation of its training; Dagster has no mapping by prefix."""


def lineage(facts: TrainingFacts, commit: Commit, score: Score, revision: str) -> dict[str, str]:
    """The tags of a registered version, which record its origin."""
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
        **{f"slipway.{name}": f"{value:.6f}" for name, value in {**score.coded, "loss": score.loss}.items()},
        **{f"slipway.origin.{name}": str(value) for name, value in facts.run_policy.origin.items()},
    }


def _rejection(context: dg.AssetExecutionContext, why: str) -> dg.AssetObservation:
    """The event that shows why a candidate did not become the champion, which is not a failure."""
    context.log.warning(why)
    return dg.AssetObservation(
        context.asset_key, partition=context.partition_key, description=why, metadata={"not_the_champion": why}
    )


def _best(facts: TrainingFacts) -> tuple[Commit, Score]:
    commit = best(facts)
    if commit is None:
        raise dg.Failure(f"{facts.id}: no checkpoint is evaluated yet: materialise its evaluations first")
    return commit


def _checks(judgement: Judgement, asset: dg.AssetKey) -> Iterator[dg.AssetCheckResult]:
    """The gate's findings as results of the candidate's checks."""
    note = judgement.undecided
    if not note and not judgement.champion:
        note = "there is no champion yet"
    common = {name: value for name, value in judgement.figures.items() if name != "checks" and value is not None}
    common["inputs"] = dg.MetadataValue.json(dict(judgement.inputs))
    if note:
        common["note"] = note
    for name, passed in judgement.checks.items():
        own = {key: value for key, value in judgement.figures["checks"].get(name, {}).items() if value is not None}
        metadata = {**common, **{key: _metadata_value(value) for key, value in own.items()}}
        if "interval_high" in own:
            metadata["interval"] = _interval(own, str(judgement.figures["unit"]))
        yield dg.AssetCheckResult(check_name=name, asset_key=asset, passed=passed, metadata=metadata)


def _metadata_value(value: Any) -> Any:
    if isinstance(value, dict | list):
        return dg.MetadataValue.json(value)
    return value


def _interval(own: Mapping[str, Any], unit: str) -> dg.MarkdownMetadataValue:
    """A plot of the paired difference with its interval, and of the margin that must exceed the upper end."""
    difference = own["difference"], own["interval_low"], own["interval_high"]
    return plots.interval(*difference, own["margin"], f"candidate less champion, {unit} (left is better)")
