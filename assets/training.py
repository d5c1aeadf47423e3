"""Training: the asset that submits or adopts a training job, and waits for it.

Materialising the partition requests the training. The run that waits is disposable: if it dies, the job continues and
the next run adopts it; if no run is left, the job watch materialises the result.
"""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from slipway.assets import holdout_filter, keys, results
from slipway.assets.execution import pods
from slipway.recipes import assignments
from slipway.recipes.script import ScriptRecipe
from slipway.recipes.strict import validate
from slipway.recipes.training import ModelRecipe, TrainingRecipe, layout_faults
from slipway.resources import identity
from slipway.resources.compute.protocol import Compute
from slipway.resources.errors import Unavailable
from slipway.resources.tiers import Tiers
from slipway.resources.trainings import budgets, naming
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import keep_code
from slipway.resources.trainings.records import RunPolicy, Specification, changes_sentence
from slipway.resources.trainings.store import TrainingStore, all_trainings
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.config.resolved import NUMBERS, OPERATION
from slipway.trainer.data import contents, snapshots
from slipway.trainer.metrics import measures
from slipway.trainer.record import ledger

POLICY_SECTIONS = ("placement", *OPERATION)
"""The sections of a recipe that form the run policy; the others decide a training's identity."""
ALL_NODES = dg.AllPartitionMapping()
"""A training may run on any node. Without a mapping, Dagster looks for the training's id among the nodes and refuses to
launch several trainings together."""
LOG_SECONDS = 60.0
"""Seconds between two log lines about a waiting training, because a launcher may retry every second."""


def specification(recipe: TrainingRecipe, snapshot: str, tiers: Tiers, cause: str = "") -> Specification:
    """The specification of a training recipe (its parameters applied, its initial weights located) on a snapshot.

    Stores the code of a script. If the initial weights were trained on some of the validation documents, the snapshot
    is replaced by one without these. Raises ValueError if the code cannot be stored, for a model that cannot be trained
    on the snapshot, and as `holdout_filter.snapshot_for` does.
    """
    if isinstance(recipe, ModelRecipe):
        snapshot = holdout_filter.snapshot_for(recipe.init, snapshot, tiers)
    described = snapshots.read(tiers.durable_path, snapshot)
    if isinstance(recipe, ModelRecipe):
        contents.data(described, recipe.model, recipe.batch.length)
        if recipe.mix is not None:
            _check_mix(recipe, described)
    tokenizer = contents.tokenizer_digest(described)
    return Specification(recipe.name, _numbers(recipe, tiers), snapshot, tokenizer, cause)


def _check_mix(recipe: ModelRecipe, snapshot: snapshots.Snapshot) -> None:
    """Raises ValueError for a mix that the datasets cannot provide: too little text, or too many passes."""
    from slipway.trainer.loading.needs import SnapshotReading  # a slow import that only mixes need

    len(SnapshotReading(snapshot, recipe.batch, recipe.run, recipe.validation, mix=recipe.mix).order)


def _numbers(recipe: TrainingRecipe, tiers: Tiers) -> dict[str, Any]:
    if isinstance(recipe, ScriptRecipe):
        code = keep_code(Path(recipe.code), tiers.durable_path)
        return {"script": {"command": list(recipe.command), "code": code}, "parameters": recipe.parameters}
    assert isinstance(recipe, ModelRecipe)
    return recipe.numbers()


