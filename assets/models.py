"""Models: the best checkpoint of a training as candidate, and the champion that it becomes when the checks pass.

The gate is two blocking checks on the candidate: it must beat the unigram entropy of the validation split (of
pictures, the entropy of their classes), and the champion of the day evaluated anew on the same text, in bits per
byte. Where no text is coded (pictures, a model that sees both sides) the loss is compared instead.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from assets import keys, pods
from assets.datasets import snapshot as snapshots
from assets.datasets.images.snapshot import class_entropy
from assets.evaluation import evaluated, measure
from recipes.schema import Training
from resources.compute import Compute, trainings
from resources.registry import CHAMPION, FOLDER_TAG, MANIFEST_TAG, SNAPSHOT_TAG, Registry, Version
from resources.tiers import Tiers
from resources.tracking import Tracking
from resources.training_store import TrainingStore
from trainer import images, shards
from trainer.fence import Commit, Token
from trainer.scores import Score
from trainer.snapshots import Snapshot, read

BEATS_UNIGRAMS, BEATS_CHAMPION = "beats_unigram_entropy", "beats_champion"


def model_assets(recipe: Training) -> list[dg.AssetsDefinition]:
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
        commit, score = _best(store)
        registry = Registry(tracking, tiers.durable_path)
        tags = lineage(store, commit, score, compute.revision)
        source = tiers.durable_path / commit.folder
        version = registry.register(recipe.registered_model, source, tracking.run_of(store), tags)
        yield dg.MaterializeResult(
            metadata={"version": version.number, "step": commit.step, "bits_per_byte": score.bits_per_byte, **tags},
            data_version=dg.DataVersion(commit.manifest),
        )
        described = read(tiers.durable_path, store.specification().snapshot)
        yield _unigram_check(score, _entropy(described, tiers.durable_path), candidate_key)
        yield _champion_check(registry, version, score, described, tiers, candidate_key)

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
    def champion(context: dg.AssetExecutionContext, tiers: Tiers, tracking: Tracking) -> dg.MaterializeResult[None]:
        store = trainings(tiers).store(context.partition_key)
        commit, score = _best(store)
        registry = Registry(tracking, tiers.durable_path)
        version = registry.find(recipe.registered_model, commit.manifest)
        if version is None:
            raise dg.Failure(f"{store.id}: its best checkpoint is not registered: materialise its candidate first")
        held = registry.aliased(recipe.registered_model, CHAMPION)
        if held is None or held.number != version.number:
            registry.promote(version, {"bits_per_byte": score.bits_per_byte, "run": context.run.run_id})
        return dg.MaterializeResult(
            metadata={
                "model": version.model,
                "version": version.number,
                "previous_version": held.number if held else "none",
                "training": store.id,
                "step": commit.step,
                "loss": score.loss,
                "bits_per_byte": score.bits_per_byte,
                "dagster/uri": version.source,
            },
            data_version=dg.DataVersion(commit.manifest),
        )

    return [candidate, champion]


ALL = dg.AllPartitionMapping()
"""A candidate looks at every evaluation of its training; Dagster has no mapping by prefix."""


def lineage(store: TrainingStore, commit: Commit, score: Score, revision: str) -> dict[str, str]:
    """Everything that a registered version must be able to say about where it came from."""
    specification = store.specification()
    return {
        MANIFEST_TAG: commit.manifest,
        FOLDER_TAG: commit.folder,
        "slipway.commit": commit.name,
        "slipway.training": store.id,
        "slipway.recipe": specification.recipe,
        SNAPSHOT_TAG: specification.snapshot,
        "slipway.tokenizer": specification.tokenizer,
        "slipway.revision": revision or "unknown",
        "slipway.bits_per_byte": f"{score.bits_per_byte:.6f}",
        "slipway.loss": f"{score.loss:.6f}",
        **{f"slipway.origin.{name}": str(value) for name, value in store.terms().origin.items()},
    }


def _best(store: TrainingStore) -> tuple[Commit, Score]:
    """The evaluated checkpoint that ranks first; of equals, the latest."""
    scored = evaluated(store)
    if not scored:
        raise dg.Failure(f"{store.id}: no checkpoint is evaluated yet: materialise its evaluations first")
    return min(reversed(scored), key=lambda pair: pair[1].ranking)


def _entropy(described: Snapshot, durable: Path) -> float:
    """What a model reaches that knows how frequent each token or class is, and nothing else; in nats."""
    if isinstance(described, images.Snapshot):
        return class_entropy(described, durable)
    return snapshots.unigram_entropy(described, durable)


def _unigram_check(score: Score, entropy: float, asset: dg.AssetKey) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=BEATS_UNIGRAMS,
        asset_key=asset,
        passed=score.loss < entropy,
        metadata={"loss": score.loss, "unigram_entropy": entropy},
    )


def _champion_check(
    registry: Registry, version: Version, score: Score, described: Snapshot, tiers: Tiers, asset: dg.AssetKey
) -> dg.AssetCheckResult:
    held = registry.aliased(version.model, CHAMPION)
    if held is None or held.number == version.number:
        note = "there is no champion yet" if held is None else "this version is the champion"
        return dg.AssetCheckResult(check_name=BEATS_CHAMPION, asset_key=asset, passed=True, metadata={"note": note})
    rival = _measure_anew(held, described, tiers)
    metadata: dict[str, Any] = {"champion_version": held.number, "bits_per_byte": score.bits_per_byte}
    if rival.damaged:
        metadata["note"] = f"the champion's checkpoint cannot be read: {rival.damaged}"
        return dg.AssetCheckResult(check_name=BEATS_CHAMPION, asset_key=asset, passed=True, metadata=metadata)
    metadata["champion_bits_per_byte"] = rival.bits_per_byte
    metadata |= {"loss": score.loss, "champion_loss": rival.loss}
    passed = score.ranking < rival.ranking and bool(score.bits_per_byte) == bool(rival.bits_per_byte)
    return dg.AssetCheckResult(check_name=BEATS_CHAMPION, asset_key=asset, passed=passed, metadata=metadata)


def _measure_anew(held: Version, described: Snapshot, tiers: Tiers) -> Score:
    """The champion on the candidate's validation split; on its text, in the champion's own tokens."""
    tags = held.tags
    spoken = read(tiers.durable_path, tags[SNAPSHOT_TAG])
    if isinstance(described, shards.Snapshot) and isinstance(spoken, shards.Snapshot):
        described = snapshots.in_tokens_of(described, spoken, tiers.durable_path)
    commit = Commit(0, Token(0), tags["slipway.checkpoint"], tags[MANIFEST_TAG])
    return measure(described.sha256, [commit], tiers)[0]