def run_policy(
    recipe: TrainingRecipe, origin: Mapping[str, Any] | None = None, fields: Sequence[str] = (), owner: str = ""
) -> RunPolicy:
    """The run policy of a training or a trial of this recipe: its placement and its recovery.

    `fields` are the recipe's fields that a person has changed for this training alone, as FIELD=VALUE. `owner` is the
    sweep's owner for a trial; empty for the recipe's.
    """
    return RunPolicy(
        min_nodes=recipe.placement.nodes.min,
        max_nodes=recipe.placement.nodes.max,
        ranks_per_node=recipe.placement.ranks_per_node,
        staging=recipe.placement.staging,
        nvme_gigabytes=recipe.placement.nvme_gigabytes,
        no_progress_seconds=recipe.recovery.no_progress_seconds,
        failures_without_checkpoint=recipe.recovery.failures_without_checkpoint,
        pending_seconds=recipe.recovery.pending_seconds,
        grow=recipe.recovery.grow,
        phase_seconds=dict[str, float](recipe.recovery.phase_seconds.items()),
        policies=dict(recipe.recovery.policies),
        hang_seconds=recipe.recovery.hang_seconds,
        owner=owner or recipe.owner,
        origin={**(origin or {}), **({naming.CHANGED_BY_HAND: list(fields)} if fields else {})},
        init=recipe.init.folder if isinstance(recipe, ModelRecipe) and recipe.init else "",
        operation=recipe.operation() if isinstance(recipe, ModelRecipe) else {},
        kubernetes=recipe.placement.kubernetes.model_dump(mode="json", exclude_defaults=True),
        fields=[field for field in fields if field.split(".")[0] in POLICY_SECTIONS],
    )


def common_policy(recipe: TrainingRecipe) -> RunPolicy:
    """The run policy that all trainings of a recipe share, apart from origin, weights and a person's changes."""
    if isinstance(recipe, ModelRecipe):
        return run_policy(recipe.model_copy(update={"init": None}))
    return run_policy(recipe)


def follows(policy: RunPolicy, common: RunPolicy) -> bool:
    """Whether a run policy equals the recipe's `common` policy: a cheap check that is enough for most trainings."""
    own = {"origin": policy.origin, "init": policy.init, "fields": policy.fields, "edition": policy.edition}
    return not policy.fields and dataclasses.replace(common, **own) == policy  # type: ignore[arg-type]


def current_policy(recipe: TrainingRecipe, policy: RunPolicy, numbers: Mapping[str, Any]) -> RunPolicy:
    """The run policy of a training under the current version of its recipe, given its present policy and numbers.

    It keeps its origin, the place of its weights, and a person's changes. Raises ValueError if the recipe's layout does
    not fit the training's numbers, which may come from an earlier version of the recipe.
    """
    own: TrainingRecipe = assignments.applied(recipe, policy.fields)
    if isinstance(own, ModelRecipe):
        sections = {name: numbers[name] for name in NUMBERS if name in numbers}
        own = validate(ModelRecipe, {**own.model_dump(mode="json"), **sections, "init": None})
        for fault in layout_faults(own):
            raise ValueError(f"the changed recipe does not fit its numbers: {fault}; it keeps its run policy")
    now = run_policy(own, policy.origin, policy.fields)
    return dataclasses.replace(now, origin=policy.origin, init=policy.init, edition=policy.edition)


def training_assets(recipe: TrainingRecipe) -> list[dg.AssetsDefinition]:
    """The training asset of one recipe, with a partition for each training id."""

    @dg.asset(
        key=keys.key(recipe.name, "training"),
        deps=[
            dg.AssetDep(keys.key(dataset, "staged_shards"), partition_mapping=ALL_NODES) for dataset in recipe.datasets
        ],
        partitions_def=keys.training_partitions(recipe.name),
        group_name=keys.lane(recipe.name),
        kinds={"torch" if isinstance(recipe, ModelRecipe) else "script"},
        owners=[recipe.owner],
        op_tags=pods.tags("training"),
        output_required=False,  # a stopped training has no result, and a result is reported only once
        description=(
            f"{recipe.description} A partition is one training: the recipe on one snapshot. Materialise it to start "
            "the training, or to follow it if it already runs. To stop the training, cancel the run; if the run only "
            "fails or is interrupted, the training continues."
        ),
    )
    def training(
        context: dg.AssetExecutionContext, tiers: Tiers, compute: Compute
    ) -> Iterator[dg.MaterializeResult[None]]:
        root = all_trainings(tiers)
        store = root.store(context.partition_key)
        named = {keys.TRAINING_TAG: store.id, keys.NAME_TAG: naming.of(store.read())}
        context.instance.add_run_tags(context.run.run_id, named)
        # A run that a person re-executes has the tags of the first run, but that person requests the training.
        if keys.SHOWS_TAG not in context.run.tags or context.run.parent_run_id is not None:
            _follow_recipe(context, store, recipe)
            root.start(store, identity.of_run(context.run), "materialized")
        _wait(context, store, compute.control(tiers), compute.poll_seconds)
        facts = store.read()
        if not facts.succeeded:
            _tell_end(context, facts)
            return
        with results.showing(context.instance, facts) as due:
            if due:
                yield dg.MaterializeResult(
                    metadata=results.result_metadata(facts), data_version=results.result_version(facts)
                )
            else:
                context.log.info(f"{facts.id}: its result was already reported")

    return [training]


def _tell_end(context: dg.AssetExecutionContext, facts: TrainingFacts) -> None:
    """Log why a training has no result. Raises Failure if it was given up, but not if it was stopped or paused."""
    why = facts.desired.why if facts.desired else "it was never requested"
    reason = f"{facts.id} should not run any more: {why}"
    if facts.ended is not None and facts.ended.outcome == "failed" and budgets.exhausted_by(facts):
        raise dg.Failure(reason)
    context.log.info(f"{reason}; materialise this partition to go on")


def _follow_recipe(context: dg.AssetExecutionContext, store: TrainingStore, recipe: TrainingRecipe) -> None:
    """Update the run policy of a requested training from its recipe, because the proposal may be old."""
    try:
        now = current_policy(recipe, store.run_policy(), store.specification().identity_config)
    except ValueError as error:
        context.log.warning(str(error))
        return
    changed = store.change_run_policy(now, identity.of_run(context.run), f"recipe {recipe.name}")
    if changed:
        context.log.info(f"its run policy now follows the recipe: {changes_sentence(changed)}")


def _wait(
    context: dg.AssetExecutionContext, store: TrainingStore, control: TrainingControl, poll_seconds: float
) -> None:
    """Advance the training until it has ended. Log the reason while it waits, and its ledger while it runs."""
    tail = ledger.Tail(store.folder)
    logged = ""
    logged_at = -math.inf
    generation = 0
    while True:
        if store.desired_generation() != generation:
            generation = store.desired_generation()
            context.instance.add_run_tags(context.run.run_id, {keys.LIFE_TAG: str(generation)})
        try:
            action = control.advance(store, f"run {context.run.run_id}", run=context.run.run_id)
            waiting = control.waiting(store.read(), poll_seconds) if action is Action.WAIT else None
        except Unavailable as error:
            context.log.warning(f"the launcher does not answer, and the run tries again: {error}")
            action = Action.WAIT
            waiting = None
        if waiting and waiting.reason != logged and time.monotonic() - logged_at >= LOG_SECONDS:
            context.log.info(f"it waits: {waiting.reason}")
            logged = waiting.reason
            logged_at = time.monotonic()
        for event in tail.new():
            _show(context, event)
        if action is Action.DONE:
            return
        if action is Action.WAIT:
            time.sleep(poll_seconds)


def _show(context: dg.AssetExecutionContext, event: JournalEvent) -> None:
    """Log an event of the ledger in the run, but only every tenth step."""
    match event["event"]:
        case "step" if event["step"] % 10 == 0:
            figures = "".join(f", {name} {value:,.6g}" for name, value in event.get("figures", {}).items())
            figures = figures or f", {measures.throughput(event)}"
            context.log.info(f"step {event['step']}: loss {event['loss']:.4f}{figures}")
        case "step" | "segment" | "validated":
            pass
        case "staged":
            context.log.info(f"{event['node']} is staging: {event['progress']}")
        case name:
            fields = {k: v for k, v in event.items() if k not in ("event", "t")}
            context.log.info(f"{name}: {fields}")
